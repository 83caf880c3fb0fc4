//! Three nodes in this process on a store whose links can be troubled, one of the nodes or the store with a mistake.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::clock::{Clock, lease_nanos};
use tenure::fault_injection::DriverFault;
use tenure::store::{Entry, Key, Kind, Layer, Memory, Name, Outcome, Query, Store, StoreError, Write};
use tenure::{Candidate, Node, Operator, Time, Timestamp, TimingSettings};
use tenure_core::Mutant;
use tenure_torture::clock::{ClockError, WrongClock};
use tenure_torture::judge::{
    self, DataLoss, FaultScope, InjectedFault, JudgeCase, JudgeTerms, Note, NoteKind, NoteWriter, Verdict,
};
use tenure_torture::workload::{self, Fence};
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_millis(400);
/// Answers may be late by much, and others look often.
const BEAT: Duration = Duration::from_millis(30);
const OP_TIMEOUT: Duration = Duration::from_millis(140);
const LATE: u64 = 100;
const ROLES: [&str; 2] = ["role-1", "role-2"];
const NODES: usize = 3;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    Engine(Mutant),
    Driver(DriverFault),
    Store(Flaw),
    /// The fence takes every write, of work that is not stopped.
    OpenFence,
    /// Lease clocks go wrong by so many millionths, one slow, the next fast; nodes reckon with 1 %.
    Clocks(i32),
}

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A write is applied whatever is there: the unconditional `EXPIRE`, the unlock of another's lock.
    IgnoresVersions,
    /// A claim is acknowledged and not kept.
    ForgetsWrites,
    /// Reads show how it was a while ago.
    ShowsTheOld,
}

/// How the link of a node is.
#[derive(Debug, Default)]
struct Link {
    loses_requests: AtomicBool,
    loses_replies: AtomicBool,
    /// How late answers are, in milliseconds.
    delay: AtomicU64,
    /// Whether the loop of the node stands still, as a thread does that gets no processor.
    stuck: AtomicBool,
}

impl Link {
    async fn up(&self) -> Result<(), StoreError> {
        self.fail_if(&self.loses_requests).await
    }

    async fn down(&self) -> Result<(), StoreError> {
        tokio::time::sleep(Duration::from_millis(self.delay.load(Ordering::Acquire))).await;
        self.fail_if(&self.loses_replies).await
    }

    /// As a client does that waited for a while.
    async fn fail_if(&self, lost: &AtomicBool) -> Result<(), StoreError> {
        if !lost.load(Ordering::Acquire) {
            return Ok(());
        }
        tokio::time::sleep(OP_TIMEOUT / 2).await;
        Err(StoreError::unknown("rig", "no answer"))
    }

    fn heal(&self) {
        self.loses_requests.store(false, Ordering::Release);
        self.loses_replies.store(false, Ordering::Release);
        self.delay.store(0, Ordering::Release);
        self.stuck.store(false, Ordering::Release);
    }
}

/// A handle on the store, over a link.
#[derive(Debug)]
struct Rigged {
    inner: Memory,
    link: Arc<Link>,
    flaw: Option<Flaw>,
    count: AtomicU64,
    old: Mutex<BTreeMap<Key, Vec<Entry>>>,
}

impl Rigged {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    async fn current(&self, namespace: &Name, key: &Key) -> Option<tenure::store::Version> {
        let query = Query { keys: vec![key.clone()], kinds: Vec::new() };
        self.inner.read(namespace, &query).await.ok()?.first().map(|entry| entry.version)
    }

    async fn bend(&self, namespace: &Name, write: &Write) -> Write {
        let mut write = write.clone();
        if self.has(Flaw::IgnoresVersions) && matches!(write.key.kind(), Kind::Role | Kind::Session) {
            write.expect = self.current(namespace, &write.key).await;
        }
        write
    }

    fn forgets(&self, write: &Write) -> bool {
        self.has(Flaw::ForgetsWrites)
            && write.key.kind() == Kind::Role
            && self.count.fetch_add(1, Ordering::AcqRel).is_multiple_of(2)
    }

    /// What was there when it was read the time before.
    fn older(&self, entry: Entry) -> Entry {
        let mut old = self.old.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = old.entry(entry.key.clone()).or_default();
        if seen.last().is_none_or(|last| last.version != entry.version) {
            seen.push(entry.clone());
        }
        if entry.key.kind() == Kind::Role { seen[seen.len().saturating_sub(2)].clone() } else { entry }
    }
}

impl fmt::Display for Rigged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Rigged {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.link.up().await?;
        let mut found = self.inner.read(namespace, query).await?;
        if self.has(Flaw::ShowsTheOld) {
            found = found.into_iter().map(|entry| self.older(entry)).collect();
        }
        self.link.down().await?;
        Ok(found)
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.link.up().await?;
        let mut outcomes = Vec::new();
        for write in writes {
            if self.forgets(write) {
                outcomes.push(Outcome::Applied);
            } else {
                let write = self.bend(namespace, write).await;
                outcomes.extend(self.inner.write(namespace, &[write]).await?);
            }
        }
        self.link.down().await?;
        Ok(outcomes)
    }
}

/// Nodes with a mistake, under torture.
pub(crate) struct Round {
    runtime: Runtime,
    pen: NoteWriter,
    links: Vec<Arc<Link>>,
    nodes: Vec<Node>,
    candidates: Vec<Candidate>,
    operator: Operator,
    notes: Vec<Note>,
    injected: Vec<InjectedFault>,
    began: u64,
}

impl Round {
    /// Starts the nodes and waits until a node leads.
    pub(crate) fn begin(mistake: Mistake) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = Memory::new();
        let pen = NoteWriter::in_memory("injector", 0);
        let highest = Highest::default();
        let links: Vec<Arc<Link>> = (0..NODES).map(|_| Arc::default()).collect();
        let start = |index: usize| start(&store, index, &links[index], &pen, mistake, &highest);
        let nodes: Vec<Node> = (0..NODES).map(|index| runtime.block_on(start(index))).collect();
        let candidate = |node: &Node| runtime.block_on(node.candidate(ROLES[0]).into_future()).unwrap();
        let candidates = nodes.iter().map(candidate).collect();
        let operator = Operator::new(Arc::new(store.clone()), Name::new("default").unwrap(), "injector");
        let mut round = Self {
            runtime,
            pen,
            links,
            nodes,
            candidates,
            operator,
            notes: Vec::new(),
            injected: Vec::new(),
            began: 0,
        };
        round.wait(2 * TTL);
        round.began = lease_nanos();
        round
    }

    fn wait(&self, span: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(span).await });
    }

    fn leader(&self) -> usize {
        self.candidates.iter().position(|candidate| candidate.lead().is_some()).unwrap_or(0)
    }

    /// Troubles the leader's link in some way, for so long.
    fn trouble(&mut self, what: &str, lasts: Duration, change: impl Fn(&Link)) {
        let (leader, from) = (self.leader(), lease_nanos());
        change(&self.links[leader]);
        self.wait(lasts);
        self.links[leader].heal();
        let (on, what) = (FaultScope::Node(format!("node-{leader}")), format!("{what} of node-{leader}"));
        self.injected.push(InjectedFault {
            kind: what.clone(),
            what,
            from,
            to: lease_nanos(),
            on,
            loses: DataLoss::None,
        });
        self.wait(TTL / 2);
    }

    /// Nothing comes any more and the loop stands still: only the deadline is left.
    fn stick(&mut self) {
        self.trouble("stuck", 3 * TTL, |link| {
            link.loses_requests.store(true, Ordering::Release);
            link.stuck.store(true, Ordering::Release);
        });
    }

    /// One of everything.
    pub(crate) fn torture(&mut self) {
        let set = |flag: &AtomicBool| flag.store(true, Ordering::Release);
        self.trouble("lose-replies", 2 * TTL, |link| set(&link.loses_replies));
        self.trouble("black-hole", 3 * TTL, |link| {
            set(&link.loses_requests);
            set(&link.loses_replies);
        });
        self.trouble("lose-requests", TTL, |link| set(&link.loses_requests));
        self.trouble("delay", 2 * TTL, |link| link.delay.store(LATE, Ordering::Release));
        self.stick();
        for role in [ROLES[1], ROLES[0], ROLES[1]] {
            let (operator, role) = (self.operator.clone(), Name::new(role).unwrap());
            let asked = async move { operator.step_down(&role, "torture", 2 * TTL).await };
            let _ = self.runtime.block_on(asked);
            self.wait(TTL / 2);
        }
        tenure::testing::force_loss(&self.nodes[self.leader()]);
        self.wait(TTL);
        self.trouble("lose-replies", 4 * TTL, |link| set(&link.loses_replies));
        self.notes.extend(self.pen.take());
    }

    /// Everything up to now. Leaders must return, but within no set time here.
    pub(crate) fn judge(&self) -> Verdict {
        let mut notes = self.notes.clone();
        notes.sort_by_key(|note| note.t);
        let terms = JudgeTerms {
            bound: 2 * TTL,
            bound_of_two: 2 * TTL,
            allowance: Duration::from_secs(10),
            lease: TTL,
            recovery: 2 * TTL,
            reconnect: 2 * TTL,
            wind_down: Duration::from_secs(5),
            expected: (self.began, notes.last().map_or(0, |note| note.t)),
            roles: Vec::new(),
            tokens_rise: false,
        };
        judge::judge(&JudgeCase { notes, injected: self.injected.clone(), terms })
    }
}

async fn start(
    store: &Memory,
    index: usize,
    link: &Arc<Link>,
    pen: &NoteWriter,
    mistake: Mistake,
    highest: &Highest,
) -> Node {
    let flaw = if let Mistake::Store(flaw) = mistake { Some(flaw) } else { None };
    let (count, old) = (AtomicU64::default(), Mutex::default());
    let rigged = Rigged { inner: store.clone(), link: link.clone(), flaw, count, old };
    let name = format!("node-{index}");
    let pen = pen.of(&name, u32::try_from(index).unwrap() + 1);
    let mut builder = Node::builder_with_store(workload::recorded(Arc::new(rigged), &pen, None)).name(&name);
    let wrong = if let Mistake::Clocks(ppm) = mistake { ppm } else { 0 };
    let rate_ppm = if index == 0 { -wrong } else { wrong };
    let error = ClockError { rate_ppm, origin: lease_nanos() * u64::from(wrong == 0) + 1, wall: 0 };
    let lease = Arc::new(WrongClock::new(error, None));
    let clock = Arc::new(Sticky { lease: lease.clone(), link: link.clone() });
    builder = builder.timing(settings()).clock(clock);
    builder = match mistake {
        Mistake::Engine(mutant) => builder.mutant(mutant),
        Mistake::Driver(fault) => builder.inject_fault(fault),
        Mistake::OpenFence => builder.inject_fault(DriverFault::WorkNotStopped),
        Mistake::None | Mistake::Store(_) | Mistake::Clocks(_) => builder,
    };
    let node = workload::start(builder.drain(Duration::from_secs(1)), &pen).await.expect("it starts");
    let fence = fence(pen.clone(), highest.clone(), mistake == Mistake::OpenFence);
    for (number, role) in ROLES.iter().enumerate() {
        let role = (*role).to_owned();
        let (pen, fence, clock) = (pen.clone(), fence.clone(), lease.clone());
        tokio::spawn(workload::campaign(node.clone(), role, pen, fence, clock, number == 1));
    }
    node
}

fn settings() -> TimingSettings {
    TimingSettings {
        ttl: Some(TTL),
        beat: Some(BEAT),
        op_timeout: Some(OP_TIMEOUT),
        ..TimingSettings::default()
    }
}

/// A clock that keeps the loop waiting, which asks for the time of day with every step; `check()` does not.
#[derive(Debug)]
struct Sticky {
    lease: Arc<WrongClock>,
    link: Arc<Link>,
}

impl Clock for Sticky {
    fn now(&self) -> Time {
        self.lease.now()
    }

    fn wall(&self) -> Timestamp {
        let is_loop = std::thread::current().name().is_some_and(|name| name.starts_with("tenure-"));
        while is_loop && self.link.stuck.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.lease.wall()
    }
}

type Highest = Arc<Mutex<BTreeMap<String, u64>>>;

/// The fence as one node reaches it.
fn fence(pen: NoteWriter, highest: Highest, open: bool) -> Fence {
    Arc::new(move |role, token| {
        {
            let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = highest.entry(role.clone()).or_insert(0);
            let taken = open || token >= *seen;
            *seen = token.max(*seen);
            pen.note(NoteKind::Fenced { role, token, taken });
        }
        Box::pin(std::future::ready(()))
    })
}
