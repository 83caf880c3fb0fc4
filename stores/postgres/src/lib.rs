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

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::batch::Batch;
use self::connection::PostgresConnection;
use self::listener::PostgresListener;
use self::liveness::LockTable;
use self::operations::Operations;
use self::rows::Question;
use self::settings::PostgresSettings;
use tenure_store::kit::liveness::{LockNumber, WatchedLocks};
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, LivenessLock, LivenessLocks, Name, Opening, Outcome, Query, SessionId,
    Signal, Store, StoreError, Takeover, Write,
};

const STORE: &str = "postgres";

/// A handle on the registers in a PostgreSQL database.
pub struct Postgres {
    settings: Arc<PostgresSettings>,
    operations: Operations,
    listener: Arc<PostgresListener>,
    watches: Arc<Watches>,
    locks: Arc<LockTable>,
    watched_locks: Arc<WatchedLocks>,
    thread: ConnectionThread,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend {
    name: STORE,
    product: "PostgreSQL",
    schemes: &["postgres", "postgresql"],
    usage: "postgres://HOST/DATABASE",
    in_process: false,
    native_notifications: true,
    setup: Some(schema::setup),
    read: |url, mode| {
        Opening::with_tables(url, mode, |url| Ok(PostgresSettings::parse(url)?.warning()), Postgres::open)
    },
};

impl Postgres {
    /// Reads the URL and begins to connect, in the background. The server may be down: operations say so.
    ///
    /// # Errors
    /// If the URL cannot be read or contradicts itself, or if there is no thread left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(PostgresSettings::parse(url)?);
        let watches = Arc::new(Watches::default());
        let (operations, keep) = operations::keep(settings.clone(), watches.clone());
        let (listener, listen) = PostgresListener::new(settings.clone(), watches.clone(), operations.clone());
        let thread = ConnectionThread::open(STORE)?;
        thread.spawn(keep);
        thread.spawn(listen);
        let (locks, watched_locks) = (Arc::default(), Arc::<WatchedLocks>::default());
        let asked = operations.clone();
        let free = move |watched| liveness::freed(asked.clone(), watched);
        thread.spawn(watched_locks.clone().look(watches.clone(), free));
        Ok(Self { settings, operations, listener: Arc::new(listener), watches, locks, watched_locks, thread })
    }

    /// The statements that create the tables, for an administrator to run where this user may not.
    #[must_use]
    pub fn ddl() -> &'static str {
        schema::DDL
    }

    /// The least that a user needs who takes part in elections and makes no tables; `USER` stands for yours.
    #[must_use]
    pub fn grants() -> &'static str {
        schema::GRANTS
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Postgres {
    fn drop(&mut self) {
        self.watches.close();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("place", &self.settings.place)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}", self.settings.place)
    }
}

#[async_trait]
impl Store for Postgres {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (operations, question) = (self.operations.clone(), Question::new(namespace, query));
        self.thread
            .run(async move {
                let found = operations
                    .ask(|connection| async move { connection.read(&question.params()).await })
                    .await?;
                Ok(found.iter().filter_map(rows::entry).collect())
            })
            .await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let batch = Batch::new(namespace, writes, self.settings.patience_ms());
        if batch.is_empty() {
            return self.thread.check_open().map(|()| batch.outcomes(&[]));
        }
        let operations = self.operations.clone();
        self.thread
            .run(async move {
                let ask = |connection: Arc<PostgresConnection>| async move {
                    Ok((connection.write(&batch.params()).await?, batch))
                };
                let (answered, batch) = operations.ask(ask).await?;
                Ok(batch.outcomes(&answered))
            })
            .await
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
        self.thread
            .run(async move {
                operations.ask(|_| async { Ok(()) }).await?;
                let state = listener.state_within(settings.timeout).await;
                inspect::describe(&settings, &operations, &state).await
            })
            .await
    }

    async fn close(&self) {
        self.watches.close();
        self.thread.close().await;
    }
}

#[async_trait]
impl LivenessLocks for Postgres {
    /// To a strict session a dropped connection means nothing: it needs no liveness lock.
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        if takeover == Takeover::Strict {
            return self.thread.check_open().map(|()| None);
        }
        let (locks, operations, listener) =
            (self.locks.clone(), self.operations.clone(), self.listener.clone());
        let number = LockNumber::of(namespace, session);
        self.thread.run(async move { locks.acquire(number, &operations, &listener).await }).await
    }

    fn release_lock(&self, namespace: &Name, session: SessionId) {
        self.locks.release(LockNumber::of(namespace, session), &self.thread);
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
