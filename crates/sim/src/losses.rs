//! What the store lost of what it had acknowledged, and for how long that excuses two leaders of one role.
//!
//! This is the promise of class C (`SAFETY.md`), as the checks apply it: a loss excuses only tenures whose own registers it
//! took, and only for as long as their leaders may be unaware of it.

use std::collections::BTreeSet;

use tenure_core::{Key, Kind, Name, SessionId};

use crate::clock::Instant;

/// One loss of acknowledged writes.
#[derive(Debug, Clone)]
pub struct Loss {
    pub at: Instant,
    /// Whether every node hears of the loss before the first reply that shows the state after it.
    pub signed: bool,
    lost: BTreeSet<Key>,
}

impl Loss {
    fn took_everything(&self) -> bool {
        self.lost.contains(&Key::Cluster)
    }

    fn took_role(&self, role: &Name) -> bool {
        self.lost.iter().any(|key| matches!(key, Key::Named(_, Kind::Role, name) if name == role))
    }

    fn took_session(&self, session: SessionId) -> bool {
        self.lost.iter().any(|key| matches!(key, Key::Session(_, id) if *id == session))
    }

    /// Whether it took something that tenures of this role, led under these sessions, rest on.
    #[must_use]
    pub fn concerns(&self, role: &Name, sessions: &[SessionId]) -> bool {
        self.took_everything()
            || self.took_role(role)
            || sessions.iter().any(|session| self.took_session(*session))
    }
}

/// Every loss, the latest last.
#[derive(Debug, Clone, Default)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// The store lost the last writes of these registers.
    pub fn add(&mut self, at: Instant, signed: bool, lost: impl IntoIterator<Item = Key>) {
        self.0.push(Loss { at, signed, lost: lost.into_iter().collect() });
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether a loss ever took a write of this session.
    #[must_use]
    pub fn took_session(&self, session: SessionId) -> bool {
        self.iter().any(|loss| loss.took_everything() || loss.took_session(session))
    }

    /// Every loss, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = &Loss> {
        self.0.iter().rev()
    }
}
