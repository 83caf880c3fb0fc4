//! Every key that says who an agent is and how it stands for roles, in agents that run: `[node]`, `[candidacy]` and
//! `[[role]]`. Where both say something, the role's own word counts.

use rustix::process::Signal;
use serde_json::json;

use crate::duty::calm;
use crate::kit::{Agent, Store, eventually};

fn role(name: &str, more: &str) -> String {
    format!("[[role]]\nname = \"{name}\"\n{more}\n")
}

/// Of four roles one is free to be led; each of the others has one thing against it, from `[candidacy]`.
#[test]
fn a_node_stands_only_for_what_it_may_lead() {
    let (willing, here, at_once) = ("eligible = true", "requires = {}", "takeover-delay = \"0s\"");
    let config = [
        "[candidacy]\neligible = false\nrequires = { zone = \"b\" }\ntakeover-delay = \"1h\"\n".to_owned(),
        role("free", &[willing, here, at_once].join("\n")),
        role("unwilling", &[here, at_once].join("\n")),
        role("elsewhere", &[willing, at_once].join("\n")),
        role("later", &[willing, here].join("\n")),
    ]
    .concat();
    let store = Store::file();
    let labelled = |name: &str, zone: &str, config: &str| {
        let zone = format!("node.labels=zone={zone}");
        Agent::launch(&store, name, config, |command| _ = command.args(["--set", &zone]))
    };
    let agent = labelled("a", "a", &config);
    eventually("it leads what it may", || agent.leads("free"));
    agent.beats();
    for role in ["unwilling", "elsewhere", "later"] {
        assert_eq!(agent.get(&format!("/leader/{role}")).status, 503, "{role}");
    }
    // Another one, of which all is true that is asked for, and that does not wait.
    let other =
        ["free", "unwilling", "elsewhere", "later"].map(|name| role(name, "requires = { zone = \"b\" }"));
    let other = labelled("b", "b", &other.concat());
    let rest = ["unwilling", "elsewhere", "later"];
    eventually("it leads the rest", || rest.iter().all(|role| other.leads(role)));
    assert!(agent.leads("free"), "and takes nothing away");

    agent.rewrite(&store, "a", &config.replace("eligible = false", "eligible = true"));
    agent.process.signal(Signal::HUP);
    eventually("it stands for what it did not", || {
        let standing = agent.get("/v1/nodes").json();
        standing["nodes"][0]["candidacies"].as_object().is_some_and(|roles| roles.contains_key("unwilling"))
    });
}

/// A node of higher priority asks for what a lower one leads, if it is to ask, and if the tenure is old enough.
#[test]
fn priority_counts_where_a_node_asks_for_it() {
    let store = Store::file();
    let low = ["asked", "unasked", "equal"].map(|name| role(name, "min-tenure = \"0s\"")).concat();
    let low = format!("[candidacy]\nmin-tenure = \"1h\"\n{low}{}", role("young", ""));
    let low = calm(&store, "low", &low);
    let all = ["asked", "unasked", "equal", "young"];
    eventually("it leads all", || all.iter().all(|role| low.leads(role)));
    let high = [
        "[candidacy]\npriority = 5\npreempt = true\n".to_owned(),
        role("asked", ""),
        role("unasked", "preempt = false"),
        role("equal", "priority = 0"),
        role("young", ""),
    ]
    .concat();
    let high = Agent::start(&store, "high", &high);
    eventually("it leads what it asked for", || high.leads("asked"));
    high.beats();
    for role in ["unasked", "equal", "young"] {
        assert!(low.leads(role) && low.token(role) == 1, "{role}");
    }
    // Without a request, it is the first in line.
    eventually("it is seen", || low.role("unasked")["candidates"] == json!(["high"]));
    let third = calm(&store, "third", &role("unasked", "priority = 3"));
    eventually("the line is in order", || low.role("unasked")["candidates"] == json!(["high", "third"]));
    drop(third);
}

#[test]
fn a_node_is_who_it_says_it_is_and_where() {
    let (store, other) = (Store::file(), Store::file());
    let job = role("job", "");
    let launch = |store: &Store, name: &str, set: &[&str]| {
        Agent::launch(store, name, &job, |command| {
            set.iter().for_each(|pair| _ = command.args(["--set", pair]));
        })
    };
    let east =
        launch(&store, "web-1", &["namespace=east", "node.address=10.0.0.1:80", "node.labels=zone=a,rack=7"]);
    let west = launch(&store, "web-1", &["namespace=west"]);
    let elsewhere = launch(&other, "web-1", &["namespace=east"]);
    for agent in [&east, &west, &elsewhere] {
        eventually("each leads in its own cluster", || agent.leads("job"));
        eventually("and sees itself", || agent.get("/v1/nodes").json()["total"] == 1);
    }
    let node = east.get("/v1/nodes").json()["nodes"][0].clone();
    assert_eq!((&node["node"], &node["address"]), (&json!("web-1"), &json!("10.0.0.1:80")), "{node}");
    assert_eq!(node["labels"], json!({ "zone": "a", "rack": "7" }));
    assert_eq!(node["ttl_ms"], 4000, "timing.ttl: {node}");
    let again = launch(&store, "web-1", &["namespace=east"]);
    eventually("one process has a name", || again.log().contains("web-1"));
    again.process.signal(Signal::TERM);
    assert!(east.leads("job") && !again.leads("job"));
}

#[test]
fn each_look_at_a_role_is_told_where_that_is_wanted() {
    let store = Store::file();
    let told = Agent::launch(&store, "a", &role("job", ""), |command| {
        command.args(["--set", "node.election-checks=true"]);
    });
    let untold = Agent::start(&store, "b", &role("job", ""));
    let mut stream = told.stream("/v1/events", None);
    eventually("one leads", || told.leads("job") || untold.leads("job"));
    let check = (0..100).map(|_| stream.until("election-check")).find(|check| !check["leader"].is_null());
    let check = check.expect("a look shows the leader");
    assert_eq!(check["role"], "job", "{check}");
    assert!(["a", "b"].map(|name| json!(name)).contains(&check["leader"]), "{check}");
    let metrics = untold.get("/metrics").body;
    let mut counted = metrics.lines().filter(|line| line.contains("election-check"));
    assert!(counted.all(|line| line.ends_with(" 0")), "{metrics}");
}
