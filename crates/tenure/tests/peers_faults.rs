//! Partitions of a group of peers: never two leaders, a minority demotes itself, one leader after healing; and what
//! clients saw meanwhile could have happened one after the other.

mod peers_kit;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peers_kit::*;
use tenure::Node;
use tenure::store::{Fate, Outcome, Store};
use tenure_testkit::linear::{Act, Op, Seen, check};

const TTL: Duration = Duration::from_secs(1);

/// Who works, and whether two ever did at once.
#[derive(Default)]
struct Floor {
    working: Mutex<Vec<usize>>,
    crowded: AtomicBool,
}

/// Somebody who works until this is dropped.
struct Worker(Arc<Floor>, usize);

impl Worker {
    fn begin(floor: &Arc<Floor>, nth: usize) -> Self {
        let mut working = floor.working.lock().unwrap();
        working.push(nth);
        if working.len() > 1 {
            floor.crowded.store(true, Ordering::Release);
        }
        Self(floor.clone(), nth)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.working.lock().unwrap().retain(|nth| *nth != self.1);
    }
}

/// A node on each member, all campaigning for one role.
struct Election {
    town: Town,
    floor: Arc<Floor>,
    nodes: Vec<Node>,
}

impl Election {
    async fn of(count: usize) -> Self {
        let (town, floor) = (Town::with(count, "&timeout=1s"), Arc::new(Floor::default()));
        let mut nodes = Vec::new();
        for nth in 0..count {
            town.settled(nth).await;
            let node = Node::with_store(town.member(nth)).name(format!("n{nth}")).ttl(TTL);
            let node = node.start().await.unwrap();
            let (floor, campaigner) = (floor.clone(), node.clone());
            tokio::spawn(async move {
                let work = |_| {
                    let worker = Worker::begin(&floor, nth);
                    async move {
                        let _worker = worker;
                        std::future::pending::<()>().await;
                    }
                };
                campaigner.lead("r", work).await
            });
            nodes.push(node);
        }
        Self { town, floor, nodes }
    }

    fn working(&self) -> Option<usize> {
        self.floor.working.lock().unwrap().first().copied()
    }

    /// Waits until one of these works.
    async fn one_of(&self, those: &[usize]) -> usize {
        until(|| self.working().filter(|nth| those.contains(nth))).await
    }

    /// Waits until nobody of these works.
    async fn none_of(&self, those: &[usize]) {
        until(|| (!self.working().is_some_and(|nth| those.contains(&nth))).then_some(())).await;
    }

    async fn end(self) {
        assert!(!self.floor.crowded.load(Ordering::Acquire), "two worked at once");
        futures_util::future::join_all(self.nodes.iter().map(Node::stop)).await;
        assert!(!self.floor.crowded.load(Ordering::Acquire), "two worked at once");
    }
}

async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < EVENTUALLY, "it never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_against_one_and_each_for_itself() {
    let election = Election::of(3).await;
    let first = election.one_of(&[0, 1, 2]).await;
    let others: Vec<usize> = (0..3).filter(|nth| *nth != first).collect();
    // The leader alone: it stops, and one of the others works.
    election.town.split(&[&[first], &others]);
    election.none_of(&[first]).await;
    let second = election.one_of(&others).await;
    // Everybody alone: nobody works.
    election.town.split(&[&[0], &[1], &[2]]);
    election.none_of(&[0, 1, 2]).await;
    election.town.heal();
    let third = election.one_of(&[0, 1, 2]).await;
    // A follower alone: nothing happens to the leader that has a majority.
    let follower = (0..3).find(|nth| *nth != third).unwrap();
    let rest: Vec<usize> = (0..3).filter(|nth| *nth != follower).collect();
    election.town.split(&[&rest, &[follower]]);
    tokio::time::sleep(2 * TTL).await;
    election.one_of(&rest).await;
    election.town.heal();
    election.one_of(&[0, 1, 2]).await;
    assert!([first, second, third].iter().all(|nth| *nth < 3));
    election.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bridges_one_way_streets_and_flapping() {
    let election = Election::of(3).await;
    let first = election.one_of(&[0, 1, 2]).await;
    let [a, b] = [(first + 1) % 3, (first + 2) % 3];
    // A bridge: `b` hears both sides, the others do not hear each other. There is a majority either way.
    election.town.connect(|from, to| from == b || to == b);
    tokio::time::sleep(TTL).await;
    election.one_of(&[0, 1, 2]).await;
    // The leader is heard by nobody, but hears everybody.
    election.town.connect(|from, _| from != first);
    election.one_of(&[a, b]).await;
    // It hears nobody, but everybody hears it.
    election.town.connect(|_, to| to != first);
    election.one_of(&[a, b]).await;
    for _ in 0..10 {
        election.town.split(&[&[first], &[a, b]]);
        tokio::time::sleep(TTL / 10).await;
        election.town.heal();
        tokio::time::sleep(TTL / 10).await;
    }
    election.one_of(&[0, 1, 2]).await;
    election.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_against_three_and_two_against_two() {
    let election = Election::of(5).await;
    let first = election.one_of(&[0, 1, 2, 3, 4]).await;
    let second = (first + 1) % 5;
    let rest: Vec<usize> = (0..5).filter(|nth| *nth != first && *nth != second).collect();
    election.town.split(&[&[first, second], &rest]);
    election.none_of(&[first, second]).await;
    election.one_of(&rest).await;
    election.town.heal();
    election.end().await;

    let election = Election::of(4).await;
    election.one_of(&[0, 1, 2, 3]).await;
    election.town.split(&[&[0, 1], &[2, 3]]);
    election.none_of(&[0, 1, 2, 3]).await;
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(election.working(), None, "half is no majority");
    election.town.heal();
    election.one_of(&[0, 1, 2, 3]).await;
    election.end().await;
}

/// Everything that was asked and answered, on one clock.
#[derive(Default)]
struct Notes {
    clock: AtomicU64,
    ops: Mutex<Vec<Op>>,
}

impl Notes {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn add(&self, key: &str, from: u64, act: Act) {
        self.ops.lock().unwrap().push(Op { key: key.to_owned(), act, from, to: self.now() });
    }
}

/// Reads, and writes on what it read, creating and deleting, until it is told to stop.
async fn bother(store: Arc<dyn Store>, notes: Arc<Notes>, stop: Arc<AtomicBool>, seed: u64) {
    let mut draw = seed * 7919 + 1;
    while !stop.load(Ordering::Acquire) {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let name = ["x", "y", "z"][(draw >> 33) as usize % 3];
        let from = notes.now();
        let Ok(found) = version(&*store, name).await else { continue };
        let found = found.map(|version| version as u64);
        notes.add(name, from, Act::Read(found));
        let from = notes.now();
        let put =
            if (draw >> 40).is_multiple_of(4) && found.is_some() { None } else { Some(from << 8 | seed) };
        let mut write = put_or_delete(name, found, put);
        write.ring = false;
        let seen = match store.write(&space(), &[write]).await.map(|mut outcomes| outcomes.remove(0)) {
            Ok(Outcome::Applied) => Seen::Applied,
            Ok(Outcome::Conflict(entry)) => Seen::Conflict(entry.map(|entry| entry.version.0 as u64)),
            Ok(Outcome::Failed(error)) | Err(error) if error.fate() == Fate::NotApplied => Seen::Never,
            _ => Seen::Unknown,
        };
        notes.add(name, from, Act::Set { expect: found, put, seen });
    }
}

fn put_or_delete(name: &str, expect: Option<u64>, version: Option<u64>) -> tenure::store::Write {
    let mut write = put(name, expect.map(u128::from), version.unwrap_or(0).into());
    if version.is_none() {
        write.put = None;
    }
    write
}

/// What members and clients saw through partitions, restarts and a slow disk is what one register after the other
/// could have shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_linearizable() {
    let town = Town::with(3, "&timeout=500ms");
    town.all_settled().await;
    let (notes, stop) = (Arc::new(Notes::default()), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for seed in 0..6 {
        let store: Arc<dyn Store> = match seed {
            0..3 => town.member(seed),
            3..5 => town.client(),
            _ => town.client_of(0),
        };
        tasks.push(tokio::spawn(bother(store, notes.clone(), stop.clone(), seed as u64)));
    }
    for round in 0..6 {
        let leader = town.raft_leader().await;
        let (a, b) = ((leader + 1) % 3, (leader + 2) % 3);
        match round % 6 {
            0 => town.split(&[&[leader], &[a, b]]),
            1 => town.split(&[&[leader, a], &[b]]),
            2 => town.connect(|from, _| from != leader),
            3 => town.connect(|from, to| from == a || to == a),
            4 => town.member(leader).slow_disk(Duration::from_millis(30)),
            _ => town.split(&[&[0], &[1], &[2]]),
        }
        tokio::time::sleep(Duration::from_millis(1200)).await;
        town.heal();
        town.member(leader).slow_disk(Duration::ZERO);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    stop.store(true, Ordering::Release);
    futures_util::future::join_all(tasks).await;
    let ops = notes.ops.lock().unwrap();
    let applied = ops.iter().filter(|op| matches!(op.act, Act::Set { seen: Seen::Applied, .. })).count();
    assert!(applied > 20, "only {applied} writes came through");
    if let Err(history) = check(&ops) {
        panic!("this cannot have happened:\n{history:#?}");
    }
}
