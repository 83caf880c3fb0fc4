//! Clauses W: what a write does.

use std::sync::{Arc, Barrier};

use super::kit::*;
use super::{Harness, run};
use crate::{Class, Fate, Key, Kind, MAX_BATCH, Name, Outcome, SharedStore, Value, Version, Write};

/// W1: a conflict changes nothing and shows what is there.
pub async fn w1_a_conflict_changes_nothing_and_shows_what_is_there(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let first = must(&*store, &space, create(&node("a"), "1")).await;
    let second = must(&*store, &space, put(&node("a"), Some(version(&first)), value("2"))).await;
    for expect in [Some(version(&first)), Some(nonce()), None] {
        must_conflict(&*store, &space, &put(&node("a"), expect, value("3")), Some(&second)).await;
        must_conflict(&*store, &space, &delete(&node("a"), expect), Some(&second)).await;
    }
    must_conflict(&*store, &space, &put(&node("b"), Some(nonce()), value("3")), None).await;
    assert_eq!(get(&*store, &space, &node("a")).await, Some(entry(&second)));
    assert_eq!(get(&*store, &space, &node("b")).await, None);
}

/// W2: of many writers against one version, or against absence, exactly one wins. Each has its own handle and its
/// own thread.
pub async fn w2_one_winner_per_version(harness: &dyn Harness) {
    const RACERS: usize = 8;
    let space = fresh();
    let mut stores = Vec::new();
    for _ in 0..RACERS {
        stores.push(harness.open().await);
    }
    let mut expect = None;
    for _ in 0..5 {
        let winners = race(&stores, &space, expect);
        assert_eq!(winners.len(), 1, "of {RACERS} writers against one version, {} won", winners.len());
        let there = get(&*stores[0], &space, &node("prize")).await.expect("one store won");
        assert_eq!(there, entry(&winners[0]), "what is there is what the winner wrote");
        expect = Some(there.version);
    }
}

fn race(stores: &[SharedStore], space: &Name, expect: Option<Version>) -> Vec<Write> {
    let barrier = Arc::new(Barrier::new(stores.len()));
    let racers = stores.iter().map(|store| {
        let (store, space, barrier) = (store.clone(), space.clone(), barrier.clone());
        std::thread::spawn(move || {
            let write = put(&node("prize"), expect, value("mine"));
            let mut won = false;
            barrier.wait();
            run(async { won = matches!(write_one(&*store, &space, &write).await, Outcome::Applied) });
            won.then_some(write)
        })
    });
    let racers: Vec<_> = racers.collect();
    racers.into_iter().filter_map(|racer| racer.join().expect("a racer came through")).collect()
}

/// W3: a conflict or a refusal of one item keeps no other from being applied.
pub async fn w3_items_of_a_batch_are_independent(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let role = must(&*store, &space, put(&key(Kind::Role, "r"), None, tokened(5))).await;
    let batch = [
        create(&node("a"), "1"),
        put(&node("b"), Some(nonce()), value("never")),
        create(&node("c"), "3"),
        delete(&role.key, Some(version(&role))),
        create(&node("d"), "5"),
        create(&node("a"), "again"),
    ];
    let outcomes = write_all(&*store, &space, &batch).await;
    let fits = |outcome: &Outcome, expected: char| match outcome {
        Outcome::Applied => expected == '+',
        Outcome::Conflict(_) => expected == '-',
        Outcome::Failed(_) => expected == 'x',
    };
    let all = outcomes.iter().zip("+-+x+-".chars()).all(|(outcome, expected)| fits(outcome, expected));
    assert!(all, "one outcome for each item, in order: {outcomes:?}");
    for nth in [0, 2, 4] {
        assert_eq!(get(&*store, &space, &batch[nth].key).await, Some(entry(&batch[nth])));
    }
    assert_eq!(get(&*store, &space, &node("b")).await, None);
    assert_eq!(write_all(&*store, &space, &[]).await.len(), 0, "an empty batch is none");
}

/// W4: `None` matches only absence, and a version never does, not even after a deletion.
pub async fn w4_versions_never_match_absence(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    must_conflict(&*store, &space, &put(&node("a"), Some(nonce()), value("1")), None).await;
    must_conflict(&*store, &space, &delete(&node("a"), Some(nonce())), None).await;
    let first = must(&*store, &space, create(&node("a"), "1")).await;
    must_conflict(&*store, &space, &create(&node("a"), "2"), Some(&first)).await;
    must_conflict(&*store, &space, &delete(&node("a"), None), Some(&first)).await;
    must(&*store, &space, delete(&node("a"), Some(version(&first)))).await;
    assert_eq!(get(&*store, &space, &node("a")).await, None, "deleted");
    must_conflict(&*store, &space, &put(&node("a"), Some(version(&first)), value("3")), None).await;
    let again = must(&*store, &space, create(&node("a"), "4")).await;
    must_conflict(&*store, &space, &put(&node("a"), Some(version(&first)), value("5")), Some(&again)).await;
}

/// W5: the register of a role is never deleted; others are.
pub async fn w5_roles_are_never_deleted(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let role = must(&*store, &space, put(&key(Kind::Role, "r"), None, tokened(1))).await;
    must_refuse(&*store, &space, &delete(&role.key, Some(version(&role)))).await;
    must_refuse(&*store, &space, &delete(&role.key, None)).await;
    assert_eq!(get(&*store, &space, &role.key).await, Some(entry(&role)));
    for kind in [Kind::Node, Kind::RoleControl, Kind::NodeControl, Kind::History] {
        let written = must(&*store, &space, create(&key(kind, "x"), "1")).await;
        must(&*store, &space, delete(&written.key, Some(version(&written)))).await;
        assert_eq!(get(&*store, &space, &written.key).await, None);
    }
}

/// W6: a token never falls nor vanishes, whatever version is expected.
pub async fn w6_tokens_never_fall(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let role = key(Kind::Role, "r");
    let high = must(&*store, &space, put(&role, None, tokened((1 << 53) - 2))).await;
    for expect in [Some(version(&high)), Some(nonce()), None] {
        must_refuse(&*store, &space, &put(&role, expect, tokened(9_007_199_254_740_989))).await;
        must_refuse(&*store, &space, &put(&role, expect, value("no token"))).await;
    }
    assert_eq!(get(&*store, &space, &role).await, Some(entry(&high)));
    let same = must(&*store, &space, put(&role, Some(version(&high)), tokened((1 << 53) - 2))).await;
    let higher = must(&*store, &space, put(&role, Some(version(&same)), tokened((1 << 53) - 1))).await;
    assert_eq!(get(&*store, &space, &role).await, Some(entry(&higher)), "the largest token is exact");
}

/// W7: versions bit for bit, values byte for byte.
pub async fn w7_versions_and_values_come_back_as_given(harness: &dyn Harness) {
    let (store, other, space) = (harness.open().await, harness.open().await, fresh());
    let texts = ["{ \"b\" : 1.0,\n\t\"a\":18446744073709551615 }", "\"\\u0000 é ✓ 𝄞 ' \\\" % \\\\\"", "null"];
    let versions = [u128::MAX, 1, 1 << 127, 0x00ff_0000_0000_0000_0000_0000_0000_00ff];
    for (nth, number) in versions.into_iter().enumerate() {
        for (mth, text) in texts.into_iter().enumerate() {
            let version = Version::new(number ^ KEEP_APART[mth]);
            let content = Value { token: None, json: text.into() };
            let place = node(&format!("n{nth}.{mth}"));
            let write = Write {
                key: place,
                expect: None,
                put: Some((version, content)),
                notify: false,
                requires_lock: false,
            };
            must(&*store, &space, write.clone()).await;
            assert_eq!(get(&*other, &space, &write.key).await, Some(entry(&write)));
            must_conflict(&*other, &space, &create(&write.key, "late"), Some(&write)).await;
        }
    }
}

/// A version is never used twice, not even in a test.
const KEEP_APART: [u128; 3] = [0, 0x0100, 0x0200];

/// W8: what was acknowledged is there after every process died and came back.
pub async fn w8_acknowledged_writes_survive(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    if store.describe().await.expect("a description").class == Class::C {
        return;
    }
    let role = must(&*store, &space, put(&key(Kind::Role, "r"), None, tokened(7))).await;
    let beat = Write { notify: false, ..create(&Key::Session(EPOCH, session()), "beat") };
    must(&*store, &space, beat.clone()).await;
    let gone = must(&*store, &space, create(&node("gone"), "1")).await;
    must(&*store, &space, delete(&gone.key, Some(version(&gone)))).await;
    store.close().await;
    drop(store);
    harness.restart().await;
    let store = harness.open().await;
    assert_eq!(get(&*store, &space, &role.key).await, Some(entry(&role)));
    assert_eq!(get(&*store, &space, &beat.key).await, Some(entry(&beat)));
    assert_eq!(get(&*store, &space, &gone.key).await, None, "deletions survive too");
}

/// W9: the largest batch and the largest value fit; what is larger is carried out or refused, never cut.
pub async fn w9_large_batches_and_values_fit(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let batch: Vec<_> =
        (0..MAX_BATCH).map(|nth| create(&node(&format!("n{nth}")), &nth.to_string())).collect();
    let outcomes = write_all(&*store, &space, &batch).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied)));
    let mut expected: Vec<_> = batch.iter().map(entry).collect();
    expected.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(read(&*store, &space, Vec::new(), vec![(EPOCH, Kind::Node)]).await, expected);
    let large = create(&key(Kind::History, "large"), &"x".repeat(harness.longest_value() - 2));
    must(&*store, &space, large.clone()).await;
    assert_eq!(get(&*store, &space, &large.key).await, Some(entry(&large)));
    let larger = create(&key(Kind::History, "larger"), &"x".repeat(harness.longest_value() - 1));
    match write_one(&*store, &space, &larger).await {
        Outcome::Applied => assert_eq!(get(&*store, &space, &larger.key).await, Some(entry(&larger))),
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::NotApplied, "{error}"),
        Outcome::Conflict(found) => panic!("nothing was there: {found:?}"),
    }
}
