//! Supervised work through the library, on the in-process store: starts, restarts, failures, drains, modes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use tenure::event::EventKind;
use tenure::store::{Layer, Outcome, Store, StoreError, Write};
use tenure::testing::{Memory, force_loss, node_on};
use tenure::work::{
    HealthCheck, RestartPolicy, TenureReport, WorkError, WorkMode, Worker, WorkerFailure, WorkerGroup,
};
use tenure::{EndReason, Name, Node, Operator, State};

const TTL: Duration = Duration::from_secs(1);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

async fn node(store: &Memory, name: &str) -> Node {
    node_on(store).name(name).ttl(TTL).start().await.unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn failed(why: &str) -> Result<(), WorkError> {
    Err(why.into())
}

fn failure(report: &TenureReport) -> Option<(&str, &WorkerFailure)> {
    report.failure.as_ref().map(|failed| (failed.worker.as_str(), &failed.failure))
}

fn started(report: &TenureReport) -> Vec<(&str, u32)> {
    report.starts.iter().map(|starts| (starts.worker.as_str(), starts.count)).collect()
}

/// Counts, and waits for counts.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn up(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    async fn reaches(&self, wanted: usize) {
        soon(async {
            while self.get() < wanted {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
}

/// Runs a group for one tenure of a node of its own.
async fn one_tenure(group: WorkerGroup) -> (TenureReport, Node) {
    let node = node(&Memory::new(), "a").await;
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let report = soon(group.run(&node, tenure)).await;
    assert!(candidate.lead().is_none(), "lost before it was told");
    (report, node)
}

#[tokio::test]
async fn workers_start_in_order_each_when_the_one_before_is_ready() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let noting = |what: &'static str, order: &Arc<Mutex<Vec<&'static str>>>| {
        let order = order.clone();
        move || order.lock().unwrap().push(what)
    };
    let (first, ready, second) = (noting("first", &order), noting("ready", &order), noting("second", &order));
    let group = WorkerGroup::new()
        .worker(
            Worker::new("first", move |context| {
                first();
                let ready = ready.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    ready();
                    context.ready();
                    context.stopping().await;
                    Ok(())
                }
            })
            .ready_timeout(PATIENCE),
        )
        .worker(
            Worker::new("second", move |_| {
                second();
                async { failed("enough") }
            })
            .restart(RestartPolicy::Never),
        );
    let (report, _) = one_tenure(group).await;
    assert_eq!(*order.lock().unwrap(), ["first", "ready", "second"]);
    assert_eq!(failure(&report), Some(("second", &WorkerFailure::Died("enough".into()))));
    assert_eq!((report.reason, report.cancelled.len()), (EndReason::WorkFailed, 0));
}

#[tokio::test]
async fn failures_are_forgiven_so_often_and_no_oftener() {
    let starts = Count::default();
    let counting = starts.clone();
    let worker = Worker::new("flaky", move |_| {
        counting.up();
        async { failed("again") }
    });
    let group = WorkerGroup::new().worker(worker.backoff(Duration::from_millis(1)).limit(2, PATIENCE));
    let (report, _) = one_tenure(group).await;
    assert_eq!(starts.get(), 3);
    assert!(
        matches!(failure(&report), Some((_, WorkerFailure::Died(why))) if why.contains("again")),
        "{report:?}"
    );
    assert_eq!(started(&report), [("flaky", 3)]);
}

#[tokio::test]
async fn what_always_restarts_does_and_what_never_does_ends_quietly() {
    let starts = Count::default();
    let counting = starts.clone();
    let eager = Worker::new("eager", move |_| {
        let nth = counting.up();
        async move { if nth < 3 { Ok(()) } else { failed("third") } }
    });
    let quiet = Worker::new("quiet", |_| async { Ok(()) }).restart(RestartPolicy::Never);
    let group = WorkerGroup::new()
        .worker(quiet)
        .worker(eager.restart(RestartPolicy::Always).backoff(Duration::from_millis(1)).limit(2, PATIENCE));
    let (report, _) = one_tenure(group).await;
    assert_eq!(starts.get(), 3);
    assert_eq!(started(&report), [("quiet", 1), ("eager", 3)]);
}

#[tokio::test]
async fn work_that_has_finished_ends_the_tenure() {
    let (report, _) = one_tenure(WorkerGroup::new().worker(Worker::new("done", |_| async { Ok(()) }))).await;
    assert_eq!((report.reason, report.failure), (EndReason::Finished, None));
}

#[tokio::test]
async fn work_that_does_not_start_hangs_or_is_not_well_ends_the_tenure() {
    let idle = || Worker::new("idle", |_| std::future::pending());
    let short = Duration::from_millis(20);
    let sick = HealthCheck::every(short, |_| async { failed("no pulse") }).failures(2);
    let slow = HealthCheck::every(short, |_| std::future::pending());
    for (worker, part) in [
        (idle().ready_timeout(short), "not ready"),
        (Worker::new("idle", |_| async { failed("no port") }).ready_timeout(PATIENCE), "no port"),
        (idle().hang_timeout(short), "no sign of life"),
        (idle().health(sick), "no pulse"),
        (idle().health(slow.within(short)), "no answer"),
    ] {
        let (report, _) = one_tenure(WorkerGroup::new().worker(worker)).await;
        let failure = report.failure.expect(part).failure;
        assert!(failure.to_string().contains(part), "{failure}");
        assert_eq!(report.reason, EndReason::WorkFailed);
    }
}

#[tokio::test]
async fn signs_of_life_keep_a_worker() {
    let worker = Worker::new("lively", |context| async move {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            context.heartbeat();
        }
        failed("the end")
    });
    let group =
        WorkerGroup::new().worker(worker.hang_timeout(Duration::from_secs(10)).restart(RestartPolicy::Never));
    let (report, _) = one_tenure(group).await;
    assert_eq!(failure(&report), Some(("lively", &WorkerFailure::Died("the end".into()))));
}

/// A listener that hears of the failure can be sure that the role is lost already.
#[tokio::test]
async fn a_panic_is_a_loss_first_and_an_error_second() {
    let node = node(&Memory::new(), "a").await;
    let mut events = node.events();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let lead = tenure.lead();
    let group = WorkerGroup::new().worker(Worker::new("wild", |_| async { panic!("boom") }));
    let report = soon(group.run(&node, tenure)).await;
    assert_eq!(failure(&report), Some(("wild", &WorkerFailure::Panicked("boom".into()))));
    assert!(!lead.check());
    let mut lost = false;
    soon(async {
        loop {
            match events.next().await.unwrap().kind {
                EventKind::Lost { reason, .. } => {
                    assert_eq!(reason, EndReason::WorkFailed);
                    lost = true;
                }
                EventKind::WorkFailed { worker, why, .. } => {
                    assert!(lost, "the loss comes first");
                    assert_eq!((worker.as_str(), why.as_str()), ("wild", "it panicked: boom"));
                    return;
                }
                _ => {}
            }
        }
    })
    .await;
}

#[tokio::test]
async fn after_work_that_failed_another_node_gets_a_turn() {
    let store = Memory::new();
    let (a, b) = (node(&store, "a").await, node(&store, "b").await);
    let broken = WorkerGroup::new()
        .worker(Worker::new("broken", |_| async { failed("no") }).restart(RestartPolicy::Never));
    let works = Count::default();
    let counting = works.clone();
    let sound = WorkerGroup::new().worker(Worker::new("sound", move |context| {
        counting.up();
        async move {
            context.stopping().await;
            Ok(())
        }
    }));
    let (first, second) =
        (a.candidate("scheduler").cool_down(PATIENCE), b.candidate("scheduler").takeover_delay(TTL));
    let leading = tokio::spawn(async move { tokio::join!(broken.lead(first), sound.lead(second)) });
    works.reaches(1).await;
    let leader = soon(async {
        let role = name("scheduler");
        let operator = Operator::new(Arc::new(store.clone()), name("default"), "tester");
        loop {
            let snapshot = operator.snapshot().await.unwrap();
            if let Some(leader) = snapshot.role(&role).and_then(|report| report.leader.clone()) {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(leader, name("b"), "the one that failed stands back");
    leading.abort();
}

/// Three nodes whose work never starts elect less and less often, instead of once in each cool-down.
#[tokio::test]
async fn nodes_whose_work_keeps_failing_stand_back_longer_each_time() {
    const COOL_DOWN: Duration = Duration::from_millis(200);
    let store = Memory::new();
    let starts: Arc<Mutex<Vec<(usize, Instant)>>> = Arc::default();
    let mut leading = tokio::task::JoinSet::new();
    for nth in 0..3 {
        let (node, starts) = (node(&store, &format!("n{nth}")).await, starts.clone());
        let broken = Worker::new("broken", move |_| {
            starts.lock().unwrap().push((nth, Instant::now()));
            async { failed("no") }
        });
        let group = WorkerGroup::new().worker(broken.restart(RestartPolicy::Never));
        leading.spawn(async move { group.lead(node.candidate("scheduler").cool_down(COOL_DOWN)).await });
    }
    let of = |nth: usize| {
        let starts = starts.lock().unwrap();
        starts.iter().filter(|(by, _)| *by == nth).map(|(_, at)| *at).collect::<Vec<_>>()
    };
    soon(async {
        while (0..3).any(|nth| of(nth).len() < 4) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for nth in 0..3 {
        let starts = of(nth);
        for (failures, pair) in starts.windows(2).enumerate() {
            let least = COOL_DOWN * (1 << failures);
            assert!(pair[1] - pair[0] >= least, "n{nth} after {failures}: {:?}", pair[1] - pair[0]);
        }
    }
}

/// Told to stop: finishes what is in flight if that fits, and is cancelled otherwise; the role is led by no node before.
#[tokio::test]
async fn a_drain_waits_for_what_is_in_flight_and_no_longer() {
    for (takes, drain, cancelled) in [
        (Duration::from_millis(100), PATIENCE, false),
        (Duration::from_secs(3600), Duration::from_millis(100), true),
    ] {
        let store = Memory::new();
        let (a, b) = (node(&store, "a").await, node(&store, "b").await);
        let (begun, at_work, ended) = (Count::default(), Arc::new(AtomicBool::new(false)), Count::default());
        let worker = {
            let (begun, at_work, ended) = (begun.clone(), at_work.clone(), ended.clone());
            Worker::new("job", move |context| {
                let (begun, at_work, ended) = (begun.clone(), at_work.clone(), ended.clone());
                async move {
                    let _present = Present::new(at_work);
                    begun.up();
                    context.stopping().await;
                    assert!(context.check(), "still covered while it winds down");
                    tokio::time::sleep(takes).await;
                    ended.up();
                    Ok(())
                }
            })
        };
        let candidate = a.candidate("scheduler").drain(drain).await.unwrap();
        let tenure = soon(candidate.elected()).await.unwrap();
        let group = WorkerGroup::new().worker(worker);
        let (leader, running) = (a.clone(), tokio::spawn(async move { group.run(&a, tenure).await }));
        begun.reaches(1).await;
        let successor = b.candidate("scheduler").await.unwrap();
        let stopping = tokio::spawn(async move { leader.stop().await });
        let next = soon(successor.elected()).await.unwrap();
        assert!(!at_work.load(Ordering::SeqCst), "the work had stopped before");
        assert!(next.check());
        let report = soon(running).await.unwrap();
        assert_eq!(report.cancelled, if cancelled { vec!["job".to_owned()] } else { vec![] });
        assert_eq!((report.reason, ended.get()), (EndReason::Shutdown, usize::from(!cancelled)));
        soon(stopping).await.unwrap();
    }
}

struct Present(Arc<AtomicBool>);

impl Present {
    fn new(flag: Arc<AtomicBool>) -> Self {
        flag.store(true, Ordering::SeqCst);
        Self(flag)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Blocking work neither delays a beat nor is taken for stopped before it has returned.
#[tokio::test]
async fn blocking_work_is_waited_for_and_blocks_nothing_else() {
    // Long enough that a busy machine misses no beat by itself.
    let ttl = 3 * TTL;
    let node = node_on(&Memory::new()).name("a").ttl(ttl).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let at_work = Arc::new(AtomicBool::new(false));
    let present = at_work.clone();
    let worker = Worker::blocking("grinder", move |context| {
        let _present = Present::new(present.clone());
        while context.check() && !context.is_stopping() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    });
    let (leader, group) = (node.clone(), WorkerGroup::new().worker(worker));
    let lead = tenure.lead();
    let running = tokio::spawn(async move { group.run(&leader, tenure).await });
    tokio::time::sleep(ttl * 3 / 2).await;
    assert!(lead.check(), "longer than a lease later it still leads");
    candidate.resign();
    let report = soon(running).await.unwrap();
    assert!(!at_work.load(Ordering::SeqCst));
    assert_eq!((report.reason, report.cancelled.len()), (EndReason::Resigned, 0));
}

/// Work that cannot be dropped is told when it alone has to end.
#[tokio::test]
async fn blocking_work_that_is_not_well_is_told_so_and_ends_the_tenure() {
    let grinder = || {
        Worker::blocking("grinder", |context| {
            while !context.is_stopping() {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        })
    };
    let short = Duration::from_millis(20);
    let sick = HealthCheck::every(short, |_| async { failed("no pulse") });
    let patient = Worker::new("patient", |context| async move {
        context.killed().await;
        Ok(())
    });
    for (worker, part) in [
        (grinder().health(sick.clone()), "no pulse"),
        (grinder().hang_timeout(short), "no sign of life"),
        (patient.joins().health(sick), "no pulse"),
    ] {
        let (report, _) = one_tenure(WorkerGroup::new().worker(worker)).await;
        let failure = report.failure.expect(part).failure;
        assert!(failure.to_string().contains(part), "{failure}");
    }
}

/// What is not ready yet is not expected to be well.
#[tokio::test]
async fn health_is_asked_for_once_a_worker_is_ready() {
    let slow = Worker::new("slow", |context| async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        context.ready();
        context.stopping().await;
        Ok(())
    });
    let asked = Count::default();
    let asking = asked.clone();
    let health = HealthCheck::every(Duration::from_millis(5), move |_| {
        let nth = asking.up();
        async move { if nth < 3 { Ok(()) } else { failed("no pulse") } }
    });
    let next = Worker::new("next", |_| std::future::pending());
    let group = WorkerGroup::new().worker(slow.ready_timeout(PATIENCE).health(health)).worker(next);
    let (report, _) = one_tenure(group).await;
    assert_eq!(failure(&report), Some(("slow", &WorkerFailure::Unhealthy("no pulse".into()))));
    assert_eq!(asked.get(), 3);
    assert!(started(&report).contains(&("next", 1)), "{report:?}");
}

#[tokio::test]
async fn a_lost_session_stops_the_work() {
    let node = node(&Memory::new(), "a").await;
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let losing = node.clone();
    let group = WorkerGroup::new().worker(Worker::new("job", move |_| {
        force_loss(&losing);
        std::future::pending()
    }));
    let report = soon(group.run(&node, tenure)).await;
    assert_eq!((report.reason, report.cancelled), (EndReason::ClockFault, vec!["job".to_owned()]));
}

#[tokio::test]
async fn off_does_not_stand_and_the_shadow_leads_without_working() {
    let store = Memory::new();
    let node = node(&store, "a").await;
    let works = Count::default();
    let counting = works.clone();
    let group = WorkerGroup::new().worker(Worker::new("job", move |_| {
        counting.up();
        std::future::pending()
    }));
    soon(group.clone().mode(WorkMode::Off).lead(node.candidate("scheduler"))).await.unwrap();
    let observer = node.observer("scheduler").await.unwrap();
    assert_eq!(observer.leader(), None);
    let shadow = group.mode(WorkMode::Shadow);
    let stand = node.candidate("scheduler");
    let leading = tokio::spawn(async move { shadow.lead(stand).await });
    let mut leaders = observer.leaders();
    soon(async { while !matches!(leaders.next().await, Some(Some(_))) {} }).await;
    tokio::time::sleep(TTL / 2).await;
    soon(node.stop()).await;
    soon(leading).await.unwrap().unwrap();
    assert_eq!(works.get(), 0, "elected, and nothing was run");
}

#[tokio::test]
async fn a_static_leader_leads_and_no_other_node_does() {
    let store = Memory::new();
    let (a, b) = (node(&store, "a").await, node(&store, "b").await);
    let group =
        WorkerGroup::new().static_leader(name("b")).worker(Worker::new("job", |_| std::future::pending()));
    let other = group.clone();
    let stand = a.candidate("scheduler").priority(9);
    let follower = tokio::spawn(async move { other.lead(stand).await });
    let stand = b.candidate("scheduler");
    let leader = tokio::spawn(async move { group.lead(stand).await });
    let observer = a.observer("scheduler").await.unwrap();
    let mut leaders = observer.leaders();
    let found = soon(async {
        loop {
            if let Some(Some(leader)) = leaders.next().await {
                return leader;
            }
        }
    })
    .await;
    assert_eq!(found.node, name("b"));
    soon(b.stop()).await;
    soon(leader).await.unwrap().unwrap();
    tokio::time::sleep(2 * TTL).await;
    let candidate = a.candidate("other").await.unwrap();
    assert!(soon(candidate.elected()).await.is_some(), "it takes part");
    assert_eq!(observer.leader(), None, "but no other node leads");
    follower.abort();
    assert_ne!(candidate.state(), State::Paused);
}

/// A store that makes the election loop panic when it is told to.
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
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        assert!(!self.armed.swap(false, Ordering::SeqCst), "the trap");
        self.inner.write(namespace, writes).await
    }
}

/// The election loop itself panics: what it led is lost first, its work stops, and it leads again later.
#[tokio::test]
async fn a_panic_of_the_loop_is_a_loss_first_and_an_error_second() {
    let armed = Arc::new(AtomicBool::new(false));
    let store = Trap { inner: Memory::new(), armed: armed.clone() };
    let node = Node::builder_with_store(Arc::new(store)).name("a").ttl(TTL).start().await.unwrap();
    let mut events = node.events();
    let works = Count::default();
    let counting = works.clone();
    let group = WorkerGroup::new().worker(Worker::new("job", move |_| {
        counting.up();
        std::future::pending()
    }));
    let stand = node.candidate("scheduler");
    let leading = tokio::spawn(async move { group.lead(stand).await });
    works.reaches(1).await;
    armed.store(true, Ordering::SeqCst);
    let mut seen = Vec::new();
    soon(async {
        loop {
            match events.next().await.unwrap().kind {
                EventKind::Lost { reason, .. } => seen.push(reason.to_string()),
                EventKind::LoopFailed { error } => {
                    seen.push(error);
                    return;
                }
                _ => {}
            }
        }
    })
    .await;
    assert_eq!(seen, ["fault", "the trap"]);
    works.reaches(2).await;
    soon(node.stop()).await;
    soon(leading).await.unwrap().unwrap();
}
