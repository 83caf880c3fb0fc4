//! PostgreSQL: one logged table, one statement for each batch, `NOTIFY` in the same transaction.
//!
//! ```text
//!   read(), write() ──▶ operations ═══▶ operations, pipelined ═══▶ tenure_write_v2(…) ─▶ COMMIT ─▶ NOTIFY ──┐
//!   streams ◀── watches ◀── listener ◀═══ LISTEN tenure ◀══════════════════════════════════════════════════════┘
//! ```
//!
//! The connection that listens also holds the locks by which others see that an on-disconnect session has lost it.
//!
//! A handle has two connections and one thread, on which both live: neither the caller's runtime nor a caller that
//! stopped waiting can harm them. See `docs/stores/postgres.md` for what it guarantees and how to look into it, and
//! `docs/adr/0011-postgres.md` for why it is so.

mod batch;
mod connection;
mod error;
mod inspect;
mod listener;
mod liveness;
mod operations;
mod rows;
mod schema;
mod settings;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use self::batch::Batch;
use self::connection::PostgresConnection;
use self::listener::PostgresListener;
use self::liveness::LockTable;
use self::operations::Operations;
use self::rows::Question;
use self::settings::PostgresSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::liveness::{LockNumber, WatchedLock};
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Exchanged, LivenessLock, Name, Opening, Outcome, Query, ServersInUrl,
    StoreError, Write,
};

const STORE: &str = "postgres";

/// A handle on the registers in a PostgreSQL database.
pub type Postgres = ServerHandle<PostgresServer>;

/// How a PostgreSQL server is asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct PostgresServer {
    settings: Arc<PostgresSettings>,
    operations: Operations,
    listener: PostgresListener,
    locks: LockTable,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend::new(
    STORE,
    "PostgreSQL",
    &["postgres", "postgresql"],
    "postgres://HOST/DATABASE",
    |url, mode| {
        Opening::with_tables(url, mode, |url| Ok(PostgresSettings::parse(url)?.warning()), Postgres::open)
    },
)
.with_setup(schema::setup)
.with_servers(ServersInUrl::one(&["postgres", "postgresql"], 5432));

impl fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}", self.settings.place)
    }
}

impl Server for PostgresServer {
    const STORE: &'static str = STORE;
    const LOCKS: bool = true;

    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError> {
        let settings = Arc::new(PostgresSettings::parse(url)?);
        let (operations, keep) = operations::keep(settings.clone(), watches.clone());
        let (listener, listen) = PostgresListener::new(settings.clone(), watches.clone(), operations.clone());
        thread.spawn(keep);
        thread.spawn(listen);
        Ok(Self { settings, operations, listener, locks: LockTable::default() })
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let question = Question::new(namespace, query);
        let ask =
            |connection: Arc<PostgresConnection>| async move { connection.read(&question.params()).await };
        Ok(self.operations.ask(ask).await?.iter().filter_map(rows::entry).collect())
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let batch = Batch::new(namespace, writes, self.settings.patience_ms());
        if batch.is_empty() {
            return Ok(batch.outcomes(&[]));
        }
        let ask = |connection: Arc<PostgresConnection>| async move {
            Ok((connection.write(&batch.params()).await?, batch))
        };
        let (answered, batch) = self.operations.ask(ask).await?;
        Ok(batch.outcomes(&answered))
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let batch = Batch::new(namespace, writes, self.settings.patience_ms());
        if batch.is_empty() {
            return Exchanged { written: Ok(batch.outcomes(&[])), read: self.read(namespace, query).await };
        }
        let question = Question::new(namespace, query);
        let ask = |connection: Arc<PostgresConnection>| async move {
            let [_, asked @ ..] = question.params();
            let params: Vec<_> = batch.params().into_iter().chain(asked).collect();
            Ok((connection.exchange(&params).await?, batch))
        };
        match self.operations.ask(ask).await {
            Ok((rows, batch)) => {
                let read = rows.iter().filter_map(rows::entry).collect();
                Exchanged { written: Ok(batch.outcomes(&rows)), read: Ok(read) }
            }
            Err(error) => Exchanged::failed(&error),
        }
    }

    /// Two statements, sent at once on one connection: each is a transaction of its own, so that the second sees what was committed
    /// before the first was. One statement would read as of its begin.
    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let batch = Batch::new(namespace, writes, self.settings.patience_ms());
        if batch.is_empty() {
            return Exchanged { written: Ok(batch.outcomes(&[])), read: self.read(namespace, query).await };
        }
        let until = self.operations.until();
        let connection = match self.operations.reached(until, self.operations.connection()).await {
            Ok(connection) => connection,
            Err(error) => return Exchanged::failed(&error),
        };
        let question = Question::new(namespace, query);
        let (changes, asked) = (batch.params(), question.params());
        let write = self.operations.answer(&connection, until, connection.write(&changes));
        let read = self.operations.answer(&connection, until, connection.read(&asked));
        Exchanged::of_two(async { write.await.map(|rows| batch.outcomes(&rows)) }, async {
            Ok(read.await?.iter().filter_map(rows::entry).collect())
        })
        .await
    }

    fn listen(&self, _: &Name) {
        self.listener.open();
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        self.operations.ask(|_| async { Ok(()) }).await?;
        let state = self.listener.state_within(self.settings.timeout).await;
        inspect::describe(&self.settings, &self.operations, &state).await
    }

    async fn acquire_lock(self: Arc<Self>, number: LockNumber) -> Result<Option<LivenessLock>, StoreError> {
        self.locks.acquire(number, &self.operations, &self.listener).await
    }

    fn release_lock(self: Arc<Self>, number: LockNumber) -> Option<BoxFuture<'static, ()>> {
        self.locks.release(number)
    }

    async fn freed_locks(&self, watched: Vec<WatchedLock>) -> Vec<WatchedLock> {
        liveness::freed(&self.operations, watched).await
    }
}
