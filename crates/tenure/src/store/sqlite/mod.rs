//! The embedded store: one file, no server, any number of processes on one machine.
//!
//! ```text
//!   write() ──▶ writer thread ──▶ turn (flock) ─▶ BEGIN IMMEDIATE … COMMIT ─▶ ring ──┐
//!   read()  ──▶ reader thread ◀── poll ◀───────────────────────────── inotify ◀──────┘ (every process)
//!                     └──▶ hub ──▶ watches
//!   attend() ─▶ a waiting thread for each session ◀── the kernel lets go of the lock of the dead
//! ```
//!
//! A handle has two connections, each on a thread of its own, so that no async task ever waits for a disk.
//! Beside `tenure.db` lie `tenure.db-bell` and `tenure.db-locks/`; nothing in them needs a backup.

mod bell;
mod fault;
mod file;
mod frozen;
mod place;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod witness;
mod writer;

use std::fmt;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::sync::oneshot;
use tokio::time::error::Elapsed;

use self::bell::Bell;
use self::file::SharedFile;
use self::frozen::Standstill;
use self::place::Place;
use self::reader::{Ask, Hearing, Reader, Then};
use self::witness::Witnesses;
use self::writer::{Batch, Job, Ticket, Writer};
use super::hub::Hub;
use super::rules::check_batch;
use super::{
    Class, Description, Entry, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Witness,
    Write,
};

const STORE: &str = "sqlite";

/// How long a write waits for others at most; its caller may well give up earlier.
const PATIENCE: Duration = Duration::from_secs(10);

/// So often a waiting writer looks why nothing moves.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(2);

/// A handle on a file of registers. See `docs/stores.md` for what it guarantees and how to look into it.
///
/// Opening waits for the disk; operations need a tokio runtime with time enabled.
pub struct Sqlite {
    writer: Sender<Job>,
    reader: Sender<Ask>,
    /// Dropped after `reader`, so that the thread which it wakes finds nobody left.
    nudge: UnixStream,
    file: Arc<SharedFile>,
    hub: Arc<Hub>,
    hearing: Arc<Hearing>,
    witnesses: Arc<Witnesses>,
    standstill: Standstill,
    closed: AtomicBool,
    id: String,
}

impl Sqlite {
    /// The tables and the view, which it makes by itself.
    #[must_use]
    pub fn ddl() -> String {
        schema::ddl()
    }

    /// Opens the file, and makes it and its directory (for this user only) if they are missing.
    ///
    /// # Errors
    /// If the file cannot be opened or written, is damaged, belongs to another program or to a newer version, or
    /// lies on a network file system. Nothing is overwritten.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let place = Place::prepare(path.as_ref())?;
        let bell =
            Bell::open(&place.bell).map_err(|error| fault::of_io("open the bell", &place.bell, error))?;
        let write_connection = {
            let _turn = bell.turn_within(PATIENCE).ok_or_else(|| waited(&place.file))?;
            schema::open_writer(&place.file)?
        };
        let read_connection = schema::open_reader(&place.file)?;
        let id =
            schema::identity(&read_connection).map_err(|error| fault::before_commit(&place.file, error))?;
        let hub = Arc::new(Hub::default());
        let file = Arc::new(SharedFile::new(place, bell, hub.clone())?);
        let hearing = Arc::new(Hearing::default());
        let writer = start_writer(Writer::new(write_connection, file.clone()))?;
        let reader = Reader::new(read_connection, file.clone(), hub.clone(), hearing.clone())?;
        let (reader, nudge) = start_reader(reader)?;
        let witnesses = Arc::new(Witnesses::new(&file.place().locks, hub.clone()));
        let closed = AtomicBool::new(false);
        let standstill = Standstill::default();
        let store = Self { writer, reader, nudge, file, hub, hearing, witnesses, standstill, closed, id };
        store.sweep();
        Ok(store)
    }

    /// The file used when none is named: `$XDG_STATE_HOME/tenure/tenure.db`, or `~/.local/state/tenure/tenure.db`.
    ///
    /// # Errors
    /// If the environment names no such directory.
    pub fn default_path() -> Result<PathBuf, StoreError> {
        place::default_path()
    }

    /// Whether the locks that this handle holds cover all of the work. True unless said otherwise, which is right
    /// for work inside this process; say `false` if it is done by other processes that do not hold the lock.
    #[must_use]
    pub fn covers_work(self, covers: bool) -> Self {
        self.witnesses.set_covers_work(covers);
        self
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// A duplicate of the descriptor that holds the lock of a session of this handle, closed on `exec`. Whoever is
    /// given it holds the lock too: the session counts as alive until the last one is closed.
    #[must_use]
    pub fn lock_of(&self, session: SessionId) -> Option<OwnedFd> {
        self.witnesses.duplicate(session)
    }

    /// Lets the reading thread remove what the dead left behind, and look whether the living know another file. It
    /// does so before it answers anything else.
    fn sweep(&self) {
        let witnesses = self.witnesses.clone();
        self.tell(move |reader| match reader.sessions() {
            Ok(sessions) => {
                witnesses.sweep(&sessions);
                if witnesses.has_strangers(&sessions) {
                    reader.was_replaced();
                }
            }
            Err(error) => tracing::debug!(%error, "left the locks of the dead as they are"),
        });
    }

    /// Has the reading thread do something; nobody waits for it.
    fn tell(&self, what: impl FnOnce(&mut Reader) + Send + 'static) {
        self.post(Box::new(|reader| {
            what(reader);
            Then::GoOn
        }));
    }

    fn post(&self, ask: Ask) {
        let _ = self.reader.send(ask);
        let _ = (&self.nudge).write(&[0]);
    }

    /// Has the reading thread find something out.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.check_open()?;
        let (reply, answer) = oneshot::channel();
        self.tell(move |reader| {
            if !reply.is_closed() {
                let _ = reply.send(question(reader));
            }
        });
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Waits for the writer, and looks now and then whether a stopped process holds everybody up.
    async fn wait<T>(
        &self,
        mut answer: oneshot::Receiver<T>,
    ) -> Result<Result<T, oneshot::error::RecvError>, Elapsed> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            match tokio::time::timeout(LOOK_EVERY, &mut answer).await {
                Ok(answered) => {
                    self.standstill.is_over();
                    return Ok(answered);
                }
                Err(late) if tokio::time::Instant::now() >= until => return Err(late),
                Err(_) => self.standstill.goes_on(self.file.bell().path()),
            }
        }
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    fn remarks(&self) -> Vec<String> {
        let deaf = (!self.hearing.works()).then(|| {
            "other processes' changes are found at the next beat only, because the bell cannot be watched: raise \
             fs.inotify.max_user_instances"
                .to_owned()
        });
        self.file.place().remark.clone().into_iter().chain(deaf).collect()
    }
}

/// The threads end by themselves; a witness that still waits must not keep watches open.
impl Drop for Sqlite {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// Calls a batch off when nobody waits for it any more.
struct CallOff(Arc<Ticket>);

impl Drop for CallOff {
    fn drop(&mut self) {
        self.0.call_off();
    }
}

fn start_writer(writer: Writer) -> Result<Sender<Job>, StoreError> {
    let (sender, jobs) = mpsc::channel();
    start("tenure-writer", move || writer.run(&jobs))?;
    Ok(sender)
}

fn start_reader(reader: Reader) -> Result<(Sender<Ask>, UnixStream), StoreError> {
    let (sender, asks) = mpsc::channel();
    let (nudge, nudged) = UnixStream::pair().map_err(no_resources)?;
    for end in [&nudge, &nudged] {
        end.set_nonblocking(true).map_err(no_resources)?;
    }
    start("tenure-reader", move || reader.run(&asks, nudged))?;
    Ok((sender, nudge))
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(no_resources)
}

fn no_resources(error: std::io::Error) -> StoreError {
    StoreError::not_applied(STORE, format!("this process has no threads or descriptors left: {error}"))
        .caused_by(error)
}

fn closed() -> StoreError {
    StoreError::not_applied(STORE, "this handle was closed: open another one").permanent()
}

fn waited(path: &Path) -> StoreError {
    let file = path.display();
    let message = format!(
        "{file} was held by other processes for {PATIENCE:?}; one of them may be frozen: `fuser {file}` names them"
    );
    StoreError::not_applied(STORE, message)
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("path", &self.path())
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.path().display())
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.check_open().map(|()| Vec::new());
        }
        let (namespace, query) = (namespace.clone(), query.clone());
        self.ask(move |reader| reader.read(&namespace, &query)).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        self.check_open()?;
        let ticket = Arc::new(Ticket::default());
        let waiting = CallOff(ticket.clone());
        let (reply, answer) = oneshot::channel();
        let batch = Batch { namespace: namespace.clone(), writes: writes.to_vec(), ticket, reply };
        self.writer.send(Job::Write(batch)).map_err(|_| closed())?;
        match self.wait(answer).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) if waiting.0.call_off() => Err(closed()),
            Err(_) if waiting.0.call_off() => Err(waited(self.path())),
            _ => Err(StoreError::unknown(STORE, "no answer from the disk: look whether it was written")),
        }
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.hub.watch(namespace);
        let namespace = namespace.clone();
        self.tell(move |reader| reader.watched(&namespace));
        watch
    }

    async fn attest(&self, _: &Name, session: SessionId, _: Takeover) -> Result<Option<Witness>, StoreError> {
        let witnesses = self.witnesses.clone();
        self.ask(move |_| witnesses.attest(session).map(Some)).await
    }

    fn release(&self, _: &Name, session: SessionId) {
        self.witnesses.release(session);
    }

    /// The dead are dead, whatever their connections mean.
    fn attend(&self, namespace: &Name, session: SessionId, witness: &str, _: Takeover) {
        self.witnesses.attend(namespace, session, witness);
    }

    fn ignore(&self, namespace: &Name, session: SessionId) {
        self.witnesses.ignore(namespace, session);
    }

    fn witness_fd(&self, _: &Name, session: SessionId) -> Option<OwnedFd> {
        self.lock_of(session)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let file = self.file.clone();
        self.ask(move |reader| {
            reader.listen();
            file.check()
        })
        .await?;
        let (device, inode) = self.file.number();
        Ok(Description {
            class: Class::B,
            identity: format!("sqlite:{device}:{inode}:{}", self.id),
            about: format!("SQLite {}, {}", rusqlite::version(), self.path().display()),
            rings: self.hearing.works(),
            witnesses_death: true,
            witnesses_disconnect: false,
            remarks: self.remarks(),
        })
    }

    /// Locks of sessions that were not released stay held until the process dies.
    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.hub.close();
        let (done, written) = oneshot::channel();
        let _ = self.writer.send(Job::Stop(done));
        let (done, read) = oneshot::channel();
        self.post(Box::new(move |_| Then::Stop(done)));
        let both = async { tokio::join!(written, read) };
        let _ = tokio::time::timeout(CLOSING, both).await;
    }
}
