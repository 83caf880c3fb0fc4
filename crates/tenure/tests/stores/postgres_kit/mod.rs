//! What the tests of PostgreSQL share: a private server, and SQL by hand.
#![allow(dead_code, unreachable_pub)]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tenure::conformance::Harness;
use tenure::store::entropy::KernelEntropy;
use tenure::store::{Postgres, SharedStore, open};
use tenure_core::Entropy;
use tenure_torture::servers::postgres::Postgres as Server;
use tokio_postgres::types::Type;

use crate::server_kit::soon;

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

/// Ends every connection of that name, and waits until the server has let go of them.
pub async fn sever(admin: &tokio_postgres::Client, application: &str) {
    // In two steps, or the server may end all of them before it looks at their names.
    let sql = "WITH doomed AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE application_name = $1)
        SELECT pid, pg_terminate_backend(pid) FROM doomed";
    let ended = admin.query_typed(sql, &[(&application, Type::TEXT)]).await.expect("a superuser");
    let pids: Vec<i32> = ended.iter().map(|row| row.get(0)).collect();
    let gone = async {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = ANY($1)";
        while !admin.query_typed(sql, &[(&pids, Type::INT4_ARRAY)]).await.expect("an answer").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    soon(gone).await;
}

#[async_trait]
impl Harness for OneServer {
    async fn open(&self) -> SharedStore {
        self.store()
    }

    async fn restart(&self) {
        self.server().crash_and_restart();
    }

    /// The handle has a name of its own on the server, which ends both of its connections.
    async fn severable(&self) -> Option<(SharedStore, BoxFuture<'static, ()>)> {
        let own = format!("tenure-{:032x}", KernelEntropy.nonce());
        let store = open(&format!("{}?application_name={own}", self.url())).expect("the URL can be read");
        let admin = self.admin().await;
        Some((store, Box::pin(async move { sever(&admin, &own).await })))
    }

    fn secrets(&self) -> Vec<String> {
        vec!["hunter2".to_owned()]
    }
}
