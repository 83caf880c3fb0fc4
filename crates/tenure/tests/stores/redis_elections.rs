//! Elections through the library on real Redis servers: what is peculiar to them. The behaviours that all stores share are in
//! `behaviours`.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join_all, select_all};
use tenure::event::EventKind;
use tenure::{Candidate, Node, Tenure, Token, WorkOutcome};
use tenure_torture::servers::redis::{DURABLE, FORGETFUL, command, query, start, start_in};

const TTL: Duration = Duration::from_secs(1);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

fn url(server: SocketAddr) -> String {
    format!("redis://{server}/0")
}

async fn node(server: SocketAddr, name: &str) -> Node {
    Node::builder(url(server)).name(name).ttl(TTL).start().await.unwrap()
}

async fn nodes(server: SocketAddr, count: usize) -> Vec<(Node, Candidate)> {
    let each = (0..count).map(|nth| async move {
        let node = node(server, &format!("node-{nth}")).await;
        let candidate = node.candidate("scheduler").await.unwrap();
        (node, candidate)
    });
    join_all(each).await
}

/// The next tenure of any node, and whose it is.
async fn elected(nodes: &[(Node, Candidate)]) -> (Tenure, usize) {
    let elections: Vec<_> = nodes.iter().map(|(_, candidate)| Box::pin(candidate.elected())).collect();
    let (tenure, index, _) = soon(select_all(elections)).await;
    (tenure.expect("a node is elected"), index)
}

/// Waits until every node knows of that tenure.
async fn seen_by_all(nodes: &[(Node, Candidate)], token: Token) {
    let seen = |candidate: &Candidate| candidate.leader().is_some_and(|leader| leader.token == token);
    while !nodes.iter().all(|(_, candidate)| seen(candidate)) {
        tokio::time::sleep(TTL / 100).await;
    }
}

/// A wiped store has no leader: it gives up, all wait until its lease has run out, and then one is
/// elected with a higher token.
#[tokio::test]
async fn a_flush_ends_the_tenure_and_is_followed_by_a_quarantine_and_a_higher_token() {
    for settings in [DURABLE, FORGETFUL] {
        let server = start(settings);
        let nodes = nodes(server.address(), 3).await;
        let mut alarms = nodes[0].0.events();
        let (tenure, _) = elected(&nodes).await;
        let token = tenure.token();
        soon(seen_by_all(&nodes, token)).await;
        command(server.address(), &["FLUSHALL"]);
        let held = soon(tenure.hold(|_| std::future::pending::<()>())).await;
        assert!(matches!(held, WorkOutcome::Lost(_)));
        let (again, _) = elected(&nodes).await;
        assert!(again.token() > token, "{} after {token}", again.token());
        soon(async { while !matches!(alarms.next().await.unwrap().kind, EventKind::Quarantined { .. }) {} })
            .await;
    }
}

/// What most people run: it says so, and elects after the quarantine.
#[tokio::test]
async fn a_server_without_persistence_elects_after_a_quarantine_and_says_why() {
    let server = start(FORGETFUL);
    let nodes = nodes(server.address(), 3).await;
    let described = nodes[0].0.store().describe().await.unwrap();
    assert!(described.remarks[0].starts_with("class C"), "{:?}", described.remarks);
    let mut alarms = nodes[0].0.events();
    let (tenure, _) = elected(&nodes).await;
    let token = tenure.token();
    assert!(token.get() > 1_000_000_000_000_000, "the wall clock is a floor for tokens: {token}");
    let port = server.port();
    let _server = start_in(server.crash(), port, FORGETFUL);
    let held = soon(tenure.hold(|_| std::future::pending::<()>())).await;
    assert!(matches!(held, WorkOutcome::Lost(_)));
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > token);
    soon(async { while !matches!(alarms.next().await.unwrap().kind, EventKind::Quarantined { .. }) {} })
        .await;
}

/// What designs like this one ask a server for, and what this one never does.
#[tokio::test]
async fn nothing_is_scanned_nothing_expires_and_the_server_is_not_asked_for_the_time() {
    let server = start(DURABLE);
    let nodes = nodes(server.address(), 3).await;
    for _ in 0..3 {
        let (tenure, _) = elected(&nodes).await;
        soon(seen_by_all(&nodes, tenure.token())).await;
        tokio::time::sleep(TTL).await;
    }
    let statistics = query(server.address(), &["INFO", "commandstats"]);
    assert!(statistics.contains("cmdstat_evalsha:"), "{statistics}");
    for never in ["keys", "scan", "expire", "pexpire", "time", "setex", "psetex", "setnx"] {
        assert!(!statistics.contains(&format!("cmdstat_{never}:")), "{statistics}");
    }
}
