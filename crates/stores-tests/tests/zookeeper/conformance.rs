//! The ZooKeeper store keeps the contract: on one server with a login, on an ensemble whose servers are really killed.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{SharedStore, ZooKeeper};
use tenure_torture::servers::zookeeper::ZooKeeper as Server;

pub(crate) const PASSWORD: &str = "correct-horse-battery";

/// Servers of its own, which may be killed.
struct Own {
    server: Mutex<Server>,
    login: String,
}

impl Own {
    fn start(servers: usize) -> Self {
        Self { server: Mutex::new(Server::start(servers, "")), login: String::new() }
    }

    fn with_login() -> Self {
        Self { login: format!("app:{PASSWORD}@"), ..Self::start(1) }
    }
}

#[async_trait]
impl Harness for Own {
    async fn open(&self) -> SharedStore {
        let hosts = self.server.lock().unwrap().hosts();
        Arc::new(ZooKeeper::open(&format!("zookeeper://{}{hosts}/a/tenure?timeout=30s", self.login)).unwrap())
    }

    /// Every server dies at once.
    async fn restart(&self) {
        let mut server = self.server.lock().unwrap();
        (0..server.count()).for_each(|nth| server.stop(nth));
        server.launch_all();
    }

    /// What fits in a question of 1 MiB.
    fn longest_value(&self) -> usize {
        (1 << 20) - 4096
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }
}

mod one_server {
    use super::*;

    tenure::conformance!(Own::with_login());
}

mod three_servers {
    use super::*;

    tenure::conformance!(Own::start(3));
}
