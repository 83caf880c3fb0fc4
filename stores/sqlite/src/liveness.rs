//! Liveness locks of the kernel: a session holds the lock of a file of its own for as long as its process lives, and
//! a process that waits for that lock knows at once, and for certain, when it died.
//!
//! The file's device and inode are in the session's record; a missing or different file is no evidence. So the files
//! may be swept away at any time, and a clean end, which needs no evidence, removes its own.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use tenure_core::record::Record;

use super::access::Access;
use super::location::FileLocation;
use super::{STORE, error};
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Evidence, Key, LivenessLock, Name, SessionId, Signal, StoreError, Write};

/// A lock file that no process holds is removed when it is older than this, whatever became of its session.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// A session whose lock is older than this has been written, if it ever was.
const SETTLED: Duration = Duration::from_secs(2);

/// A waiting thread does nothing but wait.
const STACK: usize = 128 * 1024;

/// The locks that this handle holds, and those it waits for.
#[derive(Debug)]
pub(super) struct LockTable {
    directory: PathBuf,
    access: Access,
    held: Mutex<HashMap<SessionId, Held>>,
    watched: Arc<Mutex<WatchedLocks>>,
    covers_work: AtomicBool,
    watches: Arc<Watches>,
}

/// A lock that is held, and whether its file says for which lease.
#[derive(Debug)]
struct Held {
    file: File,
    told: bool,
}

/// Whether evidence of a lock is still wanted. There is an entry for each waiting thread.
type WatchedLocks = HashMap<(Name, SessionId, String), bool>;

impl LockTable {
    pub(super) fn new(location: &FileLocation, watches: Arc<Watches>) -> Self {
        Self {
            directory: location.locks.clone(),
            access: location.access,
            held: Mutex::default(),
            watched: Arc::default(),
            covers_work: AtomicBool::new(true),
            watches,
        }
    }

    pub(super) fn set_covers_work(&self, covers: bool) {
        self.covers_work.store(covers, Ordering::Release);
    }

    /// Makes the file of a session that is about to be opened, and holds its lock.
    pub(super) fn acquire(&self, session: SessionId) -> Result<LivenessLock, StoreError> {
        let path = self.path(session);
        let file = self
            .make_directory()
            .and_then(|()| self.access.create(&path))
            .map_err(|error| error::of_io("create the lock", &path, error))?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            let message = format!("cannot lock {}: {error}", path.display());
            return Err(StoreError::not_applied(STORE, message).caused_by(io::Error::from(error)));
        }
        let id = file
            .metadata()
            .map_err(|error| error::of_io("look at", &path, error))
            .map(|found| id_of(&found))?;
        lock(&self.held).insert(session, Held { file, told: false });
        Ok(LivenessLock { id, covers_work: self.covers_work.load(Ordering::Acquire), connection: false })
    }

    fn make_directory(&self) -> io::Result<()> {
        if self.directory.is_dir() {
            return Ok(());
        }
        let mode = self.access.directory_mode();
        DirBuilder::new().recursive(true).mode(mode).create(&self.directory)?;
        // What the umask took away from the group, it gets back.
        fs::set_permissions(&self.directory, Permissions::from_mode(mode))
    }

    /// Removes the file first, so that no node takes a clean end for a death, and lets go of it. A duplicate of the
    /// descriptor in another process goes on holding the lock.
    pub(super) fn release(&self, session: SessionId) {
        if let Some(held) = lock(&self.held).remove(&session) {
            let _ = fs::remove_file(self.path(session));
            drop(held);
        }
    }

    /// A duplicate of the descriptor that holds the lock of a session, not inherited by children.
    pub(super) fn duplicate(&self, session: SessionId) -> Option<OwnedFd> {
        lock(&self.held).get(&session)?.file.try_clone().ok().map(OwnedFd::from)
    }

    /// Waits, in a thread of its own, for the lock of that session. There is never more than one for each.
    pub(super) fn watch(&self, namespace: &Name, session: SessionId, id: &str) {
        let who = (namespace.clone(), session, id.to_owned());
        if lock(&self.watched).insert(who.clone(), true).is_some() {
            return;
        }
        let (path, watches, watched) = (self.path(session), self.watches.clone(), self.watched.clone());
        let waiting = who.clone();
        let wait = move || {
            let let_go = outlive(&path, &waiting.2);
            let wanted = lock(&watched).remove(&waiting).unwrap_or(false);
            if let_go && wanted {
                let (namespace, session, lock) = waiting;
                watches.send(&namespace, &Signal::Evidence(Evidence::Dead { session, lock }));
            }
        };
        let name = "tenure-liveness".to_owned();
        if let Err(error) = std::thread::Builder::new().name(name).stack_size(STACK).spawn(wait) {
            tracing::warn!(%error, "no thread to watch a liveness lock; the lease decides");
            lock(&self.watched).remove(&who);
        }
    }

    /// The thread goes on waiting, but says nothing.
    pub(super) fn unwatch(&self, namespace: &Name, session: SessionId) {
        for ((watched, whose, _), wanted) in lock(&self.watched).iter_mut() {
            if watched == namespace && *whose == session {
                *wanted = false;
            }
        }
    }

    /// Removes the files of the dead: those that no process holds, and whose session is over or that are old.
    pub(super) fn sweep(&self, sessions: &HashMap<String, bool>) {
        for (session, path) in self.files() {
            let over = sessions.get(&session).copied().unwrap_or(false);
            if (over || age(&path) > OLD) && !is_held(&path) {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Has the files of sessions that are about to be written say for how long their owners may rely on them, and in which PID
    /// namespace those are. A node that finds another file in the place of this one has nothing else to go by.
    pub(super) fn tell(&self, writes: &[Write]) {
        for write in writes {
            let (Key::Session(_, session), Some((_, value))) = (&write.key, &write.put) else { continue };
            let mut all = lock(&self.held);
            let Some(held) = all.get_mut(session).filter(|held| !held.told) else { continue };
            let Record::Session(record) = value.to_record(&write.key) else { continue };
            let text = format!("{}\n{}\n", record.ttl.as_millis(), pid_namespace());
            held.told = (&held.file).write_all(text.as_bytes()).is_ok();
        }
    }

    /// Whether a process has held the lock of a session for a while that the file does not know: the file was replaced
    /// under processes that live on, and may lead until their lease ends; the longest of these leases, as far as they tell. A
    /// lock is taken shortly before its session is written, so a fresh one proves nothing.
    pub(super) fn strangers(&self, sessions: &HashMap<String, bool>) -> Option<Duration> {
        let is_stranger = |session: &String, path: &Path| {
            !sessions.contains_key(session) && age(path) > SETTLED && is_held(path)
        };
        let strangers = self.files().filter(|(session, path)| is_stranger(session, path));
        strangers.map(|(_, path)| told(&path).0).max()
    }

    /// Processes of another PID namespace cannot be looked at from here.
    pub(super) fn remark(&self) -> Option<String> {
        let own = pid_namespace();
        let is_foreign = |path: &Path| {
            let other = told(path).1;
            !other.is_empty() && other != own
        };
        let foreign = self.files().any(|(_, path)| is_foreign(&path) && is_held(&path));
        foreign.then(|| {
            "a process in another PID namespace (a container) uses this file: if it is stopped in the middle of a write, nodes \
             here cannot find it and let it go on, and there is no fail-over until it goes on or dies; share the PID namespace \
             (`--pid=host`, `shareProcessNamespace`)"
                .to_owned()
        })
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
impl Drop for LockTable {
    fn drop(&mut self) {
        lock(&self.held).drain().for_each(|(_, held)| std::mem::forget(held.file));
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

/// What a lock file says: for how long its owner may rely on its session, and in which PID namespace that is.
fn told(path: &Path) -> (Duration, String) {
    let mut text = String::new();
    let read = open(path).and_then(|file| file.take(200).read_to_string(&mut text));
    let mut lines = text.lines().filter(|_| read.is_ok());
    let ttl = lines.next().and_then(|ttl| ttl.parse().ok()).map_or(Duration::ZERO, Duration::from_millis);
    (ttl, lines.next().unwrap_or_default().to_owned())
}

fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The standard library opens every file so that no child inherits it.
fn open(path: &Path) -> io::Result<File> {
    #[allow(clippy::cast_possible_wrap)]
    let flags = OFlags::NOFOLLOW.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Whether a process has the lock of that file; no process has that of a file that is gone.
fn is_held(path: &Path) -> bool {
    open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// How long ago the file was made, as far as the file system tells.
fn age(path: &Path) -> Duration {
    let modified = fs::metadata(path).and_then(|found| found.modified()).ok();
    modified.and_then(|at| at.elapsed().ok()).unwrap_or_default()
}
