//! The application's own connection, and the fence in it.

use std::error::Error;

use tenure::Token;
use tokio_postgres::{Client, NoTls, Transaction};

/// What can go wrong, told as it is.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// Makes the tables, once, whoever comes first.
pub(crate) async fn prepare(url: &str) -> Result<(), Fault> {
    let mut client = connect(url).await?;
    let transaction = client.transaction().await?;
    // Two that create a table at once would both fail.
    transaction.batch_execute("SELECT pg_advisory_xact_lock(7031)").await?;
    transaction.batch_execute(include_str!("schema.sql")).await?;
    Ok(transaction.commit().await?)
}

/// A connection of its own.
pub(crate) async fn connect(url: &str) -> Result<Client, Fault> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Lets this transaction go on only if nobody with a higher token was ever here. The row stays locked until it ends, so
/// that a later leader's first transaction waits for it, and every one after that of a former leader fails.
pub(crate) async fn fence(transaction: &Transaction<'_>, role: &str, token: Token) -> Result<(), Fault> {
    let token = i64::try_from(token.0)?;
    let passed = transaction
        .execute(
            "INSERT INTO fence (role, token) VALUES ($1, $2)
             ON CONFLICT (role) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token",
            &[&role, &token],
        )
        .await?;
    match passed {
        1 => Ok(()),
        _ => Err(format!("token {token} is stale: a later leader was here").into()),
    }
}
