//! What a write means in the protocol.

use tenure_core::record::SessionState;
use tenure_core::{Key, Kind, Record, Write};

/// The meaning of one compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    Open,
    Beat,
    /// The owner closes its session.
    Close,
    /// Another node declares a session over.
    Expel,
    Claim,
    /// The holder resigns a role.
    Resign,
    /// A node claims its name, or changes its description.
    Describe,
    Delete,
    Other,
}

impl WriteKind {
    #[must_use]
    pub fn of(write: &Write) -> Self {
        match (&write.key, &write.put) {
            (_, None) => Self::Delete,
            (Key::Session(..), Some((_, Record::Session(session)))) => match session.state {
                SessionState::Live if write.expect.is_none() => Self::Open,
                SessionState::Live => Self::Beat,
                SessionState::Closed => Self::Close,
                SessionState::Expelled => Self::Expel,
            },
            (Key::Named(_, Kind::Role, _), Some((_, Record::Role(role)))) => {
                if role.holder.is_some() {
                    Self::Claim
                } else {
                    Self::Resign
                }
            }
            (Key::Named(_, Kind::Node, _), Some(_)) => Self::Describe,
            _ => Self::Other,
        }
    }
}
