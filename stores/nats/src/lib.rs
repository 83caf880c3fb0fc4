//! NATS JetStream: one key of a KV bucket for each register, compared by the sequence that the server gave it.
//!
//! ```text
//!   write() ──▶ one connection ──▶ publish $KV.BUCKET.KEY, "if its last sequence is N" ──▶ stream ──▶ acknowledgement ──┐
//!   read()  ──▶ one connection ──▶ publish a barrier, then get the last of some subjects ──▶ any replica               │
//!   streams ◀── watches ◀── listener ◀── tenure.BUCKET.changed.> ◀─────────────────────────────────────────────────────┘
//! ```
//!
//! The acknowledgement of a write that notifies is sent to a subject that every node listens to, so that the server itself tells
//! all of them, and only of what was applied. The client speaks the protocol of NATS itself: it buffers nothing and sends
//! nothing twice. See `docs/stores/nats.md` for what it guarantees and how to look into it, and `docs/adr/0035-nats.md` for why
//! it is so.

mod batch;
mod bucket;
mod connection;
mod credentials;
mod error;
mod inspect;
mod keys;
mod listener;
mod operations;
mod rows;
mod schema;
mod settings;
mod wire;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::listener::NatsListener;
use self::operations::Operations;
use self::settings::NatsSettings;
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Name, Opening, Outcome, Query, Signal, Store, StoreError, Write,
};

const STORE: &str = "nats";

/// A handle on the registers in a KV bucket of NATS JetStream.
pub struct Nats {
    operations: Arc<Operations>,
    listener: Arc<ListenerHandle>,
    watches: Arc<Watches>,
    thread: ConnectionThread,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend {
    name: STORE,
    product: "NATS JetStream",
    schemes: &["nats", "tls", "nats+tls"],
    usage: "nats://HOST,HOST,HOST/BUCKET",
    in_process: false,
    native_notifications: true,
    setup: Some(schema::setup),
    read: |url, mode| {
        Opening::with_tables(url, mode, |url| Ok(NatsSettings::parse(url)?.warning()), Nats::open)
    },
};

impl Nats {
    /// Prepares a handle on the bucket that a URL names; nothing is connected before the first operation.
    ///
    /// `nats://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/BUCKET`, `tls://` for TLS; with the parameters `timeout`, `creds`,
    /// `nkey`, `ca`, `cert`, `key`, `replicas`, `sync`, `create`.
    ///
    /// # Errors
    /// If the URL cannot be read, a file that it names neither, or the process has no threads left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(NatsSettings::parse(url)?);
        let watches = Arc::new(Watches::default());
        let (operations, keep) = Operations::new(settings, watches.clone());
        let operations = Arc::new(operations);
        let listen = NatsListener { operations: operations.clone(), watches: watches.clone() };
        let (listener, listen) = ListenerHandle::new(watches.clone(), listen);
        let thread = ConnectionThread::open(STORE)?;
        thread.spawn(keep);
        thread.spawn(listen);
        Ok(Self { operations, listener: Arc::new(listener), watches, thread })
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Nats {
    fn drop(&mut self) {
        self.watches.close();
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats")
            .field("settings", &self.operations.settings)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.operations.settings, f)
    }
}

#[async_trait]
impl Store for Nats {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (operations, namespace, query) = (self.operations.clone(), namespace.clone(), query.clone());
        self.thread.run(async move { rows::read(&operations, &namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let (operations, namespace, writes) = (self.operations.clone(), namespace.clone(), writes.to_vec());
        self.thread.run(async move { batch::write(&operations, &namespace, &writes).await }).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.watches.watch(namespace);
        self.listener.open();
        watch
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let (operations, listener) = (self.operations.clone(), self.listener.clone());
        self.thread
            .run(async move {
                let state = listener.state_within(operations.settings.timeout).await;
                inspect::describe(&operations, &state).await
            })
            .await
    }

    async fn close(&self) {
        self.watches.close();
        self.thread.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_server_everything_fails_at_once_and_is_proven() {
        let store = Nats::open("nats://u:hunter2@127.0.0.1:1,127.0.0.1:2/x").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), tenure_store::Fate::NotApplied);
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?} {store}").contains("hunter2"));
        store.close().await;
    }
}
