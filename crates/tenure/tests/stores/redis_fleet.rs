//! More than one Redis server: Sentinels that promote a replica, and a Redis Cluster that moves namespaces about.

use std::time::Duration;

use crate::sqlite_kit::{EPOCH, fresh_space, node, put};
use tenure::Node;
use tenure::store::{Class, Kind, Outcome, Query, Redis, Store};
use tenure_torture::servers::Server;
use tenure_torture::servers::redis::{FORGETFUL, command, query, sentinel, start};

const TTL: Duration = Duration::from_secs(1);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Waits until a server says so.
async fn until(server: &Server, question: &[&str], part: &str) {
    soon(async {
        while !query(server.address(), question).contains(part) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// The primary dies, the Sentinel promotes the replica, and the nodes find it: another leader, with a higher token.
#[tokio::test]
async fn sentinels_are_followed_to_the_new_primary() {
    let primary = start(FORGETFUL);
    let port = primary.port().to_string();
    let replica = start(&["--replicaof", "127.0.0.1", &port]);
    until(&replica, &["INFO", "replication"], "link_status:up").await;
    let sentinel = sentinel(primary.port(), 1);
    until(&sentinel, &["SENTINEL", "replicas", "main"], &replica.port().to_string()).await;
    let url = format!("redis+sentinel://127.0.0.1:1,{}/main/0?wait=1&timeout=500ms", sentinel.address());
    let described = Redis::open(&url).unwrap().describe().await.unwrap();
    assert_eq!(described.class, Class::C);
    assert!(described.remarks.iter().any(|remark| remark.contains("Sentinel")), "{:?}", described.remarks);
    // With the only replica promoted no replica could acknowledge, so the nodes ask for none.
    let url = url.replace("wait=1&", "");
    let node = Node::builder(&url).name("a").ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let token = tenure.token();
    drop(primary);
    soon(tenure.cancelled()).await;
    drop(tenure);
    let again = soon(candidate.elected()).await.unwrap();
    assert!(again.token() > token);
    assert!(query(replica.address(), &["INFO", "replication"]).contains("role:master"));
}

/// All registers of a namespace are in one slot; whichever node is asked first, the right one is found.
#[tokio::test]
async fn a_redis_cluster_is_followed_to_the_node_that_has_the_namespace() {
    let settings = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
    let (one, two) = (start(&settings), start(&settings));
    command(one.address(), &["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
    command(two.address(), &["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
    command(one.address(), &["CLUSTER", "SET-CONFIG-EPOCH", "1"]);
    command(two.address(), &["CLUSTER", "SET-CONFIG-EPOCH", "2"]);
    command(one.address(), &["CLUSTER", "MEET", "127.0.0.1", &two.port().to_string()]);
    until(&one, &["CLUSTER", "INFO"], "cluster_state:ok").await;
    until(&two, &["CLUSTER", "INFO"], "cluster_state:ok").await;
    let store = Redis::open(&format!("redis://{}", one.address())).unwrap();
    let described = store.describe().await.unwrap();
    assert!(described.class == Class::C && described.remarks.iter().any(|remark| remark.contains("Cluster")));
    for _ in 0..12 {
        let space = fresh_space();
        let writes = [put(&node("a"), None, 1), put(&node("b"), None, 2)];
        let outcomes = store.write(&space, &writes).await.unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied)), "{outcomes:?}");
        let query = Query { keys: Vec::new(), kinds: vec![(EPOCH, Kind::Node)] };
        assert_eq!(store.read(&space, &query).await.unwrap().len(), 2);
    }
    let kept = |server: &Server| {
        query(server.address(), &["DBSIZE"]).trim_start_matches(':').parse::<u64>().unwrap()
    };
    assert_eq!((kept(&one) > 0, kept(&two) > 0), (true, true), "both nodes have some");
}
