//! [`Tenure`], the guard of one tenure, and [`Lead`], the handle to pass around.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::candidate::CandidateShared;
use crate::driver::Command;
use crate::fault_injection::DriverFault;
use crate::lease_state::{LeaseState, TenurePhase};
use crate::{EndReason, Name, SessionId, Time, Token};

/// How [`Tenure::hold`] ended. Losing a tenure is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkOutcome<T> {
    /// The work returned.
    Completed(T),
    /// The tenure ended first; the work was dropped.
    Lost(EndReason),
}

/// A request to stop the work of a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopRequest {
    /// The role is given up on purpose: the work has its drain time to wind down.
    Drain {
        /// Why the role is given up.
        reason: EndReason,
    },
    /// The lease runs out, or is over: the work has what is left until [`Lead::deadline`].
    LeaseEnds {
        /// Why the tenure ends.
        reason: EndReason,
    },
}

impl StopRequest {
    pub(crate) fn new(reason: EndReason, forced: bool) -> Self {
        if forced { Self::LeaseEnds { reason } } else { Self::Drain { reason } }
    }

    /// Why the tenure ends.
    #[must_use]
    pub fn reason(self) -> EndReason {
        match self {
            Self::Drain { reason } | Self::LeaseEnds { reason } => reason,
        }
    }
}

/// Follows the deadline of a tenure, which each renewal of the lease moves on: the earlier of the deadlines of the session and of
/// the guard lock, if there is one.
#[derive(Debug, Clone)]
pub struct DeadlineWatch {
    session: watch::Receiver<Time>,
    guard: Option<watch::Receiver<Time>>,
}

impl DeadlineWatch {
    /// The deadline now; [`moved`](Self::moved) waits for a later one.
    pub fn current(&mut self) -> Time {
        let session = *self.session.borrow_and_update();
        self.guard.as_mut().map_or(session, |guard| session.min(*guard.borrow_and_update()))
    }

    /// Waits until the deadline moves. None if it never will again. Cancel-safe.
    pub async fn moved(&mut self) -> Option<Time> {
        let guard = async {
            match &mut self.guard {
                Some(guard) => guard.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.session.changed() => changed,
            changed = guard => changed,
        }
        .ok()?;
        Some(self.current())
    }
}

/// Leadership of one role, until it is dropped or lost. As long as this guard lives, its work is taken to be running:
/// the role is given up once the guard is dropped, and not before.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let node = tenure::testing::node("web-1").await;
/// use tenure::WorkOutcome;
///
/// let candidate = node.candidate("scheduler").await?;
/// let tenure = candidate.elected().await.expect("the node was not stopped");
/// match tenure.hold(|lead| async move { lead.token() }).await {
///     WorkOutcome::Completed(token) => println!("done under token {token}"),
///     WorkOutcome::Lost(reason) => println!("lost: {reason}"), // not an error: campaign again
/// }
/// # Ok::<(), tenure::Error>(()) }).unwrap();
/// ```
#[must_use = "dropping a tenure gives the role up"]
pub struct Tenure {
    lead: Lead,
    commands: mpsc::UnboundedSender<Command>,
    drain: Duration,
    kill_slack: Duration,
    reason: EndReason,
    began: Instant,
    /// The candidacy lives at least as long as its tenure.
    shared: Arc<CandidateShared>,
}

/// Proof of leadership, to be checked at the moment of use. Cheap to clone; it keeps nothing alive.
#[derive(Clone)]
pub struct Lead {
    lease: Arc<LeaseState>,
    drains: Arc<AtomicBool>,
}

impl Tenure {
    pub(crate) fn new(
        lease: Arc<LeaseState>,
        commands: mpsc::UnboundedSender<Command>,
        drain: Duration,
        kill_slack: Duration,
        shared: Arc<CandidateShared>,
    ) -> Self {
        let lead = Lead { lease, drains: Arc::new(AtomicBool::new(false)) };
        Self { lead, commands, drain, kill_slack, reason: EndReason::Finished, began: Instant::now(), shared }
    }

    /// Runs `work` while the tenure lasts, then gives the role up.
    ///
    /// When the work has to stop, its future is dropped at once, unless it has asked [`Lead::draining`] to be told:
    /// then it has the configured drain time to wind down (less if the lease runs out), and is dropped after that.
    /// Blocking code inside it cannot be dropped: keep it in tasks that look at [`Lead::check`].
    pub async fn hold<F, Fut>(self, work: F) -> WorkOutcome<Fut::Output>
    where
        F: FnOnce(Lead) -> Fut,
        Fut: Future,
    {
        let mut guard = self;
        // If the work panics, the role is given up as failed.
        guard.reason = EndReason::WorkFailed;
        let held = guard.run(work(guard.lead.clone())).await;
        guard.reason = EndReason::Finished;
        held
    }

    /// As [`Tenure::hold`], for work that can fail: then the role is given up as failed, and the failure is returned. What
    /// work says that was told to stop is no failure.
    pub(crate) async fn hold_work<F, Fut>(self, work: F) -> WorkOutcome<Option<String>>
    where
        F: FnOnce(Lead) -> Fut,
        Fut: Future<Output: WorkResult>,
    {
        let mut guard = self;
        guard.reason = EndReason::WorkFailed;
        let held = match guard.run(work(guard.lead.clone())).await {
            WorkOutcome::Completed(value) => {
                WorkOutcome::Completed(value.failure().filter(|_| guard.lead.is_held()))
            }
            WorkOutcome::Lost(reason) => WorkOutcome::Lost(reason),
        };
        if !matches!(held, WorkOutcome::Completed(Some(_))) {
            guard.reason = EndReason::Finished;
        }
        held
    }

    async fn run<T>(&self, work: impl Future<Output = T>) -> WorkOutcome<T> {
        let mut work = pin!(work);
        if DriverFault::WorkNotStopped.is_injected(self.lead.lease.fault) {
            return WorkOutcome::Completed(work.await);
        }
        let request = tokio::select! {
            biased;
            request = self.lead.stop_requested() => request,
            value = &mut work => return WorkOutcome::Completed(value),
        };
        if !self.lead.drains.load(Ordering::Acquire) {
            return WorkOutcome::Lost(request.reason());
        }
        tokio::select! {
            biased;
            () = self.stop_deadline(request) => WorkOutcome::Lost(request.reason()),
            value = &mut work => WorkOutcome::Completed(value),
        }
    }

    /// Waits until work that was asked to stop has to be ended: its drain time is over, or the lease is about to be.
    pub(crate) async fn stop_deadline(&self, request: StopRequest) {
        let limit = match request {
            StopRequest::Drain { .. } => self.drain,
            StopRequest::LeaseEnds { .. } => Duration::MAX,
        };
        tokio::select! {
            biased;
            () = self.lead.deadline_near(self.kill_slack) => {}
            () = tokio::time::sleep(limit) => {}
        }
    }

    /// Gives the role up for a reason of your own.
    pub fn resign(mut self) {
        self.reason = EndReason::Resigned;
    }

    /// Gives the role up because the program is stopping.
    pub fn shut_down(mut self) {
        self.reason = EndReason::Shutdown;
    }

    /// Gives the role up because the work failed: this node does not claim it for its cool-down, so that another node gets a turn.
    /// Each failure that comes sooner than the node had waited before it doubles that time, up to a minute.
    pub fn fail(mut self) {
        self.reason = EndReason::WorkFailed;
    }

    /// Says that no work runs under this tenure, or that it does. Without work nothing can be too slow to stop, and no
    /// [`EventKind::Stuck`](crate::event::EventKind::Stuck) is published. A tenure begins with work.
    pub fn set_idle(&self, idle: bool) {
        self.lead.lease.idle.store(idle, Ordering::Release);
    }

    /// A handle to pass around; it keeps nothing alive.
    #[must_use]
    pub fn lead(&self) -> Lead {
        self.lead.clone()
    }
}

/// The result of the work of [`Node::lead`](crate::Node::lead): nothing, or a `Result` whose error means that it failed.
pub trait WorkResult {
    /// The error, if the work failed.
    fn failure(self) -> Option<String>;
}

impl WorkResult for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T, E: fmt::Display> WorkResult for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
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
        let reason = if std::thread::panicking() { EndReason::WorkFailed } else { self.reason };
        let (role, token) = (self.lead.lease.role.clone(), self.lead.lease.token);
        self.lead.lease.taken.store(false, Ordering::Release);
        let give_up = || {
            // Without a loop there is nothing left to give up.
            let _ = self.commands.send(Command::Release { role: role.clone(), token, reason });
            match &self.lead.lease.guard {
                // Its keeper gives the lock back first, so that the next leader finds it free.
                Some(guard) => guard.work_ended.cancel(),
                None => _ = self.commands.send(Command::Stopped { role, token }),
            }
        };
        match reason {
            EndReason::WorkFailed => self.shared.give_up_failed(self.began.elapsed(), give_up),
            _ => give_up(),
        }
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
    pub(crate) fn of(lease: Arc<LeaseState>) -> Self {
        Self { lease, drains: Arc::default() }
    }

    /// Whether leadership may be relied on at this very moment. Local, and takes nanoseconds: it compares the clock
    /// each time, because a flag that a frozen process cannot clear is not leadership. Ask before every guarded act, and let
    /// what you write carry the [token](Self::token): a process can be frozen right after asking.
    #[inline]
    #[must_use]
    pub fn check(&self) -> bool {
        self.lease.check()
    }

    /// The fencing token of this tenure.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lease.token
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &Name {
        &self.lease.role
    }

    /// The session on which the tenure rests.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.lease.session
    }

    /// Until when leadership may be relied on if nothing more is heard from the store, on the lease clock.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.lease.deadline()
    }

    /// How long leadership may be relied on if nothing more is heard from the store.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.check() { self.deadline().since(self.lease.clock.now()) } else { Duration::ZERO }
    }

    /// Follows the deadline as beats move it on.
    #[must_use]
    pub fn deadlines(&self) -> DeadlineWatch {
        let (session, guard) = self.lease.subscribe();
        DeadlineWatch { session, guard }
    }

    /// Whether the work was not asked to stop yet.
    fn is_held(&self) -> bool {
        matches!(*self.lease.phase.borrow(), TenurePhase::Held)
    }

    /// Waits until the work is asked to stop. Calling it announces that the work winds down by itself.
    pub async fn draining(&self) {
        self.drains.store(true, Ordering::Release);
        self.stop_requested().await;
    }

    /// Waits until leadership can no longer be relied on.
    pub async fn cancelled(&self) {
        self.deadline_near(Duration::ZERO).await;
    }

    /// Waits until the tenure is over, and returns the reason.
    pub async fn lost(&self) -> EndReason {
        let mut phase = self.lease.phase.subscribe();
        loop {
            if let TenurePhase::Lost(reason) = *phase.borrow_and_update() {
                return reason;
            }
            if phase.changed().await.is_err() {
                return EndReason::Fault;
            }
        }
    }

    /// Waits until the work is asked to stop. Unlike [`draining`](Self::draining) it announces nothing.
    pub async fn stop_requested(&self) -> StopRequest {
        let mut phase = self.lease.phase.subscribe();
        loop {
            match *phase.borrow_and_update() {
                TenurePhase::Held => {}
                TenurePhase::Stopping(request) => return request,
                TenurePhase::Lost(reason) => return StopRequest::LeaseEnds { reason },
            }
            if phase.changed().await.is_err() {
                return StopRequest::LeaseEnds { reason: EndReason::Fault };
            }
        }
    }

    /// Waits until the tenure is lost, or its deadline is as near as `slack`.
    pub(crate) async fn deadline_near(&self, slack: Duration) {
        let mut phase = self.lease.phase.subscribe();
        let mut deadline = self.deadlines();
        loop {
            let limit = deadline.current().before(slack);
            if matches!(*phase.borrow_and_update(), TenurePhase::Lost(_)) || self.lease.clock.now() >= limit {
                return;
            }
            tokio::select! {
                () = self.lease.clock.sleep_until(limit) => {}
                changed = phase.changed() => if changed.is_err() { return },
                moved = deadline.moved() => if moved.is_none() { return },
            }
        }
    }
}
