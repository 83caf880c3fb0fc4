//! Fences in transactions of rusqlite, which block: there is a method without `await` for them.

use std::time::Duration;

use futures_util::FutureExt;
use rusqlite::Transaction;

use super::{DatabaseError, Dialect, FenceClaim, FenceError, FenceRow, FencedTransaction};
use crate::Lead;

impl Lead {
    /// As [`Lead::fence`], for code that blocks: waits for others who write to the same file, at most as long as is
    /// [left](Lead::remaining) of the tenure.
    ///
    /// # Errors
    /// [`FenceError`]: roll back.
    pub fn fence_blocking(
        &self,
        transaction: &mut Transaction<'_>,
        resource: &str,
    ) -> Result<(), FenceError> {
        self.fence(transaction, resource).now_or_never().expect("SQLite answers before it returns")
    }
}

impl FencedTransaction for Transaction<'_> {
    const DIALECT: Dialect = Dialect::Sqlite;

    async fn run(&mut self, statements: String) -> Result<(), DatabaseError> {
        Ok(self.execute_batch(&statements)?)
    }

    /// The limit is the connection's: it is put back.
    async fn raise(&mut self, claim: &FenceClaim<'_>) -> Result<FenceRow, DatabaseError> {
        let before: u32 = self.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
        self.busy_timeout(claim.left)?;
        let params = (claim.resource, claim.role.as_str(), claim.number());
        let raised = self
            .query_row(Dialect::Sqlite.raise(), params, |row| Ok(FenceRow::new(row.get(0)?, row.get(1)?)));
        self.busy_timeout(Duration::from_millis(before.into()))?;
        Ok(raised?)
    }
}
