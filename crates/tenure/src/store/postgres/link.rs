//! The connection for operations: kept open in the background, and given up when an answer does not come.
//!
//! Statements are pipelined: many may be under way on it. Whatever is asked while there is no connection fails at once,
//! and provably did not happen; only a connection that is being opened is waited for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Error;

use super::super::hub::Hub;
use super::super::room::{Backoff, closed};
use super::super::{Retry, Signal, StoreError};
use super::session::{Memory, Session, Wire};
use super::settings::Settings;
use super::{STORE, fault};

/// A connection that lasted so long was a good one: the next is opened at once.
const SETTLED: Duration = Duration::from_secs(1);

/// The connection as everybody sees it.
#[derive(Debug, Clone)]
enum State {
    Connecting,
    Up(Arc<Session>),
    Down { message: String, retry: Retry },
}

/// The connection for operations.
#[derive(Debug, Clone)]
pub(super) struct Link {
    settings: Arc<Settings>,
    state: watch::Receiver<State>,
}

impl Link {
    /// A link, and what keeps it open until dropped.
    pub(super) fn new(settings: Arc<Settings>, hub: Arc<Hub>) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, state) = watch::channel(State::Connecting);
        let keeper = Keeper { settings: settings.clone(), hub, state: sender, memory: None };
        (Self { settings, state }, keeper.keep())
    }

    /// Asks something, and waits for the answer no longer than an operation may take.
    pub(super) async fn ask<T, F>(&self, question: impl FnOnce(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let until = Instant::now() + self.settings.timeout;
        let session = timeout_at(until, self.session()).await.unwrap_or_else(|_| Err(self.unreachable()))?;
        match timeout_at(until, question(session.clone())).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if fault::ends_connection(&error) {
                    session.broken.cancel();
                }
                Err(fault::of(&self.settings.place, &error))
            }
            Err(_) => {
                session.broken.cancel();
                let (place, patience) = (&self.settings.place, self.settings.timeout);
                Err(StoreError::unknown(STORE, format!("{place} did not answer within {patience:?}")))
            }
        }
    }

    /// The open connection; the one that is being opened, if any; otherwise why there is none.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up(session) if !session.client.is_closed() && !session.broken.is_cancelled() => {
                    return Ok(session.clone());
                }
                State::Up(_) | State::Connecting => {}
                State::Down { message, retry } => {
                    let error = StoreError::not_applied(STORE, message.clone());
                    return Err(if *retry == Retry::Never { error.permanent() } else { error });
                }
            }
            if state.changed().await.is_err() {
                return Err(closed(STORE));
            }
        }
    }

    fn unreachable(&self) -> StoreError {
        let (place, patience) = (&self.settings.place, self.settings.timeout);
        StoreError::not_applied(
            STORE,
            format!("{place} could not be reached within {patience:?}; nothing was sent"),
        )
    }
}

/// What keeps the connection open.
struct Keeper {
    settings: Arc<Settings>,
    hub: Arc<Hub>,
    state: watch::Sender<State>,
    memory: Option<Memory>,
}

impl Keeper {
    async fn keep(mut self) {
        let mut backoff = Backoff::default();
        loop {
            self.state.send_replace(State::Connecting);
            match timeout(self.settings.timeout, Session::open(&self.settings)).await {
                Ok(Ok((session, wire))) => {
                    let opened = Instant::now();
                    self.serve(Arc::new(session), wire).await;
                    if opened.elapsed() > SETTLED {
                        backoff = Backoff::default();
                        continue;
                    }
                }
                Ok(Err(error)) => self.down(&error),
                Err(_) => self.down(&no_answer(&self.settings)),
            }
            backoff.wait().await;
        }
    }

    /// Moves bytes until the connection ends.
    async fn serve(&mut self, session: Arc<Session>, mut wire: Wire) {
        let forgot = self.memory.as_ref().is_some_and(|earlier| session.memory.forgot(earlier));
        self.memory = Some(session.memory.clone());
        if forgot {
            self.hub.send_all(&Signal::Forgot);
        }
        let broken = session.broken.clone();
        self.state.send_replace(State::Up(session));
        let ended = async { while let Some(Ok(_)) = wire.next().await {} };
        tokio::select! {
            () = ended => {}
            () = broken.cancelled() => {}
        }
        broken.cancel();
    }

    fn down(&self, error: &StoreError) {
        let text = error.to_string();
        let message = text.strip_prefix("postgres: ").unwrap_or(&text).to_owned();
        tracing::debug!(%message, "no connection");
        self.state.send_replace(State::Down { message, retry: error.retry() });
    }
}

pub(super) fn no_answer(settings: &Settings) -> StoreError {
    let (place, patience) = (&settings.place, settings.timeout);
    StoreError::not_applied(STORE, format!("{place} did not answer within {patience:?} when connecting"))
}
