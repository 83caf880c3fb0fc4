//! What goes into the engine and what comes out of it.

use crate::record::{Reason, Witness};
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
pub struct Write<V = Record> {
    /// Which register.
    pub key: Key,
    /// The version it must have; none: it must be absent.
    pub expect: Option<Version>,
    /// What it becomes; none: it is deleted.
    pub put: Option<(Version, V)>,
    /// Whether others are to be woken. Beats ring no bell.
    pub ring: bool,
    /// Only for the register of a session: whether it is to be refused, with [`Fate::Severed`], unless the connection
    /// that took the session's witness still holds it, proven in the same step as the compare-and-set.
    pub witnessed: bool,
}

/// A register as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry<V = Record> {
    /// Which register.
    pub key: Key,
    /// Its version.
    pub version: Version,
    /// Its content.
    pub value: V,
}

/// Which registers to read: some by name, and all of some kinds of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Query {
    /// By name.
    pub keys: Vec<Key>,
    /// By kind.
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
    /// It did not happen and never will, and neither will any later witnessed write of that session: the connection
    /// that held its witness is gone.
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

/// A message that says "look again". It may be late, doubled or lost, and is never the truth.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "moved once, never kept")]
pub enum Hint {
    /// A register may have changed to this.
    Changed(Entry),
    /// Hints may have been missed: look at everything again.
    Resync,
    /// The store may have forgotten acknowledged writes: another server, an older state.
    Forgot,
}

/// What a witness outside the store saw.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The kernel released the session's lock: the process, and what the witness covers, is gone.
    Dead {
        /// Whose.
        session: SessionId,
        /// The witness that was asked; it must be the one in the record.
        witness: String,
    },
    /// The server saw the session's connection end.
    Disconnected {
        /// Whose.
        session: SessionId,
        /// The witness that was asked; it must be the one in the record.
        witness: String,
    },
}

/// What the engine is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "moved once, never kept")]
pub enum Input {
    /// Only time has passed.
    Wake,
    /// Take part: open a session, claim the node's name.
    Start,
    /// Give everything up, close the session and stop. What is led is drained first.
    Stop,
    /// Stand for a role.
    Stand {
        /// Which.
        role: Name,
        /// How.
        standing: Standing,
    },
    /// Only watch a role, without standing for it. Standing implies it.
    Observe {
        /// Which.
        role: Name,
    },
    /// Neither stand for a role nor watch it any more; what is led is drained first.
    Withdraw {
        /// Which.
        role: Name,
    },
    /// Give up this tenure, once its work has stopped.
    Release {
        /// Which role.
        role: Name,
        /// Which tenure; another one is left alone.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// The work of this tenure has stopped: every task joined, every child reaped.
    Stopped {
        /// Which role.
        role: Name,
        /// Which tenure.
        token: Token,
    },
    /// The store made ready a witness for the session that is about to be opened, or has none.
    Attested {
        /// For which session.
        session: SessionId,
        /// The witness.
        witness: Option<Witness>,
    },
    /// An operation was answered.
    Replied {
        /// Which.
        op: OpId,
        /// How.
        reply: Reply,
    },
    /// "Look again."
    Hinted(Hint),
    /// A witness saw something.
    Witnessed(Evidence),
    /// The lease clock cannot be trusted: everything ends at once.
    ClockFault,
    /// What people say about the node has changed.
    Describe {
        /// Labels.
        labels: std::collections::BTreeMap<String, String>,
        /// Where to reach it.
        address: Option<String>,
    },
}

/// How a node stands for a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Standing {
    /// False: follow only. A leader that becomes ineligible gives up.
    pub eligible: bool,
    /// Higher claims first.
    pub priority: i32,
    /// Ask a leader of lower priority to hand over.
    pub preempt: bool,
    /// How long to leave the role free before claiming it.
    pub takeover_delay: std::time::Duration,
    /// A tenure younger than this is not handed over to a node of higher priority.
    pub min_tenure: std::time::Duration,
    /// How long to stand back after the work failed.
    pub cool_down: std::time::Duration,
}

impl Default for Standing {
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
pub enum Output {
    /// Read these registers and answer with [`Reply::Read`].
    Read {
        /// To be named in the answer.
        op: OpId,
        /// What.
        query: Query,
    },
    /// Carry out these writes, each independent of the others, and answer with [`Reply::Written`].
    Write {
        /// To be named in the answer.
        op: OpId,
        /// At most [`crate::engine::BATCH`].
        writes: Vec<Write>,
    },
    /// Make ready a witness for this session, if the store has any, and answer with [`Input::Attested`].
    Attest {
        /// For which session.
        session: SessionId,
        /// What a dropped connection is to mean for it.
        takeover: Takeover,
    },
    /// Tell when this witness sees that session die or disconnect.
    Attend {
        /// Which session.
        session: SessionId,
        /// Its witness, as its record names it.
        witness: String,
        /// What a dropped connection means for it.
        takeover: Takeover,
    },
    /// That session is of no interest any more.
    Ignore {
        /// Which session.
        session: SessionId,
    },
    /// The session is over and its work has stopped: its witness may be let go of.
    Release {
        /// Which session.
        session: SessionId,
    },
    /// What is led may be relied on until then, and no longer.
    Valid {
        /// The deadline of the session.
        until: Time,
    },
    /// Tell those who listen.
    Event(Event),
}

/// What happened, for work, for people, for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A session was opened.
    SessionOpened {
        /// Its id.
        session: SessionId,
    },
    /// On disconnect was asked for, but nobody can tell of dropped connections: this session is a strict one.
    NoWitness {
        /// Its id.
        session: SessionId,
    },
    /// The session is over; what it led is lost.
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
    /// A beat failed: the leases run on unrenewed.
    InDoubt,
    /// A beat succeeded again.
    Certain,
    /// The role is led here: work may start.
    Elected {
        /// Which role.
        role: Name,
        /// Its token.
        token: Token,
    },
    /// The work is asked to stop: wind down and answer with [`Input::Stopped`].
    Draining {
        /// Which role.
        role: Name,
        /// Its token.
        token: Token,
        /// Why.
        reason: Reason,
        /// True if the lease runs out: what has not stopped by the deadline must be killed. Otherwise the caller
        /// sets the limit.
        forced: bool,
    },
    /// The tenure is over. Work that is still running works without cover.
    Lost {
        /// Which role.
        role: Name,
        /// Its token.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// This node's part in a role has changed.
    StateChanged {
        /// Which role.
        role: Name,
        /// What it was.
        from: State,
        /// What it is.
        to: State,
    },
    /// A role has another leader, or none, as far as this node has seen.
    LeaderChanged {
        /// Which role.
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
        /// Which role.
        role: Name,
        /// Who led.
        former: Name,
    },
    /// A claim did not succeed.
    ElectionFailed {
        /// Which role.
        role: Name,
        /// Why.
        cause: Cause,
    },
    /// A role was paused or resumed.
    Paused {
        /// Which role.
        role: Name,
        /// Whether it is paused now.
        paused: bool,
    },
    /// Everything this node depends on was looked at once more.
    Checked,
    /// The store forgot, or was replaced: nothing is claimed before then.
    Quarantined {
        /// Until when.
        until: Time,
    },
    /// A register holds what this version cannot read; it is left alone.
    Unreadable {
        /// Which.
        key: Key,
    },
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
    /// An operator paused the role: nobody leads.
    Paused,
}

/// Why a claim did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Somebody else was faster.
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
