//! What members and clients of a group of peers see while links are cut and disks are slow could have happened one after
//! the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::peers_kit::*;
use tenure::store::{Fate, Name, Outcome, Query, Store, Version, Write};
use tenure_torture::linearizability::search::{RegisterAction, RegisterOperation, SetOutcome, check};

/// Everything that was asked and answered, on one clock.
#[derive(Default)]
struct Notes {
    clock: AtomicU64,
    ops: Mutex<Vec<RegisterOperation>>,
}

impl Notes {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn add(&self, key: &str, from: u64, act: RegisterAction) {
        self.ops.lock().unwrap().push(RegisterOperation { key: key.to_owned(), act, from, to: self.now() });
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
        notes.add(name, from, RegisterAction::Read(found));
        let from = notes.now();
        let put =
            if (draw >> 40).is_multiple_of(4) && found.is_some() { None } else { Some(from << 8 | seed) };
        let mut write = put_or_delete(name, found, put);
        write.notify = false;
        let seen = match store.write(&space(), &[write]).await.map(|mut outcomes| outcomes.remove(0)) {
            Ok(Outcome::Applied) => SetOutcome::Applied,
            Ok(Outcome::Conflict(entry)) => {
                SetOutcome::Conflict(entry.map(|entry| entry.version.get() as u64))
            }
            Ok(Outcome::Failed(error)) | Err(error) if error.fate() == Fate::NotApplied => SetOutcome::Never,
            _ => SetOutcome::Unknown,
        };
        notes.add(name, from, RegisterAction::Set { expect: found, put, seen });
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
    let town = Town::linked(3, "&timeout=500ms");
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
    let rounds = if std::env::var_os("TENURE_LONG").is_some() { 60 } else { 6 };
    for round in 0..rounds {
        let leader = town.raft_leader().await;
        let (a, b) = ((leader + 1) % 3, (leader + 2) % 3);
        match round % 6 {
            0 => town.links().split(&[&[leader], &[a, b]]),
            1 => town.links().split(&[&[leader, a], &[b]]),
            2 => town.links().connect(|from, _| from != leader),
            3 => town.links().connect(|from, to| from == a || to == a),
            4 => town.member(leader).slow_disk(Duration::from_millis(30)),
            _ => town.links().split(&[&[0], &[1], &[2]]),
        }
        tokio::time::sleep(Duration::from_millis(1200)).await;
        town.links().heal();
        town.member(leader).slow_disk(Duration::ZERO);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    stop.store(true, Ordering::Release);
    futures_util::future::join_all(tasks).await;
    let ops = notes.ops.lock().unwrap();
    let applied = ops
        .iter()
        .filter(|op| matches!(op.act, RegisterAction::Set { seen: SetOutcome::Applied, .. }))
        .count();
    assert!(applied > 20, "only {applied} writes came through");
    if let Err(history) = check(&ops) {
        panic!("this cannot have happened:\n{history:#?}");
    }
}

/// The same request comes again, by way of whichever member, when the members have forgotten it: the register that it made, and
/// that was deleted meanwhile, stays deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_members_have_forgotten_is_not_carried_out_again() {
    let town = Town::with(1, "&timeout=60s");
    town.all_settled().await;
    let member = town.member(0);
    let ask = || {
        let mut client = wire::Insider::at(town.address(0));
        client.say(&wire::hello());
        client.hear().expect("welcome");
        client.say(&wire::write(5, 1, "x"));
        client.hear().expect("an answer");
    };
    let fuzz = Name::new("fuzz").unwrap();
    let query = Query { keys: vec![key("x")], kinds: Vec::new() };
    ask();
    let made = member.read(&fuzz, &query).await.unwrap();
    assert_eq!(made[0].version, Version::new(9));
    let delete = Write { put: None, ..put("x", Some(9), 0) };
    assert!(matches!(member.write(&fuzz, &[delete]).await.unwrap()[..], [Outcome::Applied]));
    for _ in 0..40 {
        let entries =
            (0..256).map(|_| async { member.write(&space(), &[put("y", Some(1), 2)]).await.unwrap() });
        futures_util::future::join_all(entries).await;
    }
    ask();
    assert!(member.read(&fuzz, &query).await.unwrap().is_empty(), "it came back");
}
