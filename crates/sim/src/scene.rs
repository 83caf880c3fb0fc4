//! What is true in a world at one instant: everything that an invariant may look at.

use std::collections::BTreeMap;

use tenure_core::engine::Class;
use tenure_core::record::SessionState;
use tenure_core::{Key, Name, Record, Time, Token};

use crate::clock::{Clock, Instant};
use crate::process::{Pid, Process};
use crate::store::Store;
use crate::swarm::{NodeSettings, Settings, WorkKind};
use crate::work::{Work, Works};

/// The world as it is.
#[derive(Debug, Clone)]
pub struct Scene {
    /// How it was drawn.
    pub settings: Settings,
    /// True time.
    pub now: Instant,
    /// Every clock.
    pub clocks: Vec<Clock>,
    /// Every process that ever was.
    pub processes: Vec<Process>,
    /// All work that runs.
    pub works: Works,
    /// The registers.
    pub store: Store,
    /// The store went back to an older state: from here on two may lead, and only the token helps.
    pub rolled_back: bool,
    /// The store forgot something, whatever it was.
    pub forgot: bool,
    /// When each role was lost last, since everything was healed.
    pub lost_at: BTreeMap<Name, Instant>,
    /// How often each role was won since every role was led again.
    pub won: BTreeMap<Name, u32>,
}

impl Scene {
    /// The settings of a process's node.
    #[must_use]
    pub fn node(&self, pid: Pid) -> &NodeSettings {
        &self.settings.nodes[self.processes[pid].node]
    }

    /// What the lease clock of a process really shows.
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
        // One lease until the twin whose beats are refused is out, and as long until the other has looked at every
        // role that it may have lost.
        let ttl = self.node(pid).timing.ttl.as_nanos() as Instant;
        let grace = (2 + self.settings.roles.len() as Instant) * ttl;
        self.processes[pid].twin.is_some_and(|(_, since)| self.now <= since + grace)
    }

    /// Whether the register of a session says that it is over.
    #[must_use]
    pub fn is_over(&self, session: &Key) -> bool {
        self.state_of(session).is_some_and(|state| state != SessionState::Live)
    }

    /// Whether the register of a session says that it may be valid.
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

    /// Whether everything that an acknowledged write can promise still holds.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.settings.class != Class::C || !self.rolled_back
    }
}
