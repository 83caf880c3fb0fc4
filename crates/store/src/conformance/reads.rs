//! Clauses R and N: what a read returns.

use super::Harness;
use super::kit::*;
use crate::{Epoch, Key, Kind};

/// R1: every register of the query that exists, once, and nothing else.
pub async fn r1_reads_return_what_was_asked_for_and_exists(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    let writes = [create(&node("a"), "1"), create(&node("b"), "2"), create(&key(Kind::Task, "a"), "3")];
    let elsewhere = create(&Key::Named(Epoch::new(7), Kind::Node, name("a")), "4");
    let session = create(&Key::Session(EPOCH, session()), "5");
    let cluster = create(&Key::Cluster, "6");
    for write in writes.iter().chain([&elsewhere, &session, &cluster]) {
        must(&*store, &space, write.clone()).await;
    }
    let [a, b, task] = &writes;
    let both =
        read(&*store, &space, vec![node("a"), node("a"), node("none")], vec![(EPOCH, Kind::Node)]).await;
    assert_eq!(both, [entry(a), entry(b)], "by name and by kind, each once");
    let by_kind = vec![(EPOCH, Kind::Task), (EPOCH, Kind::Task), (EPOCH, Kind::History)];
    assert_eq!(
        read(&*store, &space, Vec::new(), by_kind).await,
        [entry(task)],
        "a kind that has none adds nothing"
    );
    let keys = vec![elsewhere.key.clone(), session.key.clone(), Key::Cluster];
    let mut expected = vec![entry(&elsewhere), entry(&session), entry(&cluster)];
    expected.sort_by(|x, y| x.key.cmp(&y.key));
    assert_eq!(read(&*store, &space, keys, Vec::new()).await, expected, "every sort of key");
    let sessions = read(&*store, &space, Vec::new(), vec![(EPOCH, Kind::Session)]).await;
    assert_eq!(sessions, [entry(&session)]);
}

/// R2: only what was committed. A write that failed or conflicted is never seen, nor half of one.
pub async fn r2_reads_return_only_what_was_committed(harness: &dyn Harness) {
    let (store, other, space) = (harness.open().await, harness.open().await, fresh());
    let mut current = must(&*store, &space, create(&node("a"), "0")).await;
    for round in 1..20 {
        let loser = put(&current.key, Some(nonce()), value("never"));
        let winner = put(&current.key, Some(version(&current)), value(&round.to_string()));
        let batch = [loser, winner.clone()];
        let writing = write_all(&*store, &space, &batch);
        let (_, seen) = tokio::join!(writing, get(&*other, &space, &current.key));
        let seen = seen.expect("the register exists throughout");
        assert!(seen == entry(&current) || seen == entry(&winner), "{seen:?} was never committed");
        let after = get(&*other, &space, &current.key).await;
        assert_eq!(after, Some(entry(&winner)), "an acknowledged write is seen by every reader");
        current = winner;
    }
}

/// R3: an empty query returns nothing and is not an error.
pub async fn r3_an_empty_query_returns_nothing(harness: &dyn Harness) {
    let (store, space) = (harness.open().await, fresh());
    must(&*store, &space, create(&node("a"), "1")).await;
    assert_eq!(read(&*store, &space, Vec::new(), Vec::new()).await, []);
}

/// N1: namespaces do not see each other, and names differ by every byte.
pub async fn n1_namespaces_and_names_differ_by_every_byte(harness: &dyn Harness) {
    let (store, space, other) = (harness.open().await, fresh(), fresh());
    let mut writes = Vec::new();
    for text in ["Node-A", "node-a", "node-a.", "node-a-", "node-a_", "n", "N"] {
        writes.push(must(&*store, &space, create(&node(text), text)).await);
    }
    for write in &writes {
        assert_eq!(get(&*store, &space, &write.key).await, Some(entry(write)));
        assert_eq!(get(&*store, &other, &write.key).await, None, "another namespace");
    }
    assert_eq!(read(&*store, &other, Vec::new(), vec![(EPOCH, Kind::Node)]).await, []);
    let shouting = name(&space.as_str().to_uppercase());
    assert_eq!(
        read(&*store, &shouting, Vec::new(), vec![(EPOCH, Kind::Node)]).await,
        [],
        "namespaces have a case"
    );
    must(&*store, &other, create(&node("n"), "elsewhere")).await;
    assert_eq!(get(&*store, &space, &node("n")).await, Some(entry(&writes[5])));
}
