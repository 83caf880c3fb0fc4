//! Elections through the library on real Redis servers: killed leaders, flushed, frozen and restarted servers.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{join_all, select_all};
use rustix::process::Signal as Kill;
use tenure::event::What;
use tenure::{Candidate, Held, Node, Reason, Tenure, Token};
use tenure_testkit::servers::redis::{DURABLE, FORGETFUL, ask, start, start_in, tell};

const TTL: Duration = Duration::from_secs(1);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(30);
const SERVER: &str = "TENURE_TEST_REDIS";

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

fn url(server: SocketAddr) -> String {
    format!("redis://{server}/0")
}

async fn node(server: SocketAddr, name: &str) -> Node {
    Node::connect(url(server)).name(name).ttl(TTL).start().await.unwrap()
}

async fn nodes(server: SocketAddr, count: usize) -> Vec<(Node, Candidate)> {
    let each = (0..count).map(|nth| async move {
        let node = node(server, &format!("node-{nth}")).await;
        let candidate = node.candidate("scheduler").await.unwrap();
        (node, candidate)
    });
    join_all(each).await
}

/// The next tenure of anybody, and whose it is.
async fn elected(nodes: &[(Node, Candidate)]) -> (Tenure, usize) {
    let elections: Vec<_> = nodes.iter().map(|(_, candidate)| Box::pin(candidate.elected())).collect();
    let (tenure, index, _) = soon(select_all(elections)).await;
    (tenure.expect("somebody is elected"), index)
}

fn leaders(nodes: &[(Node, Candidate)]) -> usize {
    nodes.iter().filter(|(_, candidate)| candidate.lead().is_some_and(|lead| lead.check())).count()
}

#[tokio::test]
async fn one_of_three_leads_and_the_next_takes_over_when_it_stops() {
    let server = start(DURABLE);
    let mut nodes = nodes(server.address(), 3).await;
    let mut last = Token(0);
    while !nodes.is_empty() {
        let (tenure, index) = elected(&nodes).await;
        assert!(tenure.check() && tenure.token() > last);
        assert_eq!(leaders(&nodes), 1);
        last = tenure.token();
        drop(tenure);
        let (node, candidate) = nodes.remove(index);
        drop(candidate);
        soon(node.stop()).await;
    }
}

/// What is started as another process: it leads for as long as it lives.
#[tokio::test]
async fn helper_process() {
    let Some(server) = std::env::var(SERVER).ok() else { return };
    let node = node(server.parse().unwrap(), "doomed").await;
    let tenure = node.candidate("scheduler").await.unwrap().elected().await.unwrap();
    println!("\nleads with {}", tenure.token());
    std::future::pending::<()>().await;
}

/// The first source design's zombie: its leader died, and the followers kept its lease alive for ever.
#[tokio::test]
async fn a_killed_leader_is_replaced_although_five_followers_live() {
    let server = start(DURABLE);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["helper_process", "--exact", "--nocapture"])
        .env(SERVER, server.address().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut tokens = lines.filter_map(|line| line.unwrap().strip_prefix("leads with ")?.parse::<u64>().ok());
    let first = tokio::task::spawn_blocking(move || tokens.next()).await.unwrap().expect("the child leads");
    let followers = nodes(server.address(), 5).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let (tenure, _) = elected(&followers).await;
    assert!(tenure.token().0 > first);
    let until = Instant::now() + 10 * TTL;
    while Instant::now() < until {
        assert_eq!(leaders(&followers), 1);
        tokio::time::sleep(TTL / 4).await;
    }
    assert!(tenure.check(), "ten leases later it still leads");
}

#[tokio::test]
async fn twenty_that_start_at_one_barrier_have_one_leader() {
    let server = start(DURABLE);
    for round in 0..3 {
        let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(20));
        let each = (0..20).map(|nth| {
            let (barrier, server) = (barrier.clone(), server.address());
            tokio::spawn(async move {
                let builder = Node::connect(url(server))
                    .name(format!("node-{nth}"))
                    .namespace(format!("round-{round}"));
                barrier.wait().await;
                let node = builder.ttl(TTL).start().await.unwrap();
                let candidate = node.candidate("scheduler").await.unwrap();
                (node, candidate)
            })
        });
        let nodes: Vec<_> = join_all(each).await.into_iter().map(Result::unwrap).collect();
        let (tenure, _) = elected(&nodes).await;
        let until = Instant::now() + 2 * TTL;
        while Instant::now() < until {
            assert_eq!(leaders(&nodes), 1);
            tokio::time::sleep(TTL / 10).await;
        }
        assert!(tenure.check());
        drop(tenure);
        join_all(nodes.iter().map(|(node, _)| node.stop())).await;
    }
}

#[tokio::test]
async fn a_frozen_server_makes_the_leader_stop_in_time_and_it_recovers() {
    let server = start(DURABLE);
    let nodes = nodes(server.address(), 3).await;
    let (tenure, _) = elected(&nodes).await;
    let (token, lead) = (tenure.token(), tenure.lead());
    server.signal(Kill::STOP);
    let held = soon(tenure.hold(|_| std::future::pending::<()>())).await;
    assert_eq!(held, Held::Lost(Reason::LeaseExpired));
    // The work stopped before the deadline; then nobody leads without the store, however long it is gone.
    soon(async {
        while lead.check() {
            tokio::time::sleep(TTL / 100).await;
        }
    })
    .await;
    assert_eq!(leaders(&nodes), 0);
    tokio::time::sleep(2 * TTL).await;
    server.signal(Kill::CONT);
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > token);
    assert_eq!(leaders(&nodes), 1);
}

#[tokio::test]
async fn a_durable_server_that_restarts_keeps_tokens_and_roles() {
    let server = start(DURABLE);
    let nodes = nodes(server.address(), 3).await;
    let (tenure, _) = elected(&nodes).await;
    let token = tenure.token();
    let port = server.port();
    let server = start_in(server.crash(), port, DURABLE);
    let until = Instant::now() + 2 * TTL;
    while Instant::now() < until {
        assert!(leaders(&nodes) <= 1);
        tokio::time::sleep(TTL / 10).await;
    }
    drop(tenure);
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > token);
    drop(server);
}

/// Waits until everybody knows of that tenure.
async fn seen_by_all(nodes: &[(Node, Candidate)], token: Token) {
    let seen = |candidate: &Candidate| candidate.leader().is_some_and(|leader| leader.token == token);
    while !nodes.iter().all(|(_, candidate)| seen(candidate)) {
        tokio::time::sleep(TTL / 100).await;
    }
}

/// Whoever wipes the store wipes the leader: it gives up, all wait until its lease has run out, and then one is
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
        tell(server.address(), &["FLUSHALL"]);
        let held = soon(tenure.hold(|_| std::future::pending::<()>())).await;
        assert!(matches!(held, Held::Lost(_)));
        let (again, _) = elected(&nodes).await;
        assert!(again.token() > token, "{} after {token}", again.token());
        soon(async { while !matches!(alarms.next().await.unwrap().what, What::Quarantined { .. }) {} }).await;
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
    assert!(token.0 > 1_000_000_000_000_000, "the wall clock is a floor for tokens: {token}");
    let port = server.port();
    let _server = start_in(server.crash(), port, FORGETFUL);
    let held = soon(tenure.hold(|_| std::future::pending::<()>())).await;
    assert!(matches!(held, Held::Lost(_)));
    let (again, _) = elected(&nodes).await;
    assert!(again.token() > token);
    soon(async { while !matches!(alarms.next().await.unwrap().what, What::Quarantined { .. }) {} }).await;
}

/// The server's own statistics: what an idle node costs with one role and with many, and what is never asked.
#[tokio::test]
async fn an_idle_node_costs_two_operations_a_beat_whatever_it_leads() {
    const ROLES: usize = 1000;
    let server = start(DURABLE);
    let address = server.address();
    let node = node(address, "only").await;
    let first = node.candidate("role-0").await.unwrap();
    let _tenure = soon(first.elected()).await.unwrap();
    soon(written_down(address, 1)).await;
    let with_one = operations_during(address, 5 * TTL).await;
    let others = (1..ROLES).map(|nth| format!("role-{nth}"));
    let candidates = join_all(others.map(|role| node.stand(&role).start())).await;
    let candidates: Vec<_> = candidates.into_iter().map(Result::unwrap).collect();
    let _tenures = soon(join_all(candidates.iter().map(Candidate::elected))).await;
    soon(written_down(address, ROLES)).await;
    let with_many = operations_during(address, 5 * TTL).await;
    eprintln!("operations in {:?}: {with_one} with one role, {with_many} with {ROLES}", 5 * TTL);
    // Two for each of 25 beats, and a little at the edges. A slow machine does less, never more.
    assert!(with_one <= 2 * 27 && with_many <= 2 * 27, "{with_one}, {with_many}");
    let statistics = ask(address, &["INFO", "commandstats"]);
    for never in ["keys", "scan", "expire", "pexpire", "time", "setex", "psetex"] {
        assert!(!statistics.contains(&format!("cmdstat_{never}:")), "{statistics}");
    }
}

/// Waits until the history, which is written after the fact, tells of so many roles.
async fn written_down(server: SocketAddr, roles: usize) {
    let cluster = ask(server, &["HGET", "tenure:{default}:0:cluster", "cluster"]);
    let epoch = cluster.split("\"epoch\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    let history = format!("tenure:{{default}}:{}:history", epoch.expect("the register tells its epoch"));
    while ask(server, &["HLEN", &history]) != format!(":{roles}") {
        tokio::time::sleep(TTL / 20).await;
    }
}

/// How many operations the server carried out meanwhile. Each reads the marker of its namespace once.
async fn operations_during(server: SocketAddr, span: Duration) -> u64 {
    let count = || {
        let statistics = ask(server, &["INFO", "commandstats"]);
        let calls = statistics.split("cmdstat_get:calls=").nth(1).and_then(|rest| rest.split(',').next());
        calls.expect("a marker was read").parse::<u64>().unwrap()
    };
    let before = count();
    tokio::time::sleep(span).await;
    count() - before
}
