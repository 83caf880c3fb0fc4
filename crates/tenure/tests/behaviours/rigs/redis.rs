//! Redis that keeps what it acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rustix::process::Signal;
use tenure::store::{Key, Name};
use tenure_torture::servers::Server;
use tenure_torture::servers::redis::{DURABLE, command, query, start, start_in};

use crate::rig::Rig;

pub(crate) struct Redis {
    server: Mutex<Option<Server>>,
    address: SocketAddr,
    /// What MONITOR told.
    heard: Arc<Mutex<Vec<String>>>,
}

/// The user of the nodes; the one that hurts the server is another.
const USER: &str = "app";
const PASSWORD: &str = "hunter2";

impl Redis {
    fn admit(&self) {
        let password = format!(">{PASSWORD}");
        command(self.address, &["ACL", "SETUSER", USER, "on", &password, "~*", "&*", "+@all"]);
    }

    fn signal(&self, signal: Signal) {
        self.server.lock().expect("no test panicked with it").as_ref().expect("a server").signal(signal);
    }

    fn throw_out(&self) {
        let _ = query(self.address, &["CLIENT", "KILL", "USER", USER]);
    }
}

#[async_trait]
impl Rig for Redis {
    async fn start() -> Self {
        let server = start(&[DURABLE, &["--maxclients", "2000"]].concat());
        let address = server.address();
        let redis = Self { server: Mutex::new(Some(server)), address, heard: Arc::default() };
        redis.admit();
        redis
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(self.address)
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        format!("redis://{USER}:{PASSWORD}@{}/0", server.unwrap_or(self.address))
    }

    fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn restart(&self) {
        let mut server = self.server.lock().expect("no test panicked with it");
        let dir = server.take().expect("a server").crash();
        *server = Some(start_in(dir, self.address.port(), DURABLE));
        drop(server);
        self.admit();
    }

    async fn forget(&self) {
        command(self.address, &["FLUSHALL"]);
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let hash = format!("tenure:{{{namespace}}}:{}:{}", key.epoch().get(), key.kind().as_str());
        assert_eq!(query(self.address, &["HDEL", &hash, &key.name()]), ":1", "{key} was there");
    }

    async fn kill_clients(&self) {
        self.throw_out();
    }

    async fn lock_out(&self, locked: bool) {
        if locked {
            command(self.address, &["ACL", "SETUSER", USER, "off"]);
            self.throw_out();
        } else {
            self.admit();
        }
    }

    async fn leftovers(&self) -> u64 {
        let clients = query(self.address, &["CLIENT", "LIST"]);
        clients.matches(&format!("user={USER}")).count() as u64
    }

    /// Each operation reads the marker of its namespace once.
    async fn operations(&self) -> Option<u64> {
        let statistics = query(self.address, &["INFO", "commandstats"]);
        let calls = statistics.split("cmdstat_get:calls=").nth(1)?.split(',').next()?;
        calls.parse().ok()
    }

    async fn listen_in(&self) {
        let mut stream = TcpStream::connect(self.address).expect("the server is there");
        stream.write_all(b"MONITOR\r\n").expect("it can be asked");
        let mut lines = BufReader::new(stream).lines();
        lines.next().expect("an answer").expect("it listens");
        let heard = self.heard.clone();
        // Ends with the server.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                heard.lock().expect("no test panicked with it").push(line);
            }
        });
    }

    /// As they were sent, whether they came to anything or not; what the script does then is told as `lua`.
    async fn writes_on(&self, key: &Key) -> Option<u64> {
        let hash = format!(":{}:{}\"", key.epoch().get(), key.kind().as_str());
        let name = format!("\"{}\"", key.name());
        let is_write = |line: &&String| {
            let line = line.to_ascii_lowercase();
            line.contains("\"eval") && line.contains(&hash) && line.contains(&name)
        };
        let heard = self.heard.lock().expect("no test panicked with it");
        Some(heard.iter().filter(is_write).count() as u64)
    }
}
