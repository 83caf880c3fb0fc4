//! The embedded store: one file, no server, any number of processes on one machine.
//!
//! ```text
//!   write() ──▶ writer thread ──▶ turn (flock) ─▶ BEGIN IMMEDIATE … COMMIT ─▶ notify ─┐
//!   read()  ──▶ reader thread ◀── poll ◀───────────────────────────── inotify ◀──────┘ (every process)
//!                     └──▶ watches ──▶ streams
//!   watch_lock() ─▶ a waiting thread for each session ◀── the kernel lets go of the lock of the dead
//! ```
//!
//! A handle has two connections, each on a thread of its own, so that no async task ever waits for a disk.
//! Beside `tenure.db` lie `tenure.db-notify` and `tenure.db-locks/`; nothing in them needs a backup.

mod access;
mod error;
mod file;
mod frozen;
mod liveness;
mod location;
mod notifier;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
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

pub use self::access::Access;
use self::file::SharedFile;
use self::frozen::Standstill;
use self::liveness::LockTable;
use self::location::FileLocation;
use self::notifier::Notifier;
use self::reader::{Ask, InotifyState, Reader, Then};
use self::writer::{Batch, Carried, Job, Ticket, Writer};
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Class, Description, Entry, Exchanged, LivenessLock, LivenessLocks, Name, OpenMode, Opening,
    Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Write,
};

const STORE: &str = "sqlite";

/// How long a write waits for others at most; its caller may well give up earlier.
const PATIENCE: Duration = Duration::from_secs(10);

/// So often a waiting writer looks why nothing moves.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(2);

/// A handle on a file of registers. See `docs/stores/sqlite.md` for what it guarantees and how to look into it.
///
/// Opening waits for the disk; operations need a tokio runtime with time enabled.
pub struct Sqlite {
    writer: Sender<Job>,
    reader: Sender<Ask>,
    /// Dropped after `reader`, so that the thread which it wakes finds no handle left.
    nudge: UnixStream,
    file: Arc<SharedFile>,
    watches: Arc<Watches>,
    listener: Arc<InotifyState>,
    locks: Arc<LockTable>,
    standstill: Standstill,
    closed: AtomicBool,
    id: String,
}

/// This store, by its URLs.
pub const BACKEND: Backend =
    Backend::new(STORE, "SQLite, the embedded store", &["sqlite"], "sqlite:, sqlite:PATH", |url, mode| {
        let (path, access) = location_of(url.strip_prefix("sqlite:").unwrap_or(url))?;
        Ok(Opening::new(move || match path.try_exists() {
            Ok(false) if mode == OpenMode::ReadOnly => {
                Err(StoreError::unused(STORE, &format!("there is no {}", path.display())))
            }
            _ => Ok(Arc::new(Sqlite::open_for(path, access)?)),
        }))
    })
    .with_setup(|_| schema::setup());

/// The file that what follows `sqlite:` names, and who shares it.
fn location_of(rest: &str) -> Result<(PathBuf, Access), StoreError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let access = match query {
        "" => Some(Access::Owner),
        given => given.strip_prefix("access=").and_then(Access::named),
    };
    let usage = "the one parameter of sqlite: is access=owner, access=group or access=anyone";
    let access = access.ok_or_else(|| StoreError::not_applied(STORE, usage).permanent())?;
    Ok((path_of(path)?, access))
}

fn path_of(rest: &str) -> Result<PathBuf, StoreError> {
    match rest.strip_prefix("//") {
        None if rest.is_empty() => Sqlite::default_path(),
        None => Ok(rest.into()),
        Some(absolute) if absolute.starts_with('/') => Ok(absolute.into()),
        Some(_) => {
            let usage = "sqlite://PATH names no file: write sqlite:PATH, or sqlite:///PATH from the root";
            Err(StoreError::not_applied(STORE, usage).permanent())
        }
    }
}

impl Sqlite {
    /// Opens the file, and makes it and its directory (for this user only) if they are missing.
    ///
    /// # Errors
    /// If the file cannot be opened or written, is damaged, belongs to another program or to a newer version, lies on
    /// a network file system, or if other users than root could change it or its directory. Nothing is overwritten.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_for(path, Access::Owner)
    }

    /// The same for a file that several users of this host share.
    ///
    /// # Errors
    /// As [`Sqlite::open`].
    pub fn open_for(path: impl AsRef<Path>, access: Access) -> Result<Self, StoreError> {
        let location = FileLocation::prepare(path.as_ref(), access)?;
        let notifier = Notifier::open(&location.notifier, access)
            .map_err(|error| error::of_io("open the notifier", &location.notifier, error))?;
        let write_connection = {
            let _turn = notifier.turn_within(PATIENCE).ok_or_else(|| waited(&location.file))?;
            location.make_file()?;
            schema::open_writer(&location.file)?
        };
        let read_connection = schema::open_reader(&location.file)?;
        let id = schema::identity(&read_connection)
            .map_err(|error| error::before_commit(&location.file, error))?;
        let watches = Arc::new(Watches::default());
        let file = Arc::new(SharedFile::new(location, notifier, watches.clone())?);
        let listener = Arc::new(InotifyState::default());
        let writer = start_writer(Writer::new(write_connection, file.clone()))?;
        let reader = Reader::new(read_connection, file.clone(), watches.clone(), listener.clone())?;
        let (reader, nudge) = start_reader(reader)?;
        let locks = Arc::new(LockTable::new(file.location(), watches.clone()));
        let closed = AtomicBool::new(false);
        let standstill = Standstill::default();
        let store = Self { writer, reader, nudge, file, watches, listener, locks, standstill, closed, id };
        store.sweep();
        Ok(store)
    }

    /// The file used when none is named: `$XDG_STATE_HOME/tenure/tenure.db`, or `~/.local/state/tenure/tenure.db`.
    ///
    /// # Errors
    /// If the environment names no such directory.
    pub fn default_path() -> Result<PathBuf, StoreError> {
        location::default_path()
    }

    /// Whether the locks that this handle holds cover all of the work. True unless said otherwise, which is right
    /// for work inside this process; say `false` if it is done by other processes that do not hold the lock.
    #[must_use]
    pub fn covers_work(self, covers: bool) -> Self {
        self.locks.set_covers_work(covers);
        self
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// A duplicate of the descriptor that holds the lock of a session of this handle, closed on `exec`. A process that is
    /// given it holds the lock too: the session counts as alive until the last one is closed.
    #[must_use]
    pub fn lock_of(&self, session: SessionId) -> Option<OwnedFd> {
        self.locks.duplicate(session)
    }

    /// Lets the reading thread remove what the dead left behind, and look whether the living know another file. It
    /// does so before it answers anything else.
    fn sweep(&self) {
        let locks = self.locks.clone();
        self.tell(move |reader| match reader.sessions() {
            Ok(sessions) => {
                locks.sweep(&sessions);
                if let Some(longest) = locks.strangers(&sessions) {
                    reader.was_replaced(longest);
                }
            }
            Err(error) => tracing::debug!(%error, "left the locks of the dead as they are"),
        });
    }

    /// Has the reading thread do something, without waiting for it.
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

    /// Waits for the writer, and looks now and then whether a stopped process blocks every writer.
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
                Err(_) => self.standstill.goes_on(self.file.notifier().path()),
            }
        }
    }

    /// Has the writing thread carry out some writes, and read, in one transaction.
    async fn carry_out(
        &self,
        namespace: &Name,
        writes: &[Write],
        query: Query,
    ) -> Result<Carried, StoreError> {
        check_batch(STORE, writes)?;
        self.check_open()?;
        self.locks.tell(writes);
        let ticket = Arc::new(Ticket::default());
        let waiting = CallOff(ticket.clone());
        let (reply, answer) = oneshot::channel();
        let batch = Batch { namespace: namespace.clone(), writes: writes.to_vec(), query, ticket, reply };
        self.writer.send(Job::Write(batch)).map_err(|_| closed())?;
        match self.wait(answer).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) if waiting.0.call_off() => Err(closed()),
            Err(_) if waiting.0.call_off() => Err(waited(self.path())),
            _ => Err(StoreError::unknown(STORE, "no answer from the disk: look whether it was written")),
        }
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    fn remarks(&self) -> Vec<String> {
        let unnotified = (!self.listener.works()).then(|| {
            "other processes' changes are found at the next beat only, because the notifier cannot be watched: raise \
             fs.inotify.max_user_instances"
                .to_owned()
        });
        self.file.location().remarks().chain(unnotified).chain(self.locks.remark()).collect()
    }
}

/// The threads end by themselves; a thread that still waits for a lock must not keep watches open.
impl Drop for Sqlite {
    fn drop(&mut self) {
        self.watches.close();
    }
}

/// Cancels a batch when its caller stops waiting.
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
        self.carry_out(namespace, writes, Query::default()).await.map(|(outcomes, _)| outcomes)
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        match self.carry_out(namespace, writes, query.clone()).await {
            Ok((outcomes, found)) => Exchanged { written: Ok(outcomes), read: Ok(found) },
            Err(error) => Exchanged::failed(&error),
        }
    }

    /// The transaction reads when it has written.
    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.exchange(namespace, writes, query).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.watches.watch(namespace);
        let namespace = namespace.clone();
        self.tell(move |reader| reader.watched(&namespace));
        watch
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let file = self.file.clone();
        self.ask(move |reader| {
            reader.listen();
            file.check()
        })
        .await?;
        let (device, inode) = self.file.number();
        let mut described = Description::new(
            Class::B,
            format!("sqlite:{device}:{inode}:{}", self.id),
            format!("SQLite {}, {}", rusqlite::version(), self.path().display()),
        );
        described.notifies = self.listener.works();
        described.process_liveness_locks = true;
        described.file = Some(self.path().to_owned());
        described.remarks = self.remarks();
        Ok(described)
    }

    /// Locks of sessions that were not released stay held until the process dies.
    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.watches.close();
        let (done, written) = oneshot::channel();
        let _ = self.writer.send(Job::Stop(done));
        let (done, read) = oneshot::channel();
        self.post(Box::new(move |_| Then::Stop(done)));
        let both = async { tokio::join!(written, read) };
        let _ = tokio::time::timeout(CLOSING, both).await;
    }
}

#[async_trait]
impl LivenessLocks for Sqlite {
    async fn acquire_lock(
        &self,
        _: &Name,
        session: SessionId,
        _: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        let locks = self.locks.clone();
        self.ask(move |_| locks.acquire(session).map(Some)).await
    }

    fn release_lock(&self, _: &Name, session: SessionId) {
        self.locks.release(session);
    }

    /// The dead are dead, whatever their connections mean.
    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, _: Takeover) {
        self.locks.watch(namespace, session, id);
    }

    fn unwatch_lock(&self, namespace: &Name, session: SessionId) {
        self.locks.unwatch(namespace, session);
    }

    fn lock_descriptor(&self, _: &Name, session: SessionId) -> Option<OwnedFd> {
        self.lock_of(session)
    }
}
