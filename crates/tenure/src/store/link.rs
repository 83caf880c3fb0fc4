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

use super::hub::Hub;
use super::room::{Backoff, closed};
use super::{Retry, Signal, StoreError};

/// A connection that lasted so long was a good one: the next is opened at once.
const SETTLED: Duration = Duration::from_secs(1);

/// An open connection, as the link sees it.
pub(super) trait Session: fmt::Debug + Send + Sync + 'static {
    /// Set when an answer did not come in time: what comes later must not be taken for another's.
    fn broken(&self) -> &CancellationToken;
    fn memory(&self) -> &Memory;
    /// Whether it can still be asked, as far as anybody knows.
    fn is_up(&self) -> bool {
        !self.broken().is_cancelled()
    }
}

/// What went wrong with a question that was sent.
pub(super) trait Fault {
    /// Whether the connection is of no use after it: it is gone, or what it was opened for is.
    fn ends_connection(&self) -> bool;
    fn told(&self, place: &str) -> StoreError;
}

/// Which memory a server has, and how far it had got when we connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) identity: String,
    /// What only rises, if the server tells: the number of the last ring, the bytes of log that were on the disk.
    pub(super) marks: [Option<u64>; 2],
}

impl Memory {
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
pub(super) struct Place {
    pub(super) store: &'static str,
    pub(super) name: String,
    pub(super) patience: Duration,
}

impl Place {
    /// What a connection, or what only connects, is waited for.
    pub(super) async fn connecting<T>(
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

/// The connection as everybody sees it.
#[derive(Debug)]
enum State<S> {
    Connecting,
    Up(Arc<S>),
    Down { message: String, retry: Retry },
}

/// The connection for operations.
#[derive(Debug)]
pub(super) struct Link<S> {
    place: Arc<Place>,
    state: watch::Receiver<State<S>>,
}

impl<S> Clone for Link<S> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), state: self.state.clone() }
    }
}

/// An open connection, and what has to be done meanwhile, which ends when it does.
pub(super) type Opened<S> = (Arc<S>, BoxFuture<'static, ()>);

impl<S: Session> Link<S> {
    /// A link, and what keeps it open until dropped.
    pub(super) fn new<F>(
        place: Place,
        hub: Arc<Hub>,
        open: impl Fn() -> F + Send,
    ) -> (Self, impl Future<Output = ()> + Send)
    where
        F: Future<Output = Result<Opened<S>, StoreError>> + Send,
    {
        let place = Arc::new(place);
        let (sender, state) = watch::channel(State::Connecting);
        let keeper = Keeper { place: place.clone(), hub, state: sender, memory: None };
        (Self { place, state }, keeper.keep(open))
    }

    /// The server that it leads to.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Until when an answer to what is asked now is waited for.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.place.patience
    }

    /// What precedes a question: if it takes too long, nothing was sent.
    pub(super) async fn reached<T>(
        &self,
        until: Instant,
        before: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout_at(until, before).await.unwrap_or_else(|_| Err(self.place.unreachable()))
    }

    /// The answer to a question. A connection that does not give it in time is given up.
    pub(super) async fn answered<T, E: Fault>(
        &self,
        session: &S,
        until: Instant,
        question: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StoreError> {
        match timeout_at(until, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(fault)) => {
                if fault.ends_connection() {
                    session.broken().cancel();
                }
                Err(fault.told(&self.place.name))
            }
            Err(_) => {
                session.broken().cancel();
                Err(self.place.unanswered())
            }
        }
    }

    /// The open connection; the one that is being opened, if any; otherwise why there is none.
    pub(super) async fn session(&self) -> Result<Arc<S>, StoreError> {
        let store = self.place.store;
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up(session) if session.is_up() => return Ok(session.clone()),
                State::Up(_) | State::Connecting => {}
                State::Down { message, retry } => {
                    let error = StoreError::not_applied(store, message.clone());
                    return Err(if *retry == Retry::Never { error.permanent() } else { error });
                }
            }
            if state.changed().await.is_err() {
                return Err(closed(store));
            }
        }
    }

    /// The connection that is open now, if any.
    #[cfg(feature = "mysql")]
    pub(super) fn open_now(&self) -> Option<Arc<S>> {
        match &*self.state.borrow() {
            State::Up(session) => Some(session.clone()),
            State::Connecting | State::Down { .. } => None,
        }
    }
}

/// What keeps the connection open.
struct Keeper<S> {
    place: Arc<Place>,
    hub: Arc<Hub>,
    state: watch::Sender<State<S>>,
    memory: Option<Memory>,
}

impl<S: Session> Keeper<S> {
    async fn keep<F>(mut self, open: impl Fn() -> F)
    where
        F: Future<Output = Result<Opened<S>, StoreError>>,
    {
        let mut backoff = Backoff::default();
        loop {
            self.state.send_replace(State::Connecting);
            match self.place.connecting(open()).await {
                Ok((session, work)) => {
                    let opened = Instant::now();
                    self.serve(session, work).await;
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

    /// Lets everybody use the connection until it ends.
    async fn serve(&mut self, session: Arc<S>, work: BoxFuture<'static, ()>) {
        let memory = session.memory().clone();
        if self.memory.replace(memory).is_some_and(|earlier| session.memory().forgot(&earlier)) {
            self.hub.send_all(&Signal::Forgot);
        }
        let broken = session.broken().clone();
        self.state.send_replace(State::Up(session));
        tokio::select! {
            () = work => {}
            () = broken.cancelled() => {}
        }
        broken.cancel();
    }
}

impl<S> Keeper<S> {
    fn down(&self, error: &StoreError) {
        let (text, prefix) = (error.to_string(), format!("{}: ", self.place.store));
        let message = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
        tracing::debug!(%message, "no connection");
        self.state.send_replace(State::Down { message, retry: error.retry() });
    }
}

/// Whoever still looks at the state must not keep the connection open.
impl<S> Drop for Keeper<S> {
    fn drop(&mut self) {
        self.down(&closed(self.place.store));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_memory_or_one_that_was_set_back_has_forgotten() {
        let memory = |identity: &str, marks| Memory { identity: identity.to_owned(), marks };
        let earlier = memory("a", [Some(5), Some(7)]);
        for (later, forgot) in [
            (earlier.clone(), false),
            (memory("a", [Some(6), Some(7)]), false),
            // A server that does not tell is believed.
            (memory("a", [Some(5), None]), false),
            (memory("a", [Some(4), Some(8)]), true),
            (memory("a", [Some(6), Some(6)]), true),
            (memory("b", [Some(9), Some(9)]), true),
        ] {
            assert_eq!(later.forgot(&earlier), forgot, "{later:?}");
        }
    }
}
