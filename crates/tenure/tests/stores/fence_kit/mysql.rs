//! Clients of MariaDB: mysql_async, and sqlx.

use mysql_async::prelude::Queryable;
use tenure::fence::DatabaseError;
use tenure_torture::servers::mysql::dialect;

use super::{Client, sqlx_client};

const LEVELS: &[&str] = &["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const ISOLATE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL";

/// Not `innodb_trx`, which shows an old picture to a client that asks more often than ten times a second.
fn waits() -> &'static str {
    dialect(
        "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
         WHERE variable_name = 'innodb_row_lock_current_waits'",
        "SELECT CAST(variable_value AS SIGNED) FROM performance_schema.global_status \
         WHERE variable_name = 'innodb_row_lock_current_waits'",
    )
}

fn oldest() -> Option<&'static str> {
    let oldest = "SELECT CAST(trx_mysql_thread_id AS SIGNED) FROM information_schema.innodb_trx ORDER BY trx_started LIMIT 1";
    dialect(None, Some(oldest))
}

impl Client for mysql_async::Conn {
    type Tx<'a> = mysql_async::Transaction<'a>;
    const LEVELS: &'static [&'static str] = LEVELS;
    const ISOLATE: &'static str = ISOLATE;

    fn waits() -> &'static str {
        waits()
    }

    fn oldest() -> Option<&'static str> {
        oldest()
    }

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
