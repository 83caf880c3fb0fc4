//! The events of a node, for listeners, logs and metrics.

use serde::Serialize;
use tenure_core::Timestamp;
pub use tenure_core::io::{ElectionFailure, State};
pub use tenure_core::record::{EndReason, Reason, StartReason};

use crate::{Name, SessionId, Token};

/// Something that happened on this node. Events are numbered without gaps, in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Event {
    /// Rises by one with each event of this node's process.
    pub sequence: u64,
    /// The time by this node's wall clock.
    pub at: Timestamp,
    /// The time by this node's lease clock, in nanoseconds: only to be compared with other events of this node.
    pub lease_nanos: u64,
    pub node: Name,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kind of an event, with its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum EventKind {
    /// This node's part in a role has changed.
    StateChanged {
        role: Name,
        #[serde(serialize_with = "serialize_kebab")]
        from: State,
        #[serde(serialize_with = "serialize_kebab")]
        to: State,
    },
    /// This node leads the role.
    Elected {
        role: Name,
        token: Token,
        session: SessionId,
    },
    /// This node was elected, and waits for the guard lock of the role before it leads.
    WaitingForGuard {
        /// The role.
        role: Name,
        /// The token of the tenure.
        token: Token,
        /// The guard lock.
        lock: String,
        /// Which program holds it, or why it cannot be taken.
        why: String,
    },
    /// A beat failed: what this node leads is not renewed for the moment.
    InDoubt {
        /// The number of roles that it leads.
        roles: usize,
    },
    /// A beat succeeded again.
    Certain {
        /// The number of roles that it leads.
        roles: usize,
    },
    /// The work of a role has to stop.
    Draining {
        role: Name,
        token: Token,
        reason: EndReason,
        /// Whether the lease runs out.
        forced: bool,
    },
    /// A tenure of this node is over.
    Lost {
        role: Name,
        token: Token,
        reason: EndReason,
    },
    /// The work of a tenure had not stopped when it had to: it works without cover.
    Stuck {
        role: Name,
        token: Token,
    },
    /// A claim of this node did not succeed.
    ElectionFailed {
        role: Name,
        #[serde(serialize_with = "serialize_kebab")]
        cause: ElectionFailure,
    },
    /// A role has another leader, or none, as far as this node has seen.
    LeaderChanged {
        role: Name,
        former: Option<Name>,
        leader: Option<Name>,
        /// The token in the register.
        token: Token,
    },
    /// The session of a leader is over.
    LeaderDown {
        role: Name,
        former: Name,
    },
    /// This node has polled a role. Only on request: it comes with every beat, for every role.
    ElectionCheck {
        role: Name,
        leader: Option<Name>,
    },
    /// An operator paused or resumed a role.
    Paused {
        role: Name,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A session was opened.
    SessionOpened {
        session: SessionId,
    },
    /// On disconnect was asked for, but the store cannot tell of dropped connections: this session is a strict one, and
    /// only its lease counts. `tenure doctor` says why.
    NoLivenessLock {
        session: SessionId,
    },
    SessionOver {
        session: SessionId,
        reason: EndReason,
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
    /// The store can lose what it acknowledges, which it could not when this node started: a replica follows it now, say. The
    /// node takes it for class C from now on.
    StoreWeakened {
        /// The reason, and what to do about it.
        why: String,
    },
    /// A register holds what this version cannot read; it is left alone.
    Unreadable {
        register: String,
    },
    /// The other nodes speak a newer protocol than this version: this node stays out until it is upgraded.
    NewerProtocol {
        /// Theirs.
        protocol: u32,
    },
    /// The store answered an operation with an error.
    StoreFailed {
        error: String,
    },
    /// The election loop failed and was started anew; what was led is lost.
    LoopFailed {
        error: String,
    },
    /// A worker failed and is started again: its restart policy forgives it.
    WorkRestarted {
        role: Name,
        token: Token,
        worker: String,
        why: String,
    },
    /// The work of a tenure failed. The tenure was lost first.
    WorkFailed {
        role: Name,
        token: Token,
        worker: String,
        why: String,
    },
    /// The work of a tenure has stopped because it was told to.
    WorkStopped {
        role: Name,
        token: Token,
        /// Workers that did not finish, in time or well; the others did.
        cancelled: Vec<String>,
    },
    /// A scheduled run began: its tick is in the ledger.
    TaskStarted {
        task: Name,
        tick: Timestamp,
        token: Token,
        /// How late it is, in milliseconds.
        late_ms: u64,
    },
    /// A scheduled run ended.
    TaskEnded {
        task: Name,
        tick: Timestamp,
        token: Token,
        state: crate::ledger::RunState,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// The error, if it did not succeed.
        why: String,
    },
    /// Ticks were passed over: missed or skipped.
    TaskPassed {
        task: Name,
        from: Timestamp,
        to: Timestamp,
        count: u64,
        /// Missed or skipped.
        state: crate::ledger::RunState,
        why: String,
    },
    /// This listener was too slow for so many events.
    Missed {
        events: u64,
    },
}

/// In kebab case: `in-doubt` for `InDoubt`.
fn serialize_kebab<S: serde::Serializer, T: std::fmt::Debug>(value: &T, to: S) -> Result<S::Ok, S::Error> {
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

impl EventKind {
    /// The role that it is about, if it is about one.
    #[must_use]
    pub fn role(&self) -> Option<&Name> {
        match self {
            Self::StateChanged { role, .. }
            | Self::Elected { role, .. }
            | Self::WaitingForGuard { role, .. }
            | Self::Draining { role, .. }
            | Self::Lost { role, .. }
            | Self::Stuck { role, .. }
            | Self::ElectionFailed { role, .. }
            | Self::LeaderChanged { role, .. }
            | Self::LeaderDown { role, .. }
            | Self::ElectionCheck { role, .. }
            | Self::Paused { role, .. }
            | Self::WorkRestarted { role, .. }
            | Self::WorkFailed { role, .. }
            | Self::WorkStopped { role, .. } => Some(role),
            _ => None,
        }
    }
}
