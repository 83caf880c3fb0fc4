//! Clients of PostgreSQL: tokio-postgres, and sqlx.

use tenure::fence::DatabaseError;

use super::{Client, sqlx_client};

const LEVELS: &[&str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const ISOLATE: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL";

fn waits() -> &'static str {
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
}

fn oldest() -> Option<&'static str> {
    None
}

impl Client for tokio_postgres::Client {
    type Tx<'a> = tokio_postgres::Transaction<'a>;
    const LEVELS: &'static [&'static str] = LEVELS;
    const ISOLATE: &'static str = ISOLATE;

    fn waits() -> &'static str {
        waits()
    }

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
}

sqlx_client!(sqlx::PgConnection, sqlx::Postgres);
