//! MariaDB, in a time zone of its own, for a user that may do nothing but its work.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tenure::store::{Key, Name};
use tenure_torture::servers::mysql::Mysql as Server;

use crate::rig::Rig;

pub(crate) struct Mysql {
    server: Mutex<Server>,
    port: u16,
    /// How much had been logged when it began to be read.
    from: Mutex<usize>,
}

/// The user of the nodes; the one that hurts the server is another.
const USER: &str = "app";
const SETTINGS: &[&str] = &[
    "--max-connections=500",
    "--default-time-zone=+02:00",
    "--general-log=1",
    "--general-log-file=general.log",
];
/// The trigger that has to be out of the way of a login that deletes a role by force.
const TRIGGER: &str = "tenure_role_never_deleted";

impl Mysql {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("no test panicked with it")
    }

    async fn admin(&self) -> Conn {
        let url = self.server().admin_url();
        Conn::new(Opts::from_url(&url).expect("a URL")).await.expect("it connects")
    }

    async fn throw_out(&self, admin: &mut Conn) {
        let ids = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{USER}'");
        let ids: Vec<u64> = admin.query(ids).await.expect("a list of connections");
        for id in ids {
            // It may have gone by itself.
            let _ = admin.query_drop(format!("KILL {id}")).await;
        }
    }
}

#[async_trait]
impl Rig for Mysql {
    async fn start() -> Self {
        let server = Server::start(SETTINGS);
        let port = server.port();
        Self { server: Mutex::new(server), port, from: Mutex::default() }
    }

    fn server(&self) -> Option<SocketAddr> {
        Some(([127, 0, 0, 1], self.port).into())
    }

    fn url(&self, server: Option<SocketAddr>) -> String {
        let port = server.map_or(self.port, |server| server.port());
        self.server().url(USER).replace(&format!(":{}/", self.port), &format!(":{port}/"))
    }

    /// Values are written in hexadecimal.
    fn claim(&self) -> &'static [u8] {
        b"686f6c646572"
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
        let mut admin = self.admin().await;
        admin.query_drop("SET foreign_key_checks = 0").await.expect("it may");
        admin.query_drop("TRUNCATE tenure_registers").await.expect("everything is gone");
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let mut admin = self.admin().await;
        let (kind, name) = (key.kind().as_str(), key.name());
        let trigger: Option<(String, String, String)> = admin
            .exec_first(
                "SELECT TRIGGER_NAME, ACTION_STATEMENT, EVENT_MANIPULATION FROM information_schema.TRIGGERS
                 WHERE TRIGGER_NAME = ? AND TRIGGER_SCHEMA = DATABASE()",
                (TRIGGER,),
            )
            .await
            .expect("it can be asked");
        let (_, body, _) = trigger.expect("roles are protected");
        admin.query_drop(format!("DROP TRIGGER {TRIGGER}")).await.expect("it is dropped");
        let delete = "DELETE FROM tenure_registers WHERE namespace = ? AND kind = ? AND name = ?";
        admin.exec_drop(delete, (namespace.as_str(), kind, name.as_ref())).await.expect("it is deleted");
        let back = format!("CREATE TRIGGER {TRIGGER} BEFORE DELETE ON tenure_registers FOR EACH ROW {body}");
        admin.query_drop(back).await.expect("it is put back");
    }

    async fn kill_clients(&self) {
        self.throw_out(&mut self.admin().await).await;
    }

    async fn lock_out(&self, locked: bool) {
        let mut admin = self.admin().await;
        let lock = if locked { "LOCK" } else { "UNLOCK" };
        admin.query_drop(format!("ALTER USER '{USER}'@'%' ACCOUNT {lock}")).await.expect("it is changed");
        if locked {
            self.throw_out(&mut admin).await;
        }
    }

    async fn leftovers(&self) -> u64 {
        let count = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{USER}'");
        self.admin().await.query_first(count).await.expect("it can be counted").unwrap_or(0)
    }

    /// Every look is one such question, and every beat one such statement.
    async fn operations(&self) -> Option<u64> {
        let is_look = |line: &str| line.contains("FORCE INDEX (PRIMARY)") && !line.contains("FOR UPDATE");
        let counts = |line: &&str| is_look(line) || line.contains("UPDATE tenure_registers SET");
        Some(self.server().general_log().lines().filter(counts).count() as u64)
    }

    async fn listen_in(&self) {
        let length = self.server().general_log().len();
        *self.from.lock().expect("no test panicked with it") = length;
    }

    /// As they were sent, whether they came to anything or not.
    async fn writes_on(&self, key: &Key) -> Option<u64> {
        let log = self.server().general_log();
        let (from, name) = (*self.from.lock().expect("no test panicked with it"), key.name());
        let writes = |statement: &&str| {
            statement.contains("UPDATE tenure_registers") || statement.contains("INTO tenure_registers")
        };
        // A question may follow in the same text.
        let statements = log[from..].lines().flat_map(|line| line.split(';'));
        Some(statements.filter(writes).filter(|statement| statement.contains(&*name)).count() as u64)
    }
}
