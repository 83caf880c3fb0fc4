//! The application's own connection, and its tables.

use std::error::Error;

use tokio_postgres::{Client, NoTls};

/// What can go wrong, told as it is.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// Makes the tables, once; the first node does.
pub(crate) async fn prepare(url: &str) -> Result<(), Fault> {
    let mut client = connect(url).await?;
    let mut transaction = client.transaction().await?;
    // Two that create a table at once would both fail.
    transaction.batch_execute("SELECT pg_advisory_xact_lock(7031)").await?;
    transaction.batch_execute(include_str!("schema.sql")).await?;
    tenure::fence::create_table(&mut transaction).await?;
    Ok(transaction.commit().await?)
}

/// A connection of its own. A node that is frozen within a transaction holds its rows: the server does not wait for that.
pub(crate) async fn connect(url: &str) -> Result<Client, Fault> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("SET idle_in_transaction_session_timeout = '2s'").await?;
    Ok(client)
}
