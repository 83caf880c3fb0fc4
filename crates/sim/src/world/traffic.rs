//! Messages between processes and the store: delayed, lost, doubled, answered stale or with an error.

use tenure_core::{Entry, Fate, Hint, Input, OpId, Outcome, Query, Record, Reply, Write};

use super::{Direction, World};
use crate::agenda::{Body, Happening, Request};
use crate::clock::Instant;
use crate::faults::Mishap;
use crate::invariants::Act;
use crate::process::Pid;

impl Request {
    /// What a store may say that does not carry it out.
    fn denied(&self) -> Fate {
        if self.doubled { Fate::Unknown } else { Fate::NotApplied }
    }
}

impl World {
    /// An operation leaves a process, `held_up` after it was decided.
    pub(super) fn send(&mut self, pid: Pid, op: OpId, body: Body, held_up: Instant) {
        self.stats.messages += 1;
        if self.strikes(Mishap::RequestLost) {
            self.fail_later(pid, op, held_up);
            return;
        }
        let Some(way) = self.way(pid, Direction::There) else {
            self.fail_later(pid, op, held_up);
            return;
        };
        let doubled = self.strikes(Mishap::Doubled);
        if doubled {
            let again = self.delay();
            let answered = self.rng.coin();
            let request = Request { pid, op, body: body.clone(), answered, doubled };
            self.agenda.add(self.scene.now + held_up + way + again, Happening::Arrive(Box::new(request)));
        }
        let request = Request { pid, op, body, answered: true, doubled };
        self.agenda.add(self.scene.now + held_up + way, Happening::Arrive(Box::new(request)));
    }

    /// An operation arrives at the store.
    pub(super) fn arrive(&mut self, request: Request) {
        if self.is_out() {
            self.refuse(&request);
            return;
        }
        if self.strikes(Mishap::NotApplied) {
            self.deny(&request);
            return;
        }
        let unknown = self.strikes(Mishap::Unknown);
        if unknown && self.rng.coin() {
            // It may happen yet.
            self.answer(&request, Reply::Failed(Fate::Unknown));
            let later = self.delay() + self.delay();
            let request = Request { answered: false, ..request };
            self.agenda.add(self.scene.now + later, Happening::Arrive(Box::new(request)));
            return;
        }
        let reply = match &request.body {
            Body::Read(query) => self.serve_read(request.pid, query),
            Body::Write(writes) => self.serve_write(request.pid, writes),
        };
        let reply = if unknown { self.blur(reply) } else { reply };
        self.answer(&request, reply);
    }

    /// The store refuses all of an operation, or some writes of a batch.
    fn deny(&mut self, request: &Request) {
        let fate = request.denied();
        let reply = match &request.body {
            Body::Write(writes) if self.rng.coin() => {
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

    /// The store did it and does not know: for all of an operation, or for some writes of a batch.
    fn blur(&mut self, reply: Reply) -> Reply {
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
        let (until, lag) = self.lags[self.scene.processes[pid].node];
        let lag = if self.scene.now < until { lag } else { 0 };
        let stale = self.scene.settings.net.stale;
        let age = if self.strikes(Mishap::Stale) { self.rng.between(0, stale) } else { lag };
        Reply::Read(self.scene.store.read(self.scene.now.saturating_sub(age), query))
    }

    fn serve_write(&mut self, pid: Pid, writes: &[Write]) -> Reply {
        Reply::Written(writes.iter().map(|write| self.apply(Some(pid), write)).collect())
    }

    /// Carries out one compare-and-set; no process: an operator's.
    pub(super) fn apply(&mut self, pid: Option<Pid>, write: &Write) -> Outcome {
        let current = self.scene.store.get(&write.key).map(|held| held.0);
        if current == write.expect {
            self.checks.applied(&self.scene, pid, write);
            if Act::of(write) == Act::Expel {
                self.stats.expulsions += 1;
            }
        }
        let outcome = self.scene.store.write(self.scene.now, write);
        if outcome == Outcome::Applied && write.ring {
            self.ring(pid, write);
        }
        if self.trace.is_on() {
            let who = pid.map_or("operator".to_owned(), |pid| format!("p{pid}"));
            let act = Act::of(write);
            let short = if outcome == Outcome::Applied { "applied" } else { "refused" };
            self.trace.line(self.scene.now, format_args!("store: {act:?} {} of {who} {short}", write.key));
        }
        outcome
    }

    /// Everybody else is told of a change, perhaps.
    fn ring(&mut self, pid: Option<Pid>, write: &Write) {
        let Some((version, value)) = &write.put else { return };
        if !self.scene.settings.net.rings {
            return;
        }
        let entry = Entry { key: write.key.clone(), version: *version, value: value.clone() };
        for other in self.alive() {
            if Some(other) == pid
                || self.cut_until(other, Direction::Back).is_some()
                || self.strikes(Mishap::HintLost)
            {
                continue;
            }
            let times = if self.strikes(Mishap::HintDoubled) { 2 } else { 1 };
            for _ in 0..times {
                self.hint(other, Hint::Changed(entry.clone()));
            }
        }
    }

    /// A hint goes to a process.
    pub(super) fn hint(&mut self, pid: Pid, hint: Hint) {
        let way = self.delay();
        self.deliver(pid, way, Input::Hinted(hint));
    }

    /// Something reaches a process after a while.
    pub(super) fn deliver(&mut self, pid: Pid, way: Instant, input: Input) {
        self.agenda.add(self.scene.now + way, Happening::Deliver(pid, Box::new(input)));
    }

    /// How long a message takes.
    pub(super) fn delay(&mut self) -> Instant {
        let net = &self.scene.settings.net;
        let (least, usual, slow) = (net.least, net.usual, net.slow);
        if self.strikes(Mishap::Slow) {
            self.rng.magnitude(usual, slow)
        } else {
            self.rng.between(least, usual)
        }
    }

    /// How long a message takes between a process and the store, if it gets through at all.
    fn way(&mut self, pid: Pid, direction: Direction) -> Option<Instant> {
        let delay = self.delay();
        match self.cut_until(pid, direction) {
            None => Some(delay),
            // What is sent into a cut waits for its end, or never arrives.
            Some(end) => self.rng.coin().then(|| end - self.scene.now + delay),
        }
    }

    fn answer(&mut self, request: &Request, reply: Reply) {
        if !request.answered || !self.scene.processes[request.pid].is_alive() {
            return;
        }
        self.stats.messages += 1;
        if self.strikes(Mishap::ReplyLost) {
            self.fail_later(request.pid, request.op, 0);
            return;
        }
        if let Some(way) = self.way(request.pid, Direction::Back) {
            self.deliver(request.pid, way, Input::Replied { op: request.op, reply });
        }
    }

    /// A message was lost: the driver may say so after a while, or say nothing at all.
    fn fail_later(&mut self, pid: Pid, op: OpId, held_up: Instant) {
        if self.rng.coin() {
            let timeout = self.scene.node(pid).timing.op_timeout.as_nanos() as Instant;
            let after = self.rng.between(timeout / 4, timeout * 3 / 2);
            self.deliver(pid, held_up + after, Input::Replied { op, reply: Reply::Failed(Fate::Unknown) });
        }
    }

    /// The store is out: refused at once, or silence.
    fn refuse(&mut self, request: &Request) {
        match self.rng.index(3) {
            0 => self.answer(request, Reply::Failed(request.denied())),
            1 => self.answer(request, Reply::Failed(Fate::Unknown)),
            _ => {}
        }
    }

    /// A hint made of what was never so, or is no longer so.
    pub(super) fn false_hint(&mut self) {
        let registers: Vec<_> = self.scene.store.entries().map(|(key, _)| key.clone()).collect();
        let alive = self.alive();
        if registers.is_empty() || alive.is_empty() {
            return;
        }
        let key = self.rng.pick(&registers).clone();
        let to = *self.rng.pick(&alive);
        let Some((version, value)) = self.scene.store.get(&key).cloned() else { return };
        let entry = match value {
            Record::Session(mut session) if self.rng.coin() => {
                session.state = tenure_core::record::SessionState::Closed;
                let version = if self.rng.coin() { version } else { tenure_core::Version(self.rng.nonce()) };
                Entry { key, version, value: Record::Session(session) }
            }
            Record::Role(mut role) if self.rng.coin() => {
                role.holder = None;
                Entry { key, version: tenure_core::Version(self.rng.nonce()), value: Record::Role(role) }
            }
            value => {
                let (version, value) = self.scene.store.older(&key).cloned().unwrap_or((version, value));
                Entry { key, version, value }
            }
        };
        self.hint(to, Hint::Changed(entry));
    }
}
