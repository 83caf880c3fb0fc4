//! Roles: following, claiming, leading, draining, resigning.
//!
//! Rules 4, 5 and 6. A claim is one compare-and-set on the version that the decision was based on; it grants only if
//! the session named in it is still valid when the answer is processed in time. A role is given up once its work has
//! stopped, and a tenure that was given up is never led again.

mod asked;
#[cfg(feature = "canon")]
#[path = "../canon/roles.rs"]
mod canon;
mod claim;
mod give_up;
mod mistakes;
mod see;
mod tell;

use crate::io::{Standing, State};
use crate::record::{Holder, Reason, Role as RoleRecord};
use crate::{Name, OpId, SessionId, Time, Token, Version};

/// One role that this node stands for or watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Role {
    /// How we stand for it; none: we only watch.
    pub(in crate::engine) standing: Option<Standing>,
    /// Forget it as soon as nothing of it is left.
    withdrawn: bool,
    pub(in crate::engine) view: View,
    /// Reads sent before this operation are too old to tell.
    view_op: OpId,
    pub(in crate::engine) stage: Stage,
    /// The tenure whose work was started and has not stopped.
    work: Option<Token>,
    /// The highest token ever seen.
    highest: Token,
    /// Since when.
    highest_since: Time,
    /// Its register was seen in this life of the store: if it is gone, somebody deleted it by force.
    existed: bool,
    watched_since: Time,
    /// Since when it may be claimed.
    free: Option<Time>,
    /// Standing back after a failure.
    not_before: Time,
    /// When it is considered again.
    due: Option<Time>,
    /// The register may be in our session's name without our knowing: a claim went unanswered, or a tenure was not found.
    maybe_stray: bool,
    /// How often in a row a look did not show our tenure.
    doubts: u8,
    told_state: State,
    told_leader: Option<(Name, Token)>,
}

/// What is known of a role register.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum View {
    /// Nothing, or nothing any more.
    Unknown,
    /// It does not exist.
    Absent,
    /// It holds this. Known from a hint only, it may be wrong.
    Seen {
        /// Its version.
        version: Version,
        /// Its content.
        record: RoleRecord,
        /// Whether only a hint said so.
        hinted: bool,
    },
}

impl View {
    pub(in crate::engine) fn record(&self) -> Option<&RoleRecord> {
        match self {
            Self::Seen { record, .. } => Some(record),
            _ => None,
        }
    }

    fn version(&self) -> Option<Version> {
        match self {
            Self::Seen { version, .. } => Some(*version),
            _ => None,
        }
    }

    fn holder(&self) -> Option<&Holder> {
        self.record().and_then(|record| record.holder.as_ref())
    }
}

/// What we do about a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Stage {
    /// Nothing.
    Following,
    /// The claim is on its way.
    Claiming { op: OpId, session: SessionId, version: Version, record: RoleRecord },
    /// The register is ours; what operators ask is read once more before anybody hears of it.
    Verifying { after: OpId, token: Token, version: Version },
    /// Ours, and worked.
    Leading { token: Token, version: Version, since: Time },
    /// The work was told to stop.
    Draining { token: Token, version: Version, reason: Reason, successor: Option<Name> },
    /// The work has stopped; the register is told.
    Resigning(Resigning),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Resigning {
    expect: Version,
    writing: Option<(OpId, Version, RoleRecord)>,
    unsure: Vec<Version>,
    retry_at: Time,
    reason: Reason,
    successor: Option<Name>,
}

impl Stage {
    /// The token of a tenure that may be relied on.
    pub(in crate::engine) fn tenure(&self) -> Option<Token> {
        match self {
            Self::Leading { token, .. } | Self::Draining { token, .. } => Some(*token),
            _ => None,
        }
    }
}

/// What is known of a role, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleStatus<'a> {
    /// This node's part in it.
    pub state: State,
    /// The register, as last seen.
    pub view: &'a View,
    /// Whether the holder's session is known to be over.
    pub holder_over: bool,
}

/// What a role wants next.
enum Desire {
    Nothing,
    Wait(Time),
    Claim,
    Resign,
}

impl Role {
    /// Whether it would not claim even if it could.
    pub(in crate::engine) fn stands_back(&self, now: Time) -> bool {
        now < self.not_before
    }

    fn new(now: Time) -> Self {
        Self {
            standing: None,
            withdrawn: false,
            view: View::Unknown,
            view_op: OpId(0),
            stage: Stage::Following,
            work: None,
            highest: Token(0),
            highest_since: now,
            existed: false,
            watched_since: now,
            free: None,
            not_before: now,
            due: None,
            maybe_stray: false,
            doubts: 0,
            told_state: State::Follower,
            told_leader: None,
        }
    }
}
