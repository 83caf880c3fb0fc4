//! Fences in transactions of mysql_async.

use mysql_async::Transaction;
use mysql_async::prelude::Queryable;

use super::{DatabaseError, Dialect, FenceClaim, FenceRow, FencedTransaction};

impl FencedTransaction for Transaction<'_> {
    const DIALECT: Dialect = Dialect::Mysql;

    async fn run(&mut self, statements: String) -> Result<(), DatabaseError> {
        Ok(self.query_drop(statements).await?)
    }

    async fn raise(&mut self, claim: &FenceClaim<'_>) -> Result<FenceRow, DatabaseError> {
        let params = (claim.resource, claim.role.as_str(), claim.number());
        self.exec_drop(Dialect::Mysql.raise(), params).await?;
        let read_back = Dialect::Mysql.read_back().expect("MySQL has to be asked");
        let found: Option<(String, i64)> = self.exec_first(read_back, (claim.resource,)).await?;
        let (role, token) = found.ok_or("the row of tenure_fence was deleted by this very transaction")?;
        Ok(FenceRow::new(role, token))
    }
}
