//! Fences: a deposed leader cannot commit.
//!
//! A process can be frozen between asking [`Lead::check`] and writing, and go on when another node leads. The
//! database refuses its late write if it remembers the highest token it has seen: one row
//! `tenure_fence(resource, role, token)`, raised by [`Lead::fence`] inside *your* transaction.
//!
//! ```text
//!   old leader, token 16 ── BEGIN ─ fence ─ ❄ frozen … ─ COMMIT ✗ refused: the server ended it, or 17 was there first
//!   new leader, token 17 ───────────────── BEGIN ─ fence (waits for the row) ─ work ─ COMMIT
//! ```
//!
//! The row lies in the database that is written to, which need not be the store of the election; no register of an
//! election is touched. Fence first in a transaction, and let a new leader fence before it works. The table is made by
//! [`create_table`], or by what `tenure schema --fence` prints. `docs/guides/fencing.md` has the same in plain SQL and Lua, and
//! `docs/adr/0014-fences.md` says why it is so.

mod error;
mod sql;
#[cfg(feature = "fence-mysql-async")]
mod with_mysql_async;
#[cfg(feature = "fence-redis")]
mod with_redis;
#[cfg(feature = "fence-rusqlite")]
mod with_rusqlite;
#[cfg(feature = "fence-sqlx-mysql")]
mod with_sqlx_mysql;
#[cfg(feature = "fence-sqlx-postgres")]
mod with_sqlx_postgres;
#[cfg(feature = "fence-tokio-postgres")]
mod with_tokio_postgres;

use std::time::Duration;

pub use error::{DatabaseError, FenceError};
pub use sql::Dialect;

use crate::{Lead, Name, Token};

/// The longest name of a resource, in characters: what fits into a key of every database.
pub const MAX_RESOURCE_LEN: usize = 190;

/// An open transaction of yours, in which a fence can be raised. There is one for each driver behind its feature;
/// for another driver these two methods are all that is needed.
//
// Without `Send` on the futures, because a transaction of rusqlite is bound to its thread. Those of the other drivers
// are `Send` all the same: the compiler looks into them.
#[allow(async_fn_in_trait)]
pub trait FencedTransaction {
    /// The dialect of the database.
    const DIALECT: Dialect;

    /// Runs statements that have no parameters, and discards their rows.
    async fn run(&mut self, statements: String) -> Result<(), DatabaseError>;

    /// Raises the row of the claim if it may be raised, and returns the row as it is then, locked until the transaction
    /// ends: [`Dialect::raise`], and then [`Dialect::read_back`] where the first does not tell.
    async fn raise(&mut self, claim: &FenceClaim<'_>) -> Result<FenceRow, DatabaseError>;
}

/// Makes the table if it is missing. In a transaction of its own: on MySQL making tables commits what is open.
///
/// # Errors
/// The database's error.
pub async fn create_table(transaction: &mut impl FencedTransaction) -> Result<(), DatabaseError> {
    transaction.run(ddl_of(transaction).to_owned()).await
}

fn ddl_of<T: FencedTransaction>(_: &T) -> &'static str {
    T::DIALECT.ddl()
}

/// The values that a leader writes into the row of a fence.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FenceClaim<'a> {
    /// The resource that the fence protects.
    pub resource: &'a str,
    /// The role that the leader leads.
    pub role: &'a Name,
    /// The token of its tenure.
    pub token: Token,
    /// How long leadership may be relied on if nothing more is heard from the store: nothing may wait longer.
    pub left: Duration,
}

/// The row of a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FenceRow {
    /// The role that the fence belongs to.
    pub role: String,
    /// The highest token it has seen.
    pub token: Token,
}

impl FenceRow {
    /// A row as databases have it, where numbers have a sign.
    #[must_use]
    pub fn new(role: String, token: i64) -> Self {
        Self { role, token: Token::new(u64::try_from(token).unwrap_or(0)) }
    }
}

impl FenceClaim<'_> {
    /// The token as databases have it.
    #[must_use]
    pub fn number(&self) -> i64 {
        i64::try_from(self.token.get()).expect("tokens are below 2^53")
    }

    /// The one place where it is decided who may pass: equal passes, because a tenure has many transactions.
    fn check(&self, row: &FenceRow) -> Result<(), FenceError> {
        let resource = self.resource.to_owned();
        if row.role != self.role.as_str() {
            return Err(FenceError::OtherRole { resource, role: self.role.clone(), owner: row.role.clone() });
        }
        if row.token > self.token {
            return Err(FenceError::Fenced { resource, token: self.token, newer: row.token });
        }
        assert!(row.token == self.token, "a fence that lets {} pass says so", self.token);
        Ok(())
    }
}

impl Lead {
    /// Raises the fence of `resource` inside your transaction, and holds it until the transaction ends: a later
    /// leader waits for it, and a former leader is refused. Call it first in the transaction, and end the
    /// transaction by rolling back if it fails.
    ///
    /// Until the transaction ends, waiting in it is limited to [what is left](Lead::remaining) of the tenure: by the
    /// server on PostgreSQL (also while nothing is asked of it, so that a frozen leader does not keep its successor
    /// waiting) and on MariaDB (in whole seconds, for the rest of the connection's life); on MySQL and SQLite only the
    /// wait for the fence itself is.
    ///
    /// # Errors
    /// [`FenceError`]: roll back. On PostgreSQL the transaction cannot be committed any more.
    pub async fn fence<T: FencedTransaction>(
        &self,
        transaction: &mut T,
        resource: &str,
    ) -> Result<(), FenceError> {
        let passed = self.raise_fence(transaction, resource).await;
        if passed.is_err()
            && let Some(refuse) = T::DIALECT.refuse_commit()
        {
            // It fails on purpose.
            let _ = transaction.run(refuse.to_owned()).await;
        }
        passed
    }

    async fn raise_fence<T: FencedTransaction>(
        &self,
        transaction: &mut T,
        resource: &str,
    ) -> Result<(), FenceError> {
        let claim = self.claim(resource)?;
        let failed = |cause: DatabaseError| FenceError::database(resource, cause);
        if let Some(limit) = T::DIALECT.limit_waiting(claim.left) {
            transaction.run(limit).await.map_err(failed)?;
        }
        let row = transaction.raise(&claim).await;
        if let Some(restore) = T::DIALECT.restore_limit() {
            transaction.run(restore.to_owned()).await.map_err(failed)?;
        }
        claim.check(&row.map_err(failed)?)?;
        // It may have waited for long.
        self.claim(resource).map(|_| ())
    }

    /// The values that this leader may write now.
    fn claim<'a>(&'a self, resource: &'a str) -> Result<FenceClaim<'a>, FenceError> {
        let count = resource.chars().count();
        if !(1..=MAX_RESOURCE_LEN).contains(&count)
            || resource.trim() != resource
            || resource.contains(char::is_control)
        {
            return Err(FenceError::BadResource(resource.chars().take(MAX_RESOURCE_LEN).collect()));
        }
        let left = self.remaining();
        if left.is_zero() {
            return Err(FenceError::Over { role: self.role().clone(), token: self.token() });
        }
        Ok(FenceClaim { resource, role: self.role(), token: self.token(), left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(role: &str, token: u64) -> Result<(), FenceError> {
        let mine = Name::new("scheduler").unwrap();
        let claim = FenceClaim {
            resource: "ledger",
            role: &mine,
            token: Token::new(7),
            left: Duration::from_secs(1),
        };
        claim.check(&FenceRow { role: role.to_owned(), token: Token::new(token) })
    }

    #[test]
    fn equal_passes_and_newer_and_other_roles_do_not() {
        assert!(verdict("scheduler", 7).is_ok());
        let fenced = verdict("scheduler", 8).unwrap_err();
        assert!(
            matches!(fenced, FenceError::Fenced { token, newer, .. } if (token.get(), newer.get()) == (7, 8))
        );
        assert!(fenced.to_string().contains("roll back"), "{fenced}");
        let other = verdict("janitor", 7).unwrap_err();
        assert!(matches!(other, FenceError::OtherRole { .. }));
        assert!(other.to_string().contains("janitor"), "{other}");
    }

    #[tokio::test]
    async fn names_that_databases_would_bend_are_refused() {
        let node = crate::testing::node("a").await;
        let tenure = node.candidate("scheduler").await.unwrap().elected().await.unwrap();
        for bad in ["", " a", "a ", "a\nb", &"x".repeat(MAX_RESOURCE_LEN + 1)] {
            assert!(matches!(tenure.claim(bad), Err(FenceError::BadResource(_))), "{bad:?}");
        }
        assert!(tenure.claim("orders/eu west: é").is_ok());
        crate::testing::force_loss(&node);
        tenure.cancelled().await;
        assert!(matches!(tenure.claim("ledger"), Err(FenceError::Over { .. })));
    }
}
