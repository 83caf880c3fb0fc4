//! The notifier: a file beside the database that is written after every commit which others have to know of, so that the
//! kernel wakes them; and the queue in which writers wait their turn.
//!
//! Watching the database's own log would not do: it is written before the commit can be seen.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::access::Access;
use super::frozen::Standstill;

/// The file, open.
#[derive(Debug)]
pub(super) struct Notifier {
    path: PathBuf,
    file: File,
}

impl Notifier {
    /// Opens the file, and makes it if it is missing. A user who can open it can keep every writer waiting, so that only
    /// those who share the database can.
    pub(super) fn open(path: &Path, access: Access) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: access.open(path)? })
    }

    /// Wakes every process that watches. A notification that fails is a hint lost: it is found at the next beat.
    pub(super) fn notify(&self) {
        if let Err(error) = self.file.write_at(b"!", 0) {
            tracing::debug!(%error, notifier = %self.path.display(), "could not notify");
        }
    }

    /// Waits for the turn to write. The kernel keeps the queue in order and wakes only the first in it; SQLite's own
    /// waiting is a lottery, which hundreds of processes lose now and then.
    ///
    /// If the kernel refuses, SQLite's own lock still keeps writers apart.
    pub(super) fn turn(&self) -> Turn<'_> {
        while let Err(rustix::io::Errno::INTR) = flock(&self.file, FlockOperation::LockExclusive) {}
        Turn(self)
    }

    /// The same, but no longer than that.
    pub(super) fn turn_within(&self, patience: Duration) -> Option<Turn<'_>> {
        let until = Instant::now() + patience;
        let standstill = Standstill::default();
        while flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= until {
                return None;
            }
            standstill.goes_on(&self.path);
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(Turn(self))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is still the file that others would open.
    pub(super) fn is_current(&self) -> bool {
        let number = |found: std::fs::Metadata| (found.dev(), found.ino());
        match (std::fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(there), Ok(mine)) => number(there) == number(mine),
            _ => false,
        }
    }

    /// A descriptor that can be read whenever another process notified.
    #[cfg(target_os = "linux")]
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let changes =
            WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        add_watch(&inotify, &self.path, changes)?;
        Ok(inotify)
    }

    /// Only Linux has the means.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The turn to write, until dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Notifier);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = flock(&self.0.file, FlockOperation::Unlock);
    }
}
