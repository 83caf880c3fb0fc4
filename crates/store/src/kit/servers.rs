//! Several servers that answer alike, of which one is asked until it fails.

use std::ops::Index;

use tokio::sync::watch;

use super::http::Endpoint;
use crate::entropy::nonce;

/// The servers of a handle.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Endpoint>,
    choice: watch::Sender<Choice>,
}

/// Which server is asked now. A server that failed and is alone is chosen anew, so that watches are opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    server: usize,
    turn: u64,
}

impl Servers {
    /// Handles begin with different servers, so that none of these has to serve all.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn new(servers: Vec<Endpoint>) -> Self {
        let count = u128::try_from(servers.len()).unwrap_or(1);
        let server = usize::try_from(nonce() % count).unwrap_or(0);
        Self { servers, choice: watch::Sender::new(Choice { server, turn: 0 }) }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Each of them, for questions that each has to answer.
    pub fn each(&self) -> impl Iterator<Item = Choice> + use<> {
        (0..self.servers.len()).map(|server| Choice { server, turn: 0 })
    }

    /// The server that is asked now.
    #[must_use]
    pub fn current(&self) -> Choice {
        *self.choice.borrow()
    }

    /// The next server is asked from now on, unless another operation has already turned to it.
    pub fn leave(&self, choice: Choice) {
        self[choice].forget_idle();
        self.choice.send_if_modified(|now| {
            let current = *now == choice;
            if current {
                *now = Choice { server: (now.server + 1) % self.servers.len(), turn: now.turn + 1 };
            }
            current
        });
    }

    /// Waits until another server is asked, or the same one anew.
    pub async fn left(&self, choice: Choice) {
        let _ = self.choice.subscribe().wait_for(|now| *now != choice).await;
    }

    /// The address of a server, for messages.
    #[must_use]
    pub fn place(&self, choice: Choice) -> String {
        self[choice].to_string()
    }
}

impl Index<Choice> for Servers {
    type Output = Endpoint;

    fn index(&self, choice: Choice) -> &Endpoint {
        &self.servers[choice.server]
    }
}
