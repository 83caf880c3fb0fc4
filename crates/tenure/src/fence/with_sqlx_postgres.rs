//! Fences in PostgreSQL transactions of sqlx.

use sqlx::{AssertSqlSafe, Postgres, Transaction};

use super::{Cause, Claim, Dialect, Fence, Standing};

impl Fence for Transaction<'_, Postgres> {
    const DIALECT: Dialect = Dialect::Postgres;

    async fn run(&mut self, statements: String) -> Result<(), Cause> {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut **self).await?;
        Ok(())
    }

    /// Not kept prepared, so that it works behind a pooler.
    async fn raise(&mut self, claim: &Claim<'_>) -> Result<Standing, Cause> {
        let raise = sqlx::query_as::<_, (String, i64)>(Dialect::Postgres.raise()).persistent(false);
        let raise = raise.bind(claim.resource).bind(claim.role.as_str()).bind(claim.number());
        let (role, token) = raise.fetch_one(&mut **self).await?;
        Ok(Standing::new(role, token))
    }
}
