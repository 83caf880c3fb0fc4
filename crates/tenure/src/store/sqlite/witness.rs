//! The kernel as a witness: a session holds the lock of a file of its own for as long as its process lives, and
//! whoever waits for that lock knows at once, and for certain, when it died.
//!
//! The file's device and inode are in the session's record; a missing or different file is no evidence. So the files
//! may be swept away at any time, and a clean end, which needs no evidence, removes its own.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

use super::super::hub::{Hub, lock};
use super::super::{Evidence, Name, SessionId, Signal, StoreError, Witness};
use super::{STORE, fault};

/// A lock file that nobody holds is swept away when it is older than this, whatever became of its session.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// A session whose lock is older than this has been written, if it ever was.
const SETTLED: Duration = Duration::from_secs(2);

/// A waiting thread does nothing but wait.
const STACK: usize = 128 * 1024;

/// The locks that this handle holds, and those it waits for.
#[derive(Debug)]
pub(super) struct Witnesses {
    directory: PathBuf,
    held: Mutex<HashMap<SessionId, File>>,
    attended: Arc<Mutex<Attended>>,
    covers_work: AtomicBool,
    hub: Arc<Hub>,
}

/// Whether the word of a witness is still wanted. There is an entry for each waiting thread.
type Attended = HashMap<(Name, SessionId, String), bool>;

impl Witnesses {
    pub(super) fn new(directory: &Path, hub: Arc<Hub>) -> Self {
        Self {
            directory: directory.to_owned(),
            held: Mutex::default(),
            attended: Arc::default(),
            covers_work: AtomicBool::new(true),
            hub,
        }
    }

    pub(super) fn set_covers_work(&self, covers: bool) {
        self.covers_work.store(covers, Ordering::Release);
    }

    /// Makes the file of a session that is about to be opened, and holds its lock.
    pub(super) fn attest(&self, session: SessionId) -> Result<Witness, StoreError> {
        let path = self.path(session);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        let file = made
            .and_then(|()| create(&path))
            .map_err(|error| fault::of_io("create the lock", &path, error))?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            let message = format!("cannot lock {}: {error}", path.display());
            return Err(StoreError::not_applied(STORE, message).caused_by(io::Error::from(error)));
        }
        let id = file
            .metadata()
            .map_err(|error| fault::of_io("look at", &path, error))
            .map(|found| id_of(&found))?;
        lock(&self.held).insert(session, file);
        Ok(Witness { id, covers_work: self.covers_work.load(Ordering::Acquire), connection: false })
    }

    /// Removes the file first, so that nobody takes a clean end for a death, and lets go of it. A duplicate of the
    /// descriptor in another process goes on holding the lock.
    pub(super) fn release(&self, session: SessionId) {
        if let Some(file) = lock(&self.held).remove(&session) {
            let _ = fs::remove_file(self.path(session));
            drop(file);
        }
    }

    /// A duplicate of the descriptor that holds the lock of a session, not inherited by children.
    pub(super) fn duplicate(&self, session: SessionId) -> Option<OwnedFd> {
        lock(&self.held).get(&session)?.try_clone().ok().map(OwnedFd::from)
    }

    /// Waits, in a thread of its own, for the lock of that session. There is never more than one for each.
    pub(super) fn attend(&self, namespace: &Name, session: SessionId, witness: &str) {
        let who = (namespace.clone(), session, witness.to_owned());
        if lock(&self.attended).insert(who.clone(), true).is_some() {
            return;
        }
        let (path, hub, attended) = (self.path(session), self.hub.clone(), self.attended.clone());
        let waiting = who.clone();
        let wait = move || {
            let let_go = outlive(&path, &waiting.2);
            let wanted = lock(&attended).remove(&waiting).unwrap_or(false);
            if let_go && wanted {
                let (namespace, session, witness) = waiting;
                hub.send(&namespace, &Signal::Witnessed(Evidence::Dead { session, witness }));
            }
        };
        let name = "tenure-witness".to_owned();
        if let Err(error) = std::thread::Builder::new().name(name).stack_size(STACK).spawn(wait) {
            tracing::warn!(%error, "no thread to wait for a witness; the lease decides");
            lock(&self.attended).remove(&who);
        }
    }

    /// The thread goes on waiting, but says nothing.
    pub(super) fn ignore(&self, namespace: &Name, session: SessionId) {
        for ((attended, whose, _), wanted) in lock(&self.attended).iter_mut() {
            if attended == namespace && *whose == session {
                *wanted = false;
            }
        }
    }

    /// Removes the files of the dead: those that nobody holds, and whose session is over or that are old.
    pub(super) fn sweep(&self, sessions: &HashMap<String, bool>) {
        for (session, path) in self.files() {
            let over = sessions.get(&session).copied().unwrap_or(false);
            if (over || age(&path) > OLD) && !is_held(&path) {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Whether somebody has held the lock of a session for a while that the file does not know: the file was replaced
    /// under processes that live on, and may lead until their lease ends. A lock is taken shortly before its session
    /// is written, so a fresh one proves nothing.
    pub(super) fn has_strangers(&self, sessions: &HashMap<String, bool>) -> bool {
        let is_stranger = |session: &String, path: &Path| {
            !sessions.contains_key(session) && age(path) > SETTLED && is_held(path)
        };
        self.files().any(|(session, path)| is_stranger(&session, &path))
    }

    /// The lock files that are there, with the sessions that they are of.
    fn files(&self) -> impl Iterator<Item = (String, PathBuf)> {
        let files = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        files.filter_map(|found| {
            let path = found.path();
            let session = path.file_stem()?.to_str()?.to_owned();
            path.extension().is_some_and(|ending| ending == "lock").then_some((session, path))
        })
    }

    fn path(&self, session: SessionId) -> PathBuf {
        self.directory.join(format!("{session}.lock"))
    }
}

/// Locks that were never released are held until the process dies: the work may still be running, even though the
/// store that took the lock is gone.
impl Drop for Witnesses {
    fn drop(&mut self) {
        lock(&self.held).drain().for_each(|(_, file)| std::mem::forget(file));
    }
}

/// Waits until the named file at this path is not locked any more. False if it is missing or another one, then or by
/// the time that the lock was granted.
fn outlive(path: &Path, named: &str) -> bool {
    let is_named = |found: io::Result<fs::Metadata>| found.is_ok_and(|found| id_of(&found) == named);
    let Ok(file) = open(path) else { return false };
    if !is_named(file.metadata()) {
        return false;
    }
    loop {
        match flock(&file, FlockOperation::LockShared) {
            Ok(()) => return is_named(fs::symlink_metadata(path)),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn id_of(found: &fs::Metadata) -> String {
    format!("flock:{}:{}", found.dev(), found.ino())
}

/// The standard library opens every file so that no child inherits it.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

fn open(path: &Path) -> io::Result<File> {
    #[allow(clippy::cast_possible_wrap)]
    let flags = OFlags::NOFOLLOW.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Whether anybody has the lock of that file; a file that is gone has nobody's.
fn is_held(path: &Path) -> bool {
    open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// How long ago the file was made, as far as the file system tells.
fn age(path: &Path) -> Duration {
    let modified = fs::metadata(path).and_then(|found| found.modified()).ok();
    modified.and_then(|at| at.elapsed().ok()).unwrap_or_default()
}
