//! Faults strike.

use tenure_core::{Evidence, Hint, Input, Key, Kind, Record};

use super::{Cut, Direction, World};
use crate::agenda::Happening;
use crate::clock::Instant;
use crate::faults::Fault;
use crate::process::{Life, Pid};

impl World {
    /// The next fault strikes, and the one after it is put on the agenda.
    pub(super) fn fault(&mut self) {
        let Some(every) = self.scene.settings.fault_every.filter(|_| self.healed_at.is_none()) else {
            return;
        };
        let wait = self.rng.wait(every);
        self.agenda.add(self.scene.now + wait, Happening::Fault);
        let weights = self.scene.settings.weights;
        let Some(fault) = self.rng.weighed(&weights).map(|index| Fault::ALL[index]) else { return };
        self.stats.faults[fault as usize] += 1;
        if self.trace.is_on() {
            self.trace.line(self.scene.now, format_args!("fault {fault:?}"));
        }
        match fault {
            Fault::Cut => self.cut(),
            Fault::Replica => self.lag_behind(),
            Fault::Outage => self.out_until = self.scene.now + self.draw_trouble(),
            Fault::FalseHint => self.false_hint(),
            Fault::Tidy => self.tidy(),
            Fault::Rollback => self.roll_back(),
            Fault::Amnesia => self.forget_all(),
            Fault::Vandal => self.vandalise(),
            _ => self.strike_process(fault),
        }
    }

    /// How long a process freezes: mostly a moment, sometimes longer than its lease.
    pub(super) fn draw_pause(&mut self, pid: Pid) -> Instant {
        let ttl = self.scene.node(pid).timing.ttl.as_nanos() as Instant;
        match self.rng.index(4) {
            0 => self.rng.magnitude(ttl / 1000, ttl / 5),
            1 => self.rng.between(ttl / 5, ttl),
            2 => self.rng.between(ttl * 9 / 10, ttl * 5 / 4),
            _ => self.rng.between(ttl, 3 * ttl),
        }
    }

    /// The process is gone, from one instant to the next; what it has sent goes on.
    pub(super) fn crash(&mut self, pid: Pid) {
        if self.trace.is_on() {
            self.trace.line(self.scene.now, format_args!("p{pid} dies"));
        }
        self.kill(pid);
        self.work_orphaned(pid);
    }

    /// The process has given up everything and ends.
    pub(super) fn exit(&mut self, pid: Pid) {
        let working = self.scene.works.iter().any(|(_, work)| work.pid == pid && self.scene.is_working(work));
        if working {
            let verdict = Err(format!("p{pid} says that it has stopped while it works"));
            self.checks.note("nothing is given up before its work has stopped", verdict);
        }
        self.crash(pid);
        if self.healed_at.is_none() {
            let wait = self.draw_trouble();
            let node = self.scene.processes[pid].node;
            self.agenda.add(self.scene.now + wait, Happening::Restart(node));
        }
    }

    fn strike_process(&mut self, fault: Fault) {
        let Some(pid) = self.draw_victim() else { return };
        let node = self.scene.processes[pid].node;
        match fault {
            Fault::Pause => {
                let span = self.draw_pause(pid);
                self.freeze(pid, span);
            }
            Fault::Crash => {
                self.crash(pid);
                let wait = if self.rng.coin() { self.draw_trouble() / 20 } else { self.draw_trouble() };
                self.agenda.add(self.scene.now + wait, Happening::Restart(node));
            }
            Fault::DoubleStart if self.alive_on(node).len() < 2 => self.start(node),
            Fault::Clone => self.clone_process(pid),
            Fault::Disconnect => {
                for session in self.witnesses.held_by(pid) {
                    self.release_witness(session);
                }
            }
            Fault::Drift => self.drift(pid),
            Fault::WallJump => {
                let by = self.rng.signed(-3_600_000_000, 3_600_000_000);
                self.scene.clocks[self.scene.processes[pid].clock].jump(by);
            }
            Fault::ClockFault => self.tell(pid, Input::ClockFault),
            Fault::Resync => self.hint(pid, Hint::Resync),
            Fault::FalseWitness => self.false_witness(pid),
            _ => {}
        }
    }

    /// Whom it strikes: anybody, or a leader where leaders are hunted.
    fn draw_victim(&mut self) -> Option<Pid> {
        let alive = self.alive();
        if alive.is_empty() {
            return None;
        }
        if self.scene.settings.hunt && self.rng.coin() {
            let role = self.rng.pick(&self.scene.settings.roles).clone();
            if let Some(leader) = alive.iter().find(|pid| self.scene.leads(**pid, &role).is_some()) {
                return Some(*leader);
            }
        }
        Some(*self.rng.pick(&alive))
    }

    /// How long a cut, an outage or a process that is down lasts.
    fn draw_trouble(&mut self) -> Instant {
        let ttl = self.scene.settings.max_ttl().as_nanos() as Instant;
        self.rng.magnitude(ttl / 20, 4 * ttl)
    }

    fn cut(&mut self) {
        let Some(pid) = self.draw_victim() else { return };
        let node = self.scene.processes[pid].node;
        let until = self.scene.now + self.draw_trouble();
        let only = *self.rng.pick(&[None, None, Some(Direction::There), Some(Direction::Back)]);
        self.cuts[node] = Cut { until, only };
    }

    fn lag_behind(&mut self) {
        let Some(pid) = self.draw_victim() else { return };
        let until = self.scene.now + self.draw_trouble();
        let lag = self.rng.between(0, self.scene.settings.net.stale);
        self.lags[self.scene.processes[pid].node] = (until, lag);
    }

    /// The process goes on twice. The twin has lost its connections, but not its memory.
    fn clone_process(&mut self, pid: Pid) {
        let original = &self.scene.processes[pid];
        if original.life != Life::Running || original.twin.is_some() || original.stopping {
            return;
        }
        let mut twin = original.clone();
        let clock = self.scene.clocks[twin.clock].clone();
        self.scene.clocks.push(clock);
        twin.clock = self.scene.clocks.len() - 1;
        twin.twin = Some((pid, self.scene.now));
        twin.wake_at = Instant::MAX;
        let twin = self.admit(twin, Some(pid));
        self.scene.processes[pid].twin = Some((twin, self.scene.now));
        for id in self.scene.works.of(pid) {
            let work =
                crate::work::Work { pid: twin, ..self.scene.works.get(id).expect("it was listed").clone() };
            let copy = self.scene.works.start(work);
            self.schedule_watchdog(copy);
        }
        if self.trace.is_on() {
            self.trace.line(self.scene.now, format_args!("p{twin} is a twin of p{pid}"));
        }
        self.schedule_wake(twin);
    }

    /// The clock goes on at another rate within its bound; what was timed by it is timed anew.
    fn drift(&mut self, pid: Pid) {
        let clock = self.scene.processes[pid].clock;
        let bound = i64::from(self.scene.node(pid).timing.rate_error_ppm);
        let error =
            if self.rng.coin() { *self.rng.pick(&[-bound, bound]) } else { self.rng.signed(-bound, bound) };
        self.scene.clocks[clock].drift(self.scene.now, error);
        for other in 0..self.scene.processes.len() {
            if self.scene.processes[other].clock == clock {
                self.scene.processes[other].wake_at = Instant::MAX;
                self.schedule_wake(other);
                for work in self.scene.works.of(other) {
                    self.schedule_watchdog(work);
                }
            }
        }
    }

    /// A witness that nobody named says that somebody is dead.
    fn false_witness(&mut self, to: Pid) {
        let sessions = self.scene.store.entries().filter_map(|(key, _)| match key {
            Key::Session(_, id) => Some(*id),
            _ => None,
        });
        let sessions: Vec<_> = sessions.collect();
        if sessions.is_empty() {
            return;
        }
        let session = *self.rng.pick(&sessions);
        let witness = "somebody-else".to_owned();
        let dead = self.rng.coin();
        let evidence = if dead {
            Evidence::Dead { session, witness }
        } else {
            Evidence::Disconnected { session, witness }
        };
        self.tell(to, Input::Witnessed(evidence));
    }

    /// Somebody deletes a session that is over and that no role or node names.
    fn tidy(&mut self) {
        let held: Vec<_> = self
            .scene
            .store
            .entries()
            .filter_map(|(_, (_, record))| match record {
                Record::Role(role) => role.holder.as_ref().map(|holder| holder.session),
                Record::Node(node) => Some(node.session),
                _ => None,
            })
            .collect();
        let over: Vec<_> = self
            .scene
            .store
            .entries()
            .filter_map(|(key, _)| match key {
                Key::Session(_, id) if self.scene.is_over(key) && !held.contains(id) => Some(key.clone()),
                _ => None,
            })
            .collect();
        if !over.is_empty() {
            let key = self.rng.pick(&over).clone();
            self.set_register(&key, None);
        }
    }

    /// The store fails over to a copy that lacks what was acknowledged last.
    fn roll_back(&mut self) {
        let lost = self.rng.between(0, self.scene.settings.net.stale);
        let to = self.scene.now.saturating_sub(lost);
        self.scene.store.forget_since(to);
        (self.scene.rolled_back, self.scene.forgot) = (true, true);
        self.tell_of_forgetting();
    }

    fn forget_all(&mut self) {
        self.scene.store.forget_all();
        self.scene.forgot = true;
        self.tell_of_forgetting();
    }

    fn tell_of_forgetting(&mut self) {
        for pid in self.alive() {
            if self.rng.coin() {
                self.hint(pid, Hint::Forgot);
            }
        }
    }

    /// Somebody deletes a register by hand that is in use.
    fn vandalise(&mut self) {
        let kinds = [Kind::Cluster, Kind::Session, Kind::Role];
        let keys: Vec<_> = self.scene.store.entries().map(|(key, _)| key.clone()).collect();
        let keys: Vec<_> = keys.into_iter().filter(|key| kinds.contains(&key.kind())).collect();
        if !keys.is_empty() {
            let key = self.rng.pick(&keys).clone();
            self.set_register(&key, None);
            (self.scene.rolled_back, self.scene.forgot) = (true, true);
        }
    }
}
