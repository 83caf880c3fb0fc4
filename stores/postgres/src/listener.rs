//! The connection that listens: one channel for every change that notifies, named after the id of the tables, so that a
//! login without grants does not know it. What arrives there is never believed all the same: it says what to read.
//!
//! A listener must be one process of the server for as long as it listens. A pooler that lends another one to every
//! statement loses notifications without a word; so nothing listens there, and the description says so.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::connection::{PostgresConnection, Wire, connect, while_polled};
use super::operations::Operations;
use super::rows;
use super::settings::PostgresSettings;
use super::{STORE, error};
use tenure_store::kit::listener::{Listen, ListenerHandle, ListenerState};
use tenure_store::kit::thread::closed;
use tenure_store::kit::watches::Watches;
use tenure_store::{Key, Name, Signal, StoreError};

/// The connection that listens, opened when a watch needs it.
#[derive(Debug)]
pub(super) struct PostgresListener {
    handle: ListenerHandle,
    connection: watch::Receiver<Option<Arc<ListenerConnection>>>,
}

/// The connection that listens, for what must be done on one that lives as long as the handle can keep it.
pub(super) struct ListenerConnection {
    pub(super) client: tokio_postgres::Client,
    /// It is gone, or to be given up.
    pub(super) lost: CancellationToken,
}

impl fmt::Debug for ListenerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerConnection").field("lost", &self.lost.is_cancelled()).finish_non_exhaustive()
    }
}

impl PostgresListener {
    /// The connection that listens, and what keeps it open until dropped.
    pub(super) fn new(
        settings: Arc<PostgresSettings>,
        watches: Arc<Watches>,
        operations: Operations,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (up, connection) = watch::channel(None);
        let task = ListenerTask { settings, watches: watches.clone(), operations, connection: up };
        let (handle, listen) = ListenerHandle::new(watches, task);
        (Self { handle, connection }, listen)
    }

    pub(super) fn open(&self) {
        self.handle.open();
    }

    /// The connection itself, once it is there; none if a pooler stands between.
    pub(super) async fn connection(&self) -> Result<Option<Arc<ListenerConnection>>, StoreError> {
        match self.handle.state().await {
            ListenerState::Works | ListenerState::Trying => {}
            ListenerState::Pooled => return Ok(None),
            ListenerState::Failed(why) => return Err(StoreError::not_applied(STORE, why)),
        }
        let up = |connection: &Option<Arc<ListenerConnection>>| {
            connection.as_ref().is_some_and(|connection| !connection.lost.is_cancelled())
        };
        let mut connection = self.connection.clone();
        connection.wait_for(up).await.map(|connection| connection.clone()).map_err(|_| closed(STORE))
    }

    /// Whether changes arrive, as far as that is known by then.
    pub(super) async fn state_within(&self, patience: Duration) -> ListenerState {
        self.handle.state_within(patience).await
    }
}

struct ListenerTask {
    settings: Arc<PostgresSettings>,
    watches: Arc<Watches>,
    operations: Operations,
    connection: watch::Sender<Option<Arc<ListenerConnection>>>,
}

impl Listen for ListenerTask {
    type Listening = (tokio_postgres::Client, Wire, Arc<PostgresConnection>);

    async fn open(&mut self) -> Result<Option<Self::Listening>, StoreError> {
        self.operations.server().connecting(self.connect()).await
    }

    async fn follow(&mut self, (client, wire, of): Self::Listening) {
        let lost = CancellationToken::new();
        self.connection.send_replace(Some(Arc::new(ListenerConnection { client, lost: lost.clone() })));
        tokio::select! {
            () = self.receive(wire) => {}
            () = lost.cancelled() => {}
            // Other data has another channel.
            () = self.operations.other_data(&of.data.identity) => {}
        }
        lost.cancel();
        self.connection.send_replace(None);
    }
}

impl ListenerTask {
    /// A connection, and which data it tells of; none if a pooler stands between.
    async fn connect(&self) -> Result<Option<<Self as Listen>::Listening>, StoreError> {
        let connection = self.operations.connection().await?;
        if !connection.direct {
            return Ok(None);
        }
        let (client, mut wire, with_options) = connect(&self.settings).await?;
        let listen = async {
            let failed = |error| error::connecting(&self.settings.place, &error);
            let before = backend(&client).await.map_err(failed)?;
            client.batch_execute(&connection.listen).await.map_err(failed)?;
            Ok(before == backend(&client).await.map_err(failed)?)
        };
        let same = while_polled(&mut wire, listen).await?;
        Ok((same && with_options).then_some((client, wire, connection)))
    }

    async fn receive(&self, mut wire: Wire) {
        while let Some(Ok(message)) = wire.next().await {
            if let AsyncMessage::Notification(notification) = message {
                self.tell(notification.payload());
            }
        }
    }

    fn tell(&self, payload: &str) {
        // What we cannot have written is another program's, and means nothing.
        if let Some((namespace, key)) = named(payload) {
            self.watches.send(&namespace, &Signal::Changed(key));
        }
    }
}

async fn backend(client: &tokio_postgres::Client) -> Result<i32, tokio_postgres::Error> {
    Ok(client.query_typed_one("SELECT pg_backend_pid()", &[]).await?.get(0))
}

/// Which register a notification names, as `tenure_notify_v2` writes it.
fn named(payload: &str) -> Option<(Name, Key)> {
    let parts: Vec<&str> = payload.split('\n').collect();
    let [namespace, epoch, kind, name] = parts[..] else { return None };
    Some((Name::new(namespace).ok()?, rows::key(epoch, kind, name)?))
}

#[cfg(test)]
mod tests {
    use tenure_core::{Epoch, Kind};

    use super::*;

    #[test]
    fn notifications_are_read_as_they_are_written() {
        let key = Key::Named(Epoch::new(7), Kind::RoleControl, Name::new("a.b").unwrap());
        let (space, told) = named("space\n7\ncontrol/role\na.b").unwrap();
        assert_eq!((space.as_str(), told), ("space", key));
        for strange in ["", "a b", "space", "space\n7\nnope\na", "space\nx\nrole\na", "space\n7\nrole\na\n{}"]
        {
            assert!(named(strange).is_none(), "{strange}");
        }
    }
}
