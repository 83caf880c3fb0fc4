//! A real Galera cluster of two members: both take writes, and each has locks of its own.

use std::time::Duration;

use crate::mysql_kit::patient;
use crate::server_kit::{heard, name, soon, until_it_works};
use tenure::Node;
use tenure::store::entropy::KernelEntropy;
use tenure::store::{Class, Evidence, LivenessLocks as _, SessionId, SharedStore, Signal, Takeover, open};
use tenure_core::Entropy;
use tenure_torture::servers::galera;
use tenure_torture::servers::mysql::Mysql;

fn store(member: &Mysql) -> SharedStore {
    open(&patient(&member.url("app"))).expect("the URL can be read")
}

/// `GET_LOCK` is local to a member: that a lock is free on another one says nothing.
#[tokio::test]
async fn a_lock_of_another_member_is_no_evidence() {
    let members = galera::pair();
    let (owner, watcher, stranger) = (store(&members[0]), store(&members[0]), store(&members[1]));
    for store in [&owner, &watcher, &stranger] {
        until_it_works(&**store).await;
    }
    let space = name("elsewhere");
    let session = SessionId::new(KernelEntropy.nonce());
    let lock = owner.liveness().acquire_lock(&space, session, Takeover::OnDisconnect).await.unwrap().unwrap();
    let own = SessionId::new(KernelEntropy.nonce());
    let there = store(&members[1]);
    let named = there.liveness().acquire_lock(&space, own, Takeover::OnDisconnect).await.unwrap().unwrap();
    let (mut here, mut elsewhere) = (watcher.watch(&space), stranger.watch(&space));
    for store in [&watcher, &stranger] {
        store.liveness().watch_lock(&space, session, &lock.id, Takeover::OnDisconnect);
    }
    stranger.liveness().watch_lock(&space, own, &named.id, Takeover::OnDisconnect);
    owner.close().await;
    heard(&mut here, |signal| matches!(signal, Signal::Evidence(_))).await;
    there.close().await;
    let told = heard(&mut elsewhere, |signal| matches!(signal, Signal::Evidence(_))).await;
    assert!(
        matches!(&told, Signal::Evidence(Evidence::Disconnected { session, .. }) if *session == own),
        "{told:?}"
    );
}

/// Nodes that are the first, each on another member, make the tables at once and elect.
#[tokio::test]
async fn nodes_that_start_first_on_two_members_make_the_tables_and_elect() {
    let members = galera::pair();
    let start = |nth: usize| {
        let node = Node::builder_with_store(store(&members[nth])).name(["one", "two"][nth]);
        node.ttl(Duration::from_secs(3)).start()
    };
    let (one, two) = soon(async { tokio::join!(start(0), start(1)) }).await;
    let (one, two) = (one.expect("it starts"), two.expect("it starts"));
    let (first, second) = (one.candidate("job").await.unwrap(), two.candidate("job").await.unwrap());
    let leader = async {
        tokio::select! {
            tenure = first.elected() => tenure,
            tenure = second.elected() => tenure,
        }
    };
    let tenure = soon(leader).await.expect("elected");
    assert_eq!(store(&members[0]).describe().await.unwrap().class, Class::C);
    drop(tenure);
    for node in [&one, &two] {
        soon(node.stop()).await;
    }
}
