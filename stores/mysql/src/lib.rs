//! MySQL and MariaDB: one table, one text of statements for each batch, and listeners that sleep inside the server and are woken.
//!
//! ```text
//!   read(), write() ──▶ operations ═══▶ START TRANSACTION … COMMIT ─▶ notifier ═══▶ KILL QUERY of each sleeper ─┐
//!   streams ◀── watches ◀── listener ◀═══ what changed since ◀═══ SLEEP ◀────────────────────────────────────────┘
//! ```
//!
//! A handle has two connections and one thread, on which both live. See `docs/stores/mysql.md` for what it guarantees and how to
//! look into it, and `docs/adr/0012-mysql.md` for why it is so.

mod batch;
mod connection;
mod error;
mod inspect;
mod listener;
mod liveness;
mod notifier;
mod operations;
mod rows;
mod schema;
mod settings;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use mysql_async::Row;
use mysql_async::prelude::Queryable;
use tenure_core::record::{Record, SessionState};

use self::batch::Batch;
use self::liveness::LockTable;
use self::notifier::Notifier;
use self::operations::Operations;
use self::settings::MysqlSettings;
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::liveness::{LockNumber, WatchedLocks};
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Kind, LivenessLock, LivenessLocks, Name, Opening, Outcome, Query, SessionId,
    Signal, Store, StoreError, Takeover, Write,
};

const STORE: &str = "mysql";

/// A handle on the registers in a MySQL or MariaDB database.
pub struct Mysql {
    settings: Arc<MysqlSettings>,
    operations: Operations,
    notifier: Arc<Notifier>,
    listener: Arc<ListenerHandle>,
    locks: Arc<LockTable>,
    watched_locks: Arc<WatchedLocks>,
    watches: Arc<Watches>,
    thread: ConnectionThread,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend {
    name: STORE,
    product: "MySQL and MariaDB",
    schemes: &["mysql", "mariadb"],
    usage: "mysql://HOST/DATABASE",
    in_process: false,
    native_notifications: false,
    setup: Some(schema::setup),
    read: |url, mode| {
        Opening::with_tables(url, mode, |url| Ok(MysqlSettings::parse(url)?.warning()), Mysql::open)
    },
};

impl Mysql {
    /// Reads the URL and begins to connect, in the background. The server may be down: operations say so.
    ///
    /// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters `timeout`, `ca` and `sslmode`.
    ///
    /// # Errors
    /// If the URL cannot be read or contradicts itself, or if there is no thread left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(MysqlSettings::parse(url)?);
        let watches = Arc::new(Watches::default());
        let (operations, keep) = Operations::new(settings.clone(), watches.clone());
        let (notifier, keep_notifying) = Notifier::new(operations.clone(), settings.timeout);
        let (listener, listen) =
            listener::listen(settings.clone(), watches.clone(), operations.clone(), notifier.clone());
        let (locks, watched_locks) = (Arc::default(), Arc::<WatchedLocks>::default());
        let thread = ConnectionThread::open(STORE)?;
        thread.spawn(keep);
        thread.spawn(keep_notifying);
        thread.spawn(listen);
        let asked = operations.clone();
        let free = move |watched| liveness::freed(asked.clone(), watched);
        thread.spawn(watched_locks.clone().look(watches.clone(), free));
        Ok(Self {
            settings,
            operations,
            notifier,
            listener: Arc::new(listener),
            locks,
            watched_locks,
            watches,
            thread,
        })
    }

    /// The statements that make the tables, as the `mysql` client reads them, for whoever may run them when this user may
    /// not.
    #[must_use]
    pub fn ddl() -> &'static str {
        schema::DDL
    }

    /// The least that a user needs who takes part in elections and makes no tables; `DATABASE` and `USER` stand for yours.
    #[must_use]
    pub fn grants() -> &'static str {
        schema::GRANTS
    }
}

/// Carries a batch out, round by round. A failure of the only round, or of the first, is one of the whole. Tells also
/// whether others have to be notified.
async fn write(operations: &Operations, mut batch: Batch) -> Result<(Vec<Outcome>, bool), StoreError> {
    let mut notified = false;
    for nth in 0..batch.rounds() {
        let round = batch.round(nth);
        match operations.ask(|mut wire| async move { round.run(&mut wire).await }).await {
            Ok((outcomes, notifies)) => {
                batch.note(nth, outcomes);
                notified |= notifies;
            }
            Err(error) if nth == 0 => return Err(error),
            Err(error) => {
                batch.fail(nth, &error);
                break;
            }
        }
    }
    Ok((batch.outcomes(), notified))
}

/// Whether this write is the last of its session: nothing follows it, and the process may be gone in a moment.
fn closes_session(write: &Write) -> bool {
    let notifies = write.notify && write.key.kind() == Kind::Session;
    let value = write.put.as_ref().filter(|_| notifies).map(|(_, value)| value.to_record(&write.key));
    matches!(value, Some(Record::Session(session)) if session.state == SessionState::Closed)
}

/// A watch that outlives its store would wait for ever.
impl Drop for Mysql {
    fn drop(&mut self) {
        self.watches.close();
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql")
            .field("place", &self.settings.place)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mysql://{}", self.settings.place)
    }
}

#[async_trait]
impl Store for Mysql {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (operations, text) = (self.operations.clone(), rows::select(namespace, query));
        let work = async move {
            let found: Vec<Row> =
                operations.ask(|mut wire| async move { Ok(wire.conn.query(text).await?) }).await?;
            Ok(found.iter().filter_map(rows::entry).collect())
        };
        self.thread.run(work).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let batch = Batch::new(namespace, writes, |lock| self.locks.may_hold(lock));
        if batch.is_empty() {
            return self.thread.check_open().map(|()| batch.outcomes());
        }
        // The answer does not wait for the notifier, unless the caller may end right afterwards: an operator's command,
        // which listens to nothing, or a node that closes its session.
        let waits = !self.listener.is_open() || writes.iter().any(closes_session);
        let (operations, notifier) = (self.operations.clone(), self.notifier.clone());
        let work = async move {
            let (outcomes, notifies) = write(&operations, batch).await?;
            if notifies {
                notifier.notify();
            }
            if notifies && waits {
                notifier.silent().await;
            }
            Ok(outcomes)
        };
        self.thread.run(work).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.watches.watch(namespace);
        self.listener.open();
        watch
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let (settings, operations, listener) =
            (self.settings.clone(), self.operations.clone(), self.listener.clone());
        let work = async move {
            operations.ask(|_| async { Ok(()) }).await?;
            let state = listener.state_within(settings.timeout).await;
            inspect::describe(&settings, &operations, &state).await
        };
        self.thread.run(work).await
    }

    async fn close(&self) {
        self.watches.close();
        let notifier = self.notifier.clone();
        let notifying = async move {
            notifier.silent().await;
            Ok(())
        };
        let _ = self.thread.run(notifying).await;
        self.thread.close().await;
    }
}

#[async_trait]
impl LivenessLocks for Mysql {
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        self.thread.check_open()?;
        let lock = LockNumber::of(namespace, session);
        if takeover == Takeover::Strict || !self.locks.begin(lock) {
            return Ok(None);
        }
        let operations = self.operations.clone();
        self.thread.run(async move { liveness::take(&operations, lock).await }).await
    }

    fn release_lock(&self, namespace: &Name, session: SessionId) {
        let lock = LockNumber::of(namespace, session);
        if self.locks.end(lock) {
            let operations = self.operations.clone();
            self.thread.spawn(async move { liveness::let_go(&operations, lock).await });
        }
    }

    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, takeover: Takeover) {
        if takeover == Takeover::OnDisconnect {
            self.watched_locks.watch(namespace, session, id);
        }
    }

    fn unwatch_lock(&self, namespace: &Name, session: SessionId) {
        self.watched_locks.unwatch(namespace, session);
    }
}
