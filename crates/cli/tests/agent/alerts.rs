//! Alerts, with real agents and a target that is told: what happens is told once, by whichever agent.

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_torture::servers::free_port;

use crate::duty::{Place, calm, noting, shell};
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually, tenure};

/// Rules without patience, and a target that is told.
pub(crate) fn alerting(hook: &Hook, rules: &str) -> String {
    let url = hook.url();
    format!(
        "[alerting]\ninterval = \"200ms\"\ndefaults = false\n[[notify]]\nname = \"hook\"\nurl = \"{url}\"\ntimeout = \"30s\"\n{rules}"
    )
}

pub(crate) fn rule(name: &str, condition: &str, more: &str) -> String {
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
    eventually("an agent tells people", || {
        let teller = agents[0].get("/v1/alerts").json()["sender"].clone();
        let named = |agent: &Agent| agent.get("/v1/cluster").json()["node"] == teller;
        found = agents.iter().position(named);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn three_agents_tell_once_that_no_node_leads_and_once_that_it_is_over() {
    let (store, hook) = (Store::file(), Hook::start());
    let rules = rule("no-leader", "tenure_led == 0", "for = \"1s\"\nsummary = \"no node leads {role}\"");
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
    assert_eq!(told.body["summary"], "no node leads job");
    assert_eq!(told.body["instances"][0]["labels"]["role"], "job");
    assert!(told.head.contains("idempotency-key: tenure/default/no-leader/"), "{told:?}");
    for agent in &agents {
        eventually("all show it", || alert(agent, "no-leader")["state"] == "firing");
        eventually("and who was told", || alert(agent, "no-leader")["deliveries"][0]["target"] == "hook");
    }

    // The agent that told it dies; the next one knows.
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

/// No agent leads anything while the store is gone; an alert about the store must not depend on it.
#[test]
fn the_agent_that_told_people_last_tells_that_the_store_is_gone() {
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

/// A role with a command, whose node does not stand back for long.
fn role_with(role: &str, command: &str) -> String {
    format!(
        "[[role]]\nname = \"{role}\"\ncool-down = \"50ms\"\n[[work]]\nname = \"w-{role}\"\nrole = \"{role}\"\n\
         backoff = \"10ms\"\n{command}"
    )
}

/// A command that is not there, one that fails, one that ends although it should not: three causes, three roles. One
/// that fails once is started again, and no target is told.
#[test]
fn work_that_never_starts_or_keeps_failing_raises_an_alert() {
    let (store, place, hook) = (Store::file(), Place::new(), Hook::start());
    let once = format!(
        "{}; test $(wc -l < {f}) -ge 2 && exec sleep 600; exit 1",
        noting(&place.file("once"), "x"),
        f = place.file("once").display()
    );
    let roles = [
        role_with("absent", "command = [\"/does/not/exist\"]\n"),
        role_with("failing", &shell("echo no luck >&2; exit 3")),
        role_with("ending", &shell("true")),
        role_with("once", &shell(&once)),
    ];
    let told = alerting(&hook, "").replace("defaults = false", "defaults = true");
    let agent = calm(&store, "a", &format!("{told}{}", roles.concat()));
    let onlooker = calm(&store, "onlooker", &told);
    let firing = |agent: &Agent| -> Vec<(Value, String)> {
        let alert = alert(agent, "work-failing");
        let instances = alert["instances"].as_array().unwrap().iter();
        let of = |one: &Value| (one["labels"]["role"].clone(), one["summary"].as_str().unwrap().to_owned());
        instances.map(of).collect()
    };
    for agent in [&agent, &onlooker] {
        eventually("the alert fires for all three", || firing(agent).len() == 3);
        for (role, summary) in firing(agent) {
            assert!(["absent", "failing", "ending"].contains(&role.as_str().unwrap()), "{role}");
            assert!(
                summary.starts_with(&format!("the work of {} failed ", role.as_str().unwrap())),
                "{summary}"
            );
        }
    }
    eventually("a target is told", || hook.heard("work-failing", "firing") >= 1);
    eventually("it has failed once", || place.lines("once").len() == 2 && agent.leads("once"));
    assert_eq!(agent.metric("tenure_work_failures_total{role=\"once\"}"), Some(1.0));
    assert!(agent.metric("tenure_work_failures_total{role=\"absent\"}") > Some(2.0));
    let mut events = agent.stream("/v1/events?recent=1000", None);
    let mut first = |kind: &str, role: &str| {
        std::iter::repeat_with(|| events.until(kind)).find(|one| one["role"] == role).unwrap()
    };
    let restarted = first("work-restarted", "failing");
    assert_eq!(restarted["worker"], "w-failing");
    assert!(
        restarted["why"].as_str().unwrap().contains("code 3") && restarted["token"].is_u64(),
        "{restarted}"
    );
    let failed = first("work-failed", "absent");
    assert!(failed["why"].as_str().unwrap().contains("/does/not/exist"), "{failed}");
    eventually("the log says so", || {
        crate::duty::told(&agent, &["a worker failed; it is started again", "role=once "])
    });
}

/// A task whose command is not there fails at each tick: the alert for tasks says so.
#[test]
fn a_task_that_never_starts_raises_an_alert() {
    let (store, hook) = (Store::file(), Hook::start());
    let told = alerting(&hook, "").replace("defaults = false", "defaults = true");
    let task = "[[role]]\nname = \"jobs\"\n[[task]]\nname = \"absent\"\nevery = \"200ms\"\ncommand = [\"/does/not/exist\"]\n";
    let agent = calm(&store, "a", &format!("{told}{task}"));
    eventually("the alert fires", || alert(&agent, "tasks-failed")["state"] == "firing");
    assert_eq!(alert(&agent, "tasks-failed")["instances"][0]["summary"], "runs of absent failed");
    eventually("a target is told", || hook.heard("tasks-failed", "firing") == 1);
}
