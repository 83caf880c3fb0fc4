//! Clauses S: what a watch tells.

use super::Harness;
use super::kit::*;
use crate::{Key, Kind, Signal, Write};

/// S1: a write that notifies is signalled to every other watch, any other is not.
pub async fn s1_notifying_writes_are_signalled_and_beats_are_not(harness: &dyn Harness) {
    let (writer, watcher, space) = (harness.open().await, harness.open().await, fresh());
    if !watcher.describe().await.expect("a description").notifies {
        return;
    }
    let mut watches = [watcher.watch(&space), watcher.watch(&space)];
    let first = must(&*writer, &space, put(&key(Kind::Role, "r"), None, tokened(1))).await;
    for watch in &mut watches {
        until(watch, &first.key).await;
        let found = get(&*watcher, &space, &first.key).await;
        assert_eq!(found, Some(entry(&first)), "what is signalled can be read");
    }
    let silent = Write { notify: false, ..create(&node("silent"), "beat") };
    let silent = must(&*writer, &space, silent).await;
    let again = Write { notify: false, ..put(&silent.key, Some(version(&silent)), value("beat")) };
    must(&*writer, &space, again).await;
    must(&*writer, &space, put(&first.key, Some(version(&first)), tokened(2))).await;
    let last = must(&*writer, &space, create(&node("last"), "1")).await;
    for watch in &mut watches {
        let seen = until(watch, &last.key).await;
        let told = |key: &Key| {
            let about = |signal: &&Signal| matches!(signal, Signal::Changed(changed) if changed == key);
            seen.iter().filter(about).count()
        };
        assert!(told(&first.key) > 0, "a second change is signalled too: {seen:?}");
        assert_eq!(told(&silent.key), 0, "a write that does not notify is not signalled: {seen:?}");
    }
    must(&*writer, &space, create(&node("doomed"), "1")).await;
    let doomed = get(&*writer, &space, &node("doomed")).await.expect("just written");
    for watch in &mut watches {
        until(watch, &doomed.key).await;
    }
    must(&*writer, &space, delete(&doomed.key, Some(doomed.version))).await;
    for watch in &mut watches {
        let signal = next(watch).await;
        let told = match &signal {
            Some(Signal::Changed(changed)) => *changed == doomed.key,
            other => matches!(other, Some(Signal::Resync)),
        };
        assert!(told, "a deletion says look again, not {signal:?}");
    }
}

/// S2: a watch that was not polled while very much happened tells the end of it, or that it missed something.
pub async fn s2_a_watch_that_missed_signals_says_so(harness: &dyn Harness) {
    let (writer, watcher, space) = (harness.open().await, harness.open().await, fresh());
    if !watcher.describe().await.expect("a description").notifies {
        return;
    }
    let mut watch = watcher.watch(&space);
    let mut expected = std::collections::BTreeSet::new();
    for round in 0..12 {
        let batch: Vec<_> = (0..250).map(|nth| create(&node(&format!("n{round}.{nth}")), "1")).collect();
        write_all(&*writer, &space, &batch).await;
        expected.extend(batch.into_iter().map(|write| write.key));
    }
    let last = must(&*writer, &space, create(&node("last"), "1")).await;
    for signal in until(&mut watch, &last.key).await {
        match signal {
            Signal::Changed(changed) => drop(expected.remove(&changed)),
            Signal::Resync => return,
            other => panic!("{other:?}"),
        }
    }
    assert!(expected.is_empty(), "{} changes were lost without a word", expected.len());
}

/// S3: a watch tells nothing of other namespaces.
pub async fn s3_signals_stay_in_their_namespace(harness: &dyn Harness) {
    let (writer, watcher, space, other) = (harness.open().await, harness.open().await, fresh(), fresh());
    if !watcher.describe().await.expect("a description").notifies {
        return;
    }
    let mut watch = watcher.watch(&space);
    let elsewhere = must(&*writer, &other, create(&node("a"), "1")).await;
    must(&*writer, &other, delete(&elsewhere.key, Some(version(&elsewhere)))).await;
    let here = must(&*writer, &space, create(&node("b"), "2")).await;
    let seen = until(&mut watch, &here.key).await;
    assert_eq!(seen.len(), 1, "only what happened in the namespace is told: {seen:?}");
}
