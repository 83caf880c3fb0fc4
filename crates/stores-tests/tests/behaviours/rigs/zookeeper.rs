//! One ZooKeeper server, or an ensemble of them, with a login.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::servers::zookeeper::ZooKeeper as Server;

use super::Doors;
use crate::rig::Rig;

pub(crate) struct ZooKeeper<const SERVERS: usize> {
    server: Mutex<Server>,
    /// What the nodes reach it through.
    doors: Doors,
}

const LOGIN: &str = "app:hunter2";
const ROOT: &str = "/tenure";

impl<const SERVERS: usize> ZooKeeper<SERVERS> {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no test panicked with it")
    }
}

#[async_trait]
impl<const SERVERS: usize> Rig for ZooKeeper<SERVERS> {
    const TTL: Duration = super::TTL;

    async fn start() -> Self {
        let server = Server::start(SERVERS, "");
        let doors = Doors::to((0..SERVERS).map(|nth| server.address(nth)));
        Self { server: Mutex::new(server), doors }
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.doors.next())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        format!("zookeeper://{LOGIN}@{}{ROOT}", self.doors.hosts(server))
    }

    fn freeze(&self) {
        self.server().signal_all(Signal::STOP);
    }

    fn thaw(&self) {
        self.server().signal_all(Signal::CONT);
    }

    fn restart(&self) {
        let mut server = self.server();
        server.stop_all();
        server.launch_all();
    }

    async fn forget(&self) {
        self.server().delete_all(0, LOGIN, ROOT).expect("it can be emptied");
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let path = format!("{ROOT}/{namespace}/{}/{}/{}", key.epoch().get(), key.kind().as_str(), key.name());
        let deleted = self.server().delete_all(0, LOGIN, &path).expect("it can be deleted");
        assert!(deleted > 0, "{key} was there");
    }

    async fn kill_clients(&self) {
        self.doors.reset();
    }

    /// No login is refused: the rights of the znodes are taken away, and given back.
    async fn lock_out(&self, locked: bool) {
        self.server().permit(0, LOGIN, ROOT, !locked).expect("rights can be changed");
        self.doors.reset();
    }

    async fn leftovers(&self) -> u64 {
        self.doors.open()
    }
}
