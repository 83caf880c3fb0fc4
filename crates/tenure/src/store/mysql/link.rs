//! The connection for operations: kept open in the background, and given up when an answer does not come.
//!
//! Statements go one after the other. Whatever is asked while there is no connection fails at once, and provably did not
//! happen; only a connection that is being opened is waited for.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use tokio::sync::{Notify, OwnedMutexGuard, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::super::hub::Hub;
use super::super::room::{Backoff, closed};
use super::super::{Retry, Signal, StoreError};
use super::STORE;
use super::fault::{self, Fault};
use super::session::{Memory, Session, Wire};
use super::settings::Settings;

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
    suspicion: Arc<Notify>,
}

impl Link {
    /// A link, and what keeps it open until dropped.
    pub(super) fn new(settings: Arc<Settings>, hub: Arc<Hub>) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, state) = watch::channel(State::Connecting);
        let suspicion = Arc::new(Notify::new());
        let keeper = Keeper {
            settings: settings.clone(),
            hub,
            state: sender,
            memory: None,
            suspicion: suspicion.clone(),
        };
        (Self { settings, state, suspicion }, keeper.keep())
    }

    /// Asks something, and waits for the answer no longer than an operation may take.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl FnOnce(OwnedMutexGuard<Wire>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let until = Instant::now() + self.settings.timeout;
        let turn = async {
            let session = self.session().await?;
            let wire = session.wire.clone().lock_owned().await;
            Ok((session, wire))
        };
        let (session, wire) = timeout_at(until, turn).await.unwrap_or_else(|_| Err(self.unreachable()))?;
        if session.broken.is_cancelled() {
            return Err(self.unreachable());
        }
        // Whoever stops waiting in the middle leaves an answer on the wire that the next would take for its own.
        let abandoned = session.broken.clone().drop_guard();
        let answered = timeout_at(until, question(wire)).await;
        abandoned.disarm();
        match answered {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(fault)) => {
                if fault::ends_connection(&fault.error) {
                    session.broken.cancel();
                }
                Err(fault::of(&self.settings.place, &fault))
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
                State::Up(session) if !session.broken.is_cancelled() => return Ok(session.clone()),
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

    /// Another connection to the server was lost: looks whether this one was too.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Resolves when the connection that is open now is given up; at once if there is none.
    pub(super) async fn lost(&self) {
        let up = match &*self.state.borrow() {
            State::Up(session) => Some(session.broken.clone()),
            _ => None,
        };
        if let Some(broken) = up {
            broken.cancelled().await;
        }
    }

    fn unreachable(&self) -> StoreError {
        let (place, patience) = (&self.settings.place, self.settings.timeout);
        let message = format!("{place} could not be reached within {patience:?}; nothing was sent");
        StoreError::not_applied(STORE, message)
    }
}

/// What keeps the connection open.
struct Keeper {
    settings: Arc<Settings>,
    hub: Arc<Hub>,
    state: watch::Sender<State>,
    memory: Option<Memory>,
    suspicion: Arc<Notify>,
}

impl Keeper {
    async fn keep(mut self) {
        let mut backoff = Backoff::default();
        loop {
            self.state.send_replace(State::Connecting);
            match timeout(self.settings.timeout, Session::open(&self.settings)).await {
                Ok(Ok(session)) => {
                    let opened = Instant::now();
                    self.serve(Arc::new(session)).await;
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

    /// Lets everybody use the connection until it ends.
    async fn serve(&mut self, session: Arc<Session>) {
        let forgot = self.memory.as_ref().is_some_and(|earlier| session.memory.forgot(earlier));
        self.memory = Some(session.memory.clone());
        if forgot {
            self.hub.send_all(&Signal::Forgot);
        }
        self.state.send_replace(State::Up(session.clone()));
        loop {
            tokio::select! {
                () = session.broken.cancelled() => return,
                () = self.suspicion.notified() => self.prove(&session).await,
            }
        }
    }

    /// Sees whether the server still answers, unless an operation is about to find out anyway.
    async fn prove(&self, session: &Session) {
        let Ok(mut wire) = session.wire.clone().try_lock_owned() else { return };
        let alive = timeout(self.settings.timeout, wire.conn.ping()).await;
        if !matches!(alive, Ok(Ok(()))) {
            session.broken.cancel();
        }
    }

    fn down(&self, error: &StoreError) {
        let text = error.to_string();
        let message = text.strip_prefix("mysql: ").unwrap_or(&text).to_owned();
        tracing::debug!(%message, "no connection");
        self.state.send_replace(State::Down { message, retry: error.retry() });
    }
}

/// Whoever still looks at the state must not keep the connection open.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.down(&closed(STORE));
    }
}

pub(super) fn no_answer(settings: &Settings) -> StoreError {
    let (place, patience) = (&settings.place, settings.timeout);
    StoreError::not_applied(STORE, format!("{place} did not answer within {patience:?} when connecting"))
}
