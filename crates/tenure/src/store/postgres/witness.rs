//! The witness of an on-disconnect session: an advisory lock that the listening connection holds for as long as it lives.
//!
//! It is taken once for each session and never again, so that "held" means held by the connection that took it. A beat
//! proves it in its own statement, on the other connection ([`tenure_write_v2`](super::schema)); whoever depends on a
//! session asks for it, many at once, many times a second, because waiting for a lock would block a connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::super::hash::hash;
use super::super::hub::{Hub, lock};
use super::super::room::Room;
use super::super::{Evidence, Name, SessionId, Signal, StoreError, Witness};
use super::STORE;
use super::ears::{Ears, Line};
use super::link::Link;
use super::rows::Param;

/// How often the locks of others are looked at, while there are any to look at. It is part of the time in which a
/// disconnected leader is replaced.
const LOOK: Duration = Duration::from_millis(40);

/// How long a lock may take to be taken or freed.
const PATIENCE: Duration = Duration::from_secs(2);

/// A session of a namespace.
type Of = (Name, SessionId);

/// The locks of this handle's sessions, and those of others that it attends to.
#[derive(Debug, Default)]
pub(super) struct Locks {
    mine: Mutex<Mine>,
    /// With the server that each was named on.
    attended: Mutex<BTreeMap<Of, String>>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Mine {
    /// Every session for which a lock was ever asked for.
    taken: BTreeSet<Of>,
    /// Where it is held; none while it is being taken.
    held: BTreeMap<Of, Option<Arc<Line>>>,
}

/// The number of a session's lock. Nodes of every version must agree on it.
pub(super) fn key(namespace: &Name, session: SessionId) -> i64 {
    hash(&[namespace.as_str(), &session.to_string()])
}

fn witness(server: &str, key: i64) -> String {
    format!("{server}:{key:016x}")
}

impl Locks {
    /// Takes the lock of a session; none if it was ever asked for, or if a pooler stands between.
    pub(super) async fn attest(
        &self,
        of: Of,
        link: &Link,
        ears: &Ears,
    ) -> Result<Option<Witness>, StoreError> {
        if !self.begin(&of) {
            return Ok(None);
        }
        let key = key(&of.0, of.1);
        let taken = take(key, link, ears).await;
        let Ok(Some((line, server))) = taken else {
            lock(&self.mine).held.remove(&of);
            return taken.map(|_| None);
        };
        if !self.keep(&of, &line) {
            free(line, key).await;
            return Ok(None);
        }
        Ok(Some(Witness { id: witness(&server, key), covers_work: false, connection: true }))
    }

    fn begin(&self, of: &Of) -> bool {
        let mut mine = lock(&self.mine);
        let first = mine.taken.insert(of.clone());
        if first {
            mine.held.insert(of.clone(), None);
        }
        first
    }

    /// False if the session was released meanwhile.
    fn keep(&self, of: &Of, line: &Arc<Line>) -> bool {
        let mut mine = lock(&self.mine);
        mine.held.get_mut(of).map(|held| *held = Some(line.clone())).is_some()
    }

    /// Frees the lock of a session, in the background.
    pub(super) fn release(&self, of: &Of, room: &Room) {
        if let Some(Some(line)) = lock(&self.mine).held.remove(of) {
            room.spawn(free(line, key(&of.0, of.1)));
        }
    }

    /// Looks at that session's lock from now on, if it is the one that the witness names.
    pub(super) fn attend(&self, of: Of, named: &str) {
        let Some((server, _)) = named.rsplit_once(':') else { return };
        if witness(server, key(&of.0, of.1)) == named {
            lock(&self.attended).insert(of, server.to_owned());
            self.news.notify_one();
        }
    }

    pub(super) fn ignore(&self, of: &Of) {
        lock(&self.attended).remove(of);
    }

    /// Looks at the locks of others for as long as there are any, and tells of those that are free.
    pub(super) async fn look(self: Arc<Self>, link: Link, hub: Arc<Hub>) {
        loop {
            let asked: Vec<(Of, String)> = {
                let attended = lock(&self.attended);
                attended.iter().map(|(of, server)| (of.clone(), server.clone())).collect()
            };
            if asked.is_empty() {
                self.news.notified().await;
                continue;
            }
            for (of, server) in freed(&link, asked).await {
                lock(&self.attended).remove(&of);
                let witness = witness(&server, key(&of.0, of.1));
                let evidence = Evidence::Disconnected { session: of.1, witness };
                hub.send(&of.0, &Signal::Witnessed(evidence));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The lock on the listening connection, and the server that it is on. A connection on which it is not known what became
/// of a lock is given up, and the lock with it.
async fn take(key: i64, link: &Link, ears: &Ears) -> Result<Option<(Arc<Line>, String)>, StoreError> {
    let session = link.session().await?;
    let line = match timeout(PATIENCE, ears.line()).await {
        Ok(line) => line?,
        Err(_) => {
            return Err(StoreError::not_applied(STORE, "the connection for witnesses is not there yet"));
        }
    };
    let Some(line) = line.filter(|_| session.direct) else { return Ok(None) };
    let sql = "SELECT pg_try_advisory_lock($1)";
    let params: [Param<'_>; 1] = [(&key, Type::INT8)];
    match timeout(PATIENCE, line.client.query_typed_one(sql, &params)).await {
        Ok(Ok(row)) if row.get(0) => Ok(Some((line, session.memory.identity.clone()))),
        Ok(Ok(_)) => Ok(None),
        _ => {
            line.lost.cancel();
            Err(StoreError::not_applied(STORE, "the connection for witnesses was lost"))
        }
    }
}

async fn free(line: Arc<Line>, key: i64) {
    let sql = "SELECT pg_advisory_unlock($1)";
    let params: [Param<'_>; 1] = [(&key, Type::INT8)];
    if !matches!(timeout(PATIENCE, line.client.query_typed_one(sql, &params)).await, Ok(Ok(_))) {
        line.lost.cancel();
    }
}

/// Those whose lock is free. Another server than the one that was named has never seen it, and says nothing.
async fn freed(link: &Link, asked: Vec<(Of, String)>) -> Vec<(Of, String)> {
    let keys: Vec<i64> = asked.iter().map(|(of, _)| key(&of.0, of.1)).collect();
    let ask = |session: Arc<super::session::Session>| async move {
        Ok((session.free(&keys).await?, session.memory.identity.clone()))
    };
    let Ok((free, server)) = link.ask(ask).await else { return Vec::new() };
    let is_free = |(of, named): &(Of, String)| *named == server && free.contains(&key(&of.0, of.1));
    asked.into_iter().filter(is_free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of every version must agree on the numbers of their locks.
    #[test]
    fn keys_never_change() {
        let (space, session) = (Name::new("default").unwrap(), SessionId(0x2a));
        assert_eq!(session.to_string().len(), 32);
        assert_eq!(key(&space, session).cast_unsigned(), 0xfbc8_c73e_66d9_5571);
        let other = Name::new("default.").unwrap();
        assert_ne!(key(&space, session), key(&other, session));
    }
}
