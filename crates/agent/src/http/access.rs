//! What opens the agent, and can change while it runs: tokens and certificates. A reload reads the files again that were
//! named at the start; what is wrong in them changes nothing.

use std::future::pending;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::serve::acceptor;
use super::tokens::{Token, Tokens};
use crate::config::HttpConfig;

/// See the [module](self).
#[derive(Debug)]
pub struct Access {
    tokens: watch::Sender<Option<Arc<Tokens>>>,
    tls: RwLock<Option<Tls>>,
}

/// What answers over TLS. It cannot be printed.
#[derive(Clone)]
struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Access {
    /// The tokens of the configuration; certificates are read when the agent begins to listen.
    #[must_use]
    pub fn new(http: &HttpConfig) -> Self {
        let tokens = watch::Sender::new(http.tokens.clone().map(Arc::new));
        Self { tokens, tls: RwLock::default() }
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// If one of them cannot be used; then nothing changes.
    pub fn read(&self, http: &HttpConfig) -> Result<(), String> {
        let tls = http.tls.as_ref().map(|(cert, key)| acceptor(cert, key)).transpose()?;
        let tokens = http.token_file.as_deref().map(Tokens::read).transpose()?;
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls.map(Tls);
        self.tokens.send_replace(tokens.map(Arc::new));
        Ok(())
    }

    /// The tokens, if any are needed.
    #[must_use]
    pub fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.borrow().clone()
    }

    /// What answers over TLS, if anything does.
    #[must_use]
    pub fn tls(&self) -> Option<TlsAcceptor> {
        let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner);
        tls.clone().map(|Tls(acceptor)| acceptor)
    }

    /// Returns once that token does not count any more: whatever it opened is to be closed.
    pub fn revoked(&self, token: Option<Arc<Token>>) -> impl Future<Output = ()> + Send + use<> {
        let mut tokens = self.tokens.subscribe();
        async move {
            let Some(token) = token else { return pending().await };
            let gone = |now: &Option<Arc<Tokens>>| !now.as_ref().is_some_and(|now| now.has(&token));
            if tokens.wait_for(gone).await.is_err() {
                pending().await
            }
        }
    }
}
