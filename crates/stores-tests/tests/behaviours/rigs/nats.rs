//! One NATS server, with users and passwords.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::proxy::Proxy;
use tenure_torture::servers::nats::Nats as Server;

use crate::rig::Rig;

pub(crate) struct Nats {
    server: Mutex<Server>,
    /// What the nodes reach it through.
    door: Proxy,
    /// The subjects of what was sent to the bucket since that began to be noted.
    heard: Mutex<Arc<Mutex<Vec<String>>>>,
}

/// The user of the nodes; whoever hurts the server is another.
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

impl Nats {
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
impl Rig for Nats {
    async fn start() -> Self {
        let server = Server::start_as(1, &settings(false), ADMIN);
        let door = Proxy::to(server.address(0));
        Self { server: Mutex::new(server), door, heard: Mutex::default() }
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.door.address())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        let server = server.unwrap_or_else(|| self.door.address());
        format!("nats://{USER}:{PASSWORD}@{server}/{BUCKET}?sync=always")
    }

    fn freeze(&self) {
        self.server().signal(0, Signal::STOP);
    }

    fn thaw(&self) {
        self.server().signal(0, Signal::CONT);
    }

    fn restart(&self) {
        let mut server = self.server();
        server.stop(0);
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
        self.door.reset();
    }

    async fn lock_out(&self, locked: bool) {
        self.server().configure(&settings(locked));
        let (login, began) = (format!("\"user\":\"{USER}\",\"pass\":\"{PASSWORD}\""), Instant::now());
        while self.server().admits(0, &login) == locked {
            assert!(began.elapsed() < Duration::from_secs(60), "the server reads its configuration");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.door.reset();
    }

    async fn leftovers(&self) -> u64 {
        self.door.open()
    }

    /// A beat and its poll are two messages.
    const COUNTED_FOR_EACH: u64 = 2;

    /// Every read and every write is one message to the server.
    async fn operations(&self) -> Option<u64> {
        Some(self.server().messages_in(0))
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
