//! Object storage: one MinIO server.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::proxy::Proxy;
use tenure_torture::servers::minio::{Minio, SECRET};

use crate::rig::Rig;

pub(crate) struct Object {
    server: Mutex<Minio>,
    /// What the nodes reach it through: the server itself throws no client out.
    door: Proxy,
}

impl Object {
    fn server(&self) -> MutexGuard<'_, Minio> {
        self.server.lock().expect("no test panicked with it")
    }
}

#[async_trait]
impl Rig for Object {
    async fn start() -> Self {
        let server = Minio::start();
        let door = Proxy::to(server.address());
        Self { server: Mutex::new(server), door }
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.door.address())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        Self::server(self).url(server.unwrap_or_else(|| self.door.address()))
    }

    fn freeze(&self) {
        Self::server(self).signal(Signal::STOP);
    }

    fn thaw(&self) {
        Self::server(self).signal(Signal::CONT);
    }

    fn restart(&self) {
        let mut server = Self::server(self);
        server.stop();
        server.launch();
    }

    async fn forget(&self) {
        std::fs::remove_dir_all(Self::server(self).objects().join("tenure")).expect("there is something");
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let name = format!("{namespace}/{}/{}/{}", key.epoch().get(), key.kind().as_str(), key.name());
        let object = Self::server(self).objects().join("tenure").join(name);
        std::fs::remove_dir_all(&object).unwrap_or_else(|error| panic!("{key} was there: {error}"));
    }

    async fn kill_clients(&self) {
        self.door.reset();
    }

    async fn lock_out(&self, locked: bool) {
        Self::server(self).restart_with(if locked { "another-secret-of-it" } else { SECRET });
    }

    async fn leftovers(&self) -> u64 {
        self.door.open()
    }
}
