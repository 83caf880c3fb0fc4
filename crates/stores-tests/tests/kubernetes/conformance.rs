//! The Kubernetes store keeps the contract, for a service account with the rights that `tenure schema` prints.

use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{Kubernetes, SharedStore};
use tenure_torture::servers::kubernetes::Kubernetes as Server;

use crate::server_kit::printed_schema;

/// API servers take seconds to start, and clauses have namespaces of their own: one server for all that run at once.
static SHARED: Mutex<Weak<Own>> = Mutex::new(Weak::new());

struct Own {
    server: Server,
    token: String,
}

impl Own {
    fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let server = Server::start(1);
        let own = Arc::new(Self { token: least_rights(&server, "team"), server });
        *shared = Arc::downgrade(&own);
        own
    }
}

/// A token of a service account that has what `tenure schema` prints, as it prints it, and nothing else.
pub(crate) fn least_rights(server: &Server, namespace: &str) -> String {
    server.make_namespace(namespace);
    server.apply(namespace, &printed_schema("kubernetes", "app", false));
    server.token(namespace, "app")
}

struct Shared(Arc<Own>);

#[async_trait]
impl Harness for Shared {
    async fn open(&self) -> SharedStore {
        let kubeconfig = self.0.server.kubeconfig(&self.0.token, true);
        let url = format!("kubernetes:team?kubeconfig={}&timeout=30s", kubeconfig.display());
        Arc::new(Kubernetes::open(&url).unwrap())
    }

    /// Annotations have 256 KiB together.
    fn longest_value(&self) -> usize {
        255 << 10
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.0.token.clone()]
    }
}

tenure::conformance!(Shared(Own::shared()));
