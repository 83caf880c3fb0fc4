//! One etcd member, or a group of them, with users and passwords.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::servers::etcd::Etcd as Server;

use super::Doors;
use crate::rig::Rig;

pub(crate) struct Etcd<const MEMBERS: usize> {
    server: Mutex<Server>,
    /// What the nodes reach it through: etcd itself throws no client out.
    doors: Doors,
    /// The revision at which it began to be read.
    from: Mutex<String>,
}

/// The user of the nodes; the one that hurts the server is another.
const USER: &str = "app";
const PASSWORD: &str = "hunter2";
const ADMIN: &str = "root:root";

impl<const MEMBERS: usize> Etcd<MEMBERS> {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no test panicked with it")
    }

    fn admin(&self, words: &[&str]) -> String {
        patiently(&self.server(), &[&["--user", ADMIN], words].concat())
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

    fn metrics(&self, nth: usize) -> String {
        let mut stream = TcpStream::connect(self.server().address(nth)).expect("the server is there");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it can be asked");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("it answers");
        said
    }
}

/// Runs `etcdctl` until it is told that it is done, now or by an earlier try whose answer came too late: on a busy machine members
/// answer "request timed out", whatever they did.
fn patiently(server: &Server, words: &[&str]) -> String {
    for tried in 0..20 {
        let done = server.etcdctl(&server.hosts()).args(words).output().expect("etcdctl is installed");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let again = ["already exists", "user name is empty", "user name not found"];
        if done.status.success() || (tried > 0 && again.iter().any(|known| said.contains(known))) {
            return String::from_utf8_lossy(&done.stdout).into_owned();
        }
        assert!(said.contains("timed out") || said.contains("deadline exceeded"), "{words:?}: {said}");
    }
    panic!("etcd does not come to it: {words:?}");
}

fn field<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" : "))
}

#[async_trait]
impl<const MEMBERS: usize> Rig for Etcd<MEMBERS> {
    const TTL: Duration = super::TTL;

    async fn start() -> Self {
        // Members check passwords slowly by intention, and this is not about that.
        let server = Server::start(MEMBERS, &["--bcrypt-cost", "4"]);
        for words in [
            "role add app",
            "role grant-permission app --prefix=true readwrite tenure/",
            "user add root:root",
            "user grant-role root root",
            "auth enable",
        ] {
            let _ = patiently(&server, &words.split(' ').collect::<Vec<_>>());
        }
        let doors = Doors::to((0..MEMBERS).map(|nth| server.address(nth)));
        let etcd = Self { server: Mutex::new(server), doors, from: Mutex::default() };
        etcd.admit();
        etcd
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.doors.next())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        format!("etcd://{USER}:{PASSWORD}@{}/tenure", self.doors.hosts(server))
    }

    /// What is left of `"holder"` in base64, in a role whose token has one digit.
    fn claim(&self) -> &'static [u8] {
        b"b2xkZXIi"
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
        let _ = self.admin(&["del", "--prefix", "tenure/"]);
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let name = Self::key(namespace.as_str(), key);
        assert!(!self.admin(&["get", &name]).is_empty(), "{key} is there");
        let _ = self.admin(&["del", &name]);
    }

    async fn kill_clients(&self) {
        self.doors.reset();
    }

    async fn lock_out(&self, locked: bool) {
        if locked {
            let _ = self.admin(&["user", "delete", USER]);
            self.doors.reset();
        } else {
            self.admit();
        }
    }

    async fn leftovers(&self) -> u64 {
        self.doors.open()
    }

    /// Every operation of a node is a transaction; people with a shell use others.
    async fn operations(&self) -> Option<u64> {
        let said: String = (0..MEMBERS).map(|nth| self.metrics(nth)).collect();
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
