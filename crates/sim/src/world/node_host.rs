//! Hosts the engine of each process: feeds it inputs and carries out its outputs.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{Event, Hint, Input, Now, OpId, Output, Pairing};

use super::{World, draw_lag};
use crate::clock::Instant;
use crate::event_queue::{Operation, SimEvent};
use crate::faults::MessageFault;
use crate::invariants::SentBatch;
use crate::process::{Pid, ProcessState};
use crate::swarm::WorkKind;

/// An engine that asks to be woken more often than this at one instant spins.
const MOST_SPINS: u32 = 100;

impl World {
    /// Feeds an input to a process, now or when it runs again.
    pub(super) fn feed(&mut self, pid: Pid, input: Input) {
        match self.state.processes[pid].state {
            ProcessState::Running => self.step(pid, input),
            ProcessState::Frozen(_) => self.state.processes[pid].queue.push_back(input),
            ProcessState::Dead => {}
        }
    }

    /// An answer reaches a process. The first one that comes from the state after a loss tells of the loss, if the store gives
    /// such signs.
    pub(super) fn feed_reply(&mut self, pid: Pid, input: Input, losses: usize) {
        let losses_heard = std::mem::replace(&mut self.state.processes[pid].losses_heard, losses);
        self.state.processes[pid].losses_heard = losses_heard.max(losses);
        if losses > losses_heard && self.state.settings.reports_losses {
            self.feed(pid, Input::Hinted(Hint::Forgot));
        }
        self.feed(pid, input);
    }

    /// Wakes a process that asked to be woken about now.
    pub(super) fn wake(&mut self, pid: Pid) {
        let now = self.state.now;
        let process = &self.state.processes[pid];
        if !process.is_running() || process.wake_at != now {
            return;
        }
        self.state.processes[pid].wake_at = Instant::MAX;
        if self.wanted_at(pid) > now {
            self.schedule_wake(pid);
            return;
        }
        self.step(pid, Input::Wake);
        self.count_spins(pid, now);
    }

    /// Thaws a process: its queued inputs come first, or the clock does.
    pub(super) fn thaw(&mut self, pid: Pid) {
        if self.state.processes[pid].state != ProcessState::Frozen(self.state.now) {
            return;
        }
        self.state.processes[pid].state = ProcessState::Running;
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("p{pid} thaws"));
        }
        self.state.processes[pid].running_since = self.state.now;
        self.work_thaws(pid);
        let asleep = std::mem::take(&mut self.state.processes[pid].asleep) && self.timers_sleep(pid);
        if self.rng.coin() && !asleep {
            self.step(pid, Input::Wake);
        }
        while let Some(input) = self.state.processes[pid].queue.pop_front() {
            if self.state.processes[pid].is_running() {
                self.step(pid, input);
            } else {
                self.state.processes[pid].queue.push_front(input);
                break;
            }
        }
        self.state.processes[pid].clock_bend = 0;
        if asleep {
            self.oversleep(pid);
        } else {
            self.schedule_wake(pid);
        }
    }

    /// Whether the timers of a process stand still in suspend. Where work runs in the process they do not: that work ends only when
    /// the engine is woken. A watchdog has a timer of its own.
    fn timers_sleep(&self, pid: Pid) -> bool {
        self.mutant == Some(tenure_core::Mutant::TimersSleep)
            || self.state.node(pid).work != WorkKind::InProcess
    }

    /// The timer that was set before the machine slept comes late, unless something else happens first.
    fn oversleep(&mut self, pid: Pid) {
        let beat = self.state.node(pid).timing.beat.as_nanos() as Instant;
        let at = self.state.now + self.rng.between(0, beat);
        self.state.processes[pid].wake_at = at;
        self.events.schedule(at, SimEvent::Wake(pid));
    }

    pub(super) fn freeze(&mut self, pid: Pid, span: Instant) {
        let until = self.state.now + span;
        if !self.state.processes[pid].is_running() {
            return;
        }
        self.state.processes[pid].state = ProcessState::Frozen(until);
        if self.mutant == Some(tenure_core::Mutant::ClockReadOrder) {
            self.state.processes[pid].clock_bend = self.rng.between(0, span);
        }
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("p{pid} freezes for {} ms", span / 1_000_000));
        }
        self.events.schedule(until, SimEvent::Thaw(pid));
    }

    fn step(&mut self, pid: Pid, input: Input) {
        self.stats.steps += 1;
        self.checks.received(&self.state, pid, &input);
        let forgot = matches!(input, Input::Hinted(Hint::Forgot));
        let now = self.read_clock(pid);
        let line = self.trace.is_on().then(|| format!("p{pid} {input:?}"));
        let rng = &mut self.rng;
        let outputs = self.state.processes[pid].engine.step(now, input, &mut || rng.nonce());
        if let Some(line) = line {
            self.trace.line(self.state.now, format_args!("{line} at {} -> {outputs:?}", now.time.as_nanos()));
        }
        self.state.processes[pid].wake_wanted = self.state.processes[pid].engine.next_wake();
        self.checks.told(&self.state, pid, forgot);
        self.checks.answered(&self.state, pid, &outputs);
        let held_up = self.freeze_while_sending(pid, &outputs);
        // The writes of this step, and when they arrive.
        let mut written = BTreeMap::new();
        for output in outputs {
            self.carry_out(pid, output, held_up, &mut written);
        }
        let process = &self.state.processes[pid];
        if process.stopping && process.is_alive() && process.engine.is_stopped() {
            self.exit(pid);
        }
        self.schedule_wake(pid);
    }

    /// What the process reads from its clocks. Badly read clocks may run ahead after a freeze.
    fn read_clock(&mut self, pid: Pid) -> Now {
        let process = &self.state.processes[pid];
        let mut now = self.state.clocks[process.clock].now(self.state.now);
        let process = &mut self.state.processes[pid];
        now.time = now.time.after(Duration::from_nanos(process.clock_bend));
        now.time = now.time.max(process.last_reading);
        process.last_reading = now.time;
        now
    }

    /// A process may freeze after it has read its clock and before its messages leave.
    fn freeze_while_sending(&mut self, pid: Pid, outputs: &[Output]) -> Instant {
        let sends = outputs.iter().any(|output| matches!(output, Output::Write { .. }));
        if !sends || !self.occurs(MessageFault::FrozenSending) {
            return 0;
        }
        let span = self.draw_pause(pid);
        self.freeze(pid, span);
        span
    }

    fn carry_out(
        &mut self,
        pid: Pid,
        output: Output,
        held_up: Instant,
        written: &mut BTreeMap<OpId, Instant>,
    ) {
        match output {
            Output::Read { op, query, with } => {
                let after =
                    with.and_then(Pairing::served_after).and_then(|write| written.get(&write).copied());
                self.send(pid, op, Operation::Read(query), held_up, after.unwrap_or_default());
            }
            Output::Write { op, writes } => {
                let local = self.state.local(pid);
                self.checks.sent(&self.state, SentBatch { pid, local, op, writes: &writes });
                let arrives = self.send(pid, op, Operation::Write(writes), held_up, 0);
                written.extend(arrives.map(|arrives| (op, arrives)));
            }
            Output::AcquireLock { session, takeover } => self.acquire_lock(pid, session, takeover),
            Output::WatchLock { session, .. } => self.watch_lock(pid, session),
            Output::UnwatchLock { session } => self.locks.unwatch(session, pid),
            Output::ReleaseLock { session } => self.release_lock(session),
            Output::Valid { until } => self.state.processes[pid].until = until,
            Output::Event(event) => self.handle_event(pid, event),
        }
    }

    fn handle_event(&mut self, pid: Pid, event: Event) {
        match event {
            Event::Elected { role, token } => {
                self.stats.tenures += 1;
                if self.settled_at.is_some() {
                    *self.state.won.entry(role.clone()).or_default() += 1;
                }
                self.work_starts(pid, role, token);
                self.check_settled();
            }
            Event::Draining { role, token, forced, .. } => self.work_drains(pid, &role, token, forced),
            Event::Lost { role, token, .. } => {
                self.work_lost(pid, &role, token);
                if self.healed_at.is_some() {
                    self.state.lost_at.insert(role, self.state.now);
                }
            }
            Event::SessionOpened { .. } => self.stats.sessions += 1,
            _ => {}
        }
    }

    /// When the engine wants to be woken, in true time.
    fn wanted_at(&self, pid: Pid) -> Instant {
        let process = &self.state.processes[pid];
        self.state.clocks[process.clock].when(process.wake_wanted, self.state.now)
    }

    /// Schedules the next wake of a process, if it is earlier than the scheduled one.
    pub(super) fn schedule_wake(&mut self, pid: Pid) {
        if !self.state.processes[pid].is_running() {
            return;
        }
        let wanted = self.wanted_at(pid);
        if wanted == Instant::MAX {
            return;
        }
        let scheduled = self.state.processes[pid].wake_at;
        if scheduled > self.state.now && scheduled <= wanted {
            return;
        }
        let at = wanted + draw_lag(&mut self.rng, self.state.settings.network.lag);
        self.state.processes[pid].wake_at = at;
        self.events.schedule(at, SimEvent::Wake(pid));
    }

    fn count_spins(&mut self, pid: Pid, now: Instant) {
        let process = &mut self.state.processes[pid];
        process.spins = if process.wake_at == now { process.spins + 1 } else { 0 };
        if process.spins <= MOST_SPINS {
            return;
        }
        if self.mutant.is_none() {
            self.checks.note("no engine spins", Err(format!("p{pid} wants to be woken again and again")));
            return;
        }
        // A mutant must be caught for its fault, not for spinning: time goes on.
        let later = now + self.state.node(pid).timing.beat.as_nanos() as Instant / 20;
        self.state.processes[pid].wake_at = later;
        self.events.schedule(later, SimEvent::Wake(pid));
    }
}
