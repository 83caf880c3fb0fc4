//! Liveness locks that connections hold on a server: what they are called, and those of others that a handle watches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::hash::hash;
use super::watches::{Watches, lock};
use crate::{Evidence, Key, Name, SessionId, Signal};

/// How often the locks that are watched are looked at, while there are any: no server tells that a lock is free. It is
/// part of the time in which a disconnected leader is replaced.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// The number of a session's lock. Nodes of every version must agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockNumber(i64);

impl LockNumber {
    /// The number of the lock of that session.
    #[must_use]
    pub fn of(namespace: &Name, session: SessionId) -> Self {
        Self(hash(&[namespace.as_str(), &session.to_string()]))
    }

    /// The number of the lock of the session whose register a key names.
    #[must_use]
    pub fn of_key(namespace: &Name, key: &Key) -> Option<Self> {
        match key {
            Key::Session(_, session) => Some(Self::of(namespace, *session)),
            _ => None,
        }
    }

    /// The number itself, as advisory locks have it.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }

    /// Sixteen hexadecimal digits, for locks that have names.
    #[must_use]
    pub fn digits(self) -> String {
        format!("{:016x}", self.0.cast_unsigned())
    }

    /// The id of the lock in the record of its session. A lock of another server, or of other tables, has another id.
    #[must_use]
    pub fn id(self, identity: &str) -> String {
        format!("{identity}#{}", self.digits())
    }
}

/// A lock of another node's session, as the record of that session names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedLock {
    namespace: Name,
    session: SessionId,
    id: String,
    number: LockNumber,
}

impl WatchedLock {
    /// What it is called.
    #[must_use]
    pub fn number(&self) -> LockNumber {
        self.number
    }

    /// Whether the server with that identity is the one that it is on. Another one has never seen it, and that it is free
    /// there means nothing.
    #[must_use]
    pub fn is_on(&self, identity: &str) -> bool {
        self.id == self.number.id(identity)
    }
}

/// The locks of others that a handle watches.
#[derive(Debug, Default)]
pub struct WatchedLocks {
    watched: Mutex<Vec<WatchedLock>>,
    changed: Notify,
}

impl WatchedLocks {
    /// Looks at the lock of a session from now on, if it is the one that is named.
    pub fn watch(&self, namespace: &Name, session: SessionId, id: &str) {
        let number = LockNumber::of(namespace, session);
        let named = id.rsplit_once('#').is_some_and(|(_, digits)| digits == number.digits());
        let one = WatchedLock { namespace: namespace.clone(), session, id: id.to_owned(), number };
        let mut watched = lock(&self.watched);
        if named && !watched.contains(&one) {
            watched.push(one);
            self.changed.notify_one();
        }
    }

    /// Looks no more.
    pub fn unwatch(&self, namespace: &Name, session: SessionId) {
        lock(&self.watched).retain(|one| one.namespace != *namespace || one.session != session);
    }

    /// Has `free` find out which locks are free, as long as any is watched, and tells of them once.
    pub async fn look<F>(self: Arc<Self>, watches: Arc<Watches>, free: impl Fn(Vec<WatchedLock>) -> F + Send)
    where
        F: Future<Output = Vec<WatchedLock>> + Send,
    {
        loop {
            let watched = lock(&self.watched).clone();
            if watched.is_empty() {
                self.changed.notified().await;
                continue;
            }
            for one in free(watched).await {
                lock(&self.watched).retain(|other| *other != one);
                let evidence = Evidence::Disconnected { session: one.session, lock: one.id };
                watches.send(&one.namespace, &Signal::Evidence(evidence));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of every version must agree on the numbers of their locks.
    #[test]
    fn numbers_of_locks_never_change() {
        let (space, session) = (Name::new("default").unwrap(), SessionId::new(0x2a));
        assert_eq!(session.to_string().len(), 32);
        let number = LockNumber::of(&space, session);
        assert_eq!(number.get().cast_unsigned(), 0xfbc8_c73e_66d9_5571);
        assert_eq!(number.id("server:1"), "server:1#fbc8c73e66d95571");
        assert_ne!(number, LockNumber::of(&Name::new("default.").unwrap(), session));
    }

    #[test]
    fn only_the_lock_that_is_named_is_watched() {
        let (locks, space, session) = (WatchedLocks::default(), Name::new("a").unwrap(), SessionId::new(7));
        let number = LockNumber::of(&space, session);
        for id in ["", "another:1:2", "server#0000000000000000", &number.digits()] {
            locks.watch(&space, session, id);
            assert_eq!(lock(&locks.watched).len(), 0, "{id}");
        }
        locks.watch(&space, session, &number.id("server"));
        locks.watch(&space, session, &number.id("server"));
        let watched = lock(&locks.watched).clone();
        assert!(watched.len() == 1 && watched[0].is_on("server") && !watched[0].is_on("another"));
        locks.unwatch(&space, session);
        assert!(lock(&locks.watched).is_empty());
    }
}
