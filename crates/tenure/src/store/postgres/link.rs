//! The connection for operations: statements are pipelined, and many may be under way on it.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio_postgres::Error;

use super::super::StoreError;
use super::super::hub::Hub;
use super::super::link::{self, Opened, Place};
use super::STORE;
use super::session::Session;
use super::settings::Settings;

/// The connection for operations.
pub(super) type Link = link::Link<Session>;

/// A link, and what keeps it open until dropped.
pub(super) fn keep(settings: Arc<Settings>, hub: Arc<Hub>) -> (Link, impl Future<Output = ()> + Send) {
    let place = Place { store: STORE, name: settings.place.clone(), patience: settings.timeout };
    Link::new(place, hub, move || open(settings.clone()))
}

impl Link {
    /// Asks something, and waits for the answer no longer than an operation may take.
    pub(super) async fn ask<T, F>(&self, question: impl FnOnce(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let until = self.until();
        let session = self.reached(until, self.session()).await?;
        self.answered(&session, until, question(session.clone())).await
    }
}

async fn open(settings: Arc<Settings>) -> Result<Opened<Session>, StoreError> {
    let (session, mut wire) = Session::open(&settings).await?;
    // Polling the wire is what moves bytes.
    let work = async move { while let Some(Ok(_)) = wire.next().await {} };
    Ok((Arc::new(session), Box::pin(work)))
}
