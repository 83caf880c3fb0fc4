//! Clients of MariaDB: mysql_async, and sqlx.

use mysql_async::prelude::Queryable;
use sqlx::{AssertSqlSafe, Connection};
use tenure::fence::DatabaseError;

use super::Client;

const LEVELS: &[&str] = &["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
/// Not `innodb_trx`, which shows an old picture to whoever asks more often than ten times a second.
const WAITING: &str = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
    WHERE variable_name = 'innodb_row_lock_current_waits'";

impl Client for mysql_async::Conn {
    type Tx<'a> = mysql_async::Transaction<'a>;
    const LEVELS: &'static [&'static str] = LEVELS;

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

    async fn isolate(&mut self, level: &str) {
        self.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")).await.unwrap();
    }

    async fn waiting(&mut self) -> i64 {
        self.number(WAITING).await
    }
}

impl Client for sqlx::MySqlConnection {
    type Tx<'a> = sqlx::Transaction<'a, sqlx::MySql>;
    const LEVELS: &'static [&'static str] = LEVELS;

    async fn connect(url: &str) -> Self {
        <Self as Connection>::connect(url).await.unwrap()
    }

    async fn run(&mut self, sql: &str) -> Result<(), DatabaseError> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(self).await?;
        Ok(())
    }

    async fn number(&mut self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(self).await.unwrap()
    }

    async fn begin(&mut self) -> Self::Tx<'_> {
        Connection::begin(self).await.unwrap()
    }

    async fn commit(tx: Self::Tx<'_>) -> Result<(), DatabaseError> {
        Ok(tx.commit().await?)
    }

    async fn rollback(tx: Self::Tx<'_>) {
        tx.rollback().await.unwrap();
    }

    async fn isolate(&mut self, level: &str) {
        Client::run(self, &format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")).await.unwrap();
    }

    async fn waiting(&mut self) -> i64 {
        self.number(WAITING).await
    }
}
