//! The event queue: everything that is scheduled, in the order of true time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use tenure_core::{Input, OpId, Query, SessionId, Write};

use crate::clock::Instant;
use crate::process::Pid;
use crate::work::WorkId;

/// A scheduled event of the simulation.
#[derive(Debug, Clone)]
pub enum SimEvent {
    /// The process asked for this wake-up.
    Wake(Pid),
    /// An input other than a reply reaches the process.
    Deliver(Pid, Box<Input>),
    /// A reply of the store reaches the process. The count says how many losses preceded the state that the reply shows.
    Answer(Pid, Box<Input>, usize),
    Arrive(Box<StoreRequest>),
    /// A frozen process runs again.
    Thaw(Pid),
    /// Work that was asked to stop has stopped.
    WorkStops(WorkId),
    /// The watchdog checks the deadline of some work.
    Watchdog(WorkId),
    /// The work of a machine that was suspended has had a moment to be stopped.
    Covered(WorkId),
    /// A liveness lock is released.
    Release(SessionId),
    /// A node that was down starts again.
    Restart(usize),
    Fault,
    /// A user of the library acts.
    User,
    /// An operator acts.
    Operator,
    /// From now on the store can lose what it acknowledges.
    Weaken,
    /// All faults end.
    Heal,
    /// The bound after healing has passed.
    Judge,
}

/// One operation in flight to the store.
#[derive(Debug, Clone)]
pub struct StoreRequest {
    pub pid: Pid,
    pub op: OpId,
    pub body: Operation,
    /// Whether the sender waits for the reply.
    pub answered: bool,
    /// Whether a duplicate is in flight: then the store must not answer that the operation will never be applied.
    pub duplicated: bool,
}

/// What an operation asks for.
#[derive(Debug, Clone)]
pub enum Operation {
    Read(Query),
    Write(Vec<Write>),
}

#[derive(Debug, Clone)]
struct ScheduledEvent {
    at: Instant,
    order: u64,
    what: SimEvent,
}

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for ScheduledEvent {}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A priority queue by time; events of one instant run in the order in which they were scheduled.
#[derive(Debug, Clone, Default)]
pub struct EventQueue {
    due: BinaryHeap<Reverse<ScheduledEvent>>,
    order: u64,
    /// The latest arrival of any message scheduled so far.
    latest_message: Instant,
}

impl EventQueue {
    pub fn schedule(&mut self, at: Instant, what: SimEvent) {
        if at == Instant::MAX {
            return;
        }
        if matches!(what, SimEvent::Deliver(..) | SimEvent::Answer(..) | SimEvent::Arrive(_)) {
            self.latest_message = self.latest_message.max(at);
        }
        self.order += 1;
        self.due.push(Reverse(ScheduledEvent { at, order: self.order, what }));
    }

    pub fn pop(&mut self) -> Option<(Instant, SimEvent)> {
        self.due.pop().map(|Reverse(due)| (due.at, due.what))
    }

    /// When the last message in flight arrives.
    #[must_use]
    pub fn latest_message(&self) -> Instant {
        self.latest_message
    }
}
