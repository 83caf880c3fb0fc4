//! The embedded store: a file of its own. Links are cut between a node and its handle on it.

use std::net::SocketAddr;
use std::sync::Mutex;

use async_trait::async_trait;
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;
use tenure::store::{Key, Name};
use tenure_torture::servers::scratch;

use crate::rig::Rig;

pub(crate) struct Sqlite {
    dir: TempDir,
    /// Another process's transaction, which is never finished.
    frozen: Mutex<Option<Connection>>,
}

impl Sqlite {
    fn open(&self) -> Connection {
        let connection = Connection::open(self.dir.path().join("tenure.db")).expect("the file opens");
        connection.busy_timeout(std::time::Duration::from_secs(30)).expect("it waits");
        connection
    }

    /// By force: the trigger that refuses it is dropped, and put back.
    fn force(&self, statement: &str, what: impl rusqlite::Params) {
        let mut connection = self.open();
        let behaviour = TransactionBehavior::Immediate;
        let transaction = connection.transaction_with_behavior(behaviour).expect("a transaction");
        let trigger = "SELECT sql FROM sqlite_master WHERE name = 'registers_role_never_deleted'";
        let trigger: String = transaction.query_row(trigger, [], |row| row.get(0)).expect("the trigger");
        transaction.execute_batch("DROP TRIGGER registers_role_never_deleted").expect("it is dropped");
        transaction.execute(statement, what).expect("it is deleted");
        transaction.execute_batch(&trigger).expect("it is put back");
        transaction.commit().expect("it is committed");
    }
}

#[async_trait]
impl Rig for Sqlite {
    async fn start() -> Self {
        Self { dir: scratch(), frozen: Mutex::default() }
    }

    fn server(&self) -> Option<SocketAddr> {
        None
    }

    fn url(&self, _server: Option<SocketAddr>) -> String {
        format!("sqlite:{}", self.dir.path().join("tenure.db").display())
    }

    fn freeze(&self) {
        let connection = self.open();
        connection.execute_batch("BEGIN EXCLUSIVE").expect("a transaction of another process");
        *self.frozen.lock().expect("no test panicked with it") = Some(connection);
    }

    fn thaw(&self) {
        self.frozen.lock().expect("no test panicked with it").take();
    }

    async fn forget(&self) {
        self.force("DELETE FROM registers", []);
    }

    async fn delete(&self, namespace: &Name, key: &Key) {
        let statement = "DELETE FROM registers WHERE namespace = ?1 AND kind = ?2 AND name = ?3";
        self.force(statement, params![namespace.as_str(), key.kind().as_str(), key.name()]);
    }
}
