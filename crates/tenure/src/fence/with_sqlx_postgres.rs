//! Fences in PostgreSQL transactions of sqlx.

use sqlx::{AssertSqlSafe, Postgres, Transaction};

use super::{DatabaseError, Dialect, FenceClaim, FenceRow, FencedTransaction};

impl FencedTransaction for Transaction<'_, Postgres> {
    const DIALECT: Dialect = Dialect::Postgres;

    async fn run(&mut self, statements: String) -> Result<(), DatabaseError> {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut **self).await?;
        Ok(())
    }

    /// Not kept prepared, so that it works behind a pooler.
    async fn raise(&mut self, claim: &FenceClaim<'_>) -> Result<FenceRow, DatabaseError> {
        let raise = sqlx::query_as::<_, (String, i64)>(Dialect::Postgres.raise()).persistent(false);
        let raise = raise.bind(claim.resource).bind(claim.role.as_str()).bind(claim.number());
        let (role, token) = raise.fetch_one(&mut **self).await?;
        Ok(FenceRow::new(role, token))
    }
}
