//! The etcd store keeps the contract: on one member, on a group whose members are really killed, with users and passwords.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{Etcd, SharedStore};
use tenure_torture::servers::etcd::Etcd as Server;

const PASSWORD: &str = "correct-horse-battery";

/// A cluster of its own, where members may be killed.
struct Own {
    server: Mutex<Server>,
    login: String,
}

impl Own {
    fn start(members: usize) -> Self {
        Self { server: Mutex::new(Server::start(members, &[])), login: String::new() }
    }

    /// For a user with the rights that `tenure schema` prints.
    fn with_users() -> Self {
        let server = Server::start(1, &[]);
        for words in [
            "role add app",
            "role grant-permission app --prefix=true readwrite tenure/",
            &format!("user add app:{PASSWORD}"),
            "user grant-role app app",
            &format!("user add root:{PASSWORD}"),
            "user grant-role root root",
            "auth enable",
        ] {
            let _ = server.ctl(&words.split(' ').collect::<Vec<_>>());
        }
        Self { server: Mutex::new(server), login: format!("app:{PASSWORD}@") }
    }
}

#[async_trait]
impl Harness for Own {
    async fn open(&self) -> SharedStore {
        let hosts = self.server.lock().unwrap().hosts();
        Arc::new(Etcd::open(&format!("etcd://{}{hosts}/tenure?timeout=30s", self.login)).unwrap())
    }

    /// Every member dies at once.
    async fn restart(&self) {
        let mut server = self.server.lock().unwrap();
        (0..server.count()).for_each(|nth| server.stop(nth));
        server.launch_all();
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }
}

mod one_member {
    use super::*;

    tenure::conformance!(Own::start(1));
}

mod three_members {
    use super::*;

    tenure::conformance!(Own::start(3));
}

mod with_users {
    use super::*;

    tenure::conformance!(Own::with_users());
}
