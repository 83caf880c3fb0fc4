//! The work of tenures and its watchdogs, and the liveness locks that tell of a death.

use tenure_core::record::LivenessLock;
use tenure_core::{Evidence, Input, Name, SessionId, Takeover, Token};

use super::World;
use crate::clock::{Instant, MICRO, MILLI};
use crate::event_queue::SimEvent;
use crate::liveness::Held;
use crate::process::Pid;
use crate::swarm::{LivenessLockKind, WorkKind};
use crate::work::{Work, WorkId};

/// How long work in a machine that was suspended may act after its lease, or after the machine is back: until the engine is woken,
/// and the work has stopped.
const MOMENT: Instant = 10 * MILLI;

impl World {
    /// A tenure begins, and its work with it.
    pub(super) fn work_starts(&mut self, pid: Pid, role: Name, token: Token) {
        let kind = self.state.node(pid).work;
        let session = self.state.session(pid);
        let id = self.state.works.start(Work { pid, role, token, session, kind, overdue: false });
        self.checks.working(&self.state, id);
        self.schedule_watchdog(id);
    }

    /// The work of a tenure is asked to stop.
    pub(super) fn work_drains(&mut self, pid: Pid, role: &Name, token: Token, forced: bool) {
        let Some(id) = self.state.works.find(pid, role, token) else {
            self.report_stopped(pid, role.clone(), token);
            return;
        };
        let timing = &self.state.node(pid).timing;
        let (grace, ttl) = (timing.stop_grace.as_nanos() as Instant, timing.ttl.as_nanos() as Instant);
        let takes = match self.rng.index(8) {
            0..=4 => self.rng.between(0, grace / 4),
            5 | 6 => self.rng.between(0, grace),
            _ if forced => self.rng.between(grace, 3 * grace),
            _ => self.rng.between(0, 2 * ttl),
        };
        self.events.schedule(self.state.now + takes, SimEvent::WorkStops(id));
    }

    /// A tenure is over: its work is killed, and gone a moment later.
    pub(super) fn work_lost(&mut self, pid: Pid, role: &Name, token: Token) {
        if let Some(id) = self.state.works.find(pid, role, token) {
            let takes = if self.rng.coin() { 0 } else { self.rng.between(0, 5 * MILLI) };
            self.events.schedule(self.state.now + takes, SimEvent::WorkStops(id));
        }
    }

    /// Work that was asked to stop does; if it is frozen, as soon as it gets time.
    pub(super) fn work_stops(&mut self, id: WorkId) {
        let Some(work) = self.state.works.get_mut(id) else { return };
        let frozen =
            !self.state.processes[work.pid].is_running() && self.state.processes[work.pid].is_alive();
        if work.kind == WorkKind::InProcess && frozen {
            work.overdue = true;
            return;
        }
        self.end_work(id);
    }

    /// The watchdog checks whether the deadline is near; it is never frozen with the elector.
    pub(super) fn watchdog(&mut self, id: WorkId) {
        let Some(work) = self.state.works.get(id) else { return };
        let (pid, kind) = (work.pid, work.kind);
        if self.state.now < self.kill_at(pid) {
            self.schedule_watchdog(id);
        } else if kind == WorkKind::InProcess && self.state.processes[pid].asleep {
            // Nothing in that machine sees the deadline pass.
        } else if kind == WorkKind::InProcess && !self.state.processes[pid].is_running() {
            self.state.works.get_mut(id).expect("it was there").overdue = true;
        } else {
            self.end_work(id);
        }
    }

    /// A process runs again: so does the work in it, unless it finds that its deadline has passed. Work that slept with its
    /// machine acts on between two checks of its deadline, for a moment at most.
    pub(super) fn work_thaws(&mut self, pid: Pid) {
        let asleep = self.state.processes[pid].asleep;
        let late = self.state.now >= self.kill_at(pid) && !asleep;
        for id in self.state.works.of(pid) {
            let work = self.state.works.get(id).expect("it was listed");
            if work.kind != WorkKind::InProcess {
                continue;
            }
            if asleep {
                let at = self.lease_ends(pid).max(self.state.now).saturating_add(MOMENT);
                self.events.schedule(at, SimEvent::Covered(id));
            }
            // The work checks the deadline before it acts, and only then finds that it was asked to stop.
            self.checks.working(&self.state, id);
            let overdue = self.state.works.get(id).is_some_and(|work| work.overdue);
            if overdue || late {
                let work = self.state.works.end(id).expect("it was listed");
                self.state.processes[pid]
                    .queue
                    .push_back(Input::WorkStopped { role: work.role, token: work.token });
            }
        }
    }

    /// Work in a process does not act past its lease, whatever it checks: the engine is woken, and stops it.
    pub(super) fn is_covered(&mut self, id: WorkId) {
        let Some(work) = self.state.works.get(id) else { return };
        let process = &self.state.processes[work.pid];
        let since = process.running_since.max(self.lease_ends(work.pid));
        let verdict = if process.is_running() && self.state.now >= since.saturating_add(MOMENT) {
            Err(format!("p{} works on {} with {} after its lease", work.pid, work.role, work.token))
        } else {
            Ok(())
        };
        self.checks.note("work ends with its lease, suspended or not", verdict);
    }

    /// The process died: its work dies with it, or is killed by the watchdog at once or at the deadline.
    pub(super) fn work_orphaned(&mut self, pid: Pid) {
        for id in self.state.works.of(pid) {
            match self.state.works.get(id).map(|work| work.kind) {
                Some(WorkKind::InProcess) => self.end_work(id),
                Some(WorkKind::Watched) => {
                    let takes = self.rng.between(0, 50 * MILLI);
                    self.events.schedule(self.state.now + takes, SimEvent::WorkStops(id));
                }
                Some(WorkKind::Lingering) | None => {}
            }
        }
        self.let_go(pid);
    }

    fn end_work(&mut self, id: WorkId) {
        let Some(work) = self.state.works.end(id) else { return };
        if self.trace.is_on() {
            let Work { pid, role, token, .. } = &work;
            self.trace.line(self.state.now, format_args!("work of p{pid} on {role} {token} ends"));
        }
        if self.state.processes[work.pid].is_alive() {
            self.report_stopped(work.pid, work.role, work.token);
        } else {
            self.let_go(work.pid);
        }
    }

    fn report_stopped(&mut self, pid: Pid, role: Name, token: Token) {
        let takes = if self.rng.coin() { 0 } else { self.rng.between(0, MILLI) };
        self.deliver(pid, takes, Input::WorkStopped { role, token });
    }

    fn lease_ends(&self, pid: Pid) -> Instant {
        let process = &self.state.processes[pid];
        self.state.clocks[process.clock].when(process.until, 0)
    }

    /// When the watchdog kills the work of a process: early enough to be done at the deadline.
    fn kill_at(&self, pid: Pid) -> Instant {
        let process = &self.state.processes[pid];
        let at = process.until.before(self.state.node(pid).timing.kill_slack);
        self.state.clocks[process.clock].when(at, 0)
    }

    pub(super) fn schedule_watchdog(&mut self, id: WorkId) {
        let Some(work) = self.state.works.get(id) else { return };
        let at = self.kill_at(work.pid).max(self.state.now);
        self.events.schedule(at, SimEvent::Watchdog(id));
    }

    /// A session is about to be opened: its liveness lock, if this world has any.
    pub(super) fn acquire_lock(&mut self, pid: Pid, session: SessionId, takeover: Takeover) {
        let covers_work = self.state.node(pid).work != WorkKind::Lingering;
        let lock = match self.state.settings.liveness_locks {
            LivenessLockKind::None => None,
            LivenessLockKind::Death => {
                let id = format!("lock-{:x}", self.rng.nonce());
                Some(LivenessLock { id, covers_work, connection: false })
            }
            LivenessLockKind::Disconnect => {
                let id = format!("link-{:x}", self.rng.nonce());
                Some(LivenessLock { id, covers_work: false, connection: true })
            }
        };
        // A pooler stands between, or the connection is not there yet.
        let refused = takeover == Takeover::OnDisconnect && self.rng.chance(50_000);
        let lock = lock.filter(|_| !refused);
        if let Some(LivenessLock { id, covers_work, .. }) = lock.clone() {
            self.locks.hold(session, Held { id, by: pid, covers_work, released: false });
        }
        let takes = self.rng.between(MICRO, MILLI);
        self.deliver(pid, takes, Input::LockAcquired { session, lock });
    }

    /// A process wants to know when a lock is released; it may have done so already.
    pub(super) fn watch_lock(&mut self, pid: Pid, session: SessionId) {
        self.locks.watch(session, pid);
        if self.locks.get(session).is_some_and(|held| held.released) {
            self.testify(pid, session);
        }
    }

    /// A process is gone: what it holds is let go of, once the work is gone too if the lock covers it.
    pub(super) fn let_go(&mut self, pid: Pid) {
        let works = !self.state.works.of(pid).is_empty();
        for session in self.locks.held_by(pid) {
            let covers = self.locks.get(session).is_some_and(|held| held.covers_work);
            if !(covers && works) {
                self.release_lock(session);
            }
        }
    }

    /// A lock is released, and those who watch it are told.
    pub(super) fn release_lock(&mut self, session: SessionId) {
        if self.state.settings.liveness_locks == LivenessLockKind::Disconnect {
            self.state.store.drop_connection(session);
        }
        for pid in self.locks.release(session) {
            self.testify(pid, session);
        }
    }

    /// Evidence is told to one process, if it can see that far.
    fn testify(&mut self, to: Pid, session: SessionId) {
        let Some(held) = self.locks.get(session) else { return };
        let (by, lock) = (held.by, held.id.clone());
        let evidence = match self.state.settings.liveness_locks {
            LivenessLockKind::Death if self.state.node(by).host == self.state.node(to).host => {
                Evidence::Dead { session, lock }
            }
            LivenessLockKind::Disconnect => Evidence::Disconnected { session, lock },
            _ => return,
        };
        let takes = self.rng.magnitude(100 * MICRO, 50 * MILLI) + self.delay();
        self.deliver(to, takes, Input::Evidence(evidence));
    }
}
