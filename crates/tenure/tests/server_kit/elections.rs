//! Elections on a database server, through the library: what a user of the crate sees when the server has a bad day. One
//! story for every such server.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_all};
use tempfile::TempDir;
use tenure::store::SharedStore;
use tenure::{Candidate, Node, Tenure, Token};

use super::soon;

const TTL: Duration = Duration::from_secs(1);

/// A server on which a story is played.
#[async_trait]
pub trait Stage: Sync {
    fn store(&self) -> SharedStore;
    fn freeze(&self);
    fn thaw(&self);
    fn crash(&self) -> TempDir;
    fn launch(&self, dir: TempDir);
    /// Ends every connection of the nodes; tells how many there were.
    async fn kill_connections(&self) -> usize;
    async fn delete_sessions(&self);
    /// Who leads, with which token, in which state, as people see it in `tenure_leaders`.
    async fn leader(&self) -> (String, u64, String);
    /// How many connections the nodes have.
    async fn connections(&self) -> usize;
    /// How often the tables were made.
    async fn memories(&self) -> usize;
}

async fn node(stage: &dyn Stage, name: &str, ttl: Duration) -> (Node, Candidate) {
    let start = async {
        loop {
            match Node::with_store(stage.store()).name(name).ttl(ttl).start().await {
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

async fn three(stage: &dyn Stage, ttl: Duration) -> Vec<(Node, Candidate)> {
    join_all(["a", "b", "c"].map(|name| node(stage, name, ttl))).await
}

/// The next tenure of any of them, and whose it is.
async fn elected(nodes: &[(Node, Candidate)]) -> (Tenure, usize) {
    let elections: Vec<_> = nodes.iter().map(|(_, candidate)| Box::pin(candidate.elected())).collect();
    let (tenure, index, _) = soon(select_all(elections)).await;
    let leaders = nodes.iter().filter(|(_, candidate)| candidate.lead().is_some()).count();
    assert!(leaders <= 1, "{leaders} leaders");
    (tenure.expect("somebody is elected"), index)
}

pub async fn one_of_three_leads_the_next_takes_over_and_people_see_who(stage: &dyn Stage) {
    let mut nodes = three(stage, TTL * 5).await;
    let mut last = Token(0);
    while !nodes.is_empty() {
        let (tenure, index) = elected(&nodes).await;
        assert!(tenure.check() && tenure.token() > last);
        last = tenure.token();
        let leader = (nodes[index].0.name().to_string(), last.0, "live".to_owned());
        assert_eq!(stage.leader().await, leader);
        drop(tenure);
        soon(nodes.remove(index).0.stop()).await;
    }
}

pub async fn a_leader_gives_up_in_time_when_the_server_freezes_and_somebody_leads_when_it_thaws(
    stage: &dyn Stage,
) {
    let nodes = three(stage, TTL).await;
    let (tenure, _) = elected(&nodes).await;
    let first = tenure.token();
    stage.freeze();
    soon(tenure.cancelled()).await;
    drop(tenure);
    let gone = async {
        while nodes.iter().any(|(_, candidate)| candidate.lead().is_some()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(gone).await;
    tokio::time::sleep(2 * TTL).await;
    assert!(nodes.iter().all(|(_, candidate)| candidate.lead().is_none()), "nobody leads on a frozen store");
    stage.thaw();
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > first);
}

pub async fn tokens_go_on_after_the_server_was_killed(stage: &dyn Stage) {
    let nodes = three(stage, TTL).await;
    let (tenure, _) = elected(&nodes).await;
    let first = tenure.token();
    let dir = stage.crash();
    soon(tenure.cancelled()).await;
    drop(tenure);
    stage.launch(dir);
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > first);
}

pub async fn a_session_deleted_by_hand_ends_the_tenure_and_killed_connections_do_not(stage: &dyn Stage) {
    let nodes = three(stage, TTL * 10).await;
    let (tenure, _) = elected(&nodes).await;
    assert!(stage.kill_connections().await >= nodes.len());
    let back = async {
        while stage.connections().await < 2 * nodes.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(back).await;
    assert!(tenure.check(), "a connection that comes back in time is no loss");
    let first = tenure.token();
    stage.delete_sessions().await;
    soon(tenure.cancelled()).await;
    drop(tenure);
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > first);
}

pub async fn of_twenty_that_start_at_once_on_an_empty_database_one_leads(stage: &dyn Stage) {
    const NODES: usize = 20;
    // A long lease: nothing here waits for one to run out, and so many at once may be slow.
    let start = |nth| async move { node(stage, &format!("n{nth}"), TTL * 10).await };
    let nodes = join_all((0..NODES).map(start)).await;
    let mut last = Token(0);
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

/// Makes one `#[tokio::test]` of each story, on a stage of its own.
#[macro_export]
macro_rules! elections {
    ($stage:expr, $($story:ident)+) => {$(
        #[tokio::test]
        async fn $story() {
            $crate::server_kit::elections::$story(&$stage).await;
        }
    )+};
    ($stage:expr) => {
        $crate::elections!(
            $stage,
            one_of_three_leads_the_next_takes_over_and_people_see_who
            a_leader_gives_up_in_time_when_the_server_freezes_and_somebody_leads_when_it_thaws
            tokens_go_on_after_the_server_was_killed
            a_session_deleted_by_hand_ends_the_tenure_and_killed_connections_do_not
            of_twenty_that_start_at_once_on_an_empty_database_one_leads
        );
    };
}
