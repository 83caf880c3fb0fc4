//! A process gets time: its engine is told something, and what it answers is carried out.

use tenure_core::{Event, Input, Now, Output};

use super::{World, draw_lag};
use crate::agenda::{Body, Happening};
use crate::clock::Instant;
use crate::faults::Mishap;
use crate::invariants::Sent;
use crate::process::{Life, Pid};

/// An engine that wants to be woken so often without any time in between spins.
const MOST_SPINS: u32 = 100;

impl World {
    /// Tells a process something, now or when it gets time again.
    pub(super) fn tell(&mut self, pid: Pid, input: Input) {
        match self.scene.processes[pid].life {
            Life::Running => self.step(pid, input),
            Life::Frozen(_) => self.scene.processes[pid].queue.push_back(input),
            Life::Dead => {}
        }
    }

    /// A process asked to be woken about now.
    pub(super) fn wake(&mut self, pid: Pid) {
        let now = self.scene.now;
        let process = &self.scene.processes[pid];
        if !process.is_running() || process.wake_at != now {
            return;
        }
        self.scene.processes[pid].wake_at = Instant::MAX;
        if self.wanted_at(pid) > now {
            self.schedule_wake(pid);
            return;
        }
        self.step(pid, Input::Wake);
        self.count_spins(pid, now);
    }

    /// A frozen process gets time again: what waited comes first, or the clock does.
    pub(super) fn thaw(&mut self, pid: Pid) {
        if self.scene.processes[pid].life != Life::Frozen(self.scene.now) {
            return;
        }
        self.scene.processes[pid].life = Life::Running;
        if self.trace.is_on() {
            self.trace.line(self.scene.now, format_args!("p{pid} thaws"));
        }
        self.work_thaws(pid);
        if self.rng.coin() {
            self.step(pid, Input::Wake);
        }
        while let Some(input) = self.scene.processes[pid].queue.pop_front() {
            if self.scene.processes[pid].is_running() {
                self.step(pid, input);
            } else {
                self.scene.processes[pid].queue.push_front(input);
                break;
            }
        }
        self.scene.processes[pid].bend = 0;
        self.schedule_wake(pid);
    }

    /// Freezes a process for so long.
    pub(super) fn freeze(&mut self, pid: Pid, span: Instant) {
        let until = self.scene.now + span;
        if !self.scene.processes[pid].is_running() {
            return;
        }
        self.scene.processes[pid].life = Life::Frozen(until);
        if self.mutant == Some(tenure_core::Mutant::ClockReadOrder) {
            self.scene.processes[pid].bend = self.rng.between(0, span);
        }
        if self.trace.is_on() {
            self.trace.line(self.scene.now, format_args!("p{pid} freezes for {} ms", span / 1_000_000));
        }
        self.agenda.add(until, Happening::Thaw(pid));
    }

    fn step(&mut self, pid: Pid, input: Input) {
        self.stats.steps += 1;
        self.checks.received(&self.scene, pid, &input);
        let now = self.read_clock(pid);
        let line = self.trace.is_on().then(|| format!("p{pid} {input:?}"));
        let rng = &mut self.rng;
        let outputs = self.scene.processes[pid].engine.step(now, input, &mut || rng.nonce());
        if let Some(line) = line {
            self.trace.line(self.scene.now, format_args!("{line} at {} -> {outputs:?}", now.time.0));
        }
        self.scene.processes[pid].wants = self.scene.processes[pid].engine.next_wake();
        self.checks.answered(&self.scene, pid, &outputs);
        let held_up = self.freeze_while_sending(pid, &outputs);
        for output in outputs {
            self.carry_out(pid, output, held_up);
        }
        let process = &self.scene.processes[pid];
        if process.stopping && process.is_alive() && process.engine.is_stopped() {
            self.exit(pid);
        }
        self.schedule_wake(pid);
    }

    /// What the process reads from its clocks. Badly read, after it was frozen, they may show too much.
    fn read_clock(&mut self, pid: Pid) -> Now {
        let process = &self.scene.processes[pid];
        let mut now = self.scene.clocks[process.clock].now(self.scene.now);
        let process = &mut self.scene.processes[pid];
        now.time.0 += process.bend;
        now.time = now.time.max(process.told);
        process.told = now.time;
        now
    }

    /// A process may freeze after it has read its clock and before its messages leave.
    fn freeze_while_sending(&mut self, pid: Pid, outputs: &[Output]) -> Instant {
        let sends = outputs.iter().any(|output| matches!(output, Output::Write { .. }));
        if !sends || !self.strikes(Mishap::FrozenSending) {
            return 0;
        }
        let span = self.draw_pause(pid);
        self.freeze(pid, span);
        span
    }

    fn carry_out(&mut self, pid: Pid, output: Output, held_up: Instant) {
        match output {
            Output::Read { op, query } => self.send(pid, op, Body::Read(query), held_up),
            Output::Write { op, writes } => {
                let local = self.scene.local(pid);
                self.checks.sent(&self.scene, Sent { pid, local, op, writes: &writes });
                self.send(pid, op, Body::Write(writes), held_up);
            }
            Output::Attest { session, takeover } => self.attest(pid, session, takeover),
            Output::Attend { session, .. } => self.attend(pid, session),
            Output::Ignore { session } => self.witnesses.ignore(session, pid),
            Output::Release { session } => self.release_witness(session),
            Output::Valid { until } => self.scene.processes[pid].until = until,
            Output::Event(event) => self.publish(pid, event),
        }
    }

    fn publish(&mut self, pid: Pid, event: Event) {
        match event {
            Event::Elected { role, token } => {
                self.stats.tenures += 1;
                if self.settled_at.is_some() {
                    *self.scene.won.entry(role.clone()).or_default() += 1;
                }
                self.work_starts(pid, role, token);
                self.look_for_settled();
            }
            Event::Draining { role, token, forced, .. } => self.work_drains(pid, &role, token, forced),
            Event::Lost { role, token, .. } => {
                self.work_lost(pid, &role, token);
                if self.healed_at.is_some() {
                    self.scene.lost_at.insert(role, self.scene.now);
                }
            }
            Event::SessionOpened { .. } => self.stats.sessions += 1,
            _ => {}
        }
    }

    /// When the engine wants to be woken, in true time.
    fn wanted_at(&self, pid: Pid) -> Instant {
        let process = &self.scene.processes[pid];
        self.scene.clocks[process.clock].when(process.wants, self.scene.now)
    }

    /// Puts the next wake of a process on the agenda, if it is earlier than the one that is there.
    pub(super) fn schedule_wake(&mut self, pid: Pid) {
        if !self.scene.processes[pid].is_running() {
            return;
        }
        let wanted = self.wanted_at(pid);
        if wanted == Instant::MAX {
            return;
        }
        let scheduled = self.scene.processes[pid].wake_at;
        if scheduled > self.scene.now && scheduled <= wanted {
            return;
        }
        let at = wanted + draw_lag(&mut self.rng, self.scene.settings.net.lag);
        self.scene.processes[pid].wake_at = at;
        self.agenda.add(at, Happening::Wake(pid));
    }

    fn count_spins(&mut self, pid: Pid, now: Instant) {
        let process = &mut self.scene.processes[pid];
        process.spins = if process.wake_at == now { process.spins + 1 } else { 0 };
        if process.spins <= MOST_SPINS {
            return;
        }
        if self.mutant.is_none() {
            self.checks.note("no engine spins", Err(format!("p{pid} wants to be woken again and again")));
            return;
        }
        // A mutant is to be caught for its mistake, not for being hasty: time goes on.
        let later = now + self.scene.node(pid).timing.beat.as_nanos() as Instant / 20;
        self.scene.processes[pid].wake_at = later;
        self.agenda.add(later, Happening::Wake(pid));
    }
}
