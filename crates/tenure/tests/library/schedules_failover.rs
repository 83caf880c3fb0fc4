//! A one-second schedule on three nodes, as processes of their own, through forced fail-overs on each store: killed,
//! frozen, cut off, stopped. Every tick is accounted for and none is started twice, in the ledger and by the witness.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use rustix::process::{Pid, Signal as Kill, kill_process};
use tenure::ledger::{RunState, TaskRecord};
use tenure::schedule::{RunContext, Schedule, Task, TaskSettings};
use tenure::store::{
    Entry, Layer, LivenessLock, LivenessLocks, Outcome, Query, SessionId, SharedStore, Signal, Store,
    StoreError, Takeover, Write,
};
use tenure::{Name, Node, Operator};
use tenure_torture::judge::WitnessVerdict;
use tenure_torture::servers::{mysql, postgres, redis};
use tenure_torture::witness::{self, Beat};

const TTL: Duration = Duration::from_secs(1);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);
const TASK: &str = "every-second";
/// What tells a copy of this very program that it is to be a node.
const PART: &str = "TENURE_TEST_NODE";

#[tokio::test]
async fn on_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    story(format!("sqlite:{}", dir.path().join("t.db").display())).await;
}

#[tokio::test]
async fn on_redis() {
    let server = redis::durable();
    story(format!("redis://{}/0", server.address())).await;
}

#[tokio::test]
async fn on_postgresql() {
    let server = postgres::Postgres::start(&["shared_buffers=16MB"]);
    story(server.admin_url()).await;
}

#[tokio::test]
async fn on_mariadb() {
    let server = mysql::Mysql::start(&[]);
    story(server.admin_url()).await;
}

/// What is done to a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disaster {
    Kill,
    Freeze,
    Cut,
    Stop,
}

async fn story(url: String) {
    let rounds = if std::env::var_os("TENURE_LONG").is_some() { 30 } else { 4 };
    let stage = Stage::new(url);
    let mut nodes: BTreeMap<String, Actor> = BTreeMap::new();
    for name in ["a", "b", "c"] {
        nodes.insert(name.to_owned(), stage.enter(name));
    }
    let kinds = [Disaster::Kill, Disaster::Freeze, Disaster::Cut, Disaster::Stop];
    for kind in kinds.into_iter().cycle().take(rounds) {
        let (leader, token) = stage.runs_after(0).await;
        match kind {
            Disaster::Kill => drop(nodes.remove(&leader)),
            Disaster::Stop => nodes.remove(&leader).unwrap().stop(),
            Disaster::Freeze => nodes[&leader].signal(Kill::STOP),
            Disaster::Cut => nodes.get_mut(&leader).unwrap().say("cut"),
        }
        // Mostly on another node; but one that was stopped in the middle of a write may be let go on by those who wait.
        stage.runs_after(token).await;
        match kind {
            Disaster::Kill | Disaster::Stop => _ = nodes.insert(leader.clone(), stage.enter(&leader)),
            Disaster::Freeze => nodes[&leader].signal(Kill::CONT),
            Disaster::Cut => nodes.get_mut(&leader).unwrap().say("mend"),
        }
    }
    stage.runs_after(0).await;
    nodes.into_values().for_each(Actor::stop);
    let record = stage.record().await.unwrap();
    let started = accounted_for(&record, rounds);
    stage.judge(&record, &started);
    let totals = &record.totals;
    println!(
        "{rounds} fail-overs, {} ticks kept, {} started among them; in all {totals:?}",
        record.runs.len(),
        started.len()
    );
}

/// Every tick is in the ledger exactly once: as started, as passed over, or as still to be run. Those that were started.
fn accounted_for(record: &TaskRecord, rounds: usize) -> BTreeMap<u64, u64> {
    let mut ticks: BTreeMap<u64, usize> = BTreeMap::new();
    let mut started = BTreeMap::new();
    for run in &record.runs {
        let last = run.to.unwrap_or(run.tick).as_micros();
        for tick in (run.tick.as_micros()..=last).step_by(1_000_000) {
            *ticks.entry(tick).or_default() += 1;
        }
        let count = (last - run.tick.as_micros()) / 1_000_000 + 1;
        assert_eq!(count, run.count, "{run:?}");
        if run.state.was_started() {
            started.insert(run.tick.as_micros(), run.token.get());
        }
    }
    for tick in &record.owed {
        *ticks.entry(tick.as_micros()).or_default() += 1;
    }
    let doubled: Vec<_> = ticks.iter().filter(|(_, times)| **times != 1).collect();
    assert!(doubled.is_empty(), "in the ledger more than once: {doubled:?} of {record:#?}");
    let (first, last) = (*ticks.keys().next().unwrap(), *ticks.keys().next_back().unwrap());
    assert_eq!(last, record.tick.as_micros());
    let lost: Vec<u64> = (first..=last).step_by(1_000_000).filter(|tick| !ticks.contains_key(tick)).collect();
    assert!(lost.is_empty(), "lost: {lost:?} of {record:#?}");
    assert!(started.len() > rounds, "it ran at all");
    started
}

/// A directory for what the nodes write, and the store.
struct Stage {
    dir: tempfile::TempDir,
    url: String,
    operator: Operator,
}

impl Stage {
    fn new(url: String) -> Self {
        let store = tenure::store::open(&url).unwrap();
        let operator = Operator::new(store, Name::new("default").unwrap(), "tester");
        Self { dir: tempfile::tempdir().unwrap(), url, operator }
    }

    fn enter(&self, name: &str) -> Actor {
        let part = serde_json::json!({ "store": self.url, "name": name, "dir": self.dir.path() });
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "schedules_failover::acts_as_a_node", "--nocapture"])
            .env(PART, part.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let input = child.stdin.take();
        let actor = Actor { child, input };
        assert!(lines.any(|line| line.contains("joined")), "{name} did not join");
        // The output of a process must be read.
        std::thread::spawn(move || lines.for_each(drop));
        actor
    }

    async fn record(&self) -> Option<TaskRecord> {
        self.operator.tasks(None).await.unwrap().pop()
    }

    /// Waits until two more runs have succeeded in one tenure later than that one; on which node, under which token.
    async fn runs_after(&self, token: u64) -> (String, u64) {
        let seen = self.record().await.map_or(0, |record| record.tick.as_micros());
        let begun = Instant::now();
        loop {
            let record = self.record().await;
            let runs = record.iter().flat_map(|record| &record.runs);
            let mut per_tenure: BTreeMap<u64, (usize, String)> = BTreeMap::new();
            for run in runs.filter(|run| run.state == RunState::Succeeded && run.tick.as_micros() > seen) {
                per_tenure.entry(run.token.get()).or_insert((0, run.node.to_string())).0 += 1;
            }
            // A tenure that is over already does not count.
            if let Some((found, (count, node))) = per_tenure.pop_last()
                && found > token
                && count >= 2
            {
                return (node, found);
            }
            assert!(begun.elapsed() < PATIENCE, "nothing runs (after {token}): {record:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the nodes themselves saw.
    fn judge(&self, record: &TaskRecord, started: &BTreeMap<u64, u64>) {
        WitnessVerdict::of_beats(&witness::read(self.dir.path()).unwrap()).assert_sound();
        // Of a long story the ledger has the end only.
        let kept = record.runs.iter().map(|run| run.tick.as_micros()).min().unwrap_or_default();
        let mut begun = BTreeSet::new();
        for line in lines(self.dir.path(), "runs") {
            let (tick, token) = line.split_once(' ').unwrap();
            let (tick, token): (u64, u64) = (tick.parse().unwrap(), token.parse().unwrap());
            assert!(begun.insert(tick), "tick {tick} was started twice");
            let entered = started.get(&tick);
            assert!(
                tick < kept || entered == Some(&token),
                "tick {tick}: started by {token}, entered {entered:?}"
            );
        }
        for run in record.runs.iter().filter(|run| run.state == RunState::Succeeded) {
            assert!(begun.contains(&run.tick.as_micros()), "{run:?} was never started");
        }
    }
}

fn lines(dir: &Path, ending: &str) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|found| found == ending));
    files
        .flat_map(|path| {
            std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// A node as a process. Dropping it kills it.
struct Actor {
    child: Child,
    input: Option<ChildStdin>,
}

impl Actor {
    fn signal(&self, signal: Kill) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn say(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
    }

    /// Lets it stop cleanly, and returns when it has.
    fn stop(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what a copy of this program does when it is told to be a node. It stops when its input ends.
#[test]
fn acts_as_a_node() {
    let Ok(part) = std::env::var(PART) else { return };
    let part: serde_json::Value = serde_json::from_str(&part).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(play(&part));
    std::process::exit(0);
}

async fn play(part: &serde_json::Value) {
    let text = |key: &str| part[key].as_str().unwrap().to_owned();
    let cut = Arc::new(AtomicBool::new(false));
    let link = Link { inner: tenure::store::open(&text("store")).unwrap(), cut: cut.clone() };
    let node = Node::builder_with_store(Arc::new(link)).name(text("name")).ttl(TTL).start().await.unwrap();
    let dir = PathBuf::from(text("dir"));
    let settings = TaskSettings {
        history: 200,
        catch_up: 1,
        ..TaskSettings::every(TASK, Duration::from_secs(1)).unwrap()
    };
    let task = Task::new(settings, move |run| work(run, dir.clone())).unwrap();
    let schedule = Schedule::new().task(task).unwrap();
    let stand = node.candidate("scheduler").drain(Duration::from_secs(5));
    let leading = tokio::spawn(async move { schedule.lead(stand).await });
    println!("joined");
    let orders = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            cut.store(line == "cut", Ordering::SeqCst);
        }
    });
    orders.await.unwrap();
    node.stop().await;
    leading.await.unwrap().unwrap();
}

/// One run: says that it was started, and beats while it may be relied on.
async fn work(run: RunContext, dir: PathBuf) -> Result<(), std::io::Error> {
    let pid = std::process::id();
    append(&dir.join(format!("{pid}.runs")), &format!("{} {}", run.tick().as_micros(), run.token().get()))?;
    for _ in 0..10 {
        let (role, node) = (TASK.to_owned(), run.node().name().to_string());
        let beat = Beat { t: witness::now(), role, node, token: run.token().get(), pid };
        if !run.check() {
            return Ok(());
        }
        append(&dir.join(format!("{pid}.beats")), &serde_json::to_string(&beat)?)?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// One write: a process that is killed leaves whole lines.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// A way to the store that can be cut.
#[derive(Debug)]
struct Link {
    inner: SharedStore,
    cut: Arc<AtomicBool>,
}

impl Link {
    fn check(&self) -> Result<(), StoreError> {
        match self.cut.load(Ordering::SeqCst) {
            true => Err(StoreError::unknown("link", "it is cut")),
            false => Ok(()),
        }
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Link {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.check()?;
        let found = self.inner.read(namespace, query).await?;
        self.check().map(|()| found)
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.check()?;
        let outcomes = self.inner.write(namespace, writes).await?;
        // Cut meanwhile: it was done, and the node does not hear of it.
        self.check().map(|()| outcomes)
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let cut = self.cut.clone();
        let heard = move |_: &Signal| std::future::ready(!cut.load(Ordering::SeqCst));
        self.inner.watch(namespace).filter(heard).boxed()
    }

    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        self.check()?;
        self.inner.liveness().acquire_lock(namespace, session, takeover).await
    }
}
