//! Candidates for a role, and observers of one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tenure_core::io::{Candidacy, State};
use tokio::sync::mpsc;

use crate::driver::{Command, RoleSlot};
use crate::lead::{Lead, Tenure};
use crate::{Leader, Name};

/// A candidate for a role, until the last clone, and the last tenure, is dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let node = tenure::testing::node("web-1").await;
/// let candidate = node.candidate("scheduler").await?;
/// while let Some(tenure) = candidate.elected().await {
///     println!("elected under token {}", tenure.token());
///     // Request handlers ask a clone of the candidate whether this node leads now.
///     assert!(candidate.lead().is_some_and(|lead| lead.check()));
///     tenure.resign();
/// #   break;
/// }
/// # Ok::<(), tenure::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Candidate {
    shared: Arc<CandidateShared>,
}

/// The shared state of a candidate's clones.
#[derive(Debug)]
pub(crate) struct CandidateShared {
    pub(crate) slot: Arc<RoleSlot>,
    commands: mpsc::UnboundedSender<Command>,
    candidacy: std::sync::Mutex<Candidacy>,
    backoff: std::sync::Mutex<FailureBackoff>,
    drain: Duration,
    kill_slack: Duration,
}

impl Drop for CandidateShared {
    fn drop(&mut self) {
        self.slot.candidates.fetch_sub(1, Ordering::AcqRel);
        let _ = self.commands.send(Command::Leave { role: self.slot.role.clone() });
    }
}

impl CandidateShared {
    pub(crate) fn new(
        slot: Arc<RoleSlot>,
        commands: mpsc::UnboundedSender<Command>,
        candidacy: Candidacy,
        drain: Duration,
        kill_slack: Duration,
    ) -> Arc<Self> {
        slot.candidates.fetch_add(1, Ordering::AcqRel);
        let (candidacy, backoff) = (std::sync::Mutex::new(candidacy), Default::default());
        let shared = Self { slot, commands, candidacy, backoff, drain, kill_slack };
        shared.announce();
        Arc::new(shared)
    }

    fn announce(&self) {
        let candidacy = self.candidacy.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let (role, slot) = (self.slot.role.clone(), self.slot.clone());
        let _ = self.commands.send(Command::Campaign { role, candidacy, slot });
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Candidacy)) {
        change(&mut self.candidacy.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.announce();
    }

    /// Calls `give_up`, which gives the role up because its work failed after this time, under a cool-down that grows with
    /// each failure in a row.
    pub(crate) fn give_up_failed(&self, lasted: Duration, give_up: impl FnOnce()) {
        let lock = || self.candidacy.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let cool_down = lock().cool_down;
        let mut backoff = self.backoff.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let pause = backoff.next(cool_down, lasted);
        drop(backoff);
        if pause == cool_down {
            return give_up();
        }
        tracing::warn!(role = %self.slot.role, pause = ?pause, "the work keeps failing; this node waits longer before it claims the role again");
        self.change(|candidacy| candidacy.cool_down = pause);
        give_up();
        // What an operator asks for is answered with the cool-down that was configured.
        self.change(|candidacy| candidacy.cool_down = cool_down);
    }
}

/// How long a node stands back from a role whose work failed: for its cool-down, and twice as long after each failure that
/// comes sooner than the node had waited before it. Work that lasted as long as that begins anew.
#[derive(Debug, Default)]
struct FailureBackoff {
    last: Option<Duration>,
}

impl FailureBackoff {
    /// The longest pause, unless the cool-down is longer.
    const LONGEST: Duration = Duration::from_secs(60);

    fn next(&mut self, cool_down: Duration, lasted: Duration) -> Duration {
        let doubled = |last: Duration| last.saturating_mul(2).min(Self::LONGEST).max(cool_down);
        let pause = self.last.filter(|last| lasted < *last).map_or(cool_down, doubled);
        self.last = Some(pause);
        pause
    }
}

impl Candidate {
    pub(crate) fn new(shared: Arc<CandidateShared>) -> Self {
        Self { shared }
    }

    /// Waits to be elected. None once the node has stopped. Cancel-safe: a tenure is never lost by dropping this.
    pub async fn elected(&self) -> Option<Tenure> {
        let mut view = self.shared.slot.view.subscribe();
        loop {
            let closed = view.borrow_and_update().closed;
            if let Some(lease) = self.shared.slot.take_offer() {
                let CandidateShared { commands, drain, kill_slack, .. } = &*self.shared;
                return Some(Tenure::new(lease, commands.clone(), *drain, *kill_slack, self.shared.clone()));
            }
            if closed || view.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Waits to be elected, but no longer than this.
    pub async fn elected_within(&self, limit: Duration) -> Option<Tenure> {
        tokio::time::timeout(limit, self.elected()).await.ok().flatten()
    }

    /// Leadership, if this node has it now: for request handlers beside the work.
    #[must_use]
    pub fn lead(&self) -> Option<Lead> {
        let lease = self.shared.slot.view.borrow().lease.clone()?;
        lease.check().then(|| Lead::of(lease))
    }

    /// This node's part in the role.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.slot.view.borrow().state
    }

    /// The leader, as far as this node has seen.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.shared.slot.view.borrow().leader.clone()
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &Name {
        &self.shared.slot.role
    }

    /// Makes this candidate claim the role, or only follow. A leader that becomes ineligible gives the role up.
    pub fn set_eligible(&self, eligible: bool) {
        self.shared.change(|candidacy| candidacy.eligible = eligible);
    }

    /// Changes the priority: higher claims first.
    pub fn set_priority(&self, priority: i32) {
        self.shared.change(|candidacy| candidacy.priority = priority);
    }

    /// Gives the role up, if this node leads it; its work is told to stop first. It stays a candidate, the last in line.
    pub fn resign(&self) {
        if let Some(lead) = self.lead() {
            let (role, token, reason) = (self.role().clone(), lead.token(), crate::EndReason::Resigned);
            let _ = self.shared.commands.send(Command::Release { role, token, reason });
        }
    }
}

/// Watches a role without being a candidate for it.
#[derive(Debug, Clone)]
pub struct Observer {
    observation: Arc<Observation>,
}

/// The leader of a role now and whenever it changes: see [`Observer::leaders`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct LeaderStream {
    leaders: BoxStream<'static, Option<Leader>>,
}

impl std::fmt::Debug for LeaderStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderStream").finish_non_exhaustive()
    }
}

impl Stream for LeaderStream {
    type Item = Option<Leader>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.leaders.poll_next_unpin(context)
    }
}

#[derive(Debug)]
pub(crate) struct Observation {
    slot: Arc<RoleSlot>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.slot.observers.fetch_sub(1, Ordering::AcqRel);
        let _ = self.commands.send(Command::Leave { role: self.slot.role.clone() });
    }
}

impl Observer {
    pub(crate) fn new(slot: Arc<RoleSlot>, commands: mpsc::UnboundedSender<Command>) -> Self {
        slot.observers.fetch_add(1, Ordering::AcqRel);
        let _ = commands.send(Command::Observe { role: slot.role.clone(), slot: slot.clone() });
        Self { observation: Arc::new(Observation { slot, commands }) }
    }

    /// The leader, as far as this node has seen. Only the leader itself can be sure.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.observation.slot.view.borrow().leader.clone()
    }

    /// The leader now and whenever it changes. Quick changes may be skipped; the latest is always delivered.
    pub fn leaders(&self) -> LeaderStream {
        let view = self.observation.slot.view.subscribe();
        let leaders = stream::unfold((view, true, None), |(mut view, first, last)| async move {
            let mut first = first;
            loop {
                if !std::mem::take(&mut first) {
                    view.changed().await.ok()?;
                } else {
                    let leader = view.borrow_and_update().leader.clone();
                    return Some((leader.clone(), (view, false, Some(leader))));
                }
                let leader = view.borrow_and_update().leader.clone();
                if last.as_ref() != Some(&leader) {
                    return Some((leader.clone(), (view, false, Some(leader))));
                }
            }
        })
        .boxed();
        LeaderStream { leaders }
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &Name {
        &self.observation.slot.role
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_minute_and_begin_anew_after_work_that_lasted() {
        let (mut backoff, second) = (FailureBackoff::default(), Duration::from_secs);
        let mut after =
            |cool_down: u64, lasted: u64| backoff.next(second(cool_down), second(lasted)).as_secs();
        let failing: Vec<u64> = (0..6).map(|_| after(5, 1)).collect();
        assert_eq!(failing, [5, 10, 20, 40, 60, 60]);
        assert_eq!(after(5, 59), 60, "it had waited for longer than the work lasted");
        assert_eq!(after(5, 60), 5, "as long as it had waited");
        assert_eq!(after(5, 1), 10);
        assert_eq!([after(300, 1), after(300, 1)], [300, 300], "a cool-down that is longer stays as it is");
        assert_eq!([after(0, 301), after(0, 0)], [0, 0], "and so does none");
    }
}
