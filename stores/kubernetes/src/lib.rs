//! Kubernetes: one Lease for each register, compared by its resourceVersion, one watch for all changes.
//!
//! ```text
//!   write() ──▶ API servers ──▶ PUT  …/leases/NAME with uid and resourceVersion: 200, or 409 and look ──┐  (one revision)
//!   read()  ──▶ API servers ──▶ GET  …/leases?labelSelector=…: consistent                              │
//!   streams ◀── watches ◀── listener ◀── GET …/leases?watch=true, with bookmarks ◀─────────────────────┘
//! ```
//!
//! It speaks to the API servers over connections that are kept open, on a thread of its own. No definition of resources is
//! needed, and no right beyond one namespace; the times in Leases are for people, and no clock of a server is asked. See
//! `docs/stores/kubernetes.md` for what it guarantees and how to look into it, and `docs/adr/0034-kubernetes.md` for why it is
//! so.

mod batch;
mod connection;
mod error;
mod inspect;
mod keys;
mod kubeconfig;
mod leases;
mod listener;
mod rows;
mod schema;
mod settings;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::connection::Cluster;
use self::keys::Keys;
use self::listener::KubernetesListener;
use self::settings::KubernetesSettings;
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Name, Opening, Outcome, Query, Signal, Store, StoreError, Write,
};

const STORE: &str = "kubernetes";

/// A handle on the registers in a namespace of Kubernetes.
pub struct Kubernetes {
    cluster: Arc<Cluster>,
    keys: Keys,
    listener: Arc<ListenerHandle>,
    watches: Arc<Watches>,
    thread: ConnectionThread,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend {
    name: STORE,
    product: "Kubernetes",
    schemes: &["kubernetes"],
    usage: "kubernetes:NAMESPACE",
    in_process: false,
    native_notifications: true,
    setup: Some(schema::setup),
    read: |url, _| {
        Opening::checked(url, |url| Ok(KubernetesSettings::parse(url)?.warning()), Kubernetes::open)
    },
};

impl Kubernetes {
    /// Prepares a handle on the Leases of a namespace; nothing is connected before the first operation.
    ///
    /// `kubernetes:NAMESPACE`, or `kubernetes:` for the namespace of the pod or of the kubeconfig's context; with the parameters
    /// `kubeconfig`, `context`, `serviceaccount`, `server`, `prefix`, `class`, `timeout`.
    ///
    /// # Errors
    /// If the URL cannot be read, the kubeconfig neither, or the process has no threads left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(KubernetesSettings::parse(url)?);
        let (keys, watches) = (Keys::new(&settings.prefix), Arc::new(Watches::default()));
        let cluster = Arc::new(Cluster::new(settings, watches.clone())?);
        let listen =
            KubernetesListener { cluster: cluster.clone(), keys: keys.clone(), watches: watches.clone() };
        let (listener, listen) = ListenerHandle::new(watches.clone(), listen);
        let thread = ConnectionThread::open(STORE)?;
        thread.spawn(listen);
        Ok(Self { cluster, keys, listener: Arc::new(listener), watches, thread })
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.watches.close();
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes")
            .field("settings", &self.cluster.settings)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cluster.settings, f)
    }
}

#[async_trait]
impl Store for Kubernetes {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (cluster, keys) = (self.cluster.clone(), self.keys.clone());
        let (namespace, query) = (namespace.clone(), query.clone());
        self.thread.run(async move { rows::read(&cluster, &keys, &namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let (cluster, keys) = (self.cluster.clone(), self.keys.clone());
        let (namespace, writes) = (namespace.clone(), writes.to_vec());
        self.thread.run(async move { Ok(batch::write(&cluster, &keys, &namespace, &writes).await) }).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.watches.watch(namespace);
        self.listener.open();
        watch
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let (cluster, listener) = (self.cluster.clone(), self.listener.clone());
        self.thread
            .run(async move {
                let state = listener.state_within(cluster.settings.timeout).await;
                inspect::describe(&cluster, &state).await
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
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], \
                    clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}], \
                    users: [{name: u, user: {token: hunter2}}]}";
        std::fs::write(file.path(), text).unwrap();
        let url = format!("kubernetes:x?kubeconfig={}", file.path().display());
        let store = Kubernetes::open(&url).unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), tenure_store::Fate::NotApplied);
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?} {store}").contains("hunter2"));
        store.close().await;
    }
}
