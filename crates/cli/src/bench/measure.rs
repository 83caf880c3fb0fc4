//! The measurements.

use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use tenure::clock::{Clock, LeaseClock};
use tenure::event::EventKind;
use tenure::store::{Epoch, Key, Kind, SharedStore, Signal, Value, Version, Write};
use tenure::{Candidate, Name, Node, Timing};

use super::budget::{Budget, Traced};
use super::figures::{Figures, Spread, show};
use super::metered::{Count, Meter, Metered};
use super::{Bench, micros, progress};
use crate::args::Common;
use crate::exit::Exit;

const TTL: Duration = Duration::from_secs(2);
/// Between two hand-overs, and two rounds of their floor. A node follows 64 notifications in each beat at once, and leaves more for
/// the next beat: rounds without a pause measure that.
const BETWEEN: Duration = Duration::from_millis(20);

/// `check()` next to one read of the lease clock.
pub(super) async fn check(bench: &Bench, figures: &mut Figures) -> Result<(), Exit> {
    progress("check()");
    const TIMES: u32 = 200_000;
    let node = bench.node("bench-check", TTL).await?;
    let candidate = node.candidate("check").await?;
    let tenure = candidate.elected().await.ok_or_else(stopped)?;
    let lead = tenure.lead();
    let clock: Arc<dyn Clock> = Arc::new(LeaseClock::new());
    let time = |mut act: Box<dyn FnMut() -> bool>| {
        let started = Instant::now();
        (0..TIMES).for_each(|_| _ = black_box(act()));
        started.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    // In turns, the best of each: whatever else the machine does hits both.
    let (mut floor, mut value) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        let (clock, lead) = (clock.clone(), lead.clone());
        floor = floor.min(time(Box::new(move || clock.now().as_nanos() > 0)));
        value = value.min(time(Box::new(move || lead.check())));
    }
    figures.ratio(
        "check()",
        format!("{value:.0} ns"),
        format!("clock read {floor:.0} ns"),
        value / floor,
        "≤ 1.5 ×",
    );
    drop(tenure);
    node.stop().await;
    Ok(())
}

/// From giving a role up to the successor's election, next to one notification and one write of the store.
pub(super) async fn hand_over(bench: &Bench, figures: &mut Figures) -> Result<(), Exit> {
    progress("clean hand-over");
    let stores = [bench.store()?, bench.store()?];
    let traced = stores.clone().map(Traced::new);
    let nodes = [
        bench.node_on(Arc::new(traced[0].clone()), "bench-one", TTL).await?,
        bench.node_on(Arc::new(traced[1].clone()), "bench-two", TTL).await?,
    ];
    let candidates = [nodes[0].candidate("hand-over").await?, nodes[1].candidate("hand-over").await?];
    let (mut tenure, mut leader) = elected(&candidates).await?;
    // They must have seen each other beat to know their order.
    tokio::time::sleep(2 * TTL).await;
    let (mut spread, mut budget) = (Spread::new(), Budget::new());
    for _ in 0..bench.rounds {
        tokio::time::sleep(BETWEEN).await;
        traced[1 - leader].take();
        let (standby, started) = (1 - leader, Instant::now());
        drop(tenure);
        // Where the standby stalls for long, the former leader takes the role back.
        (tenure, leader) = elected(&candidates).await?;
        let now = Instant::now();
        spread.add(micros(now - started));
        if leader == standby {
            budget.add(started, now, &traced[standby].take());
        }
    }
    drop(tenure);
    let floor = floor(bench, &stores).await?;
    figures.against("clean hand-over", &spread, &floor, bench.hand_over_target());
    figures.plain("… until notified + claim and read + elected", budget.to_string(), "");
    join_all(nodes.iter().map(Node::stop)).await;
    Ok(())
}

async fn elected(candidates: &[Candidate; 2]) -> Result<(tenure::Tenure, usize), Exit> {
    tokio::select! {
        tenure = candidates[0].elected() => Ok((tenure.ok_or_else(stopped)?, 0)),
        tenure = candidates[1].elected() => Ok((tenure.ok_or_else(stopped)?, 1)),
    }
}

/// What the store itself needs for a hand-over: a write that notifies, its signal elsewhere, and a write there. By the same
/// handles as the hand-over, to and fro: which member of a group a handle asks decides how far its requests travel.
async fn floor(bench: &Bench, stores: &[SharedStore; 2]) -> Result<Spread, Exit> {
    let mut signals = [stores[0].watch(&bench.namespace), stores[1].watch(&bench.namespace)];
    for other in [0, 1] {
        hear(&stores[1 - other], &mut signals[other], &bench.namespace).await?;
    }
    // Registers of its own for each direction: a handle hears of its own writes too.
    let name = |name: &str| Name::new(name).map_err(tenure::Error::from);
    let names = [name("floor-to")?, name("floor-fro")?];
    let mut expect = [None; 2];
    let mut spread = Spread::new();
    for round in 0..bench.rounds {
        let one = round as usize % 2;
        let (other, version) = (1 - one, Version::new(u128::from(round) + 1));
        let write = |kind| {
            let key = Key::Named(Epoch::new(1), kind, names[one].clone());
            let put = Some((version, Value::of(&"floor", None)));
            Write { key, expect: expect[one], put, notify: true, requires_lock: false }
        };
        let (notifies, answers) = (write(Kind::Task), write(Kind::History));
        tokio::time::sleep(BETWEEN).await;
        let started = Instant::now();
        stores[one].write(&bench.namespace, std::slice::from_ref(&notifies)).await?;
        while let Some(signal) = signals[other].next().await {
            if matches!(&signal, Signal::Changed(changed) if *changed == notifies.key) {
                break;
            }
        }
        stores[other].write(&bench.namespace, &[answers]).await?;
        spread.add(micros(started.elapsed()));
        expect[one] = Some(version);
    }
    Ok(spread)
}

/// Waits until a watch hears: a store may still be connecting.
async fn hear(
    store: &SharedStore,
    signals: &mut BoxStream<'static, Signal>,
    namespace: &Name,
) -> Result<(), Exit> {
    let key = Key::Named(Epoch::new(1), Kind::Node, Name::new("hear").map_err(tenure::Error::from)?);
    let mut expect = None;
    for version in 1.. {
        let put = Some((Version::new(version), Value::of(&"hear", None)));
        store
            .write(namespace, &[Write { key: key.clone(), expect, put, notify: true, requires_lock: false }])
            .await?;
        expect = Some(Version::new(version));
        if tokio::time::timeout(Duration::from_millis(100), signals.next()).await.is_ok() {
            break;
        }
    }
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(100), signals.next()).await {}
    Ok(())
}

/// Store operations of one idle leader, with one role and with many.
pub(super) async fn steady_state(bench: &Bench, figures: &mut Figures) -> Result<(), Exit> {
    progress(&format!("steady state with 1 and with {} roles", bench.roles));
    let before = resident();
    let (one, _) = idle_cost(bench, "bench-few", 1).await?;
    let (many, after) = idle_cost(bench, "bench-many", bench.roles).await?;
    let minute = |Count { operations, rows, .. }: Count| {
        let seconds = IDLE.as_secs();
        format!("{} operations, {} rows a minute", operations * 60 / seconds, rows * 60 / seconds)
    };
    let what = format!("steady state, {} roles", bench.roles);
    figures.ratio(
        &what,
        minute(many),
        minute(one),
        many.operations as f64 / one.operations as f64,
        "≤ 1.05 ×",
    );
    let per_role = after.saturating_sub(before) / u64::from(bench.roles);
    figures.plain("memory per role led", format!("{per_role} bytes"), "");
    Ok(())
}

const IDLE: Duration = Duration::from_secs(10);

async fn idle_cost(bench: &Bench, name: &str, roles: u32) -> Result<(Count, u64), Exit> {
    let meter = Arc::new(Meter::default());
    let store = Arc::new(Metered { inner: bench.store()?, meter: meter.clone(), cut: Arc::default() });
    let node = bench.node_on(store, name, TTL).await?;
    let led = lead_all(&node, name, roles).await?;
    let resident = resident();
    // The history is written after the fact: let it be over.
    let mut written = None;
    while written != Some(meter.histories()) {
        written = Some(meter.histories());
        tokio::time::sleep(2 * TTL).await;
    }
    meter.reset();
    tokio::time::sleep(IDLE).await;
    let cost = meter.reset();
    drop(led);
    node.stop().await;
    Ok((cost, resident))
}

async fn lead_all(node: &Node, prefix: &str, roles: u32) -> Result<Vec<(Candidate, tenure::Tenure)>, Exit> {
    let mut candidates = Vec::new();
    for role in 0..roles {
        candidates.push(node.candidate(&format!("{prefix}-{role}")).await?);
    }
    let elections = candidates.into_iter().map(|candidate| async move {
        let tenure = candidate.elected().await.ok_or_else(stopped)?;
        Ok::<_, Exit>((candidate, tenure))
    });
    join_all(elections).await.into_iter().collect()
}

/// Memory in use, in bytes.
pub(super) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Many roles of a node that is killed: until the last is led again.
pub(super) async fn mass_takeover(bench: &Bench, figures: &mut Figures) -> Result<(), Exit> {
    progress(&format!("{} roles of a node that dies", bench.roles));
    let mut victim = Victim::spawn(bench)?;
    victim.wait_until_leading().await;
    let node = bench.node("bench-successor", TTL).await?;
    let known = Arc::new(OnceLock::new());
    let first = known.clone();
    let _listening = node.listen(move |event| {
        if matches!(event.kind, EventKind::LeaderDown { .. }) {
            first.get_or_init(Instant::now);
        }
    });
    let mut candidates = Vec::new();
    for role in 0..bench.roles {
        candidates.push(node.candidate(&format!("mass-{role}")).await?);
    }
    // Every register has been seen, and the victim's beat has moved.
    tokio::time::sleep(2 * TTL).await;
    let killed = Instant::now();
    victim.kill();
    join_all(candidates.iter().map(Candidate::elected)).await;
    let all = killed.elapsed();
    let known = known.get().map_or(all, |known| known.duration_since(killed));
    let value = format!("{} after the death was known", show(micros(all.saturating_sub(known))));
    figures.plain(&format!("{} roles of a dead node led again", bench.roles), value, "≤ 2 s");
    figures.plain("… known dead after", show(micros(known)), "");
    drop(candidates);
    node.stop().await;
    Ok(())
}

/// A process that leads many roles until it is killed.
struct Victim {
    child: Child,
    ready: Option<std::process::ChildStdout>,
}

impl Victim {
    fn spawn(bench: &Bench) -> Result<Self, Exit> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--store", &bench.url, "--namespace", bench.namespace.as_str(), "bench", "--victim"]);
        command.args(["--roles", &bench.roles.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| Exit::Failed(format!("cannot start a second process: {error}")))?;
        let ready = child.stdout.take();
        Ok(Self { child, ready })
    }

    async fn wait_until_leading(&mut self) {
        let ready = self.ready.take();
        let _ = tokio::task::spawn_blocking(move || {
            use std::io::Read;
            ready.map(|mut ready| ready.read_exact(&mut [0]))
        })
        .await;
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Leads many roles, says so, and waits to be killed.
pub(super) async fn play_victim(common: &Common, roles: u32) -> Result<Exit, Exit> {
    use std::io::Write as _;
    let node = Node::builder(common.store_url())
        .namespace(common.namespace().as_str())
        .name("bench-victim")
        .ttl(TTL);
    let node = node.start().await?;
    let _led = lead_all(&node, "mass", roles).await?;
    let _ = std::io::stdout().write_all(b"!").and_then(|()| std::io::stdout().flush());
    // Its input ends with the process that started it.
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await;
    Ok(Exit::Done)
}

/// `tenure run` killed with −9, until the next command runs: by the lease or the kernel, and on disconnect where the
/// server can tell.
pub(super) async fn crash(bench: &Bench, figures: &mut Figures) -> Result<(), Exit> {
    let can = bench.store()?.describe().await?;
    let timing = Timing::default();
    let strict = if can.process_liveness_locks {
        "median ≤ 50 ms".to_owned()
    } else {
        format!("≤ {}", show(micros(timing.ttl + timing.beat + Duration::from_millis(100))))
    };
    let what = "kill -9 of tenure run → next command runs";
    figures.plain(what, crashes(bench, "strict").await?.to_string(), &strict);
    if can.connection_liveness_locks {
        let target = format!("≤ {}", show(micros(timing.grace + Duration::from_millis(100))));
        figures.plain(
            &format!("{what}, on disconnect"),
            crashes(bench, "on-disconnect").await?.to_string(),
            &target,
        );
    }
    Ok(())
}

async fn crashes(bench: &Bench, takeover: &str) -> Result<Spread, Exit> {
    progress(&format!("crash fail-over of tenure run, {takeover}"));
    let dir = tempfile::tempdir().map_err(|error| Exit::Failed(error.to_string()))?;
    let start = |node: usize| {
        let script = format!(
            "date +%s%N > '{0}/new' && mv '{0}/new' '{0}/'$TENURE_TOKEN && exec sleep 1000",
            dir.path().display()
        );
        let mut command = Command::new("/proc/self/exe");
        command.args(["--store", &bench.url, "--namespace", bench.namespace.as_str(), "run", "--quiet"]);
        command.args(["--role", &format!("crash-{takeover}"), "--takeover", takeover]);
        // Names of its own: a node with the name of a process that was just killed waits for its lease.
        command.args(["--node", &format!("{takeover}-{node}"), "--", "sh", "-c", &script]);
        command.stderr(Stdio::null()).spawn().map_err(|error| Exit::Failed(error.to_string()))
    };
    let mut runs = (0..3).map(start).collect::<Result<Vec<Child>, Exit>>()?;
    let operator = tenure::Operator::new(bench.store()?, bench.namespace.clone(), "bench");
    let role = Name::new(format!("crash-{takeover}")).map_err(tenure::Error::from)?;
    let mut spread = Spread::new();
    let (mut token, _) = next_command(dir.path(), 0).await;
    for _ in 0..bench.rounds.min(100) {
        // The standbys must have seen the leader, and a process that was killed must be back.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let snapshot = operator.snapshot().await?;
        let Some(leader) = snapshot.role(&role).and_then(|report| report.leader.clone()) else { continue };
        let index: usize = leader.as_str().rsplit('-').next().and_then(|nth| nth.parse().ok()).unwrap_or(0);
        let killed = wall_nanos();
        let _ = runs[index].kill();
        let (next, began) = next_command(dir.path(), token).await;
        spread.add(u64::try_from(began.saturating_sub(killed) / 1000).unwrap_or(u64::MAX));
        token = next;
        let _ = runs[index].wait();
        runs[index] = start(index)?;
    }
    for run in &mut runs {
        let _ = run.kill();
        let _ = run.wait();
    }
    Ok(spread)
}

/// Waits for a command with a later token; when it began, by the wall clock, as it wrote itself.
async fn next_command(dir: &std::path::Path, after: u64) -> (u64, u128) {
    loop {
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let newest = files.filter_map(|file| file.file_name().to_str()?.parse::<u64>().ok()).max();
        if let Some(token) = newest.filter(|token| *token > after) {
            let began = std::fs::read_to_string(dir.join(token.to_string())).unwrap_or_default();
            return (token, began.trim().parse().unwrap_or(0));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn wall_nanos() -> u128 {
    std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
}

fn stopped() -> Exit {
    Exit::Failed("the election loop stopped".to_owned())
}
