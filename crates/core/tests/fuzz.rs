//! Whatever the store holds and whatever comes, in whatever order: the engine never panics, never leads without a valid
//! session, and never gives the same tenure twice. `TENURE_LONG` runs more cases.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use tenure_core::engine::{Class, Config};
use tenure_core::io::Candidacy;
use tenure_core::record::{Cluster, EndReason, Holder, PROTOCOL, Role, Session, SessionState, StartReason};
use tenure_core::*;

/// One decision of the one who feeds the engine: which kind of input, and three numbers that bend it.
type Choice = (u8, u64, u64, u64);

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let number = || prop_oneof![0..8_u64, any::<u64>()];
    proptest::collection::vec((any::<u8>(), number(), number(), number()), 0..120)
}

fn config() -> ProptestConfig {
    let cases = if std::env::var_os("TENURE_LONG").is_some() { 20_000 } else { 400 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Feeds an engine with what the fuzzer chose, out of what the engine itself has said.
struct Feeder {
    engine: Engine,
    now: Now,
    nonce: u128,
    asked: Vec<(OpId, Asked)>,
    sessions: Vec<SessionId>,
    versions: Vec<Version>,
    epochs: Vec<Epoch>,
    elected: BTreeSet<(Name, Token)>,
}

enum Asked {
    Read(Query),
    Write(Vec<Write>),
}

const NAMES: [&str; 4] = ["a", "b", "scheduler", "shard-1"];

fn pick<T: Clone>(from: &[T], by: u64) -> Option<T> {
    let index = usize::try_from(by).unwrap_or(usize::MAX).checked_rem(from.len())?;
    Some(from[index].clone())
}

fn name(by: u64) -> Name {
    Name::new(pick(&NAMES, by).unwrap()).unwrap()
}

fn token(by: u64) -> Token {
    Token::new(
        [0, 1, 2, Token::MAX.get() - 1, Token::MAX.get(), Token::MAX.get() + 1, u64::MAX, by]
            [(by % 8) as usize],
    )
}

fn span(by: u64) -> Duration {
    Duration::from_millis(
        [0, 1, 1_000, 5_000, 86_400_000, u64::from(u32::MAX), by % 100_000, 7][(by % 8) as usize],
    )
}

impl Feeder {
    fn new(class: Class, takeover: Takeover) -> Self {
        let settings = timing::TimingSettings { takeover, ..timing::TimingSettings::default() };
        let timing = Timing::new(&settings).unwrap();
        let engine = Engine::new(Config::new(name(0), timing, class));
        let now = Now {
            time: Time::from_nanos(1_000_000_000),
            wall: Timestamp::from_micros(1_767_225_600_000_000),
        };
        let (asked, elected) = (Vec::new(), BTreeSet::new());
        let known = (vec![SessionId::new(7)], vec![Version::new(9)], vec![Epoch::new(3)]);
        Self {
            engine,
            now,
            nonce: 1 << 100,
            asked,
            sessions: known.0,
            versions: known.1,
            epochs: known.2,
            elected,
        }
    }

    fn key(&self, a: u64, b: u64) -> Key {
        let epoch = pick(&self.epochs, b).unwrap();
        match a % 6 {
            0 => Key::Cluster,
            1 => Key::Session(epoch, pick(&self.sessions, b).unwrap()),
            2 => Key::Named(epoch, Kind::Node, name(b)),
            3 => Key::Named(epoch, Kind::RoleControl, name(b)),
            4 => Key::Named(epoch, Kind::NodeControl, name(b)),
            _ => Key::Named(epoch, Kind::Role, name(b)),
        }
    }

    fn record(&self, key: &Key, a: u64, b: u64) -> Record {
        let session = pick(&self.sessions, a).unwrap();
        match key.kind() {
            _ if b.is_multiple_of(11) => Record::Foreign,
            Kind::Cluster => Record::Cluster(Cluster {
                epoch: pick(&self.epochs, a).unwrap(),
                max_ttl: span(b),
                falling: b.is_multiple_of(3).then(|| span(a)),
                protocol: if b.is_multiple_of(5) { 9 } else { PROTOCOL },
                floor: token(a),
                renewed: a.is_multiple_of(4),
            }),
            Kind::Session => Record::Session(Session {
                node: name(a),
                beat: a,
                freed: b,
                freed_lately: vec![name(a), name(b)],
                node_writes: a,
                holds_back: a % 2 == 1,
                ttl: span(a),
                every: span(b) / 4,
                takeover: if b.is_multiple_of(2) { Takeover::Strict } else { Takeover::OnDisconnect },
                grace: span(b),
                liveness_lock: None,
                state: [SessionState::Live, SessionState::Closed, SessionState::Expelled][(b % 3) as usize],
                beat_at: Timestamp::from_micros(a),
            }),
            Kind::Role => Record::Role(Role {
                token: token(a),
                holder: (!b.is_multiple_of(3)).then(|| Holder { session, node: name(b) }),
                since: Timestamp::from_micros(b),
                reason: StartReason::First.into(),
                previous: Some(name(a)),
                successor: b.is_multiple_of(2).then(|| name(a)),
            }),
            _ => Record::Foreign,
        }
    }

    fn entry(&self, key: Key, a: u64, b: u64) -> Entry {
        Entry { version: pick(&self.versions, b).unwrap(), value: self.record(&key, a, b), key }
    }

    fn reply(&mut self, a: u64, b: u64, c: u64) -> Input {
        let index = usize::try_from(a).unwrap_or(0) % self.asked.len().max(1);
        if self.asked.is_empty() {
            return Input::Replied { op: OpId::new(a), reply: Reply::Failed(Fate::Unknown) };
        }
        // One in four is answered once more later.
        let op = self.asked[index].0;
        let reply = match &self.asked[index].1 {
            _ if c.is_multiple_of(7) => {
                Reply::Failed([Fate::NotApplied, Fate::Unknown, Fate::Severed][(b % 3) as usize])
            }
            Asked::Read(query) => Reply::Read(
                query
                    .keys
                    .iter()
                    .filter(|_| !c.is_multiple_of(3))
                    .map(|key| self.entry(key.clone(), b, c))
                    .collect(),
            ),
            Asked::Write(writes) => {
                Reply::Written(writes.iter().map(|write| self.outcome(write, b, c)).collect())
            }
        };
        if !c.is_multiple_of(4) {
            self.asked.remove(index);
        }
        Input::Replied { op, reply }
    }

    fn outcome(&self, write: &Write, b: u64, c: u64) -> Outcome {
        match c % 5 {
            0 => Outcome::Conflict(None),
            1 => Outcome::Conflict(Some(self.entry(write.key.clone(), b, c))),
            2 => Outcome::Failed([Fate::NotApplied, Fate::Unknown, Fate::Severed][(b % 3) as usize]),
            _ => Outcome::Applied,
        }
    }

    fn input(&mut self, (kind, a, b, c): Choice) -> Input {
        let (role, session) = (name(a), pick(&self.sessions, b).unwrap());
        match kind % 24 {
            0 => Input::Start,
            1 => Input::Stop,
            2 | 3 => {
                let candidacy = Candidacy {
                    eligible: !b.is_multiple_of(5),
                    priority: c as i32,
                    preempt: c.is_multiple_of(2),
                    takeover_delay: span(b),
                    ..Candidacy::default()
                };
                Input::Campaign { role, candidacy }
            }
            4 => Input::Observe { role },
            5 => Input::Withdraw { role },
            6 => Input::Resign { role, token: token(b), reason: EndReason::Resigned },
            7 => Input::WorkStopped { role, token: token(b) },
            8 => Input::LockAcquired { session, lock: None },
            9 => Input::ClockFault,
            10 => Input::Hinted(Hint::Resync),
            11 => Input::Hinted(Hint::Forgot),
            12 => {
                let key = self.key(a, b);
                Input::Hinted(Hint::Changed(key))
            }
            13 => Input::Evidence(Evidence::Dead { session, lock: "w".into() }),
            14 => Input::Evidence(Evidence::Disconnected { session, lock: "w".into() }),
            15 | 16 => Input::Wake,
            _ => self.reply(a, b, c),
        }
    }

    /// Feeds one choice, and looks at what comes of it.
    fn feed(&mut self, choice: Choice) {
        let pass = span(choice.2).min(Duration::from_secs(100_000));
        if choice.0.is_multiple_of(3) {
            self.now.time = self.now.time.after(pass);
            self.now.wall = Timestamp::from_micros(self.now.wall.as_micros().wrapping_add(choice.3));
        }
        let input = self.input(choice);
        let nonce = &mut self.nonce;
        let outputs = self.engine.step(self.now, input, &mut || {
            *nonce += 1;
            *nonce
        });
        for output in outputs {
            self.hear(output);
        }
        let valid = self.engine.session().is_some_and(|(_, until)| self.now.time < until);
        for role in NAMES.map(|role| Name::new(role).unwrap()) {
            assert!(
                valid || self.engine.leads(&role, self.now.time).is_none(),
                "it leads {role} without a session"
            );
        }
    }

    fn hear(&mut self, output: Output) {
        match output {
            Output::Read { op, query, .. } => self.asked.push((op, Asked::Read(query))),
            Output::Write { op, writes } => {
                for write in &writes {
                    self.versions.extend(write.put.as_ref().map(|(version, _)| *version));
                    match &write.key {
                        Key::Session(epoch, session) => {
                            self.sessions.push(*session);
                            self.epochs.push(*epoch);
                        }
                        Key::Named(epoch, ..) => self.epochs.push(*epoch),
                        Key::Cluster => {}
                    }
                }
                self.asked.push((op, Asked::Write(writes)));
            }
            Output::Event(Event::Elected { role, token }) => {
                assert!(token <= Token::MAX, "{token} is beyond what stores carry");
                assert!(self.elected.insert((role.clone(), token)), "{role} was led under {token} before");
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_engine_takes_whatever_comes(choices in choices(), class in 0..3_u8, disconnect in any::<bool>()) {
        let class = [Class::A, Class::B, Class::C][usize::from(class)];
        let takeover = if disconnect { Takeover::OnDisconnect } else { Takeover::Strict };
        let mut feeder = Feeder::new(class, takeover);
        feeder.feed((0, 0, 0, 0));
        for choice in choices {
            feeder.feed(choice);
        }
    }

    #[test]
    fn records_are_read_or_refused(json in "[\\[{\"a-z0-9:,}\\]. -]{0,80}", number in any::<u64>()) {
        let _ = serde_json::from_str::<Role>(&json);
        let _ = serde_json::from_str::<Session>(&json);
        let _ = serde_json::from_str::<Cluster>(&json);
        let record = format!(r#"{{"token":{number},"since":1,"reason":"first","more":{{}}}}"#);
        let role = serde_json::from_str::<Role>(&record);
        prop_assert_eq!(role.is_ok(), number <= Token::MAX.get());
        let Ok(role) = role else { return Ok(()) };
        prop_assert_eq!(role.token, Token::new(number));
        let again: Role = serde_json::from_str(&serde_json::to_string(&role).unwrap()).unwrap();
        prop_assert_eq!(again, role);
    }

    #[test]
    fn names_are_names_or_refused(text in any::<String>()) {
        if let Ok(name) = Name::new(&text) {
            prop_assert_eq!(name.as_str(), text.as_str());
        }
    }
}

/// What is known to reach far, or did harm once.
#[test]
fn an_engine_takes_the_corpus() {
    let number = |word: &str| word.parse::<u64>().unwrap();
    for line in include_str!("corpus/engine.txt").lines().filter(|line| !line.starts_with('#')) {
        for (class, takeover) in [(Class::A, Takeover::Strict), (Class::C, Takeover::OnDisconnect)] {
            let mut feeder = Feeder::new(class, takeover);
            feeder.feed((0, 0, 0, 0));
            for choice in line.split(' ') {
                let [kind, a, b, c] = choice.split(',').map(number).collect::<Vec<_>>()[..] else {
                    panic!("{choice} is no choice")
                };
                feeder.feed((u8::try_from(kind).unwrap(), a, b, c));
            }
        }
    }
}

/// Found by torture: another program wrote the last of all tokens, and the loop panicked for ever.
#[test]
fn the_last_of_all_tokens_is_left_alone() {
    for last in [Token::MAX, Token::new(u64::MAX)] {
        let mut feeder = Feeder::new(Class::B, Takeover::Strict);
        feeder.feed((0, 0, 0, 0));
        let record = Role {
            token: last,
            holder: None,
            since: Timestamp::from_micros(0),
            reason: EndReason::Resigned.into(),
            previous: None,
            successor: None,
        };
        let step = |feeder: &mut Feeder, input| {
            let nonce = &mut feeder.nonce;
            feeder.engine.step(feeder.now, input, &mut || {
                *nonce += 1;
                *nonce
            })
        };
        let mut outputs =
            step(&mut feeder, Input::Campaign { role: name(2), candidacy: Candidacy::default() });
        let mut told = false;
        for _ in 0..200 {
            let mut inputs = Vec::new();
            for output in outputs.drain(..) {
                match output {
                    Output::Read { op, query, .. } => {
                        let roles = query.keys.iter().filter(|key| key.kind() == Kind::Role);
                        let value = Record::Role(record.clone());
                        let entry = |key: &Key| Entry {
                            key: key.clone(),
                            version: Version::new(5),
                            value: value.clone(),
                        };
                        inputs.push(Input::Replied { op, reply: Reply::Read(roles.map(entry).collect()) });
                    }
                    Output::Write { op, writes } => {
                        assert!(
                            writes.iter().all(|write| write.key.kind() != Kind::Role),
                            "no node may claim it"
                        );
                        let applied = writes.iter().map(|_| Outcome::Applied).collect();
                        inputs.push(Input::Replied { op, reply: Reply::Written(applied) });
                    }
                    Output::AcquireLock { session, .. } => {
                        inputs.push(Input::LockAcquired { session, lock: None })
                    }
                    Output::Event(Event::Unreadable { .. }) => told = true,
                    _ => {}
                }
            }
            feeder.now.time = feeder.now.time.after(Duration::from_millis(100));
            inputs.push(Input::Wake);
            outputs = inputs.into_iter().flat_map(|input| step(&mut feeder, input)).collect();
        }
        assert!(told, "people are told");
    }
}
