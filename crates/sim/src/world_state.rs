//! The state of a world at one instant: everything that an invariant may look at.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tenure_core::engine::{AUDITED_PER_POLL, Class};
use tenure_core::record::SessionState;
use tenure_core::{Key, Name, Record, SessionId, Time, Timing, Token};

use crate::clock::{Clock, Instant, MILLI};
use crate::losses::{Loss, Losses};
use crate::process::{Pid, Process};
use crate::store::Store;
use crate::swarm::{NodeSettings, SimSettings, WorkKind};
use crate::work::{Work, Works};

#[derive(Debug, Clone)]
pub struct WorldState {
    pub settings: SimSettings,
    pub now: Instant,
    pub clocks: Vec<Clock>,
    /// Every process that ever was.
    pub processes: Vec<Process>,
    pub works: Works,
    pub store: Store,
    /// What the store lost of what it had acknowledged.
    pub losses: Losses,
    /// When each role was lost last, since everything was healed.
    pub lost_at: BTreeMap<Name, Instant>,
    /// How often each role was won since every role was led again.
    pub won: BTreeMap<Name, u32>,
}

impl WorldState {
    #[must_use]
    pub fn node(&self, pid: Pid) -> &NodeSettings {
        &self.settings.nodes[self.processes[pid].node]
    }

    /// The true reading of the lease clock of a process.
    #[must_use]
    pub fn local(&self, pid: Pid) -> Time {
        self.clocks[self.processes[pid].clock].time(self.now)
    }

    /// The token under which a process leads a role at this instant.
    #[must_use]
    pub fn leads(&self, pid: Pid, role: &Name) -> Option<Token> {
        let process = &self.processes[pid];
        if process.is_alive() { process.engine.leads(role, self.local(pid)) } else { None }
    }

    /// Whether some work is being done at this instant.
    #[must_use]
    pub fn is_working(&self, work: &Work) -> bool {
        let process = &self.processes[work.pid];
        match work.kind {
            WorkKind::InProcess => process.is_running() && self.local(work.pid) < process.until,
            WorkKind::Watched | WorkKind::Lingering => true,
        }
    }

    /// Whether one of these was cloned so lately that it could not know it yet. What twins do to each other, and to
    /// roles that both believe to lead, nothing can prevent but the token; it must only come to an end.
    #[must_use]
    pub fn is_excused(&self, one: Pid, other: Pid) -> bool {
        self.is_fresh_twin(one) || self.is_fresh_twin(other)
    }

    fn is_fresh_twin(&self, pid: Pid) -> bool {
        // One lease until the twin whose beats are refused is out, and as long for each poll until the other has read every
        // role that it may have lost.
        let ttl = self.node(pid).timing.ttl.as_nanos() as Instant;
        let audited = if self.settings.class == Class::C { AUDITED_PER_POLL } else { 1 };
        let grace = (2 + self.settings.roles.len().div_ceil(audited) as Instant) * ttl;
        self.processes[pid].twin.is_some_and(|(_, since)| self.now <= since + grace)
    }

    #[must_use]
    pub fn is_over(&self, session: &Key) -> bool {
        self.state_of(session).is_some_and(|state| state != SessionState::Live)
    }

    #[must_use]
    pub fn is_live(&self, session: &Key) -> bool {
        self.state_of(session) == Some(SessionState::Live)
    }

    fn state_of(&self, session: &Key) -> Option<SessionState> {
        match self.store.get(session) {
            Some((_, Record::Session(record))) => Some(record.state),
            _ => None,
        }
    }

    /// The session that a process relies on, if it has one.
    #[must_use]
    pub fn session(&self, pid: Pid) -> Option<SessionId> {
        self.processes[pid].engine.session().map(|(id, _)| id)
    }

    /// Whether a loss of acknowledged writes excuses, at this instant, that two lead a role under these sessions.
    #[must_use]
    pub fn is_unaware(&self, role: &Name, sessions: &[SessionId]) -> bool {
        self.losses.iter().any(|loss| self.is_fresh(loss) && loss.concerns(role, sessions))
    }

    /// Whether the owner of this session may not know yet that the store lost a write of it.
    #[must_use]
    pub fn has_lost_beats(&self, session: SessionId) -> bool {
        self.losses.iter().any(|loss| self.is_fresh(loss) && loss.concerns(&NO_ROLE, &[session]))
    }

    fn is_fresh(&self, loss: &Loss) -> bool {
        let bounds = self.settings.nodes.iter().map(|node| self.unaware_for(&node.timing, loss.signed));
        self.now <= loss.at + bounds.max().unwrap_or(0)
    }

    /// How long a leader may lead on after a loss. A leader that hears of the loss with the first answer after it leads on
    /// for as long as a beat counts that it sent before: its lease. A leader that hears nothing finds out by reading its
    /// roles in turn, twice, in which operations may fail.
    fn unaware_for(&self, timing: &Timing, signed: bool) -> Instant {
        let lease = timing.ttl + timing.ttl / 50;
        let rounds = self.settings.roles.len().div_ceil(AUDITED_PER_POLL) as u32 + 1;
        let audit = timing.ttl + 4 * rounds * (timing.beat + timing.op_timeout);
        let span = if signed { lease } else { lease + audit };
        span.as_nanos() as Instant + 100 * MILLI
    }
}

/// A name that no role has.
static NO_ROLE: LazyLock<Name> = LazyLock::new(|| Name::new("no-role").expect("a good name"));
