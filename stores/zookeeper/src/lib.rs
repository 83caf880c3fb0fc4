//! Apache ZooKeeper: one znode for each register, compared by a child that is named after the version.
//!
//! ```text
//!   write() ──▶ one connection ──▶ multi: delete KEY/OLD, create KEY/NEW, set KEY, create and delete _changed/KEY ──▶ majority
//!   read()  ──▶ one connection ──▶ a write of nothing, then get KEY …                                                   │
//!   streams ◀── watches ◀── listener ◀── events of _changed/ ◀──────────────────────────────────────────────────────────┘
//! ```
//!
//! The client speaks the protocol of ZooKeeper itself: it buffers nothing, sends nothing twice, and keeps no session over a broken
//! connection. See `docs/stores/zookeeper.md` for what it guarantees and how to look into it, and `docs/adr/0039-zookeeper.md` for
//! why it is so.

mod batch;
mod connection;
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

use self::listener::ZooKeeperListener;
use self::operations::Operations;
use self::settings::ZooKeeperSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::socket::Product;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Exchanged, Name, Opening, Outcome, Query, ServersInUrl, StoreError, Write,
};

const STORE: &str = "zookeeper";

const PRODUCT: Product =
    Product { store: STORE, name: "ZooKeeper", hung_up: "it hung up; a server without a majority does" };

/// A handle on the registers in znodes of ZooKeeper.
///
/// `zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/PATH`, `zookeepers://` for TLS; with the parameters `timeout`, `ca`,
/// `cert`, `key`, `create`.
pub type ZooKeeper = ServerHandle<ZooKeeperServer>;

/// How a group of ZooKeeper servers is asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct ZooKeeperServer {
    operations: Arc<Operations>,
    listener: ListenerHandle,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend::new(
    STORE,
    "ZooKeeper",
    &["zookeeper", "zookeepers"],
    "zookeeper://HOST,HOST,HOST/PATH",
    |url, mode| {
        Opening::with_tables(url, mode, |url| Ok(ZooKeeperSettings::parse(url)?.warning()), ZooKeeper::open)
    },
)
.with_setup(schema::setup)
.with_servers(ServersInUrl::several(&["zookeeper"], 2181));

impl fmt::Display for ZooKeeperServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.settings.fmt(f)
    }
}

impl Server for ZooKeeperServer {
    const STORE: &'static str = STORE;

    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError> {
        let (operations, keep) = Operations::new(Arc::new(ZooKeeperSettings::parse(url)?), watches.clone());
        let operations = Arc::new(operations);
        let listen = ZooKeeperListener { operations: operations.clone(), watches: watches.clone() };
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

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.write_then_read(namespace, writes, query).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        match batch::write_then_read(&self.operations, namespace, writes, query).await {
            Some(exchanged) => exchanged,
            None => Exchanged::in_turn(self.write(namespace, writes), self.read(namespace, query)).await,
        }
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
        let store = ZooKeeper::open("zookeeper://u:hunter2@127.0.0.1:1,127.0.0.1:2/x").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), tenure_store::Fate::NotApplied);
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?} {store}").contains("hunter2"));
        store.close().await;
    }
}
