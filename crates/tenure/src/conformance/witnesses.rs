//! Clauses E: what witnesses see.

use futures_util::stream::BoxStream;

use super::kit::*;
use super::{Harness, Holder};
use crate::store::{Description, Evidence, Name, SessionId, Signal, Takeover};

/// E1: once attested, the witness is held, even by a handle that was closed and dropped.
pub async fn e1_a_witness_is_held_once_attested(harness: &dyn Harness) {
    let (owner, watcher, space) = (harness.open().await, harness.open().await, fresh());
    if !described(harness).await.witnesses_death {
        return;
    }
    let mut watch = watcher.watch(&space);
    let (held, dropped) = (session(), session());
    let witness =
        owner.attest(&space, held, Takeover::Strict).await.expect("it attests").expect("it has witnesses");
    watcher.attend(&space, held, &witness.id, Takeover::Strict);
    let other = harness.open().await;
    let witness =
        other.attest(&space, dropped, Takeover::Strict).await.expect("it attests").expect("it has witnesses");
    watcher.attend(&space, dropped, &witness.id, Takeover::Strict);
    other.close().await;
    drop(other);
    let dead = fence(harness, &*watcher, &space, &mut watch).await;
    assert!(!dead.contains(&held), "held by a living handle");
    assert!(!dead.contains(&dropped), "held by the process, although the handle is gone");
    owner.release(&space, held);
    owner.release(&space, held);
}

/// E2: evidence comes when the holder dies, not before, and never for a witness that is missing or another one.
pub async fn e2_evidence_comes_with_death_only(harness: &dyn Harness) {
    let (watcher, space, doomed) = (harness.open().await, fresh(), session());
    if !described(harness).await.witnesses_death {
        return;
    }
    let mut watch = watcher.watch(&space);
    let holder = holder(harness, &space, doomed).await;
    let named = holder.witness().id;
    watcher.attend(&space, doomed, &named, Takeover::Strict);
    watcher.attend(&space, doomed, &named, Takeover::Strict);
    watcher.attend(&space, session(), &named, Takeover::Strict);
    watcher.attend(&space, doomed, "another:1:2", Takeover::Strict);
    let ignored = session();
    let forgotten = super::witnesses::holder(harness, &space, ignored).await;
    watcher.attend(&space, ignored, &forgotten.witness().id, Takeover::Strict);
    watcher.ignore(&space, ignored);
    let early = fence(harness, &*watcher, &space, &mut watch).await;
    assert!(early.is_empty(), "evidence while the witness is held: {early:?}");
    holder.kill().await;
    let evidence = next_evidence(&mut watch).await;
    assert_eq!(session_of(&evidence), (doomed, named.as_str()));
    watcher.attend(&space, doomed, &named, Takeover::Strict);
    let evidence = next_evidence(&mut watch).await;
    assert_eq!(session_of(&evidence), (doomed, named.as_str()), "dead is dead, whoever asks and when");
    forgotten.kill().await;
    fence(harness, &*watcher, &space, &mut watch).await;
}

/// E3: a store without witnesses attests nothing.
pub async fn e3_without_witnesses_nothing_is_attested(harness: &dyn Harness) {
    let (store, space, session, other) = (harness.open().await, fresh(), session(), session());
    let can = described(harness).await;
    let strict = store.attest(&space, session, Takeover::Strict).await.expect("it answers");
    assert!(strict.is_some() || !can.witnesses_death, "attesting is what the description says");
    assert!(strict.is_none() || can.witnesses_death || can.witnesses_disconnect);
    let witness = store.attest(&space, other, Takeover::OnDisconnect).await.expect("it answers");
    let any = can.witnesses_death || can.witnesses_disconnect;
    assert_eq!(witness.is_some(), any, "attesting is what the description says");
    assert_eq!(witness.as_ref().is_some_and(|witness| witness.connection), can.witnesses_disconnect);
    let mut watch = store.watch(&space);
    if witness.is_none() {
        store.attend(&space, session, "anything", Takeover::Strict);
        store.ignore(&space, session);
        assert!(store.witness_fd(&space, session).is_none());
        must(&*store, &space, create(&node("a"), "1")).await;
    }
    store.release(&space, session);
    store.release(&space, other);
    store.close().await;
    while let Some(signal) = next(&mut watch).await {
        assert!(!matches!(signal, Signal::Witnessed(_)), "{signal:?}");
    }
}

async fn described(harness: &dyn Harness) -> Description {
    harness.open().await.describe().await.expect("a description")
}

async fn holder(harness: &dyn Harness, space: &Name, session: SessionId) -> Box<dyn Holder> {
    harness.holder(space, session).await.expect("a harness of a store with witnesses can start a holder")
}

/// Lets one more holder die and waits for the evidence of it; gives what other evidence came until then.
async fn fence(
    harness: &dyn Harness,
    watcher: &dyn crate::store::Store,
    space: &Name,
    watch: &mut BoxStream<'static, Signal>,
) -> Vec<SessionId> {
    let last = session();
    let holder = holder(harness, space, last).await;
    watcher.attend(space, last, &holder.witness().id, Takeover::Strict);
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
        if let Signal::Witnessed(evidence) = next(watch).await.expect("the watch goes on") {
            return evidence;
        }
    }
}

pub(super) fn session_of(evidence: &Evidence) -> (SessionId, &str) {
    match evidence {
        Evidence::Dead { session, witness } | Evidence::Disconnected { session, witness } => {
            (*session, witness)
        }
    }
}
