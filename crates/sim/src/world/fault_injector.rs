//! Injects faults.

use tenure_core::engine::Class;
use tenure_core::{Evidence, Hint, Input, Key, Kind, Record, Takeover};

use super::{Direction, Partition, World};
use crate::clock::Instant;
use crate::event_queue::SimEvent;
use crate::faults::Fault;
use crate::process::{Pid, Process, ProcessState};

impl World {
    /// Injects a fault and schedules the next one.
    pub(super) fn fault(&mut self) {
        let Some(every) = self.state.settings.fault_every.filter(|_| self.healed_at.is_none()) else {
            return;
        };
        let wait = self.rng.wait(every);
        self.events.schedule(self.state.now + wait, SimEvent::Fault);
        let weights = self.state.settings.weights;
        let Some(fault) = self.rng.weighed(&weights).map(|index| Fault::ALL[index]) else { return };
        self.stats.faults[fault as usize] += 1;
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("fault {fault:?}"));
        }
        match fault {
            fault if Fault::LOSSES.contains(&fault) && !self.may_lose() => {}
            Fault::Partition => self.partition(),
            Fault::StaleReplica => self.use_stale_replica(),
            Fault::Outage => self.outage_until = self.state.now + self.draw_outage(),
            Fault::FalseHint => self.false_hint(),
            Fault::HintFlood => self.flood_hints(),
            Fault::EndedSessionDeleted => self.delete_ended_session(),
            Fault::Rollback => self.roll_back(),
            Fault::LostWrite => self.lose_last_write(),
            Fault::DataLoss => self.lose_everything(),
            Fault::RegisterDeleted => self.delete_register(),
            _ => self.fault_process(fault),
        }
    }

    /// Every process is told that the store can lose what it acknowledges.
    pub(super) fn weaken(&mut self) {
        self.state.settings.class = Class::C;
        for pid in self.alive() {
            self.feed(pid, Input::Weakened);
        }
    }

    /// Whether every live process knows that the store can lose acknowledged writes.
    fn may_lose(&self) -> bool {
        let waits = |process: &Process| process.queue.iter().any(|input| matches!(input, Input::Weakened));
        self.state.settings.class == Class::C && !self.state.processes.iter().any(waits)
    }

    /// How long a process freezes: mostly a moment, sometimes longer than its lease.
    pub(super) fn draw_pause(&mut self, pid: Pid) -> Instant {
        let ttl = self.state.node(pid).timing.ttl.as_nanos() as Instant;
        match self.rng.index(4) {
            0 => self.rng.magnitude(ttl / 1000, ttl / 5),
            1 => self.rng.between(ttl / 5, ttl),
            2 => self.rng.between(ttl * 9 / 10, ttl * 5 / 4),
            _ => self.rng.between(ttl, 3 * ttl),
        }
    }

    /// The process dies at once; the messages that it sent travel on.
    pub(super) fn crash(&mut self, pid: Pid) {
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("p{pid} dies"));
        }
        self.kill(pid);
        self.work_orphaned(pid);
    }

    /// A process that stopped cleanly exits.
    pub(super) fn exit(&mut self, pid: Pid) {
        let working = self.state.works.iter().any(|(_, work)| work.pid == pid && self.state.is_working(work));
        if working {
            let verdict = Err(format!("p{pid} says that it has stopped while it works"));
            self.checks.note("nothing is given up before its work has stopped", verdict);
        }
        self.crash(pid);
        if self.healed_at.is_none() {
            let wait = self.draw_outage();
            let node = self.state.processes[pid].node;
            self.events.schedule(self.state.now + wait, SimEvent::Restart(node));
        }
    }

    fn fault_process(&mut self, fault: Fault) {
        let Some(pid) = self.draw_victim() else { return };
        let node = self.state.processes[pid].node;
        match fault {
            Fault::Pause => {
                let span = self.draw_pause(pid);
                self.freeze(pid, span);
            }
            Fault::Suspend => {
                let span = self.draw_pause(pid);
                self.freeze(pid, span);
                self.state.processes[pid].asleep = true;
            }
            Fault::FalseLossReport => self.hint(pid, Hint::Forgot),
            Fault::Crash => {
                self.crash(pid);
                let wait = if self.rng.coin() { self.draw_outage() / 20 } else { self.draw_outage() };
                self.events.schedule(self.state.now + wait, SimEvent::Restart(node));
            }
            Fault::DoubleStart if self.alive_on(node).len() < 2 => self.start(node),
            Fault::Clone => self.clone_process(pid),
            Fault::Disconnect => {
                for session in self.locks.held_by(pid) {
                    self.release_lock(session);
                }
            }
            Fault::ClockDrift => self.drift(pid),
            Fault::WallClockJump => {
                let by = self.rng.signed(-3_600_000_000, 3_600_000_000);
                self.state.clocks[self.state.processes[pid].clock].jump(by);
            }
            Fault::ClockFault => self.feed(pid, Input::ClockFault),
            Fault::Resync => self.hint(pid, Hint::Resync),
            Fault::FalseEvidence => self.false_evidence(pid),
            _ => {}
        }
    }

    /// Picks a live process; half of the time a leader, where faults target leaders.
    fn draw_victim(&mut self) -> Option<Pid> {
        let alive = self.alive();
        if alive.is_empty() {
            return None;
        }
        if self.state.settings.target_leaders && self.rng.coin() {
            let role = self.rng.pick(&self.state.settings.roles).clone();
            if let Some(leader) = alive.iter().find(|pid| self.state.leads(**pid, &role).is_some()) {
                return Some(*leader);
            }
        }
        Some(*self.rng.pick(&alive))
    }

    /// How long a partition, an outage or the downtime of a process lasts.
    fn draw_outage(&mut self) -> Instant {
        let ttl = self.state.settings.max_ttl().as_nanos() as Instant;
        self.rng.magnitude(ttl / 20, 4 * ttl)
    }

    fn partition(&mut self) {
        let Some(pid) = self.draw_victim() else { return };
        let node = self.state.processes[pid].node;
        let until = self.state.now + self.draw_outage();
        let only = *self.rng.pick(&[None, None, Some(Direction::ToStore), Some(Direction::FromStore)]);
        self.partitions[node] = Partition { until, only };
    }

    fn use_stale_replica(&mut self) {
        let Some(pid) = self.draw_victim() else { return };
        let until = self.state.now + self.draw_outage();
        let lag = self.rng.between(0, self.state.settings.network.stale);
        self.lags[self.state.processes[pid].node] = (until, lag);
    }

    /// Clones a process. The twin keeps the memory but not the connections.
    fn clone_process(&mut self, pid: Pid) {
        let original = &self.state.processes[pid];
        if original.state != ProcessState::Running || original.twin.is_some() || original.stopping {
            return;
        }
        let mut twin = original.clone();
        let clock = self.state.clocks[twin.clock].clone();
        self.state.clocks.push(clock);
        twin.clock = self.state.clocks.len() - 1;
        twin.twin = Some((pid, self.state.now));
        twin.wake_at = Instant::MAX;
        let twin = self.spawn(twin, Some(pid));
        self.state.processes[pid].twin = Some((twin, self.state.now));
        for id in self.state.works.of(pid) {
            let work =
                crate::work::Work { pid: twin, ..self.state.works.get(id).expect("it was listed").clone() };
            let copy = self.state.works.start(work);
            self.schedule_watchdog(copy);
        }
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("p{twin} is a twin of p{pid}"));
        }
        self.schedule_wake(twin);
    }

    /// Changes the rate of a clock within its bound and reschedules the timers that depend on it.
    fn drift(&mut self, pid: Pid) {
        let clock = self.state.processes[pid].clock;
        let bound = i64::from(self.state.node(pid).timing.rate_error_ppm);
        let error =
            if self.rng.coin() { *self.rng.pick(&[-bound, bound]) } else { self.rng.signed(-bound, bound) };
        self.state.clocks[clock].drift(self.state.now, error);
        for other in 0..self.state.processes.len() {
            if self.state.processes[other].clock == clock {
                self.state.processes[other].wake_at = Instant::MAX;
                self.schedule_wake(other);
                for work in self.state.works.of(other) {
                    self.schedule_watchdog(work);
                }
            }
        }
    }

    /// Evidence of a lock that the record does not name says that a process is dead; or the one that the record names says something that the
    /// record says not to believe: that the connection of a strict session dropped, or that an elector died whose work it
    /// does not cover.
    fn false_evidence(&mut self, to: Pid) {
        let sessions = self.state.store.entries().filter_map(|(key, (_, record))| match (key, record) {
            (Key::Session(_, id), Record::Session(record)) => Some((*id, record.clone())),
            _ => None,
        });
        let sessions: Vec<_> = sessions.collect();
        if sessions.is_empty() {
            return;
        }
        let (session, record) = self.rng.pick(&sessions).clone();
        let named = record.liveness_lock.filter(|_| self.rng.coin());
        let strict = record.takeover == Takeover::Strict;
        let (lock, dead) = match named {
            Some(named) if named.connection && strict => (named.id, false),
            Some(named) if !named.connection && !named.covers_work => (named.id, true),
            _ => ("somebody-else".to_owned(), self.rng.coin()),
        };
        let evidence =
            if dead { Evidence::Dead { session, lock } } else { Evidence::Disconnected { session, lock } };
        self.feed(to, Input::Evidence(evidence));
    }

    /// Deletes a session that is over and that no role or node names.
    fn delete_ended_session(&mut self) {
        let held: Vec<_> = self
            .state
            .store
            .entries()
            .filter_map(|(_, (_, record))| match record {
                Record::Role(role) => role.holder.as_ref().map(|holder| holder.session),
                Record::Node(node) => Some(node.session),
                _ => None,
            })
            .collect();
        let over: Vec<_> = self
            .state
            .store
            .entries()
            .filter_map(|(key, _)| match key {
                Key::Session(_, id) if self.state.is_over(key) && !held.contains(id) => Some(key.clone()),
                _ => None,
            })
            .collect();
        if !over.is_empty() {
            let key = self.rng.pick(&over).clone();
            self.set_register(&key, None);
        }
    }

    /// The store fails over to a replica that lacks the writes acknowledged last.
    fn roll_back(&mut self) {
        let to = self.draw_last_kept();
        let lost = self.state.store.forget_since(to);
        self.lose(lost);
    }

    /// The store fails over to a replica that lacks one write: the last one of its register.
    fn lose_last_write(&mut self) {
        let since = self.draw_last_kept();
        let kinds = [Kind::Session, Kind::Role];
        let written = self.state.store.written_since(since).into_iter();
        let written: Vec<_> = written.filter(|key| kinds.contains(&key.kind())).collect();
        if !written.is_empty() {
            let key = self.rng.pick(&written).clone();
            self.state.store.forget_last(&key);
            self.lose(vec![key]);
        }
    }

    fn draw_last_kept(&mut self) -> Instant {
        let lost = self.rng.between(0, self.state.settings.network.stale);
        self.state.now.saturating_sub(lost)
    }

    fn lose_everything(&mut self) {
        let lost = self.state.store.entries().map(|(key, _)| key.clone()).collect();
        self.state.store.lose_everything();
        self.lose(lost);
    }

    /// Acknowledged writes are gone. Every node hears of it with the first answer that comes afterwards; where the store
    /// gives no such sign, half of the nodes hear of it some time, or none.
    fn lose(&mut self, lost: Vec<Key>) {
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("lost: {lost:?}"));
        }
        let signed = self.state.settings.reports_losses;
        self.checks.lost(&self.state, &lost);
        self.state.losses.add(self.state.now, signed, lost);
        if signed || self.state.settings.silent {
            return;
        }
        for pid in self.alive() {
            if self.rng.coin() {
                self.hint(pid, Hint::Forgot);
            }
        }
    }

    /// Deletes a register that is in use.
    fn delete_register(&mut self) {
        let kinds = [Kind::Cluster, Kind::Session, Kind::Role];
        let keys: Vec<_> = self.state.store.entries().map(|(key, _)| key.clone()).collect();
        let keys: Vec<_> = keys.into_iter().filter(|key| kinds.contains(&key.kind())).collect();
        if !keys.is_empty() {
            let key = self.rng.pick(&keys).clone();
            self.set_register(&key, None);
            self.checks.lost(&self.state, std::slice::from_ref(&key));
            self.state.losses.add(self.state.now, false, [key]);
        }
    }
}
