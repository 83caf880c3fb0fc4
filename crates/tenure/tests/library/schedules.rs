//! Schedules through the library, on the in-process store: what runs, what is passed over, and what the ledger says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::ledger::{RunRecord, RunState, TaskRecord};
use tenure::operator::OperatorAction;
use tenure::schedule::{OverlapPolicy, RunContext, Schedule, StopPolicy, Task, TaskPlacement, TaskSettings};
use tenure::store::{Fate, Kind, Outcome, Query, Store};
use tenure::testing::{Memory, node_on};
use tenure::work::{WorkMode, WorkerGroup};
use tenure::{Name, Node, Operator, Timestamp, Token};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const TTL: Duration = Duration::from_secs(1);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);
/// The shortest interval that there is.
const OFTEN: Duration = Duration::from_millis(100);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn often(change: impl FnOnce(&mut TaskSettings)) -> TaskSettings {
    let mut settings = TaskSettings { history: 200, ..TaskSettings::every("t", OFTEN).unwrap() };
    change(&mut settings);
    settings
}

/// A store, nodes on it, and an operator.
struct Scene {
    store: Memory,
    operator: Operator,
}

impl Scene {
    fn new() -> Self {
        let store = Memory::new();
        let operator = Operator::new(Arc::new(store.clone()), name("default"), "tester");
        Self { store, operator }
    }

    async fn node(&self, text: &str) -> Node {
        node_on(&self.store).name(text).ttl(TTL).start().await.unwrap()
    }

    /// A node that leads with one task, in the background.
    async fn leads(&self, text: &str, task: Task) -> (Node, JoinHandle<()>) {
        self.leads_with(text, task, Duration::from_millis(300)).await
    }

    async fn leads_with(&self, text: &str, task: Task, drain: Duration) -> (Node, JoinHandle<()>) {
        let node = self.node(text).await;
        let schedule = Schedule::new().task(task).unwrap();
        let stand = node.candidate("scheduler").drain(drain);
        (node, tokio::spawn(async move { schedule.lead(stand).await.unwrap() }))
    }

    async fn record(&self) -> Option<TaskRecord> {
        self.operator.tasks(Some(&name("t"))).await.ok()?.pop()
    }

    /// Waits until the ledger is as it should be.
    async fn until(&self, wanted: impl Fn(&TaskRecord) -> bool) -> TaskRecord {
        let begun = tokio::time::Instant::now();
        loop {
            let record = self.record().await;
            if let Some(record) = &record
                && wanted(record)
            {
                return record.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "still {record:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_run(&self, wanted: impl Fn(&RunRecord) -> bool) -> RunRecord {
        let record = self.until(|record| record.runs.iter().any(&wanted)).await;
        record.runs.into_iter().find(|run| wanted(run)).unwrap()
    }
}

/// What a task notes about its runs.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<BTreeMap<(Timestamp, Token), usize>>>);

impl Notes {
    fn note(&self, run: &RunContext) {
        *self.0.lock().unwrap().entry((run.tick(), run.token())).or_default() += 1;
    }

    fn task(&self, settings: TaskSettings) -> Task {
        let notes = self.clone();
        Task::new(settings, move |run| {
            notes.note(&run);
            async { Ok::<(), String>(()) }
        })
        .unwrap()
    }

    fn assert_once(&self) {
        let notes = self.0.lock().unwrap();
        assert!(notes.values().all(|times| *times == 1), "{notes:?}");
        let ticks: Vec<_> = notes.keys().map(|(tick, _)| tick).collect();
        assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A task of which every run waits to be let go.
fn gated(settings: TaskSettings) -> (Task, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let task = Task::new(settings, move |_| {
        let gate = inner.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<(), String>(())
        }
    });
    (task.unwrap(), gate)
}

#[tokio::test]
async fn ticks_are_run_and_entered_under_the_token() {
    let place = Scene::new();
    let notes = Notes::default();
    let (node, leading) = place.leads("a", notes.task(often(|_| ()))).await;
    let record = place.until(|record| record.totals.runs >= 5).await;
    assert_eq!(record.role, Some(name("scheduler")));
    for run in record.runs.iter().filter(|run| run.state == RunState::Succeeded) {
        assert_eq!((run.node.as_str(), run.token, run.attempts), ("a", record.token, 1));
        assert!(notes.0.lock().unwrap().contains_key(&(run.tick, run.token)), "{run:?}");
        assert_eq!(run.tick.as_micros() % 100_000, 0);
    }
    soon(node.stop()).await;
    soon(leading).await.unwrap();
    notes.assert_once();
}

#[tokio::test]
async fn the_next_leader_goes_on_where_the_last_one_stopped() {
    let place = Scene::new();
    let notes = Notes::default();
    let settings = || often(|settings| settings.catch_up = 1000);
    let (a, first) = place.leads("a", notes.task(settings())).await;
    place.until(|record| record.totals.runs >= 3).await;
    let (b, second) = place.leads("b", notes.task(settings())).await;
    soon(a.stop()).await;
    soon(first).await.unwrap();
    let runs = place.record().await.unwrap().totals.runs;
    place.until(|record| record.totals.runs >= runs + 3 && record.owed.is_empty()).await;
    soon(b.stop()).await;
    soon(second).await.unwrap();
    notes.assert_once();
    let record = place.record().await.unwrap();
    let row =
        |run: &RunRecord| (run.tick.as_micros()..=run.to.unwrap_or(run.tick).as_micros()).step_by(100_000);
    let mut sorted: Vec<u64> = record.runs.iter().flat_map(row).collect();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] == 100_000), "none is lacking: {sorted:?}");
    assert_eq!(record.totals.missed, 0);
}

#[tokio::test]
async fn what_no_node_could_start_is_missed_and_the_newest_are_caught_up() {
    let place = Scene::new();
    let notes = Notes::default();
    let settings = || {
        often(|settings| {
            settings.late = Duration::from_millis(50);
            settings.catch_up = 2;
        })
    };
    let (a, first) = place.leads("a", notes.task(settings())).await;
    place.until(|record| record.totals.runs >= 1).await;
    soon(a.stop()).await;
    soon(first).await.unwrap();
    let before = place.record().await.unwrap();
    tokio::time::sleep(10 * OFTEN).await;
    let (b, _second) = place.leads("b", notes.task(settings())).await;
    let missed = place.until_run(|run| run.state == RunState::Missed && run.node.as_str() == "b").await;
    assert_eq!(missed.tick.as_micros(), before.tick.as_micros() + 100_000, "from the first that was not run");
    assert!(missed.count >= 5 && missed.why.contains("in time"), "{missed:?}");
    let caught = place.until(|record| record.totals.late >= 2).await;
    assert!(caught.totals.missed >= missed.count);
    soon(b.stop()).await;
    notes.assert_once();
}

#[tokio::test]
async fn overlapping_runs_are_skipped_queued_or_allowed() {
    for overlap in [OverlapPolicy::Skip, OverlapPolicy::Queue, OverlapPolicy::Allow] {
        let place = Scene::new();
        let (task, gate) = gated(often(|settings| settings.overlap = overlap));
        let (node, _leading) = place.leads("a", task).await;
        let running =
            |record: &TaskRecord| record.runs.iter().filter(|run| run.state == RunState::Running).count();
        match overlap {
            OverlapPolicy::Skip => {
                let skipped = place.until_run(|run| run.state == RunState::Skipped && run.count >= 3).await;
                assert!(skipped.why.contains("goes on"), "{skipped:?}");
            }
            OverlapPolicy::Queue => {
                _ = place.until(|record| running(record) == 1 && record.owed.len() >= 3).await
            }
            _ => _ = place.until(|record| running(record) >= 3).await,
        }
        gate.add_permits(1000);
        let record = place.until(|record| record.totals.runs >= 6).await;
        assert_eq!(record.totals.skipped > 0, overlap == OverlapPolicy::Skip, "{overlap:?}: {record:#?}");
        soon(node.stop()).await;
    }
}

#[tokio::test]
async fn what_takes_too_long_is_stopped_and_what_fails_is_tried_again() {
    let place = Scene::new();
    let (task, _gate) = gated(often(|settings| settings.timeout = Some(Duration::from_millis(30))));
    let (node, _leading) = place.leads("a", task).await;
    let run = place.until_run(|run| run.state == RunState::TimedOut).await;
    assert!(run.why.contains("30ms"), "{run:?}");
    soon(node.stop()).await;

    let place = Scene::new();
    let settings = often(|settings| {
        settings.retries = 2;
        settings.backoff = Duration::from_millis(1);
    });
    let task = Task::new(settings, |run| async move {
        if run.attempt() < 3 { Err(format!("attempt {}", run.attempt())) } else { Ok(()) }
    });
    let (node, _leading) = place.leads("a", task.unwrap()).await;
    assert_eq!(place.until_run(|run| run.state == RunState::Succeeded).await.attempts, 3);
    soon(node.stop()).await;

    let place = Scene::new();
    let task =
        Task::new(often(|_| ()), |_| async move { if true { panic!("boom") } else { Ok::<(), String>(()) } });
    let (node, _leading) = place.leads("a", task.unwrap()).await;
    let record = place.until(|record| record.totals.failures >= 2).await;
    let failed = record.runs.iter().find(|run| run.state == RunState::Failed).unwrap();
    assert!(failed.why.contains("boom"), "{failed:?}");
    assert!(
        record.runs.iter().all(|run| run.token == record.token),
        "a run that panics is a failed run, no more"
    );
    soon(node.stop()).await;
}

#[tokio::test]
async fn blocking_tasks_are_told_and_waited_for() {
    let place = Scene::new();
    let at_work = Arc::new(AtomicBool::new(false));
    let inner = at_work.clone();
    let task = Task::blocking(often(|settings| settings.on_stop = StopPolicy::Cancel), move |run| {
        inner.store(true, Ordering::SeqCst);
        while run.check() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(50));
        inner.store(false, Ordering::SeqCst);
        Ok::<(), String>(())
    });
    let (node, leading) = place.leads("a", task.unwrap()).await;
    place.until_run(|run| run.state == RunState::Running).await;
    soon(node.stop()).await;
    assert!(!at_work.load(Ordering::SeqCst));
    soon(leading).await.unwrap();
    assert_eq!(place.until_run(|run| run.state == RunState::Cancelled).await.attempts, 1);
}

/// With a run in flight: it may finish, or is cancelled, as its settings say; the ledger and the report say which.
#[tokio::test]
async fn a_leader_that_stops_finishes_or_cancels_what_is_in_flight() {
    for (on_stop, let_go, state) in [
        (StopPolicy::Finish, true, RunState::Succeeded),
        (StopPolicy::Finish, false, RunState::Cancelled),
        (StopPolicy::Cancel, false, RunState::Cancelled),
    ] {
        let place = Scene::new();
        let (task, gate) = gated(often(|settings| settings.on_stop = on_stop));
        let drain = if let_go { PATIENCE } else { Duration::from_millis(300) };
        let (node, leading) = place.leads_with("a", task, drain).await;
        let run = place.until_run(|run| run.state == RunState::Running).await;
        let stopping = tokio::spawn(async move { node.stop().await });
        if let_go {
            gate.add_permits(1000);
        }
        soon(stopping).await.unwrap();
        soon(leading).await.unwrap();
        let record = place.record().await.unwrap();
        let ended = record.runs.iter().find(|found| found.tick == run.tick).unwrap();
        assert_eq!(ended.state, state, "{on_stop:?}: {record:#?}");
        assert!(record.runs.iter().all(|run| run.state != RunState::Running));
    }
}

/// If the leader dies before the last run has ended, those that had ended must not look interrupted, and be run again.
#[tokio::test]
async fn what_ends_while_a_leader_winds_down_is_entered_at_once() {
    let scene = Scene::new();
    let (slow, gate) = gated(often(|settings| settings.name = name("slow")));
    let (quick, _closed) = gated(often(|settings| settings.on_stop = StopPolicy::Cancel));
    let node = scene.node("a").await;
    let schedule = Schedule::new().task(slow).unwrap().task(quick).unwrap();
    let stand = node.candidate("scheduler").drain(PATIENCE);
    let leading = tokio::spawn(async move { schedule.lead(stand).await.unwrap() });
    let slow = async || {
        let record = scene.operator.tasks(Some(&name("slow"))).await.ok()?.pop()?;
        Some(record.runs.first()?.state)
    };
    while slow().await != Some(RunState::Running) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    scene.until_run(|run| run.state == RunState::Running).await;
    let stopping = tokio::spawn(async move { node.stop().await });
    scene.until_run(|run| run.state == RunState::Cancelled).await;
    assert_eq!(slow().await, Some(RunState::Running), "it is waited for");
    gate.add_permits(1000);
    soon(stopping).await.unwrap();
    soon(leading).await.unwrap();
    assert_eq!(slow().await, Some(RunState::Succeeded));
}

/// It may be gone before the test has heard that it was told to.
#[tokio::test]
async fn work_that_fails_at_once_when_it_is_told_to_stop_was_cancelled() {
    let scene = Scene::new();
    let settings = often(|settings| settings.on_stop = StopPolicy::Cancel);
    let task = Task::new(settings, |run: RunContext| async move {
        run.stopping().await;
        Err::<(), _>("it was ended by signal 15")
    });
    let node = scene.node("a").await;
    let schedule = Schedule::new().task(task.unwrap()).unwrap();
    let stand = node.candidate("scheduler").drain(PATIENCE);
    let leading = tokio::spawn(async move { schedule.lead(stand).await.unwrap() });
    scene.until_run(|run| run.state == RunState::Running).await;
    soon(node.stop()).await;
    soon(leading).await.unwrap();
    scene.until_run(|run| run.state == RunState::Cancelled && run.why == "the leader had to stop").await;
}

/// A schedule changes under a leader that goes on leading: what runs goes on, what is gone begins no more, what is new
/// begins, and no tick is started twice.
#[tokio::test]
async fn a_schedule_is_replaced_while_its_leader_leads() {
    let (scene, notes) = (Scene::new(), Notes::default());
    let node = scene.node("a").await;
    let schedule = Schedule::new();
    let (leading, stand) = (schedule.clone(), node.candidate("scheduler"));
    let leading = tokio::spawn(async move { leading.lead(stand).await.unwrap() });
    let (slow, gate) = gated(often(|settings| settings.name = name("slow")));
    schedule.replace([notes.task(often(|_| ())), slow]).unwrap();
    let twice = [notes.task(often(|_| ())), notes.task(often(|_| ()))];
    assert!(schedule.replace(twice).is_err(), "nothing changes");
    let first = scene.until(|record| record.totals.runs > 1).await;
    let slow_run = async |wanted: RunState| loop {
        let record = scene.operator.tasks(Some(&name("slow"))).await.unwrap().pop();
        let run = record.iter().flat_map(|record| &record.runs).find(|run| run.state == wanted).cloned();
        if let Some(run) = run {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let running = soon(slow_run(RunState::Running)).await;

    // One is gone, while it runs; the other gets another time, and begins anew from now.
    let hourly = TaskSettings { every: Some(Duration::from_secs(3600)), ..often(|_| ()) };
    schedule.replace([notes.task(hourly)]).unwrap();
    let hourly = scene.until(|record| record.when == "every 1h").await;
    assert!(hourly.next.unwrap() >= first.next.unwrap());
    gate.add_permits(1000);
    let ended = soon(slow_run(RunState::Succeeded)).await;
    assert_eq!((ended.tick, ended.token), (running.tick, running.token), "it went on");
    let gone = scene.operator.tasks(Some(&name("slow"))).await.unwrap().pop().unwrap();
    assert_eq!((gone.next, gone.totals.runs), (None, 1));

    // Both are back as they were.
    let (slow, gate) = gated(often(|settings| settings.name = name("slow")));
    gate.add_permits(1000);
    schedule.replace([notes.task(often(|_| ())), slow]).unwrap();
    let runs = scene.record().await.unwrap().totals.runs;
    scene.until(|record| record.totals.runs > runs + 1).await;
    soon(async {
        while scene.operator.tasks(Some(&name("slow"))).await.unwrap()[0].totals.runs < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    notes.assert_once();
    let tokens = scene.record().await.unwrap().runs.iter().map(|run| run.token).collect::<Vec<_>>();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "one tenure: {tokens:?}");
    node.stop().await;
    leading.await.unwrap();
}

#[tokio::test]
async fn operators_pause_resume_and_trigger_with_who_and_why() {
    let place = Scene::new();
    let notes = Notes::default();
    let (node, _leading) = place.leads("a", notes.task(often(|_| ()))).await;
    let task = name("t");
    let missing = place.operator.pause_task(&name("nope"), "").await.unwrap_err().to_string();
    assert!(missing.contains("task \"nope\" not found"), "{missing}");
    place.until(|record| record.totals.runs >= 1).await;
    assert!(place.operator.pause_task(&task, "the disk is full").await.unwrap());
    assert!(!place.operator.pause_task(&task, "again").await.unwrap());
    let record = place.until(|record| record.totals.skipped >= 3).await;
    let order = record.paused.clone().unwrap();
    assert_eq!((order.by.as_str(), order.why.as_str()), ("tester", "the disk is full"));
    assert!(
        record.runs.iter().any(|run| run.state == RunState::Skipped && run.why.contains("paused by tester"))
    );
    let runs = record.totals.runs;
    let id = place.operator.trigger_task(&task, "just once").await.unwrap();
    let run = place.until_run(|run| run.trigger == Some(id) && run.state == RunState::Succeeded).await;
    assert_eq!((run.node.as_str(), place.record().await.unwrap().trigger), ("a", None));
    assert_eq!(place.record().await.unwrap().totals.runs, runs + 1, "nothing else runs while it is paused");
    assert!(place.operator.resume_task(&task, "there is room").await.unwrap());
    assert!(!place.operator.resume_task(&task, "again").await.unwrap());
    place.until(|record| record.totals.runs >= runs + 3).await;
    let entries = place.operator.audit().await.unwrap();
    let told: Vec<_> =
        entries.iter().map(|entry| (entry.action, entry.by.as_str(), entry.why.as_str())).collect();
    assert_eq!(
        told,
        [
            (OperatorAction::PauseTask, "tester", "the disk is full"),
            (OperatorAction::TriggerTask, "tester", "just once"),
            (OperatorAction::ResumeTask, "tester", "there is room"),
        ],
        "what changed nothing is not recorded"
    );
    soon(node.stop()).await;
}

/// The store refuses, or does what it is asked and loses the answer: nothing starts without an acknowledgement, and
/// nothing starts twice because of one that was lost.
#[tokio::test]
async fn without_the_store_nothing_starts_and_lost_answers_start_nothing_twice() {
    let place = Scene::new();
    let notes = Notes::default();
    let (node, _leading) = place.leads("a", notes.task(often(|settings| settings.catch_up = 100))).await;
    place.until(|record| record.totals.runs >= 2).await;
    for fate in [Fate::Unknown, Fate::NotApplied].into_iter().cycle().take(8) {
        place.store.fail(Some(fate));
        tokio::time::sleep(OFTEN * 3 / 2).await;
        place.store.fail(None);
        tokio::time::sleep(OFTEN).await;
    }
    let started = notes.len();
    place.store.fail(Some(Fate::NotApplied));
    tokio::time::sleep(6 * OFTEN).await;
    // What was acknowledged just before may still start.
    assert!(notes.len() <= started + 1, "nothing starts without the store");
    place.store.fail(None);
    let runs = place.until(|record| record.totals.runs > 0).await.totals.runs;
    place.until(|record| record.totals.runs >= runs + 3).await;
    soon(node.stop()).await;
    notes.assert_once();
    let record = place.record().await.unwrap();
    for (tick, token) in notes.0.lock().unwrap().keys() {
        assert!(
            record.runs.iter().any(|run| run.tick == *tick && run.token == *token),
            "{tick:?}: {record:#?}"
        );
    }
}

/// A leader that is gone in the middle of a run: the next one enters that, and runs it again only if it may.
#[tokio::test]
async fn what_a_leader_left_in_the_middle_is_interrupted_and_run_again_if_it_may() {
    for rerun in [false, true] {
        let place = Scene::new();
        let (task, _gate) = gated(often(|settings| settings.rerun = rerun));
        let cut = Arc::new(AtomicBool::new(false));
        let link = metered::Metered { cut: cut.clone(), ..metered::Metered::of(&place.store) };
        let node = Node::builder_with_store(Arc::new(link)).name("a").ttl(TTL).start().await.unwrap();
        let schedule = Schedule::new().task(task).unwrap();
        let stand = node.candidate("scheduler");
        let leading = tokio::spawn(async move { schedule.lead(stand).await });
        let left = place.until_run(|run| run.state == RunState::Running).await;
        // It is cut off for good: neither the run nor its end is ever heard of again.
        cut.store(true, Ordering::SeqCst);
        let notes = Notes::default();
        let (b, _second) = place.leads("b", notes.task(often(|settings| settings.rerun = rerun))).await;
        let found = place.until_run(|run| run.tick == left.tick && run.state == RunState::Interrupted).await;
        assert!(found.why.contains("a was gone"), "{found:?}");
        place
            .until(|record| record.runs.iter().filter(|run| run.state == RunState::Succeeded).count() >= 2)
            .await;
        let again = notes.0.lock().unwrap().keys().find(|(tick, _)| *tick == left.tick).copied();
        assert_eq!(again.is_some(), rerun);
        if let Some((_, token)) = again {
            assert!(token > left.token, "under the next token");
            let run = place.until_run(|run| run.tick == left.tick && run.state == RunState::Succeeded).await;
            assert_eq!(run.attempts, 2);
        }
        soon(b.stop()).await;
        leading.abort();
    }
}

#[tokio::test]
async fn in_the_shadow_it_elects_and_records_and_runs_nothing() {
    let place = Scene::new();
    let notes = Notes::default();
    let schedule = Schedule::new().task(notes.task(often(|_| ()))).unwrap();
    let node = place.node("a").await;
    let stand = node.candidate("scheduler");
    let group = WorkerGroup::new().mode(WorkMode::Shadow).worker(schedule.worker());
    let leading = tokio::spawn(async move { group.lead(stand).await });
    let record = place.until(|record| record.totals.skipped >= 3).await;
    assert!(record.runs.iter().all(|run| run.why.contains("shadow")), "{record:#?}");
    assert!(record.token > Token::new(0), "there was an election");
    soon(node.stop()).await;
    soon(leading).await.unwrap().unwrap();
    assert_eq!(notes.len(), 0);
}

#[tokio::test]
async fn tasks_of_every_node_run_on_each_with_a_ledger_of_its_own() {
    let place = Scene::new();
    let notes = Notes::default();
    let settings = || often(|settings| settings.place = TaskPlacement::EveryNode);
    let mut nodes = Vec::new();
    for text in ["a", "b"] {
        let (node, schedule) =
            (place.node(text).await, Schedule::new().task(notes.task(settings())).unwrap());
        // One node has to found the namespace.
        let _ = node.candidate("scheduler").await.unwrap();
        let running = node.clone();
        nodes.push((node, tokio::spawn(async move { schedule.run_on_every_node(&running).await })));
    }
    soon(async {
        loop {
            let found = place.operator.tasks(Some(&name("t"))).await.unwrap();
            if found.len() == 2 && found.iter().all(|record| record.totals.runs >= 3) {
                assert!(found.iter().all(|record| record.role.is_none()));
                let whose: Vec<_> = found.iter().map(|record| record.node.clone().unwrap()).collect();
                return assert_eq!(whose, [name("a"), name("b")]);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for (node, running) in nodes {
        soon(node.stop()).await;
        soon(running).await.unwrap();
    }
}

/// A task that is moved to another role, with lower tokens, takes its ledger along.
#[tokio::test]
async fn a_task_that_moves_to_another_role_takes_its_past_along() {
    let place = Scene::new();
    let notes = Notes::default();
    let a = place.node("a").await;
    let first = a.candidate("old").await.unwrap();
    for _ in 0..5 {
        drop(soon(first.elected()).await);
    }
    drop(first);
    for role in ["old", "new"] {
        let schedule = Schedule::new().task(notes.task(often(|_| ()))).unwrap();
        let stand = a.candidate(role);
        let leading = tokio::spawn(async move { schedule.lead(stand).await });
        let found = place.until(|record| {
            let new = |run: &&RunRecord| run.token == record.token && run.state == RunState::Succeeded;
            record.role == Some(name(role)) && record.runs.iter().filter(new).count() >= 2
        });
        let record = found.await;
        assert_eq!(record.token > Token::new(5), role == "old", "{record:?}");
        assert!(record.totals.runs >= 2);
        leading.abort();
        let _ = leading.await;
    }
    notes.assert_once();
    soon(a.stop()).await;
}

/// A register that another version wrote is left alone, and its task is not run.
#[tokio::test]
async fn what_cannot_be_read_is_left_alone() {
    let place = Scene::new();
    let notes = Notes::default();
    let (a, first) = place.leads("a", notes.task(often(|_| ()))).await;
    place.until(|record| record.totals.runs >= 1).await;
    soon(a.stop()).await;
    soon(first).await.unwrap();
    let space = name("default");
    let cluster = Query { keys: vec![tenure::store::Key::Cluster], kinds: Vec::new() };
    let cluster = place.store.read(&space, &cluster).await.unwrap().remove(0);
    let epoch = tenure::store::Epoch::new(
        cluster.value.parse::<serde_json::Value>().unwrap()["epoch"].as_u64().unwrap(),
    );
    let ledgers = Query { keys: Vec::new(), kinds: vec![(epoch, Kind::Task)] };
    let found = place.store.read(&space, &ledgers).await.unwrap().remove(0);
    let mut newer: serde_json::Value = found.value.parse().unwrap();
    newer["form"] = 99.into();
    let value = tenure::store::Value::of(&newer, found.value.token);
    let put = Some((tenure::store::Version::new(77), value.clone()));
    let write = tenure::store::Write {
        key: found.key,
        expect: Some(found.version),
        put,
        notify: false,
        requires_lock: false,
    };
    assert!(matches!(place.store.write(&space, &[write]).await.unwrap()[0], Outcome::Applied));
    let runs = notes.len();
    let (b, _second) = place.leads("b", notes.task(often(|_| ()))).await;
    tokio::time::sleep(10 * OFTEN).await;
    assert_eq!(notes.len(), runs);
    assert_eq!(place.store.read(&space, &ledgers).await.unwrap().remove(0).value, value);
    soon(b.stop()).await;
}

/// Ten thousand tasks, of which none is due: the store hears of the beat, and of nothing else.
#[tokio::test]
async fn ten_thousand_idle_tasks_cost_the_store_nothing() {
    let place = Scene::new();
    let store = metered::Metered::of(&place.store);
    let counted = store.operations.clone();
    let node = Node::builder_with_store(Arc::new(store)).name("a").ttl(TTL).start().await.unwrap();
    let mut schedule = Schedule::new();
    for nth in 0..10_000 {
        let settings = TaskSettings::cron(&format!("t{nth}"), "0 0 1 1 *").unwrap();
        schedule = schedule.task(Task::new(settings, |_| async { Ok::<(), String>(()) }).unwrap()).unwrap();
    }
    let stand = node.candidate("scheduler");
    let leading = tokio::spawn(async move { schedule.lead(stand).await });
    let operator = &place.operator;
    soon(async {
        while operator.tasks(None).await.unwrap().len() < 10_000 {
            // A look at ten thousand ledgers is no small thing.
            tokio::time::sleep(TTL / 2).await;
        }
    })
    .await;
    // History of the election is written after the fact.
    tokio::time::sleep(TTL).await;
    let (before, begun) = (counted.load(Ordering::SeqCst), std::time::Instant::now());
    tokio::time::sleep(3 * TTL).await;
    let operations = counted.load(Ordering::SeqCst) - before;
    // A beat and a look, five times in each ttl; none of ten thousand tasks adds to it.
    let beats = usize::try_from(begun.elapsed().as_millis() / 200).unwrap() + 2;
    assert!(operations <= 2 * beats, "{operations} operations in {beats} beats");
    soon(node.stop()).await;
    soon(leading).await.unwrap().unwrap();
}

mod metered {
    //! A store that counts what it is asked, and can be cut off.

    use super::*;
    use async_trait::async_trait;
    use tenure::store::{Entry, Layer, StoreError, Write};

    #[derive(Debug)]
    pub(crate) struct Metered {
        pub(crate) inner: Memory,
        pub(crate) operations: Arc<AtomicUsize>,
        pub(crate) cut: Arc<AtomicBool>,
    }

    impl Metered {
        pub(crate) fn of(store: &Memory) -> Self {
            Self { inner: store.clone(), operations: Arc::default(), cut: Arc::default() }
        }

        fn count(&self) -> Result<(), StoreError> {
            self.operations.fetch_add(1, Ordering::SeqCst);
            match self.cut.load(Ordering::SeqCst) {
                true => Err(StoreError::unknown("link", "it is cut")),
                false => Ok(()),
            }
        }
    }

    impl std::fmt::Display for Metered {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.inner.fmt(f)
        }
    }

    #[async_trait]
    impl Layer for Metered {
        fn inner(&self) -> &dyn Store {
            &self.inner
        }

        async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
            self.count()?;
            self.inner.read(namespace, query).await
        }

        async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
            self.count()?;
            self.inner.write(namespace, writes).await
        }
    }
}
