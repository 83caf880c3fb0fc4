//! The state of one tenure that the election loop shares with your code: whether leadership may be relied on now.
//!
//! A tenure rests on its session's deadline, an instant of the lease clock that each acknowledged beat moves on, on the deadline
//! of its guard lock if it has one, and on a flag that the loop sets before it gives the role up. It ends without any message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::fault_injection::DriverFault;
use crate::lead::StopRequest;
use crate::{EndReason, Name, SessionId, Time, Token};

/// A deadline, of a session or of a guard lock, shared by everything that rests on it.
#[derive(Debug)]
pub(crate) struct SharedDeadline {
    nanos: AtomicU64,
    moved: watch::Sender<Time>,
}

impl SharedDeadline {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { nanos: AtomicU64::new(0), moved: watch::Sender::new(Time::from_nanos(0)) })
    }

    pub(crate) fn set(&self, until: Time) {
        self.nanos.store(until.as_nanos(), Ordering::Release);
        self.moved.send_replace(until);
    }

    pub(crate) fn get(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Time> {
        self.moved.subscribe()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenurePhase {
    Held,
    /// The work has to stop.
    Stopping(StopRequest),
    /// It is over.
    Lost(EndReason),
}

/// What a tenure shares with the keeper of its guard lock.
#[derive(Debug)]
pub(crate) struct GuardState {
    /// Until when the lock is held if no renewal succeeds any more.
    pub(crate) deadline: Arc<SharedDeadline>,
    /// The work has stopped, or will never begin: the keeper gives the lock back, and then reports that the work has stopped.
    pub(crate) work_ended: CancellationToken,
}

/// One tenure of this node.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) role: Name,
    pub(crate) token: Token,
    pub(crate) session: SessionId,
    deadline: Arc<SharedDeadline>,
    pub(crate) guard: Option<GuardState>,
    pub(crate) clock: Arc<dyn Clock>,
    revoked: AtomicBool,
    /// The fault to inject, for the negative control.
    pub(crate) fault: Option<DriverFault>,
    /// Whether a guard was handed out for it, and not dropped yet.
    pub(crate) taken: AtomicBool,
    /// Whether the holder of the guard does no work under it.
    pub(crate) idle: AtomicBool,
    pub(crate) phase: watch::Sender<TenurePhase>,
}

impl LeaseState {
    pub(crate) fn new(
        role: Name,
        token: Token,
        session: SessionId,
        deadline: Arc<SharedDeadline>,
        guard: Option<GuardState>,
        clock: Arc<dyn Clock>,
        fault: Option<DriverFault>,
    ) -> Arc<Self> {
        let (revoked, taken) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self {
            role,
            token,
            session,
            deadline,
            guard,
            clock,
            revoked,
            fault,
            taken,
            idle: AtomicBool::new(false),
            phase: watch::Sender::new(TenurePhase::Held),
        })
    }

    /// The deadline of the guard lock, if it has one.
    fn guard_deadline(&self) -> Option<&SharedDeadline> {
        let guard = self.guard.as_ref().filter(|_| !DriverFault::GuardIgnored.is_injected(self.fault));
        guard.map(|guard| &*guard.deadline)
    }

    /// Until when leadership may be relied on if nothing more is heard, from the store or from the guard lock.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        let session = self.deadline.get();
        self.guard_deadline().map_or(session, |guard| session.min(guard.get()))
    }

    /// Follows the deadlines of the session and of the guard lock.
    pub(crate) fn subscribe(&self) -> (watch::Receiver<Time>, Option<watch::Receiver<Time>>) {
        (self.deadline.subscribe(), self.guard_deadline().map(SharedDeadline::subscribe))
    }

    /// Whether leadership may be relied on at this very moment.
    #[inline]
    pub(crate) fn check(&self) -> bool {
        !self.revoked.load(Ordering::Acquire)
            && (self.clock.now() < self.deadline() || DriverFault::BooleanGuard.is_injected(self.fault))
    }

    pub(crate) fn stop(&self, request: StopRequest) {
        self.phase.send_replace(TenurePhase::Stopping(request));
    }

    /// Over: from here on `check` is false, whatever the clock says.
    pub(crate) fn revoke(&self, reason: EndReason) {
        if DriverFault::NotRevoked.is_injected(self.fault) {
            return;
        }
        self.revoked.store(true, Ordering::Release);
        self.phase.send_replace(TenurePhase::Lost(reason));
    }
}
