//! Hostile registers: whatever another login writes into the store while elections go on, no election loop fails, healthy
//! roles are led and handed over, and never by two at once. The values come from a seed; `TENURE_LONG` runs more of them.

#[path = "poison_protocol.rs"]
mod protocol;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value as Json, json};
use tenure::event::EventKind;
use tenure::store::{Entry, Epoch, Key, Kind, Query, SharedStore, Value, Version, Write};
use tenure::testing::Memory;
use tenure::{Candidate, Name, Node, Operator, SessionId, Token};

const TTL: Duration = Duration::from_secs(2);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);
const ROLES: [&str; 2] = ["alpha", "beta"];

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn space() -> Name {
    name("default")
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % end as u64).unwrap()
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Writes what no login should.
struct Vandal {
    store: SharedStore,
    epoch: Epoch,
    dice: Dice,
}

impl Vandal {
    async fn new(store: SharedStore, seed: u64) -> Self {
        let epoch = soon(epoch(&store)).await;
        Self { store, epoch, dice: Dice(seed) }
    }

    async fn strike(&mut self) {
        let key = self.key();
        let value = self.value(key.kind());
        put(&self.store, key, &value, self.dice.roll().is_multiple_of(4).then_some(Token::new(1))).await;
    }

    /// Registers of strangers, and those of healthy roles that no election needs.
    fn key(&mut self) -> Key {
        let kinds =
            [Kind::Session, Kind::Session, Kind::Node, Kind::Role, Kind::RoleControl, Kind::NodeControl];
        let kinds = [&kinds[..], &[Kind::Task, Kind::History, Kind::Audit, Kind::Alert]].concat();
        let stranger = format!("stranger-{}", self.dice.below(6));
        match self.dice.pick(&kinds) {
            Kind::Session => Key::Session(self.epoch, SessionId::new(self.dice.below(6) as u128 + 1)),
            Kind::Audit => Key::Named(self.epoch, Kind::Audit, name("operators")),
            kind @ (Kind::History | Kind::Task | Kind::Alert) => {
                let chosen = self.dice.pick(&[stranger.as_str(), ROLES[0]]);
                Key::Named(self.epoch, kind, name(chosen))
            }
            kind => Key::Named(self.epoch, kind, name(&stranger)),
        }
    }

    /// What such a register could hold, with some of it bent.
    fn value(&mut self, kind: Kind) -> String {
        let mut value = specimen(kind, &mut self.dice);
        for _ in 0..=self.dice.below(3) {
            bend(&mut value, &mut self.dice);
        }
        value.to_string()
    }
}

async fn epoch(store: &SharedStore) -> Epoch {
    loop {
        let query = Query { keys: vec![Key::Cluster], kinds: Vec::new() };
        let found = store.read(&space(), &query).await.unwrap();
        if let Some(entry) = found.first() {
            return Epoch::new(entry.value.parse::<Json>().unwrap()["epoch"].as_u64().unwrap());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn read(store: &SharedStore, key: &Key) -> Option<Entry> {
    let query = Query { keys: vec![key.clone()], kinds: Vec::new() };
    store.read(&space(), &query).await.unwrap().pop()
}

/// Replaces a register, whatever it holds. A store may refuse it (a token that falls); then so be it.
async fn put(store: &SharedStore, key: Key, json: &str, token: Option<Token>) {
    let expect = read(store, &key).await.map(|entry| entry.version);
    let value = Value { token, json: json.into() };
    let version = Version::new(u128::from(rand()) << 64 | u128::from(rand()));
    let write = Write { key, expect, put: Some((version, value)), notify: true, requires_lock: false };
    let _ = store.write(&space(), &[write]).await.unwrap();
}

/// Versions must never repeat: not from the seed.
fn rand() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

fn specimen(kind: Kind, dice: &mut Dice) -> Json {
    let wall = 1_790_000_000_000_000_u64;
    let session = format!("{:032x}", dice.below(6) + 1);
    let order = json!({ "by": "me", "why": "so", "at": wall });
    let role = dice.pick(&ROLES);
    match kind {
        Kind::Session => {
            json!({ "node": "stranger-1", "beat": 7, "freed": 1, "freed_lately": [role], "node_writes": 3, "ttl": 5000,
            "takeover": "strict", "grace": 2500, "liveness_lock": { "id": "x", "covers_work": true }, "state": "live", "beat_at": wall })
        }
        Kind::Node => json!({ "session": session, "labels": { "a": "b" }, "address": "here", "since": wall,
            "candidacies": { "alpha": 100, "beta": 100 } }),
        Kind::Role => {
            json!({ "token": 5, "holder": { "session": session, "node": "stranger-1" }, "since": wall, "reason": "first" })
        }
        Kind::RoleControl => json!({ "pause": order, "pin": { "node": "stranger-1", "by": "me", "at": wall },
            "request": { "id": session, "token": 5, "to": "stranger-1", "patience": 5000, "by": "me", "at": wall, "answer": "open" } }),
        Kind::NodeControl => json!({ "drain": order }),
        Kind::Task => {
            json!({ "form": 1, "token": 1, "task": "alpha", "when": "every 1s", "zone": "UTC", "tick": wall, "owed": [wall],
            "totals": { "runs": 1, "took_ms": 5 }, "runs": [{ "tick": wall, "state": "running", "token": 1, "node": "a", "attempts": 1 }] })
        }
        Kind::History => {
            json!({ "tenures": [{ "token": 1, "node": "a", "session": session, "began": wall, "ended": wall, "reason": "resigned" }] })
        }
        Kind::Audit => json!([{ "at": wall, "by": "me", "act": "pause", "subject": role, "why": "so" }]),
        Kind::Alert => {
            json!({ "episode": { "id": wall, "instances": [], "total": 1, "news": 1, "covered": [] }, "told": {
            "hook": { "episode": wall, "news": 1, "firing": true, "at": wall, "attempts": 1 } } })
        }
        Kind::Cluster => json!({ "epoch": 7, "max_ttl": 5000, "protocol": 1 }),
    }
}

/// Replaces one part of it by something that no node would write.
fn bend(value: &mut Json, dice: &mut Dice) {
    let deeper = dice.below(4) > 0;
    match value {
        Json::Object(map) if deeper && !map.is_empty() => {
            let key = dice.pick(&map.keys().cloned().collect::<Vec<_>>());
            if dice.below(8) == 0 {
                map.remove(&key);
            } else {
                bend(map.get_mut(&key).unwrap(), dice);
            }
        }
        Json::Array(list) if deeper && !list.is_empty() => {
            let nth = dice.below(list.len());
            bend(&mut list[nth], dice);
        }
        value => *value = hostile(dice),
    }
}

fn hostile(dice: &mut Dice) -> Json {
    let numbers = [0, 1, (1 << 53) - 2, (1 << 53) - 1, 1 << 53, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX];
    match dice.below(9) {
        0..5 => json!(dice.pick(&numbers)),
        5 => dice.pick(&[json!(-1), json!(i64::MIN), json!(1.5), json!(1e308), json!(-0.0)]),
        6 => json!(dice.pick(&[
            "",
            "live",
            "expelled",
            "\u{1b}[2J\u{9b}31m",
            "../../etc/passwd",
            "ffffffffffffffffffffffffffffffff"
        ])),
        7 => json!("x".repeat(dice.pick(&[101, 5_000, 200_000]))),
        _ => dice.pick(&[Json::Null, json!([]), json!({}), json!(vec![0; 5_000]), json!([[[[[[[[]]]]]]]])]),
    }
}

/// A node that stands for every healthy role and gives up what it is asked to.
struct Member {
    node: Node,
    candidates: Vec<Arc<Candidate>>,
    failed: Arc<AtomicBool>,
}

impl Member {
    async fn start(store: SharedStore, called: &str) -> Self {
        let failed = Arc::new(AtomicBool::new(false));
        let flag = failed.clone();
        let node = Node::builder_with_store(store).name(called).ttl(TTL).listen(move |event| {
            if let EventKind::LoopFailed { error } = &event.kind {
                eprintln!("a loop failed: {error}");
                flag.store(true, Ordering::SeqCst);
            }
        });
        let node = soon(node.start()).await.unwrap();
        let mut candidates = Vec::new();
        for role in ROLES {
            let candidate = Arc::new(node.candidate(role).await.unwrap());
            tokio::spawn(serve(candidate.clone()));
            candidates.push(candidate);
        }
        Self { node, candidates, failed }
    }

    fn leads(&self, nth: usize) -> bool {
        self.candidates[nth].lead().is_some_and(|lead| lead.check())
    }
}

async fn serve(candidate: Arc<Candidate>) {
    while let Some(tenure) = candidate.elected().await {
        tenure.hold(|lead| async move { lead.draining().await }).await;
    }
}

/// Looks again and again whether two lead; ends when it is told to.
async fn guard(members: Arc<Vec<Member>>, done: Arc<AtomicBool>) {
    while !done.load(Ordering::SeqCst) {
        for (nth, role) in ROLES.iter().enumerate() {
            let leaders = members.iter().filter(|member| member.leads(nth)).count();
            assert!(leaders <= 1, "{leaders} lead {}", role);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Hostile values come while two healthy roles are led and handed over.
async fn attack(open: impl Fn() -> SharedStore, seed: u64, strikes: usize) {
    let mut members = Vec::new();
    for called in ["a", "b", "c"] {
        members.push(Member::start(open(), called).await);
    }
    let (members, done) = (Arc::new(members), Arc::new(AtomicBool::new(false)));
    let watching = tokio::spawn(guard(members.clone(), done.clone()));
    let operator = Operator::new(open(), space(), "tester");
    let mut vandal = Vandal::new(open(), seed).await;
    for nth in 0..strikes {
        vandal.strike().await;
        if nth % 25 == 24 {
            let role = vandal.dice.pick(&ROLES);
            hand_over(&operator, &name(role), seed).await;
        }
    }
    let snapshot = soon(operator.snapshot()).await.unwrap();
    for role in ROLES {
        assert!(
            snapshot.role(&name(role)).is_some_and(|report| report.leader.is_some()),
            "seed {seed}: {role}"
        );
    }
    let _ = soon(operator.history(None)).await.unwrap();
    done.store(true, Ordering::SeqCst);
    watching.await.unwrap();
    for member in members.iter() {
        assert!(
            !member.failed.load(Ordering::SeqCst),
            "seed {seed}: the loop of {} failed",
            member.node.name()
        );
        soon(member.node.stop()).await;
    }
}

async fn hand_over(operator: &Operator, role: &Name, seed: u64) {
    let until = tokio::time::Instant::now() + PATIENCE;
    // There may be no leader just then.
    while let Err(error) = operator.step_down(role, "a test", PATIENCE).await {
        assert!(tokio::time::Instant::now() < until, "seed {seed}: {role} is not handed over: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn seeds() -> std::ops::Range<u64> {
    if std::env::var_os("TENURE_LONG").is_some() { 0..100 } else { 0..3 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_registers_in_memory_harm_no_healthy_role() {
    for seed in seeds() {
        let store = Memory::new();
        attack(|| Arc::new(store.clone()), seed, 300).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_registers_in_a_file_harm_no_healthy_role() {
    for seed in seeds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tenure.db");
        attack(|| Arc::new(tenure::store::Sqlite::open(&path).unwrap()), seed, 150).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_registers_in_redis_harm_no_healthy_role() {
    let server = tenure_torture::servers::redis::start(tenure_torture::servers::redis::DURABLE);
    let url = format!("redis://{}/0", server.address());
    for seed in seeds() {
        tenure_torture::servers::redis::command(server.address(), &["FLUSHALL"]);
        attack(|| tenure::store::open(&url).unwrap(), seed, 150).await;
    }
}

/// The find: one session with the longest possible ttl made every loop panic once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_lasts_for_ever_is_told_of_once_and_does_no_harm() {
    let store: SharedStore = Arc::new(Memory::new());
    let member = Member::start(store.clone(), "a").await;
    let told = member.node.events().filter_map(|event| async move {
        match &event.kind {
            EventKind::Unreadable { register } => Some(register.clone()),
            EventKind::LoopFailed { error } => panic!("{error}"),
            _ => None,
        }
    });
    let mut told = std::pin::pin!(told);
    let mut vandal = Vandal::new(store.clone(), 0).await;
    let key = Key::Session(vandal.epoch, SessionId::new(7));
    let mut session = specimen(Kind::Session, &mut vandal.dice);
    session["ttl"] = json!(u64::MAX);
    put(&store, key.clone(), &session.to_string(), None).await;
    assert_eq!(soon(told.next()).await, Some(key.to_string()));
    let again = tokio::time::timeout(3 * TTL, told.next()).await;
    assert!(again.is_err(), "told again: {again:?}");
    assert!(member.leads(0) && member.leads(1));
}
