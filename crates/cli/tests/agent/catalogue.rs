//! Every event that an agent can tell, by a real cause and with all its fields.
//!
//! A scene promises events. Its test plays it with real agents and reads their streams: an event counts if an agent told
//! it, with exactly the promised fields. An event that no scene promises fails here.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::store::{
    Epoch, Key, Layer, Memory, Name, Outcome, Query, Store as Registers, StoreError, Version, Write,
};
use tenure_agent::events::{EVENTS, Events, Next};
use tenure_torture::servers::{free_port, postgres, redis};

use crate::duty::{calm, shell};
use crate::hook::Hook;
use crate::kit::{Agent, CAMPAIGN, PATIENCE, Store, eventually};

/// An event and its fields. A field has this value, or any (`*`), or any but null (`+`); there are no others.
type Promise = (&'static str, &'static str);

/// Plays scenes, one test each, and lists what they promise.
macro_rules! scenes {
    ($($name:ident: [$($promise:expr),* $(,)?];)*) => {
        $(mod $name {
            #[test]
            fn tells() {
                super::play(super::$name, &[$($promise),*]);
            }
        })*
        const PROMISED: &[Promise] = &[$($($promise),*),*];
    };
}

scenes! {
    an_election: [
        ("session-opened", "session=+"),
        ("state-changed", "role=job from=* to=leader"),
        ("elected", "role=job token=1 session=+"),
        ("node-joined", "node=a session=+"),
        ("leader-changed", "role=job leader=a former=null token=1 reason=first"),
        ("election-check", "role=job leader=a"),
        ("missed", ""),
    ];
    an_operators_word: [
        ("paused", "role=job by=+ why=rest"),
        ("paused", "role=job paused=true"),
        ("draining", "role=job token=1 reason=paused forced=false"),
        ("lost", "role=job token=1 reason=paused"),
        ("work-stopped", "role=job token=1 cancelled=[]"),
        ("vacant", "role=job former=a token=1 reason=paused"),
        ("resumed", "role=job"),
        ("alert-firing", "alert=leads severity=critical summary=+"),
        ("alert-notified", "alert=leads target=hook status=firing"),
        ("alert-resolved", "alert=leads severity=critical"),
        ("alert-notify-failed", "alert=leads target=hook error=+"),
        ("node-left", "node=a session=+"),
    ];
    a_death: [
        ("leader-down", "role=job former=a"),
        ("leader-changed", "role=job former=* leader=b token=+"),
        ("node-expelled", "node=a session=+"),
        ("leader-lost", "role=alone former=a token=+ reason=expelled"),
    ];
    a_freeze: [
        ("session-over", "session=+ reason=+"),
        ("lost", "role=job token=+ reason=+"),
    ];
    a_beat_that_is_held_up: [
        ("leader-silent", "role=job leader=a token=1"),
        ("leader-back", "role=job leader=a token=1"),
    ];
    a_claim_without_an_answer: [("election-failed", "role=job cause=store")];
    a_store_that_fails_for_a_while: [
        ("store-failed", "error=+"),
        ("in-doubt", "roles=1"),
        ("certain", "roles=1"),
    ];
    a_store_that_forgets: [
        ("store-forgot", "role=null token=null now=null"),
        ("quarantined", "millis=+"),
    ];
    a_store_with_a_replica: [("store-weakened", "why=+")];
    a_guard_lock_out_of_reach: [("waiting-for-guard", "role=job token=1 lock=+ why=+")];
    a_pooler: [("no-liveness-lock", "session=+")];
    strange_registers: [("unreadable", "register=+"), ("newer-protocol", "protocol=+")];
    a_name_that_is_taken: [("name-taken", "by=+")];
    work_that_ignores_its_lease: [("stuck", "role=job token=1")];
    a_loop_that_panics: [("loop-failed", "error=trap")];
    work_that_fails: [
        ("work-restarted", "role=job token=1 worker=w why=+"),
        ("work-failed", "role=job token=1 worker=w why=+"),
    ];
    tasks: [
        ("task-started", "task=often tick=+ token=1 late_ms=+"),
        ("task-ended", "task=often tick=+ token=1 state=succeeded took_ms=+ why="),
        ("task-passed", "task=often from=+ to=+ count=+ state=skipped why=+"),
    ];
}

/// A new event needs a scene that promises it, and a scene that does not keep its promise fails.
#[test]
fn every_event_has_a_scene_that_causes_it() {
    let promised: BTreeSet<&str> = PROMISED.iter().map(|(kind, _)| *kind).collect();
    let listed: BTreeSet<&str> = EVENTS.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(promised, listed, "every event is promised by a scene, and every promised one is an event");
}

/// Agents whose events are read from their beginning.
#[derive(Default)]
struct Stage {
    told: Arc<Mutex<Vec<Value>>>,
}

fn play(scene: fn(&Stage), promised: &[Promise]) {
    let stage = Stage::default();
    scene(&stage);
    // What a scene let happen at its end may still be on its way.
    promised.iter().for_each(|(kind, fields)| stage.until(kind, fields));
}

impl Stage {
    /// Reads what an agent tells from now on, and what it told before.
    fn on(&self, agent: Agent) -> Agent {
        self.read(&agent, "");
        agent
    }

    fn read(&self, agent: &Agent, header: &str) {
        let mut stream = UnixStream::connect(&agent.socket).unwrap();
        let wanted =
            format!("GET /v1/events?recent=1000 HTTP/1.0\r\nHost: localhost\r\n{CAMPAIGN}{header}\r\n");
        stream.write_all(wanted.as_bytes()).unwrap();
        let told = self.told.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if let Some(event) =
                    line.strip_prefix("data:").and_then(|data| serde_json::from_str(data.trim()).ok())
                {
                    told.lock().unwrap().push(event);
                }
            }
        });
    }

    /// Waits for an event with exactly these fields.
    fn until(&self, kind: &str, fields: &str) {
        let began = Instant::now();
        let is_it = |event: &Value| event["event"] == kind && has_fields(event, fields);
        while !self.told.lock().unwrap().iter().any(is_it) {
            let told = self.told.lock().unwrap().iter().map(Value::to_string).collect::<Vec<_>>();
            assert!(began.elapsed() < PATIENCE, "no {kind} with {fields} in\n{}", told.join("\n"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether an event has these fields, and no others but those of every event.
fn has_fields(event: &Value, fields: &str) -> bool {
    let of_all: &[&str] = match event["scope"].as_str() {
        Some("node") => &["event", "at", "scope", "id", "node", "sequence", "lease_nanos"],
        _ => &["event", "at", "scope", "id"],
    };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let wanted: Vec<(&str, &str)> = fields
        .split(' ')
        .filter(|field| !field.is_empty())
        .map(|field| field.split_once('=').unwrap())
        .collect();
    let names: BTreeSet<&str> =
        event.as_object().unwrap().keys().map(String::as_str).filter(|key| !of_all.contains(key)).collect();
    names == wanted.iter().map(|(name, _)| *name).collect()
        && wanted.iter().all(|(name, value)| match *value {
            "*" => true,
            "+" => !event[*name].is_null(),
            value => plain(&event[*name]) == value,
        })
}

const JOB: &str = "[[role]]\nname = \"job\"\n";

/// An agent that only looks, and has begun to.
fn onlooker(stage: &Stage, store: &Store) -> Agent {
    let agent = stage.on(calm(store, "onlooker", ""));
    eventually("it sees the store", || agent.get("/readyz").status == 200);
    agent
}

fn until_led(by: &Agent, role: &str, seen_by: &Agent) {
    eventually("it leads", || by.leads(role));
    eventually("that is seen", || {
        seen_by.get(&format!("/v1/roles/{role}")).status == 200 && seen_by.role(role)["state"] == "led"
    });
}

fn an_election(stage: &Stage) {
    let store = Store::file();
    let onlooker = onlooker(stage, &store);
    stage.read(&onlooker, "Last-Event-ID: another-5\r\n");
    let checks = ["--set", "timing.ttl=20s", "--set", "node.election-checks=true"];
    let a = stage.on(Agent::launch(&store, "a", JOB, |command| _ = command.args(checks)));
    until_led(&a, "job", &onlooker);
    stage.until("election-check", "role=job leader=a");
    stage.until("leader-changed", "role=job leader=a former=null token=1 reason=first");
}

fn an_operators_word(stage: &Stage) {
    let (store, hook) = (Store::file(), Hook::start());
    let onlooker = onlooker(stage, &store);
    let rule = crate::alerts::rule("leads", "tenure_leading > 0", "summary = \"it leads\"");
    let work = format!("[[work]]\nname = \"w\"\nrole = \"job\"\n{}", shell("exec sleep 600"));
    let more = format!("{JOB}{work}{}", crate::alerts::alerting(&hook, &rule));
    let a = stage.on(calm(&store, "a", &more));
    until_led(&a, "job", &onlooker);
    eventually("a target is told", || hook.heard("leads", "firing") == 1);
    hook.answer(503);
    assert_eq!(onlooker.post("/v1/roles/job/pause", &json!({ "why": "rest" })).status, 200);
    stage.until("alert-notify-failed", "alert=leads target=hook error=+");
    stage.until("vacant", "role=job former=a token=1 reason=paused");
    assert_eq!(onlooker.post("/v1/roles/job/resume", &json!({})).status, 200);
    until_led(&a, "job", &onlooker);
    a.process.signal(Signal::TERM);
    stage.until("node-left", "node=a session=+");
}

fn a_death(stage: &Stage) {
    let store = Store::redis();
    let mut a = stage.on(Agent::start(&store, "a", &format!("{JOB}[[role]]\nname = \"alone\"\n")));
    until_led(&a, "job", &a);
    let b = stage.on(Agent::start(&store, "b", JOB));
    until_led(&a, "alone", &b);
    eventually("it stands by", || b.role("job")["candidates"] == json!(["b"]));
    a.process.kill();
    eventually("the other leads", || b.leads("job"));
    stage.until("leader-lost", "role=alone former=a token=+ reason=expelled");
    stage.until("leader-changed", "role=job former=* leader=b token=+");
}

fn a_freeze(stage: &Stage) {
    let store = Store::redis();
    let a = stage.on(Agent::start(&store, "a", JOB));
    until_led(&a, "job", &a);
    let b = stage.on(Agent::start(&store, "b", JOB));
    a.process.signal(Signal::STOP);
    eventually("the other leads", || b.leads("job"));
    a.process.signal(Signal::CONT);
    stage.until("session-over", "session=+ reason=+");
}

/// Registers on a slow way: one beat waits until it is let go, and what is sent after it never arrives.
#[derive(Debug)]
struct SlowWay {
    inner: Memory,
    slow: Arc<AtomicBool>,
    beat: Arc<tokio::sync::Notify>,
    sent: AtomicBool,
}

impl std::fmt::Display for SlowWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for SlowWay {
    fn inner(&self) -> &dyn Registers {
        &self.inner
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        if !self.slow.load(Ordering::SeqCst) {
            return self.inner.write(namespace, writes).await;
        }
        if is_beat(writes) && !self.sent.swap(true, Ordering::SeqCst) {
            let (inner, namespace, writes) = (self.inner.clone(), namespace.clone(), writes.to_vec());
            let arrives = self.beat.clone();
            // On its way, whether its sender waits for it or not.
            tokio::spawn(async move {
                arrives.notified().await;
                inner.write(&namespace, &writes).await
            });
        }
        std::future::pending().await
    }
}

/// The loop writes the session; others write the history.
fn is_beat(writes: &[Write]) -> bool {
    writes.iter().any(|write| matches!(write.key, Key::Session(..)))
}

/// A beat waits on the way until its leader looks silent, and arrives before it is a lease old.
fn a_beat_that_is_held_up(stage: &Stage) {
    let (slow, beat, inner): (Arc<AtomicBool>, Arc<tokio::sync::Notify>, Memory) = Default::default();
    let store =
        SlowWay { inner: inner.clone(), slow: slow.clone(), beat: beat.clone(), sent: AtomicBool::default() };
    let (events, told) = (Arc::new(Events::new(100)), stage.told.clone());
    tokio::runtime::Runtime::new().unwrap().block_on(async move {
        let node = tenure::Node::builder_with_store(Arc::new(store)).name("a").ttl(Duration::from_secs(20));
        let node = node.start().await.unwrap();
        let candidate = node.candidate("job").await.unwrap();
        let _tenure = candidate.elected().await.unwrap();
        let operator = tenure::Operator::new(Arc::new(inner), node.namespace().clone(), "a test");
        let mut watch = operator.watch().await.unwrap();
        slow.store(true, Ordering::SeqCst);
        let is_told = |kind: &str| told.lock().unwrap().iter().any(|event: &Value| event["event"] == kind);
        while !is_told("leader-back") {
            for change in watch.next().await.unwrap() {
                events.publish_change(&change);
                told.lock().unwrap().push(told_of(&events));
            }
            if is_told("leader-silent") {
                beat.notify_one();
            }
        }
    });
}

/// The last event that was published.
fn told_of(events: &Arc<Events>) -> Value {
    let next = events.read(None, 1).next().now_or_never();
    match next {
        Some(Some(Next::Event(event))) => serde_json::from_str(&event.data).unwrap(),
        next => panic!("no event, but {next:?}"),
    }
}

fn a_claim_without_an_answer(stage: &Stage) {
    let store = Store::redis();
    let a = stage.on(calm(&store, "a", JOB));
    until_led(&a, "job", &a);
    let (link, proxy) = store.link().unwrap();
    let b = stage.on(calm(&link, "b", JOB));
    eventually("it stands by", || a.role("job")["candidates"] == json!(["b"]));
    // Who claims a role on a hint, and hears nothing, has learned nothing: so the role is seen to be free before.
    assert_eq!(a.post("/v1/roles/job/pause", &json!({ "why": "rest" })).status, 200);
    eventually("it is paused", || b.role("job")["state"] == "paused");
    proxy.hold_answer_to(b"\"token\":2");
    assert_eq!(a.post("/v1/roles/job/resume", &json!({})).status, 200);
    stage.until("election-failed", "role=job cause=store");
    proxy.heal();
    eventually("one of them leads in the end", || a.leads("job") || b.leads("job"));
}

fn a_store_that_fails_for_a_while(stage: &Stage) {
    let absent = Store::Beyond(format!("redis://127.0.0.1:{}/0", free_port()));
    let _early = stage.on(calm(&absent, "early", JOB));
    stage.until("store-failed", "error=+");
    let store = Store::redis();
    let Store::Redis(server) = &store else { unreachable!("it was made above") };
    let a = stage.on(calm(&store, "a", JOB));
    until_led(&a, "job", &a);
    let wants_replicas =
        |count| redis::command(server.address(), &["CONFIG", "SET", "min-replicas-to-write", count]);
    wants_replicas("1");
    stage.until("in-doubt", "roles=1");
    wants_replicas("0");
    stage.until("certain", "roles=1");
    assert!(a.leads("job"));
}

fn a_store_that_forgets(stage: &Stage) {
    let server = redis::start(redis::FORGETFUL);
    let a = stage.on(Agent::start(&Store::Beyond(format!("redis://{}/0", server.address())), "a", JOB));
    until_led(&a, "job", &a);
    redis::command(server.address(), &["FLUSHALL"]);
    stage.until("store-forgot", "role=null token=null now=null");
    stage.until("quarantined", "millis=+");
}

fn a_store_with_a_replica(stage: &Stage) {
    let (primary, replica) = (redis::durable(), redis::durable());
    let _a = stage.on(Agent::start(&Store::Beyond(format!("redis://{}/0", primary.address())), "a", JOB));
    // It has described its store by then: a replica that was there before would have weakened nothing.
    stage.until("session-opened", "session=+");
    redis::command(replica.address(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    stage.until("store-weakened", "why=+");
}

/// The node is the leader in the store, and nothing says that it works.
fn a_guard_lock_out_of_reach(stage: &Stage) {
    let store = Store::file();
    let job = format!("{JOB}guard = \"etcd://127.0.0.1:1/job\"\n");
    let a = stage.on(calm(&store, "a", &job));
    stage.until("waiting-for-guard", "role=job token=1 lock=+ why=+");
    eventually("it is the leader in the store", || a.role("job")["leader"] == json!("a"));
    assert!(!a.leads("job") && a.get("/leader/job").status == 503);
}

fn a_pooler(stage: &Stage) {
    let server = postgres::Postgres::start(&[]);
    let pooler = postgres::pgbouncer(&server);
    let store = Store::Beyond(format!("postgres://postgres@{}/postgres", pooler.address()));
    let takeover = ["--set", "timing.takeover=on-disconnect", "--set", "timing.ttl=20s"];
    let _a = stage.on(Agent::launch(&store, "a", JOB, |command| _ = command.args(takeover)));
    stage.until("no-liveness-lock", "session=+");
}

/// Puts a record of another writer into a register.
/// Writes something into a register, whatever it holds.
pub(crate) async fn scribble(store: &Store, key: impl Fn(Epoch) -> Key, record: impl Fn(&Value) -> String) {
    let registers = tenure::store::open(&store.url()).unwrap();
    let namespace = Name::new(tenure::DEFAULT_NAMESPACE).unwrap();
    let read = |key: Key| {
        let (registers, namespace) = (registers.clone(), namespace.clone());
        async move { registers.read(&namespace, &Query { keys: vec![key], kinds: vec![] }).await.unwrap() }
    };
    let cluster: Value = read(Key::Cluster).await[0].value.parse().unwrap();
    let key = key(Epoch::new(cluster["epoch"].as_u64().unwrap()));
    loop {
        let found = read(key.clone()).await.pop();
        let token = found.as_ref().and_then(|found| found.value.token);
        let put = Some((Version::new(7), tenure::store::Value { token, json: record(&cluster).into() }));
        let expect = found.map(|found| found.version);
        let write = Write { key: key.clone(), expect, put, notify: true, requires_lock: false };
        match &registers.write(&namespace, &[write]).await.unwrap()[0] {
            Outcome::Applied => return registers.close().await,
            // A node that writes it came first.
            Outcome::Conflict(_) => {}
            Outcome::Failed(error) => panic!("{error}"),
        }
    }
}

fn strange_registers(stage: &Stage) {
    let store = Store::file();
    let a = stage.on(calm(&store, "a", JOB));
    until_led(&a, "job", &a);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let session = |epoch| Key::Session(epoch, tenure::SessionId::new(7));
    runtime.block_on(scribble(&store, session, |_| "no record".to_owned()));
    stage.until("unreadable", "register=+");
    let newer = |cluster: &Value| json!({ "epoch": cluster["epoch"], "protocol": 99 }).to_string();
    runtime.block_on(scribble(&store, |_| Key::Cluster, newer));
    stage.until("newer-protocol", "protocol=99");
    eventually("it gives up", || !a.leads("job"));
}

fn a_name_that_is_taken(stage: &Stage) {
    let store = Store::file();
    let a = stage.on(calm(&store, "a", JOB));
    until_led(&a, "job", &a);
    let _twin = stage.on(calm(&store, "a", JOB));
    stage.until("name-taken", "by=+");
}

/// Registers that make the loop that writes them panic, once.
#[derive(Debug)]
struct Trap {
    inner: Memory,
    armed: Arc<AtomicBool>,
}

impl std::fmt::Display for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Trap {
    fn inner(&self) -> &dyn Registers {
        &self.inner
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        assert!(!is_beat(writes) || !self.armed.swap(false, Ordering::SeqCst), "trap");
        self.inner.write(namespace, writes).await
    }
}

/// Plays in this process what no input from outside causes, until the event comes.
fn in_process(
    stage: &Stage,
    store: impl Registers + 'static,
    cause: impl AsyncFnOnce(tenure::Tenure),
    until: &str,
) {
    let (events, told) = (Arc::new(Events::new(100)), stage.told.clone());
    let publisher = events.clone();
    tokio::runtime::Runtime::new().unwrap().block_on(async move {
        let node = tenure::Node::builder_with_store(Arc::new(store)).name("a").ttl(Duration::from_secs(4));
        let node = node.listen(move |event| publisher.publish_event(event)).start().await.unwrap();
        let candidate = node.candidate("job").await.unwrap();
        cause(candidate.elected().await.unwrap()).await;
        let mut stream = events.read(None, 100);
        while let Some(Next::Event(event)) = stream.next().await {
            told.lock().unwrap().push(serde_json::from_str(&event.data).unwrap());
            if event.kind == until {
                break;
            }
        }
    });
}

fn a_loop_that_panics(stage: &Stage) {
    let armed = Arc::new(AtomicBool::new(false));
    let store = Trap { inner: Memory::new(), armed: armed.clone() };
    let cause = async move |tenure: tenure::Tenure| {
        // A loop that failed waits for the work before it begins anew.
        tokio::spawn(tenure.hold(|lead| async move { lead.draining().await }));
        armed.store(true, Ordering::SeqCst);
    };
    in_process(stage, store, cause, "loop-failed");
}

/// The store goes away, and the work goes on past the lease: the tenure is never dropped.
fn work_that_ignores_its_lease(stage: &Stage) {
    let store = Memory::new();
    let broken = store.clone();
    let cause = async move |tenure: tenure::Tenure| {
        broken.fail(Some(tenure::store::Fate::Unknown));
        std::mem::forget(tenure);
    };
    in_process(stage, store, cause, "stuck");
}

fn work_that_fails(stage: &Stage) {
    let store = Store::file();
    let work = format!("[[work]]\nname = \"w\"\nrole = \"job\"\nbackoff = \"10ms\"\n{}", shell("exit 3"));
    let _a = stage.on(calm(&store, "a", &format!("{JOB}{work}")));
    stage.until("work-failed", "role=job token=1 worker=w why=+");
}

fn tasks(stage: &Stage) {
    let store = Store::file();
    let task = "[[task]]\nname = \"often\"\nevery = \"200ms\"\ncommand = [\"true\"]\n";
    let a = stage.on(calm(&store, "a", &format!("{JOB}{task}")));
    stage.until("task-ended", "task=often tick=+ token=1 state=succeeded took_ms=+ why=");
    assert_eq!(a.post("/v1/tasks/often/pause", &json!({ "why": "rest" })).status, 200);
    stage.until("task-passed", "task=often from=+ to=+ count=+ state=skipped why=+");
}
