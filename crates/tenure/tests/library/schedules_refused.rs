//! What the store refuses to write for good, until a person has done something. A ledger: what ended is entered later, and
//! each tick is accounted for. A session: the node says so.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure::ledger::{RunState, TaskRecord};
use tenure::schedule::{Schedule, Task, TaskSettings};
use tenure::store::{Kind, Layer, Memory, Outcome, Store, StoreError, Write};
use tenure::{Name, Node, Operator};
use tokio::sync::Semaphore;

const OFTEN: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(180);

/// A store whose user may not write registers of a kind for a while.
#[derive(Debug)]
struct Refusing {
    inner: Memory,
    kind: Kind,
    refuses: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
}

impl fmt::Display for Refusing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refusing")
    }
}

#[async_trait]
impl Layer for Refusing {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let is_refused = |write: &Write| write.key.kind() == self.kind;
        if !self.refuses.load(Ordering::Acquire) || !writes.iter().any(is_refused) {
            return self.inner.write(namespace, writes).await;
        }
        assert!(writes.iter().all(is_refused), "these are written by themselves");
        self.refused.fetch_add(1, Ordering::AcqRel);
        let no = || Outcome::Failed(StoreError::not_applied("refusing", "NOPERM").permanent());
        Ok(writes.iter().map(|_| no()).collect())
    }
}

async fn until(operator: &Operator, wanted: impl Fn(&TaskRecord) -> bool) -> TaskRecord {
    let task = Name::new("t").unwrap();
    let right = async {
        loop {
            let record = operator.tasks(Some(&task)).await.ok().and_then(|mut found| found.pop());
            if let Some(record) = record.filter(&wanted) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, right).await.expect("the ledger is so in time")
}

#[tokio::test]
async fn a_ledger_that_is_refused_for_a_while_loses_no_tick_and_no_end() {
    let memory = Memory::new();
    let (refuses, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (inner, kind) = (memory.clone(), Kind::Task);
    let store = Refusing { inner, kind, refuses: refuses.clone(), refused: refused.clone() };
    let operator = Operator::new(Arc::new(memory), Name::new("default").unwrap(), "tester");
    let node = Node::builder_with_store(Arc::new(store))
        .name("a")
        .ttl(Duration::from_secs(1))
        .start()
        .await
        .unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let settings = TaskSettings { history: 200, ..TaskSettings::every("t", OFTEN).unwrap() };
    let task = Task::new(settings, move |_| {
        let gate = inner.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<(), String>(())
        }
    });
    let schedule = Schedule::new().task(task.unwrap()).unwrap();
    let stand = node.candidate("scheduler");
    let leading = tokio::spawn(async move { schedule.lead(stand).await.unwrap() });
    let before = until(&operator, |record| record.totals.runs == 1).await;
    let first = before.runs.iter().find(|run| run.state == RunState::Running).expect("it runs").tick;
    refuses.store(true, Ordering::Release);
    gate.add_permits(1000);
    let many = async {
        while refused.load(Ordering::Acquire) < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, many).await.expect("it is tried again");
    refuses.store(false, Ordering::Release);
    let after = until(&operator, |record| record.totals.runs >= 4).await;
    let end = after.runs.iter().find(|run| run.tick == first).expect("the first run is on record");
    assert_eq!(end.state, RunState::Succeeded, "{after:#?}");
    let ticks = (after.tick.as_micros() - first.as_micros()) / 100_000 + 1;
    let known = after.totals.runs + after.totals.missed + after.totals.skipped - before.totals.skipped;
    assert_eq!(known + after.owed.len() as u64, ticks, "{after:#?}");
    tokio::time::timeout(PATIENCE, node.stop()).await.expect("it stops");
    leading.await.unwrap();
}

/// Also where the store answers, and refuses one write alone.
#[tokio::test]
async fn a_node_whose_session_is_refused_is_told_so() {
    let (refuses, refused) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let store = Refusing { inner: Memory::new(), kind: Kind::Session, refuses, refused };
    let node = Node::builder_with_store(Arc::new(store)).name("a").start_without_waiting().unwrap();
    let why = tokio::time::timeout(PATIENCE, node.store_refused()).await.expect("it is told");
    assert!(why.to_string().contains("NOPERM"), "{why}");
}
