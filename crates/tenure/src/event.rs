//! What happens, for people, for metrics and for listeners: one kind of event each, with all its fields.

use serde::Serialize;
use tenure_core::Wall;
pub use tenure_core::io::{Cause, State};
pub use tenure_core::record::Reason;

use crate::{Name, SessionId, Token};

/// Something that happened on this node. Events are numbered without gaps, in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Rises by one with each event of this node's process.
    pub sequence: u64,
    /// When, by this node's wall clock.
    pub at: Wall,
    /// When, by this node's lease clock, in nanoseconds: only to be compared with other events of this node.
    pub lease_nanos: u64,
    /// On which node.
    pub node: Name,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum What {
    /// This node's part in a role has changed.
    StateChanged {
        /// Which role.
        role: Name,
        /// What it was.
        #[serde(serialize_with = "spell")]
        from: State,
        /// What it is.
        #[serde(serialize_with = "spell")]
        to: State,
    },
    /// This node leads the role.
    Elected {
        /// Which role.
        role: Name,
        /// The token of the tenure.
        token: Token,
        /// Under which session.
        session: SessionId,
    },
    /// A beat failed: what this node leads is not renewed for the moment.
    InDoubt {
        /// How many roles it leads.
        roles: usize,
    },
    /// A beat succeeded again.
    Certain {
        /// How many roles it leads.
        roles: usize,
    },
    /// The work of a role was told to stop.
    Draining {
        /// Which role.
        role: Name,
        /// The token of the tenure.
        token: Token,
        /// Why.
        reason: Reason,
        /// Whether the lease runs out.
        forced: bool,
    },
    /// A tenure of this node is over.
    Lost {
        /// Which role.
        role: Name,
        /// The token of the tenure.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// The work of a tenure had not stopped when it had to: it works without cover.
    Stuck {
        /// Which role.
        role: Name,
        /// The token of the tenure.
        token: Token,
    },
    /// A claim of this node did not succeed.
    ElectionFailed {
        /// Which role.
        role: Name,
        /// Why.
        #[serde(serialize_with = "spell")]
        cause: Cause,
    },
    /// A role has another leader, or none, as far as this node has seen.
    LeaderChanged {
        /// Which role.
        role: Name,
        /// Who led.
        former: Option<Name>,
        /// Who leads.
        leader: Option<Name>,
        /// The token in the register.
        token: Token,
    },
    /// The session of a leader is over.
    LeaderDown {
        /// Which role.
        role: Name,
        /// Who led.
        former: Name,
    },
    /// This node has looked at a role once more. Only on request: it comes with every beat, for every role.
    ElectionCheck {
        /// Which role.
        role: Name,
        /// Who leads.
        leader: Option<Name>,
    },
    /// An operator paused or resumed a role.
    Paused {
        /// Which role.
        role: Name,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A session was opened.
    SessionOpened {
        /// Its id.
        session: SessionId,
    },
    /// On disconnect was asked for, but the store cannot tell of dropped connections: this session is a strict one, and
    /// only its lease counts. `tenure doctor` says why.
    NoWitness {
        /// Its id.
        session: SessionId,
    },
    /// A session is over.
    SessionOver {
        /// Its id.
        session: SessionId,
        /// Why.
        reason: Reason,
    },
    /// A live process has this node's name; this one waits and leads nothing.
    NameTaken {
        /// The session of the other process.
        by: SessionId,
    },
    /// The store forgot, or was replaced: nothing is claimed for a while.
    Quarantined {
        /// For how long, in milliseconds.
        millis: u64,
    },
    /// A register holds what this version cannot read; it is left alone.
    Unreadable {
        /// Which.
        register: String,
    },
    /// The store answered an operation with an error.
    StoreFailed {
        /// What it said.
        error: String,
    },
    /// The election loop failed and was started anew; what was led is lost.
    LoopFailed {
        /// What it said.
        error: String,
    },
    /// The work of a tenure failed. The tenure was lost first.
    WorkFailed {
        /// Which role.
        role: Name,
        /// The token of the tenure that was.
        token: Token,
        /// Which worker.
        worker: String,
        /// What happened to it.
        why: String,
    },
    /// The work of a tenure has stopped because it was told to.
    WorkStopped {
        /// Which role.
        role: Name,
        /// The token of the tenure.
        token: Token,
        /// Workers that did not finish, in time or well; the others did.
        cancelled: Vec<String>,
    },
    /// A scheduled run began: its tick is in the ledger.
    TaskStarted {
        /// Which task.
        task: Name,
        /// The tick that it is for.
        tick: Wall,
        /// Under which token.
        token: Token,
        /// How late it is, in milliseconds.
        late_ms: u64,
    },
    /// A scheduled run ended.
    TaskEnded {
        /// Which task.
        task: Name,
        /// The tick that it was for.
        tick: Wall,
        /// Under which token.
        token: Token,
        /// How.
        state: crate::ledger::RunState,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// What it said, if it did not succeed.
        why: String,
    },
    /// Ticks were passed over: missed or skipped.
    TaskPassed {
        /// Which task.
        task: Name,
        /// The first of them.
        from: Wall,
        /// The last of them.
        to: Wall,
        /// How many.
        count: u64,
        /// Missed or skipped.
        state: crate::ledger::RunState,
        /// Why.
        why: String,
    },
    /// This listener was too slow for so many events.
    Missed {
        /// How many.
        events: u64,
    },
}

/// As people spell it: `in-doubt` for `InDoubt`.
fn spell<S: serde::Serializer, T: std::fmt::Debug>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&kebab(value))
}

pub(crate) fn kebab(value: &impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for c in format!("{value:?}").chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

impl What {
    /// The role that it is about, if it is about one.
    #[must_use]
    pub fn role(&self) -> Option<&Name> {
        match self {
            Self::StateChanged { role, .. }
            | Self::Elected { role, .. }
            | Self::Draining { role, .. }
            | Self::Lost { role, .. }
            | Self::Stuck { role, .. }
            | Self::ElectionFailed { role, .. }
            | Self::LeaderChanged { role, .. }
            | Self::LeaderDown { role, .. }
            | Self::ElectionCheck { role, .. }
            | Self::Paused { role, .. }
            | Self::WorkFailed { role, .. }
            | Self::WorkStopped { role, .. } => Some(role),
            _ => None,
        }
    }
}
