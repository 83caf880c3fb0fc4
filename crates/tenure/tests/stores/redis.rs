//! The Redis store keeps the contract, on a real server that is really killed.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{Redis, SharedStore};
use tenure_torture::servers::Server;
use tenure_torture::servers::redis::{DURABLE, FORGETFUL, start, start_in};

const PASSWORD: &str = "correct-horse-battery";

/// A server that is shared by the tests of this binary; it dies with the process, because its parent does.
struct Shared {
    server: Mutex<Option<Server>>,
    settings: Vec<&'static str>,
}

impl Shared {
    fn start(settings: &[&'static str]) -> Self {
        let settings = [settings, &["--requirepass", PASSWORD]].concat();
        Self { server: Mutex::new(Some(start(&settings))), settings }
    }

    fn url(&self) -> String {
        let server = self.server.lock().unwrap();
        format!("redis://:{PASSWORD}@{}/0", server.as_ref().unwrap().address())
    }

    fn crash_and_restart(&self) {
        let mut server = self.server.lock().unwrap();
        let former = server.take().unwrap();
        let port = former.port();
        *server = Some(start_in(former.crash(), port, &self.settings));
    }
}

/// A server of its own, where it may be killed.
struct Own(Shared);

#[async_trait]
impl Harness for Own {
    async fn open(&self) -> SharedStore {
        Arc::new(Redis::open(&self.0.url()).unwrap())
    }

    async fn restart(&self) {
        self.0.crash_and_restart();
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }
}

mod durable {
    use super::*;

    tenure::conformance!(Own(Shared::start(DURABLE)));
}

mod forgetful {
    use super::*;

    tenure::conformance!(Own(Shared::start(FORGETFUL)));
}
