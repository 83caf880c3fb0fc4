//! All faults end, and every role must be led within the stated bound.

use tenure_core::io::Standing;

use super::{Cut, World};
use crate::agenda::Happening;
use crate::clock::Instant;
use crate::invariants::liveness;
use crate::process::Life;

impl World {
    /// Everything is made good at once: what is frozen thaws, what is down starts, nobody is cut off, nothing is
    /// asked for, and whoever stands is eligible. Only what was sent before may still arrive late.
    pub(super) fn heal(&mut self) {
        self.healed_at = Some(self.scene.now);
        if self.trace.is_on() {
            self.trace.line(self.scene.now, format_args!("everything is healed"));
        }
        self.out_until = 0;
        self.cuts.fill(Cut::default());
        self.lags.fill((0, 0));
        self.take_requests_back();
        for node in 0..self.scene.settings.nodes.len() {
            self.heal_node(node);
        }
        self.every_role_has_a_candidate();
        let from = self.agenda.latest_message().max(self.scene.now);
        self.judged_at = from + liveness::bound(&self.scene);
        self.agenda.add(self.judged_at, Happening::Judge);
        self.look_for_settled();
    }

    /// The bound has passed, or every role was led for a while.
    pub(super) fn judge(&mut self) {
        let healed = self.healed_at.unwrap_or(0);
        let verdict = liveness::judge(&self.scene, self.scene.now - healed);
        if verdict.is_err() && self.scene.now < self.judged_at {
            // A role changes hands at this very moment.
            self.settled_at = None;
            return;
        }
        self.checks.note("no role is orphaned for ever", verdict);
        self.checks.note("a healed world comes to rest", liveness::at_rest(&self.scene));
        self.over = true;
    }

    /// After healing, the world may end a while after every role is led.
    pub(super) fn look_for_settled(&mut self) {
        let Some(healed) = self.healed_at.filter(|_| self.settled_at.is_none()) else { return };
        if liveness::orphans(&self.scene).next().is_some() {
            return;
        }
        self.settled_at = Some(self.scene.now);
        let took = self.scene.now - healed;
        self.stats.slowest_recovery = took * 1000 / (self.judged_at - healed);
        let watched = (liveness::WATCHED * self.scene.settings.max_ttl()).as_nanos() as Instant;
        self.agenda.add(self.scene.now + watched, Happening::Judge);
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
        if self.scene.processes[pid].stopping {
            self.crash(pid);
            self.start(node);
            return;
        }
        if let Life::Frozen(_) = self.scene.processes[pid].life {
            self.scene.processes[pid].life = Life::Frozen(self.scene.now);
            self.thaw(pid);
        }
        let standing: Vec<_> = self.scene.processes[pid].standing.clone().into_iter().collect();
        for (role, how) in standing.into_iter().filter(|(_, how)| !how.eligible) {
            self.stand(pid, &role, Standing { eligible: true, ..how });
        }
    }

    fn every_role_has_a_candidate(&mut self) {
        let alive = self.alive();
        for role in self.scene.settings.roles.clone() {
            let stands = |pid: &usize| self.scene.processes[*pid].standing.contains_key(&role);
            if !alive.iter().any(stands) {
                let pid = *self.rng.pick(&alive);
                let standing = self.draw_standing(pid);
                self.stand(pid, &role, standing);
            }
        }
    }
}
