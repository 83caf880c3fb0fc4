//! Elections on PostgreSQL, through the library: what a user of the crate sees when the server has a bad day.

mod postgres_kit;

use std::time::Duration;

use futures_util::future::{join_all, select_all};
use postgres_kit::{OneServer, soon};
use tenure::{Candidate, Node, Tenure, Token};

const TTL: Duration = Duration::from_secs(1);

async fn node(server: &OneServer, name: &str) -> (Node, Candidate) {
    let node = Node::with_store(server.store()).name(name).ttl(TTL).start().await.expect("it starts");
    let candidate = node.candidate("scheduler").await.expect("it stands");
    (node, candidate)
}

async fn three(server: &OneServer) -> Vec<(Node, Candidate)> {
    join_all(["a", "b", "c"].map(|name| node(server, name))).await
}

/// The next tenure of any of them, and whose it is.
async fn elected(nodes: &[(Node, Candidate)]) -> (Tenure, usize) {
    let elections: Vec<_> = nodes.iter().map(|(_, candidate)| Box::pin(candidate.elected())).collect();
    let (tenure, index, _) = soon(select_all(elections)).await;
    assert_eq!(nodes.iter().filter(|(_, candidate)| candidate.lead().is_some()).count(), 1, "one leader");
    (tenure.expect("somebody is elected"), index)
}

#[tokio::test]
async fn one_of_three_leads_the_next_takes_over_and_psql_shows_who() {
    let server = OneServer::new();
    let mut nodes = three(&server).await;
    let admin = server.admin().await;
    let mut last = Token(0);
    while !nodes.is_empty() {
        let (tenure, index) = elected(&nodes).await;
        assert!(tenure.check() && tenure.token() > last);
        last = tenure.token();
        let leader = "SELECT node, token, session_state FROM tenure_leaders WHERE namespace = 'default' AND since <= now()";
        let leader = admin.query_one(leader, &[]).await.unwrap();
        assert_eq!(leader.get::<_, &str>(0), nodes[index].0.name().as_str());
        assert_eq!((leader.get::<_, i64>(1).cast_unsigned(), leader.get::<_, &str>(2)), (last.0, "live"));
        drop(tenure);
        soon(nodes.remove(index).0.stop()).await;
    }
}

#[tokio::test]
async fn a_leader_gives_up_in_time_when_the_server_freezes_and_somebody_leads_when_it_thaws() {
    let server = OneServer::new();
    let nodes = three(&server).await;
    let (tenure, _) = elected(&nodes).await;
    let first = tenure.token();
    server.server().freeze();
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
    server.server().thaw();
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > first);
}

#[tokio::test]
async fn tokens_go_on_after_the_server_was_killed() {
    let server = OneServer::new();
    let nodes = three(&server).await;
    let (tenure, _) = elected(&nodes).await;
    let first = tenure.token();
    let dir = server.server().crash();
    soon(tenure.cancelled()).await;
    drop(tenure);
    server.server().launch(dir);
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > first);
}

#[tokio::test]
async fn a_session_deleted_by_hand_ends_the_tenure_and_killed_connections_do_not() {
    let server = OneServer::new();
    let nodes = three(&server).await;
    let (tenure, _) = elected(&nodes).await;
    let admin = server.admin().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'";
    for _ in 0..3 {
        admin.query(kill, &[]).await.unwrap();
        tokio::time::sleep(TTL / 2).await;
    }
    assert!(tenure.check(), "a connection that comes back in time is no loss");
    let first = tenure.token();
    admin.batch_execute("DELETE FROM tenure_registers WHERE kind = 'session'").await.unwrap();
    soon(tenure.cancelled()).await;
    drop(tenure);
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > first);
}

#[tokio::test]
async fn of_twenty_that_start_at_once_on_an_empty_database_one_leads() {
    const NODES: usize = 20;
    let server = &OneServer::new();
    let start = |nth| async move { node(server, &format!("n{nth}")).await };
    let nodes = join_all((0..NODES).map(start)).await;
    let mut last = Token(0);
    for _ in 0..3 {
        let (tenure, _) = elected(&nodes).await;
        assert!(tenure.token() > last);
        last = tenure.token();
        drop(tenure);
    }
    let admin = server.admin().await;
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'";
    let connections: i64 = admin.query_one(connections, &[]).await.unwrap().get(0);
    assert!(connections <= 2 * NODES as i64, "{connections} connections of {NODES} nodes");
    let writers = "SELECT count(DISTINCT id) FROM tenure_schema";
    assert_eq!(admin.query_one(writers, &[]).await.unwrap().get::<_, i64>(0), 1, "the tables were made once");
    join_all(nodes.iter().map(|(node, _)| node.stop())).await;
}
