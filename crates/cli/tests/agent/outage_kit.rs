//! Holds what agents say against what a witness outside saw: while the store is gone, while a leader is frozen, after it
//! was killed, and afterwards.
//!
//! The work of the role is the witness: a process that writes down every few milliseconds that it runs, under which
//! token, by the clock of the host. No agent may call the role led for longer than a lease after its last sign of life,
//! and history, metrics and timeline must tell the same gaps, give or take a beat and what this machine was held up itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tenure_torture::freeze::freeze_between_writes;
use tenure_torture::servers::free_port;
use tenure_torture::witness::{self, Beat};

use crate::browser::{Browser, Size};
use crate::kit::{Agent, Answer, Process, Store, eventually, port, tenure, try_ask, write_private};

/// As long as by default, so that a machine that does much else costs no agent its lease.
const TTL: Duration = Duration::from_secs(5);
/// How often a leader beats with that lease.
const BEAT: Duration = Duration::from_millis(1250);

/// A store that can be taken away and given back.
pub(crate) struct TestStore {
    store: Store,
    /// Freezes servers that this module does not know, and lets them go on.
    freeze: Option<Box<dyn FnMut(bool)>>,
    /// Members of a group of peers that only store.
    members: Vec<Process>,
    kept: Option<TempDir>,
    /// A process of others that keeps a file to itself.
    locker: Option<Process>,
    dir: TempDir,
}

impl TestStore {
    pub(crate) fn on(store: Store) -> Self {
        let dir = TempDir::new().unwrap();
        Self { store, freeze: None, members: Vec::new(), kept: None, locker: None, dir }
    }

    /// The store at this URL, whose servers `freeze` stops and lets go on.
    #[allow(dead_code, reason = "one of the binaries that include this file uses it")]
    pub(crate) fn beyond(url: String, freeze: impl FnMut(bool) + 'static) -> Self {
        Self { freeze: Some(Box::new(freeze)), ..Self::on(Store::Beyond(url)) }
    }

    #[allow(dead_code, reason = "one of the binaries that include this file uses it")]
    pub(crate) fn peers() -> Self {
        let mut store_under_test = Self::on(Store::Beyond(String::new()));
        let dir = store_under_test.dir.path().display().to_string();
        write_private(&store_under_test.dir.path().join("secret"), &tenure::store::Peers::new_secret());
        let members: Vec<String> = (0..3).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let url = format!("peers://{}?secret-file={dir}/secret", members.join(","));
        for me in &members {
            let mut command = tenure();
            command.args(["peers", "serve", "--store", &format!("{url}&me={me}&dir={dir}/{me}")]);
            store_under_test
                .members
                .push(Process::spawn(command.stderr(Stdio::null()).stdout(Stdio::null())));
        }
        store_under_test.store = Store::Beyond(url);
        store_under_test
    }

    /// No node gets an answer any more. PostgreSQL is stopped, a file is locked by another program, the others are frozen.
    fn take_away(&mut self) {
        match &mut self.store {
            Store::Postgres(server) => self.kept = Some(server.crash()),
            Store::File(dir) => self.locker = Some(locked(&dir.path().join("t.db"))),
            store => store.freeze(true),
        }
        self.freeze.iter_mut().for_each(|freeze| freeze(true));
        self.members.iter().skip(1).for_each(|member| member.signal(Signal::STOP));
    }

    fn give_back(&mut self) {
        self.locker = None;
        match (&mut self.store, self.kept.take()) {
            (Store::Postgres(server), Some(dir)) => server.launch(dir),
            (store, _) => store.freeze(false),
        }
        self.freeze.iter_mut().for_each(|freeze| freeze(false));
        self.members.iter().skip(1).for_each(|member| member.signal(Signal::CONT));
    }
}

/// A program that does not know of Tenure, in the middle of a write of its own.
fn locked(file: &Path) -> Process {
    let script = "import sqlite3, sys\n\
                  c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n\
                  c.execute('BEGIN EXCLUSIVE')\nopen(sys.argv[2], 'w').close()\nsys.stdin.read()";
    let held = file.with_extension("held");
    let mut command = std::process::Command::new("python3");
    let process = Process::spawn(command.args(["-c", script]).arg(file).arg(&held).stdin(Stdio::piped()));
    eventually("the file is locked", || held.exists());
    std::fs::remove_file(held).unwrap();
    process
}

/// An agent said that the role is led, and when it was asked.
#[derive(Debug)]
struct SaidLed {
    at: u64,
    by: &'static str,
    /// Where: the API, the probe of load balancers, the metrics.
    path: &'static str,
    token: u64,
}

/// Asks agents all the time, and notices when this machine was held up.
pub(crate) struct Listener {
    stop: Arc<AtomicBool>,
    stall: Arc<AtomicU64>,
    slowest_start: Arc<AtomicU64>,
    asking: Vec<JoinHandle<Vec<SaidLed>>>,
}

impl Listener {
    fn start(agents: &[(&'static str, &Agent)]) -> Self {
        let (stop, stall): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let ask = |(by, agent): &(&'static str, &Agent)| {
            let (by, socket, stop) = (*by, agent.socket.clone(), stop.clone());
            std::thread::spawn(move || asked(by, &socket, &stop))
        };
        let asking = agents.iter().map(ask).collect();
        let (ended, held_up) = (stop.clone(), stall.clone());
        std::thread::spawn(move || measure_stalls(&ended, &held_up));
        let (ended, slowest_start) = (stop.clone(), Arc::<AtomicU64>::default());
        let slowest = slowest_start.clone();
        std::thread::spawn(move || measure_starts(&ended, &slowest));
        Self { stop, stall, slowest_start, asking }
    }

    fn stall(&self) -> Duration {
        Duration::from_nanos(self.stall.load(Ordering::Relaxed))
    }

    /// How far two that look at one change may be apart.
    fn allowed(&self) -> Duration {
        BEAT + 2 * self.stall()
    }

    /// How long this machine takes at worst from the wish for a process to its end: work begins so much later than its tenure.
    fn slowest_start(&self) -> Duration {
        Duration::from_nanos(self.slowest_start.load(Ordering::Relaxed))
    }

    fn finish(self) -> Vec<SaidLed> {
        self.stop.store(true, Ordering::Relaxed);
        self.asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    }
}

fn asked(by: &'static str, socket: &Path, stop: &AtomicBool) -> Vec<SaidLed> {
    let mut said = Vec::new();
    let ask = |path: &'static str| {
        let at = witness::now();
        let answer = try_ask(socket, "GET", path, None).ok().filter(|answer| answer.status == 200)?;
        Some((at, path, answer))
    };
    while !stop.load(Ordering::Relaxed) {
        let answers = ["/v1/roles/job", "/leader/job", "/metrics", "/v1/roles/job"].map(ask);
        let [before, leader, metrics, after] = &answers;
        let told = |(_, _, answer): &(u64, &str, Answer)| answer.json();
        let led = |answer: &&(u64, &'static str, Answer)| told(answer)["state"] == "led";
        let mut push = |(at, path, _): &(u64, &'static str, Answer), token: Option<u64>| {
            said.extend(token.map(|token| SaidLed { at: *at, by, path, token }));
        };
        for role in [before, after].into_iter().flatten().filter(led) {
            push(role, told(role)["token"].as_u64());
        }
        leader.iter().for_each(|leader| push(leader, told(leader)["token"].as_u64()));
        // Metrics tell no token: it is the one that the API told at the same time.
        let at_the_time = [after, before].into_iter().flatten().find(led).or(before.as_ref());
        for metrics in
            metrics.iter().filter(|(.., answer)| answer.body.contains("\ntenure_led{role=\"job\"} 1"))
        {
            push(metrics, at_the_time.and_then(|role| told(role)["token"].as_u64()));
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    said
}

fn measure_stalls(stop: &AtomicBool, stall: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let before = witness::now();
        std::thread::sleep(Duration::from_millis(5));
        stall.fetch_max(witness::now() - before - 5_000_000, Ordering::Relaxed);
    }
}

fn measure_starts(stop: &AtomicBool, slowest: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let before = witness::now();
        assert!(Command::new("true").status().expect("it is everywhere").success());
        slowest.fetch_max(witness::now() - before, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two agents that stand for the role and run its work, and one that only looks.
pub(crate) struct OutageTest {
    store_under_test: TestStore,
    candidates: Vec<(&'static str, Agent)>,
    onlooker: Agent,
}

fn work() -> String {
    let this = std::env::current_exe().unwrap();
    format!(
        "[alerting]\ninterval = \"200ms\"\n[[role]]\nname = \"job\"\n[[work]]\nname = \"w\"\nrole = \"job\"\n\
         command = [\"{}\", \"--exact\", \"worker\", \"--nocapture\"]\n",
        this.display()
    )
}

impl OutageTest {
    fn set(store_under_test: TestStore) -> Self {
        let launch = |name: &'static str, more: &str| {
            Agent::launch(&store_under_test.store, name, more, |command| {
                let ttl = format!("timing.ttl={}s", TTL.as_secs());
                command.args(["--set", &ttl]).env("WITNESS_DIRECTORY", store_under_test.dir.path());
            })
        };
        let page =
            "[alerting]\ninterval = \"200ms\"\n[http]\nlisten = [\"127.0.0.1:0\"]\nloopback = \"read\"\n";
        let onlooker = launch("onlooker", page);
        let candidates = ["a", "b"].map(|name| (name, launch(name, &work()))).into();
        let test = Self { store_under_test, candidates, onlooker };
        test.until_led(0);
        test
    }

    fn agents(&self) -> Vec<(&'static str, &Agent)> {
        let candidates = self.candidates.iter().map(|(name, agent)| (*name, agent));
        candidates.chain([("onlooker", &self.onlooker)]).collect()
    }

    fn beats(&self) -> Vec<Beat> {
        witness::read(self.store_under_test.dir.path()).unwrap()
    }

    /// Waits until a node works under a later token, has done so for long enough to have written that down, and the
    /// onlooker has seen it.
    fn until_led(&self, token: u64) -> Beat {
        let (began, settled) = (Instant::now(), u64::try_from(TTL.as_nanos() / 2).unwrap());
        loop {
            let (last, role) = (self.beats().pop(), self.onlooker.role("job"));
            let seen =
                |beat: &Beat| role["state"] == "led" && role["token"] == beat.token && beat.token > token;
            if let Some(beat) = last.as_ref().filter(|beat| seen(beat))
                && beat.t - self.spans()[&beat.token].0 > settled
            {
                return beat.clone();
            }
            assert!(
                began.elapsed() < crate::kit::PATIENCE,
                "no node leads after token {token}: {last:?}, {role}, {:?}, {:?}",
                self.spans(),
                self.agents().iter().map(|(name, agent)| (*name, agent.log())).collect::<Vec<_>>()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the witness saw of each token: the first and the last sign of life before the next token's first.
    fn spans(&self) -> BTreeMap<u64, (u64, u64)> {
        let beats = self.beats();
        let mut spans: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for beat in &beats {
            // One that was frozen may go on for a moment when it wakes up: by then its token is not the latest.
            if spans.keys().next_back().is_none_or(|latest| beat.token >= *latest) {
                spans.entry(beat.token).or_insert((beat.t, beat.t)).1 = beat.t;
            }
        }
        spans
    }
}

/// Every process that this one started, and they in turn.
fn family(pid: u32) -> Vec<u32> {
    let children = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
    };
    let found: Vec<u32> = children(pid);
    std::iter::once(pid).chain(found.into_iter().flat_map(family)).collect()
}

/// A worker notes when it was started, by the witness's clock: a busy machine takes its time to load a program.
pub(crate) fn note_start(dir: &Path) {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process reads its own state");
    let ticks = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)).expect("its start");
    let ticks: u64 = ticks.parse().expect("a number");
    let started = ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second());
    let file = dir.join(format!("{}.started", std::process::id()));
    std::fs::write(file, started.to_string()).expect("the witness can write");
}

/// Freezes a whole host, as it were: an agent, what watches over its work, and the work.
fn signal_all(pids: &[u32], signal: Signal) {
    for pid in pids {
        let _ = kill_process(Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap(), signal);
    }
}

/// Nanoseconds of the witness's clock as microseconds since 1970, which history has.
fn wall_of(t: u64) -> i128 {
    let (wall, boot) = (jiff::Timestamp::now().as_nanosecond(), i128::from(witness::now()));
    wall - boot + i128::from(t)
}

fn nanos(stamp: &Value) -> i128 {
    stamp.as_str().unwrap_or_else(|| panic!("{stamp}")).parse::<jiff::Timestamp>().unwrap().as_nanosecond()
}

fn tenure_of(agent: &Agent, token: u64) -> Value {
    let book = agent.get("/v1/history?role=job").json();
    let tenures = book["tenures"].as_array().cloned().unwrap_or_default();
    tenures.into_iter().find(|past| past["token"] == token).unwrap_or(Value::Null)
}

/// Waits until the end of a tenure is told as it should be.
fn until_told(agent: &Agent, token: u64, reason: &str, measured: &str) {
    let mut last = Value::Null;
    let told = |last: &mut Value| {
        *last = tenure_of(agent, token);
        last["reason"] == reason && last["measured"] == measured
    };
    let began = Instant::now();
    while !told(&mut last) {
        let book = || agent.get("/v1/history?role=job").body;
        assert!(
            began.elapsed() < crate::kit::PATIENCE,
            "{token} not {reason} by {measured}: {last} {}",
            book()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the witness saw between the tenures under two tokens.
pub(crate) struct Gap {
    length: Duration,
    before: u64,
    after: u64,
}

/// A part of a lane: a tenure or a gap, its words, and where it begins and how wide it is.
type DrawnPart = (String, String, f64, f64);

/// What the dashboard draws of the role, all of it at one moment.
async fn drawn(port: u16, gaps: usize) -> Vec<DrawnPart> {
    let browser = Browser::open(&format!("http://127.0.0.1:{port}/#timeline"), Size::Desktop).await;
    let row = "[...document.querySelectorAll('#timeline [data-item=lane]')].find((row) => row.innerText.startsWith('job'))";
    let all = "document.querySelector('#timeline [data-item=zoom-all]').click()";
    browser.until(&format!("({all}, {row}?.querySelectorAll('[data-kind=gap]').length >= {gaps})")).await;
    let part = "[e.dataset.kind, e.dataset.tip, parseFloat(e.style.left), parseFloat(e.style.width)]";
    let parts =
        browser.run(&format!("return [...{row}.querySelectorAll('[data-kind]')].map((e) => {part})")).await;
    browser.close().await;
    serde_json::from_value(parts).unwrap()
}

impl OutageTest {
    /// The timeline draws each gap as long as the witness saw it, between the two tenures, and says why the first one ended.
    fn assert_drawn(&self, gaps: &[Gap], allowed: Duration) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let parts = runtime.block_on(drawn(port(&self.onlooker), gaps.len()));
        let place = |token: u64| {
            let named = format!(", token {token}\n");
            let found = parts.iter().position(|(kind, words, ..)| kind == "tenure" && words.contains(&named));
            found.unwrap_or_else(|| panic!("token {token} is not drawn: {parts:?}"))
        };
        let began = |token: u64| nanos(&tenure_of(&self.onlooker, token)["began"]) as f64 / 1e9;
        for Gap { length, before, after } in gaps {
            let (from, to) = (place(*before), place(*after));
            let scale = (began(*after) - began(*before)) / (parts[to].2 - parts[from].2);
            let [(kind, words, _, wide)] = &parts[from + 1..to] else {
                panic!("{before} to {after}: {parts:?}")
            };
            let off = (wide * scale - length.as_secs_f64()).abs();
            assert!(
                kind == "gap" && off <= allowed.as_secs_f64() + 2.0 * scale.abs(),
                "drawn {off} s off {length:?}, {allowed:?} and two pixels of {scale} s allowed: {parts:?}"
            );
            let reason = tenure_of(&self.onlooker, *before)["reason"].as_str().unwrap().to_owned();
            assert!(words.contains(&reason), "{words:?} does not say {reason}");
        }
    }

    /// All the time in which the witness saw no node at work since that token, and how many times: a busy machine loses
    /// leases between the acts too.
    fn all_gaps(&self, since: u64) -> (Duration, usize) {
        let spans: Vec<(u64, u64)> = self.spans().range(since..).map(|(_, span)| *span).collect();
        let nexts = spans.iter().skip(1).map(|(first, _)| *first).chain([witness::now()]);
        let gaps = spans.iter().zip(nexts).map(|((_, last), next)| next - last);
        (Duration::from_nanos(gaps.sum()), spans.len())
    }

    /// The gap between two tenures is as long in the history as the witness saw it.
    fn assert_gap(&self, from: u64, listener: &Listener) -> Gap {
        let spans = self.spans();
        let to = *spans.range(from + 1..).next().unwrap().0;
        let beats = self.beats();
        let successor = beats.iter().find(|beat| beat.token == to).unwrap();
        let started = self.store_under_test.dir.path().join(format!("{}.started", successor.pid));
        let first: u64 = std::fs::read_to_string(started).unwrap().parse().unwrap();
        let seen = i128::from(first) - i128::from(spans[&from].1);
        let (ended, began) = (tenure_of(&self.onlooker, from), tenure_of(&self.onlooker, to));
        let told = nanos(&began["began"]) - nanos(&ended["ended"]);
        let off = Duration::from_nanos(u64::try_from((seen - told).abs()).unwrap());
        // A worker stops a beat before its lease ends, and the next one starts as fast as this machine starts processes.
        let allowed = listener.allowed() + listener.slowest_start();
        self.assert_printed(to);
        assert!(
            off <= allowed,
            "the witness saw a gap of {seen} ns, history tells {told} ns ({off:?} off, {allowed:?} allowed): {ended} {began}; worker from {} to {}",
            wall_of(spans[&from].1),
            wall_of(first)
        );
        Gap { length: Duration::from_nanos(u64::try_from(seen).unwrap()), before: from, after: to }
    }

    /// The command prints the same gap as the API tells, which the dashboard draws. A tenure that was lost before its work
    /// began, which the witness never saw, is one too.
    fn assert_printed(&self, token: u64) {
        let book = self.onlooker.get("/v1/history?role=job").json();
        let mut tenures = book["tenures"].as_array().cloned().unwrap_or_default();
        tenures.sort_by_key(|tenure| tenure["token"].as_u64());
        let at = tenures.iter().position(|tenure| tenure["token"] == token).unwrap();
        let gap = nanos(&tenures[at]["began"]) - nanos(&tenures[at - 1]["ended"]);
        let socket = &self.onlooker.socket;
        let ran = tenure().arg("--agent").arg(socket).args(["history", "job", "--format", "json"]).output();
        let printed: Value = serde_json::from_slice(&ran.unwrap().stdout).unwrap();
        let tenures = printed["tenures"].as_array().unwrap();
        let tenure = tenures.iter().find(|tenure| tenure["token"] == token).unwrap();
        let (shown, told) = (i128::from(tenure["gap_ms"].as_u64().unwrap()), gap / 1_000_000);
        assert!((shown - told).abs() <= 1, "{told} ms between two tenures: {tenure}");
    }

    /// No agent said that the role is led longer than a lease after the last sign of life under that token.
    fn assert_never_led_past_a_lease(&self, said: &[SaidLed], stall: Duration) {
        let spans = self.spans();
        let lease = u64::try_from((TTL + TTL / 50 + BEAT + 2 * stall).as_nanos()).unwrap();
        for path in ["/v1/roles/job", "/leader/job", "/metrics"] {
            assert!(said.iter().any(|said| said.path == path), "{path} never said that the role is led");
        }
        for SaidLed { at, by, path, token } in said {
            let Some((_, last)) = spans.get(token) else { continue };
            let past = at.saturating_sub(*last);
            assert!(
                past <= lease,
                "{by}, {path}: {token} led {past} ns after its last sign of life, {lease} ns allowed"
            );
        }
    }

    /// The store is gone for longer than a lease. All agents say so, in every way in which they can be asked.
    pub(crate) fn outage(&mut self, listener: &Listener) -> Gap {
        let before = self.until_led(0);
        self.store_under_test.take_away();
        // A file that another program writes can still be read: agents see that the leader does not beat.
        let readable = matches!(self.store_under_test.store, Store::File(_));
        let state = if readable { "silent" } else { "unknown" };
        for (name, agent) in self.agents() {
            eventually(&format!("{name} says {state}"), || agent.role("job")["state"] == state);
        }
        let led = self.spans()[&before.token].1;
        eventually("some leases pass", || witness::now() - led > 3 * u64::try_from(TTL.as_nanos()).unwrap());
        for (name, agent) in self.agents() {
            asked_in_every_way(name, agent, state);
        }
        self.store_under_test.give_back();
        self.until_led(before.token);
        until_told(&self.onlooker, before.token, "lease-expired", "leader");
        self.assert_gap(before.token, listener)
    }

    /// A leader is killed: another one follows, and says by what it knows when the first one ended.
    pub(crate) fn death(&mut self, listener: &Listener) -> Gap {
        let before = self.until_led(0);
        let index = self.candidates.iter().position(|(name, _)| *name == before.node).unwrap();
        let pids = family(self.candidates[index].1.process.id());
        signal_all(&pids, Signal::KILL);
        let after = self.until_led(before.token);
        assert_ne!(after.node, before.node);
        until_told(&self.onlooker, before.token, "expelled", "last-beat");
        self.candidates.remove(index);
        self.assert_gap(before.token, listener)
    }

    /// Stops an agent. On a file not in the middle of a write: there others would let it go on.
    fn stop(&self, agent: &Agent) {
        if let Store::File(dir) = &self.store_under_test.store {
            let signal = |signal| agent.process.signal(signal);
            freeze_between_writes(agent.process.id(), &dir.path().join("t.db"), signal);
        }
    }

    /// A leader is frozen with its work, and wakes up when another one leads.
    pub(crate) fn freeze(&mut self, listener: &Listener) -> Gap {
        let before = self.until_led(0);
        let (_, agent) = self.candidates.iter().find(|(name, _)| *name == before.node).unwrap();
        let pids = family(agent.process.id());
        self.stop(agent);
        signal_all(&pids, Signal::STOP);
        let after = self.until_led(before.token);
        until_told(&self.onlooker, before.token, "expelled", "last-beat");
        let gap = self.assert_gap(before.token, listener);
        signal_all(&pids, Signal::CONT);
        until_told(&self.onlooker, before.token, "lease-expired", "leader");
        self.assert_gap(before.token, listener);
        eventually("it sees who leads", || agent.role("job")["token"] == after.token);
        let probed =
            tenure().arg("--agent").arg(&agent.socket).args(["probe", "leader", "job"]).output().unwrap();
        let why = String::from_utf8(probed.stderr).unwrap();
        assert!(why.contains(&format!("not here: {} leads job", after.node)), "{why}");
        gap
    }
}

/// The API, the metrics, the alerts and the commands agree that no node is known to lead.
fn asked_in_every_way(name: &str, agent: &Agent, state: &str) {
    let role = agent.role("job");
    let unknown = state == "unknown";
    assert_eq!((&role["state"], role["leader"].is_null()), (&state.into(), unknown), "{name}: {role}");
    assert!(
        role["seen_ms_ago"].as_u64().unwrap() + role["last_beat_ms_ago"].as_u64().unwrap() > 1000,
        "{role}"
    );
    let leader = agent.get("/leader/job");
    assert_eq!((leader.status, leader.json()["here"].as_bool()), (503, Some(false)), "{name}: {leader:?}");
    assert!(!unknown || leader.json()["leader"].is_null(), "{name}: {leader:?}");
    let cluster = agent.get("/v1/cluster").json();
    assert_eq!((&cluster["health"], &cluster["roles"][state]), (&"unhealthy".into(), &1.into()), "{cluster}");
    assert_eq!(agent.metric("tenure_roles{state=\"led\"}"), Some(0.0), "{name}");
    assert_eq!(agent.metric(&format!("tenure_roles{{state=\"{state}\"}}")), Some(1.0), "{name}");
    assert_eq!(agent.metric("tenure_leading"), Some(0.0), "{name}");
    assert_eq!(agent.metric("tenure_led{role=\"job\"}"), Some(0.0), "{name}");
    eventually("the alert", || {
        let alerts = agent.get("/v1/alerts").json();
        let found = alerts["alerts"].as_array().unwrap().iter().find(|alert| alert["alert"] == "no-leader");
        found.unwrap()["state"] != "inactive"
    });
    let run = |args: &[&str]| {
        let ran = tenure().arg("--agent").arg(&agent.socket).args(args).output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        (ran.status.code(), text)
    };
    let (says, probed) = if unknown {
        (
            "job is unknown, because the store was last reached",
            "the leader of job is unknown: the store was last reached",
        )
    } else {
        ("job is silent", "not here: ")
    };
    let (code, text) = run(&["status", "--require-leader"]);
    assert!(code == Some(1) && text.contains(says), "{name}: {text}");
    let (code, text) = run(&["probe", "leader", "job"]);
    assert!(code == Some(1) && text.contains(probed) && !text.contains("it leads"), "{name}: {text}");
    let (_, text) = run(&["top", "--once"]);
    assert!(text.contains(&format!("1 {state}")) && !text.contains("1 led"), "{name}: {text}");
}

/// The API, the metrics, the alerts and the commands agree which node leads.
fn asked_who_leads(name: &str, agent: &Agent, leader: &Beat) {
    let here = name == leader.node;
    let run = |args: &[&str]| tenure().arg("--agent").arg(&agent.socket).args(args).output().unwrap();
    let says = |what: &str, holds: &dyn Fn() -> bool| eventually(&format!("{name}: {what}"), holds);
    says("the role is led", &|| {
        let role = agent.role("job");
        role["state"] == "led" && role["leader"] == leader.node && role["token"] == leader.token
    });
    says("the probe", &|| agent.leads("job") == here);
    says("the command's probe", &|| run(&["probe", "leader", "job"]).status.success() == here);
    says("the status", &|| run(&["status", "job", "--require-leader"]).status.success());
    says("the metrics", &|| agent.metric("tenure_led{role=\"job\"}") == Some(1.0));
    says("the states", &|| agent.metric("tenure_roles{state=\"led\"}") == Some(1.0));
    says("no alert", &|| {
        let alerts = agent.get("/v1/alerts").json();
        let found = alerts["alerts"].as_array().unwrap().iter().find(|alert| alert["alert"] == "no-leader");
        found.unwrap()["state"] == "inactive"
    });
}

/// One thing that happens; returns for how long no node led.
pub(crate) type OutageStep = fn(&mut OutageTest, &Listener) -> Gap;

/// Does these things one after the other, and holds what was said meanwhile against what the witness saw.
pub(crate) fn run_steps(store_under_test: TestStore, steps: &[OutageStep]) {
    let mut test = OutageTest::set(store_under_test);
    let listener = Listener::start(&test.agents());
    let first = test.until_led(0);
    let before = test.onlooker.metric("tenure_leaderless_seconds_total").unwrap();
    let (mut gaps, mut seen) = (Duration::ZERO, Vec::new());
    for step in steps {
        let failovers = test.failovers();
        let gap = step(&mut test, &listener);
        gaps += gap.length;
        let counted = || test.onlooker.metric("tenure_leaderless_seconds_total").unwrap() - before;
        let allowed = listener.allowed().as_secs_f64() * steps.len() as f64;
        eventually("the metrics count it", || counted() > gaps.as_secs_f64() - allowed);
        let counted = counted();
        let (all, times) = test.all_gaps(first.token);
        let allowed = allowed.max(listener.allowed().as_secs_f64() * times as f64);
        let over = counted - all.as_secs_f64();
        assert!(over <= allowed, "{over} s too much, {allowed} allowed, of {all:?}, {gaps:?} by the steps");
        test.assert_failover_counted(&failovers, &gap);
        let leader = test.until_led(gap.before);
        test.agents().iter().for_each(|(name, agent)| asked_who_leads(name, agent, &leader));
        seen.push(gap);
    }
    let (stall, allowed) = (listener.stall(), listener.allowed());
    let said = listener.finish();
    test.assert_never_led_past_a_lease(&said, stall);
    test.assert_drawn(&seen, allowed);
}

impl OutageTest {
    /// How many fail-overs each agent has counted.
    fn failovers(&self) -> BTreeMap<&'static str, f64> {
        let counted =
            |agent: &Agent| agent.metric("tenure_failovers_total{role=\"job\"}").unwrap_or_default();
        self.agents().iter().map(|(name, agent)| (*name, counted(agent))).collect()
    }

    /// All agents together counted a fail-over, and no more of them than there were tenures.
    fn assert_failover_counted(&self, before: &BTreeMap<&'static str, f64>, gap: &Gap) {
        let counted =
            || self.failovers().iter().map(|(name, now)| now - before.get(name).unwrap_or(&0.0)).sum::<f64>();
        eventually("a fail-over is counted", || counted() >= 1.0);
        let tenures = self.onlooker.token("job") - gap.before;
        assert!(counted() <= tenures as f64, "{} fail-overs in {tenures} tenures", counted());
    }
}

/// The store is gone, a leader is frozen, a leader dies.
pub(crate) const ALL: &[OutageStep] = &[OutageTest::outage, OutageTest::freeze, OutageTest::death];
