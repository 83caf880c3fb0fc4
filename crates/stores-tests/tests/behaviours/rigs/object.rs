//! Object storage: a MinIO server.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::servers::minio::{Minio, SECRET};

use super::Doors;
use crate::rig::Rig;

pub(crate) struct Object {
    server: Mutex<Minio>,
    /// What the nodes reach it through.
    doors: Doors,
}

impl Object {
    fn server(&self) -> MutexGuard<'_, Minio> {
        self.server.lock().expect("no test panicked with it")
    }
}

#[async_trait]
impl Rig for Object {
    const TTL: Duration = super::TTL;

    async fn start() -> Self {
        let server = Minio::start();
        let doors = Doors::to([server.address()]);
        Self { server: Mutex::new(server), doors }
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.doors.next())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        self.server().url(server.unwrap_or_else(|| self.doors.next()))
    }

    fn freeze(&self) {
        self.server().signal(Signal::STOP);
    }

    fn thaw(&self) {
        self.server().signal(Signal::CONT);
    }

    fn restart(&self) {
        let mut server = self.server();
        server.stop();
        server.launch();
    }

    async fn forget(&self) {
        let objects = self.server().objects().join("tenure");
        std::fs::remove_dir_all(objects).expect("they can be deleted");
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let name = format!("{namespace}/{}/{}/{}", key.epoch().get(), key.kind().as_str(), key.name());
        let object = self.server().objects().join("tenure").join(name);
        std::fs::remove_dir_all(object).expect("it was there");
    }

    async fn kill_clients(&self) {
        self.doors.reset();
    }

    async fn lock_out(&self, locked: bool) {
        self.server().restart_with(if locked { "another-horse-battery" } else { SECRET });
    }

    async fn leftovers(&self) -> u64 {
        self.doors.open()
    }
}
