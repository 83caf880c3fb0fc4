//! The connection for operations to a server: kept open in the background, and given up when an answer does not come.
//!
//! Whatever is asked while there is no connection fails at once, and provably did not happen; only a connection that is
//! being opened is waited for. How a connection is opened, and how statements go on it, is each store's own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::thread::{Backoff, closed};
use super::watches::Watches;
use crate::{Retry, Signal, StoreError};

/// A connection that lasted so long was a good one: the next is opened at once.
const SETTLED: Duration = Duration::from_secs(1);

/// An open connection, as the manager of connections sees it.
pub trait Connection: fmt::Debug + Send + Sync + 'static {
    /// Set when an answer did not come in time: what comes later must not be taken for another's.
    fn broken(&self) -> &CancellationToken;
    /// Which data the server had when this was opened.
    fn data_identity(&self) -> &DataIdentity;
    /// Whether it can still be asked, as far as is known.
    fn is_up(&self) -> bool {
        !self.broken().is_cancelled()
    }
}

/// What went wrong with a question that was sent.
pub trait OperationFailure {
    /// Whether the connection is of no use after it: it is gone, or what it was opened for is.
    fn ends_connection(&self) -> bool;
    /// What the caller is told.
    fn to_store_error(&self, server: &str) -> StoreError;
}

/// Which data a server has, and how far it had got when we connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataIdentity {
    /// Another identity means other data.
    pub identity: String,
    /// What only rises, if the server tells: the number of the last notifying write, the bytes of log that were on the disk.
    pub marks: [Option<u64>; 2],
}

impl DataIdentity {
    /// Whether this one may lack what `earlier` had: it is another one, or was set back.
    fn forgot(&self, earlier: &Self) -> bool {
        let mut marks = self.marks.iter().zip(&earlier.marks);
        let fell =
            |(now, then): (&Option<u64>, &Option<u64>)| now.zip(*then).is_some_and(|(now, then)| now < then);
        self.identity != earlier.identity || marks.any(fell)
    }
}

/// A server: of which store, where, and how long an answer of it is waited for.
#[derive(Debug, Clone)]
pub struct ServerAddress {
    /// For messages.
    pub store: &'static str,
    /// The host and what is on it, without a secret.
    pub name: String,
    /// How long an answer is waited for.
    pub patience: Duration,
}

impl ServerAddress {
    /// What a connection, or what only connects, is waited for.
    pub async fn connecting<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(self.patience, work).await.unwrap_or_else(|_| {
            let message = format!("{} did not answer within {:?} when connecting", self.name, self.patience);
            Err(StoreError::not_applied(self.store, message))
        })
    }

    fn unreachable(&self) -> StoreError {
        let message =
            format!("{} could not be reached within {:?}; nothing was sent", self.name, self.patience);
        StoreError::not_applied(self.store, message)
    }

    fn unanswered(&self) -> StoreError {
        StoreError::unknown(self.store, format!("{} did not answer within {:?}", self.name, self.patience))
    }
}

/// The connection as every holder of it sees it.
#[derive(Debug)]
enum State<S> {
    Connecting,
    Up(Arc<S>),
    Down { message: String, retry: Retry },
}

/// The connection for operations.
#[derive(Debug)]
pub struct ManagedConnection<S> {
    server: Arc<ServerAddress>,
    state: watch::Receiver<State<S>>,
}

impl<S> Clone for ManagedConnection<S> {
    fn clone(&self) -> Self {
        Self { server: self.server.clone(), state: self.state.clone() }
    }
}

/// An open connection, and what has to be done meanwhile, which ends when it does.
pub type OpenedConnection<S> = (Arc<S>, BoxFuture<'static, ()>);

impl<S: Connection> ManagedConnection<S> {
    /// A connection, and what keeps it open until dropped.
    pub fn new<F>(
        server: ServerAddress,
        watches: Arc<Watches>,
        open: impl Fn() -> F + Send,
    ) -> (Self, impl Future<Output = ()> + Send)
    where
        F: Future<Output = Result<OpenedConnection<S>, StoreError>> + Send,
    {
        let server = Arc::new(server);
        let (sender, state) = watch::channel(State::Connecting);
        let keeper = ConnectionKeeper { server: server.clone(), watches, state: sender, data: None };
        (Self { server, state }, keeper.keep(open))
    }

    /// The server that it leads to.
    #[must_use]
    pub fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// Until when an answer to what is asked now is waited for.
    #[must_use]
    pub fn until(&self) -> Instant {
        Instant::now() + self.server.patience
    }

    /// What precedes a question: if it takes too long, nothing was sent.
    pub async fn reached<T>(
        &self,
        until: Instant,
        before: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout_at(until, before).await.unwrap_or_else(|_| Err(self.server.unreachable()))
    }

    /// The answer to a question. A connection that does not give it in time is given up.
    pub async fn answered<T, E: OperationFailure>(
        &self,
        connection: &S,
        until: Instant,
        question: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StoreError> {
        match timeout_at(until, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failure)) => {
                if failure.ends_connection() {
                    connection.broken().cancel();
                }
                Err(failure.to_store_error(&self.server.name))
            }
            Err(_) => {
                connection.broken().cancel();
                Err(self.server.unanswered())
            }
        }
    }

    /// The open connection; the one that is being opened, if any; otherwise why there is none.
    pub async fn connection(&self) -> Result<Arc<S>, StoreError> {
        let store = self.server.store;
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up(connection) if connection.is_up() => return Ok(connection.clone()),
                State::Up(_) | State::Connecting => {}
                State::Down { message, retry } => {
                    let error = StoreError::not_applied(store, message.clone());
                    return Err(error.permanent_if(*retry == Retry::Never));
                }
            }
            if state.changed().await.is_err() {
                return Err(closed(store));
            }
        }
    }

    /// Waits until the server turns out to have other data than that.
    pub async fn other_data(&self, identity: &str) {
        let other = |state: &State<S>| matches!(state, State::Up(connection) if connection.data_identity().identity != identity);
        if self.state.clone().wait_for(other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The connection that is open now, if any.
    #[must_use]
    pub fn open_now(&self) -> Option<Arc<S>> {
        match &*self.state.borrow() {
            State::Up(connection) => Some(connection.clone()),
            State::Connecting | State::Down { .. } => None,
        }
    }
}

/// What keeps the connection open.
struct ConnectionKeeper<S> {
    server: Arc<ServerAddress>,
    watches: Arc<Watches>,
    state: watch::Sender<State<S>>,
    data: Option<DataIdentity>,
}

impl<S: Connection> ConnectionKeeper<S> {
    async fn keep<F>(mut self, open: impl Fn() -> F)
    where
        F: Future<Output = Result<OpenedConnection<S>, StoreError>>,
    {
        let mut backoff = Backoff::default();
        loop {
            self.state.send_replace(State::Connecting);
            match self.server.connecting(open()).await {
                Ok((connection, work)) => {
                    let opened = Instant::now();
                    self.serve(connection, work).await;
                    if opened.elapsed() > SETTLED {
                        backoff = Backoff::default();
                        continue;
                    }
                }
                Err(error) => self.down(&error),
            }
            backoff.wait().await;
        }
    }

    /// Lets every caller use the connection until it ends.
    async fn serve(&mut self, connection: Arc<S>, work: BoxFuture<'static, ()>) {
        let data = connection.data_identity().clone();
        if self.data.replace(data).is_some_and(|earlier| connection.data_identity().forgot(&earlier)) {
            self.watches.send_all(&Signal::Forgot);
        }
        let broken = connection.broken().clone();
        self.state.send_replace(State::Up(connection));
        tokio::select! {
            () = work => {}
            () = broken.cancelled() => {}
        }
        broken.cancel();
    }
}

impl<S> ConnectionKeeper<S> {
    fn down(&self, error: &StoreError) {
        let (text, prefix) = (error.to_string(), format!("{}: ", self.server.store));
        let message = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
        tracing::debug!(%message, "no connection");
        self.state.send_replace(State::Down { message, retry: error.retry() });
    }
}

/// A task that still holds the state must not keep the connection open.
impl<S> Drop for ConnectionKeeper<S> {
    fn drop(&mut self) {
        self.down(&closed(self.server.store));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_data_or_data_that_was_set_back_has_forgotten() {
        let data = |identity: &str, marks| DataIdentity { identity: identity.to_owned(), marks };
        let earlier = data("a", [Some(5), Some(7)]);
        for (later, forgot) in [
            (earlier.clone(), false),
            (data("a", [Some(6), Some(7)]), false),
            // A server that does not tell is believed.
            (data("a", [Some(5), None]), false),
            (data("a", [Some(4), Some(8)]), true),
            (data("a", [Some(6), Some(6)]), true),
            (data("b", [Some(9), Some(9)]), true),
        ] {
            assert_eq!(later.forgot(&earlier), forgot, "{later:?}");
        }
    }
}
