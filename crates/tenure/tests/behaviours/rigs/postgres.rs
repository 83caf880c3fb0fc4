//! PostgreSQL, in a time zone with summer time, for a user that is not its owner.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use tenure::store::{Key, Name};
use tenure_torture::servers::postgres::Postgres as Server;
use tokio_postgres::{Client, NoTls};

use crate::rig::Rig;

pub(crate) struct Postgres {
    server: Mutex<Server>,
    port: u16,
    /// How much had been logged when it began to be read.
    from: Mutex<usize>,
}

/// The user of the nodes; the one that hurts the server is another.
const USER: &str = "app";
/// What each line of the log begins with that a node of ours caused.
const BY_US: &str = "app@ LOG:  ";
const SETTINGS: &[&str] = &[
    "max_connections=500",
    "shared_buffers=16MB",
    "timezone=Europe/Berlin",
    "log_timezone=Europe/Berlin",
    "log_statement=all",
    "log_line_prefix=%u@ ",
];

impl Postgres {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no test panicked with it")
    }

    async fn admin(&self) -> Client {
        let url = self.server().admin_url();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it connects");
        tokio::spawn(connection);
        client
    }

    /// By force: no trigger is asked.
    async fn force(&self, statement: &str) {
        let statement = format!("SET session_replication_role = replica; {statement}");
        self.admin().await.batch_execute(&statement).await.expect("it is done");
    }

    /// What the server has logged since it was listened to.
    fn log(&self) -> String {
        let log = self.server().log();
        log[*self.from.lock().expect("no test panicked with it")..].to_owned()
    }
}

#[async_trait]
impl Rig for Postgres {
    async fn start() -> Self {
        let server = Server::start(SETTINGS);
        let port = server.port();
        let postgres = Self { server: Mutex::new(server), port, from: Mutex::default() };
        let user = "CREATE ROLE app LOGIN; GRANT USAGE, CREATE ON SCHEMA public TO app";
        postgres.admin().await.batch_execute(user).await.expect("a user for the nodes");
        postgres
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(([127, 0, 0, 1], self.port).into())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        let port = server.map_or(self.port, |server| server.port());
        format!("postgres://{USER}:hunter2@127.0.0.1:{port}/postgres")
    }

    fn freeze(&self) {
        self.server().freeze();
    }

    fn thaw(&self) {
        self.server().thaw();
    }

    fn restart(&self) {
        self.server().crash_and_restart();
    }

    async fn forget(&self) {
        self.force("TRUNCATE tenure_registers").await;
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let (kind, name) = (key.kind().as_str(), key.name());
        self.force(&format!(
            "DELETE FROM tenure_registers WHERE namespace = '{namespace}' AND kind = '{kind}' AND name = '{name}'"
        ))
        .await;
    }

    async fn kill_clients(&self) {
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'";
        self.admin().await.batch_execute(kill).await.expect("they are killed");
    }

    async fn lock_out(&self, locked: bool) {
        let admin = self.admin().await;
        admin
            .batch_execute(if locked { "ALTER ROLE app NOLOGIN" } else { "ALTER ROLE app LOGIN" })
            .await
            .expect("it is changed");
        if locked {
            self.kill_clients().await;
        }
    }

    async fn leftovers(&self) -> u64 {
        let count = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = 'app')
                          + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')";
        let row = self.admin().await.query_one(count, &[]).await.expect("it can be counted");
        row.get::<_, i64>(0).cast_unsigned()
    }

    /// Every statement that a node sent.
    async fn operations(&self) -> Option<u64> {
        Some(self.server().log().lines().filter(|line| line.starts_with(BY_US)).count() as u64)
    }

    async fn listen_in(&self) {
        let length = self.server().log().len();
        *self.from.lock().expect("no test panicked with it") = length;
    }

    /// As they were sent, whether they came to anything or not.
    async fn writes_on(&self, key: &Key) -> Option<u64> {
        let (log, name) = (self.log(), key.name().into_owned());
        let statements = log.split(BY_US).filter(|statement| statement.contains("tenure_write_v2("));
        // The names of what is written are its fourth parameter; a question may follow with names of its own.
        let written = |statement: &str| {
            let names = statement.split("$4 = ").nth(1)?.split("$5 = ").next()?;
            Some(names.contains(&name))
        };
        Some(statements.filter(|statement| written(statement).unwrap_or(true)).count() as u64)
    }
}
