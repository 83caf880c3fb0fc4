//! Fences in MySQL and MariaDB transactions of sqlx.

use sqlx::{AssertSqlSafe, MySql, Transaction};

use super::{Cause, Claim, Dialect, Fence, Standing};

impl Fence for Transaction<'_, MySql> {
    const DIALECT: Dialect = Dialect::Mysql;

    async fn run(&mut self, statements: String) -> Result<(), Cause> {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut **self).await?;
        Ok(())
    }

    async fn raise(&mut self, claim: &Claim<'_>) -> Result<Standing, Cause> {
        let raise = sqlx::query(Dialect::Mysql.raise());
        let raise = raise.bind(claim.resource).bind(claim.role.as_str()).bind(claim.number());
        raise.execute(&mut **self).await?;
        let look = Dialect::Mysql.look().expect("MySQL has to be asked");
        let look = sqlx::query_as::<_, (String, i64)>(look).bind(claim.resource);
        let (role, token) = look.fetch_one(&mut **self).await?;
        Ok(Standing::new(role, token))
    }
}
