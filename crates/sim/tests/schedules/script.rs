//! A tiny world for hand-written schedules: real engines, one store, and rules for single messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::engine::{Class, Config};
use tenure_core::io::Candidacy;
use tenure_core::record::{LivenessLock, SessionState};
use tenure_core::timing::TimingSettings;
use tenure_core::*;

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
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
pub(crate) enum MessageFate {
    /// The request waits.
    HoldRequest,
    /// It is applied; the answer waits.
    HoldAnswer,
    /// It is lost.
    Lose,
    /// It is refused by a store that cannot carry it out.
    Refuse,
}

struct Held {
    node: usize,
    op: OpId,
    what: Result<Output, Reply>,
}

pub(crate) struct Script {
    pub(crate) now: u64,
    /// By how much the wall clocks were set back, in microseconds; less than nothing: set ahead.
    pub(crate) set_back: i64,
    pub(crate) engines: Vec<Engine>,
    pub(crate) registers: BTreeMap<Key, (Version, Record)>,
    pub(crate) cut: BTreeSet<usize>,
    /// The reads of these nodes are lost.
    pub(crate) deaf: BTreeSet<usize>,
    pub(crate) frozen: BTreeSet<usize>,
    /// Work of these nodes does not stop when told to: it is killed at the deadline.
    pub(crate) stubborn: BTreeSet<usize>,
    pub(crate) liveness_lock: Option<LivenessLock>,
    /// Sessions whose connection dropped.
    pub(crate) severed: BTreeSet<SessionId>,
    pub(crate) hints: bool,
    /// What reads show of these registers, whatever they hold: a replica that lags behind.
    pub(crate) stale: BTreeMap<Key, (Version, Record)>,
    pub(crate) works: BTreeMap<usize, Token>,
    /// When the watchdog of each node kills its work.
    pub(crate) until: BTreeMap<usize, u64>,
    /// Two led, or worked, at one moment.
    pub(crate) overlap: bool,
    pub(crate) sent: Vec<(u64, usize, MessageKind)>,
    pub(crate) events: Vec<(u64, usize, Event)>,
    rule: Option<(usize, MessageKind, MessageFate)>,
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
        liveness_lock: Option<LivenessLock>,
    ) -> Self {
        Self::led_at(1_000_000_000, mutant, ttls, class, liveness_lock)
    }

    /// The same, beginning at an instant of the one clock.
    pub(crate) fn led_at(
        now: u64,
        mutant: Option<Mutant>,
        ttls: [Duration; 2],
        class: Class,
        liveness_lock: Option<LivenessLock>,
    ) -> Self {
        let on_disconnect = liveness_lock.as_ref().is_some_and(|lock| lock.connection);
        let takeover = if on_disconnect { Takeover::OnDisconnect } else { Takeover::Strict };
        let engine = |(n, ttl): (usize, &Duration)| {
            let timing =
                Timing::new(&TimingSettings { ttl: Some(*ttl), takeover, ..TimingSettings::default() })
                    .unwrap();
            Engine::new(Config::new(Name::new(["A", "B"][n]).unwrap(), timing, class).with_mutant(mutant))
        };
        let mut script = Self {
            now,
            set_back: 0,
            engines: ttls.iter().enumerate().map(engine).collect(),
            registers: BTreeMap::new(),
            cut: BTreeSet::new(),
            deaf: BTreeSet::new(),
            frozen: BTreeSet::new(),
            stubborn: BTreeSet::new(),
            liveness_lock,
            severed: BTreeSet::new(),
            hints: true,
            stale: BTreeMap::new(),
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
        let longest = ttls.iter().max().map_or(0.0, Duration::as_secs_f64);
        script.wait(if class == Class::C { 1.3 * longest } else { 0.1 });
        script.begin(B);
        script.wait(if class == Class::C { 1.4 * longest } else { 3.0 });
        assert_eq!(script.leaders(), [A], "A leads at first");
        script
    }

    /// One more node, with the default times. Gives its place.
    pub(crate) fn join(&mut self, name: &str) -> usize {
        self.join_as(name, None, Class::B, Candidacy::default())
    }

    pub(crate) fn join_as(
        &mut self,
        name: &str,
        mutant: Option<Mutant>,
        class: Class,
        candidacy: Candidacy,
    ) -> usize {
        let timing = Timing::new(&TimingSettings::default()).unwrap();
        let config = Config::new(Name::new(name).unwrap(), timing, class).with_mutant(mutant);
        self.engines.push(Engine::new(config));
        let node = self.engines.len() - 1;
        self.feed(node, Input::Start);
        self.feed(node, Input::Campaign { role: role(), candidacy });
        node
    }

    /// A clone of a node's process. Gives its place.
    pub(crate) fn clone_of(&mut self, node: usize) -> usize {
        self.engines.push(self.engines[node].clone());
        let twin = self.engines.len() - 1;
        self.until.insert(twin, self.until[&node]);
        twin
    }

    /// The node that joined last dies, and its work with it.
    pub(crate) fn last_dies(&mut self) {
        self.engines.pop();
        self.works.remove(&self.engines.len());
    }

    pub(crate) fn begin(&mut self, node: usize) {
        self.feed(node, Input::Start);
        let candidacy = Candidacy::default();
        self.feed(node, Input::Campaign { role: role(), candidacy });
    }

    /// The key of the role that every node campaigns for, and what its register holds.
    pub(crate) fn role_register(&self) -> (Key, (Version, Record)) {
        let found = self.registers.iter().find(|(key, _)| key.kind() == Kind::Role && key.name() == "role");
        let (key, held) = found.expect("the role was claimed");
        (key.clone(), held.clone())
    }

    pub(crate) fn leaders(&self) -> Vec<usize> {
        let leads = |n: &usize| self.engines[*n].leads(&role(), Time::from_nanos(self.now)).is_some();
        (0..self.engines.len()).filter(leads).collect()
    }

    pub(crate) fn token(&self, node: usize) -> Token {
        self.engines[node].leads(&role(), Time::from_nanos(self.now)).expect("it leads")
    }

    /// Gives a node an input, and a fate to the message of that kind that it sends for it. Gives the instant.
    pub(crate) fn provoke(&mut self, node: usize, input: Input, kind: MessageKind, fate: MessageFate) -> u64 {
        self.rule = Some((node, kind, fate));
        self.feed(node, input);
        assert!(self.rule.is_none(), "it sent one");
        self.now
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
            let now = Now {
                time: Time::from_nanos(self.now),
                wall: Timestamp::from_micros((self.now / 1000).saturating_add_signed(-self.set_back)),
            };
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
                let (op, kind) = (*op, kind(&output));
                self.sent.push((self.now, node, kind));
                let fate = self.rule.take_if(|(n, a, _)| *n == node && *a == kind).map(|(_, _, fate)| fate);
                match fate {
                    _ if self.cut.contains(&node) => {}
                    _ if kind == MessageKind::Read && self.deaf.contains(&node) => {}
                    Some(MessageFate::Lose) => {}
                    Some(MessageFate::Refuse) => {
                        inputs.push((node, Input::Replied { op, reply: Reply::Failed(Fate::NotApplied) }));
                    }
                    Some(MessageFate::HoldRequest) => self.held.push(Held { node, op, what: Ok(output) }),
                    Some(MessageFate::HoldAnswer) => {
                        let reply = self.serve(node, output, inputs);
                        self.held.push(Held { node, op, what: Err(reply) });
                    }
                    None => {
                        let reply = self.serve(node, output, inputs);
                        inputs.push((node, Input::Replied { op, reply }));
                    }
                }
            }
            Output::AcquireLock { session, .. } => {
                inputs.push((
                    node,
                    Input::LockAcquired { session: *session, lock: self.liveness_lock.clone() },
                ));
            }
            Output::Valid { until } => _ = self.until.insert(node, until.as_nanos()),
            Output::Event(event) => self.happened(node, event.clone(), inputs),
            _ => {}
        }
    }

    fn happened(&mut self, node: usize, event: Event, inputs: &mut Vec<(usize, Input)>) {
        match &event {
            Event::Elected { role: name, token } if *name == role() => _ = self.works.insert(node, *token),
            Event::Draining { role: name, token, .. } | Event::Lost { role: name, token, .. }
                if *name != role()
                    || (!self.stubborn.contains(&node) && self.works.remove(&node).is_some()) =>
            {
                inputs.push((node, Input::WorkStopped { role: name.clone(), token: *token }));
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
                let fresh = self.registers.iter().filter(|(key, _)| !self.stale.contains_key(key));
                let found = fresh.chain(&self.stale).filter(|(key, _)| wanted(key));
                Reply::Read(found.map(|(key, (version, value))| entry(key, *version, value)).collect())
            }
            Output::Write { writes, .. } => {
                Reply::Written(writes.into_iter().map(|write| self.write(node, write, inputs)).collect())
            }
            _ => unreachable!("only reads and writes are served"),
        }
    }

    fn write(&mut self, node: usize, write: Write, inputs: &mut Vec<(usize, Input)>) -> Outcome {
        if matches!(&write.key, Key::Session(_, id) if write.requires_lock && self.severed.contains(id)) {
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
                    (0..self.engines.len()).filter(|other| *other != node && write.notify && self.hints);
                for other in others.filter(|other| !self.frozen.contains(other) && !self.cut.contains(other))
                {
                    inputs.push((other, Input::Hinted(Hint::Changed(write.key.clone()))));
                }
                self.registers.insert(write.key, (version, value));
            }
        }
        Outcome::Applied
    }

    /// Lets time pass, waking every engine that is not frozen.
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
            let next =
                awake.map(|n| (self.engines[n].next_wake().as_nanos(), n)).min().unwrap_or((u64::MAX, 0));
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
    pub(crate) fn next(&mut self, node: usize, kind: MessageKind, fate: MessageFate) -> u64 {
        self.rule = Some((node, kind, fate));
        self.wait_until(60.0, |script| script.rule.is_none());
        assert!(self.rule.is_none(), "no {kind:?} was sent");
        self.now
    }

    /// The next message of that kind fares so, whenever it comes.
    pub(crate) fn plan(&mut self, node: usize, kind: MessageKind, fate: MessageFate) {
        self.rule = Some((node, kind, fate));
    }

    /// What was held goes on: a request is applied, and its answer arrives; an answer arrives.
    pub(crate) fn release(&mut self) {
        let held = self.held.remove(0);
        let mut inputs = Vec::new();
        let reply = match held.what {
            Ok(output) => self.serve(held.node, output, &mut inputs),
            Err(reply) => reply,
        };
        inputs.into_iter().for_each(|(node, input)| self.feed(node, input));
        self.feed(held.node, Input::Replied { op: held.op, reply });
    }

    /// What the requests that are held would write.
    pub(crate) fn held_puts(&self) -> Vec<(Version, Record)> {
        let writes = self.held.iter().filter_map(|held| match &held.what {
            Ok(Output::Write { writes, .. }) => Some(writes),
            _ => None,
        });
        writes.flatten().filter_map(|write| write.put.clone()).collect()
    }

    pub(crate) fn session(&self, node: usize) -> SessionId {
        self.engines[node].session().expect("a session").0
    }

    pub(crate) fn times(&self, node: usize, what: MessageKind, since: u64) -> usize {
        self.sent.iter().filter(|(at, n, kind)| *at >= since && *n == node && *kind == what).count()
    }

    pub(crate) fn elections(&self) -> Vec<(usize, u64)> {
        let elected = |(_, n, event): &(u64, usize, Event)| match event {
            Event::Elected { role: name, token } if *name == role() => Some((*n, token.get())),
            _ => None,
        };
        self.events.iter().filter_map(elected).collect()
    }
}

pub(crate) fn entry(key: &Key, version: Version, value: &Record) -> Entry {
    Entry { key: key.clone(), version, value: value.clone() }
}

fn kind(output: &Output) -> MessageKind {
    let Output::Write { writes, .. } = output else { return MessageKind::Read };
    match writes.first().map(|write| (&write.put, write.expect)) {
        Some((Some((_, Record::Session(session))), expect)) => match session.state {
            SessionState::Live if expect.is_none() => MessageKind::Open,
            SessionState::Live => MessageKind::Beat,
            SessionState::Closed => MessageKind::Close,
            SessionState::Expelled => MessageKind::Expel,
        },
        Some((Some((_, Record::Role(role))), _)) if role.holder.is_some() => MessageKind::Claim,
        Some((Some((_, Record::Role(_))), _)) => MessageKind::Resign,
        _ => MessageKind::Other,
    }
}
