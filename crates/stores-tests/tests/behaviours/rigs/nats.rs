//! One NATS server, or a group of them, with users and passwords.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::servers::nats::Nats as Server;

use super::Doors;
use crate::rig::Rig;

pub(crate) struct Nats<const SERVERS: usize> {
    server: Mutex<Server>,
    /// What the nodes reach it through.
    doors: Doors,
    /// The subjects of what was sent to the bucket since that began to be noted.
    heard: Mutex<Arc<Mutex<Vec<String>>>>,
}

/// The user of the nodes; the test itself logs in as `root`.
const USER: &str = "app";
const PASSWORD: &str = "hunter2";
const BUCKET: &str = "tenure";
const ADMIN: &str = "\"user\":\"root\",\"pass\":\"root\"";

/// The server lets these users in, and counts what it is asked.
fn settings(locked: bool) -> String {
    let password = if locked { "another" } else { PASSWORD };
    format!(
        "authorization {{ users = [ {{ user: root, password: root }}, {{ user: {USER}, password: {password} }} ] }}\n"
    )
}

impl<const SERVERS: usize> Nats<SERVERS> {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no test panicked with it")
    }

    fn key(namespace: &str, key: &Key) -> String {
        let dotless = |name: &str| name.replace('.', "=");
        let (space, name) = (dotless(namespace), dotless(&key.name()));
        format!("{space}.{}.{}.{name}", key.epoch().get(), key.kind().as_str())
    }
}

#[async_trait]
impl<const SERVERS: usize> Rig for Nats<SERVERS> {
    const TTL: Duration = super::TTL;
    const REQUESTS: u64 = 2;

    async fn start() -> Self {
        let server = Server::start_as(SERVERS, &settings(false), ADMIN);
        let doors = Doors::to((0..SERVERS).map(|nth| server.address(nth)));
        Self { server: Mutex::new(server), doors, heard: Mutex::default() }
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.doors.next())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        format!("nats://{USER}:{PASSWORD}@{}/{BUCKET}?sync=always", self.doors.hosts(server))
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
        self.server().purge(BUCKET, ">").expect("it can be emptied");
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let deleted = self.server().purge(BUCKET, &Self::key(namespace.as_str(), key));
        assert_eq!(deleted, Ok(1), "{key} was there");
    }

    async fn kill_clients(&self) {
        self.doors.reset();
    }

    async fn lock_out(&self, locked: bool) {
        self.server().configure(&settings(locked));
        let (login, began) = (format!("\"user\":\"{USER}\",\"pass\":\"{PASSWORD}\""), Instant::now());
        while (0..SERVERS).any(|nth| self.server().admits(nth, &login) == locked) {
            assert!(began.elapsed() < Duration::from_secs(60), "the server reads its configuration");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.doors.reset();
    }

    async fn leftovers(&self) -> u64 {
        self.doors.open()
    }

    /// Every read and every write is one message to the server.
    async fn operations(&self) -> Option<u64> {
        Some((0..SERVERS).map(|nth| self.server().messages_in(nth)).sum())
    }

    async fn listen_in(&self) {
        let heard = self.server().listen(0, &format!("$KV.{BUCKET}.>"));
        *self.heard.lock().expect("no test panicked with it") = heard;
    }

    /// As they were sent, whether they came to anything or not.
    async fn writes_on(&self, key: &Key) -> Option<u64> {
        let subject = format!("$KV.{BUCKET}.{}", Self::key("default", key));
        let heard = self.heard.lock().expect("no test panicked with it").clone();
        let heard = heard.lock().expect("no test panicked with it");
        Some(heard.iter().filter(|heard| **heard == subject).count() as u64)
    }
}
