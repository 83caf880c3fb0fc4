//! The watch: acknowledgements of all writes that notify, as the leader of the stream sends them.
//!
//! It is a subscription on the connection for operations. A connection that ends takes it along, and every opening is followed
//! by a resync. What a server does not pass on while it has lost the others is found at the next poll.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::STORE;
use super::connection::NatsConnection;
use super::operations::{Acknowledgement, Operations};
use super::wire::Message;
use tenure_store::kit::listener::Listen;
use tenure_store::kit::watches::Watches;
use tenure_store::{Signal, StoreError};

pub(super) struct NatsListener {
    pub(super) operations: Arc<Operations>,
    pub(super) watches: Arc<Watches>,
}

impl Listen for NatsListener {
    type Listening = (UnboundedReceiver<Message>, Arc<NatsConnection>);

    async fn open(&mut self) -> Result<Option<Self::Listening>, StoreError> {
        let operations = &self.operations;
        let until = operations.until();
        let connection = operations.connection(until).await?;
        let subject = operations.keys.all_changes();
        let opened = tokio::time::timeout_at(until, connection.subscribe(&subject)).await.ok().flatten();
        match opened {
            Some(messages) => Ok(Some((messages, connection))),
            None if connection.may_not_hear(&subject) => {
                let message = "this user may not listen to changes: give it the rights that `tenure schema --for nats` prints";
                Err(StoreError::not_applied(STORE, message).permanent())
            }
            None => Err(StoreError::not_applied(STORE, format!("{} broke off", connection.link.place))),
        }
    }

    async fn follow(&mut self, (messages, connection): Self::Listening) {
        connection.link.follow(messages, |message| self.tell(message)).await;
    }
}

impl NatsListener {
    /// A refusal changed nothing; what this version cannot have asked for is another program's, and means nothing.
    fn tell(&self, message: &Message) {
        let keys = &self.operations.keys;
        let answer: Option<Acknowledgement> = serde_json::from_slice(&message.payload).ok();
        let applied = answer
            .is_some_and(|answer| answer.error.is_none() && answer.seq > 0 && answer.stream == keys.stream());
        if let Some((namespace, key)) = keys.read_change(&message.subject).filter(|_| applied) {
            self.watches.send(&namespace, &Signal::Changed(key));
        }
    }
}
