//! The faults that a world injects, by name, so that they can be weighted and counted.

/// A fault that the injector schedules at an instant of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process gets no time for a while, sometimes for longer than its lease.
    Pause,
    /// A machine sleeps: its lease clock goes on, and a timer that was set before comes late by as much.
    Suspend,
    Crash,
    /// A second process starts under the name of one that runs.
    DoubleStart,
    /// A process is cloned: both copies go on from one state.
    Clone,
    /// A node is cut off from the store, in both directions or in one.
    Partition,
    /// A node reads from a lagging replica for a while.
    StaleReplica,
    /// The store answers no request.
    Outage,
    /// A connection that holds a liveness lock drops.
    Disconnect,
    /// A clock changes its rate, within its bound.
    ClockDrift,
    WallClockJump,
    /// A node says that its lease clock cannot be trusted.
    ClockFault,
    /// A forged hint.
    FalseHint,
    /// Hundreds of forged hints for one process within about a beat.
    HintFlood,
    /// Hints may have been missed.
    Resync,
    /// Evidence that counts for nothing: of a lock that is not the one in the record, or of a kind that its record rules out.
    FalseEvidence,
    /// An operator deletes the register of a session that is over.
    EndedSessionDeleted,
    /// The store fails over to a replica that lacks the writes acknowledged last.
    Rollback,
    /// The store reports a loss that did not happen.
    FalseLossReport,
    /// The store loses the last write of one register.
    LostWrite,
    /// The store loses everything.
    DataLoss,
    /// An operator deletes a register that is in use.
    RegisterDeleted,
}

impl Fault {
    /// The faults that destroy acknowledged writes.
    pub const LOSSES: [Self; 4] = [Self::Rollback, Self::LostWrite, Self::DataLoss, Self::RegisterDeleted];

    pub const ALL: [Self; 22] = [
        Self::Pause,
        Self::Suspend,
        Self::Crash,
        Self::DoubleStart,
        Self::Clone,
        Self::Partition,
        Self::StaleReplica,
        Self::Outage,
        Self::Disconnect,
        Self::ClockDrift,
        Self::WallClockJump,
        Self::ClockFault,
        Self::FalseHint,
        Self::HintFlood,
        Self::Resync,
        Self::FalseEvidence,
        Self::EndedSessionDeleted,
        Self::Rollback,
        Self::FalseLossReport,
        Self::LostWrite,
        Self::DataLoss,
        Self::RegisterDeleted,
    ];
}

/// A fault that affects one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageFault {
    /// The request never arrives.
    RequestLost,
    /// The reply never arrives.
    ReplyLost,
    /// The request arrives twice.
    Duplicated,
    /// The message takes long.
    Slow,
    /// The read is answered from an older state.
    Stale,
    /// The store answers that it did not apply the operation.
    NotApplied,
    /// The store answers that the outcome is unknown.
    Unknown,
    /// The hint never arrives.
    HintLost,
    /// The hint arrives twice.
    HintDuplicated,
    /// The process freezes between reading its clock and sending.
    FrozenSending,
}

impl MessageFault {
    pub const ALL: [Self; 10] = [
        Self::RequestLost,
        Self::ReplyLost,
        Self::Duplicated,
        Self::Slow,
        Self::Stale,
        Self::NotApplied,
        Self::Unknown,
        Self::HintLost,
        Self::HintDuplicated,
        Self::FrozenSending,
    ];
}
