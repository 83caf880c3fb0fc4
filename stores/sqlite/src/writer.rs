//! The one thread of a handle that writes: it waits its turn, carries out a batch in one transaction, and notifies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rusqlite::{Connection, Error, ErrorCode};
use tokio::sync::oneshot;

use super::file::SharedFile;
use super::{STORE, error, rows, schema};
use tenure_store::{Entry, Name, Outcome, Query, StoreError, Write};

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Job {
    Write(Batch),
    Stop(oneshot::Sender<()>),
}

/// What became of some writes, and what was read with them.
pub(super) type Carried = (Vec<Outcome>, Vec<Entry>);

/// Some writes, what is to be read with them, and who wants to know.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) namespace: Name,
    pub(super) writes: Vec<Write>,
    pub(super) query: Query,
    pub(super) ticket: Arc<Ticket>,
    pub(super) reply: oneshot::Sender<Result<Carried, StoreError>>,
}

/// Whether a batch may still be called off: until it has begun. So a caller that gives up waiting can tell "it did not
/// happen and never will" from "it may have".
#[derive(Debug, Default)]
pub(super) struct Ticket(AtomicU8);

impl Ticket {
    const BEGUN: u8 = 1;
    const CALLED_OFF: u8 = 2;

    /// True if nothing was done, nor will be.
    pub(super) fn call_off(&self) -> bool {
        self.settle(Self::CALLED_OFF)
    }

    fn begin(&self) -> bool {
        self.settle(Self::BEGUN)
    }

    fn is_called_off(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::CALLED_OFF
    }

    fn settle(&self, to: u8) -> bool {
        match self.0.compare_exchange(0, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(was) => was == to,
        }
    }
}

/// The connection that writes.
#[derive(Debug)]
pub(super) struct Writer {
    connection: Connection,
    file: Arc<SharedFile>,
}

impl Writer {
    pub(super) fn new(connection: Connection, file: Arc<SharedFile>) -> Self {
        Self { connection, file }
    }

    /// Works until told to stop, or until every handle is dropped.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Write(batch) => self.serve(batch),
                Job::Stop(done) => {
                    drop(self);
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    fn serve(&mut self, batch: Batch) {
        if batch.ticket.is_called_off() {
            return;
        }
        let file = self.file.clone();
        let notifier = file.notifier();
        let turn = notifier.turn();
        let (answer, notifies) = match self.carry_out(&batch) {
            Ok((carried, notifies)) => (Ok(carried), notifies),
            Err(error) => {
                self.roll_back();
                (Err(error), false)
            }
        };
        drop(turn);
        if notifies {
            notifier.notify();
        }
        let _ = batch.reply.send(answer);
    }

    /// One transaction for all; within it each item is decided by itself. Tells whether others have to be woken.
    fn carry_out(&mut self, batch: &Batch) -> Result<(Carried, bool), StoreError> {
        self.file.check()?;
        self.begin(batch)?;
        let path = self.file.path().to_owned();
        let work = || {
            let (outcomes, notifies) = self.apply_all(batch)?;
            let found = rows::select(&self.connection, &batch.namespace, &batch.query)?;
            Ok(((outcomes, found), notifies))
        };
        let done = work().map_err(|error| error::before_commit(&path, error))?;
        self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map_err(
            |error| {
                let busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
                if busy { error::before_commit(&path, error) } else { error::at_commit(&path, error) }
            },
        )?;
        Ok(done)
    }

    /// Takes SQLite's write lock. Other writers of ours wait in [`super::notifier::Notifier::turn`]; programs that do not know
    /// of it are waited for here, for as long as the caller does.
    fn begin(&self, batch: &Batch) -> Result<(), StoreError> {
        loop {
            let begun =
                self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]));
            match begun {
                Ok(_) if batch.ticket.begin() => return Ok(()),
                Ok(_) => return Err(called_off()),
                Err(error) if !is_busy(&error) => return Err(error::before_commit(self.file.path(), error)),
                Err(_) if batch.ticket.is_called_off() => return Err(called_off()),
                Err(_) => std::thread::sleep(Duration::from_micros(500)),
            }
        }
    }

    fn apply_all(&self, batch: &Batch) -> Result<(Vec<Outcome>, bool), Error> {
        let before = schema::last_change(&self.connection)?;
        let mut seq = before;
        let mut outcomes = Vec::with_capacity(batch.writes.len());
        for write in &batch.writes {
            let outcome = rows::apply(&self.connection, &batch.namespace, write, seq + 1)?;
            if write.notify && matches!(outcome, Outcome::Applied) {
                seq += 1;
            }
            outcomes.push(outcome);
        }
        if seq > before {
            let mut raise =
                self.connection.prepare_cached("UPDATE tenure_meta SET value = ?1 WHERE key = 'seq'")?;
            raise.execute([seq])?;
        }
        Ok((outcomes, seq > before))
    }

    /// Leaves no transaction open. Some errors have rolled back by themselves.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "could not roll back");
        }
    }

    /// For tests: a disk that has no room for more pages than the file has.
    #[cfg(test)]
    pub(super) fn allow_no_more_pages(&self) -> Result<(), Error> {
        let pages: i64 = self.connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
    }
}

fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// No caller waits for this answer any more.
fn called_off() -> StoreError {
    StoreError::not_applied(STORE, "called off by its caller")
}
