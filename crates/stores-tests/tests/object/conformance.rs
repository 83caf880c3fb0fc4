//! The store on object storage keeps the contract.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{Object, SharedStore};
use tenure_torture::servers::minio::{Minio, SECRET};

/// A server of its own, which may be killed.
struct Own(Mutex<Minio>);

impl Own {
    fn start() -> Self {
        Self(Mutex::new(Minio::start()))
    }
}

#[async_trait]
impl Harness for Own {
    async fn open(&self) -> SharedStore {
        let server = self.0.lock().unwrap();
        Arc::new(Object::open(&format!("{}&timeout=30s", server.url(server.address()))).unwrap())
    }

    async fn restart(&self) {
        let mut server = self.0.lock().unwrap();
        server.stop();
        server.launch();
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}

tenure::conformance!(Own::start());
