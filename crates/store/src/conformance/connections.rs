//! Clauses E4 to E7: liveness locks of connections.

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use super::Harness;
use super::kit::*;
use super::liveness::{next_evidence, session_of};
use crate::{
    Entry, Evidence, Fate, Key, LivenessLock, LivenessLocks as _, Name, Outcome, SessionId, SharedStore,
    Signal, Store, Takeover, Version, Write,
};

/// E4: the lock of a session is taken once, by one connection, and never again.
pub async fn e4_a_lock_is_taken_once(harness: &dyn Harness) {
    let Some((store, cut)) = severable(harness).await else { return };
    let (other, space, held, released) = (harness.open().await, fresh(), session(), session());
    acquire_lock(&*store, &space, held).await;
    for handle in [&store, &other, &store] {
        assert!(!takes(&**handle, &space, held).await, "taken twice");
    }
    must(&*store, &space, beat(held, None)).await;
    acquire_lock(&*store, &space, released).await;
    assert!(!takes(&*store, &space, released).await, "taken twice");
    store.liveness().release_lock(&space, released);
    until_severed(&*store, &space, &beat(released, None)).await;
    assert!(!takes(&*store, &space, released).await, "taken again after it was released");
    cut.await;
    assert!(!takes(&*store, &space, held).await, "taken again by another connection");
    assert!(severed(&*store, &space, beat(held, None)).await);
    assert!(!takes(&*store, &space, held).await, "taken again by another connection, later");
}

/// E5: a write that requires the lock is applied only while the connection that took the lock holds it.
pub async fn e5_writes_that_require_a_lock_need_it(harness: &dyn Harness) {
    let (other, space, id, stranger) = (harness.open().await, fresh(), session(), session());
    assert!(severed(&*other, &space, beat(id, None)).await, "no session has taken that lock");
    let Some((store, cut)) = severable(harness).await else { return };
    acquire_lock(&*store, &space, id).await;
    let first = must(&*store, &space, beat(id, None)).await;
    let second = must(&*store, &space, beat(id, Some(version(&first)))).await;
    must_conflict(&*store, &space, &beat(id, Some(version(&first))), Some(&second)).await;
    let third = beat(id, Some(version(&second)));
    let batch = [beat(stranger, None), create(&node("a"), "1"), third.clone()];
    let outcomes = write_all(&*store, &space, &batch).await;
    let fate = |outcome: &Outcome| match outcome {
        Outcome::Failed(error) => Some(error.fate()),
        _ => None,
    };
    assert_eq!(fate(&outcomes[0]), Some(Fate::Severed), "{outcomes:?}");
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Outcome::Applied)), "{outcomes:?}");
    cut.await;
    for expect in [Some(version(&third)), Some(version(&first)), None] {
        assert!(
            severed(&*store, &space, beat(id, expect)).await,
            "the connection that held the lock is gone"
        );
    }
    assert_eq!(eventually_read(&*store, &space, id).await, Some(entry(&third)), "nothing was changed");
}

/// E6: evidence comes when the connection is gone, not before, and then no write that requires the lock is applied any more.
pub async fn e6_evidence_comes_with_the_end_of_the_connection(harness: &dyn Harness) {
    let Some((store, cut)) = severable(harness).await else { return };
    let (watcher, space, id) = (harness.open().await, fresh(), session());
    let mut watch = watcher.watch(&space);
    let lock = acquire_lock(&*store, &space, id).await;
    let opened = must(&*store, &space, beat(id, None)).await;
    watcher.liveness().watch_lock(&space, id, &lock.id, Takeover::OnDisconnect);
    watcher.liveness().watch_lock(&space, id, "another:1:2", Takeover::OnDisconnect);
    watcher.liveness().watch_lock(&space, session(), &lock.id, Takeover::OnDisconnect);
    let early = fence(harness, &*watcher, &space, &mut watch).await;
    assert_eq!(early, [], "evidence while the lock is held");
    cut.await;
    let evidence = next_evidence(&mut watch).await;
    assert_eq!(evidence, Evidence::Disconnected { session: id, lock: lock.id.clone() });
    let late = beat(id, Some(version(&opened)));
    assert!(severed(&*store, &space, late).await, "applied after its connection was seen to be gone");
    watcher.liveness().watch_lock(&space, id, &lock.id, Takeover::OnDisconnect);
    assert_eq!(
        session_of(&next_evidence(&mut watch).await).0,
        id,
        "gone is gone, for every store and at any time"
    );
}

/// E7: a strict session pays for none of this.
pub async fn e7_strict_sessions_do_not_depend_on_connections(harness: &dyn Harness) {
    let Some((store, cut)) = severable(harness).await else { return };
    let (space, id) = (fresh(), session());
    let acquired = store.liveness().acquire_lock(&space, id, Takeover::Strict).await;
    acquired.expect("a strict session is no error");
    let first = must(&*store, &space, plain(id, None)).await;
    cut.await;
    let (second, mut expect) = (plain(id, Some(version(&first))), Some(entry(&first)));
    // The handle has to connect again first.
    while expect != Some(entry(&second)) {
        let answer = store.write(&space, std::slice::from_ref(&second)).await;
        match answer.map(|mut outcomes| outcomes.remove(0)) {
            Ok(Outcome::Failed(error)) | Err(error) => assert_ne!(error.fate(), Fate::Severed, "{error}"),
            Ok(Outcome::Applied | Outcome::Conflict(_)) => {}
        }
        expect = eventually_read(&*store, &space, id).await;
    }
}

/// A handle whose connections can be dropped; none if the store has no such locks.
async fn severable(harness: &dyn Harness) -> Option<(SharedStore, BoxFuture<'static, ()>)> {
    let described = harness.open().await.describe().await.expect("a description");
    if !described.connection_liveness_locks {
        return None;
    }
    let severable = harness.severable().await;
    Some(severable.expect("a harness of a store whose connections hold liveness locks can drop them"))
}

async fn acquire_lock(store: &dyn Store, space: &Name, session: SessionId) -> LivenessLock {
    let lock =
        store.liveness().acquire_lock(space, session, Takeover::OnDisconnect).await.expect("it answers");
    let lock = lock.expect("its connections hold liveness locks");
    assert!(lock.connection, "the record has to say what kind of lock it is");
    lock
}

async fn takes(store: &dyn Store, space: &Name, session: SessionId) -> bool {
    matches!(store.liveness().acquire_lock(space, session, Takeover::OnDisconnect).await, Ok(Some(_)))
}

/// A beat of a session that does not depend on its connection.
fn plain(session: SessionId, expect: Option<Version>) -> Write {
    Write { notify: false, ..put(&Key::Session(EPOCH, session), expect, value("beat")) }
}

/// A beat that has to be proven.
fn beat(session: SessionId, expect: Option<Version>) -> Write {
    Write { requires_lock: true, ..plain(session, expect) }
}

/// Letting go takes a moment, in the background: until then such a write is applied, and then conflicts with itself.
async fn until_severed(store: &dyn Store, space: &Name, write: &Write) {
    let is_severed =
        |outcome: &Outcome| matches!(outcome, Outcome::Failed(error) if error.fate() == Fate::Severed);
    let wait = async {
        while !is_severed(&write_one(store, space, write).await) {
            tokio::time::sleep(A_MOMENT).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("let go of, however often it was asked for");
}

/// Whether a write is refused for good, once the handle has found its way back to the server; false if it was applied.
async fn severed(store: &dyn Store, space: &Name, write: Write) -> bool {
    let refused = async {
        loop {
            let answer = store.write(space, std::slice::from_ref(&write)).await;
            match answer.map(|mut outcomes| outcomes.remove(0)) {
                Ok(Outcome::Failed(error)) if error.fate() == Fate::Severed => return true,
                Ok(Outcome::Applied) => return false,
                Ok(Outcome::Conflict(found)) => panic!("a lost lock comes first: {found:?}"),
                Ok(Outcome::Failed(_)) | Err(_) => tokio::time::sleep(A_MOMENT).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the store answers again")
}

async fn eventually_read(store: &dyn Store, space: &Name, session: SessionId) -> Option<Entry> {
    let query = crate::Query { keys: vec![Key::Session(EPOCH, session)], kinds: Vec::new() };
    let read = async {
        loop {
            match store.read(space, &query).await {
                Ok(mut found) => return found.pop(),
                Err(_) => tokio::time::sleep(A_MOMENT).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("the store can be read again")
}

/// Between two looks at a store that has to connect again.
const A_MOMENT: std::time::Duration = std::time::Duration::from_millis(5);

/// Lets one more handle be closed and waits for the evidence of it; gives what other evidence came until then.
async fn fence(
    harness: &dyn Harness,
    watcher: &dyn Store,
    space: &Name,
    watch: &mut BoxStream<'static, Signal>,
) -> Vec<SessionId> {
    let (handle, last) = (harness.open().await, session());
    let lock = acquire_lock(&*handle, space, last).await;
    watcher.liveness().watch_lock(space, last, &lock.id, Takeover::OnDisconnect);
    handle.close().await;
    let mut others = Vec::new();
    loop {
        match session_of(&next_evidence(watch).await).0 {
            found if found == last => return others,
            found => others.push(found),
        }
    }
}
