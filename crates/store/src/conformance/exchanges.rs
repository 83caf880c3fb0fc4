//! Clauses X: writes and a read in one round trip.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join;

use super::Harness;
use super::kit::*;
use crate::{Entry, Exchanged, Kind, Name, Outcome, Query, Store, Write};

/// How writes and a read are asked for together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Any,
    ReadLast,
}

/// Each part of what must succeed in both.
async fn both(
    store: &dyn Store,
    space: &Name,
    writes: &[Write],
    query: Query,
    order: Order,
) -> (Vec<Outcome>, Vec<Entry>) {
    let Exchanged { written, read } = match order {
        Order::Any => store.exchange(space, writes, &query).await,
        Order::ReadLast => store.write_then_read(space, writes, &query).await,
    };
    let (written, mut read) = (written.expect("it writes"), read.expect("it reads"));
    assert_eq!(written.len(), writes.len(), "one outcome for each item");
    read.sort_by(|a, b| a.key.cmp(&b.key));
    (written, read)
}

/// X1: each part has the outcome that it would have alone.
pub async fn x1_the_parts_of_an_exchange_are_independent(harness: &dyn Harness) {
    let store = harness.open().await;
    for order in [Order::Any, Order::ReadLast] {
        parts_are_independent(&*store, order).await;
    }
}

async fn parts_are_independent(store: &dyn Store, order: Order) {
    let space = fresh();
    let other = must(store, &space, create(&node("other"), "1")).await;
    let task = must(store, &space, create(&key(Kind::Task, "a"), "2")).await;
    let query = || Query { keys: vec![node("other"), node("none")], kinds: vec![(EPOCH, Kind::Task)] };
    let mut seen = [entry(&other), entry(&task)];
    seen.sort_by(|a, b| a.key.cmp(&b.key));
    let beat = create(&node("own"), "1");
    let (written, read) = both(store, &space, std::slice::from_ref(&beat), query(), order).await;
    assert!(matches!(written[..], [Outcome::Applied]), "{written:?}");
    assert_eq!(read, seen);
    assert_eq!(get(store, &space, &node("own")).await, Some(entry(&beat)), "it was written");
    // A conflict, a refusal and a success: the read is the same.
    let stale = put(&node("own"), Some(nonce()), value("2"));
    let role = must(store, &space, put(&key(Kind::Role, "r"), None, tokened(7))).await;
    let falls = put(&role.key, Some(version(&role)), tokened(6));
    let next = put(&node("next"), None, value("3"));
    let (written, read) = both(store, &space, &[stale, falls, next.clone()], query(), order).await;
    assert!(matches!(&written[0], Outcome::Conflict(Some(found)) if *found == entry(&beat)), "{written:?}");
    assert!(
        matches!(written[1..], [Outcome::Failed(_) | Outcome::Conflict(_), Outcome::Applied]),
        "{written:?}"
    );
    assert_eq!(read, seen);
    // Nothing to read, and nothing that may be written.
    let again = put(&node("next"), Some(version(&next)), value("4"));
    let (written, read) = both(store, &space, std::slice::from_ref(&again), Query::default(), order).await;
    assert!(matches!(written[..], [Outcome::Applied]) && read.is_empty(), "{written:?} {read:?}");
    let refused = delete(&role.key, Some(version(&role)));
    let (written, read) = both(store, &space, &[refused], query(), order).await;
    assert!(matches!(written[..], [Outcome::Failed(_) | Outcome::Conflict(_)]), "{written:?}");
    assert_eq!(read, seen);
    let (written, read) = both(store, &space, &[], query(), order).await;
    assert!(written.is_empty(), "{written:?}");
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
        let (written, read) = both(&*store, &space, std::slice::from_ref(&beat), query, Order::Any).await;
        assert!(matches!(written[..], [Outcome::Applied]), "{written:?}");
        let found = |write: &Write| read.contains(&entry(write));
        assert!(found(&peer), "what was written before it was asked shows: {read:?}");
        assert!(found(&own) != found(&beat), "its own write shows or does not: {read:?}");
        own = beat;
    }
}

/// X3: of two that each write and then look for what the other writes, at least one finds it.
pub async fn x3_a_read_after_writes_misses_nothing_older(harness: &dyn Harness) {
    let (store, other, space) = (harness.open().await, harness.open().await, fresh());
    let mut own = must(&*store, &space, create(&node("own"), "0")).await;
    let mut peer = must(&*other, &space, create(&node("peer"), "0")).await;
    for round in 1..=100 {
        let claim = put(&own.key, Some(version(&own)), value(&round.to_string()));
        let (keys, kinds) = match round % 2 {
            0 => (vec![own.key.clone(), peer.key.clone()], Vec::new()),
            _ => (Vec::new(), vec![(EPOCH, Kind::Node)]),
        };
        let answered = AtomicBool::new(false);
        let first = async {
            let query = Query { keys, kinds };
            let (written, read) =
                both(&*store, &space, std::slice::from_ref(&claim), query, Order::ReadLast).await;
            answered.store(true, Ordering::Release);
            assert!(matches!(written[..], [Outcome::Applied]), "{written:?}");
            assert!(read.contains(&entry(&claim)), "its own write shows: {read:?}");
            read
        };
        // The other writes again and again, so that the claim comes at every moment of it; it counts what it had written before it
        // looked and did not find the claim.
        let second = async {
            let (mut written, mut must_show) = (vec![peer.clone()], 0);
            while !answered.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
                let last = &written[written.len() - 1];
                let next = put(&last.key, Some(version(last)), value(&written.len().to_string()));
                written.push(must(&*other, &space, next).await);
                if get(&*other, &space, &claim.key).await != Some(entry(&claim)) {
                    must_show = written.len() - 1;
                }
            }
            (written, must_show)
        };
        // Each begins first in half of the rounds of each kind.
        let (read, (mut written, must_show)) = match round % 4 {
            0 | 1 => join(first, second).await,
            _ => {
                let (second, first) = join(second, first).await;
                (first, second)
            }
        };
        let found = written.iter().position(|write| read.contains(&entry(write)));
        assert!(
            found.is_some_and(|found| found >= must_show),
            "what was committed before the claim shows: {found:?} of {must_show} in round {round}"
        );
        peer = written.pop().expect("it begins with one");
        own = claim;
    }
}
