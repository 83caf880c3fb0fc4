//! What users of the library do: stand, withdraw, change their minds, finish work, stop processes.

use std::time::Duration;

use tenure_core::Input;
use tenure_core::io::Standing;
use tenure_core::record::Reason;

use super::World;
use crate::agenda::Happening;
use crate::process::Pid;
use crate::swarm::Wish;

impl World {
    /// Somebody wants something.
    pub(super) fn user(&mut self) {
        let Some(every) = self.scene.settings.user_every.filter(|_| self.healed_at.is_none()) else { return };
        let wait = self.rng.wait(every);
        self.agenda.add(self.scene.now + wait, Happening::User);
        let running: Vec<_> =
            self.alive().into_iter().filter(|pid| !self.scene.processes[*pid].stopping).collect();
        if running.is_empty() {
            return;
        }
        let pid = *self.rng.pick(&running);
        let weights = self.scene.settings.wishes;
        let Some(wish) = self.rng.weighed(&weights) else { return };
        match Wish::ALL[wish] {
            Wish::Withdraw => self.withdraw(pid),
            Wish::Change => self.change_standing(pid),
            Wish::Finish => self.finish_work(),
            Wish::Describe => {
                self.tell(pid, Input::Describe { labels: Default::default(), address: Some("here".into()) })
            }
            Wish::Stop => {
                self.scene.processes[pid].stopping = true;
                self.tell(pid, Input::Stop);
            }
        }
    }

    /// A process that has just started stands for most roles.
    pub(super) fn stand_for_roles(&mut self, pid: Pid) {
        let roles = self.scene.settings.roles.clone();
        for role in roles {
            if !self.rng.chance(900_000) {
                self.tell(pid, Input::Observe { role });
                continue;
            }
            let standing = self.draw_standing(pid);
            self.stand(pid, &role, standing);
        }
    }

    /// A process stands for a role like this from now on.
    pub(super) fn stand(&mut self, pid: Pid, role: &tenure_core::Name, standing: Standing) {
        self.scene.processes[pid].standing.insert(role.clone(), standing.clone());
        self.tell(pid, Input::Stand { role: role.clone(), standing });
    }

    /// How a process stands when nothing is the matter.
    pub(super) fn draw_standing(&mut self, pid: Pid) -> Standing {
        let ttl = self.scene.node(pid).timing.ttl;
        let some = |draw: u64| if draw < 2 { Duration::ZERO } else { ttl / (draw as u32) };
        Standing {
            eligible: true,
            priority: if self.rng.coin() { 0 } else { self.rng.signed(-2, 2) as i32 },
            preempt: self.rng.chance(200_000),
            takeover_delay: some(self.rng.between(0, 6)),
            min_tenure: some(self.rng.between(0, 3)),
            cool_down: some(self.rng.between(0, 4)),
        }
    }

    fn withdraw(&mut self, pid: Pid) {
        let roles: Vec<_> = self.scene.processes[pid].standing.keys().cloned().collect();
        if !roles.is_empty() {
            let role = self.rng.pick(&roles).clone();
            self.scene.processes[pid].standing.remove(&role);
            self.tell(pid, Input::Withdraw { role });
        }
    }

    fn change_standing(&mut self, pid: Pid) {
        let role = self.rng.pick(&self.scene.settings.roles).clone();
        let eligible = self.rng.chance(600_000);
        let standing = Standing { eligible, ..self.draw_standing(pid) };
        self.stand(pid, &role, standing);
    }

    /// Some work comes to its end, or fails.
    fn finish_work(&mut self) {
        let works: Vec<_> = self.scene.works.iter().map(|(id, _)| id).collect();
        if works.is_empty() {
            return;
        }
        let work = self.scene.works.get(*self.rng.pick(&works)).expect("it was listed");
        let (pid, role, token) = (work.pid, work.role.clone(), work.token);
        let reason = *self.rng.pick(&[Reason::Finished, Reason::WorkFailed, Reason::Resigned]);
        self.tell(pid, Input::Release { role, token, reason });
    }
}
