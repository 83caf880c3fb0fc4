//! The watch: what writes that notify make and delete again, as the server of the connection sees it.
//!
//! It is a persistent watch on the connection for operations. A connection that ends takes it along, and every opening is followed
//! by a resync.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::connection::ZooKeeperConnection;
use super::error::{self, code};
use super::operations::Operations;
use super::wire::{Question, op};
use tenure_store::kit::listener::Listen;
use tenure_store::kit::watches::Watches;
use tenure_store::{Signal, StoreError};

/// Tells of everything under a path, again and again.
const PERSISTENT_RECURSIVE: i32 = 1;

pub(super) struct ZooKeeperListener {
    pub(super) operations: Arc<Operations>,
    pub(super) watches: Arc<Watches>,
}

impl Listen for ZooKeeperListener {
    type Listening = (UnboundedReceiver<String>, Arc<ZooKeeperConnection>);

    async fn open(&mut self) -> Result<Option<Self::Listening>, StoreError> {
        let operations = &self.operations;
        let until = operations.until();
        let connection = operations.connection(until).await?;
        let events = connection.events();
        let watch = Question::about(op::ADD_WATCH, &operations.keys.changes()).int(PERSISTENT_RECURSIVE);
        let reply = operations.answer(&connection, connection.ask(watch), until).await;
        match reply.map_err(StoreError::only_looked)?.code {
            code::OK => Ok(Some((events, connection))),
            code => Err(error::of_code(&connection.link.place, code).only_looked()),
        }
    }

    async fn follow(&mut self, (messages, connection): Self::Listening) {
        connection.link.follow(messages, |message| self.tell(message)).await;
    }
}

impl ZooKeeperListener {
    /// What this version cannot have made is another program's, and means nothing.
    fn tell(&self, path: &str) {
        if let Some((namespace, key)) = self.operations.keys.read_change(path) {
            self.watches.send(&namespace, &Signal::Changed(key));
        }
    }
}
