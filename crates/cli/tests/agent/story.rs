//! Three agents on each store: the leader is killed, and exactly one of the others leads.

use rustix::process::Signal;
use serde_json::json;

use crate::kit::{Agent, Store, eventually, tenure};

const ROLE: &str = "[[role]]\nname = \"scheduler\"";

/// The only one that leads.
fn leader(agents: &[Agent]) -> usize {
    let mut found = Vec::new();
    eventually("exactly one leads", || {
        found = (0..agents.len()).filter(|index| agents[*index].leads("scheduler")).collect();
        found.len() == 1
    });
    found[0]
}

fn three_agents(store: &Store) {
    let mut agents: Vec<Agent> = ["a", "b", "c"].map(|name| Agent::start(store, name, ROLE)).into();
    let first = leader(&agents);
    eventually("it is seen", || agents[first].token("scheduler") > 0);
    let token = agents[first].token("scheduler");

    // A rollout must not wait for leadership.
    for agent in &agents {
        eventually("it is ready", || agent.get("/readyz").status == 200);
        assert_eq!(agent.get("/livez").status, 200);
        eventually("all see three nodes", || agent.get("/v1/nodes").json()["total"] == 3);
    }
    eventually("all is well", || agents[first].get("/v1/cluster").json()["health"] == "healthy");
    eventually("HEAD is answered without a body", || {
        let head = agents[leader(&agents)].ask("HEAD", "/leader/scheduler", None);
        head.status == 200 && head.body.is_empty()
    });

    let mut dead = agents.remove(first);
    dead.process.signal(Signal::KILL);
    dead.process.kill();
    let second = leader(&agents);
    eventually("it is seen", || agents[second].token("scheduler") > token);
    eventually("the fail-over is counted", || {
        let counted: f64 = agents.iter().filter_map(|agent| agent.metric("tenure_failovers_total")).sum();
        counted >= 1.0
    });
    by_hand(&agents, second);
}

/// What operators do, through an agent that does not lead.
fn by_hand(agents: &[Agent], leader: usize) {
    let (leads, other) = (&agents[leader], &agents[1 - leader]);
    let name = |agent: &Agent| agent.get("/v1/cluster").json()["node"].as_str().unwrap().to_owned();
    let target = name(other);
    eventually("it stands", || leads.role("scheduler")["candidates"][0] == target.as_str());
    // On a busy machine the target may be silent for a moment, and then it is refused.
    eventually("it is handed over", || {
        let answer = other.post("/v1/roles/scheduler/transfer", &json!({ "to": target, "why": "a test" }));
        let silent = answer.status == 409 && answer.body.contains("silent");
        assert!(answer.status == 200 || silent, "{answer:?}");
        answer.status == 200 && answer.json()["leader"].as_str() == Some(target.as_str())
    });
    eventually("the other says so", || other.leads("scheduler"));
    assert!(!leads.leads("scheduler"));
    let history = leads.get("/v1/history?role=scheduler").json();
    assert_eq!(history["audit"][0]["act"], "transfer");
    assert_eq!(history["audit"][0]["why"], "a test");
    assert!(!history["audit"][0]["by"].as_str().unwrap().is_empty());

    // The same through the command line, which asks an agent.
    let run = |args: &[&str]| {
        let ran = tenure().args(args).env("TENURE_AGENT", &leads.socket).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.status.code(), Some(0), "{args:?}: {out}{err}");
        out.into_owned()
    };
    assert!(run(&["status"]).contains(&target));
    assert!(run(&["pause", "scheduler", "--why", "upgrade"]).contains("paused"));
    eventually("it is seen", || leads.role("scheduler")["state"] == "paused");
    assert!(run(&["resume", "scheduler"]).contains("leads it now"));
    assert!(run(&["step-down", "scheduler"]).contains("stepped down"));
    assert!(run(&["nodes"]).contains(&target));
    assert!(run(&["pin", "scheduler", "--to", &target, "--why", "it has the disk"]).contains("is pinned to"));
    assert!(run(&["pin", "scheduler", "--why", "all have it now"]).contains("is unpinned"));
    let at = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3600)).to_string();
    let transfer = ["transfer", "scheduler", "--to", &target, "--why", "tonight", "--at", &at];
    assert!(run(&transfer).contains("scheduler is transferred to"));
    assert!(run(&["history", "scheduler"]).contains("transfer"));
    let audit = run(&["audit", "--format", "json"]);
    let audit: serde_json::Value = serde_json::from_str(&audit).unwrap();
    for (act, why) in [
        ("pause", "upgrade"),
        ("pin", "it has the disk"),
        ("unpin", "all have it now"),
        ("scheduled", &format!("tonight (at {at})")),
    ] {
        let entries = audit["entries"].as_array().unwrap();
        let entry =
            entries.iter().find(|entry| entry["act"] == act).unwrap_or_else(|| panic!("{act}: {audit}"));
        assert_eq!(entry["why"], why, "{entry}");
        // Who asked, and as whom the agent knows it.
        assert!(entry["by"].as_str().unwrap().contains('@'), "{entry}");
    }
}

#[test]
fn three_agents_on_a_file() {
    three_agents(&Store::file());
}

#[test]
fn three_agents_on_redis() {
    three_agents(&Store::redis());
}

#[test]
fn three_agents_on_postgres() {
    three_agents(&Store::postgres());
}

#[test]
fn three_agents_on_mariadb() {
    three_agents(&Store::mysql());
}
