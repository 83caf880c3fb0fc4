//! What the loop and the users share: whether leadership may be relied on, asked at the moment of use.
//!
//! A tenure rests on its session's deadline, an instant of the lease clock that each acknowledged beat moves on, and
//! on a flag that the loop sets before it gives the role up. Nobody has to be told for it to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

use crate::clock::Clock;
use crate::slip::Slip;
use crate::{Name, Reason, SessionId, Time, Token};

/// The deadline of one session, shared by everything that rests on it.
#[derive(Debug)]
pub(crate) struct Deadline {
    nanos: AtomicU64,
    moved: watch::Sender<Time>,
}

impl Deadline {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { nanos: AtomicU64::new(0), moved: watch::Sender::new(Time(0)) })
    }

    pub(crate) fn set(&self, until: Time) {
        self.nanos.store(until.0, Ordering::Release);
        self.moved.send_replace(until);
    }

    pub(crate) fn get(&self) -> Time {
        Time(self.nanos.load(Ordering::Acquire))
    }

    pub(crate) fn moves(&self) -> watch::Receiver<Time> {
        self.moved.subscribe()
    }
}

/// How a tenure goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is held.
    Held,
    /// The work was told to stop; `true` if the lease runs out.
    Draining(Reason, bool),
    /// It is over.
    Lost(Reason),
}

/// One tenure of this node.
#[derive(Debug)]
pub(crate) struct Office {
    pub(crate) role: Name,
    pub(crate) token: Token,
    pub(crate) session: SessionId,
    pub(crate) deadline: Arc<Deadline>,
    pub(crate) clock: Arc<dyn Clock>,
    revoked: AtomicBool,
    /// The mistake to make, for the negative control.
    pub(crate) slip: Option<Slip>,
    /// Whether a guard was handed out for it, and not dropped yet.
    pub(crate) taken: AtomicBool,
    pub(crate) phase: watch::Sender<Phase>,
}

impl Office {
    pub(crate) fn new(
        role: Name,
        token: Token,
        session: SessionId,
        deadline: Arc<Deadline>,
        clock: Arc<dyn Clock>,
        slip: Option<Slip>,
    ) -> Arc<Self> {
        let (revoked, taken) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self {
            role,
            token,
            session,
            deadline,
            clock,
            revoked,
            slip,
            taken,
            phase: watch::Sender::new(Phase::Held),
        })
    }

    /// Whether leadership may be relied on at this very moment.
    #[inline]
    pub(crate) fn check(&self) -> bool {
        !self.revoked.load(Ordering::Acquire)
            && (self.clock.now() < self.deadline.get() || Slip::BooleanGuard.made(self.slip))
    }

    pub(crate) fn drain(&self, reason: Reason, forced: bool) {
        self.phase.send_replace(Phase::Draining(reason, forced));
    }

    /// Over: from here on `check` is false, whatever the clock says.
    pub(crate) fn revoke(&self, reason: Reason) {
        if Slip::NotRevoked.made(self.slip) {
            return;
        }
        self.revoked.store(true, Ordering::Release);
        self.phase.send_replace(Phase::Lost(reason));
    }
}
