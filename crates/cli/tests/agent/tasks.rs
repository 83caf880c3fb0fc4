//! What an agent runs while it leads: commands under supervision and tasks by the clock, seen through its API.

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::store::{Key, Kind, Name};

use crate::catalogue::scribble;
use crate::duty::{Place, calm, ledgers, noting, role, runs, shell, task, until_run};
use crate::kit::{Agent, Store, eventually, tenure};

#[test]
fn tasks_run_on_the_leader_and_are_told_counted_and_asked_for() {
    let (store, place) = (Store::file(), Place::new());
    let config = [
        role(""),
        task("often", &format!("every = \"200ms\"\n{}", shell(&noting(&place.file("often"), "ran")))),
        task("rare", &format!("cron = \"30 2 1 1 *\"\nzone = \"Europe/Vienna\"\n{}", shell("exit 3"))),
    ]
    .concat();
    let agent = calm(&store, "a", &config);
    eventually("it leads", || agent.leads("jobs"));
    let mut events = agent.stream("/v1/events", None);
    let ended = events.until("task-ended");
    assert_eq!((&ended["task"], &ended["state"]), (&json!("often"), &json!("succeeded")), "{ended}");
    assert!(ended["tick"].as_str().unwrap().ends_with('Z'), "{ended}");
    let run = until_run(&agent, "often", |run| run["state"] == "succeeded");
    assert_eq!((&run["exit"], &run["node"]), (&json!(0), &json!("a")));
    eventually("the command had its token", || {
        place.lines("often").contains(&format!("ran {}", run["token"]))
    });

    let page = agent.get("/v1/tasks?limit=1&runs=0").json();
    assert_eq!((&page["total"], &page["next"]), (&json!(2), &json!("often")), "{page}");
    assert_eq!(page["tasks"][0]["runs"], json!([]));
    let rest = agent.get("/v1/tasks?after=often").json();
    let rare = &rest["tasks"][0];
    assert_eq!(
        (&rare["task"], &rare["when"], &rare["state"]),
        (&json!("rare"), &json!("30 2 1 1 *"), &json!("waiting"))
    );
    assert!(rare["next"].as_str().unwrap().ends_with("-01-01T01:30:00.000Z"), "{rare}");
    assert_eq!(agent.get("/v1/tasks?search=rar").json()["total"], 1);
    assert_eq!(agent.get("/v1/tasks/nothing").status, 404);
    assert_eq!(agent.get("/v1/tasks?runs=201").json()["field"], "runs");

    asked_for(&agent);
    for (metric, least) in [("runs", 2.0), ("failures", 1.0), ("skipped", 1.0)] {
        let series = format!("tenure_task_{metric}_total");
        eventually(&series, || agent.metric(&series).is_some_and(|counted| counted >= least));
    }
    assert!(agent.metric("tenure_task_seconds_count{task=\"often\"}").unwrap() >= 1.0);
    assert_eq!(
        agent.metric("tenure_task_missed_total{task=\"rare\"}"),
        Some(0.0),
        "there from the beginning"
    );
    by_command(&agent);
}

/// What operators ask for, with who and why.
fn asked_for(agent: &Agent) {
    let asked = agent.post("/v1/tasks/rare/trigger", &json!({ "why": "to see it", "by": "Ada" }));
    assert_eq!(asked.status, 202, "{asked:?}");
    let trigger = asked.json()["trigger"].clone();
    let run = until_run(agent, "rare", |run| run["trigger"] == trigger && run["state"] != "running");
    assert_eq!((&run["state"], &run["exit"]), (&json!("failed"), &json!(3)), "{run}");
    assert_eq!(agent.post("/v1/tasks/nothing/pause", &json!({})).status, 404);
    assert_eq!(agent.post("/v1/tasks/often/pause", &json!({ "why": "the disk is full" })).status, 200);
    until_run(agent, "often", |run| run["state"] == "skipped");
    let often = &ledgers(agent, "often")[0];
    assert_eq!((&often["state"], &often["paused"]["why"]), (&json!("paused"), &json!("the disk is full")));
    assert!(agent.post("/v1/tasks/often/pause", &json!({})).body.contains("already"));
    assert_eq!(agent.post("/v1/tasks/often/resume", &json!({ "why": "there is room" })).status, 200);
    let ran = often["totals"]["runs"].as_u64().unwrap();
    eventually("it runs again", || ledgers(agent, "often")[0]["totals"]["runs"].as_u64().unwrap() > ran);
    let audit = agent.get("/v1/audit").json();
    let entries: Vec<(String, String)> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["act"].to_string(), entry["why"].to_string()))
        .collect();
    let wanted =
        [("trigger-task", "to see it"), ("pause-task", "the disk is full"), ("resume-task", "there is room")];
    assert_eq!(entries, wanted.map(|(act, why)| (json!(act).to_string(), json!(why).to_string())));
    assert!(audit["entries"][0]["by"].as_str().unwrap().starts_with("Ada (as "), "{audit}");
}

/// The command line asks the agent, too.
fn by_command(agent: &Agent) {
    let run = |args: &[&str], code: i32| {
        let ran = tenure().args(args).env("TENURE_AGENT", &agent.socket).output().unwrap();
        let text =
            [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {text}");
        text
    };
    assert!(run(&["task", "list"], 0).contains("30 2 1 1 * Europe/Vienna"));
    assert!(
        run(&["task", "trigger", "often", "--why", "once more", "--wait", "10m"], 0)
            .contains("often succeeded on a")
    );
    assert!(run(&["task", "trigger", "rare", "--wait", "10m"], 1).contains("exited with code 3"));
    assert!(run(&["task", "pause", "often"], 0).contains("often is paused"));
    assert!(run(&["task", "resume", "often"], 0).contains("often is resumed"));
    assert!(run(&["task", "resume", "often"], 0).contains("was not paused"));
    assert!(run(&["task", "history", "rare"], 0).contains("(triggered)"));
    assert!(run(&["task", "list", "oftn"], 1).contains("did you mean often?"));
    assert!(run(&["audit"], 0).contains("once more"));
}

/// Another schedule applies at once, under the same tenure; what is wrong changes nothing.
#[test]
fn a_reload_changes_schedules_while_the_agent_leads() {
    let (store, place) = (Store::file(), Place::new());
    let ran = |name: &str, every: &str| {
        task(name, &format!("every = \"{every}\"\n{}", shell(&noting(&place.file(name), "ran"))))
    };
    let agent = calm(&store, "a", &(role("") + &ran("one", "200ms")));
    eventually("one runs", || !place.lines("one").is_empty());
    let everywhere = ran("each", "200ms").replace("every = ", "where = \"every-node\"\nevery = ");
    agent.rewrite(&store, "a", &(role("") + &ran("one", "1h") + &ran("two", "200ms") + &everywhere));
    agent.process.signal(Signal::HUP);
    eventually("two runs, and one has another time", || {
        !place.lines("two").is_empty() && ledgers(&agent, "one")[0]["when"] == "every 1h"
    });
    eventually("so does what runs on every node", || !place.lines("each").is_empty());
    assert_eq!(ledgers(&agent, "each")[0]["node"], "a");
    agent.rewrite(&store, "a", &(role("") + &ran("two", "200ms") + "[[task]]\nname = \"three\""));
    agent.process.signal(Signal::HUP);
    eventually("what is wrong is told", || agent.log().contains("needs exactly one of"));
    assert_ne!(ledgers(&agent, "one")[0]["state"], "retired");
    agent.rewrite(&store, "a", &role(""));
    agent.process.signal(Signal::HUP);
    eventually("nothing is scheduled any more", || {
        ["one", "two", "each"].iter().all(|task| ledgers(&agent, task)[0]["state"] == "retired")
    });
    let tokens: Vec<String> = ["one", "two"].iter().flat_map(|name| place.lines(name)).collect();
    assert!(tokens.iter().all(|line| *line == tokens[0]), "one tenure: {tokens:?}");
    assert!(!agent.log().contains("needs a restart to change"), "{}", agent.log());
}

/// Off, shadow and on, step by step, by reload; and a leader by decree.
#[test]
fn migration_goes_step_by_step() {
    let (store, place) = (Store::file(), Place::new());
    let config = |more: &str| {
        let work = format!(
            "[[work]]\nname = \"daemon\"\n{}",
            shell(&format!("{}; exec sleep 600", noting(&place.file("work"), "up")))
        );
        role(more)
            + &work
            + &task("often", &format!("every = \"200ms\"\n{}", shell(&noting(&place.file("task"), "ran"))))
    };
    let off = format!("{}\n[candidacy]\nmigration = \"off\"\n", config(""));
    let agent = calm(&store, "a", &off);
    eventually("it does not stand", || agent.get("/leader/jobs").status == 503);
    assert!(agent.ask("GET", "/v1/campaign/jobs", None).status == 409);
    let switch = |more: &str| {
        agent.rewrite(&store, "a", &config(more));
        agent.process.signal(Signal::HUP);
    };
    switch("migration = \"shadow\"");
    eventually("it leads in the shadow", || agent.role("jobs")["leader"] == "a");
    eventually("it knows that it leads", || agent.get("/leader/jobs").json()["shadow"] == true);
    let answer = agent.get("/leader/jobs");
    assert!(answer.status == 503 && answer.json()["here"] == false, "{answer:?}");
    for series in ["is_leader", "tenure_seconds", "lease_remaining_seconds"] {
        let series = format!("tenure_{series}{{role=\"jobs\"}}");
        assert_eq!(agent.metric(&series), Some(0.0), "{series}: the shadow never leads");
    }
    assert_eq!(agent.metric("tenure_leading"), Some(0.0));
    let probed =
        tenure().arg("--agent").arg(&agent.socket).args(["probe", "leader", "jobs"]).output().unwrap();
    let said = String::from_utf8_lossy(&probed.stderr);
    assert!(probed.status.code() == Some(1) && said.contains("it runs no work"), "{probed:?}");
    let skipped = until_run(&agent, "often", |run| run["state"] == "skipped");
    assert!(skipped["why"].as_str().unwrap().contains("shadow"), "{skipped}");
    assert!(place.lines("work").is_empty() && place.lines("task").is_empty(), "nothing runs");
    switch("migration = \"on\"");
    eventually("all runs", || !place.lines("work").is_empty() && !place.lines("task").is_empty());
    assert_eq!(agent.metric("tenure_is_leader{role=\"jobs\"}"), Some(1.0));
    let token = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(token(&place.lines("work")[0]) > skipped["token"].as_u64().unwrap(), "another tenure");
    switch("static-leader = \"b\"");
    eventually("it leads no more", || !agent.leads("jobs"));
    let eligible = agent.post("/v1/roles/jobs/eligible", &json!({ "eligible": true }));
    assert!(eligible.status == 409 && eligible.body.contains("only b may lead"), "{eligible:?}");
    let other = calm(&store, "b", &config("static-leader = \"b\""));
    eventually("the decreed one leads", || other.leads("jobs"));
    assert!(!agent.leads("jobs"));
}

#[test]
fn commands_start_in_order_are_started_again_and_end_the_tenure_if_they_must() {
    let (store, place) = (Store::file(), Place::new());
    let (log, ready) = (place.file("log"), place.file("ready"));
    // The first says that it is ready by a file, the second begins then, and dies twice before it stays.
    let first = format!("echo first >> {0}; touch {1}; exec sleep 600", log.display(), ready.display());
    let second = format!(
        "echo second >> {0}; test $(grep -c second {0}) -ge 3 || exit 1; exec sleep 600",
        log.display()
    );
    let config = [
        role("cool-down = \"100ms\""),
        format!(
            "[[work]]\nname = \"second\"\norder = 2\nbackoff = \"10ms\"\nmax-restarts = 2\n{}",
            shell(&second)
        ),
        format!("[[work]]\nname = \"first\"\norder = 1\nready-within = \"60s\"\n{}", shell(&first)),
        format!(
            "health = {{ command = [\"test\", \"-e\", {}], every = \"200ms\", within = \"10m\" }}\n",
            json!(ready.display().to_string())
        ),
    ]
    .concat();
    let agent = calm(&store, "a", &config);
    eventually("the second stays at last", || place.lines("log") == ["first", "second", "second", "second"]);
    assert!(agent.leads("jobs"));
    let token = agent.token("jobs");
    // It is not well any more: three failed checks end the tenure, and then there is another.
    std::fs::remove_file(&ready).unwrap();
    eventually("it was told", || agent.log().contains("its health check failed"));
    eventually("there is another tenure", || agent.token("jobs") > token);
    eventually("which begins in order, too", || place.lines("log").len() >= 6);
    assert_eq!(place.lines("log")[4..6], ["first", "second"]);
}

#[test]
fn a_command_that_dies_too_often_gives_another_node_its_turn() {
    let (store, place) = (Store::file(), Place::new());
    let config = |name: &str, script: &str| {
        let script =
            format!("echo {name} $TENURE_TOKEN $TENURE_WORK >> {}; {script}", place.file("log").display());
        role("")
            + &format!(
                "[[work]]\nname = \"w\"\nmax-restarts = 0\nrestart = \"on-failure\"\n{}",
                shell(&script)
            )
    };
    let broken = calm(&store, "a", &config("a", "exit 7"));
    eventually("it fails", || broken.log().contains("exited with code 7"));
    let sound = calm(&store, "b", &config("b", "exec sleep 600"));
    eventually("the other leads", || sound.leads("jobs"));
    eventually("and works", || {
        place.lines("log").iter().any(|line| line.starts_with("b ") && line.ends_with(" w"))
    });
    let failed = broken.metric("tenure_events_total{event=\"work-failed\"}").unwrap();
    assert!(failed >= 1.0);
}

/// The gate fails closed: a store that no node reaches starts nothing anywhere, and when it is back every tick is run once or
/// accounted for.
#[test]
fn while_the_store_is_gone_no_task_starts_anywhere() {
    let (store, place) = (Store::redis(), Place::new());
    let note = format!("echo $TENURE_TICK >> {}", place.file("log").display());
    let config = role("") + &task("often", &format!("every = \"200ms\"\n{}", shell(&note)));
    let agents = ["a", "b"].map(|name| Agent::hasty(&store, name, &config));
    eventually("it runs", || place.lines("log").len() >= 3);
    store.freeze(true);
    eventually("no node leads", || agents.iter().all(|agent| !agent.leads("jobs")));
    let before = place.lines("log");
    let blind = |agent: &Agent| agent.metric("tenure_cluster_view_age_seconds").is_some_and(|age| age > 3.0);
    eventually("ticks pass", || agents.iter().all(blind));
    assert_eq!(place.lines("log"), before, "nothing starts");
    store.freeze(false);
    eventually("it runs again", || place.lines("log").len() >= before.len() + 3);
    let mut ticks = place.lines("log");
    let all = ticks.len();
    ticks.sort();
    ticks.dedup();
    assert_eq!(ticks.len(), all, "each at most once");
    let missed = |run: &Value| {
        run["state"] == "missed" || run["state"] == "cancelled" || run["state"] == "interrupted"
    };
    until_run(&agents[0], "often", missed);
}

/// SIGTERM with a long run in flight and a short drain: as the task says it is finished or cancelled, then the role is
/// given up, then the successor starts. The ledger and the log say which; nothing of two tenures overlaps.
#[test]
fn an_agent_that_stops_drains_what_is_in_flight() {
    let (store, place) = (Store::file(), Place::new());
    // Each run notes ten times a second that it is there.
    let long = |name: &str, seconds: u32| {
        let note = noting(&place.file("log"), name);
        shell(&format!("i=0; while [ $i -lt {seconds}0 ]; do {note}; sleep 0.1; i=$((i+1)); done"))
    };
    let config = [
        role("drain = \"2s\""),
        task("long", &format!("every = \"100ms\"\n{}", long("long", 30))),
        task("curt", &format!("every = \"100ms\"\non-stop = \"cancel\"\n{}", long("curt", 30))),
        task("short", &format!("every = \"100ms\"\n{}", long("short", 1))),
        format!("[[work]]\nname = \"daemon\"\n{}", long("daemon", 600)),
    ]
    .concat();
    let mut first = calm(&store, "a", &config);
    eventually("it leads", || first.leads("jobs"));
    let second = calm(&store, "b", &config);
    let noted = |name: &str, token: &str| {
        let is = |line: &String| line.starts_with(name) && line.ends_with(&format!(" {token}"));
        place.lines("log").iter().any(is)
    };
    eventually("it is seen", || second.token("jobs") > 0);
    let token = second.token("jobs");
    let all =
        |token: u64| ["long", "curt", "short", "daemon"].iter().all(|name| noted(name, &token.to_string()));
    eventually("all runs", || all(token));
    until_run(&second, "short", |run| run["state"] == "succeeded");
    first.process.signal(Signal::TERM);
    eventually("it ends", || first.process.ended().is_some());
    eventually("the successor works", || all(token + 1));
    for (name, state) in [("long", "cancelled"), ("curt", "cancelled"), ("short", "succeeded")] {
        let former: Vec<Value> =
            runs(&second, name).into_iter().filter(|run| run["token"] == token).collect();
        assert!(former.iter().any(|run| run["state"] == state), "{name}: {former:#?}");
        assert!(
            former.iter().all(|run| run["state"] != "running" && run["state"] != "interrupted"),
            "{former:#?}"
        );
    }
    let log = first.log();
    assert!(log.contains("task=long") && log.contains("state=cancelled"), "{log}");
    assert!(log.contains("the work has stopped"), "{log}");
    let lines = place.lines("log");
    let last = lines.iter().rposition(|line| line.ends_with(&format!(" {token}"))).unwrap();
    let next = lines.iter().position(|line| line.ends_with(&format!(" {}", token + 1))).unwrap();
    assert!(last < next, "nothing of the first was there when the second began");
}

/// A task whose ledger cannot be read is told of once, not at each of its ticks.
#[test]
fn a_ledger_that_cannot_be_read_is_told_of_once() {
    let store = Store::file();
    let config = [role(""), task("often", &format!("every = \"100ms\"\n{}", shell("true")))].concat();
    let agent = calm(&store, "a", &config);
    until_run(&agent, "often", |run| run["state"] == "succeeded");
    let ledger = |epoch| Key::Named(epoch, Kind::Task, Name::new("often").unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(scribble(&store, ledger, |_| "no ledger".to_owned()));
    let told = || agent.log().matches("this register cannot be used").count();
    eventually("it is told", || told() > 0);
    // Thirty ticks.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(told(), 1, "{}", agent.log());
}
