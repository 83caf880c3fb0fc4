//! The connection for operations: statements go on it one after the other.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::time::timeout;

use super::STORE;
use super::connection::{MysqlConnection, Wire};
use super::error::OperationError;
use super::settings::MysqlSettings;
use tenure_store::StoreError;
use tenure_store::kit::connection::{ManagedConnection, OpenedConnection, ServerAddress};
use tenure_store::kit::watches::Watches;

/// The connection for operations.
#[derive(Debug, Clone)]
pub(super) struct Operations {
    connection: ManagedConnection<MysqlConnection>,
    suspicion: Arc<Notify>,
}

impl Operations {
    /// The connection for operations, and what keeps it open until dropped.
    pub(super) fn new(
        settings: Arc<MysqlSettings>,
        watches: Arc<Watches>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let server = ServerAddress { store: STORE, name: settings.place.clone(), patience: settings.timeout };
        let suspicion = Arc::new(Notify::new());
        let suspected = suspicion.clone();
        let open = move || open(settings.clone(), suspected.clone());
        let (connection, keep) = ManagedConnection::new(server, watches, open);
        (Self { connection, suspicion }, keep)
    }

    /// Asks something when its turn comes, and waits for the answer no longer than an operation may take.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl FnOnce(OwnedMutexGuard<Wire>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, OperationError>>,
    {
        let until = self.connection.until();
        let turn = async {
            loop {
                let connection = self.connection().await?;
                let wire = connection.wire.clone().lock_owned().await;
                if !connection.broken.is_cancelled() {
                    return Ok((connection, wire));
                }
            }
        };
        let (connection, wire) = self.connection.reached(until, turn).await?;
        // A caller that stops waiting in the middle leaves an answer on the wire that the next would take for its own.
        let abandoned = connection.broken.clone().drop_guard();
        let answered = self.connection.answered(&connection, until, question(wire)).await;
        abandoned.disarm();
        answered
    }

    /// The open connection; the one that is being opened, if any; otherwise why there is none.
    pub(super) async fn connection(&self) -> Result<Arc<MysqlConnection>, StoreError> {
        self.connection.connection().await
    }

    /// The server that it leads to.
    pub(super) fn server(&self) -> &ServerAddress {
        self.connection.server()
    }

    /// Another connection to the server was lost: looks whether this one was too.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Resolves when the connection that is open now is given up; at once if there is none.
    pub(super) async fn lost(&self) {
        if let Some(connection) = self.connection.open_now() {
            connection.broken.cancelled().await;
        }
    }
}

async fn open(
    settings: Arc<MysqlSettings>,
    suspicion: Arc<Notify>,
) -> Result<OpenedConnection<MysqlConnection>, StoreError> {
    let connection = Arc::new(MysqlConnection::open(&settings).await?);
    let suspected = connection.clone();
    let work = async move {
        loop {
            suspicion.notified().await;
            prove(&settings, &suspected).await;
        }
    };
    Ok((connection, Box::pin(work)))
}

/// Sees whether the server still answers, unless an operation is about to find out anyway.
async fn prove(settings: &MysqlSettings, connection: &MysqlConnection) {
    let Ok(mut wire) = connection.wire.clone().try_lock_owned() else { return };
    let alive = timeout(settings.timeout, wire.conn.ping()).await;
    if !matches!(alive, Ok(Ok(()))) {
        connection.broken.cancel();
    }
}
