//! A tiny world for hand-written schedules: real engines, one store, and rules for single messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::engine::{Class, Config};
use tenure_core::io::Standing;
use tenure_core::record::{SessionState, Witness};
use tenure_core::timing::Settings;
use tenure_core::*;

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Read,
    Open,
    Beat,
    Close,
    Expel,
    Claim,
    Resign,
    Other,
}

/// What happens to the next message of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fare {
    /// The request waits.
    HoldRequest,
    /// It is applied; the answer waits.
    HoldAnswer,
    /// It is lost.
    Lose,
}

struct Held {
    node: usize,
    op: OpId,
    what: Result<Output, Reply>,
}

pub(crate) struct Script {
    pub(crate) now: u64,
    /// By how much the wall clocks were set back, in microseconds.
    pub(crate) set_back: u64,
    pub(crate) engines: Vec<Engine>,
    pub(crate) registers: BTreeMap<Key, (Version, Record)>,
    pub(crate) cut: BTreeSet<usize>,
    pub(crate) frozen: BTreeSet<usize>,
    /// Work of these nodes does not stop when told to: it is killed at the deadline.
    pub(crate) stubborn: BTreeSet<usize>,
    pub(crate) witness: Option<Witness>,
    /// Sessions whose connection dropped.
    pub(crate) severed: BTreeSet<SessionId>,
    pub(crate) hints: bool,
    pub(crate) works: BTreeMap<usize, Token>,
    /// When the watchdog of each node kills its work.
    pub(crate) until: BTreeMap<usize, u64>,
    /// Two led, or worked, at one moment.
    pub(crate) overlap: bool,
    pub(crate) sent: Vec<(u64, usize, About)>,
    pub(crate) events: Vec<(u64, usize, Event)>,
    rule: Option<(usize, About, Fare)>,
    held: Vec<Held>,
    nonce: u128,
}

pub(crate) fn role() -> Name {
    Name::new("role").unwrap()
}

pub(crate) fn seconds(time: u64) -> f64 {
    time as f64 / 1e9
}

impl Script {
    /// Two nodes with the default times, the first of which leads; the second began a tenth of a second later.
    pub(crate) fn led_by_a(mutant: Option<Mutant>) -> Self {
        Self::led(mutant, [Duration::from_secs(5); 2], Class::B, None)
    }

    pub(crate) fn led(
        mutant: Option<Mutant>,
        ttls: [Duration; 2],
        class: Class,
        witness: Option<Witness>,
    ) -> Self {
        Self::led_at(1_000_000_000, mutant, ttls, class, witness)
    }

    /// The same, beginning at an instant of the one clock.
    pub(crate) fn led_at(
        now: u64,
        mutant: Option<Mutant>,
        ttls: [Duration; 2],
        class: Class,
        witness: Option<Witness>,
    ) -> Self {
        let on_disconnect = witness.as_ref().is_some_and(|witness| witness.connection);
        let takeover = if on_disconnect { Takeover::OnDisconnect } else { Takeover::Strict };
        let engine = |(n, ttl): (usize, &Duration)| {
            let timing = Timing::new(&Settings { ttl: Some(*ttl), takeover, ..Settings::default() }).unwrap();
            Engine::new(Config { node: Name::new(["A", "B"][n]).unwrap(), timing, class, mutant })
        };
        let mut script = Self {
            now,
            set_back: 0,
            engines: ttls.iter().enumerate().map(engine).collect(),
            registers: BTreeMap::new(),
            cut: BTreeSet::new(),
            frozen: BTreeSet::new(),
            stubborn: BTreeSet::new(),
            witness,
            severed: BTreeSet::new(),
            hints: true,
            works: BTreeMap::new(),
            until: BTreeMap::new(),
            overlap: false,
            sent: Vec::new(),
            events: Vec::new(),
            rule: None,
            held: Vec::new(),
            nonce: 0,
        };
        script.begin(A);
        script.wait(if class == Class::C { 6.5 } else { 0.1 });
        script.begin(B);
        script.wait(if class == Class::C { 7.0 } else { 3.0 });
        assert_eq!(script.leaders(), [A], "A leads at first");
        script
    }

    /// One more node, with the default times. Gives its place.
    pub(crate) fn join(&mut self, name: &str) -> usize {
        let timing = Timing::new(&Settings::default()).unwrap();
        let config = Config { node: Name::new(name).unwrap(), timing, class: Class::B, mutant: None };
        self.engines.push(Engine::new(config));
        self.begin(self.engines.len() - 1);
        self.engines.len() - 1
    }

    pub(crate) fn begin(&mut self, node: usize) {
        self.feed(node, Input::Start);
        let standing = Standing::default();
        self.feed(node, Input::Stand { role: role(), standing });
    }

    pub(crate) fn leaders(&self) -> Vec<usize> {
        let leads = |n: &usize| self.engines[*n].leads(&role(), Time(self.now)).is_some();
        (0..self.engines.len()).filter(leads).collect()
    }

    pub(crate) fn token(&self, node: usize) -> Token {
        self.engines[node].leads(&role(), Time(self.now)).expect("it leads")
    }

    pub(crate) fn feed(&mut self, node: usize, input: Input) {
        let mut inputs = vec![(node, input)];
        let mut steps = 0;
        while !inputs.is_empty() {
            steps += 1;
            if steps > 500 {
                // Two that fight over one register without end: never sound.
                self.overlap = true;
                return;
            }
            let (node, input) = inputs.remove(0);
            let now = Now { time: Time(self.now), wall: Wall(self.now / 1000 - self.set_back) };
            let nonce = &mut self.nonce;
            let outputs = self.engines[node].step(now, input, &mut || {
                *nonce += 1;
                *nonce
            });
            for output in outputs {
                self.carry_out(node, output, &mut inputs);
            }
            let works = self.works.keys().copied().filter(|n| self.now < self.until[n]);
            let busy: BTreeSet<usize> = self.leaders().into_iter().chain(works).collect();
            self.overlap |= busy.len() > 1;
        }
    }

    fn carry_out(&mut self, node: usize, output: Output, inputs: &mut Vec<(usize, Input)>) {
        match &output {
            Output::Read { op, .. } | Output::Write { op, .. } => {
                let (op, about) = (*op, about(&output));
                self.sent.push((self.now, node, about));
                let fare = self.rule.take_if(|(n, a, _)| *n == node && *a == about).map(|(_, _, fare)| fare);
                match fare {
                    _ if self.cut.contains(&node) => {}
                    Some(Fare::Lose) => {}
                    Some(Fare::HoldRequest) => self.held.push(Held { node, op, what: Ok(output) }),
                    Some(Fare::HoldAnswer) => {
                        let reply = self.serve(node, output, inputs);
                        self.held.push(Held { node, op, what: Err(reply) });
                    }
                    None => {
                        let reply = self.serve(node, output, inputs);
                        inputs.push((node, Input::Replied { op, reply }));
                    }
                }
            }
            Output::Attest { session, .. } => {
                inputs.push((node, Input::Attested { session: *session, witness: self.witness.clone() }));
            }
            Output::Valid { until } => _ = self.until.insert(node, until.0),
            Output::Event(event) => self.happened(node, event.clone(), inputs),
            _ => {}
        }
    }

    fn happened(&mut self, node: usize, event: Event, inputs: &mut Vec<(usize, Input)>) {
        match &event {
            Event::Elected { token, .. } => _ = self.works.insert(node, *token),
            Event::Draining { token, .. } | Event::Lost { token, .. }
                if !self.stubborn.contains(&node) && self.works.remove(&node).is_some() =>
            {
                inputs.push((node, Input::Stopped { role: role(), token: *token }));
            }
            _ => {}
        }
        self.events.push((self.now, node, event));
    }

    fn serve(&mut self, node: usize, output: Output, inputs: &mut Vec<(usize, Input)>) -> Reply {
        match output {
            Output::Read { query, .. } => {
                let wanted =
                    |key: &Key| query.keys.contains(key) || query.kinds.contains(&(key.epoch(), key.kind()));
                let found = self.registers.iter().filter(|(key, _)| wanted(key));
                Reply::Read(found.map(|(key, (version, value))| entry(key, *version, value)).collect())
            }
            Output::Write { writes, .. } => {
                Reply::Written(writes.into_iter().map(|write| self.write(node, write, inputs)).collect())
            }
            _ => unreachable!("only reads and writes are served"),
        }
    }

    fn write(&mut self, node: usize, write: Write, inputs: &mut Vec<(usize, Input)>) -> Outcome {
        if matches!(&write.key, Key::Session(_, id) if write.witnessed && self.severed.contains(id)) {
            return Outcome::Failed(Fate::Severed);
        }
        let current = self.registers.get(&write.key);
        if current.map(|(version, _)| *version) != write.expect {
            return Outcome::Conflict(current.map(|(version, value)| entry(&write.key, *version, value)));
        }
        match write.put {
            None => _ = self.registers.remove(&write.key),
            Some((version, value)) => {
                let others =
                    (0..self.engines.len()).filter(|other| *other != node && write.ring && self.hints);
                for other in others.filter(|other| !self.frozen.contains(other) && !self.cut.contains(other))
                {
                    inputs.push((other, Input::Hinted(Hint::Changed(entry(&write.key, version, &value)))));
                }
                self.registers.insert(write.key, (version, value));
            }
        }
        Outcome::Applied
    }

    /// Lets time pass, waking whoever is not frozen.
    pub(crate) fn wait(&mut self, span: f64) {
        self.wait_until(span, |_| false);
    }

    /// Lets time pass up to so long after an instant.
    pub(crate) fn wait_to(&mut self, instant: u64, span: f64) {
        self.wait(seconds(instant + (span * 1e9) as u64) - seconds(self.now));
    }

    fn wait_until(&mut self, span: f64, enough: impl Fn(&Self) -> bool) {
        let end = self.now + (span * 1e9) as u64;
        for _ in 0..2_000 {
            if enough(self) {
                return;
            }
            let awake = (0..self.engines.len()).filter(|n| !self.frozen.contains(n));
            let next = awake.map(|n| (self.engines[n].next_wake().0, n)).min().unwrap_or((u64::MAX, 0));
            if next.0 > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next.0);
            self.feed(next.1, Input::Wake);
        }
        // An engine that wants to be woken for ever: never sound.
        self.overlap = true;
    }

    /// The next message of that kind from that node fares so; returns when it was sent.
    pub(crate) fn next(&mut self, node: usize, about: About, fare: Fare) -> u64 {
        self.rule = Some((node, about, fare));
        self.wait_until(60.0, |script| script.rule.is_none());
        assert!(self.rule.is_none(), "no {about:?} was sent");
        self.now
    }

    /// The next message of that kind fares so, whenever it comes.
    pub(crate) fn plan(&mut self, node: usize, about: About, fare: Fare) {
        self.rule = Some((node, about, fare));
    }

    /// What was held goes on: a request is applied, and its answer arrives; an answer arrives.
    pub(crate) fn let_go(&mut self) {
        let held = self.held.remove(0);
        let mut inputs = Vec::new();
        let reply = match held.what {
            Ok(output) => self.serve(held.node, output, &mut inputs),
            Err(reply) => reply,
        };
        inputs.into_iter().for_each(|(node, input)| self.feed(node, input));
        self.feed(held.node, Input::Replied { op: held.op, reply });
    }

    pub(crate) fn session(&self, node: usize) -> SessionId {
        self.engines[node].session().expect("a session").0
    }

    pub(crate) fn times(&self, node: usize, what: About, since: u64) -> usize {
        self.sent.iter().filter(|(at, n, about)| *at >= since && *n == node && *about == what).count()
    }

    pub(crate) fn elections(&self) -> Vec<(usize, u64)> {
        let elected = |(_, n, event): &(u64, usize, Event)| match event {
            Event::Elected { token, .. } => Some((*n, token.0)),
            _ => None,
        };
        self.events.iter().filter_map(elected).collect()
    }
}

pub(crate) fn entry(key: &Key, version: Version, value: &Record) -> Entry {
    Entry { key: key.clone(), version, value: value.clone() }
}

fn about(output: &Output) -> About {
    let Output::Write { writes, .. } = output else { return About::Read };
    match writes.first().map(|write| (&write.put, write.expect)) {
        Some((Some((_, Record::Session(session))), expect)) => match session.state {
            SessionState::Live if expect.is_none() => About::Open,
            SessionState::Live => About::Beat,
            SessionState::Closed => About::Close,
            SessionState::Expelled => About::Expel,
        },
        Some((Some((_, Record::Role(role))), _)) if role.holder.is_some() => About::Claim,
        Some((Some((_, Record::Role(_))), _)) => About::Resign,
        _ => About::Other,
    }
}
