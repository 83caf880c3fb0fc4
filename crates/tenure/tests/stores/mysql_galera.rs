//! A real Galera cluster of two members: both take writes, and each has locks of its own.

use std::time::Duration;

use crate::mysql_kit::patient;
use crate::server_kit::{soon, stories, until_it_works};
use tenure::Node;
use tenure::store::{Class, SharedStore, open};
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
