//! Every key of a `[[task]]`, in agents that run: another value, and something else happens.

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::ledger::TaskRecord;
use tenure::store::{Epoch, Key, Kind, Name, Query, Value as Content, Version, Write};

use crate::duty::{
    Place, calm, ledger, ledgers, noting, role, runs, shell, task, trigger, triggered, until_run, until_there,
};
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually};

/// A time that does not come: such a command runs when it is asked to.
const RARE: &str = "cron = \"30 2 1 1 *\"\n";

fn rare(name: &str, more: &str, script: &str) -> String {
    task(name, &format!("{RARE}{more}\n{}", shell(script)))
}

fn often(name: &str, more: &str, script: &str) -> String {
    task(name, &format!("every = \"200ms\"\n{more}\n{}", shell(script)))
}

fn states(agent: &Agent, task: &str, state: &str) -> usize {
    runs(agent, task).iter().filter(|run| run["state"] == state).count()
}

#[test]
fn a_run_is_ended_tried_again_and_kept_as_its_task_says() {
    let (store, place) = (Store::file(), Place::new());
    let failing = |name: &str| format!("{}; exit 1", noting(&place.file(name), name));
    let config = [
        role(""),
        rare("hasty", "timeout = \"100ms\"", "exec sleep 600"),
        rare("calm", "", "exec sleep 600"),
        rare("meek", "", &failing("meek")),
        rare("stubborn", "retries = 2\nbackoff = \"1ms\"", &failing("stubborn")),
        rare("patient", "retries = 2\nbackoff = \"1h\"", &failing("patient")),
        rare("brief", "", "true").replace("history = 200", "history = 2"),
        rare("long", "", "true"),
    ]
    .concat();
    let agent = calm(&store, "a", &config);
    eventually("it leads", || agent.leads("jobs"));

    trigger(&agent, "calm");
    let ended = triggered(&agent, "hasty");
    assert_eq!(ended["state"], "timed-out", "timeout: {ended}");
    assert!(ended["why"].as_str().unwrap().contains("longer than 100ms"), "{ended}");

    trigger(&agent, "patient");
    eventually("its first attempt fails", || !place.lines("patient").is_empty());
    for (name, attempts) in [("meek", 1), ("stubborn", 3)] {
        let ended = triggered(&agent, name);
        assert_eq!((&ended["state"], &ended["attempts"]), (&json!("failed"), &json!(attempts)), "{ended}");
        assert_eq!(place.lines(name).len(), attempts, "retries: {name}");
    }
    assert_eq!(place.lines("patient").len(), 1, "backoff: it still waits");

    for name in ["brief", "long"] {
        (0..3).for_each(|_| _ = triggered(&agent, name));
        assert_eq!(ledger(&agent, name)["totals"]["runs"], 3);
    }
    assert_eq!((runs(&agent, "brief").len(), runs(&agent, "long").len()), (2, 3), "history");
    for (name, running) in [("calm", 1), ("patient", 1)] {
        assert_eq!(states(&agent, name, "running"), running, "{name} goes on");
    }
}

#[test]
fn ticks_come_overlap_and_are_delayed_as_the_task_says() {
    let (store, place) = (Store::file(), Place::new());
    let waits = until_there(&place.file("go"));
    let config = [
        role(""),
        often("skipping", "", &waits),
        often("queueing", "overlap = \"queue\"", &waits),
        often("allowing", "overlap = \"allow\"", &waits),
        often("plain", "", "true"),
        // So long that the chance of a first tick within this test is nothing.
        often("delayed", "jitter = \"100000h\"", "true"),
        task("by-cron", &format!("cron = \"* * * * * *\"\n{}", shell("true"))),
        rare("in-utc", "", "true"),
        rare("in-vienna", "zone = \"Europe/Vienna\"", "true"),
    ]
    .concat();
    let agent = calm(&store, "a", &config);
    let skipped = until_run(&agent, "skipping", |run| run["state"] == "skipped");
    assert!(skipped["why"].as_str().unwrap().contains("the run before it goes on"), "{skipped}");
    eventually("what is queued waits", || ledger(&agent, "queueing")["owed"].as_u64() >= Some(2));
    eventually("what may overlap does", || states(&agent, "allowing", "running") >= 2);
    assert_eq!((states(&agent, "skipping", "running"), states(&agent, "queueing", "running")), (1, 1));
    assert_eq!((states(&agent, "queueing", "skipped"), states(&agent, "allowing", "skipped")), (0, 0));
    std::fs::write(place.file("go"), "").unwrap();
    eventually("what was queued is run", || states(&agent, "queueing", "succeeded") >= 3);

    eventually("every so often it runs", || states(&agent, "plain", "succeeded") >= 3);
    eventually("by cron, too", || states(&agent, "by-cron", "succeeded") >= 1);
    assert_eq!(ledger(&agent, "delayed")["totals"]["runs"], 0, "jitter");
    let next = |task: &str| ledger(&agent, task)["next"].as_str().unwrap().to_owned();
    assert!(next("in-utc").ends_with("-01-01T02:30:00.000Z"), "{}", next("in-utc"));
    assert!(next("in-vienna").ends_with("-01-01T01:30:00.000Z"), "zone: {}", next("in-vienna"));
}

/// Sets every ledger of a store back, as if no node had led for that long.
fn set_back(store: &Store, hours: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, namespace) = (tenure::store::open(&store.url()).unwrap(), Name::new("default").unwrap());
        let cluster = Query { keys: vec![Key::Cluster], kinds: Vec::new() };
        let cluster = store.read(&namespace, &cluster).await.unwrap().remove(0);
        let epoch = Epoch::new(cluster.value.parse::<Value>().unwrap()["epoch"].as_u64().unwrap());
        let ledgers = Query { keys: Vec::new(), kinds: vec![(epoch, Kind::Task)] };
        for entry in store.read(&namespace, &ledgers).await.unwrap() {
            let mut record: TaskRecord = entry.value.parse().unwrap();
            let earlier = record.tick.as_micros() - hours * 3_600_000_000;
            record.tick = tenure::Timestamp::from_micros(earlier);
            let put = Some((Version::new(entry.version.get() ^ 1), Content::of(&record, Some(record.token))));
            let write = Write {
                key: entry.key,
                expect: Some(entry.version),
                put,
                notify: false,
                requires_lock: false,
            };
            store.write(&namespace, &[write]).await.unwrap();
        }
        store.close().await;
    });
}

#[test]
fn missed_ticks_are_caught_up_as_the_task_says() {
    let store = Store::file();
    let hourly = |name: &str, more: &str| task(name, &format!("every = \"1h\"\n{more}\n{}", shell("true")));
    let config = [
        role(""),
        hourly("usual", ""),
        hourly("none", "catch-up = 0"),
        hourly("three", "catch-up = 3"),
        hourly("lenient", "catch-up = 0\nlate = \"2h 30m\""),
    ]
    .concat();
    let mut agent = calm(&store, "a", &config);
    let all = ["usual", "none", "three", "lenient"];
    eventually("all have ledgers", || all.iter().all(|task| !ledgers(&agent, task).is_empty()));
    agent.process.signal(Signal::TERM);
    eventually("it ends", || agent.process.ended().is_some());
    set_back(&store, 10);

    let agent = calm(&store, "a", &config);
    let total = |task: &str, what: &str| ledger(&agent, task)["totals"][what].as_u64().unwrap_or(0);
    eventually("all are accounted for", || all.iter().all(|task| total(task, "missed") > 0));
    eventually("what is caught up is run", || total("usual", "late") >= 1 && total("three", "late") >= 3);
    let missed = total("none", "missed");
    assert!(missed >= 9, "{missed} of ten hours");
    assert_eq!((missed - total("usual", "missed"), missed - total("three", "missed")), (1, 3), "catch-up");
    assert!((2..=3).contains(&(missed - total("lenient", "missed"))), "late: what is not too late is run");
    assert_eq!(total("none", "late"), 0, "nothing is run after all");
}

#[test]
fn what_its_leader_left_is_run_again_if_the_task_says_so() {
    let (store, place) = (Store::file(), Place::new());
    // The first run hangs, the second does not.
    let first_hangs = |name: &str| {
        let file = place.file(name);
        format!("{}; test $(wc -l < {}) -gt 1 || exec sleep 600", noting(&file, name), file.display())
    };
    let config = [
        role(""),
        often("again", "rerun = true", &first_hangs("again")),
        often("never", "", &first_hangs("never")),
    ]
    .concat();
    let mut agent = Agent::start(&store, "a", &config);
    let running = |task: &str| until_run(&agent, task, |run| run["state"] == "running");
    let (again, never) = (running("again"), running("never"));
    eventually("both hang", || ["again", "never"].iter().all(|task| !place.lines(task).is_empty()));
    agent.process.kill();

    let agent = Agent::start(&store, "a", &config);
    let of = |task: &str, first: &Value| {
        let mut all = runs(&agent, task);
        all.retain(|run| run["tick"] == first["tick"]);
        all.into_iter().map(|run| run["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("it is run again", || of("again", &again) == ["interrupted", "succeeded"]);
    until_run(&agent, "never", |run| run["state"] == "succeeded");
    assert_eq!(of("never", &never), ["interrupted"], "rerun");
}

#[test]
fn a_call_is_made_as_its_task_says() {
    let (store, hook, other) = (Store::file(), Hook::start(), Hook::start());
    let call = |name: &str, hook: &Hook, more: &str| {
        task(name, &format!("{RARE}http = {{ url = \"{}\"{more} }}\n", hook.url()))
    };
    let more = ", method = \"PUT\", headers = { x-key = \"7\" }, body = \"{\\\"n\\\": 7}\"";
    let config = [role(""), call("usual", &hook, ""), call("own", &other, more)].concat();
    let agent = calm(&store, "a", &config);
    eventually("it leads", || agent.leads("jobs"));
    for name in ["usual", "own"] {
        assert_eq!(triggered(&agent, name)["state"], "succeeded");
    }
    let ([usual], [own]) = (&hook.all()[..], &other.all()[..]) else { panic!("url: each is called once") };
    assert!(usual.head.starts_with("post /told") && own.head.starts_with("put /told"), "method: {own:?}");
    assert!(own.head.contains("x-key: 7") && !usual.head.contains("x-key"), "headers: {own:?}");
    assert_eq!((&own.body, &usual.body), (&json!({ "n": 7 }), &Value::Null), "body");
    assert!(own.head.contains("tenure-token: 1") && own.head.contains("tenure-task: own"), "{own:?}");
}

#[test]
fn a_task_runs_where_and_for_whom_it_says() {
    let (store, place) = (Store::file(), Place::new());
    let notes =
        |name: &str| format!("echo $TENURE_TASK $TENURE_ROLE $TENURE_NODE >> {}", place.file(name).display());
    let config = [
        "[[role]]\nname = \"one\"\n[[role]]\nname = \"two\"\n".to_owned(),
        often("in-one", "role = \"one\"", &notes("in-one")),
        often("in-two", "role = \"two\"", &notes("in-two")),
        often("each", "where = \"every-node\"", &notes("each")),
    ]
    .concat();
    let first = calm(&store, "a", &config);
    eventually("it leads", || first.leads("one") && first.leads("two"));
    let second = calm(&store, "b", &config);
    eventually("every node runs what is for every node", || {
        ["each a", "each b"].iter().all(|line| place.lines("each").iter().any(|noted| noted == line))
    });
    for (name, line) in [("in-one", "in-one one a"), ("in-two", "in-two two a")] {
        eventually("its leader runs it", || !place.lines(name).is_empty());
        assert!(place.lines(name).iter().all(|noted| noted == line), "{:?}", place.lines(name));
        assert_eq!(ledgers(&second, name).len(), 1);
    }
    eventually("each has a ledger", || ledgers(&second, "each").len() == 2);
}
