//! What a write means in the protocol.

use tenure_core::record::SessionState;
use tenure_core::{Key, Kind, Record, Write};

/// The meaning of one compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A session is opened.
    Open,
    /// A session is renewed.
    Beat,
    /// A session is given up.
    Close,
    /// A session is declared over by somebody else.
    Expel,
    /// A role is claimed.
    Claim,
    /// A role is given up.
    Resign,
    /// A node name is claimed, or what is said about the node changes.
    Describe,
    /// A register is deleted.
    Delete,
    /// Anything else.
    Other,
}

impl Act {
    /// What this write does.
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
