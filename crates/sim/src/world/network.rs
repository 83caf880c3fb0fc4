//! The network between processes and the store: messages are delayed, lost, duplicated, answered stale or with an error.

use tenure_core::{Entry, Fate, Hint, Input, OpId, Outcome, Query, Record, Reply, Token, Version, Write};

use super::{Direction, World};
use crate::clock::Instant;
use crate::event_queue::{Operation, SimEvent, StoreRequest};
use crate::faults::MessageFault;
use crate::invariants::WriteKind;
use crate::process::Pid;

/// The number of hints in a flood.
const FLOOD: usize = 600;

impl StoreRequest {
    /// What a store may answer that does not apply the request.
    fn denied(&self) -> Fate {
        if self.duplicated { Fate::Unknown } else { Fate::NotApplied }
    }
}

impl World {
    /// Sends an operation, `held_up` after the process decided on it; it arrives no earlier than `after`. When it arrives, unless
    /// it is lost.
    pub(super) fn send(
        &mut self,
        pid: Pid,
        op: OpId,
        body: Operation,
        held_up: Instant,
        after: Instant,
    ) -> Option<Instant> {
        self.stats.messages += 1;
        let way = match self.occurs(MessageFault::RequestLost) {
            true => None,
            false => self.transit_time(pid, Direction::ToStore),
        };
        let Some(way) = way else {
            self.fail_later(pid, op, held_up);
            return None;
        };
        let arrives = (self.state.now + held_up + way).max(after);
        let duplicated = self.occurs(MessageFault::Duplicated);
        if duplicated {
            let again = self.delay();
            let answered = self.rng.coin();
            let request = StoreRequest { pid, op, body: body.clone(), answered, duplicated };
            self.events.schedule(arrives + again, SimEvent::Arrive(Box::new(request)));
        }
        let request = StoreRequest { pid, op, body, answered: true, duplicated };
        self.events.schedule(arrives, SimEvent::Arrive(Box::new(request)));
        Some(arrives)
    }

    pub(super) fn arrive(&mut self, request: StoreRequest) {
        if self.is_down() {
            self.refuse(&request);
            return;
        }
        if self.occurs(MessageFault::NotApplied) {
            self.deny(&request);
            return;
        }
        let unknown = self.occurs(MessageFault::Unknown);
        if unknown && self.rng.coin() {
            // It may happen yet.
            self.answer(&request, Reply::Failed(Fate::Unknown));
            let later = self.delay() + self.delay();
            let request = StoreRequest { answered: false, ..request };
            self.events.schedule(self.state.now + later, SimEvent::Arrive(Box::new(request)));
            return;
        }
        let reply = match &request.body {
            Operation::Read(query) => self.serve_read(request.pid, query),
            Operation::Write(writes) => self.serve_write(request.pid, writes),
        };
        let reply = if unknown { self.make_unknown(reply) } else { reply };
        self.answer(&request, reply);
    }

    /// The store refuses all of an operation, or some writes of a batch.
    fn deny(&mut self, request: &StoreRequest) {
        let fate = request.denied();
        let reply = match &request.body {
            Operation::Write(writes) if self.rng.coin() => {
                let outcomes = writes.iter().map(|write| {
                    let denied = self.rng.coin();
                    if denied { Outcome::Failed(fate) } else { self.apply(Some(request.pid), write) }
                });
                Reply::Written(outcomes.collect())
            }
            _ => Reply::Failed(fate),
        };
        self.answer(request, reply);
    }

    /// The store applied the operation but answers "unknown", for all of it or for some writes of a batch.
    fn make_unknown(&mut self, reply: Reply) -> Reply {
        match reply {
            Reply::Written(outcomes) if self.rng.coin() => {
                let blurred = outcomes
                    .into_iter()
                    .map(|outcome| if self.rng.coin() { Outcome::Failed(Fate::Unknown) } else { outcome });
                Reply::Written(blurred.collect())
            }
            _ => Reply::Failed(Fate::Unknown),
        }
    }

    fn serve_read(&mut self, pid: Pid, query: &Query) -> Reply {
        let (until, lag) = self.lags[self.state.processes[pid].node];
        let lag = if self.state.now < until { lag } else { 0 };
        let stale = self.state.settings.network.stale;
        let age = if self.occurs(MessageFault::Stale) { self.rng.between(0, stale) } else { lag };
        Reply::Read(self.state.store.read(self.state.now.saturating_sub(age), query))
    }

    fn serve_write(&mut self, pid: Pid, writes: &[Write]) -> Reply {
        Reply::Written(writes.iter().map(|write| self.apply(Some(pid), write)).collect())
    }

    /// Carries out one compare-and-set; no process: an operator's.
    pub(super) fn apply(&mut self, pid: Option<Pid>, write: &Write) -> Outcome {
        let current = self.state.store.get(&write.key).map(|held| held.0);
        if current == write.expect {
            self.checks.applied(&self.state, pid, write);
            if WriteKind::of(write) == WriteKind::Expel {
                self.stats.expulsions += 1;
            }
        }
        let outcome = self.state.store.write(self.state.now, write);
        if outcome == Outcome::Applied && write.notify {
            self.notify(pid, write);
        }
        if self.trace.is_on() {
            let who = pid.map_or("operator".to_owned(), |pid| format!("p{pid}"));
            let act = WriteKind::of(write);
            let short = if outcome == Outcome::Applied { "applied" } else { "refused" };
            self.trace.line(self.state.now, format_args!("store: {act:?} {} of {who} {short}", write.key));
        }
        outcome
    }

    /// Sends a hint to every other process, unless the hint is lost.
    fn notify(&mut self, pid: Option<Pid>, write: &Write) {
        if !self.state.settings.network.notifies {
            return;
        }
        for other in self.alive() {
            if Some(other) == pid
                || self.partitioned_until(other, Direction::FromStore).is_some()
                || self.occurs(MessageFault::HintLost)
            {
                continue;
            }
            let times = if self.occurs(MessageFault::HintDuplicated) { 2 } else { 1 };
            for _ in 0..times {
                self.hint(other, Hint::Changed(write.key.clone()));
            }
        }
    }

    pub(super) fn hint(&mut self, pid: Pid, hint: Hint) {
        let way = self.delay();
        self.deliver(pid, way, Input::Hinted(hint));
    }

    /// Schedules an input for a process.
    pub(super) fn deliver(&mut self, pid: Pid, way: Instant, input: Input) {
        self.events.schedule(self.state.now + way, SimEvent::Deliver(pid, Box::new(input)));
    }

    pub(super) fn delay(&mut self) -> Instant {
        let network = &self.state.settings.network;
        let (least, usual, slow) = (network.least, network.usual, network.slow);
        if self.occurs(MessageFault::Slow) {
            self.rng.magnitude(usual, slow)
        } else {
            self.rng.between(least, usual)
        }
    }

    /// How long a message takes between a process and the store, if it gets through at all.
    fn transit_time(&mut self, pid: Pid, direction: Direction) -> Option<Instant> {
        let delay = self.delay();
        match self.partitioned_until(pid, direction) {
            None => Some(delay),
            // A message sent into a partition waits for its end, or never arrives.
            Some(end) => self.rng.coin().then(|| end - self.state.now + delay),
        }
    }

    fn answer(&mut self, request: &StoreRequest, reply: Reply) {
        if !request.answered || !self.state.processes[request.pid].is_alive() {
            return;
        }
        self.stats.messages += 1;
        if self.occurs(MessageFault::ReplyLost) {
            self.fail_later(request.pid, request.op, 0);
            return;
        }
        if let Some(way) = self.transit_time(request.pid, Direction::FromStore) {
            let input = Box::new(Input::Replied { op: request.op, reply });
            let losses = self.state.losses.count();
            self.events.schedule(self.state.now + way, SimEvent::Answer(request.pid, input, losses));
        }
    }

    /// A message was lost: the driver may say so after a while, or say nothing at all.
    fn fail_later(&mut self, pid: Pid, op: OpId, held_up: Instant) {
        if self.rng.coin() {
            let timeout = self.state.node(pid).timing.op_timeout.as_nanos() as Instant;
            let after = self.rng.between(timeout / 4, timeout * 3 / 2);
            self.deliver(pid, held_up + after, Input::Replied { op, reply: Reply::Failed(Fate::Unknown) });
        }
    }

    /// The store is down: it refuses at once, or stays silent.
    fn refuse(&mut self, request: &StoreRequest) {
        match self.rng.index(3) {
            0 => self.answer(request, Reply::Failed(request.denied())),
            1 => self.answer(request, Reply::Failed(Fate::Unknown)),
            _ => {}
        }
    }

    /// Sends a forged or outdated hint to a process.
    pub(super) fn false_hint(&mut self) {
        let alive = self.alive();
        if !alive.is_empty() {
            let to = *self.rng.pick(&alive);
            let way = self.delay();
            self.forge_hint(to, way);
        }
    }

    /// Floods one process with forged hints for about a beat.
    pub(super) fn flood_hints(&mut self) {
        let alive = self.alive();
        if alive.is_empty() {
            return;
        }
        let to = *self.rng.pick(&alive);
        let beat = self.state.node(to).timing.beat.as_nanos() as Instant;
        for _ in 0..FLOOD {
            let way = self.rng.between(0, beat);
            self.forge_hint(to, way);
        }
    }

    fn forge_hint(&mut self, pid: Pid, way: Instant) {
        let registers: Vec<_> = self.state.store.entries().map(|(key, _)| key.clone()).collect();
        if registers.is_empty() {
            return;
        }
        let key = self.rng.pick(&registers).clone();
        let Some((version, value)) = self.state.store.get(&key).cloned() else { return };
        let forged = if self.rng.coin() { version } else { Version::new(self.rng.nonce()) };
        let entry = match value {
            Record::Session(mut session) if self.rng.coin() => {
                session.state = tenure_core::record::SessionState::Closed;
                Entry { key, version: forged, value: Record::Session(session) }
            }
            Record::Role(mut role) if self.rng.coin() => {
                role.holder = None;
                role.token = if self.rng.coin() { role.token } else { Token::new(Token::MAX.get() - 4) };
                Entry { key, version: forged, value: Record::Role(role) }
            }
            value => {
                let (version, value) = self.state.store.older(&key).cloned().unwrap_or((version, value));
                Entry { key, version, value }
            }
        };
        self.deliver(pid, way, Input::Forged(entry));
    }
}
