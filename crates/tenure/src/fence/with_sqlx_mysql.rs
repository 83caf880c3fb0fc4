//! Fences in MySQL and MariaDB transactions of sqlx.

use sqlx::{AssertSqlSafe, MySql, Transaction};

use super::{DatabaseError, Dialect, FenceClaim, FenceRow, FencedTransaction};

impl FencedTransaction for Transaction<'_, MySql> {
    const DIALECT: Dialect = Dialect::Mysql;

    async fn run(&mut self, statements: String) -> Result<(), DatabaseError> {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut **self).await?;
        Ok(())
    }

    async fn raise(&mut self, claim: &FenceClaim<'_>) -> Result<FenceRow, DatabaseError> {
        let raise = sqlx::query(Dialect::Mysql.raise());
        let raise = raise.bind(claim.resource).bind(claim.role.as_str()).bind(claim.number());
        raise.execute(&mut **self).await?;
        let read_back = Dialect::Mysql.read_back().expect("MySQL has to be asked");
        let read_back = sqlx::query_as::<_, (String, i64)>(read_back).bind(claim.resource);
        let (role, token) = read_back.fetch_one(&mut **self).await?;
        Ok(FenceRow::new(role, token))
    }
}
