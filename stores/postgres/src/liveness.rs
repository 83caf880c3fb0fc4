//! The liveness lock of an on-disconnect session: an advisory lock that the listening connection holds for as long as it
//! lives.
//!
//! It is taken once for each session and never again, so that "held" means held by the connection that took it. A beat
//! proves it in its own statement, on the other connection of the same login ([`tenure_write_v2`](super::schema)). A node
//! that depends on a session asks for its lock, many at once, many times a second, because waiting for a lock would block
//! a connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::STORE;
use super::connection::PostgresConnection;
use super::listener::{ListenerConnection, PostgresListener};
use super::operations::Operations;
use super::rows::Param;
use tenure_store::kit::liveness::{LockNumber, WatchedLock};
use tenure_store::kit::watches::lock;
use tenure_store::{LivenessLock, StoreError};

/// How long a lock may take to be taken or freed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The locks of this handle's sessions.
#[derive(Debug, Default)]
pub(super) struct LockTable(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Every lock that was ever asked for.
    taken: BTreeSet<LockNumber>,
    /// Where it is held; none while it is being taken.
    held: BTreeMap<LockNumber, Option<Arc<ListenerConnection>>>,
}

impl LockTable {
    /// Takes the lock of a session; none if it was ever asked for, or if a pooler stands between.
    pub(super) async fn acquire(
        &self,
        number: LockNumber,
        operations: &Operations,
        listener: &PostgresListener,
    ) -> Result<Option<LivenessLock>, StoreError> {
        if !self.begin(number) {
            return Ok(None);
        }
        let taken = take(number, operations, listener).await;
        let Ok(Some((connection, server))) = taken else {
            lock(&self.0).held.remove(&number);
            return taken.map(|_| None);
        };
        if !self.keep(number, &connection) {
            free(connection, number).await;
            return Ok(None);
        }
        Ok(Some(LivenessLock { id: number.id(&server), covers_work: false, connection: true }))
    }

    fn begin(&self, number: LockNumber) -> bool {
        let mut state = lock(&self.0);
        let first = state.taken.insert(number);
        if first {
            state.held.insert(number, None);
        }
        first
    }

    /// False if the session was released meanwhile.
    fn keep(&self, number: LockNumber, connection: &Arc<ListenerConnection>) -> bool {
        let mut state = lock(&self.0);
        state.held.get_mut(&number).map(|held| *held = Some(connection.clone())).is_some()
    }

    /// Gives the lock of a session up; what frees it on the server, if it is held.
    pub(super) fn release(&self, number: LockNumber) -> Option<BoxFuture<'static, ()>> {
        let connection = lock(&self.0).held.remove(&number)??;
        Some(Box::pin(free(connection, number)))
    }
}

/// The lock on the listening connection, and the server that it is on. A connection on which it is not known what became
/// of a lock is given up, and the lock with it.
async fn take(
    number: LockNumber,
    operations: &Operations,
    listener: &PostgresListener,
) -> Result<Option<(Arc<ListenerConnection>, String)>, StoreError> {
    let operating = operations.connection().await?;
    let listening = match timeout(PATIENCE, listener.connection()).await {
        Ok(listening) => listening?,
        Err(_) => {
            return Err(StoreError::not_applied(STORE, "the connection for liveness locks is not there yet"));
        }
    };
    let Some(listening) = listening.filter(|_| operating.direct) else { return Ok(None) };
    let sql = "SELECT pg_try_advisory_lock($1)";
    let params: [Param<'_>; 1] = [(&number.get(), Type::INT8)];
    match timeout(PATIENCE, listening.client.query_typed_one(sql, &params)).await {
        Ok(Ok(row)) if row.get(0) => Ok(Some((listening, operating.data.identity.clone()))),
        Ok(Ok(_)) => Ok(None),
        _ => {
            listening.lost.cancel();
            Err(StoreError::not_applied(STORE, "the connection for liveness locks was lost"))
        }
    }
}

async fn free(connection: Arc<ListenerConnection>, number: LockNumber) {
    let sql = "SELECT pg_advisory_unlock($1)";
    let params: [Param<'_>; 1] = [(&number.get(), Type::INT8)];
    if !matches!(timeout(PATIENCE, connection.client.query_typed_one(sql, &params)).await, Ok(Ok(_))) {
        connection.lost.cancel();
    }
}

/// Those whose lock is free on the server that they are on.
pub(super) async fn freed(operations: &Operations, watched: Vec<WatchedLock>) -> Vec<WatchedLock> {
    let numbers: Vec<i64> = watched.iter().map(|one| one.number().get()).collect();
    let ask = |connection: Arc<PostgresConnection>| async move {
        Ok((connection.free(&numbers).await?, connection.data.identity.clone()))
    };
    let Ok((free, server)) = operations.ask(ask).await else { return Vec::new() };
    let is_free = |one: &WatchedLock| one.is_on(&server) && free.contains(&one.number().get());
    watched.into_iter().filter(is_free).collect()
}
