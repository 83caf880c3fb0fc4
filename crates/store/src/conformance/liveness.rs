//! Clauses E1 to E3: liveness locks of processes.

use futures_util::stream::BoxStream;

use super::kit::*;
use super::{Harness, Holder};
use crate::{Description, Evidence, LivenessLocks as _, Name, SessionId, Signal, Takeover};

/// E1: once acquired, the lock is held, even by a handle that was closed and dropped.
pub async fn e1_a_lock_is_held_once_acquired(harness: &dyn Harness) {
    let (owner, watcher, space) = (harness.open().await, harness.open().await, fresh());
    if !described(harness).await.process_liveness_locks {
        return;
    }
    let mut watch = watcher.watch(&space);
    let (held, dropped) = (session(), session());
    let lock = owner
        .liveness()
        .acquire_lock(&space, held, Takeover::Strict)
        .await
        .expect("it answers")
        .expect("it has liveness locks");
    watcher.liveness().watch_lock(&space, held, &lock.id, Takeover::Strict);
    let other = harness.open().await;
    let lock = other
        .liveness()
        .acquire_lock(&space, dropped, Takeover::Strict)
        .await
        .expect("it answers")
        .expect("it has liveness locks");
    watcher.liveness().watch_lock(&space, dropped, &lock.id, Takeover::Strict);
    other.close().await;
    drop(other);
    let dead = fence(harness, &*watcher, &space, &mut watch).await;
    assert!(!dead.contains(&held), "held by a living handle");
    assert!(!dead.contains(&dropped), "held by the process, although the handle is gone");
    owner.liveness().release_lock(&space, held);
    owner.liveness().release_lock(&space, held);
}

/// E2: evidence comes when the holder dies, not before, and never for a lock that is missing or another one.
pub async fn e2_evidence_comes_with_death_only(harness: &dyn Harness) {
    let (watcher, space, doomed) = (harness.open().await, fresh(), session());
    if !described(harness).await.process_liveness_locks {
        return;
    }
    let mut watch = watcher.watch(&space);
    let holder = holder(harness, &space, doomed).await;
    let named = holder.lock().id;
    watcher.liveness().watch_lock(&space, doomed, &named, Takeover::Strict);
    watcher.liveness().watch_lock(&space, doomed, &named, Takeover::Strict);
    watcher.liveness().watch_lock(&space, session(), &named, Takeover::Strict);
    watcher.liveness().watch_lock(&space, doomed, "another:1:2", Takeover::Strict);
    let ignored = session();
    let forgotten = super::liveness::holder(harness, &space, ignored).await;
    watcher.liveness().watch_lock(&space, ignored, &forgotten.lock().id, Takeover::Strict);
    watcher.liveness().unwatch_lock(&space, ignored);
    let early = fence(harness, &*watcher, &space, &mut watch).await;
    assert!(early.is_empty(), "evidence while the lock is held: {early:?}");
    holder.kill().await;
    let evidence = next_evidence(&mut watch).await;
    assert_eq!(session_of(&evidence), (doomed, named.as_str()));
    watcher.liveness().watch_lock(&space, doomed, &named, Takeover::Strict);
    let evidence = next_evidence(&mut watch).await;
    assert_eq!(
        session_of(&evidence),
        (doomed, named.as_str()),
        "dead is dead, for every store and at any time"
    );
    forgotten.kill().await;
    fence(harness, &*watcher, &space, &mut watch).await;
}

/// E3: a store without liveness locks acquires none.
pub async fn e3_without_liveness_locks_nothing_is_acquired(harness: &dyn Harness) {
    let (store, space, session, other) = (harness.open().await, fresh(), session(), session());
    let can = described(harness).await;
    let promised = can.process_liveness_locks || can.connection_liveness_locks;
    assert!(store.liveness().is_some() || !promised, "it promises liveness locks, and has none");
    let strict = store.liveness().acquire_lock(&space, session, Takeover::Strict).await.expect("it answers");
    assert!(strict.is_some() || !can.process_liveness_locks, "it acquires what the description says");
    assert!(strict.is_none() || can.process_liveness_locks || can.connection_liveness_locks);
    let lock =
        store.liveness().acquire_lock(&space, other, Takeover::OnDisconnect).await.expect("it answers");
    assert_eq!(lock.is_some(), promised, "it acquires what the description says");
    assert_eq!(lock.as_ref().is_some_and(|lock| lock.connection), can.connection_liveness_locks);
    let mut watch = store.watch(&space);
    if lock.is_none() {
        store.liveness().watch_lock(&space, session, "anything", Takeover::Strict);
        store.liveness().unwatch_lock(&space, session);
        #[cfg(unix)]
        assert!(store.liveness().lock_descriptor(&space, session).is_none());
        must(&*store, &space, create(&node("a"), "1")).await;
    }
    store.liveness().release_lock(&space, session);
    store.liveness().release_lock(&space, other);
    store.close().await;
    while let Some(signal) = next(&mut watch).await {
        assert!(!matches!(signal, Signal::Evidence(_)), "{signal:?}");
    }
}

async fn described(harness: &dyn Harness) -> Description {
    harness.open().await.describe().await.expect("a description")
}

async fn holder(harness: &dyn Harness, space: &Name, session: SessionId) -> Box<dyn Holder> {
    harness.holder(space, session).await.expect("a harness of a store with liveness locks can start a holder")
}

/// Lets one more holder die and waits for the evidence of it; gives what other evidence came until then.
async fn fence(
    harness: &dyn Harness,
    watcher: &dyn crate::Store,
    space: &Name,
    watch: &mut BoxStream<'static, Signal>,
) -> Vec<SessionId> {
    let last = session();
    let holder = holder(harness, space, last).await;
    watcher.liveness().watch_lock(space, last, &holder.lock().id, Takeover::Strict);
    holder.kill().await;
    let mut others = Vec::new();
    loop {
        match session_of(&next_evidence(watch).await).0 {
            found if found == last => return others,
            found => others.push(found),
        }
    }
}

pub(super) async fn next_evidence(watch: &mut BoxStream<'static, Signal>) -> Evidence {
    loop {
        if let Signal::Evidence(evidence) = next(watch).await.expect("the watch goes on") {
            return evidence;
        }
    }
}

pub(super) fn session_of(evidence: &Evidence) -> (SessionId, &str) {
    match evidence {
        Evidence::Dead { session, lock } | Evidence::Disconnected { session, lock } => (*session, lock),
    }
}
