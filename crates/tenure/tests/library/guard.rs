//! Guard locks through the library, on a lock in this process: taken before the work, given back after it, never two at work.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use tenure::event::EventKind;
use tenure::guard::{GuardLock, Hold, SharedGuardLock};
use tenure::store::StoreError;
use tenure::testing::{Memory, node_on};
use tenure::{Candidate, EndReason, Node, WorkOutcome};

/// So long that a busy machine misses no beat and no renewal by itself.
const TTL: Duration = Duration::from_secs(3);
const GUARD_TTL: Duration = Duration::from_secs(4);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// The lock, as its server has it.
#[derive(Debug, Default)]
struct Server {
    holder: Mutex<Option<String>>,
    renewed: Mutex<Option<Instant>>,
    unreachable: AtomicBool,
    /// How many contenders are at work, and whether it was ever given back, or had by two, meanwhile.
    working: AtomicUsize,
    released: AtomicUsize,
    wrong: AtomicBool,
}

impl Server {
    fn holder(&self) -> Option<String> {
        self.holder.lock().unwrap().clone()
    }

    fn set_holder(&self, holder: Option<&str>) {
        *self.holder.lock().unwrap() = holder.map(str::to_owned);
    }

    fn begin_work(&self) {
        if self.working.fetch_add(1, Ordering::SeqCst) > 0 {
            self.wrong.store(true, Ordering::SeqCst);
        }
    }

    fn end_work(&self) {
        self.working.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One contender.
#[derive(Debug)]
struct Contender {
    server: Arc<Server>,
    name: &'static str,
    ttl: Duration,
    /// This contender alone does not reach the server.
    cut_off: bool,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fake:lock")
    }
}

impl Contender {
    fn reach(&self) -> Result<(), StoreError> {
        match self.cut_off || self.server.unreachable.load(Ordering::SeqCst) {
            true => Err(StoreError::unknown("fake", "cannot be reached")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl GuardLock for Contender {
    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn hold(&self) -> Result<Hold, StoreError> {
        self.reach()?;
        let mut holder = self.server.holder.lock().unwrap();
        let found = holder.get_or_insert_with(|| self.name.to_owned());
        if found != self.name {
            return Ok(Hold::HeldBy(found.clone()));
        }
        *self.server.renewed.lock().unwrap() = Some(Instant::now());
        Ok(Hold::Held)
    }

    async fn release(&self) -> Result<(), StoreError> {
        self.reach()?;
        let mut holder = self.server.holder.lock().unwrap();
        let working = self.server.working.load(Ordering::SeqCst) > 0;
        if holder.take_if(|holder| holder == self.name).is_some() && working {
            self.server.wrong.store(true, Ordering::SeqCst);
        }
        self.server.released.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn contender(server: &Arc<Server>, name: &'static str) -> SharedGuardLock {
    Arc::new(Contender { server: server.clone(), name, ttl: GUARD_TTL, cut_off: false })
}

async fn node(store: &Memory, name: &str) -> Node {
    node_on(store).name(name).ttl(TTL).start().await.unwrap()
}

async fn guarded(store: &Memory, server: &Arc<Server>, name: &'static str) -> (Node, Candidate) {
    let node = node(store, name).await;
    let candidate = node.candidate("scheduler").guard(contender(server, name)).await.unwrap();
    (node, candidate)
}

#[tokio::test]
async fn a_node_is_not_elected_before_it_holds_its_guard_lock() {
    let (store, server) = (Memory::new(), Arc::new(Server::default()));
    server.set_holder(Some("old-1"));
    let node = node(&store, "a").await;
    let mut events = node.events();
    let candidate = node.candidate("scheduler").guard(contender(&server, "a")).await.unwrap();
    let waits = async {
        loop {
            match events.next().await.expect("the node lives").kind {
                EventKind::WaitingForGuard { lock, why, .. } => return (lock, why),
                EventKind::Elected { .. } => panic!("elected without the lock"),
                _ => {}
            }
        }
    };
    assert_eq!(soon(waits).await, ("fake:lock".to_owned(), "held by old-1".to_owned()));
    assert!(candidate.elected_within(Duration::from_millis(1500)).await.is_none());
    assert!(candidate.lead().is_none(), "request handlers are told no either");
    let leads = async {
        while candidate.leader().is_none_or(|leader| leader.node.as_str() != "a") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(leads).await;
    server.set_holder(None);
    let tenure = soon(candidate.elected()).await.unwrap();
    assert!(tenure.check() && tenure.remaining() <= GUARD_TTL);
    assert_eq!(server.holder().as_deref(), Some("a"));
    let told = async { while !matches!(events.next().await.unwrap().kind, EventKind::Elected { .. }) {} };
    soon(told).await;
}

#[tokio::test]
async fn work_stops_before_a_guard_lock_that_is_not_renewed_runs_out() {
    let (store, server) = (Memory::new(), Arc::new(Server::default()));
    let (_node, candidate) = guarded(&store, &server, "a").await;
    let tenure = soon(candidate.elected()).await.unwrap();
    let lead = tenure.lead();
    // Renewals go on for longer than one of them counts.
    tokio::time::sleep(GUARD_TTL + GUARD_TTL / 4).await;
    assert!(lead.check(), "it was renewed");
    server.unreachable.store(true, Ordering::SeqCst);
    // The last moment of which the work knew that it led, whenever it got to ask.
    let last = Mutex::new(Instant::now());
    let work = async |lead: tenure::Lead| {
        while server.unreachable.load(Ordering::SeqCst) {
            let asked = Instant::now();
            if lead.check() {
                *last.lock().unwrap() = asked;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let held = soon(tenure.hold(work)).await;
    assert_eq!(held, WorkOutcome::Lost(EndReason::GuardLost));
    let since = *last.lock().unwrap() - server.renewed.lock().unwrap().unwrap();
    assert!(since < GUARD_TTL, "it led for {since:?} after the last renewal");
    assert_eq!(soon(lead.lost()).await, EndReason::GuardLost);
    server.unreachable.store(false, Ordering::SeqCst);
    assert!(soon(candidate.elected()).await.unwrap().token() > lead.token());
}

/// A lock that another program has is lost, whatever the deadline was.
#[tokio::test]
async fn a_guard_lock_that_another_program_holds_ends_the_tenure_at_once() {
    let (store, server) = (Memory::new(), Arc::new(Server::default()));
    let (_node, candidate) = guarded(&store, &server, "a").await;
    let tenure = soon(candidate.elected()).await.unwrap();
    let (lead, mut deadlines) = (tenure.lead(), tenure.deadlines());
    server.set_holder(Some("thief"));
    let told = async { while deadlines.moved().await.unwrap() > tenure::Time::from_nanos(0) {} };
    soon(told).await;
    assert!(!lead.check() && lead.remaining().is_zero());
    soon(lead.cancelled()).await;
    let held = soon(tenure.hold(|_| std::future::pending::<()>())).await;
    assert_eq!(held, WorkOutcome::Lost(EndReason::GuardLost));
    assert_eq!(server.holder().as_deref(), Some("thief"), "its lock was left alone");
}

#[tokio::test]
async fn the_guard_lock_is_given_back_after_the_work_stopped_and_before_the_role_is() {
    let (store, server) = (Memory::new(), Arc::new(Server::default()));
    let (_node, candidate) = guarded(&store, &server, "a").await;
    let tenure = soon(candidate.elected()).await.unwrap();
    let (_other, successor) = guarded(&store, &server, "b").await;
    let proof = tenure.lead();
    let (server, candidate) = (&server, &candidate);
    let held = soon(tenure.hold(|lead| async move {
        server.begin_work();
        // Not sooner: work that is told to stop before it has begun is not begun.
        candidate.set_eligible(false);
        lead.draining().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(server.holder().as_deref(), Some("a"), "it is held while the work winds down");
        server.end_work();
    }));
    assert_eq!(held.await, WorkOutcome::Completed(()));
    let next = soon(successor.elected()).await.unwrap();
    assert!(next.check() && !proof.check(), "two at once");
    assert_eq!(server.holder().as_deref(), Some("b"));
    assert!(!server.wrong.load(Ordering::SeqCst), "the lock was given back while work ran");
}

#[tokio::test]
async fn a_node_that_stops_while_it_waits_leaves_the_line() {
    let (store, server) = (Memory::new(), Arc::new(Server::default()));
    server.set_holder(Some("old-1"));
    let (node, candidate) = guarded(&store, &server, "a").await;
    let waits = async {
        while candidate.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(waits).await;
    soon(node.stop()).await;
    assert!(soon(candidate.elected()).await.is_none());
    assert_eq!(server.released.load(Ordering::SeqCst), 1);
    assert_eq!(server.holder().as_deref(), Some("old-1"));
}

/// Nodes on two stores are elected at once: only the lock keeps them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_with_one_guard_lock_never_work_at_once() {
    let server = Arc::new(Server::default());
    let a = guarded(&Memory::new(), &server, "a").await;
    let b = guarded(&Memory::new(), &server, "b").await;
    let turns = |candidate: Candidate| {
        let server = server.clone();
        tokio::spawn(async move {
            for _ in 0..4 {
                let tenure = soon(candidate.elected()).await.unwrap();
                server.begin_work();
                tokio::time::sleep(Duration::from_millis(200)).await;
                assert!(tenure.check());
                server.end_work();
                tenure.resign();
            }
        })
    };
    let (first, second) = (turns(a.1), turns(b.1));
    soon(first).await.unwrap();
    soon(second).await.unwrap();
    assert!(!server.wrong.load(Ordering::SeqCst), "two at work");
}

#[tokio::test]
async fn a_node_that_does_not_reach_its_guard_lock_leaves_the_role_to_another() {
    let (store, server) = (Memory::new(), Arc::new(Server::default()));
    let cut_off = Contender { server: server.clone(), name: "a", ttl: GUARD_TTL, cut_off: true };
    let first = node(&store, "a").await;
    let candidate = first.candidate("scheduler").guard(Arc::new(cut_off)).await.unwrap();
    let leads = async {
        while candidate.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(leads).await;
    let (_second, successor) = guarded(&store, &server, "b").await;
    assert!(soon(successor.elected()).await.unwrap().check());
}

#[tokio::test]
async fn a_guard_lock_too_short_to_stop_work_in_is_refused() {
    let (node, server) = (node(&Memory::new(), "a").await, Arc::new(Server::default()));
    let ttl = Duration::from_secs(1);
    let lock = Contender { server, name: "a", ttl, cut_off: false };
    let error = node.candidate("scheduler").guard(Arc::new(lock)).await.unwrap_err().to_string();
    assert!(error.contains("ttl of 1s is too short") && error.contains("1s 800ms"), "{error}");
}

#[test]
fn urls_of_guard_locks_are_told_apart() {
    let name = tenure::Name::new("a").unwrap();
    for (url, part) in [
        ("scheduler", "named by a URL"),
        ("redis://u:hunter2@h/x", "this build knows"),
        ("etcd://u:hunter2@h", "names an election"),
    ] {
        let error = tenure::guard::open(url, &name).expect_err(url);
        assert!(error.to_string().contains(part) && error.is_misnamed(), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
    let lock = tenure::guard::open("etcd://127.0.0.1:1/jobs?ttl=20s", &name).unwrap();
    assert_eq!((lock.to_string().as_str(), lock.ttl().as_secs()), ("etcd://127.0.0.1:1/jobs", 20));
}

/// The negative control: a node that looks at its session alone goes on after its lock is another's.
#[cfg(feature = "mutants")]
#[tokio::test]
async fn a_node_that_ignores_its_guard_lock_is_caught() {
    let (store, server) = (Memory::new(), Arc::new(Server::default()));
    let fault = tenure::fault_injection::DriverFault::GuardIgnored;
    let node = node_on(&store).name("a").ttl(TTL).inject_fault(fault).start().await.unwrap();
    let candidate = node.candidate("scheduler").guard(contender(&server, "a")).await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    server.set_holder(Some("thief"));
    tokio::select! {
        _ = tenure.stop_requested() => panic!("it looks at the lock"),
        () = tokio::time::sleep(GUARD_TTL / 2) => {}
    }
    assert!(tenure.check(), "two at work: the tests above see the difference");
}
