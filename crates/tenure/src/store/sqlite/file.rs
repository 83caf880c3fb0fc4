//! What the threads of a handle share: the place, the bell, and the certainty that the file is still the same.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::super::hub::{Hub, lock};
use super::super::{Signal, StoreError};
use super::bell::Bell;
use super::place::Place;
use super::{STORE, fault};

/// The file of one handle.
#[derive(Debug)]
pub(super) struct SharedFile {
    place: Place,
    bell: Mutex<Arc<Bell>>,
    hub: Arc<Hub>,
    number: (u64, u64),
    lost: AtomicBool,
}

impl SharedFile {
    /// Remembers which file it is; it exists by now.
    pub(super) fn new(place: Place, bell: Bell, hub: Arc<Hub>) -> Result<Self, StoreError> {
        let number = place.device_and_inode().ok_or_else(|| gone(&place.file))?;
        Ok(Self { place, bell: Mutex::new(Arc::new(bell)), hub, number, lost: AtomicBool::new(false) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.place.file
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn number(&self) -> (u64, u64) {
        self.number
    }

    pub(super) fn bell(&self) -> Arc<Bell> {
        lock(&self.bell).clone()
    }

    /// Takes another bell if somebody removed or replaced the file; true if it did.
    pub(super) fn renew_bell(&self) -> Result<bool, StoreError> {
        if self.bell().is_current() {
            return Ok(false);
        }
        let bell = Bell::open(&self.place.bell)
            .map_err(|error| fault::of_io("open the bell", &self.place.bell, error))?;
        *lock(&self.bell) = Arc::new(bell);
        Ok(true)
    }

    /// Refuses to go on with a file that was removed or replaced: others would use another one, and elect another
    /// leader in it. The first to notice says [`Signal::Forgot`].
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if !self.lost.load(Ordering::Acquire) && self.place.device_and_inode() == Some(self.number) {
            return Ok(());
        }
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.hub.send_all(&Signal::Forgot);
        }
        Err(gone(&self.place.file))
    }
}

fn gone(path: &Path) -> StoreError {
    let message = format!(
        "{} was removed or replaced while in use: stop every process that uses it, then start them again",
        path.display()
    );
    StoreError::not_applied(STORE, message).permanent()
}
