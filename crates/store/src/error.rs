//! What went wrong, what may be assumed, and what to do.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tenure_core::Fate;

/// A failure of a store. It never shows a secret.
#[derive(Debug, Clone)]
pub struct StoreError {
    store: &'static str,
    fate: Fate,
    retry: Retry,
    misnamed: bool,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// It may pass by itself.
    Soon,
    /// A person has to do something first; the message says what.
    Never,
}

impl StoreError {
    /// The safe default: nothing proves that it did not happen, and it may work next time.
    #[must_use]
    pub fn unknown(store: &'static str, message: impl Into<String>) -> Self {
        let (fate, retry, message) = (Fate::Unknown, Retry::Soon, message.into());
        Self { store, fate, retry, misnamed: false, message, source: None }
    }

    /// It is proven that nothing happened, nor will.
    #[must_use]
    pub fn not_applied(store: &'static str, message: impl Into<String>) -> Self {
        Self { fate: Fate::NotApplied, ..Self::unknown(store, message) }
    }

    /// A write that requires the lock of a session whose connection is gone: nothing happened, nor will, nor can any later one.
    #[must_use]
    pub fn severed(store: &'static str) -> Self {
        let message =
            "the connection that the server knew this session by has dropped; a new session is opened";
        Self { fate: Fate::Severed, ..Self::unknown(store, message) }
    }

    /// Only looking was tried, or it was proven before: nothing happened, nor will.
    #[must_use]
    pub fn only_looked(self) -> Self {
        Self { fate: Fate::NotApplied, ..self }
    }

    /// Trying again will not help until a person has done something.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.retry = Retry::Never;
        self
    }

    /// The same, if that is so.
    #[must_use]
    pub fn permanent_if(self, permanent: bool) -> Self {
        if permanent { self.permanent() } else { self }
    }

    /// A read-only opening creates nothing, and there is nothing to read.
    #[must_use]
    pub fn unused(store: &'static str, what: &str) -> Self {
        let advice = "start one, or name another store";
        Self::not_applied(store, format!("{what}: no node has run on it yet; {advice}")).permanent()
    }

    /// Nothing is wrong with a store: what was given as its URL names none.
    #[must_use]
    pub fn misnamed(mut self) -> Self {
        self.misnamed = true;
        self.permanent()
    }

    /// What caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// What may be assumed about a write that failed so.
    #[must_use]
    pub fn fate(&self) -> Fate {
        self.fate
    }

    /// What went wrong, without the name of the store.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether nothing is wrong with a store, but what was given as its URL names none.
    #[must_use]
    pub fn is_misnamed(&self) -> bool {
        self.misnamed
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.retry
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.store, self.message)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// What an error says, followed by what its causes say that it does not say itself.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}
