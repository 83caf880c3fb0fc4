//! What goes into the engine and what comes out of it.

use crate::record::{EndReason, LivenessLock, PROTOCOL};
use crate::{Key, Kind, Name, OpId, Record, SessionId, Takeover, Time, Token, Version};

/// Where nonces come from: the kernel in production, a seed in the simulator, a counter in the model.
pub trait Entropy {
    /// A number never drawn before and never drawn again.
    fn nonce(&mut self) -> u128;
}

impl<F: FnMut() -> u128> Entropy for F {
    fn nonce(&mut self) -> u128 {
        self()
    }
}

/// One compare-and-set on one register, to a new value or to deletion.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Write<V = Record> {
    pub key: Key,
    /// The version it must have; none: it must be absent.
    pub expect: Option<Version>,
    /// What it becomes; none: it is deleted.
    pub put: Option<(Version, V)>,
    /// Whether others are notified of it. Beats do not: a hundred nodes would send ten thousand messages a second.
    pub notify: bool,
    /// Only for the register of a session: whether it is to be refused, with [`Fate::Severed`], unless the connection
    /// that acquired the session's liveness lock still holds it, proven in the same step as the compare-and-set.
    pub requires_lock: bool,
}

/// A register as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Entry<V = Record> {
    pub key: Key,
    pub version: Version,
    pub value: V,
}

impl Entry {
    /// Whether it holds what this version cannot read, or what no node could go on from: the last of all tokens.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        match &self.value {
            Record::Foreign | Record::Newer(_) => true,
            Record::Cluster(cluster) => cluster.protocol != PROTOCOL || cluster.floor > Token::IMPLAUSIBLE,
            Record::Role(role) => role.token >= Token::MAX,
            _ => false,
        }
    }

    /// The protocol of a `cluster` register that only newer versions may act on.
    #[must_use]
    pub fn newer_protocol(&self) -> Option<u32> {
        match &self.value {
            Record::Newer(protocol) => Some(*protocol),
            Record::Cluster(cluster) => Some(cluster.protocol).filter(|protocol| *protocol > PROTOCOL),
            _ => None,
        }
    }
}

/// Which registers to read: some by name, and all of some kinds of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Query {
    pub keys: Vec<Key>,
    pub kinds: Vec<(crate::Epoch, Kind)>,
}

/// What became of one [`Write`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Outcome<V = Record> {
    /// The register had the expected version and has the new value now.
    Applied,
    /// It had another version; nothing was changed. What it holds, or nothing if it is absent.
    Conflict(Option<Entry<V>>),
    /// It failed, with what may be assumed about it.
    Failed(Fate),
}

/// What may be assumed after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// It did not happen and never will.
    NotApplied,
    /// It may have happened, or may happen yet. The safe default.
    Unknown,
    /// It did not happen and never will, and neither will any later write of that session that requires its lock: the connection
    /// that held its liveness lock is gone.
    Severed,
}

/// The answer to one operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To a read: what was found, in any order; a key of the query that is not among it is absent.
    Read(Vec<Entry>),
    /// To a write: one outcome for each item, in order.
    Written(Vec<Outcome>),
    /// The operation failed as a whole.
    Failed(Fate),
}

/// A message that says "read", and nothing more. It may be late, duplicated, lost, or forged by any client that can
/// reach the channel: no state, token, deposition or claim follows from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Hint {
    /// A register may have changed.
    Changed(Key),
    /// Hints may have been missed: read everything again.
    Resync,
    /// The store may have forgotten acknowledged writes: another server, an older state.
    Forgot,
    /// A node may rely on a session with this ttl that no register shows: the file that held it was replaced.
    UnknownLease(std::time::Duration),
}

/// Proof from outside the store that a session's owner is gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Evidence {
    /// The kernel released the session's lock: the process, and what the lock covers, is gone.
    Dead {
        session: SessionId,
        /// The id of the lock that was watched; it must be the one in the record.
        lock: String,
    },
    /// The server saw the session's connection end.
    Disconnected {
        session: SessionId,
        /// The id of the lock that was watched; it must be the one in the record.
        lock: String,
    },
}

/// What the engine is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "moved once, never kept")]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Input {
    /// Only time has passed.
    Wake,
    /// Take part: open a session, claim the node's name.
    Start,
    /// Give everything up, close the session and stop. What is led is drained first.
    Stop,
    /// Campaign for a role.
    Campaign { role: Name, candidacy: Candidacy },
    /// Only watch a role. A campaign implies it.
    Observe { role: Name },
    /// Neither campaign for a role nor watch it any more; a tenure is drained first.
    Withdraw { role: Name },
    /// Resign this tenure, once its work has stopped.
    Resign {
        role: Name,
        /// A tenure with another token is left alone.
        token: Token,
        reason: EndReason,
    },
    /// The work of this tenure has stopped: every task joined, every child reaped.
    WorkStopped { role: Name, token: Token },
    /// The store acquired a liveness lock for the session that is about to be opened, or has none.
    LockAcquired { session: SessionId, lock: Option<LivenessLock> },
    /// An operation was answered.
    Replied { op: OpId, reply: Reply },
    /// A hint says "read again".
    Hinted(Hint),
    /// The same, with a forged content of the register. Only a mutant believes it.
    #[cfg(feature = "mutants")]
    Forged(Entry),
    /// From now on the store can lose what it acknowledges: it is of class C until the end of this process, whatever it was.
    Weakened,
    /// Evidence that the owner of a session is gone.
    Evidence(Evidence),
    /// The lease clock cannot be trusted: everything ends at once.
    ClockFault,
    /// The description of the node, for people, has changed.
    Describe { labels: std::collections::BTreeMap<String, String>, address: Option<String> },
}

/// How a node campaigns for a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidacy {
    /// False: follow only. A leader that becomes ineligible resigns.
    pub eligible: bool,
    /// Higher claims first.
    pub priority: i32,
    /// Ask a leader of lower priority to hand over.
    pub preempt: bool,
    /// How long to leave a vacant role to others before claiming it.
    pub takeover_delay: std::time::Duration,
    /// A tenure younger than this is not handed over to a node of higher priority.
    pub min_tenure: std::time::Duration,
    /// How long to claim nothing after the work failed or an operator asked for a step-down.
    pub cool_down: std::time::Duration,
}

impl Default for Candidacy {
    /// Eligible, of priority 0, in no hurry and without delays.
    fn default() -> Self {
        Self {
            eligible: true,
            priority: 0,
            preempt: false,
            takeover_delay: std::time::Duration::ZERO,
            min_tenure: std::time::Duration::ZERO,
            cool_down: std::time::Duration::ZERO,
        }
    }
}

/// What the caller has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Output {
    /// Read these registers and answer with [`Reply::Read`].
    Read {
        /// The answer names it.
        op: OpId,
        query: Query,
        /// Whether it goes out with a write of the same step. Each has its own answer all the same.
        with: Option<Pairing>,
    },
    /// Carry out these writes, each independent of the others, and answer with [`Reply::Written`].
    Write {
        /// The answer names it.
        op: OpId,
        /// At most [`crate::engine::BATCH`].
        writes: Vec<Write>,
    },
    /// Acquire a liveness lock for this session, if the store has any, and answer with [`Input::LockAcquired`].
    AcquireLock {
        session: SessionId,
        /// What a dropped connection is to mean for it.
        takeover: Takeover,
    },
    /// Watch this liveness lock, and tell when it is let go of.
    WatchLock {
        session: SessionId,
        /// The id of its lock, as its record names it.
        lock: String,
        /// What a dropped connection means for it.
        takeover: Takeover,
    },
    /// That session is of no interest any more.
    UnwatchLock { session: SessionId },
    /// The session is over and its work has stopped: its liveness lock may be released.
    ReleaseLock { session: SessionId },
    /// What is led may be relied on until then, and no longer.
    Valid {
        /// The deadline of the session.
        until: Time,
    },
    /// Tell the listeners.
    Event(Event),
}

/// How a read goes out with a write of the same step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pairing {
    /// The read may share a round trip with this write, in any order.
    Beside(OpId),
    /// The read is served after this write was carried out, or not at all; in one round trip, if the store can.
    After(OpId),
}

impl Pairing {
    /// The write that the read goes out with.
    #[must_use]
    pub fn write(self) -> OpId {
        match self {
            Self::Beside(write) | Self::After(write) => write,
        }
    }

    /// The write that has to be carried out before the read is served.
    #[must_use]
    pub fn served_after(self) -> Option<OpId> {
        match self {
            Self::Beside(_) => None,
            Self::After(write) => Some(write),
        }
    }
}

/// What happened, for work, for people, for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Event {
    /// A session was opened.
    SessionOpened { session: SessionId },
    /// On disconnect was asked for, but no liveness lock can tell of dropped connections: this session is a strict one.
    NoLivenessLock { session: SessionId },
    /// The session is over; what it led is lost.
    SessionOver { session: SessionId, reason: EndReason },
    /// A live process has this node's name; this one waits and leads nothing.
    NameTaken {
        /// The session of the other process.
        by: SessionId,
    },
    /// A beat failed: the leases run on unrenewed.
    InDoubt,
    /// A beat succeeded again.
    Certain,
    /// The role is led here: work may start.
    Elected { role: Name, token: Token },
    /// The work is asked to stop: wind down and answer with [`Input::WorkStopped`].
    Draining {
        role: Name,
        token: Token,
        reason: EndReason,
        /// True if the lease runs out: what has not stopped by the deadline must be killed. Otherwise the caller
        /// sets the limit.
        forced: bool,
    },
    /// The tenure is over. Work that is still running works without cover.
    Lost { role: Name, token: Token, reason: EndReason },
    /// This node's part in a role has changed.
    StateChanged { role: Name, from: State, to: State },
    /// A role has another leader, or none, as far as this node has seen.
    LeaderChanged {
        role: Name,
        /// Who led.
        former: Option<Name>,
        /// Who leads.
        leader: Option<Name>,
        /// The token of the register.
        token: Token,
    },
    /// The session of a leader is over.
    LeaderDown {
        role: Name,
        /// Who led.
        former: Name,
    },
    /// A claim did not succeed.
    ElectionFailed { role: Name, cause: ElectionFailure },
    /// A role was paused or resumed.
    Paused {
        role: Name,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A poll of everything that this node depends on was answered.
    Polled,
    /// The store forgot, or was replaced: nothing is claimed before then.
    Quarantined { until: Time },
    /// A register holds what this version cannot read; it is left alone.
    Unreadable { key: Key },
    /// The nodes of this namespace speak a newer protocol: this node stays out until the register says otherwise.
    NewerProtocol { protocol: u32 },
}

/// This node's part in a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It watches.
    Follower,
    /// The role is free and it is claiming it, or waiting for its turn.
    Candidate,
    /// It leads.
    Leader,
    /// It leads, and its work is winding down.
    Draining,
    /// An operator paused the role: no node leads.
    Paused,
}

/// Why a claim did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ElectionFailure {
    /// Another node was faster.
    Outrun,
    /// The store did not answer in time, or with an error.
    Store,
    /// The session ended meanwhile.
    SessionOver,
    /// The role was paused meanwhile.
    Paused,
    /// The store was seen to forget meanwhile.
    Forgotten,
}
