//! The connection for operations: statements go on it one after the other.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::time::timeout;

use super::super::StoreError;
use super::super::hub::Hub;
use super::super::link::{self, Opened, Place};
use super::STORE;
use super::fault::Fault;
use super::session::{Session, Wire};
use super::settings::Settings;

/// The connection for operations.
#[derive(Debug, Clone)]
pub(super) struct Link {
    link: link::Link<Session>,
    suspicion: Arc<Notify>,
}

impl Link {
    /// A link, and what keeps it open until dropped.
    pub(super) fn new(settings: Arc<Settings>, hub: Arc<Hub>) -> (Self, impl Future<Output = ()> + Send) {
        let place = Place { store: STORE, name: settings.place.clone(), patience: settings.timeout };
        let suspicion = Arc::new(Notify::new());
        let suspected = suspicion.clone();
        let open = move || open(settings.clone(), suspected.clone());
        let (link, keep) = link::Link::new(place, hub, open);
        (Self { link, suspicion }, keep)
    }

    /// Asks something when its turn comes, and waits for the answer no longer than an operation may take.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl FnOnce(OwnedMutexGuard<Wire>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let until = self.link.until();
        let turn = async {
            loop {
                let session = self.session().await?;
                let wire = session.wire.clone().lock_owned().await;
                if !session.broken.is_cancelled() {
                    return Ok((session, wire));
                }
            }
        };
        let (session, wire) = self.link.reached(until, turn).await?;
        // Whoever stops waiting in the middle leaves an answer on the wire that the next would take for its own.
        let abandoned = session.broken.clone().drop_guard();
        let answered = self.link.answered(&session, until, question(wire)).await;
        abandoned.disarm();
        answered
    }

    /// The open connection; the one that is being opened, if any; otherwise why there is none.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        self.link.session().await
    }

    /// The server that it leads to.
    pub(super) fn place(&self) -> &Place {
        self.link.place()
    }

    /// Another connection to the server was lost: looks whether this one was too.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Resolves when the connection that is open now is given up; at once if there is none.
    pub(super) async fn lost(&self) {
        if let Some(session) = self.link.open_now() {
            session.broken.cancelled().await;
        }
    }
}

async fn open(settings: Arc<Settings>, suspicion: Arc<Notify>) -> Result<Opened<Session>, StoreError> {
    let session = Arc::new(Session::open(&settings).await?);
    let suspected = session.clone();
    let work = async move {
        loop {
            suspicion.notified().await;
            prove(&settings, &suspected).await;
        }
    };
    Ok((session, Box::pin(work)))
}

/// Sees whether the server still answers, unless an operation is about to find out anyway.
async fn prove(settings: &Settings, session: &Session) {
    let Ok(mut wire) = session.wire.clone().try_lock_owned() else { return };
    let alive = timeout(settings.timeout, wire.conn.ping()).await;
    if !matches!(alive, Ok(Ok(()))) {
        session.broken.cancel();
    }
}
