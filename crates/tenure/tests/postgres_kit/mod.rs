//! What the tests of PostgreSQL share: a private server, and SQL by hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure::conformance::Harness;
use tenure::store::{Postgres, SharedStore};
use tenure_testkit::servers::postgres::Postgres as Server;

/// Long enough for anything that happens at all.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// A server of its own for each test.
pub struct OneServer(pub Mutex<Server>);

impl OneServer {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(settings: &[&str]) -> Self {
        let small = ["shared_buffers=16MB", "max_connections=200", "max_wal_senders=4"];
        Self(Mutex::new(Server::start(&[&small, settings].concat())))
    }

    pub fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.0.lock().expect("no test panicked with the server in hand")
    }

    pub fn url(&self) -> String {
        self.server().admin_url().replace("postgres@", "postgres:hunter2@")
    }

    pub fn store(&self) -> SharedStore {
        Arc::new(Postgres::open(&self.url()).expect("the URL can be read"))
    }

    /// A connection for SQL by hand.
    pub async fn admin(&self) -> tokio_postgres::Client {
        let url = self.server().admin_url();
        sql(&url).await
    }
}

/// A connection for SQL by hand.
pub async fn sql(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    client
}

#[async_trait]
impl Harness for OneServer {
    async fn open(&self) -> SharedStore {
        self.store()
    }

    async fn restart(&self) {
        self.server().crash_and_restart();
    }

    fn secrets(&self) -> Vec<String> {
        vec!["hunter2".to_owned()]
    }
}
