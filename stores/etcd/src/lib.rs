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
mod inspect;
mod keys;
mod listener;
mod messages;
mod rows;
mod schema;
mod settings;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::connection::Members;
use self::keys::Keys;
use self::listener::EtcdListener;
use self::settings::EtcdSettings;
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Name, Opening, Outcome, Query, Signal, Store, StoreError, Write,
};

const STORE: &str = "etcd";

/// A handle on the registers in an etcd cluster.
pub struct Etcd {
    members: Arc<Members>,
    keys: Keys,
    listener: Arc<ListenerHandle>,
    watches: Arc<Watches>,
    thread: ConnectionThread,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend {
    name: STORE,
    product: "etcd",
    schemes: &["etcd", "etcds"],
    usage: "etcd://HOST,HOST,HOST",
    in_process: false,
    native_notifications: true,
    setup: Some(schema::setup),
    read: |url, _| Opening::checked(url, |url| Ok(EtcdSettings::parse(url)?.warning()), Etcd::open),
};

impl Etcd {
    /// Prepares a handle on the cluster whose members a URL names; nothing is connected before the first operation.
    ///
    /// `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/PREFIX`, `etcds://` for TLS; with the parameters `timeout`, `ca`,
    /// `cert`, `key`.
    ///
    /// # Errors
    /// If the URL cannot be read, a certificate neither, or the process has no threads left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(EtcdSettings::parse(url)?);
        let (keys, watches) = (Keys::new(&settings.prefix), Arc::new(Watches::default()));
        let members = Arc::new(Members::new(settings, watches.clone())?);
        let listen = EtcdListener { members: members.clone(), keys: keys.clone(), watches: watches.clone() };
        let (listener, listen) = ListenerHandle::new(watches.clone(), listen);
        let thread = ConnectionThread::open(STORE)?;
        thread.spawn(listen);
        Ok(Self { members, keys, listener: Arc::new(listener), watches, thread })
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Etcd {
    fn drop(&mut self) {
        self.watches.close();
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("settings", &self.members.settings)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.members.settings, f)
    }
}

#[async_trait]
impl Store for Etcd {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (members, keys) = (self.members.clone(), self.keys.clone());
        let (namespace, query) = (namespace.clone(), query.clone());
        self.thread.run(async move { rows::read(&members, &keys, &namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let (members, keys) = (self.members.clone(), self.keys.clone());
        let (namespace, writes) = (namespace.clone(), writes.to_vec());
        self.thread.run(async move { Ok(batch::write(&members, &keys, &namespace, &writes).await) }).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.watches.watch(namespace);
        self.listener.open();
        watch
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let (members, keys, listener) = (self.members.clone(), self.keys.clone(), self.listener.clone());
        self.thread
            .run(async move {
                let state = listener.state_within(members.settings.timeout).await;
                inspect::describe(&members, &keys, &state).await
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
        let store = Etcd::open("etcd://u:hunter2@127.0.0.1:1,127.0.0.1:2/x").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), tenure_store::Fate::NotApplied);
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?} {store}").contains("hunter2"));
        store.close().await;
    }
}
