//! Clients of MariaDB: mysql_async, and sqlx.

use mysql_async::prelude::Queryable;
use tenure::fence::DatabaseError;

use super::{Client, sqlx_client};

const LEVELS: &[&str] = &["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const ISOLATE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL";
/// Not `innodb_trx`, which shows an old picture to a client that asks more often than ten times a second.
const WAITING: &str = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
    WHERE variable_name = 'innodb_row_lock_current_waits'";

impl Client for mysql_async::Conn {
    type Tx<'a> = mysql_async::Transaction<'a>;
    const LEVELS: &'static [&'static str] = LEVELS;
    const ISOLATE: &'static str = ISOLATE;
    const WAITING: &'static str = WAITING;

    async fn connect(url: &str) -> Self {
        Self::from_url(url).await.unwrap()
    }

    async fn run(&mut self, sql: &str) -> Result<(), DatabaseError> {
        Ok(self.query_drop(sql).await?)
    }

    async fn number(&mut self, sql: &str) -> i64 {
        self.query_first(sql).await.unwrap().unwrap()
    }

    async fn begin(&mut self) -> Self::Tx<'_> {
        self.start_transaction(mysql_async::TxOpts::default()).await.unwrap()
    }

    async fn commit(tx: Self::Tx<'_>) -> Result<(), DatabaseError> {
        Ok(tx.commit().await?)
    }

    async fn rollback(tx: Self::Tx<'_>) {
        tx.rollback().await.unwrap();
    }
}

sqlx_client!(sqlx::MySqlConnection, sqlx::MySql);
