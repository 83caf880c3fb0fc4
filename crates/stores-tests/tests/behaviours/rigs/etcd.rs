//! One etcd member, with users and passwords.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::proxy::Proxy;
use tenure_torture::servers::etcd::Etcd as Server;

use crate::rig::Rig;

pub(crate) struct Etcd {
    server: Mutex<Server>,
    /// What the nodes reach it through: etcd itself throws no client out.
    door: Proxy,
    /// The revision at which it began to be read.
    from: Mutex<String>,
}

/// The user of the nodes; whoever hurts the server is another.
const USER: &str = "app";
const PASSWORD: &str = "hunter2";
const ADMIN: &str = "root:root";

impl Etcd {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no test panicked with it")
    }

    fn admin(&self, words: &[&str]) -> String {
        self.server().ctl(&[&["--user", ADMIN], words].concat())
    }

    fn admit(&self) {
        let _ = self.admin(&["user", "add", &format!("{USER}:{PASSWORD}")]);
        let _ = self.admin(&["user", "grant-role", USER, USER]);
    }

    fn key(namespace: &str, key: &Key) -> String {
        format!("tenure/{namespace}/{}/{}/{}", key.epoch().get(), key.kind().as_str(), key.name())
    }

    /// How often a key has been put since it was created, at some revision.
    fn puts(&self, key: &str, revision: &str) -> u64 {
        let said = self.admin(&["get", key, "--rev", revision, "-w", "fields"]);
        field(&said, "\"Version\"").and_then(|puts| puts.parse().ok()).unwrap_or(0)
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.server().address(0)).expect("the server is there");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it can be asked");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("it answers");
        said
    }
}

fn field<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" : "))
}

#[async_trait]
impl Rig for Etcd {
    async fn start() -> Self {
        let server = Server::start(1, &[]);
        for words in [
            "role add app",
            "role grant-permission app --prefix=true readwrite tenure/",
            "user add root:root",
            "user grant-role root root",
            "auth enable",
        ] {
            let _ = server.ctl(&words.split(' ').collect::<Vec<_>>());
        }
        let door = Proxy::to(server.address(0));
        let etcd = Self { server: Mutex::new(server), door, from: Mutex::default() };
        etcd.admit();
        etcd
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.door.address())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        let server = server.unwrap_or_else(|| self.door.address());
        format!("etcd://{USER}:{PASSWORD}@{server}/tenure")
    }

    /// What is left of `"holder"` in base64, in a role whose token has one digit.
    fn claim(&self) -> &'static [u8] {
        b"b2xkZXIi"
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
        let _ = self.admin(&["del", "--prefix", "tenure/"]);
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let deleted = self.admin(&["del", &Self::key(namespace.as_str(), key)]);
        assert_eq!(deleted.trim(), "1", "{key} was there");
    }

    async fn kill_clients(&self) {
        self.door.reset();
    }

    async fn lock_out(&self, locked: bool) {
        if locked {
            let _ = self.admin(&["user", "delete", USER]);
            self.door.reset();
        } else {
            self.admit();
        }
    }

    async fn leftovers(&self) -> u64 {
        self.door.open()
    }

    /// Every operation of a node is a transaction; people with a shell use others.
    async fn operations(&self) -> Option<u64> {
        let said = self.metrics();
        let handled = said.lines().filter(|line| line.starts_with("grpc_server_handled_total{"));
        let txn = handled.filter(|line| line.contains("grpc_method=\"Txn\""));
        Some(txn.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum())
    }

    async fn listen_in(&self) {
        let said = self.admin(&["get", "tenure/none", "-w", "fields"]);
        let revision = field(&said, "\"Revision\"").expect("a revision").to_owned();
        *self.from.lock().expect("no test panicked with it") = revision;
    }

    /// As they were applied.
    async fn writes_on(&self, key: &Key) -> Option<u64> {
        let key = Self::key("default", key);
        let from = self.from.lock().expect("no test panicked with it").clone();
        Some(self.puts(&key, "0") - self.puts(&key, &from))
    }
}
