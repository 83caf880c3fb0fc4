//! What the tests of fences share: leaders of different ages, and clients of databases that can be fenced.
#![allow(dead_code, unreachable_pub)]

pub mod clauses;
pub mod mysql;
pub mod postgres;

use std::time::{Duration, Instant};

use tenure::fence::{DatabaseError, FencedTransaction};
use tenure::testing::Memory;
use tenure::{Node, Tenure, Token};

/// Long enough for anything that happens at all.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A tenure that does not end while a test runs.
pub const LONG: Duration = Duration::from_secs(600);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Asks until the answer is yes.
pub async fn until(mut ask: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < PATIENCE, "it does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A node that leads, as far as it knows.
pub struct Leader {
    pub tenure: Tenure,
    pub node: Node,
}

/// A leader with that token. Each has an election of its own: a former leader that was held up, and knows nothing of the
/// later one, is just like this.
pub async fn leader(role: &str, token: u64, ttl: Duration) -> Leader {
    let store = Memory::new();
    let node = tenure::testing::node_on(&store).name("n").ttl(ttl).start().await.expect("it starts");
    let candidate = node.candidate(role).await.expect("it stands");
    loop {
        let tenure = soon(candidate.elected()).await.expect("it is elected");
        if tenure.token() == Token::new(token) {
            return Leader { tenure, node };
        }
        drop(tenure);
    }
}

/// A connection to a database with the table `tenure_fence` and a table `ledger(line)`.
pub trait Client: Sized {
    type Tx<'a>: FencedTransaction
    where
        Self: 'a;
    /// Every isolation level worth a test.
    const LEVELS: &'static [&'static str];
    /// Sets the isolation level that follows, for the next transactions of this connection.
    const ISOLATE: &'static str;
    /// Counts the connections that wait for a row that another holds.
    fn waits() -> &'static str;
    /// Where the server does not end a transaction that pauses for longer than the tenure lasts: the connection of the oldest one.
    fn oldest() -> Option<&'static str> {
        None
    }

    async fn connect(url: &str) -> Self;
    /// Runs a statement outside a transaction.
    async fn run(&mut self, sql: &str) -> Result<(), DatabaseError>;
    /// The first column of the first row, as a number.
    async fn number(&mut self, sql: &str) -> i64;
    async fn begin(&mut self) -> Self::Tx<'_>;
    async fn commit(tx: Self::Tx<'_>) -> Result<(), DatabaseError>;
    async fn rollback(tx: Self::Tx<'_>);

    async fn isolate(&mut self, level: &str) {
        self.run(&format!("{} {level}", Self::ISOLATE)).await.unwrap();
    }

    async fn waiting(&mut self) -> i64 {
        self.number(Self::waits()).await
    }
}

/// A connection of sqlx as a [`Client`].
macro_rules! sqlx_client {
    ($connection:ty, $database:ty) => {
        impl Client for $connection {
            type Tx<'a> = sqlx::Transaction<'a, $database>;
            const LEVELS: &'static [&'static str] = LEVELS;
            const ISOLATE: &'static str = ISOLATE;

            fn waits() -> &'static str {
                waits()
            }

            fn oldest() -> Option<&'static str> {
                oldest()
            }

            async fn connect(url: &str) -> Self {
                <Self as sqlx::Connection>::connect(url).await.unwrap()
            }

            async fn run(&mut self, sql: &str) -> Result<(), DatabaseError> {
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(self).await?;
                Ok(())
            }

            async fn number(&mut self, sql: &str) -> i64 {
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(self).await.unwrap()
            }

            async fn begin(&mut self) -> Self::Tx<'_> {
                sqlx::Connection::begin(self).await.unwrap()
            }

            async fn commit(tx: Self::Tx<'_>) -> Result<(), DatabaseError> {
                Ok(tx.commit().await?)
            }

            async fn rollback(tx: Self::Tx<'_>) {
                tx.rollback().await.unwrap();
            }
        }
    };
}
pub(crate) use sqlx_client;

pub async fn write(tx: &mut impl FencedTransaction, line: &str) -> Result<(), DatabaseError> {
    tx.run(format!("INSERT INTO ledger VALUES ('{line}')")).await
}

pub async fn lines<C: Client>(url: &str) -> i64 {
    C::connect(url).await.number("SELECT count(*) FROM ledger").await
}

/// Makes the tables anew.
pub async fn fresh<C: Client>(url: &str) {
    let mut client = C::connect(url).await;
    for sql in ["DROP TABLE IF EXISTS tenure_fence", "DROP TABLE IF EXISTS ledger"] {
        client.run(sql).await.unwrap();
    }
    client.run("CREATE TABLE ledger (line VARCHAR(100))").await.unwrap();
    let mut tx = client.begin().await;
    tenure::fence::create_table(&mut tx).await.unwrap();
    tenure::fence::create_table(&mut tx).await.unwrap();
    C::commit(tx).await.unwrap();
}
