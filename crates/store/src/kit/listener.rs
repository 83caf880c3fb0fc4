//! The second connection to a server, the one that listens: opened when a watch needs it, and whether it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::thread::Backoff;
use super::watches::Watches;
use crate::{Signal, StoreError};

/// Whether changes of others arrive at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerState {
    /// Not known yet, or being tried again.
    Trying,
    /// At once.
    Works,
    /// It failed, for now.
    Failed(String),
    /// Something stands between, and the server's connections are not ours.
    Pooled,
}

/// The connection that listens, as the rest of a handle sees it.
#[derive(Debug)]
pub struct ListenerHandle {
    wanted: Arc<OpenRequest>,
    state: watch::Receiver<ListenerState>,
}

#[derive(Debug, Default)]
struct OpenRequest(AtomicBool, Notify);

/// How a store listens on a connection of its own.
pub trait Listen: Send + 'static {
    /// An open connection that listens.
    type Listening: Send;

    /// Opens it; none if something stands between, and listening there would lose changes.
    fn open(&mut self) -> impl Future<Output = Result<Option<Self::Listening>, StoreError>> + Send;

    /// Passes on what arrives, until the connection ends.
    fn follow(&mut self, listening: Self::Listening) -> impl Future<Output = ()> + Send;

    /// It ended, or could not be opened, and is tried again in a moment.
    fn lost(&mut self) {}
}

impl ListenerHandle {
    /// A connection that listens once a watch needs it, and what keeps it open until dropped.
    pub fn new(watches: Arc<Watches>, listen: impl Listen) -> (Self, impl Future<Output = ()> + Send) {
        let wanted = Arc::new(OpenRequest::default());
        let (sender, state) = watch::channel(ListenerState::Trying);
        let want = wanted.clone();
        let begin = async move {
            while !want.0.load(Ordering::Acquire) {
                want.1.notified().await;
            }
            keep_listening(listen, &sender, &watches).await;
        };
        (Self { wanted, state }, begin)
    }

    /// Opens the connection that listens.
    pub fn open(&self) {
        if !self.wanted.0.swap(true, Ordering::AcqRel) {
            self.wanted.1.notify_one();
        }
    }

    /// Whether it was opened.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.wanted.0.load(Ordering::Acquire)
    }

    /// Whether changes arrive, as far as that is known by then.
    pub async fn state_within(&self, patience: Duration) -> ListenerState {
        let state = timeout(patience, self.state()).await;
        state.unwrap_or_else(|_| ListenerState::Failed("it takes too long".to_owned()))
    }

    /// Whether changes arrive, once that is known.
    pub async fn state(&self) -> ListenerState {
        self.open();
        let mut state = self.state.clone();
        let known = state.wait_for(|state| *state != ListenerState::Trying).await;
        known.map_or(ListenerState::Trying, |state| state.clone())
    }
}

async fn keep_listening(mut listen: impl Listen, state: &watch::Sender<ListenerState>, watches: &Watches) {
    let mut backoff = Backoff::default();
    loop {
        match listen.open().await {
            Ok(Some(listening)) => {
                backoff = Backoff::default();
                state.send_replace(ListenerState::Works);
                // Whatever happened before is not known.
                watches.send_all(&Signal::Resync);
                listen.follow(listening).await;
                state.send_replace(ListenerState::Trying);
            }
            Ok(None) => drop(state.send_replace(ListenerState::Pooled)),
            Err(error) => drop(state.send_replace(ListenerState::Failed(error.to_string()))),
        }
        listen.lost();
        backoff.wait().await;
    }
}
