//! The one thread of a handle that reads, and that listens to the notifier.
//!
//! It sleeps in one `poll` for both: a question of its own process, and the notifier. So a change is read by the very
//! thread that the kernel woke.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use rusqlite::{Connection, Error};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::oneshot;

use super::file::SharedFile;
use super::{error, rows, schema};
use tenure_store::kit::watches::Watches;
use tenure_store::{Entry, Name, Query, Signal, StoreError};

/// A question; it answers by itself.
pub(super) type Ask = Box<dyn FnOnce(&mut Reader) -> Then + Send>;

/// Whether the reader goes on after an [`Ask`], or whom it tells once the file is closed.
#[derive(Debug)]
pub(super) enum Then {
    GoOn,
    Stop(oneshot::Sender<()>),
}

/// More changes than this at once: the watches are told to read everything.
const MOST_CHANGES: u32 = 1024;

/// Whether the notifier can be watched: not tried yet, yes, or no.
#[derive(Debug, Default)]
pub(super) struct InotifyState(AtomicU8);

impl InotifyState {
    const YES: u8 = 1;
    const NO: u8 = 2;

    pub(super) fn works(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::YES
    }
}

/// The connection that reads.
#[derive(Debug)]
pub(super) struct Reader {
    connection: Connection,
    file: Arc<SharedFile>,
    watches: Arc<Watches>,
    inotify: Option<OwnedFd>,
    listener: Arc<InotifyState>,
    /// The number of the last change that was told.
    told: i64,
    /// Whether processes that are still alive had another file here.
    replaced: Option<Duration>,
}

impl Reader {
    pub(super) fn new(
        connection: Connection,
        file: Arc<SharedFile>,
        watches: Arc<Watches>,
        listener: Arc<InotifyState>,
    ) -> Result<Self, StoreError> {
        let told =
            schema::last_change(&connection).map_err(|error| error::before_commit(file.path(), error))?;
        Ok(Self { connection, file, watches, inotify: None, listener, told, replaced: None })
    }

    /// Works until told to stop, or until every handle is dropped.
    pub(super) fn run(mut self, asks: &Receiver<Ask>, mut nudged: UnixStream) {
        loop {
            let notified = self.sleep(&nudged);
            drain(&mut nudged);
            loop {
                match asks.try_recv() {
                    Ok(ask) => {
                        if let Then::Stop(done) = ask(&mut self) {
                            drop(self);
                            let _ = done.send(());
                            return;
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            if notified {
                self.on_notification();
            }
        }
    }

    /// Everything that a query asks for, as of one moment.
    pub(super) fn read(&mut self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.file.check()?;
        let mut read = || {
            let moment = self.connection.transaction()?;
            rows::select(&moment, namespace, query)
        };
        read().map_err(|error| error::before_commit(self.file.path(), error))
    }

    /// The names of all sessions, whatever their namespace, and whether they are over.
    pub(super) fn sessions(&self) -> Result<HashMap<String, bool>, Error> {
        let mut select = self.connection.prepare(
            "SELECT name, json_valid(value) AND value ->> '$.state' IN ('closed', 'expelled')
             FROM registers WHERE kind = 'session'",
        )?;
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Has every watch begin with [`Signal::Forgot`]: what was in the file before is still believed by a node, for a lease of
    /// this length.
    pub(super) fn was_replaced(&mut self, longest: Duration) {
        tracing::warn!(file = %self.file.path().display(), "another file was here, and is still in use");
        self.replaced = Some(longest);
    }

    /// A new watch of that namespace: begins to listen, and says what cannot be read.
    pub(super) fn watched(&mut self, namespace: &Name) {
        self.listen();
        if let Some(longest) = self.replaced {
            self.watches.send(namespace, &Signal::Forgot);
            self.watches.send(namespace, &Signal::UnknownLease(longest));
        }
    }

    /// Begins to listen, and tells what happened since this handle was opened, so that nothing falls in between.
    pub(super) fn listen(&mut self) {
        if self.inotify.is_none() && self.listener.0.load(Ordering::Acquire) != InotifyState::NO {
            self.start_inotify();
        }
        self.tell_changes();
    }

    fn start_inotify(&mut self) {
        match self.file.notifier().listen() {
            Ok(inotify) => {
                self.inotify = Some(inotify);
                self.listener.0.store(InotifyState::YES, Ordering::Release);
            }
            Err(error) => {
                tracing::warn!(%error, "the notifier cannot be watched; changes are found at the next beat");
                self.inotify = None;
                self.listener.0.store(InotifyState::NO, Ordering::Release);
            }
        }
    }

    /// Sleeps until asked or notified; true if notified.
    fn sleep(&self, nudged: &UnixStream) -> bool {
        let mut fds = vec![PollFd::new(nudged, PollFlags::IN)];
        fds.extend(self.inotify.iter().map(|inotify| PollFd::new(inotify, PollFlags::IN)));
        let _ = poll(&mut fds, None);
        fds.get(1).is_some_and(|inotify| !inotify.revents().is_empty())
    }

    /// Empties the queue of inotify before it looks, so that a notification while looking wakes it again.
    fn on_notification(&mut self) {
        if let Some(inotify) = &self.inotify {
            let mut events = [0_u8; 4096];
            while rustix::io::read(inotify, &mut events[..]).is_ok_and(|read| read == events.len()) {}
        }
        if self.file.renew_notifier().unwrap_or(false) {
            self.start_inotify();
            self.watches.send_all(&Signal::Resync);
        }
        self.tell_changes();
    }

    fn tell_changes(&mut self) {
        if !self.watches.is_watched() || self.file.check().is_err() {
            return;
        }
        if let Err(error) = self.try_to_tell() {
            tracing::warn!(%error, "could not read what changed");
            self.watches.send_all(&Signal::Resync);
        }
    }

    /// A number lower than the one told means that the file was put back to an older state in place.
    fn try_to_tell(&mut self) -> Result<(), Error> {
        let moment = self.connection.transaction()?;
        let last = schema::last_change(&moment)?;
        if last < self.told {
            self.watches.send_all(&Signal::Forgot);
        }
        let changes = rows::changed(&moment, self.told, MOST_CHANGES + 1)?;
        if changes.len() > MOST_CHANGES as usize {
            self.watches.send_all(&Signal::Resync);
        } else {
            for (namespace, key) in changes {
                self.watches.send(&namespace, &Signal::Changed(key));
            }
            for namespace in rows::deleted(&moment, self.told)? {
                self.watches.send(&namespace, &Signal::Resync);
            }
        }
        self.told = last;
        moment.finish()
    }
}

/// The other end never blocks on this one, so a nudge may be many bytes.
fn drain(nudged: &mut UnixStream) {
    let mut bytes = [0; 64];
    loop {
        match nudged.read(&mut bytes) {
            Ok(read) if read == bytes.len() => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
