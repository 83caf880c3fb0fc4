//! The connection for operations: statements are pipelined, and many may be under way on it.

use std::ops::Deref;
use std::sync::Arc;

use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_postgres::Error;

use super::STORE;
use super::connection::PostgresConnection;
use super::error::OperationError;
use super::settings::PostgresSettings;
use tenure_store::StoreError;
use tenure_store::kit::connection::{ManagedConnection, OpenedConnection, ServerAddress};
use tenure_store::kit::watches::Watches;

/// The connection for operations.
#[derive(Debug, Clone)]
pub(super) struct Operations(ManagedConnection<PostgresConnection>);

impl Deref for Operations {
    type Target = ManagedConnection<PostgresConnection>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The connection for operations, and what keeps it open until dropped.
pub(super) fn keep(
    settings: Arc<PostgresSettings>,
    watches: Arc<Watches>,
) -> (Operations, impl Future<Output = ()> + Send) {
    let server = ServerAddress { store: STORE, name: settings.place.clone(), patience: settings.timeout };
    let (operations, keep) = ManagedConnection::new(server, watches, move || open(settings.clone()));
    (Operations(operations), keep)
}

impl Operations {
    /// Asks something, and waits for the answer no longer than an operation may take.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl FnOnce(Arc<PostgresConnection>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let until = self.until();
        let connection = self.reached(until, self.connection()).await?;
        self.answer(&connection, until, question(connection.clone())).await
    }

    /// The answer to what is asked on that connection, which is sent when this is first polled.
    pub(super) async fn answer<T>(
        &self,
        connection: &PostgresConnection,
        until: Instant,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        self.answered(connection, until, async { question.await.map_err(OperationError) }).await
    }
}

async fn open(settings: Arc<PostgresSettings>) -> Result<OpenedConnection<PostgresConnection>, StoreError> {
    let (connection, mut wire) = PostgresConnection::open(&settings).await?;
    // Polling the wire is what moves bytes.
    let work = async move { while let Some(Ok(_)) = wire.next().await {} };
    Ok((Arc::new(connection), Box::pin(work)))
}
