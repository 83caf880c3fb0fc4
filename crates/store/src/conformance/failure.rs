//! Clauses F: what may be assumed when something fails.

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};

use super::Harness;
use super::kit::*;
use crate::{Fate, Kind, Name, Outcome, Query, SharedStore, StoreError, Takeover, Write};

/// F1: writes that were under way when the store was closed are there if acknowledged, absent if `NotApplied`.
pub async fn f1_an_error_never_hides_what_happened(harness: &dyn Harness) {
    let (store, other, space) = (harness.open().await, harness.open().await, fresh());
    for (write, fate) in closed_amid_writes(&*store, &space).await {
        let there = get(&*other, &space, &write.key).await;
        match fate {
            None => assert_eq!(there, Some(entry(&write)), "acknowledged"),
            Some(Fate::NotApplied | Fate::Severed) => assert_eq!(there, None, "reported as not applied"),
            Some(Fate::Unknown) => {}
        }
    }
}

/// F2: what was reported as not applied never comes later.
pub async fn f2_what_was_not_applied_never_comes_later(harness: &dyn Harness) {
    let (store, other, space) = (harness.open().await, harness.open().await, fresh());
    let role = must(&*store, &space, put(&key(Kind::Role, "r"), None, tokened(5))).await;
    must_refuse(&*store, &space, &delete(&role.key, Some(version(&role)))).await;
    must_refuse(&*store, &space, &put(&role.key, Some(version(&role)), tokened(4))).await;
    let refused = closed_amid_writes(&*store, &space).await;
    let late = create(&node("late"), "1");
    let error = store.write(&space, std::slice::from_ref(&late)).await.expect_err("the store was closed");
    assert_eq!(error.fate(), Fate::NotApplied);
    must(&*other, &space, create(&node("fence"), "1")).await;
    let refused = refused.iter().filter(|(_, fate)| *fate == Some(Fate::NotApplied));
    for write in refused.map(|(write, _)| write).chain([&late]) {
        assert_eq!(get(&*other, &space, &write.key).await, None);
    }
    assert_eq!(get(&*other, &space, &role.key).await, Some(entry(&role)));
}

/// Begins many writes, some before the store is closed and some after, and tells what became of each: nothing if it
/// was applied.
async fn closed_amid_writes(store: &dyn crate::Store, space: &Name) -> Vec<(Write, Option<Fate>)> {
    let writes: Vec<_> = (0..64).map(|nth| create(&node(&format!("amid-{nth}")), "1")).collect();
    let (early, late) = writes.split_at(48);
    let write = |write| store.write(space, std::slice::from_ref(write));
    let all = async {
        tokio::join!(join_all(early.iter().map(write)), store.close(), join_all(late.iter().map(write)))
    };
    let (early, (), late) = tokio::time::timeout(PATIENCE, all).await.expect("closing and writing both end");
    let fates = early.into_iter().chain(late).map(fate_of);
    writes.iter().cloned().zip(fates).collect()
}

fn fate_of(answer: Result<Vec<Outcome>, StoreError>) -> Option<Fate> {
    match answer.map(|mut outcomes| outcomes.remove(0)) {
        Ok(Outcome::Applied) => None,
        Ok(Outcome::Failed(error)) | Err(error) => Some(error.fate()),
        Ok(Outcome::Conflict(found)) => panic!("no other store wrote there: {found:?}"),
    }
}

/// F3: an operation whose answer is abandoned is done or not, never half; and the store stays usable.
pub async fn f3_an_abandoned_operation_does_no_harm(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    for round in 0..20 {
        let (a, b) = (create(&node(&format!("a{round}")), "1"), create(&node(&format!("b{round}")), "2"));
        let batch = [a.clone(), b.clone()];
        let _ = store.write(&space, &batch).now_or_never();
        let query = Query { keys: vec![a.key.clone()], kinds: Vec::new() };
        let _ = store.read(&space, &query).now_or_never();
        for write in [a, b] {
            let rewritten = write_one(&*store, &space, &write).await;
            match rewritten {
                Outcome::Applied => {}
                Outcome::Conflict(Some(found)) => assert_eq!(found, entry(&write), "whole"),
                other => panic!("{other:?}"),
            }
            assert_eq!(get(&*store, &space, &write.key).await, Some(entry(&write)));
        }
    }
}

/// F4: a closed store refuses everything at once, its watches end, and no other handle is harmed.
pub async fn f4_a_closed_store_refuses_and_its_watches_end(harness: &dyn Harness) {
    let (store, other, space) = (harness.open().await, harness.open().await, fresh());
    let mut watch = store.watch(&space);
    must(&*store, &space, create(&node("before"), "1")).await;
    store.close().await;
    let end = async { while watch.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, end).await.expect("the watch ends");
    assert!(next(&mut store.watch(&space)).await.is_none(), "so does one that is opened afterwards");
    for error in every_error(&store, &space).await {
        assert_eq!(error.fate(), Fate::NotApplied, "{error}");
    }
    store.close().await;
    must(&*other, &space, create(&node("after"), "1")).await;
}

/// F5: no error, `Debug` or `Display` shows a secret.
pub async fn f5_secrets_are_never_shown(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let role = must(&*store, &space, put(&key(Kind::Role, "r"), None, tokened(5))).await;
    let refused = write_one(&*store, &space, &delete(&role.key, Some(version(&role)))).await;
    let described = store.describe().await.expect("a description");
    let mut shown = format!("{store:?} {store} {described:?} {refused:?}");
    store.close().await;
    for error in every_error(&store, &space).await {
        shown += &format!(" {error} {error:?}");
    }
    for secret in harness.secrets() {
        assert!(!shown.contains(&secret), "a secret is shown");
    }
}

/// The error of each operation of a store that was closed.
async fn every_error(store: &SharedStore, space: &Name) -> Vec<StoreError> {
    let query = Query { keys: vec![node("before")], kinds: Vec::new() };
    let mut errors = vec![
        store.read(space, &query).await.expect_err("reading a closed store"),
        store.read(space, &Query::default()).await.expect_err("reading nothing from a closed store"),
        store.write(space, &[create(&node("x"), "1")]).await.expect_err("writing to a closed store"),
        store.describe().await.expect_err("describing a closed store"),
    ];
    if let Some(locks) = store.liveness() {
        let acquired = locks.acquire_lock(space, session(), Takeover::OnDisconnect).await;
        errors.push(acquired.expect_err("acquiring a lock on a closed store"));
    }
    errors
}
