//! Clauses X: writes and a read in one round trip.

use super::Harness;
use super::kit::*;
use crate::{Exchanged, Kind, Name, Outcome, Query, Store, Write};

/// Each part of an exchange whose parts must both succeed.
async fn exchange(
    store: &dyn Store,
    space: &Name,
    writes: &[Write],
    query: Query,
) -> (Vec<Outcome>, Vec<crate::Entry>) {
    let Exchanged { written, read } = store.exchange(space, writes, &query).await;
    let (written, mut read) = (written.expect("it writes"), read.expect("it reads"));
    assert_eq!(written.len(), writes.len(), "one outcome for each item");
    read.sort_by(|a, b| a.key.cmp(&b.key));
    (written, read)
}

/// X1: each part has the outcome that it would have alone.
pub async fn x1_the_parts_of_an_exchange_are_independent(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let other = must(&*store, &space, create(&node("other"), "1")).await;
    let task = must(&*store, &space, create(&key(Kind::Task, "a"), "2")).await;
    let query = || Query { keys: vec![node("other"), node("none")], kinds: vec![(EPOCH, Kind::Task)] };
    let mut seen = [entry(&other), entry(&task)];
    seen.sort_by(|a, b| a.key.cmp(&b.key));
    let beat = create(&node("own"), "1");
    let (written, read) = exchange(&*store, &space, std::slice::from_ref(&beat), query()).await;
    assert!(matches!(written[..], [Outcome::Applied]), "{written:?}");
    assert_eq!(read, seen);
    assert_eq!(get(&*store, &space, &node("own")).await, Some(entry(&beat)), "it was written");
    // A conflict, a refusal and a success: the read is the same.
    let stale = put(&node("own"), Some(nonce()), value("2"));
    let role = must(&*store, &space, put(&key(Kind::Role, "r"), None, tokened(7))).await;
    let falls = put(&role.key, Some(version(&role)), tokened(6));
    let next = put(&node("next"), None, value("3"));
    let (written, read) = exchange(&*store, &space, &[stale, falls, next.clone()], query()).await;
    assert!(matches!(&written[0], Outcome::Conflict(Some(found)) if *found == entry(&beat)), "{written:?}");
    assert!(
        matches!(written[1..], [Outcome::Failed(_) | Outcome::Conflict(_), Outcome::Applied]),
        "{written:?}"
    );
    assert_eq!(read, seen);
    // Nothing to read, and nothing that may be written.
    let again = put(&node("next"), Some(version(&next)), value("4"));
    let (written, read) = exchange(&*store, &space, std::slice::from_ref(&again), Query::default()).await;
    assert!(matches!(written[..], [Outcome::Applied]) && read.is_empty(), "{written:?} {read:?}");
    let refused = delete(&role.key, Some(version(&role)));
    let (written, read) = exchange(&*store, &space, &[refused], query()).await;
    assert!(matches!(written[..], [Outcome::Failed(_) | Outcome::Conflict(_)]), "{written:?}");
    assert_eq!(read, seen);
}

/// X2: the read is of a moment after the exchange was asked for; its own writes may show, or not yet.
pub async fn x2_an_exchange_reads_what_was_there_when_it_was_asked(harness: &dyn Harness) {
    let (store, other, space) = (harness.open().await, harness.open().await, fresh());
    let mut own = must(&*store, &space, create(&node("own"), "0")).await;
    let mut peer = must(&*other, &space, create(&node("peer"), "0")).await;
    for round in 1..20 {
        peer = must(&*other, &space, put(&peer.key, Some(version(&peer)), value(&round.to_string()))).await;
        let beat = put(&own.key, Some(version(&own)), value(&round.to_string()));
        let query = Query { keys: vec![own.key.clone(), peer.key.clone()], kinds: Vec::new() };
        let (written, read) = exchange(&*store, &space, std::slice::from_ref(&beat), query).await;
        assert!(matches!(written[..], [Outcome::Applied]), "{written:?}");
        let found = |write: &Write| read.contains(&entry(write));
        assert!(found(&peer), "what was written before it was asked shows: {read:?}");
        assert!(found(&own) != found(&beat), "its own write shows or does not: {read:?}");
        own = beat;
    }
}
