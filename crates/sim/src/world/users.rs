//! Users of the library: they campaign, withdraw, change candidacies, finish work, stop processes.

use std::time::Duration;

use tenure_core::Input;
use tenure_core::io::Candidacy;
use tenure_core::record::EndReason;

use super::World;
use crate::event_queue::SimEvent;
use crate::process::Pid;
use crate::swarm::UserAction;

impl World {
    pub(super) fn user(&mut self) {
        let Some(every) = self.state.settings.user_every.filter(|_| self.healed_at.is_none()) else { return };
        let wait = self.rng.wait(every);
        self.events.schedule(self.state.now + wait, SimEvent::User);
        let running: Vec<_> =
            self.alive().into_iter().filter(|pid| !self.state.processes[*pid].stopping).collect();
        if running.is_empty() {
            return;
        }
        let pid = *self.rng.pick(&running);
        let weights = self.state.settings.user_weights;
        let Some(action) = self.rng.weighed(&weights) else { return };
        match UserAction::ALL[action] {
            UserAction::Withdraw => self.withdraw(pid),
            UserAction::Change => self.change_candidacy(pid),
            UserAction::Finish => self.finish_work(),
            UserAction::Describe => {
                self.feed(pid, Input::Describe { labels: Default::default(), address: Some("here".into()) })
            }
            UserAction::Stop => {
                self.state.processes[pid].stopping = true;
                self.feed(pid, Input::Stop);
            }
        }
    }

    /// A process that has just started campaigns for most roles.
    pub(super) fn campaign_for_roles(&mut self, pid: Pid) {
        let roles = self.state.settings.roles.clone();
        for role in roles {
            if !self.rng.chance(900_000) {
                self.feed(pid, Input::Observe { role });
                continue;
            }
            let candidacy = self.draw_candidacy(pid);
            self.campaign(pid, &role, candidacy);
        }
    }

    /// A process campaigns for a role with this candidacy from now on.
    pub(super) fn campaign(&mut self, pid: Pid, role: &tenure_core::Name, candidacy: Candidacy) {
        self.state.processes[pid].candidacies.insert(role.clone(), candidacy.clone());
        self.feed(pid, Input::Campaign { role: role.clone(), candidacy });
    }

    /// Draws an eligible candidacy.
    pub(super) fn draw_candidacy(&mut self, pid: Pid) -> Candidacy {
        let ttl = self.state.node(pid).timing.ttl;
        let some = |draw: u64| if draw < 2 { Duration::ZERO } else { ttl / (draw as u32) };
        Candidacy {
            eligible: true,
            priority: if self.rng.coin() { 0 } else { self.rng.signed(-2, 2) as i32 },
            preempt: self.rng.chance(200_000),
            takeover_delay: some(self.rng.between(0, 6)),
            min_tenure: some(self.rng.between(0, 3)),
            cool_down: some(self.rng.between(0, 4)),
        }
    }

    fn withdraw(&mut self, pid: Pid) {
        let roles: Vec<_> = self.state.processes[pid].candidacies.keys().cloned().collect();
        if !roles.is_empty() {
            let role = self.rng.pick(&roles).clone();
            self.state.processes[pid].candidacies.remove(&role);
            self.feed(pid, Input::Withdraw { role });
        }
    }

    fn change_candidacy(&mut self, pid: Pid) {
        let role = self.rng.pick(&self.state.settings.roles).clone();
        let eligible = self.rng.chance(600_000);
        let candidacy = Candidacy { eligible, ..self.draw_candidacy(pid) };
        self.campaign(pid, &role, candidacy);
    }

    /// Ends some work: done, failed or resigned.
    fn finish_work(&mut self) {
        let works: Vec<_> = self.state.works.iter().map(|(id, _)| id).collect();
        if works.is_empty() {
            return;
        }
        let work = self.state.works.get(*self.rng.pick(&works)).expect("it was listed");
        let (pid, role, token) = (work.pid, work.role.clone(), work.token);
        let reason = *self.rng.pick(&[EndReason::Finished, EndReason::WorkFailed, EndReason::Resigned]);
        self.feed(pid, Input::Resign { role, token, reason });
    }
}
