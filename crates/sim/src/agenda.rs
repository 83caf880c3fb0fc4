//! What is going to happen, in the order of true time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use tenure_core::{Input, OpId, Query, SessionId, Write};

use crate::clock::Instant;
use crate::process::Pid;
use crate::work::WorkId;

/// Something that is going to happen.
#[derive(Debug, Clone)]
pub enum Happening {
    /// A process asked to be woken.
    Wake(Pid),
    /// A process is told something.
    Deliver(Pid, Box<Input>),
    /// An operation arrives at the store.
    Arrive(Box<Request>),
    /// A frozen process gets time again.
    Thaw(Pid),
    /// Some work that was asked to stop does.
    WorkStops(WorkId),
    /// The watchdog looks at some work.
    Watchdog(WorkId),
    /// A witness lets go.
    Release(SessionId),
    /// A node that was down starts again.
    Restart(usize),
    /// A fault strikes.
    Fault,
    /// A user wants something.
    User,
    /// An operator wants something.
    Operator,
    /// All faults end.
    Heal,
    /// The bound after healing has passed.
    Judge,
}

/// One operation on its way.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who sent it.
    pub pid: Pid,
    /// Its name.
    pub op: OpId,
    /// What it asks for.
    pub body: Body,
    /// Whether anybody waits for the answer.
    pub answered: bool,
    /// Whether another copy of it is on its way, so that nobody can say that it will never happen.
    pub doubled: bool,
}

/// What an operation asks for.
#[derive(Debug, Clone)]
pub enum Body {
    /// A read.
    Read(Query),
    /// A batch of writes.
    Write(Vec<Write>),
}

#[derive(Debug, Clone)]
struct Due {
    at: Instant,
    order: u64,
    what: Happening,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A queue by time; what is due at one instant happens in the order in which it was put in.
#[derive(Debug, Clone, Default)]
pub struct Agenda {
    due: BinaryHeap<Reverse<Due>>,
    order: u64,
    /// The latest arrival of a message that was put in so far.
    latest_message: Instant,
}

impl Agenda {
    /// Adds something.
    pub fn add(&mut self, at: Instant, what: Happening) {
        if at == Instant::MAX {
            return;
        }
        if matches!(what, Happening::Deliver(..) | Happening::Arrive(_)) {
            self.latest_message = self.latest_message.max(at);
        }
        self.order += 1;
        self.due.push(Reverse(Due { at, order: self.order, what }));
    }

    /// What happens next.
    pub fn take(&mut self) -> Option<(Instant, Happening)> {
        self.due.pop().map(|Reverse(due)| (due.at, due.what))
    }

    /// When the last message that is on its way arrives.
    #[must_use]
    pub fn latest_message(&self) -> Instant {
        self.latest_message
    }
}
