//! Redis and Valkey: registers in hashes, one script for each batch of compare-and-sets.
//!
//! ```text
//!   write() ──▶ operations ──▶ EVALSHA change.lua ─▶ HGET, compare, HSET, PUBLISH ──┐  (one atomic step)
//!   read()  ──▶ operations ──▶ GET, HGETALL …, HMGET …  (one round trip)            │
//!   exchange() ▶ operations ──▶ EVALSHA, HGETALL …, HMGET …  (one round trip) ──────┤
//!   streams ◀── watches ◀── listener ◀──────────────────────────── SUBSCRIBE ◀─────────┘
//! ```
//!
//! A handle has two connections at most, on a thread of its own with a runtime of its own, so that neither blocking work
//! nor the end of the caller's runtime can hurt them. No key ever expires, nothing is scanned, and no clock of the server
//! is asked.

mod error;
mod inspect;
mod keys;
mod listener;
mod operations;
mod schema;
mod script;
mod sentinel;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::listener::RedisListener;
use self::operations::Operations;
use self::settings::RedisSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::listener::ListenerState;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Class, Description, Entry, Exchanged, Name, Opening, Outcome, Query, ServersInUrl, StoreError,
    Write,
};

const STORE: &str = "redis";

/// How long opening a watch waits at most for the server to confirm it.
const CONFIRMATION: Duration = Duration::from_secs(1);

/// A handle on the registers of a Redis server. See `docs/stores/redis.md` for what it guarantees in which configuration.
///
/// `redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://` for TLS, `redis+unix:///PATH`, or
/// `redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB`; with the parameters `timeout`, `wait`, `ca`, `cert`, `key`.
pub type Redis = ServerHandle<RedisServer>;

/// How a Redis server is asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct RedisServer {
    settings: Arc<RedisSettings>,
    operations: Arc<Operations>,
    listener: RedisListener,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend::new(
    STORE,
    "Redis and Valkey",
    &["redis", "rediss", "valkey", "valkeys", "redis+unix", "redis+sentinel", "rediss+sentinel"],
    "redis://HOST, redis+sentinel://HOST,HOST/NAME",
    |url, _| Opening::checked(url, |url| Ok(RedisSettings::parse(url)?.warning()), Redis::open),
)
.with_setup(schema::setup)
.with_servers(ServersInUrl::one(&["redis", "valkey"], 6379));

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl Server for RedisServer {
    const STORE: &'static str = STORE;

    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError> {
        let settings = Arc::new(RedisSettings::parse(url)?);
        let (listener, task) = listener::pair(&settings, watches);
        let operations = Arc::new(Operations::new(settings.clone(), watches.clone(), listener.clone()));
        thread.spawn(task.run(Arc::downgrade(&operations)));
        Ok(Self { settings, operations, listener })
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.operations.read(namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.operations.write(namespace, writes).await
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.write_then_read(namespace, writes, query).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.operations.write_then_read(namespace, writes, query).await
    }

    fn listen(&self, namespace: &Name) {
        self.listener.watch(namespace, CONFIRMATION);
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let server = self.operations.describe().await?;
        let state = self.listener.settled(self.settings.timeout).await;
        let mut remarks = server.remarks;
        if let ListenerState::Failed(why) = &state {
            remarks.push(listener::remark(why));
        }
        let identity = match (server.class, server.run) {
            (Class::C, Some(run)) => format!("{}#{run}", self.settings),
            _ => self.settings.to_string(),
        };
        let mut described = Description::new(server.class, identity, server.about);
        described.notifies = state == ListenerState::Works;
        described.remarks = remarks;
        Ok(described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::Store;

    #[tokio::test]
    async fn without_a_server_everything_fails_at_once_and_is_proven() {
        let store = Redis::open("redis://:hunter2@127.0.0.1:1/0").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), tenure_store::Fate::NotApplied);
        assert!(error.to_string().contains("redis://127.0.0.1:1/0 cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?}").contains("hunter2"));
        store.close().await;
    }
}
