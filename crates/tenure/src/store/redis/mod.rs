//! Redis and Valkey: registers in hashes, one script for each batch of compare-and-sets.
//!
//! ```text
//!   write() ──▶ link ──▶ EVALSHA change.lua ─▶ HGET, compare, HSET, PUBLISH ──┐  (one atomic step)
//!   read()  ──▶ link ──▶ GET, HGETALL …, HMGET …  (one round trip)            │
//!   watches ◀── hub ◀── ear ◀──────────────────────────── SUBSCRIBE ◀─────────┘
//! ```
//!
//! A handle has two connections at most, on a thread of its own with a runtime of its own, so that neither blocking work
//! nor the end of the caller's runtime can hurt them. No key ever expires, nothing is scanned, and no clock of the server
//! is asked.

mod ear;
mod fault;
mod keys;
mod link;
mod script;
mod sentinel;
mod server;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::ear::{Ear, Hearing};
use self::link::Link;
use self::target::Target;
use super::hub::Hub;
use super::room::Room;
use super::rules::check_batch;
use super::{
    Class, Description, Entry, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Witness,
    Write,
};

const STORE: &str = "redis";

/// How long opening a watch waits at most for the server to confirm it.
const CONFIRMATION: Duration = Duration::from_secs(1);

/// A handle on the registers of a Redis server. See `docs/stores.md` for what it guarantees in which configuration.
pub struct Redis {
    target: Arc<Target>,
    link: Arc<Link>,
    ear: Ear,
    hub: Arc<Hub>,
    room: Room,
}

/// What a user needs, line by line.
const GRANTS: &str = "\
ACL SETUSER USER on >PASSWORD ~tenure:* &tenure:* +hello +select +ping +eval +evalsha +get +set +hget +hset +hdel +hmget +hgetall +publish +subscribe
ACL SETUSER USER +info +config|get
";

impl Redis {
    /// The least that a user needs who takes part in elections, and what it needs to see the class of the server;
    /// `USER` and `PASSWORD` stand for yours.
    #[must_use]
    pub fn grants() -> &'static str {
        GRANTS
    }

    /// A script that shows who leads what, for `redis-cli EVAL`; its key is `tenure:{NAMESPACE}:0:cluster`.
    #[must_use]
    pub fn leaders_script() -> &'static str {
        include_str!("leaders.lua")
    }

    /// Prepares a handle on the server that a URL names; nothing is connected before the first operation.
    ///
    /// `redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://` for TLS, `redis+unix:///PATH`, or
    /// `redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB`; with the parameters `timeout`, `wait`, `ca`, `cert`, `key`.
    ///
    /// # Errors
    /// If the URL cannot be read, a certificate neither, or the process has no threads left.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let target = Arc::new(Target::parse(url)?);
        let hub = Arc::new(Hub::default());
        let (ear, listener) = ear::pair(&target, &hub);
        let link = Arc::new(Link::new(target.clone(), hub.clone(), ear.clone()));
        let room = Room::open(STORE)?;
        room.spawn(listener.run(Arc::downgrade(&link)));
        Ok(Self { target, link, ear, hub, room })
    }

    /// Reads a URL, and nothing more.
    pub(super) fn check(url: &str) -> Result<(), StoreError> {
        Target::parse(url).map(drop)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("target", &self.target)
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.target, f)
    }
}

#[async_trait]
impl Store for Redis {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.room.check_open().map(|()| Vec::new());
        }
        let (link, namespace, query) = (self.link.clone(), namespace.clone(), query.clone());
        self.room.run(async move { link.read(&namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let (link, namespace, writes) = (self.link.clone(), namespace.clone(), writes.to_vec());
        self.room.run(async move { link.write(&namespace, &writes).await }).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.hub.watch(namespace);
        self.ear.watch(namespace, CONFIRMATION);
        watch
    }

    /// A Redis server has no lock that ends with a connection: it has no witnesses.
    async fn attest(&self, _: &Name, _: SessionId, _: Takeover) -> Result<Option<Witness>, StoreError> {
        self.room.check_open().map(|()| None)
    }

    fn release(&self, _: &Name, _: SessionId) {}

    fn attend(&self, _: &Name, _: SessionId, _: &str, _: Takeover) {}

    fn ignore(&self, _: &Name, _: SessionId) {}

    async fn describe(&self) -> Result<Description, StoreError> {
        let (link, ear, patience) = (self.link.clone(), self.ear.clone(), self.target.timeout);
        let (server, hearing) = self
            .room
            .run(async move {
                let server = link.describe().await?;
                Ok((server, ear.settled(patience).await))
            })
            .await?;
        let mut remarks = server.remarks;
        if let Hearing::Deaf(why) = &hearing {
            remarks.push(ear::remark(why));
        }
        let identity = match (server.class, server.run) {
            (Class::C, Some(run)) => format!("{}#{run}", self.target),
            _ => self.target.to_string(),
        };
        Ok(Description {
            class: server.class,
            identity,
            about: server.about,
            rings: hearing == Hearing::Works,
            witnesses_death: false,
            witnesses_disconnect: false,
            remarks,
        })
    }

    async fn close(&self) {
        self.hub.close();
        self.room.close().await;
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Redis {
    fn drop(&mut self) {
        self.hub.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_server_everything_fails_at_once_and_is_proven() {
        let store = Redis::open("redis://:hunter2@127.0.0.1:1/0").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), super::super::Fate::NotApplied);
        assert!(error.to_string().contains("redis://127.0.0.1:1/0 cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?}").contains("hunter2"));
        store.close().await;
    }
}
