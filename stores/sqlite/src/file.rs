//! What the threads of a handle share: the location, the notifier, and the certainty that the file is still the same.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::location::FileLocation;
use super::notifier::Notifier;
use super::{STORE, error};
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Signal, StoreError};

/// The file of one handle.
#[derive(Debug)]
pub(super) struct SharedFile {
    location: FileLocation,
    notifier: Mutex<Arc<Notifier>>,
    watches: Arc<Watches>,
    number: (u64, u64),
    lost: AtomicBool,
}

impl SharedFile {
    /// Remembers which file it is; it exists by now.
    pub(super) fn new(
        location: FileLocation,
        notifier: Notifier,
        watches: Arc<Watches>,
    ) -> Result<Self, StoreError> {
        let number = location.device_and_inode().ok_or_else(|| gone(&location.file))?;
        Ok(Self {
            location,
            notifier: Mutex::new(Arc::new(notifier)),
            watches,
            number,
            lost: AtomicBool::new(false),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.location.file
    }

    pub(super) fn location(&self) -> &FileLocation {
        &self.location
    }

    pub(super) fn number(&self) -> (u64, u64) {
        self.number
    }

    pub(super) fn notifier(&self) -> Arc<Notifier> {
        lock(&self.notifier).clone()
    }

    /// Opens the notifier anew if another process removed or replaced the file; true if it did.
    pub(super) fn renew_notifier(&self) -> Result<bool, StoreError> {
        if self.notifier().is_current() {
            return Ok(false);
        }
        let notifier = Notifier::open(&self.location.notifier, self.location.access)
            .map_err(|error| error::of_io("open the notifier", &self.location.notifier, error))?;
        *lock(&self.notifier) = Arc::new(notifier);
        Ok(true)
    }

    /// Refuses to go on with a file that was removed or replaced: others would use another one, and elect another
    /// leader in it. The first to notice says [`Signal::Forgot`].
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if !self.lost.load(Ordering::Acquire) && self.location.device_and_inode() == Some(self.number) {
            return Ok(());
        }
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.watches.send_all(&Signal::Forgot);
        }
        Err(gone(&self.location.file))
    }
}

fn gone(path: &Path) -> StoreError {
    let message = format!(
        "{} was removed or replaced while in use: stop every process that uses it, then start them again",
        path.display()
    );
    StoreError::not_applied(STORE, message).permanent()
}
