//! What a store promises follows from what it does, and may become less while nodes run.

use std::time::Duration;

use crate::mysql_kit::{connect, patient, replicate};
use crate::server_kit::soon;
use mysql_async::prelude::Queryable;
use tenure::event::EventKind;
use tenure::store::{Class, SharedStore, open};
use tenure::{Event, Node};
use tenure_torture::servers::mysql::{Mysql, dialect, is_mysql};
use tenure_torture::servers::redis;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A server that is set to wait for its replicas, and soon gives up.
const SENDS: [&str; 6] = [
    "--server-id=1",
    "--log-bin",
    "--sync-binlog=1",
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    "--rpl-semi-sync-master-timeout=200",
];
const SENDS_MYSQL: [&str; 7] = [
    "--server-id=1",
    "--log-bin",
    "--sync-binlog=1",
    "--plugin-load-add=semisync_source.so",
    "--rpl-semi-sync-source-enabled=ON",
    "--rpl-semi-sync-source-wait-point=AFTER_SYNC",
    "--rpl-semi-sync-source-timeout=200",
];

/// What has a replica confirm each write.
const CONFIRM: &str = "STOP REPLICA; SET GLOBAL rpl_semi_sync_slave_enabled = ON; START REPLICA";
const CONFIRM_MYSQL: &str = "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'; STOP REPLICA; \
    SET GLOBAL rpl_semi_sync_replica_enabled = ON; START REPLICA";

/// A server whose users may see how many replicas follow it: on MySQL they have to be let.
async fn primary(settings: &[&str]) -> Mysql {
    let primary = Mysql::start(settings);
    if is_mysql() {
        let see = "GRANT SELECT (PROCESSLIST_COMMAND) ON performance_schema.threads TO 'app'@'%'";
        connect(&primary.admin_url()).await.query_drop(see).await.expect("the superuser may");
    }
    primary
}

async fn follow(replica: &Mysql, primary: &Mysql) {
    let mut admin = connect(&replica.admin_url()).await;
    admin.query_drop(replicate(primary.port())).await.expect("it can follow");
    admin.query_drop("START REPLICA").await.expect("it follows");
}

/// Writes something until the store has this class and says so in these words: a server notices with each write whether it is
/// confirmed, and one whose replica is just connecting again has none.
async fn until_class(primary: &Mysql, store: &SharedStore, class: Class, why: &str) {
    let mut admin = connect(&primary.admin_url()).await;
    let right = async {
        loop {
            admin
                .query_drop("DROP TABLE IF EXISTS written; CREATE TABLE written (one INT)")
                .await
                .expect("it is written");
            let described = store.describe().await.expect("it answers");
            if described.class == class && described.remarks.concat().contains(why) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(right).await
}

async fn start(store: SharedStore) -> (Node, UnboundedReceiver<Event>) {
    let (told, events) = unbounded_channel();
    let node = Node::builder_with_store(store).name("a").ttl(Duration::from_secs(1));
    let node = node.listen(move |event| drop(told.send(event.clone())));
    (node.start().await.expect("it starts"), events)
}

/// Waits until a node says that its store has become weaker, and why.
async fn weakened(events: &mut UnboundedReceiver<Event>) -> String {
    let told = async {
        loop {
            if let EventKind::StoreWeakened { why } = events.recv().await.expect("the node runs").kind {
                return why;
            }
        }
    };
    soon(told).await
}

/// The setting says that the server waits; its status says that it does not.
#[tokio::test]
async fn a_replica_that_confirms_nothing_makes_class_c_whatever_the_settings_say() {
    let primary = primary(dialect(&SENDS[..], &SENDS_MYSQL[..])).await;
    let replica = Mysql::start(&["--server-id=2"]);
    let store = open(&patient(&primary.url("app"))).expect("the URL can be read");
    assert_eq!(store.describe().await.unwrap().class, Class::B);
    follow(&replica, &primary).await;
    until_class(&primary, &store, Class::C, "semi-synchronous").await;
    let mut admin = connect(&replica.admin_url()).await;
    admin.query_drop(dialect(CONFIRM, CONFIRM_MYSQL)).await.expect("it confirms");
    until_class(&primary, &store, Class::B, "falls back").await;
    store.close().await;
}

#[tokio::test]
async fn a_replica_that_comes_later_weakens_a_store_while_a_leader_leads() {
    let primary = primary(&["--server-id=1", "--log-bin", "--sync-binlog=1"]).await;
    let replica = Mysql::start(&["--server-id=2"]);
    let (node, mut events) = start(open(&patient(&primary.url("app"))).expect("the URL can be read")).await;
    let candidate = node.candidate("job").await.unwrap();
    let tenure = soon(candidate.elected()).await.expect("elected");
    let first = tenure.token();
    assert!(first.get() < 1000, "class B counts: {first}");
    follow(&replica, &primary).await;
    let why = weakened(&mut events).await;
    assert!(why.contains("asynchronous replicas"), "{why}");
    assert!(tenure.lead().check(), "nothing was lost");
    drop(tenure);
    let next = soon(candidate.elected()).await.expect("elected").token();
    assert!(next.get() > 1_700_000_000_000_000, "class C takes the wall clock for a floor: {next}");
    soon(node.stop()).await;
}

#[tokio::test]
async fn a_replica_that_comes_later_weakens_redis() {
    let (primary, replica) = (redis::durable(), redis::durable());
    let store = open(&format!("redis://{}", primary.address())).expect("the URL can be read");
    assert_eq!(store.describe().await.unwrap().class, Class::B);
    let (node, mut events) = start(store).await;
    redis::command(replica.address(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let why = weakened(&mut events).await;
    assert!(why.contains("it has replicas"), "{why}");
    soon(node.stop()).await;
}
