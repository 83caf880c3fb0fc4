//! What agents cost their store while nothing happens and no client looks.

use std::net::SocketAddr;

use tenure_torture::servers::redis;

use crate::kit::{Agent, Store, eventually};

/// Every operation of ours on Redis asks for one key first.
fn operations(address: SocketAddr) -> u64 {
    let calls = redis::info(address, "cmdstat_get");
    let calls = calls.split(',').find_map(|part| part.strip_prefix("calls=")).expect("it counts calls");
    calls.parse().expect("a number")
}

/// Whether sessions beat, an agent's view learns from what its node reads anyway; what else changes notifies.
#[test]
fn agents_at_rest_cost_hardly_more_than_their_nodes() {
    let server = redis::durable();
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let store = Store::Redis(server);
    let role = "[[role]]\nname = \"scheduler\"";
    let start =
        |name| Agent::launch(&store, name, role, |command| _ = command.args(["--set", "timing.ttl=12s"]));
    let agents = ["a", "b", "c"].map(start);
    eventually("all see the leader and the nodes", || {
        agents.iter().all(|agent| {
            agent.role("scheduler")["state"] == "led" && agent.get("/v1/nodes").json()["total"] == 3
        })
    });
    let leader = agents.iter().find(|agent| agent.leads("scheduler")).expect("one leads");
    let beats = || leader.metric("tenure_beat_seconds_count").expect("it counts its beats");
    let (first, mut asked) = (beats(), 0);
    eventually("all are at rest", || beats() > first + 2.0);
    let before = operations(address);
    let (second, mut counted) = (beats(), 0.0);
    eventually("some beats pass", || {
        asked += 1;
        counted = beats() - second;
        counted >= 4.0
    });
    let made = operations(address) - before;
    // One of the leader, one of the standby that watches it, half a one of the other; now and then each reads everything.
    assert!(made as f64 <= 3.0 * counted + 6.0, "{made} operations in {counted} beats of the leader");
    assert!(asked > 1, "the metrics were looked at, and cost nothing");
}
