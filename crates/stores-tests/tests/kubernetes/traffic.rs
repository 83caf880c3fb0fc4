//! What a node costs the API servers, by their own count.

use std::time::Duration;

use tenure::Node;
use tenure_torture::servers::kubernetes::{ADMIN, Kubernetes as Server};

use crate::server_kit::soon;

/// For so long they are counted.
const COUNTED: Duration = Duration::from_secs(30);

/// Requests for Leases that were answered so far: those that read, and those that write. A watch is answered when it ends.
fn requests(server: &Server) -> (u64, u64) {
    let said = server.ask("GET", "/metrics", "").body;
    let counted = said.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    let leases: Vec<_> = counted.filter(|line| line.contains("resource=\"leases\"")).collect();
    let sum = |verbs: &[&str]| {
        let of = |line: &&&str| verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        let counts = leases.iter().filter(of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        counts.sum::<f64>() as u64
    };
    (sum(&["GET", "LIST"]), sum(&["PUT", "POST", "DELETE", "PATCH"]))
}

/// A leader, and a leader with two standbys, with the defaults: a lease of five seconds and a beat of one. Each node writes once
/// and reads once a beat, whatever it is; the few requests of the API server for itself are in the count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_reads_once_and_writes_once_a_beat() {
    let server = Server::start(1);
    server.make_namespace("team");
    let url = format!("kubernetes:team?kubeconfig={}", server.kubeconfig(ADMIN, true).display());
    let (mut nodes, mut lead) = (Vec::new(), None);
    for (count, name) in ["leader", "standby-1", "standby-2"].into_iter().enumerate() {
        let node = Node::builder(&url).name(name).start().await.unwrap();
        let candidate = node.candidate("scheduler").await.unwrap();
        if count == 0 {
            lead = Some(soon(candidate.elected()).await.unwrap());
        }
        nodes.push((node, candidate));
        if count == 1 {
            continue;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = requests(&server);
        tokio::time::sleep(COUNTED).await;
        let after = requests(&server);
        let (reads, writes) = (after.0 - before.0, after.1 - before.1);
        let minute = |count: u64| count * 60 / COUNTED.as_secs();
        println!("{} nodes: {} reads and {} writes a minute", count + 1, minute(reads), minute(writes));
        let beats = COUNTED.as_secs() * (count as u64 + 1);
        assert!(writes <= beats + beats / 5 + 6, "{writes} writes in {beats} beats");
        assert!(reads <= beats + beats / 5 + 6, "{reads} reads in {beats} beats");
    }
    assert!(lead.is_some_and(|lead| lead.check()), "nothing else happened meanwhile");
    for (node, _) in nodes {
        node.stop().await;
    }
}
