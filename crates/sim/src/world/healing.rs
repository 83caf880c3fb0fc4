//! All faults end, and every role must be led within the stated bound.

use tenure_core::io::Candidacy;

use super::{Partition, World};
use crate::clock::Instant;
use crate::event_queue::SimEvent;
use crate::invariants::liveness;
use crate::process::ProcessState;

impl World {
    /// Ends all faults at once: frozen processes thaw, stopped nodes start, partitions end, operators withdraw their
    /// requests, and every candidate is eligible. Only messages sent before may still arrive late.
    pub(super) fn heal(&mut self) {
        self.healed_at = Some(self.state.now);
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("everything is healed"));
        }
        self.outage_until = 0;
        self.partitions.fill(Partition::default());
        self.lags.fill((0, 0));
        self.withdraw_requests();
        for node in 0..self.state.settings.nodes.len() {
            self.heal_node(node);
        }
        self.every_role_has_a_candidate();
        let from = self.events.latest_message().max(self.state.now);
        self.judged_at = from + liveness::bound(&self.state);
        self.events.schedule(self.judged_at, SimEvent::Judge);
        self.check_settled();
    }

    /// The bound has passed, or every role was led for a while.
    pub(super) fn judge(&mut self) {
        let healed = self.healed_at.unwrap_or(0);
        let verdict = liveness::judge(&self.state, self.state.now - healed);
        if verdict.is_err() && self.state.now < self.judged_at {
            // A role is being handed over at this instant.
            self.settled_at = None;
            return;
        }
        self.checks.note("no role is orphaned for ever", verdict);
        self.checks.note("a healed world comes to rest", liveness::at_rest(&self.state));
        self.over = true;
    }

    /// After healing, the world may end a while after every role is led.
    pub(super) fn check_settled(&mut self) {
        let Some(healed) = self.healed_at.filter(|_| self.settled_at.is_none()) else { return };
        if liveness::orphans(&self.state).next().is_some() {
            return;
        }
        self.settled_at = Some(self.state.now);
        let took = self.state.now - healed;
        self.stats.slowest_recovery = took * 1000 / (self.judged_at - healed);
        let watched = (liveness::WATCHED * self.state.settings.max_ttl()).as_nanos() as Instant;
        self.events.schedule(self.state.now + watched, SimEvent::Judge);
    }

    fn heal_node(&mut self, node: usize) {
        let alive = self.alive_on(node);
        // One process per name is meant to run: twins and second starts end.
        for extra in alive.iter().skip(1) {
            self.crash(*extra);
        }
        let Some(pid) = alive.first().copied() else {
            self.start(node);
            return;
        };
        if self.state.processes[pid].stopping {
            self.crash(pid);
            self.start(node);
            return;
        }
        if let ProcessState::Frozen(_) = self.state.processes[pid].state {
            self.state.processes[pid].state = ProcessState::Frozen(self.state.now);
            self.thaw(pid);
        }
        let candidacies: Vec<_> = self.state.processes[pid].candidacies.clone().into_iter().collect();
        for (role, how) in candidacies.into_iter().filter(|(_, how)| !how.eligible) {
            self.campaign(pid, &role, Candidacy { eligible: true, ..how });
        }
    }

    fn every_role_has_a_candidate(&mut self) {
        let alive = self.alive();
        for role in self.state.settings.roles.clone() {
            let stands = |pid: &usize| self.state.processes[*pid].candidacies.contains_key(&role);
            if !alive.iter().any(stands) {
                let pid = *self.rng.pick(&alive);
                let candidacy = self.draw_candidacy(pid);
                self.campaign(pid, &role, candidacy);
            }
        }
    }
}
