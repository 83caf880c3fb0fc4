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

use futures_util::future::BoxFuture;
use mysql_async::Row;
use mysql_async::prelude::Queryable;
use tenure_core::record::{Record, SessionState};
use tokio::sync::OwnedMutexGuard;

use self::batch::{Batch, Carried};
use self::connection::Wire;
use self::liveness::LockTable;
use self::notifier::Notifier;
use self::operations::Operations;
use self::settings::MysqlSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::liveness::{LockNumber, WatchedLock};
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Exchanged, Kind, LivenessLock, Name, Opening, Outcome, Query, ServersInUrl,
    StoreError, Write,
};

const STORE: &str = "mysql";

/// A handle on the registers in a MySQL or MariaDB database.
///
/// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters `timeout`, `ca` and `sslmode`.
pub type Mysql = ServerHandle<MysqlServer>;

/// How a MySQL or MariaDB server is asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct MysqlServer {
    settings: Arc<MysqlSettings>,
    operations: Operations,
    notifier: Arc<Notifier>,
    listener: ListenerHandle,
    locks: LockTable,
}

/// This store, by its URLs.
pub const BACKEND: Backend =
    Backend::new(STORE, "MySQL and MariaDB", &["mysql", "mariadb"], "mysql://HOST/DATABASE", |url, mode| {
        Opening::with_tables(url, mode, |url| Ok(MysqlSettings::parse(url)?.warning()), Mysql::open)
    })
    .without_native_notifications()
    .with_setup(schema::setup)
    .with_servers(ServersInUrl::one(&["mysql", "mariadb"], 3306));

/// Carries a batch out, round by round. A failure of the only round, or of the first, is one of the whole. Tells also
/// whether others have to be notified.
async fn write(operations: &Operations, mut batch: Batch) -> Result<(Vec<Outcome>, bool), StoreError> {
    let mut notified = false;
    for nth in 0..batch.rounds() {
        let round = batch.round(nth);
        match operations.ask(|mut wire| async move { round.run(&mut wire).await }).await {
            Ok(Carried { outcomes, notifies, .. }) => {
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

impl MysqlServer {
    /// Has others notified of these writes. The answer does not wait for the notifier, unless the caller may end right afterwards:
    /// an operator's command, which listens to nothing, or a node that closes its session.
    async fn notify(&self, writes: &[Write], notifies: bool) {
        if !notifies {
            return;
        }
        let waits = !self.listener.is_open() || writes.iter().any(closes_session);
        self.notifier.notify();
        if waits {
            self.notifier.silent().await;
        }
    }
}

impl fmt::Display for MysqlServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mysql://{}", self.settings.place)
    }
}

impl Server for MysqlServer {
    const STORE: &'static str = STORE;
    const LOCKS: bool = true;

    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError> {
        let settings = Arc::new(MysqlSettings::parse(url)?);
        let (operations, keep) = Operations::new(settings.clone(), watches.clone());
        let (notifier, keep_notifying) = Notifier::new(operations.clone(), settings.timeout);
        let (listener, listen) =
            listener::listen(settings.clone(), watches.clone(), operations.clone(), notifier.clone());
        thread.spawn(keep);
        thread.spawn(keep_notifying);
        thread.spawn(listen);
        Ok(Self { settings, operations, notifier, listener, locks: LockTable::default() })
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let text = rows::select(namespace, query);
        let found: Vec<Row> =
            self.operations.ask(|mut wire| async move { Ok(wire.conn.query(text).await?) }).await?;
        Ok(found.iter().filter_map(rows::entry).collect())
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let batch = Batch::new(namespace, writes, |lock| self.locks.may_hold(lock));
        if batch.is_empty() {
            return Ok(batch.outcomes());
        }
        let (outcomes, notifies) = write(&self.operations, batch).await?;
        self.notify(writes, notifies).await;
        Ok(outcomes)
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.write_then_read(namespace, writes, query).await
    }

    /// What is one text, and so one transaction, goes in one with the question, which is a transaction of its own after it.
    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let mut batch = Batch::new(namespace, writes, |lock| self.locks.may_hold(lock));
        if batch.rounds() != 1 {
            return Exchanged::in_turn(self.write(namespace, writes), self.read(namespace, query)).await;
        }
        let (round, question) = (batch.round(0), rows::select(namespace, query));
        let ask =
            |mut wire: OwnedMutexGuard<Wire>| async move { round.run_then_ask(&mut wire, &question).await };
        match self.operations.ask(ask).await {
            Ok(Carried { outcomes, notifies, rows }) => {
                batch.note(0, outcomes);
                self.notify(writes, notifies).await;
                let read = rows.iter().filter_map(rows::entry).collect();
                Exchanged { written: Ok(batch.outcomes()), read: Ok(read) }
            }
            Err(error) => Exchanged::failed(&error),
        }
    }

    fn listen(&self, _: &Name) {
        self.listener.open();
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        self.operations.ask(|_| async { Ok(()) }).await?;
        let state = self.listener.state_within(self.settings.timeout).await;
        inspect::describe(&self.settings, &self.operations, &state).await
    }

    async fn finish(&self) {
        self.notifier.silent().await;
    }

    fn acquire_lock(
        self: Arc<Self>,
        number: LockNumber,
    ) -> impl Future<Output = Result<Option<LivenessLock>, StoreError>> + Send {
        // Noted at once, so that releasing it meanwhile frees what is about to be taken.
        let first = self.locks.begin(number);
        async move { if first { liveness::take(&self.operations, number).await } else { Ok(None) } }
    }

    fn release_lock(self: Arc<Self>, number: LockNumber) -> Option<BoxFuture<'static, ()>> {
        let held = self.locks.end(number);
        held.then(|| -> BoxFuture<'static, ()> {
            Box::pin(async move { liveness::let_go(&self.operations, number).await })
        })
    }

    async fn freed_locks(&self, watched: Vec<WatchedLock>) -> Vec<WatchedLock> {
        liveness::freed(&self.operations, watched).await.unwrap_or_default()
    }
}
