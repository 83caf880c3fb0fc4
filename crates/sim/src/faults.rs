//! What can go wrong in a world, by name, so that it can be weighed and counted.

/// A fault that strikes at an instant of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process gets no time for a while, sometimes for longer than its lease.
    Pause,
    /// A process dies.
    Crash,
    /// A second process starts under the name of one that runs.
    DoubleStart,
    /// A process goes on twice from one state.
    Clone,
    /// A node is cut off from the store, in both directions or in one.
    Cut,
    /// A node reads from a copy that lags behind, for a while.
    Replica,
    /// The store answers nobody.
    Outage,
    /// A connection that a witness watches drops.
    Disconnect,
    /// A clock changes its rate, within its bound.
    Drift,
    /// A wall clock jumps.
    WallJump,
    /// A node says that its lease clock cannot be trusted.
    ClockFault,
    /// A hint that was never true.
    FalseHint,
    /// Hints may have been missed.
    Resync,
    /// Evidence of a witness that is not the one in the record.
    FalseWitness,
    /// Somebody deletes the register of a session that is over.
    Tidy,
    /// The store fails over and forgets what it acknowledged last.
    Rollback,
    /// The store forgets everything.
    Amnesia,
    /// Somebody deletes a register that is in use.
    Vandal,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 18] = [
        Self::Pause,
        Self::Crash,
        Self::DoubleStart,
        Self::Clone,
        Self::Cut,
        Self::Replica,
        Self::Outage,
        Self::Disconnect,
        Self::Drift,
        Self::WallJump,
        Self::ClockFault,
        Self::FalseHint,
        Self::Resync,
        Self::FalseWitness,
        Self::Tidy,
        Self::Rollback,
        Self::Amnesia,
        Self::Vandal,
    ];
}

/// What can happen to one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mishap {
    /// The request never arrives.
    RequestLost,
    /// The reply never arrives.
    ReplyLost,
    /// The request arrives twice.
    Doubled,
    /// The message takes long.
    Slow,
    /// The read is answered from an older state.
    Stale,
    /// The store says that it did not do it.
    NotApplied,
    /// The store does not know whether it did it.
    Unknown,
    /// The hint never arrives.
    HintLost,
    /// The hint arrives twice.
    HintDoubled,
    /// The process freezes between reading its clock and sending.
    FrozenSending,
}

impl Mishap {
    /// Every mishap.
    pub const ALL: [Self; 10] = [
        Self::RequestLost,
        Self::ReplyLost,
        Self::Doubled,
        Self::Slow,
        Self::Stale,
        Self::NotApplied,
        Self::Unknown,
        Self::HintLost,
        Self::HintDoubled,
        Self::FrozenSending,
    ];
}
