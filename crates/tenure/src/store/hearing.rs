//! The second connection to a server, the one that listens: opened when somebody wants to hear, and whether it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, watch};

/// Whether changes are heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hearing {
    /// Not known yet, or being tried again.
    Trying,
    Works,
    /// It failed, for now.
    Failed(String),
    /// Something stands between, and the server's connections are not ours.
    Pooled,
}

/// What everybody sees of the connection that listens.
#[derive(Debug)]
pub(super) struct Listening {
    wanted: Arc<Wanted>,
    hearing: watch::Receiver<Hearing>,
}

#[derive(Debug, Default)]
struct Wanted(AtomicBool, Notify);

impl Listening {
    /// Has `listen` begin when somebody wants to hear; it says through the sender whether it works.
    pub(super) fn new<F>(
        listen: impl FnOnce(watch::Sender<Hearing>) -> F + Send,
    ) -> (Self, impl Future<Output = ()> + Send)
    where
        F: Future<Output = ()> + Send,
    {
        let wanted = Arc::new(Wanted::default());
        let (sender, hearing) = watch::channel(Hearing::Trying);
        let want = wanted.clone();
        let begin = async move {
            while !want.0.load(Ordering::Acquire) {
                want.1.notified().await;
            }
            listen(sender).await;
        };
        (Self { wanted, hearing }, begin)
    }

    /// Somebody wants to hear.
    pub(super) fn open(&self) {
        if !self.wanted.0.swap(true, Ordering::AcqRel) {
            self.wanted.1.notify_one();
        }
    }

    /// Whether somebody wanted to hear.
    #[cfg(feature = "mysql")]
    pub(super) fn is_open(&self) -> bool {
        self.wanted.0.load(Ordering::Acquire)
    }

    /// Whether changes are heard, once that is known.
    pub(super) async fn hearing(&self) -> Hearing {
        self.open();
        let mut hearing = self.hearing.clone();
        let known = hearing.wait_for(|hearing| *hearing != Hearing::Trying).await;
        known.map_or(Hearing::Trying, |hearing| hearing.clone())
    }
}
