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
mod guard;
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

pub use self::guard::{GUARD_BACKEND, KubernetesGuard};

use self::connection::Cluster;
use self::keys::Keys;
use self::listener::KubernetesListener;
use self::settings::KubernetesSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::listener::ListenerHandle;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Name, Opening, Outcome, Query, ServersInUrl, StoreError, Write,
};

const STORE: &str = "kubernetes";

/// A handle on the registers in a namespace of Kubernetes.
///
/// `kubernetes:NAMESPACE`, or `kubernetes:` for the namespace of the pod or of the kubeconfig's context; with the parameters
/// `kubeconfig`, `context`, `serviceaccount`, `server`, `prefix`, `class`, `timeout`.
pub type Kubernetes = ServerHandle<KubernetesServer>;

/// How the API servers are asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct KubernetesServer {
    cluster: Arc<Cluster>,
    keys: Keys,
    listener: ListenerHandle,
}

/// This store, by its URLs.
pub const BACKEND: Backend =
    Backend::new(STORE, "Kubernetes", &["kubernetes"], "kubernetes:NAMESPACE", |url, _| {
        Opening::checked(url, |url| Ok(KubernetesSettings::parse(url)?.warning()), Kubernetes::open)
    })
    .with_setup(schema::setup)
    .with_servers(ServersInUrl::several(&["kubernetes"], 6443).after("server="));

impl fmt::Display for KubernetesServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cluster.settings.fmt(f)
    }
}

impl Server for KubernetesServer {
    const STORE: &'static str = STORE;

    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError> {
        let settings = Arc::new(KubernetesSettings::parse(url)?);
        let keys = Keys::new(&settings.prefix);
        let cluster = Arc::new(Cluster::new(settings, watches.clone())?);
        let listen =
            KubernetesListener { cluster: cluster.clone(), keys: keys.clone(), watches: watches.clone() };
        let (listener, listen) = ListenerHandle::new(watches.clone(), listen);
        thread.spawn(listen);
        Ok(Self { cluster, keys, listener })
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        rows::read(&self.cluster, &self.keys, namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        Ok(batch::write(&self.cluster, &self.keys, namespace, writes).await)
    }

    fn listen(&self, _: &Name) {
        self.listener.open();
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let state = self.listener.state_within(self.cluster.settings.timeout).await;
        inspect::describe(&self.cluster, &state).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::Store;

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
