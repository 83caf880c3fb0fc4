//! The NATS store keeps the contract: on one server, on a group whose servers are really killed, with the least rights.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{Nats, SharedStore};
use tenure_torture::servers::nats::Nats as Server;

use crate::server_kit::name;

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

    /// For a user with the rights that `tenure schema` prints, which are set as it prints them.
    fn with_users() -> Self {
        let server = Server::start_as(1, &rights(), "\"user\":\"root\",\"pass\":\"root\"");
        Self { server: Mutex::new(server), login: format!("app:{PASSWORD}@") }
    }
}

/// The block of configuration that `tenure schema` prints, and one user more who may do everything.
pub(crate) fn rights() -> String {
    let request = tenure::schema::SchemaRequest::new("nats", name("app"), name("default"));
    let text = request.text().expect("NATS has something to set up");
    let begin = text.find("authorization {").expect("it prints rights");
    let end = begin + text[begin..].find("\n}\n").expect("they end") + 3;
    let root = "users = [ { user: root, password: root },";
    text[begin..end].replace("users = [", root).replace("$TENURE_PASSWORD", PASSWORD)
}

#[async_trait]
impl Harness for Own {
    async fn open(&self) -> SharedStore {
        let hosts = self.server.lock().unwrap().hosts();
        Arc::new(Nats::open(&format!("nats://{}{hosts}/tenure?timeout=30s&sync=always", self.login)).unwrap())
    }

    /// Every server dies at once.
    async fn restart(&self) {
        let mut server = self.server.lock().unwrap();
        (0..server.count()).for_each(|nth| server.stop(nth));
        server.launch_all();
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }
}

mod one_server {
    use super::*;

    tenure::conformance!(Own::start(1));
}

mod three_servers {
    use super::*;

    tenure::conformance!(Own::start(3));
}

mod with_users {
    use super::*;

    tenure::conformance!(Own::with_users());
}
