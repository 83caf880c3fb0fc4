//! Redis and Valkey: registers in hashes, one script for each batch of compare-and-sets.
//!
//! ```text
//!   write() ──▶ operations ──▶ EVALSHA change.lua ─▶ HGET, compare, HSET, PUBLISH ──┐  (one atomic step)
//!   read()  ──▶ operations ──▶ GET, HGETALL …, HMGET …  (one round trip)            │
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

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::listener::RedisListener;
use self::operations::Operations;
use self::settings::RedisSettings;
use tenure_store::kit::listener::ListenerState;
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Class, Description, Entry, Name, Opening, Outcome, Query, Signal, Store, StoreError, Write,
};

const STORE: &str = "redis";

/// How long opening a watch waits at most for the server to confirm it.
const CONFIRMATION: Duration = Duration::from_secs(1);

/// A handle on the registers of a Redis server. See `docs/stores/redis.md` for what it guarantees in which configuration.
pub struct Redis {
    settings: Arc<RedisSettings>,
    operations: Arc<Operations>,
    listener: RedisListener,
    watches: Arc<Watches>,
    thread: ConnectionThread,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend {
    name: STORE,
    product: "Redis and Valkey",
    schemes: &["redis", "rediss", "valkey", "valkeys", "redis+unix", "redis+sentinel", "rediss+sentinel"],
    usage: "redis://HOST",
    in_process: false,
    native_notifications: true,
    setup: Some(schema::setup),
    read: |url, _| Opening::checked(url, |url| Ok(RedisSettings::parse(url)?.warning()), Redis::open),
};

impl Redis {
    /// Prepares a handle on the server that a URL names; nothing is connected before the first operation.
    ///
    /// `redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://` for TLS, `redis+unix:///PATH`, or
    /// `redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB`; with the parameters `timeout`, `wait`, `ca`, `cert`, `key`.
    ///
    /// # Errors
    /// If the URL cannot be read, a certificate neither, or the process has no threads left.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(RedisSettings::parse(url)?);
        let watches = Arc::new(Watches::default());
        let (listener, task) = listener::pair(&settings, &watches);
        let operations = Arc::new(Operations::new(settings.clone(), watches.clone(), listener.clone()));
        let thread = ConnectionThread::open(STORE)?;
        thread.spawn(task.run(Arc::downgrade(&operations)));
        Ok(Self { settings, operations, listener, watches, thread })
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("settings", &self.settings)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.settings, f)
    }
}

#[async_trait]
impl Store for Redis {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (operations, namespace, query) = (self.operations.clone(), namespace.clone(), query.clone());
        self.thread.run(async move { operations.read(&namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let (operations, namespace, writes) = (self.operations.clone(), namespace.clone(), writes.to_vec());
        self.thread.run(async move { operations.write(&namespace, &writes).await }).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.watches.watch(namespace);
        self.listener.watch(namespace, CONFIRMATION);
        watch
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let (operations, listener, patience) =
            (self.operations.clone(), self.listener.clone(), self.settings.timeout);
        let (server, state) = self
            .thread
            .run(async move {
                let server = operations.describe().await?;
                Ok((server, listener.settled(patience).await))
            })
            .await?;
        let mut remarks = server.remarks;
        if let ListenerState::Failed(why) = &state {
            remarks.push(listener::remark(why));
        }
        let identity = match (server.class, server.run) {
            (Class::C, Some(run)) => format!("{}#{run}", self.settings),
            _ => self.settings.to_string(),
        };
        Ok(Description {
            class: server.class,
            identity,
            about: server.about,
            notifies: state == ListenerState::Works,
            process_liveness_locks: false,
            connection_liveness_locks: false,
            file: None,
            remarks,
        })
    }

    async fn close(&self) {
        self.watches.close();
        self.thread.close().await;
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Redis {
    fn drop(&mut self) {
        self.watches.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
