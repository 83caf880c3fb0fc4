//! Fences in transactions of tokio-postgres.

use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::{DatabaseError, Dialect, FenceClaim, FenceRow, FencedTransaction};

impl FencedTransaction for Transaction<'_> {
    const DIALECT: Dialect = Dialect::Postgres;

    async fn run(&mut self, statements: String) -> Result<(), DatabaseError> {
        Ok(self.batch_execute(&statements).await?)
    }

    /// Unprepared, so that it works behind a pooler.
    async fn raise(&mut self, claim: &FenceClaim<'_>) -> Result<FenceRow, DatabaseError> {
        let (role, token) = (claim.role.as_str(), claim.number());
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&claim.resource, Type::TEXT), (&role, Type::TEXT), (&token, Type::INT8)];
        let row = self.query_typed_one(Dialect::Postgres.raise(), &params).await?;
        Ok(FenceRow::new(row.try_get(0)?, row.try_get(1)?))
    }
}
