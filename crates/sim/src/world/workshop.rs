//! Work and witnesses: what tenures set going, what stops it, and who can tell that it is gone.

use tenure_core::record::Witness;
use tenure_core::{Evidence, Input, Name, SessionId, Takeover, Token};

use super::World;
use crate::agenda::Happening;
use crate::clock::{Instant, MICRO, MILLI};
use crate::process::Pid;
use crate::swarm::{WitnessKind, WorkKind};
use crate::witness::Held;
use crate::work::{Work, WorkId};

impl World {
    /// A tenure begins, and its work with it.
    pub(super) fn work_starts(&mut self, pid: Pid, role: Name, token: Token) {
        let kind = self.scene.node(pid).work;
        let id = self.scene.works.start(Work { pid, role, token, kind, overdue: false });
        self.checks.working(&self.scene, id);
        self.schedule_watchdog(id);
    }

    /// The work of a tenure is asked to stop.
    pub(super) fn work_drains(&mut self, pid: Pid, role: &Name, token: Token, forced: bool) {
        let Some(id) = self.scene.works.find(pid, role, token) else {
            self.report_stopped(pid, role.clone(), token);
            return;
        };
        let timing = &self.scene.node(pid).timing;
        let (grace, ttl) = (timing.stop_grace.as_nanos() as Instant, timing.ttl.as_nanos() as Instant);
        let takes = match self.rng.index(8) {
            0..=4 => self.rng.between(0, grace / 4),
            5 | 6 => self.rng.between(0, grace),
            _ if forced => self.rng.between(grace, 3 * grace),
            _ => self.rng.between(0, 2 * ttl),
        };
        self.agenda.add(self.scene.now + takes, Happening::WorkStops(id));
    }

    /// A tenure is over: its work is killed, and gone a moment later.
    pub(super) fn work_lost(&mut self, pid: Pid, role: &Name, token: Token) {
        if let Some(id) = self.scene.works.find(pid, role, token) {
            let takes = if self.rng.coin() { 0 } else { self.rng.between(0, 5 * MILLI) };
            self.agenda.add(self.scene.now + takes, Happening::WorkStops(id));
        }
    }

    /// Work that was asked to stop does; if it is frozen, as soon as it gets time.
    pub(super) fn work_stops(&mut self, id: WorkId) {
        let Some(work) = self.scene.works.get_mut(id) else { return };
        let frozen =
            !self.scene.processes[work.pid].is_running() && self.scene.processes[work.pid].is_alive();
        if work.kind == WorkKind::InProcess && frozen {
            work.overdue = true;
            return;
        }
        self.end_work(id);
    }

    /// The watchdog looks whether the deadline is near; it is never frozen with the elector.
    pub(super) fn watchdog(&mut self, id: WorkId) {
        let Some(work) = self.scene.works.get(id) else { return };
        let (pid, kind) = (work.pid, work.kind);
        if self.scene.now < self.kill_at(pid) {
            self.schedule_watchdog(id);
        } else if kind == WorkKind::InProcess && !self.scene.processes[pid].is_running() {
            self.scene.works.get_mut(id).expect("it was there").overdue = true;
        } else {
            self.end_work(id);
        }
    }

    /// A process gets time again: so does the work in it, unless its time is up.
    pub(super) fn work_thaws(&mut self, pid: Pid) {
        let late = self.scene.now >= self.kill_at(pid);
        for id in self.scene.works.of(pid) {
            let work = self.scene.works.get(id).expect("it was listed");
            if work.kind != WorkKind::InProcess {
                continue;
            }
            // It looks at the deadline before it acts, and only then finds that it was asked to stop.
            self.checks.working(&self.scene, id);
            let overdue = self.scene.works.get(id).is_some_and(|work| work.overdue);
            if overdue || late {
                let work = self.scene.works.end(id).expect("it was listed");
                self.scene.processes[pid]
                    .queue
                    .push_back(Input::Stopped { role: work.role, token: work.token });
            }
        }
    }

    /// The process died: its work dies with it, or is killed by the watchdog at once or at the deadline.
    pub(super) fn work_orphaned(&mut self, pid: Pid) {
        for id in self.scene.works.of(pid) {
            match self.scene.works.get(id).map(|work| work.kind) {
                Some(WorkKind::InProcess) => self.end_work(id),
                Some(WorkKind::Watched) => {
                    let takes = self.rng.between(0, 50 * MILLI);
                    self.agenda.add(self.scene.now + takes, Happening::WorkStops(id));
                }
                Some(WorkKind::Lingering) | None => {}
            }
        }
        self.let_go(pid);
    }

    fn end_work(&mut self, id: WorkId) {
        let Some(work) = self.scene.works.end(id) else { return };
        if self.trace.is_on() {
            let Work { pid, role, token, .. } = &work;
            self.trace.line(self.scene.now, format_args!("work of p{pid} on {role} {token} ends"));
        }
        if self.scene.processes[work.pid].is_alive() {
            self.report_stopped(work.pid, work.role, work.token);
        } else {
            self.let_go(work.pid);
        }
    }

    fn report_stopped(&mut self, pid: Pid, role: Name, token: Token) {
        let takes = if self.rng.coin() { 0 } else { self.rng.between(0, MILLI) };
        self.deliver(pid, takes, Input::Stopped { role, token });
    }

    /// When the watchdog kills the work of a process: early enough to be done at the deadline.
    fn kill_at(&self, pid: Pid) -> Instant {
        let process = &self.scene.processes[pid];
        let at = process.until.before(self.scene.node(pid).timing.kill_slack);
        self.scene.clocks[process.clock].when(at, 0)
    }

    pub(super) fn schedule_watchdog(&mut self, id: WorkId) {
        let Some(work) = self.scene.works.get(id) else { return };
        let at = self.kill_at(work.pid).max(self.scene.now);
        self.agenda.add(at, Happening::Watchdog(id));
    }

    /// A session is about to be opened: its witness, if this world has any.
    pub(super) fn attest(&mut self, pid: Pid, session: SessionId, takeover: Takeover) {
        let covers_work = self.scene.node(pid).work != WorkKind::Lingering;
        let witness = match self.scene.settings.witness {
            WitnessKind::None => None,
            WitnessKind::Death => {
                let id = format!("lock-{:x}", self.rng.nonce());
                Some(Witness { id, covers_work, connection: false })
            }
            WitnessKind::Disconnect => {
                let id = format!("link-{:x}", self.rng.nonce());
                Some(Witness { id, covers_work: false, connection: true })
            }
        };
        // A pooler stands between, or the connection is not there yet.
        let refused = takeover == Takeover::OnDisconnect && self.rng.chance(50_000);
        let witness = witness.filter(|_| !refused);
        if let Some(Witness { id, covers_work, .. }) = witness.clone() {
            self.witnesses.hold(session, Held { id, by: pid, covers_work, released: false });
        }
        let takes = self.rng.between(MICRO, MILLI);
        self.deliver(pid, takes, Input::Attested { session, witness });
    }

    /// A process wants to know when a witness lets go; it may have done so already.
    pub(super) fn attend(&mut self, pid: Pid, session: SessionId) {
        self.witnesses.attend(session, pid);
        if self.witnesses.get(session).is_some_and(|held| held.released) {
            self.testify(pid, session);
        }
    }

    /// A process is gone: what it holds is let go of, once the work is gone too if the witness covers it.
    pub(super) fn let_go(&mut self, pid: Pid) {
        let works = !self.scene.works.of(pid).is_empty();
        for session in self.witnesses.held_by(pid) {
            let covers = self.witnesses.get(session).is_some_and(|held| held.covers_work);
            if !(covers && works) {
                self.release_witness(session);
            }
        }
    }

    /// A witness lets go, and those who attend to it are told.
    pub(super) fn release_witness(&mut self, session: SessionId) {
        if self.scene.settings.witness == WitnessKind::Disconnect {
            self.scene.store.drop_connection(session);
        }
        for pid in self.witnesses.release(session) {
            self.testify(pid, session);
        }
    }

    /// A witness tells one process, if it can see that far.
    fn testify(&mut self, to: Pid, session: SessionId) {
        let Some(held) = self.witnesses.get(session) else { return };
        let (by, witness) = (held.by, held.id.clone());
        let evidence = match self.scene.settings.witness {
            WitnessKind::Death if self.scene.node(by).host == self.scene.node(to).host => {
                Evidence::Dead { session, witness }
            }
            WitnessKind::Disconnect => Evidence::Disconnected { session, witness },
            _ => return,
        };
        let takes = self.rng.magnitude(100 * MICRO, 50 * MILLI) + self.delay();
        self.deliver(to, takes, Input::Witnessed(evidence));
    }
}
