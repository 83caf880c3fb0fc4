//! What is true of every SQL server, told once: tables, connections, and what people see of elections in them. What is true
//! of every store is in `behaviours`.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_all};
use tempfile::TempDir;
use tenure::store::entropy::KernelEntropy;
use tenure::store::{
    Evidence, Fate, Kind, LivenessLocks as _, Outcome, SessionId, SharedStore, Signal, Takeover, Value,
    Version, Write,
};
use tenure::{Candidate, Node, Tenure, Token};
use tenure_core::Entropy;

use super::{PATIENCE, get, heard, key, must, name, put, soon, until_it_works, version};

/// Nothing here waits for one to run out.
const TTL: Duration = Duration::from_secs(10);

/// A server on which a story is played.
#[async_trait]
pub trait Stage: Sync {
    fn store(&self) -> SharedStore;
    fn crash(&self) -> TempDir;
    fn launch(&self, dir: TempDir);
    /// Ends every connection of the nodes; tells how many there were.
    async fn kill_connections(&self) -> usize;
    /// What the server says to a statement typed by hand.
    async fn by_hand(&self, sql: &str) -> Result<(), String>;
    /// Makes a login that has no rights yet.
    async fn make_login(&self, login: &str);
    /// What the server says to a statement of that login, and how many rows it shows.
    async fn said_to(&self, login: &str, sql: &str) -> Result<usize, String>;
    fn store_of(&self, login: &str) -> SharedStore;
    fn drop_tables(&self) -> &'static str;
    /// Who leads, with which token, in which state, as people see it in `tenure_leaders`.
    async fn leader(&self) -> (String, u64, String);
    /// How many connections the nodes have.
    async fn connections(&self) -> usize;
    /// How often the tables were made.
    async fn memories(&self) -> usize;
}

async fn node(stage: &dyn Stage, name: &str) -> (Node, Candidate) {
    let start = async {
        loop {
            match Node::builder_with_store(stage.store()).name(name).ttl(TTL).start().await {
                Ok(node) => return node,
                // The server may have too much to do just now.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let node = soon(start).await;
    let candidate = node.candidate("scheduler").await.expect("it stands");
    (node, candidate)
}

/// The next tenure of any of them, and whose it is.
async fn elected(nodes: &[(Node, Candidate)]) -> (Tenure, usize) {
    let elections: Vec<_> = nodes.iter().map(|(_, candidate)| Box::pin(candidate.elected())).collect();
    let (tenure, index, _) = soon(select_all(elections)).await;
    let leaders = nodes.iter().filter(|(_, candidate)| candidate.lead().is_some()).count();
    assert!(leaders <= 1, "{leaders} leaders");
    (tenure.expect("a node is elected"), index)
}

pub async fn one_of_three_leads_the_next_takes_over_and_people_see_who(stage: &dyn Stage) {
    let mut nodes = join_all(["a", "b", "c"].map(|name| node(stage, name))).await;
    let mut last = Token::new(0);
    while !nodes.is_empty() {
        let (tenure, index) = elected(&nodes).await;
        assert!(tenure.check() && tenure.token() > last);
        last = tenure.token();
        let leader = (nodes[index].0.name().to_string(), last.get(), "live".to_owned());
        assert_eq!(stage.leader().await, leader);
        drop(tenure);
        soon(nodes.remove(index).0.stop()).await;
    }
}

pub async fn of_twenty_that_start_at_once_on_an_empty_database_one_leads(stage: &dyn Stage) {
    const NODES: usize = 20;
    let start = |nth| async move { node(stage, &format!("n{nth}")).await };
    let nodes = join_all((0..NODES).map(start)).await;
    let mut last = Token::new(0);
    for _ in 0..3 {
        let (tenure, _) = elected(&nodes).await;
        assert!(tenure.token() > last);
        last = tenure.token();
        drop(tenure);
    }
    let connections = stage.connections().await;
    assert!(connections <= 2 * NODES, "{connections} connections of {NODES} nodes");
    assert_eq!(stage.memories().await, 1, "the tables were made once");
    join_all(nodes.iter().map(|(node, _)| node.stop())).await;
}

pub async fn hands_cannot_lower_a_token_nor_delete_a_role(stage: &dyn Stage) {
    let (store, space) = (stage.store(), name("hands"));
    let value = Value::of(&7, Some(Token::new(7)));
    let write = Write { put: Some((Version::new(1), value)), ..put(&key(Kind::Role, "r"), None, "") };
    must(&*store, &space, write.clone()).await;
    for sql in [
        "DELETE FROM tenure_registers",
        "TRUNCATE tenure_registers",
        "UPDATE tenure_registers SET token = 6",
        "UPDATE tenure_registers SET token = NULL",
        "UPDATE tenure_registers SET name = 'other'",
    ] {
        let refused = stage.by_hand(sql).await.expect_err(sql);
        assert!(refused.contains("tenure: ") || refused.contains("tenure_never_truncated"), "{refused}");
    }
    assert_eq!(get(&*store, &space, &write.key).await.unwrap().version, version(&write));
}

/// A role that a node leads, and a login that has these rights on registers.
async fn beside(stage: &dyn Stage, login: &str, rights: &str) -> (Node, Candidate, Tenure) {
    let nodes = [node(stage, "a").await];
    let (tenure, _) = elected(&nodes).await;
    stage.make_login(login).await;
    for (rights, table) in
        [(rights, "tenure_registers"), ("SELECT", "tenure_schema"), ("SELECT", "tenure_leaders")]
    {
        stage.by_hand(&format!("GRANT {rights} ON {table} TO {login}")).await.unwrap();
    }
    let [(node, candidate)] = nodes;
    (node, candidate, tenure)
}

async fn is_denied(stage: &dyn Stage, login: &str, statements: &[&str]) {
    for sql in statements {
        let refused = stage.said_to(login, sql).await.expect_err(sql);
        assert!(refused.contains("denied") || refused.contains("must be owner"), "{sql}: {refused}");
    }
}

/// What only the owner of the tables may do: also what would take the triggers away.
const OF_THE_OWNER: [&str; 5] = [
    "TRUNCATE TABLE tenure_registers",
    "ALTER TABLE tenure_registers ADD forged integer",
    "DROP TABLE tenure_registers",
    "UPDATE tenure_schema SET id = 'forged'",
    "DELETE FROM tenure_schema",
];

pub async fn a_login_that_may_read_sees_all_and_changes_nothing(stage: &dyn Stage) {
    let (_node, _candidate, tenure) = beside(stage, "reader", "SELECT").await;
    for table in ["tenure_registers", "tenure_schema", "tenure_leaders"] {
        let seen = stage.said_to("reader", &format!("SELECT * FROM {table}")).await;
        assert!(matches!(seen, Ok(1..)), "{table}: {seen:?}");
    }
    let writes = [
        "INSERT INTO tenure_registers (namespace, epoch, kind, name, version, value) VALUES ('x', '1', 'role', 'x', 'v', '')",
        "UPDATE tenure_registers SET token = token + 1",
        "DELETE FROM tenure_registers WHERE kind = 'session'",
    ];
    is_denied(stage, "reader", &[&writes[..], &OF_THE_OWNER].concat()).await;
    let (store, space) = (stage.store_of("reader"), name("default"));
    let forged = store.write(&space, &[put(&key(Kind::Role, "forged"), None, "1")]).await;
    assert!(!matches!(forged.as_deref(), Ok([Outcome::Applied])), "{forged:?}");
    assert!(tenure.check(), "no leader was deposed");
}

/// A node of a login that may only read is told at its start, and does not wait for rights that only a person can give.
pub async fn a_node_that_may_only_read_is_told_so_at_its_start(stage: &dyn Stage) {
    let (_node, _candidate, tenure) = beside(stage, "reader", "SELECT").await;
    // It is told long before its first beat would be due.
    let reader = Node::builder_with_store(stage.store_of("reader")).name("reader").ttl(100 * PATIENCE);
    let reader = reader.start_without_waiting().unwrap();
    let refused = soon(reader.store_refused()).await;
    assert!(refused.to_string().contains("GRANT"), "{refused}");
    assert!(tenure.check(), "no leader was deposed");
}

/// A login that may write can end a tenure, as every node can. It can neither lower a token nor take the guards away, and what it
/// broke is whole again with the next election.
pub async fn a_login_that_may_write_ends_tenures_and_lowers_no_token(stage: &dyn Stage) {
    let (_node, candidate, tenure) = beside(stage, "writer", "SELECT, INSERT, UPDATE, DELETE").await;
    for sql in [
        "UPDATE tenure_registers SET token = token - 1 WHERE kind = 'role'",
        "UPDATE tenure_registers SET token = NULL WHERE kind = 'role'",
        "DELETE FROM tenure_registers WHERE kind = 'role'",
    ] {
        let refused = stage.said_to("writer", sql).await.expect_err(sql);
        assert!(refused.contains("tenure: "), "{sql}: {refused}");
    }
    is_denied(stage, "writer", &OF_THE_OWNER).await;
    let last = tenure.token();
    stage.said_to("writer", "DELETE FROM tenure_registers WHERE kind = 'session'").await.unwrap();
    soon(tenure.cancelled()).await;
    drop(tenure);
    let next = soon(candidate.elected()).await.expect("it is elected again");
    assert!(next.token() > last);
}

pub async fn batches_in_opposite_order_never_wait_for_each_other_in_a_circle(stage: &dyn Stage) {
    let space = name("circle");
    let keys: Vec<_> = (0..64).map(|nth| key(Kind::Node, &format!("n{nth}"))).collect();
    let writers = (0..4).map(|nth| {
        let (store, space, mut keys) = (stage.store(), space.clone(), keys.clone());
        if nth % 2 == 1 {
            keys.reverse();
        }
        tokio::spawn(async move {
            let (mut applied, mut expect) = (0, vec![None; keys.len()]);
            for round in 0..10 {
                let notify = (round + nth) % 3 == 0;
                let each = keys.iter().zip(&expect);
                let batch: Vec<_> =
                    each.map(|(key, expect)| Write { notify, ..put(key, *expect, "x") }).collect();
                for (nth, outcome) in store.write(&space, &batch).await.unwrap().into_iter().enumerate() {
                    expect[nth] = match outcome {
                        Outcome::Applied => Some(version(&batch[nth])).inspect(|_| applied += 1),
                        Outcome::Conflict(found) => found.map(|found| found.version),
                        Outcome::Failed(error) => panic!("{error}"),
                    };
                }
            }
            applied
        })
    });
    let applied: Vec<u32> = soon(join_all(writers)).await.into_iter().map(Result::unwrap).collect();
    assert!(applied.iter().sum::<u32>() > 0);
}

pub async fn after_a_crash_the_same_memory_goes_on_and_watches_look_again(stage: &dyn Stage) {
    let (store, space) = (stage.store(), name("crash"));
    let identity = store.describe().await.unwrap().identity;
    let mut watch = store.watch(&space);
    let first = must(&*store, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    let dir = stage.crash();
    let gone = async {
        loop {
            if let Err(error) = store.write(&space, &[put(&key(Kind::Node, "b"), None, "1")]).await
                && error.fate() == Fate::NotApplied
            {
                return error;
            }
        }
    };
    assert!(soon(gone).await.to_string().contains("see whether the server runs"));
    stage.launch(dir);
    until_it_works(&*store).await;
    assert_eq!(store.describe().await.unwrap().identity, identity, "the same memory");
    assert_eq!(get(&*store, &space, &first.key).await.unwrap().version, version(&first));
    let signal = heard(&mut watch, |signal| matches!(signal, Signal::Resync | Signal::Forgot)).await;
    assert!(matches!(signal, Signal::Resync), "nothing was forgotten");
}

pub async fn tables_that_were_dropped_are_another_memory(stage: &dyn Stage) {
    let (store, space) = (stage.store(), name("dropped"));
    store.describe().await.unwrap();
    let mut watch = store.watch(&space);
    must(&*store, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    stage.by_hand(stage.drop_tables()).await.expect("hands may drop tables");
    // Unless something else has noticed before, and the tables were made anew.
    if let Err(error) = store.write(&space, &[put(&key(Kind::Node, "b"), None, "1")]).await {
        assert_eq!(error.fate(), Fate::NotApplied, "{error}");
    }
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    until_it_works(&*store).await;
    assert!(get(&*store, &space, &key(Kind::Node, "a")).await.is_none());
}

pub async fn killed_connections_are_replaced_at_once_and_none_is_left_behind(stage: &dyn Stage) {
    let (store, other, space) = (stage.store(), stage.store(), name("killed"));
    assert!(store.describe().await.unwrap().notifies && other.describe().await.unwrap().notifies);
    let mut watch = store.watch(&space);
    assert_eq!(stage.kill_connections().await, 4, "two connections for each handle");
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    until_it_works(&*other).await;
    let notified = must(&*other, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Changed(changed) if *changed == notified.key)).await;
    other.close().await;
    drop(store);
    let gone = async {
        while stage.connections().await > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(gone).await;
}

/// Makes one `#[tokio::test]` of each story, on a stage of its own.
#[macro_export]
macro_rules! stories {
    ($stage:expr, $($story:ident)+) => {$(
        #[tokio::test]
        async fn $story() {
            $crate::server_kit::stories::$story(&$stage).await;
        }
    )+};
    ($stage:expr) => {
        $crate::stories!(
            $stage,
            one_of_three_leads_the_next_takes_over_and_people_see_who
            of_twenty_that_start_at_once_on_an_empty_database_one_leads
            hands_cannot_lower_a_token_nor_delete_a_role
            a_login_that_may_read_sees_all_and_changes_nothing
            a_node_that_may_only_read_is_told_so_at_its_start
            a_login_that_may_write_ends_tenures_and_lowers_no_token
            batches_in_opposite_order_never_wait_for_each_other_in_a_circle
            after_a_crash_the_same_memory_goes_on_and_watches_look_again
            tables_that_were_dropped_are_another_memory
            killed_connections_are_replaced_at_once_and_none_is_left_behind
        );
    };
}

/// A server that is not the one named in a lock has never seen that lock: that it is free there is no evidence. The owner of
/// a lock and a watcher are on one server; a second owner and a stranger, who watches both locks, are on the other.
pub async fn a_lock_of_another_server_is_no_evidence(
    [owner, watcher]: [SharedStore; 2],
    [there, stranger]: [SharedStore; 2],
) {
    let space = name("elsewhere");
    let acquire = async |store: &SharedStore| {
        let session = SessionId::new(KernelEntropy.nonce());
        let lock = store.liveness().acquire_lock(&space, session, Takeover::OnDisconnect).await;
        (session, lock.unwrap().unwrap().id)
    };
    let ((session, lock), (own, named)) = (acquire(&owner).await, acquire(&there).await);
    let (mut here, mut elsewhere) = (watcher.watch(&space), stranger.watch(&space));
    for store in [&watcher, &stranger] {
        store.liveness().watch_lock(&space, session, &lock, Takeover::OnDisconnect);
    }
    stranger.liveness().watch_lock(&space, own, &named, Takeover::OnDisconnect);
    owner.close().await;
    heard(&mut here, |signal| matches!(signal, Signal::Evidence(_))).await;
    there.close().await;
    let told = heard(&mut elsewhere, |signal| matches!(signal, Signal::Evidence(_))).await;
    assert!(
        matches!(&told, Signal::Evidence(Evidence::Disconnected { session, .. }) if *session == own),
        "{told:?}"
    );
}
