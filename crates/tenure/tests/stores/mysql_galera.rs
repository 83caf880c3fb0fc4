//! A real Galera cluster of two members: both take writes, and each has locks of its own.

use std::time::Duration;

use crate::mysql_kit::patient;
use crate::server_kit::{key, name, put, soon, stories, until_it_works};
use tenure::Node;
use tenure::store::{Class, Kind, Outcome, Query, SharedStore, Version, open};
use tenure_torture::servers::galera;
use tenure_torture::servers::mysql::Mysql;

fn store(member: &Mysql) -> SharedStore {
    open(&patient(&member.url("app"))).expect("the URL can be read")
}

/// `GET_LOCK` is local to a member: that a lock is free on another one says nothing.
#[tokio::test]
async fn a_lock_of_another_member_is_no_evidence() {
    let members = galera::pair();
    let [here, there] = [0, 1].map(|nth| [store(&members[nth]), store(&members[nth])]);
    for store in here.iter().chain(&there) {
        until_it_works(&**store).await;
    }
    stories::a_lock_of_another_server_is_no_evidence(here, there).await;
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

/// Of writers on all members that replace the same version at once, one at most is told that it did.
#[tokio::test(flavor = "multi_thread")]
async fn of_writers_on_all_members_one_replaces_a_version() {
    const ROUNDS: usize = 300;
    let members = galera::cluster(3, &[]);
    let stores: Vec<SharedStore> = (0..6).map(|nth| store(&members[nth % 3])).collect();
    for store in &stores {
        until_it_works(&**store).await;
    }
    let (space, keys) = (name("test"), ["a", "b", "c"].map(|text| key(Kind::Role, text)));
    let mut versions: [Option<Version>; 3] = [None; 3];
    for round in 0..ROUNDS {
        let replace = |(store, nth): (&SharedStore, usize)| {
            let (write, store, space) = (put(&keys[nth], versions[nth], "x"), store.clone(), space.clone());
            async move {
                let outcomes = store.write(&space, std::slice::from_ref(&write)).await.unwrap_or_default();
                let applied = matches!(outcomes.first(), Some(Outcome::Applied));
                applied.then(|| (nth, write.put.expect("it puts").0))
            }
        };
        let all = stores.iter().flat_map(|store| [0, 1, 2].map(|nth| (store, nth)));
        let told: Vec<_> =
            futures_util::future::join_all(all.map(replace)).await.into_iter().flatten().collect();
        for (nth, key) in keys.iter().enumerate() {
            let told = told.iter().filter(|(other, _)| *other == nth).count();
            assert!(told <= 1, "round {round}: {told} writers were told that they replaced {key}");
        }
        // What is not known to have been replaced may have been: members show it a moment later.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let query = Query { keys: keys.to_vec(), kinds: Vec::new() };
        for entry in stores[round % 3].read(&space, &query).await.expect("it answers") {
            let nth = keys.iter().position(|key| *key == entry.key).expect("it was asked for");
            versions[nth] = Some(entry.version);
        }
    }
}
