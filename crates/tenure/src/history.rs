//! The records of past tenures, as the `history` registers hold them.

use serde::{Deserialize, Serialize};
use tenure_core::Timestamp;
use tenure_core::record::{EndReason, SessionState};

use crate::{Name, SessionId, Token};

/// The last tenures of a role, the newest last. For people: times are wall-clock times of the nodes that wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RoleHistory {
    /// The tenures.
    pub tenures: Vec<TenureRecord>,
}

/// One tenure in the history of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TenureRecord {
    /// Its token.
    pub token: Token,
    /// The leader.
    pub node: Name,
    /// Its session.
    pub session: SessionId,
    /// When it began.
    pub began: Timestamp,
    /// When it ended; for a leader that died, its last sign of life. None while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Where the time of its end comes from. None while it goes on, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<EndSource>,
    /// The reason for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
}

/// Where the time of a tenure's end comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EndSource {
    /// The leader itself: it knows when it stopped leading, also if it could write that down only later.
    Leader,
    /// The leader is gone and wrote nothing: this was its last beat. It may have led for up to its lease longer.
    LastBeat,
    /// Nothing is left of the leader: this is when the next tenure began.
    Successor,
}

impl EndSource {
    /// As records and people spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::LastBeat => "last-beat",
            Self::Successor => "successor",
        }
    }
}

impl TenureRecord {
    /// A tenure that goes on.
    #[must_use]
    pub fn new(token: Token, node: Name, session: SessionId, began: Timestamp) -> Self {
        Self { token, node, session, began, ended: None, measured: None, reason: None }
    }

    /// Ends a tenure whose leader recorded no end: at the last beat of its session, if that is known, or when the next tenure
    /// began.
    pub(crate) fn close_unrecorded(
        &mut self,
        session: Option<SessionState>,
        last_beat: Option<Timestamp>,
        next_began: Option<Timestamp>,
    ) {
        let successor = (next_began, EndSource::Successor);
        let (ended, source) = last_beat.map_or(successor, |beat| (Some(beat), EndSource::LastBeat));
        self.ended = ended.map(|at| at.max(self.began));
        self.measured = ended.map(|_| source);
        self.reason = Some(match session {
            Some(SessionState::Closed) => EndReason::Shutdown,
            _ => EndReason::Expelled,
        });
    }
}

impl RoleHistory {
    /// How long the role had no leader between that tenure and the newest, by the ends and beginnings that are known.
    #[must_use]
    pub fn leaderless_since(&self, token: Token) -> std::time::Duration {
        let pairs =
            self.tenures.iter().zip(self.tenures.iter().skip(1)).filter(|(tenure, _)| tenure.token >= token);
        let gap = |(tenure, next): (&TenureRecord, &TenureRecord)| {
            tenure.ended.map_or(0, |ended| next.began.as_micros().saturating_sub(ended.as_micros()))
        };
        std::time::Duration::from_micros(pairs.map(gap).sum())
    }
}
