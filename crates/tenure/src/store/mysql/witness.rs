//! Connections as witnesses: a session that is to be known by its connection holds a lock of the server, which ends with
//! it.
//!
//! The lock is held by the connection for operations. Whatever is written on that connection while it lives is written
//! under the lock, and the server frees the lock only when it has done with the connection: so once the lock is seen to be
//! free, no witnessed write of that session is ever applied again. The server tells nobody that a lock is free: whoever
//! attends to one looks, often.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mysql_async::Row;
use mysql_async::prelude::Queryable;
use tokio::sync::Notify;

use super::super::hash::hash;
use super::super::hub::{Hub, lock};
use super::super::{Evidence, Key, Name, SessionId, Signal, StoreError, Witness};
use super::link::Link;
use super::session::text_of;

/// How often the locks that are attended to are looked at; no session of a strict cluster has any.
const GLANCE: Duration = Duration::from_millis(40);

/// What the lock of a session is called on the server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lock(String);

impl Lock {
    /// Nodes of every version must agree on it.
    pub(super) fn new(namespace: &Name, session: SessionId) -> Self {
        let number = hash(&[namespace.as_str(), &session.to_string()]).cast_unsigned();
        Self(format!("tenure-{number:016x}"))
    }

    /// The lock of the session whose register a key names.
    pub(super) fn of(namespace: &Name, key: &Key) -> Option<Self> {
        match key {
            Key::Session(_, session) => Some(Self::new(namespace, *session)),
            _ => None,
        }
    }

    /// The condition that this very connection holds it.
    pub(super) fn is_held(&self) -> String {
        format!("IS_USED_LOCK('{}') = CONNECTION_ID()", self.0)
    }

    /// A lock of another server, or of other tables, is another witness.
    fn witness(&self, identity: &str) -> String {
        format!("{identity}#{}", self.0)
    }
}

/// Takes a lock that this handle never asked for before. None if somebody else has it, or if something stands between.
pub(super) async fn take(link: &Link, lock: Lock) -> Result<Option<Witness>, StoreError> {
    let session = link.session().await?;
    if !session.direct {
        return Ok(None);
    }
    let name = lock.clone();
    let taken = link.ask(|mut wire| async move {
        let taken: Option<Row> = wire.conn.query_first(format!("SELECT GET_LOCK('{}', 0)", name.0)).await?;
        let taken = taken.and_then(|row| text_of(&row, 0)).is_some_and(|taken| taken == "1");
        if taken {
            wire.locks.insert(name);
        }
        Ok(taken)
    });
    let id = lock.witness(&session.memory.identity);
    Ok(taken.await?.then_some(Witness { id, covers_work: false, connection: true }))
}

/// Lets go of a lock, if the connection that has it is still there.
pub(super) async fn let_go(link: &Link, lock: Lock) {
    let done = link.ask(|mut wire| async move {
        if wire.locks.remove(&lock) {
            wire.conn.query_drop(format!("DO RELEASE_LOCK('{}')", lock.0)).await?;
        }
        Ok(())
    });
    let _ = done.await;
}

/// The locks that this handle took, and those of others to which it attends.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// Every lock that was ever asked for, and whether it may still be held.
    asked: Mutex<BTreeMap<Lock, bool>>,
    attended: Mutex<Vec<Attended>>,
    changed: Notify,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Attended {
    namespace: Name,
    session: SessionId,
    witness: String,
    lock: Lock,
}

impl Witnesses {
    /// Notes that a lock is asked for; false if it was before.
    pub(super) fn begin(&self, name: &Lock) -> bool {
        let mut asked = lock(&self.asked);
        let fresh = !asked.contains_key(name);
        if fresh {
            asked.insert(name.clone(), true);
        }
        fresh
    }

    /// Notes that a lock is not held any more; false if it was not.
    pub(super) fn end(&self, name: &Lock) -> bool {
        lock(&self.asked).get_mut(name).is_some_and(|held| std::mem::replace(held, false))
    }

    /// Whether this handle may hold a lock.
    pub(super) fn may_hold(&self, name: &Lock) -> bool {
        lock(&self.asked).get(name).is_some_and(|held| *held)
    }

    /// Looks at a lock from now on, if it is the one that the witness names.
    pub(super) fn attend(&self, namespace: &Name, session: SessionId, witness: &str) {
        let name = Lock::new(namespace, session);
        let named = witness.rsplit_once('#').is_some_and(|(_, lock)| lock == name.0);
        let one = Attended { namespace: namespace.clone(), session, witness: witness.to_owned(), lock: name };
        let mut attended = lock(&self.attended);
        if named && !attended.contains(&one) {
            attended.push(one);
            self.changed.notify_one();
        }
    }

    /// Looks no more.
    pub(super) fn ignore(&self, namespace: &Name, session: SessionId) {
        lock(&self.attended).retain(|one| one.namespace != *namespace || one.session != session);
    }

    /// Looks at what is attended to, as long as there is any, and tells of what is free.
    pub(super) async fn look(self: Arc<Self>, link: Link, hub: Arc<Hub>) {
        loop {
            let attended = lock(&self.attended).clone();
            if attended.is_empty() {
                self.changed.notified().await;
                continue;
            }
            for one in free(&link, &attended).await.unwrap_or_default() {
                lock(&self.attended).retain(|other| *other != one);
                let evidence = Evidence::Disconnected { session: one.session, witness: one.witness };
                hub.send(&one.namespace, &Signal::Witnessed(evidence));
            }
            tokio::time::sleep(GLANCE).await;
        }
    }
}

/// Those whose lock is free on the server that their witness names.
async fn free(link: &Link, attended: &[Attended]) -> Result<Vec<Attended>, StoreError> {
    let identity = link.session().await?.memory.identity.clone();
    let here = attended.iter().filter(|one| one.witness == one.lock.witness(&identity));
    let here: Vec<_> = here.cloned().collect();
    if here.is_empty() {
        return Ok(here);
    }
    let columns: Vec<_> = here.iter().map(|one| format!("IS_FREE_LOCK('{}')", one.lock.0)).collect();
    let ask = format!("SELECT {}", columns.join(", "));
    let row: Option<Row> = link.ask(|mut wire| async move { Ok(wire.conn.query_first(ask).await?) }).await?;
    let is_free = |nth| row.as_ref().and_then(|row| text_of(row, nth)).is_some_and(|free| free == "1");
    Ok(here.into_iter().enumerate().filter(|(nth, _)| is_free(*nth)).map(|(_, one)| one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of every version must agree on the names of their locks.
    #[test]
    fn names_of_locks_never_change() {
        let name = Lock::new(&Name::new("default").unwrap(), SessionId(1));
        assert_eq!(name.0, "tenure-0f051d3e724919d7");
        assert!(name.0.len() <= 64, "the longest name that servers take");
    }

    #[test]
    fn a_lock_is_asked_for_once() {
        let (witnesses, name) = (Witnesses::default(), Lock("tenure-1".to_owned()));
        assert!(!witnesses.may_hold(&name) && !witnesses.end(&name));
        assert!(witnesses.begin(&name) && !witnesses.begin(&name) && witnesses.may_hold(&name));
        assert!(witnesses.end(&name) && !witnesses.end(&name));
        assert!(!witnesses.begin(&name) && !witnesses.may_hold(&name), "not even after it was let go of");
    }
}
