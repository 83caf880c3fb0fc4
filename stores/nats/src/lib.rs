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

use self::listener::NatsListener;
use self::operations::Operations;
use self::settings::NatsSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::socket::Product;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Name, Opening, Outcome, Query, ServersInUrl, StoreError, Write,
};

const STORE: &str = "nats";

const PRODUCT: Product = Product { store: STORE, name: "NATS", hung_up: "it hung up" };

/// A handle on the registers in a KV bucket of NATS JetStream.
///
/// `nats://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/BUCKET`, `tls://` for TLS; with the parameters `timeout`, `creds`,
/// `nkey`, `ca`, `cert`, `key`, `replicas`, `sync`, `create`.
pub type Nats = ServerHandle<NatsServer>;

/// How a group of NATS servers is asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct NatsServer {
    operations: Arc<Operations>,
    listener: ListenerHandle,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend::new(
    STORE,
    "NATS JetStream",
    &["nats", "tls", "nats+tls"],
    "nats://HOST,HOST,HOST/BUCKET",
    |url, mode| Opening::with_tables(url, mode, |url| Ok(NatsSettings::parse(url)?.warning()), Nats::open),
)
.with_setup(schema::setup)
.with_servers(ServersInUrl::several(&["nats"], 4222));

impl fmt::Display for NatsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.settings.fmt(f)
    }
}

impl Server for NatsServer {
    const STORE: &'static str = STORE;

    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError> {
        let (operations, keep) = Operations::new(Arc::new(NatsSettings::parse(url)?), watches.clone());
        let operations = Arc::new(operations);
        let listen = NatsListener { operations: operations.clone(), watches: watches.clone() };
        let (listener, listen) = ListenerHandle::new(watches.clone(), listen);
        thread.spawn(keep);
        thread.spawn(listen);
        Ok(Self { operations, listener })
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        rows::read(&self.operations, namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        batch::write(&self.operations, namespace, writes).await
    }

    fn listen(&self, _: &Name) {
        self.listener.open();
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let state = self.listener.state_within(self.operations.settings.timeout).await;
        inspect::describe(&self.operations, &state).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::Store;

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
