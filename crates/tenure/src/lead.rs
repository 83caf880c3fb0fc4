//! A tenure in your hands: [`Tenure`] is the guard, [`Lead`] is what you pass around.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::candidate::Standee;
use crate::driver::Command;
use crate::office::{Office, Phase};
use crate::slip::Slip;
use crate::{Name, Reason, SessionId, Time, Token};

/// What [`Tenure::hold`] came to. Losing is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held<T> {
    /// The work returned.
    Returned(T),
    /// The tenure ended first; the work was dropped.
    Lost(Reason),
}

/// Leadership of one role, until it is dropped or lost. As long as this guard lives, its work is taken to be running:
/// the role is given up once the guard is dropped, and not before.
#[must_use = "dropping a tenure gives the role up"]
pub struct Tenure {
    lead: Lead,
    commands: mpsc::UnboundedSender<Command>,
    drain: Duration,
    kill_slack: Duration,
    reason: Reason,
    /// The candidacy lives at least as long as its tenure.
    _standee: Arc<Standee>,
}

/// Proof of leadership to be asked at the moment of use. Cheap to clone; it keeps nothing alive.
#[derive(Clone)]
pub struct Lead {
    office: Arc<Office>,
    drains: Arc<AtomicBool>,
}

impl Tenure {
    pub(crate) fn new(
        office: Arc<Office>,
        commands: mpsc::UnboundedSender<Command>,
        drain: Duration,
        kill_slack: Duration,
        standee: Arc<Standee>,
    ) -> Self {
        let lead = Lead { office, drains: Arc::new(AtomicBool::new(false)) };
        Self { lead, commands, drain, kill_slack, reason: Reason::Finished, _standee: standee }
    }

    /// Runs `work` while the tenure lasts, then gives the role up.
    ///
    /// When the work has to stop, its future is dropped at once, unless it has asked [`Lead::draining`] to be told:
    /// then it has the configured drain time to wind down (less if the lease runs out), and is dropped after that.
    /// Blocking code inside it cannot be dropped: keep it in tasks that look at [`Lead::check`].
    pub async fn hold<F, Fut>(self, work: F) -> Held<Fut::Output>
    where
        F: FnOnce(Lead) -> Fut,
        Fut: Future,
    {
        let mut guard = self;
        // If the work panics, the role is given up as failed.
        guard.reason = Reason::WorkFailed;
        let held = guard.run(work(guard.lead.clone())).await;
        guard.reason = Reason::Finished;
        held
    }

    async fn run<T>(&self, work: impl Future<Output = T>) -> Held<T> {
        let mut work = pin!(work);
        if Slip::WorkNotStopped.made(self.lead.office.slip) {
            return Held::Returned(work.await);
        }
        let (reason, forced) = tokio::select! {
            biased;
            ended = self.lead.ended() => ended,
            value = &mut work => return Held::Returned(value),
        };
        if !self.lead.drains.load(Ordering::Acquire) {
            return Held::Lost(reason);
        }
        tokio::select! {
            biased;
            () = self.out_of_time(forced) => Held::Lost(reason),
            value = &mut work => Held::Returned(value),
        }
    }

    /// Waits until work that was told to stop has to be stopped: its drain time is over, or the lease is about to be.
    pub(crate) async fn out_of_time(&self, forced: bool) {
        let limit = if forced { Duration::MAX } else { self.drain };
        tokio::select! {
            biased;
            () = self.lead.unsafe_soon(self.kill_slack) => {}
            () = tokio::time::sleep(limit) => {}
        }
    }

    /// Gives the role up for a reason of your own.
    pub fn resign(mut self) {
        self.reason = Reason::Resigned;
    }

    /// Gives the role up because the program is stopping.
    pub fn shut_down(mut self) {
        self.reason = Reason::Shutdown;
    }

    /// Gives the role up because the work failed: this node stands back for its cool-down, so that another gets a turn.
    pub fn fail(mut self) {
        self.reason = Reason::WorkFailed;
    }

    /// What to pass around.
    #[must_use]
    pub fn lead(&self) -> Lead {
        self.lead.clone()
    }
}

/// The guard is as good as the [`Lead`] in it.
impl std::ops::Deref for Tenure {
    type Target = Lead;
    fn deref(&self) -> &Lead {
        &self.lead
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { Reason::WorkFailed } else { self.reason };
        let (role, token) = (self.lead.office.role.clone(), self.lead.office.token);
        self.lead.office.taken.store(false, Ordering::Release);
        // Without a loop there is nobody to tell, and nothing left to give up.
        let _ = self.commands.send(Command::Release { role: role.clone(), token, reason });
        let _ = self.commands.send(Command::Stopped { role, token });
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("role", self.role())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead")
            .field("role", self.role())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

impl Lead {
    pub(crate) fn of(office: Arc<Office>) -> Self {
        Self { office, drains: Arc::default() }
    }

    /// Whether leadership may be relied on at this very moment. Local, and takes nanoseconds: it compares the clock
    /// each time, because a flag that nobody could clear is not leadership. Ask before every guarded act, and let
    /// what you write carry the [token](Self::token): a process can be frozen right after asking.
    #[inline]
    #[must_use]
    pub fn check(&self) -> bool {
        self.office.check()
    }

    /// The fencing token of this tenure.
    #[must_use]
    pub fn token(&self) -> Token {
        self.office.token
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &Name {
        &self.office.role
    }

    /// The session on which the tenure rests.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.office.session
    }

    /// Until when leadership may be relied on if nothing more is heard from the store, on the lease clock.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.office.deadline.get()
    }

    /// How long leadership may be relied on if nothing more is heard from the store.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.check() { self.deadline().since(self.office.clock.now()) } else { Duration::ZERO }
    }

    /// Follows the deadline as beats move it on.
    #[must_use]
    pub fn deadlines(&self) -> watch::Receiver<Time> {
        self.office.deadline.moves()
    }

    /// Waits until the work is asked to stop. Calling it announces that the work winds down by itself.
    pub async fn draining(&self) {
        self.drains.store(true, Ordering::Release);
        self.ended().await;
    }

    /// Waits until leadership can no longer be relied on.
    pub async fn cancelled(&self) {
        self.unsafe_soon(Duration::ZERO).await;
    }

    /// Waits until the tenure is over, and tells why. A tenure that nobody ends goes on for ever.
    pub async fn lost(&self) -> Reason {
        let mut phase = self.office.phase.subscribe();
        loop {
            if let Phase::Lost(reason) = *phase.borrow_and_update() {
                return reason;
            }
            if phase.changed().await.is_err() {
                return Reason::Fault;
            }
        }
    }

    /// Waits until the work is asked to stop, and tells why, and whether the lease runs out.
    pub async fn ended(&self) -> (Reason, bool) {
        let mut phase = self.office.phase.subscribe();
        loop {
            match *phase.borrow_and_update() {
                Phase::Held => {}
                Phase::Draining(reason, forced) => return (reason, forced),
                Phase::Lost(reason) => return (reason, true),
            }
            if phase.changed().await.is_err() {
                return (Reason::Fault, true);
            }
        }
    }

    /// Waits until the tenure is lost, or its deadline is as near as `slack`.
    pub(crate) async fn unsafe_soon(&self, slack: Duration) {
        let mut phase = self.office.phase.subscribe();
        let mut deadline = self.deadlines();
        loop {
            let limit = deadline.borrow_and_update().before(slack);
            if matches!(*phase.borrow_and_update(), Phase::Lost(_)) || self.office.clock.now() >= limit {
                return;
            }
            tokio::select! {
                () = self.office.clock.sleep_until(limit) => {}
                changed = phase.changed() => if changed.is_err() { return },
                changed = deadline.changed() => if changed.is_err() { return },
            }
        }
    }
}
