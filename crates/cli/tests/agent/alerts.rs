//! Alerts, with real agents and somebody who is told: what happens is told once, whoever tells it.

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_torture::servers::free_port;

use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually, tenure};

/// Rules without patience, and somebody who is told.
fn alerting(hook: &Hook, rules: &str) -> String {
    let url = hook.url();
    format!(
        "[alerting]\ninterval = \"200ms\"\ndefaults = false\n[[notify]]\nname = \"hook\"\nurl = \"{url}\"\ntimeout = \"30s\"\n{rules}"
    )
}

fn rule(name: &str, condition: &str, more: &str) -> String {
    format!(
        "[[alert]]\nname = \"{name}\"\ncondition = \"{condition}\"\nseverity = \"critical\"\ncool-down = \"0s\"\nrepeat = \"0s\"\n{more}\n"
    )
}

const JOB: &str = "[[role]]\nname = \"job\"\n";

fn alert(agent: &Agent, name: &str) -> Value {
    let all = agent.get("/v1/alerts").json();
    let found = all["alerts"].as_array().unwrap().iter().find(|alert| alert["alert"] == name).cloned();
    found.unwrap_or_else(|| panic!("{all}"))
}

/// Which of the agents tells people.
fn teller(agents: &[Agent]) -> usize {
    let mut found = None;
    eventually("somebody tells people", || {
        let teller = agents[0].get("/v1/alerts").json()["sender"].clone();
        let named = |agent: &Agent| agent.get("/v1/cluster").json()["node"] == teller;
        found = agents.iter().position(named);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn three_agents_tell_once_that_nobody_leads_and_once_that_it_is_over() {
    let (store, hook) = (Store::file(), Hook::start());
    let rules = rule("no-leader", "tenure_led == 0", "for = \"1s\"\nsummary = \"nobody leads {role}\"");
    let more = alerting(&hook, &rules);
    let mut agents: Vec<Agent> = ["a", "b", "c"].map(|name| Agent::start(&store, name, &more)).into();
    let mut worker = Agent::start(&store, "worker", JOB);
    eventually("it leads", || worker.leads("job"));
    for agent in &agents {
        eventually("all see it", || agent.get("/v1/roles/job").json()["state"] == "led");
        // What Tenure needs for itself is in no list.
        assert_eq!(agent.get("/v1/roles").json()["total"], 1);
        assert_eq!(agent.metric("tenure_leading"), Some(0.0));
    }

    worker.process.kill();
    eventually("it is told", || hook.heard("no-leader", "firing") >= 1);
    let told = hook.all()[0].clone();
    assert_eq!(told.body["summary"], "nobody leads job");
    assert_eq!(told.body["instances"][0]["labels"]["role"], "job");
    assert!(told.head.contains("idempotency-key: tenure/default/no-leader/"), "{told:?}");
    for agent in &agents {
        eventually("all show it", || alert(agent, "no-leader")["state"] == "firing");
        eventually("and who was told", || alert(agent, "no-leader")["deliveries"][0]["target"] == "hook");
    }

    // Whoever told it dies; the next one knows.
    let mut dead = agents.remove(teller(&agents));
    dead.process.kill();
    let next = teller(&agents);
    agents[next].beats();
    hook.assert_once();

    let _again = Agent::start(&store, "worker", JOB);
    eventually("it is over, and that is told", || hook.heard("no-leader", "resolved") >= 1);
    eventually("all show it", || agents.iter().all(|agent| alert(agent, "no-leader")["state"] == "inactive"));
    agents[next].beats();
    hook.assert_once();
    eventually("whatever began is over", || {
        hook.heard("no-leader", "firing") == hook.heard("no-leader", "resolved")
    });
    let told =
        |agent: &Agent| agent.metric("tenure_alert_deliveries_total{target=\"hook\",outcome=\"delivered\"}");
    assert!(told(&agents[next]) >= Some(1.0));
    assert!(
        agents[next]
            .get("/metrics")
            .body
            .contains("tenure_alerts{alert=\"no-leader\",severity=\"critical\",state=\"inactive\"} 1")
    );
}

/// Two stores that should be one: both leaders say so themselves.
#[test]
fn two_leaders_are_told_once_from_what_agents_expose() {
    let (store, other, hook, port) = (Store::file(), Store::file(), Hook::start(), free_port());
    let mut stranger =
        Agent::start(&other, "stranger", &format!("{JOB}[http]\nlisten = [\"127.0.0.1:{port}\"]"));
    eventually("the stranger leads", || stranger.leads("job"));
    let rules =
        rule("two-leaders", "sum by (role) (tenure_is_leader) > 1", "summary = \"{value} lead {role}\"");
    let scrape = format!("interval = \"200ms\"\nscrape = [\"http://127.0.0.1:{port}\"]");
    let more = format!("{JOB}{}", alerting(&hook, &rules).replace("interval = \"200ms\"", &scrape));
    let agents: Vec<Agent> = ["a", "b", "c"].map(|name| Agent::start(&store, name, &more)).into();
    eventually("it is told", || hook.heard("two-leaders", "firing") >= 1);
    assert_eq!(hook.all()[0].body["summary"], "2 lead job");
    agents[teller(&agents)].beats();
    hook.assert_once();
    stranger.process.kill();
    eventually("it is over", || hook.heard("two-leaders", "resolved") >= 1);
    hook.assert_once();
}

#[test]
fn operators_acknowledge_resolve_and_silence_and_what_fails_is_tried_again() {
    let (store, hook) = (Store::file(), Hook::start());
    hook.answer(503);
    let rules = rule("paused", "tenure_roles{state='paused'} > 0", "");
    let agent = Agent::start(&store, "a", &format!("{JOB}{}", alerting(&hook, &rules)));
    eventually("it leads", || agent.leads("job"));
    eventually("it is evaluated", || alert(&agent, "paused")["state"] == "inactive");
    let mut events = agent.stream("/v1/events", None);
    let refused = agent.post("/v1/alerts/paused/acknowledge", &json!({}));
    assert_eq!(refused.status, 409, "{refused:?}");
    assert_eq!(agent.post("/v1/alerts/nothing/resolve", &json!({})).json()["field"], "alert");
    assert_eq!(agent.post("/v1/alerts/paused/silence", &json!({ "for": "soon" })).json()["field"], "for");

    // It cannot be told, and then it can.
    assert_eq!(agent.post("/v1/roles/job/pause", &json!({ "why": "x" })).status, 200);
    assert_eq!(events.until("alert-firing")["alert"], "paused");
    assert!(events.until("alert-notify-failed")["error"].as_str().unwrap().contains("503"));
    eventually("that is shown", || {
        alert(&agent, "paused")["deliveries"][0]["error"].as_str().is_some_and(|error| error.contains("503"))
    });
    hook.answer(200);
    assert_eq!(events.until("alert-notified")["target"], "hook");
    eventually("that is written down", || alert(&agent, "paused")["deliveries"][0]["error"].is_null());
    assert!(alert(&agent, "paused")["deliveries"][0]["attempts"].as_u64().unwrap() > 1);

    let run = |args: &[&str]| {
        let ran = tenure().args(args).env("TENURE_AGENT", &agent.socket).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.status.code(), Some(0), "{args:?}: {out}{err}");
        out.into_owned()
    };
    assert!(run(&["alerts"]).contains("firing"));
    let asked = agent.post("/v1/alerts/paused/acknowledge", &json!({ "why": "I look", "by": "Ada" }));
    assert_eq!(asked.status, 200, "{asked:?}");
    assert_eq!(alert(&agent, "paused")["state"], "acknowledged");
    assert!(alert(&agent, "paused")["acknowledged"]["by"].as_str().unwrap().starts_with("Ada"));
    assert!(
        run(&["alerts", "silence", "paused", "--for", "1h", "--why", "noise"]).contains("silenced until")
    );
    assert_eq!(alert(&agent, "paused")["state"], "silenced");
    assert!(run(&["alerts", "unsilence", "paused"]).contains("not silenced"));
    assert!(run(&["alerts", "resolve", "paused", "--why", "known"]).contains("resolved"));
    eventually("that it is over is told", || hook.heard("paused", "resolved") == 1);
    assert_eq!(alert(&agent, "paused")["state"], "resolved");
    let acts: Vec<Value> = agent.get("/v1/audit").json()["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["act"].clone())
        .collect();
    assert_eq!(acts, ["pause", "acknowledge", "silence", "unsilence", "resolve"]);
    assert_eq!(agent.post("/v1/roles/job/resume", &json!({ "why": "x" })).status, 200);
    eventually("it is over", || alert(&agent, "paused")["state"] == "inactive");

    // Redirects are not followed, and not tried again.
    hook.answer(302);
    let before = hook.all().len();
    assert_eq!(agent.post("/v1/roles/job/pause", &json!({ "why": "x" })).status, 200);
    eventually("it is given up", || alert(&agent, "paused")["deliveries"][0]["given_up"] == true);
    agent.beats();
    assert_eq!(hook.all().len(), before + 1, "{:#?}", hook.all());
    assert!(!agent.log().contains("hunter2") && !agent.get("/v1/alerts").body.contains("hunter2"));
}

#[test]
fn rules_change_by_a_reload() {
    let (store, hook) = (Store::file(), Hook::start());
    let agent = Agent::start(&store, "a", &format!("{JOB}{}", alerting(&hook, "")));
    eventually("it leads", || agent.leads("job"));
    assert_eq!(agent.get("/v1/alerts").json()["alerts"], json!([]));
    let rules = rule("leads", "rate(tenure_failovers_total[1m]) > 5 or tenure_leading > 0", "");
    agent.rewrite(&store, "a", &format!("{JOB}{}", alerting(&hook, &rules)));
    agent.process.signal(Signal::HUP);
    eventually("the new rule fires", || hook.heard("leads", "firing") == 1);
    assert!(agent.log().contains("300 in 1m"), "{}", agent.log());
    assert!(!agent.log().contains("needs a restart to change"), "{}", agent.log());
}

/// Nobody leads anything while the store is gone; an alert about the store must not depend on it.
#[test]
fn whoever_told_people_last_tells_that_the_store_is_gone() {
    let (store, hook) = (Store::redis(), Hook::start());
    let Store::Redis(server) = &store else { return };
    let rules = rule("store-unseen", "tenure_cluster_view_age_seconds > 4", "without-store = true");
    let agents: Vec<Agent> =
        ["a", "b"].map(|name| Agent::hasty(&store, name, &alerting(&hook, &rules))).into();
    let telling = teller(&agents);
    server.signal(Signal::STOP);
    eventually("it is told", || hook.heard("store-unseen", "firing") >= 1);
    let node = hook.all()[0].body["node"].as_str().unwrap().to_owned();
    server.signal(Signal::CONT);
    eventually("it is over, and that is told", || hook.heard("store-unseen", "resolved") >= 1);
    hook.assert_once();
    assert_eq!(node, ["a", "b"][telling]);
}
