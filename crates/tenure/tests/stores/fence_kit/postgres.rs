//! Clients of PostgreSQL: tokio-postgres, and sqlx.

use sqlx::{AssertSqlSafe, Connection};
use tenure::fence::DatabaseError;

use super::Client;

const LEVELS: &[&str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

impl Client for tokio_postgres::Client {
    type Tx<'a> = tokio_postgres::Transaction<'a>;
    const LEVELS: &'static [&'static str] = LEVELS;

    async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn run(&mut self, sql: &str) -> Result<(), DatabaseError> {
        Ok(self.batch_execute(sql).await?)
    }

    async fn number(&mut self, sql: &str) -> i64 {
        self.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn begin(&mut self) -> Self::Tx<'_> {
        self.transaction().await.unwrap()
    }

    async fn commit(tx: Self::Tx<'_>) -> Result<(), DatabaseError> {
        Ok(tx.commit().await?)
    }

    async fn rollback(tx: Self::Tx<'_>) {
        tx.rollback().await.unwrap();
    }

    async fn isolate(&mut self, level: &str) {
        let sql = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
        self.batch_execute(&sql).await.unwrap();
    }

    async fn waiting(&mut self) -> i64 {
        self.number(WAITING).await
    }
}

impl Client for sqlx::PgConnection {
    type Tx<'a> = sqlx::Transaction<'a, sqlx::Postgres>;
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
        let sql = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
        Client::run(self, &sql).await.unwrap();
    }

    async fn waiting(&mut self) -> i64 {
        self.number(WAITING).await
    }
}
