//! Stores by name: what a registry has to know of a kind of store.

use std::sync::Arc;
use std::time::Duration;

use crate::{Name, SharedStore, Store, StoreError};

/// A kind of store, as people name it in URLs. Everything that differs between kinds and can be told without connecting
/// is here, so that tools ask the registry and name no store.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    /// What it is called in messages and on the command line.
    pub name: &'static str,
    /// The products that it is for, for people.
    pub product: &'static str,
    /// The schemes of its URLs.
    pub schemes: &'static [&'static str],
    /// How its URLs look, for messages.
    pub usage: &'static str,
    /// Whether its registers are those of one process, so that no other process can take part.
    pub in_process: bool,
    /// Whether the product itself tells others of changes; otherwise the store has to wake them, which takes longer.
    pub native_notifications: bool,
    /// What has to be set up, or can be looked at, before nodes with few rights take part; none if there is nothing.
    pub setup: Option<fn(request: &SetupRequest<'_>) -> String>,
    /// Reads a URL with one of its schemes, without connecting to anything and without making a file. No message may show
    /// more of the URL than its scheme: the rest may hold a secret.
    pub read: fn(url: &str, mode: Mode) -> Result<Opening, StoreError>,
}

/// For whom [`Backend::setup`] is.
#[derive(Debug, Clone, Copy)]
pub struct SetupRequest<'a> {
    /// The login of the nodes, which gets the least rights.
    pub user: &'a Name,
    /// The namespace in examples of how to look into the store.
    pub namespace: &'a Name,
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To take part.
    Join,
    /// To read and to ask, beside those who take part; what is missing is made.
    Visit,
    /// The same, and nothing is created: a store that no node has used yet is an error.
    Look,
}

/// A URL that was read and found well.
#[expect(missing_debug_implementations, reason = "a closure has none")]
pub struct Opening {
    /// Opens the store.
    pub open: Box<dyn FnOnce() -> Result<SharedStore, StoreError> + Send>,
    /// What is doubtful about the URL all the same, with what to do.
    pub warning: Option<&'static str>,
    /// The ttl of nodes that name none, if it is not the usual one.
    pub ttl: Option<Duration>,
    /// What the requests of a node with that beat cost, for stores whose requests have a price.
    pub cost: Option<fn(beat: Duration) -> String>,
}

impl Opening {
    /// One without a doubt.
    pub fn new(open: impl FnOnce() -> Result<SharedStore, StoreError> + Send + 'static) -> Self {
        Self { open: Box::new(open), warning: None, ttl: None, cost: None }
    }

    /// The same, where nodes that name no ttl get that one.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// The same, where requests have a price.
    #[must_use]
    pub fn with_cost(self, cost: fn(beat: Duration) -> String) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// A URL that `check` finds well, for a store that `open` opens.
    ///
    /// # Errors
    /// What `check` says.
    pub fn checked<S: Store>(
        url: &str,
        check: fn(url: &str) -> Result<Option<&'static str>, StoreError>,
        open: fn(url: &str) -> Result<S, StoreError>,
    ) -> Result<Self, StoreError> {
        let (warning, url) = (check(url)?, url.to_owned());
        Ok(Self { warning, ..Self::new(move || Ok(Arc::new(open(&url)?))) })
    }

    /// The same for a server on which tables are made when they are missing, unless the store is only looked at.
    ///
    /// # Errors
    /// What `check` says.
    pub fn with_tables<S: Store>(
        url: &str,
        mode: Mode,
        check: fn(url: &str) -> Result<Option<&'static str>, StoreError>,
        open: fn(url: &str) -> Result<S, StoreError>,
    ) -> Result<Self, StoreError> {
        match mode {
            Mode::Look => Self::checked(&Backend::with(url, "create=false"), check, open),
            Mode::Join | Mode::Visit => Self::checked(url, check, open),
        }
    }
}

impl Backend {
    /// The URL with one more parameter. Of a parameter that is named twice, the last counts.
    #[must_use]
    pub fn with(url: &str, parameter: &str) -> String {
        let joint = if url.contains('?') { '&' } else { '?' };
        format!("{url}{joint}{parameter}")
    }
}
