//! etcd: one key for each register, one transaction for each batch, one watch for all changes.
//!
//! ```text
//!   write() ──▶ members ──▶ POST /v3/kv/txn: compare version and token, put, name the change ──┐  (one revision)
//!   read()  ──▶ members ──▶ POST /v3/kv/txn: ranges, linearizable                              │
//!   streams ◀── watches ◀── listener ◀── POST /v3/watch on tenure/_changed/ ◀──────────────────┘
//! ```
//!
//! It speaks to etcd's own JSON gateway, over connections that are kept open, on a thread of its own. No lease of etcd is used,
//! and no clock of a member asked. See `docs/stores/etcd.md` for what it guarantees and how to look into it, and
//! `docs/adr/0030-etcd.md` for why it is so.

mod batch;
mod connection;
mod error;
mod guard;
mod inspect;
mod keys;
mod listener;
mod messages;
mod rows;
mod schema;
mod settings;

use std::fmt;
use std::sync::Arc;

pub use self::guard::{EtcdGuard, GUARD_BACKEND};

use self::connection::Members;
use self::keys::Keys;
use self::listener::EtcdListener;
use self::settings::EtcdSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Exchanged, Name, Opening, Outcome, Query, ServersInUrl, StoreError, Write,
};

const STORE: &str = "etcd";

/// A handle on the registers in an etcd cluster.
///
/// `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/PREFIX`, `etcds://` for TLS; with the parameters `timeout`, `ca`,
/// `cert`, `key`.
pub type Etcd = ServerHandle<EtcdServer>;

/// How an etcd cluster is asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct EtcdServer {
    members: Arc<Members>,
    keys: Keys,
    listener: ListenerHandle,
}

/// This store, by its URLs.
pub const BACKEND: Backend =
    Backend::new(STORE, "etcd", &["etcd", "etcds"], "etcd://HOST,HOST,HOST", |url, _| {
        Opening::checked(url, |url| Ok(EtcdSettings::parse(url)?.warning()), Etcd::open)
    })
    .with_setup(schema::setup)
    .with_servers(ServersInUrl::several(&["etcd"], 2379));

impl fmt::Display for EtcdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.members.settings.fmt(f)
    }
}

impl Server for EtcdServer {
    const STORE: &'static str = STORE;

    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError> {
        let settings = Arc::new(EtcdSettings::parse(url)?);
        let keys = Keys::new(&settings.prefix);
        let members = Arc::new(Members::new(settings, watches.clone())?);
        let listen = EtcdListener { members: members.clone(), keys: keys.clone(), watches: watches.clone() };
        let (listener, listen) = ListenerHandle::new(watches.clone(), listen);
        thread.spawn(listen);
        Ok(Self { members, keys, listener })
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        rows::read(&self.members, &self.keys, namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        Ok(batch::write(&self.members, &self.keys, namespace, writes).await)
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.write_then_read(namespace, writes, query).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        match batch::write_then_read(&self.members, &self.keys, namespace, writes, query).await {
            Some(exchanged) => exchanged,
            None => Exchanged::in_turn(self.write(namespace, writes), self.read(namespace, query)).await,
        }
    }

    fn listen(&self, _: &Name) {
        self.listener.open();
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let state = self.listener.state_within(self.members.settings.timeout).await;
        inspect::describe(&self.members, &self.keys, &state).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::Store;

    #[tokio::test]
    async fn without_a_server_everything_fails_at_once_and_is_proven() {
        let store = Etcd::open("etcd://u:hunter2@127.0.0.1:1,127.0.0.1:2/x").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), tenure_store::Fate::NotApplied);
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?} {store}").contains("hunter2"));
        store.close().await;
    }
}
