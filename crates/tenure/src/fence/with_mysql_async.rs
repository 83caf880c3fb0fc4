//! Fences in transactions of mysql_async.

use mysql_async::Transaction;
use mysql_async::prelude::Queryable;

use super::{Cause, Claim, Dialect, Fence, Standing};

impl Fence for Transaction<'_> {
    const DIALECT: Dialect = Dialect::Mysql;

    async fn run(&mut self, statements: String) -> Result<(), Cause> {
        Ok(self.query_drop(statements).await?)
    }

    async fn raise(&mut self, claim: &Claim<'_>) -> Result<Standing, Cause> {
        let params = (claim.resource, claim.role.as_str(), claim.number());
        self.exec_drop(Dialect::Mysql.raise(), params).await?;
        let look = Dialect::Mysql.look().expect("MySQL has to be asked");
        let found: Option<(String, i64)> = self.exec_first(look, (claim.resource,)).await?;
        let (role, token) = found.ok_or("the row of tenure_fence was deleted by this very transaction")?;
        Ok(Standing::new(role, token))
    }
}
