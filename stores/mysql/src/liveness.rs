//! Liveness locks: a session that is to be known by its connection holds a lock of the server, which ends with it.
//!
//! The lock is held by the connection for operations. Whatever is written on that connection while it lives is written
//! under the lock, and the server frees the lock only when it has done with the connection: so once the lock is seen to be
//! free, no write of that session that requires it is ever applied again. The server does not tell that a lock is free: a
//! node that watches one looks, often.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mysql_async::Row;
use mysql_async::prelude::Queryable;

use super::connection::text_of;
use super::operations::Operations;
use tenure_store::kit::liveness::{LockNumber, WatchedLock};
use tenure_store::kit::watches::lock;
use tenure_store::{LivenessLock, StoreError};

/// What a lock is called on the server.
fn name(lock: LockNumber) -> String {
    format!("tenure-{}", lock.digits())
}

/// The condition that this very connection holds a lock.
pub(super) fn is_held(lock: LockNumber) -> String {
    format!("IS_USED_LOCK('{}') = CONNECTION_ID()", name(lock))
}

/// Takes a lock that this handle never asked for before. None if another connection has it, or if something stands
/// between.
pub(super) async fn take(
    operations: &Operations,
    lock: LockNumber,
) -> Result<Option<LivenessLock>, StoreError> {
    let connection = operations.connection().await?;
    if !connection.has_locks {
        return Ok(None);
    }
    let taken = operations.ask(|mut wire| async move {
        let taken: Option<Row> =
            wire.conn.query_first(format!("SELECT GET_LOCK('{}', 0)", name(lock))).await?;
        let taken = taken.and_then(|row| text_of(&row, 0)).is_some_and(|taken| taken == "1");
        if taken {
            wire.locks.insert(lock);
        }
        Ok(taken)
    });
    let id = lock.id(&connection.data.identity);
    Ok(taken.await?.then_some(LivenessLock { id, covers_work: false, connection: true }))
}

/// Lets go of a lock, if the connection that has it is still there.
pub(super) async fn let_go(operations: &Operations, lock: LockNumber) {
    let done = operations.ask(|mut wire| async move {
        if wire.locks.remove(&lock) {
            wire.conn.query_drop(format!("DO RELEASE_LOCK('{}')", name(lock))).await?;
        }
        Ok(())
    });
    let _ = done.await;
}

/// Every lock that this handle ever asked for, and whether it may still be held.
#[derive(Debug, Default)]
pub(super) struct LockTable(Mutex<BTreeMap<LockNumber, bool>>);

impl LockTable {
    /// Notes that a lock is asked for; false if it was before.
    pub(super) fn begin(&self, number: LockNumber) -> bool {
        let mut asked = lock(&self.0);
        let fresh = !asked.contains_key(&number);
        if fresh {
            asked.insert(number, true);
        }
        fresh
    }

    /// Notes that a lock is not held any more; false if it was not.
    pub(super) fn end(&self, number: LockNumber) -> bool {
        lock(&self.0).get_mut(&number).is_some_and(|held| std::mem::replace(held, false))
    }

    /// Whether this handle may hold a lock.
    pub(super) fn may_hold(&self, number: LockNumber) -> bool {
        lock(&self.0).get(&number).is_some_and(|held| *held)
    }
}

/// Those whose lock is free on the server that they are on.
pub(super) async fn freed(
    operations: &Operations,
    watched: Vec<WatchedLock>,
) -> Result<Vec<WatchedLock>, StoreError> {
    let identity = operations.connection().await?.data.identity.clone();
    let here: Vec<_> = watched.into_iter().filter(|one| one.is_on(&identity)).collect();
    if here.is_empty() {
        return Ok(here);
    }
    let columns: Vec<_> = here.iter().map(|one| format!("IS_FREE_LOCK('{}')", name(one.number()))).collect();
    let ask = format!("SELECT {}", columns.join(", "));
    let row: Option<Row> =
        operations.ask(|mut wire| async move { Ok(wire.conn.query_first(ask).await?) }).await?;
    let is_free = |nth| row.as_ref().and_then(|row| text_of(row, nth)).is_some_and(|free| free == "1");
    Ok(here.into_iter().enumerate().filter(|(nth, _)| is_free(*nth)).map(|(_, one)| one).collect())
}

#[cfg(test)]
mod tests {
    use tenure_store::{Name, SessionId};

    use super::*;

    /// Nodes of every version must agree on the names of their locks.
    #[test]
    fn names_of_locks_never_change() {
        let name = name(LockNumber::of(&Name::new("default").unwrap(), SessionId::new(1)));
        assert_eq!(name, "tenure-0f051d3e724919d7");
        assert!(name.len() <= 64, "the longest name that servers take");
    }

    #[test]
    fn a_lock_is_asked_for_once() {
        let (locks, one) =
            (LockTable::default(), LockNumber::of(&Name::new("a").unwrap(), SessionId::new(1)));
        assert!(!locks.may_hold(one) && !locks.end(one));
        assert!(locks.begin(one) && !locks.begin(one) && locks.may_hold(one));
        assert!(locks.end(one) && !locks.end(one));
        assert!(!locks.begin(one) && !locks.may_hold(one), "not even after it was let go of");
    }
}
