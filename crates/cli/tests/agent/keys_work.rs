//! Every key of a `[[work]]`, in agents that run: another value, and something else happens.
//!
//! Where work must fail, this node stands back for an hour, so that it fails once.

use rustix::process::Signal;

use crate::duty::{Place, calm, noting, shell, task, told, until_run, until_there};
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually};

const STANDS_BACK: &str = "[candidacy]\ncool-down = \"1h\"\n";

/// A role of its own with one command.
fn role_with(role: &str, work: &str, script: &str) -> String {
    role_that(role, "", work, script)
}

/// The same with more to say about the role.
fn role_that(role: &str, more: &str, work: &str, script: &str) -> String {
    format!(
        "[[role]]\nname = \"{role}\"\n{more}\n[[work]]\nname = \"w-{role}\"\nrole = \"{role}\"\n{}{work}\n",
        shell(script)
    )
}

/// More work for a role.
fn beside(role: &str, name: &str, work: &str, script: &str) -> String {
    format!("[[work]]\nname = \"{name}\"\nrole = \"{role}\"\n{}{work}\n", shell(script))
}

fn failed(agent: &Agent, role: &str, why: &str) -> bool {
    told(agent, &["the work failed", &format!("role={role} "), why])
}

/// Notes that it was started, ends with that code until it was started so often, and stays then.
fn stays_after(place: &Place, name: &str, starts: usize, code: u8) -> String {
    let file = place.file(name);
    let count = format!("$(wc -l < {})", file.display());
    format!("{}; test {count} -ge {starts} || exit {code}; exec sleep 600", noting(&file, name))
}

#[test]
fn a_command_is_started_again_as_it_says() {
    let (store, place) = (Store::file(), Place::new());
    let script = |name: &str, starts, code| stays_after(&place, name, starts, code);
    let quick = "backoff = \"10ms\"\n";
    let config = [
        STANDS_BACK.to_owned(),
        role_with("always", quick, &script("always", 3, 0)),
        beside("always", "once", "restart = \"on-failure\"", &noting(&place.file("once"), "once")),
        beside("always", "slow", "backoff = \"1h\"", &script("slow", 9, 1)),
        role_with("fragile", "restart = \"never\"", &script("fragile", 3, 1)),
        role_with("tough", &format!("{quick}restart = \"on-failure\""), &script("tough", 3, 1)),
        role_with("often", &format!("{quick}max-restarts = 9"), &script("often", 5, 1)),
        role_with("seldom", &format!("{quick}max-restarts = 1"), &script("seldom", 5, 1)),
        role_with(
            "forgetful",
            &format!("{quick}max-restarts = 1\nwindow = \"1ms\""),
            &script("forgetful", 5, 1),
        ),
        role_that("eager", "cool-down = \"10ms\"", "restart = \"never\"", &script("eager", 3, 1)),
    ]
    .concat();
    let agent = calm(&store, "a", &config);
    for (name, starts) in [("always", 3), ("tough", 3), ("often", 5), ("forgetful", 5)] {
        eventually(&format!("{name} stays at last"), || place.lines(name).len() == starts);
        assert!(place.lines(name).iter().all(|line| line.ends_with(" 1")), "{name}: within one tenure");
        assert!(agent.leads(name), "{name}");
    }
    assert_eq!(place.lines("once").len(), 1, "restart: what has done its work is not started again");
    assert!(place.lines("slow").len() < 3, "backoff");
    eventually("restart: it is not started again", || failed(&agent, "fragile", "code 1"));
    eventually("max-restarts: not so often", || failed(&agent, "seldom", "started again 1 times"));
    assert_eq!((place.lines("fragile").len(), place.lines("seldom").len()), (1, 2));
    eventually("cool-down: it comes back soon", || place.lines("eager").len() == 3 && agent.leads("eager"));
    assert_eq!(place.lines("eager").last().unwrap(), "eager 3", "in another tenure each time");
    for role in ["fragile", "seldom"] {
        assert!(!agent.leads(role) && agent.token(role) == 1, "cool-down: {role} stands back");
    }
}

#[test]
fn a_command_is_asked_how_it_is_as_it_says() {
    let (store, place) = (Store::file(), Place::new());
    let (well, sick) = (Hook::start(), Hook::start());
    sick.answer(500);
    let command = |name: &str, script: &str, more: &str| {
        let script = format!("{}; {script}", noting(&place.file(name), name));
        format!("health = {{ {}, {more} }}", shell(&script).trim())
    };
    let http = |hook: &Hook| {
        format!("health = {{ http = \"{}\", every = \"50ms\", within = \"1m\", failures = 1 }}", hook.url())
    };
    let stays = "exec sleep 600";
    let quick = "every = \"50ms\", within = \"1m\"";
    let config = [
        STANDS_BACK.to_owned(),
        role_with("asked", &command("asked", "true", quick), stays),
        role_with("unasked", &command("unasked", "true", "every = \"1h\""), stays),
        role_with("strict", &command("strict", "exit 1", &format!("{quick}, failures = 1")), stays),
        role_with("lenient", &command("lenient", "exit 1", &format!("{quick}, failures = 3")), stays),
        role_with(
            "hasty",
            &command("hasty", stays, "every = \"50ms\", within = \"100ms\", failures = 1"),
            stays,
        ),
        role_with(
            "patient",
            &command("patient", stays, "every = \"50ms\", within = \"1h\", failures = 1"),
            stays,
        ),
        role_with("well", &http(&well), stays),
        role_with("sick", &http(&sick), stays),
        role_with("late", &format!("{}\nready-within = \"100ms\"", command("late", "exit 1", quick)), stays),
    ]
    .concat();
    let agent = calm(&store, "a", &config);
    for (role, why) in [
        ("strict", "its health check failed"),
        ("lenient", "its health check failed"),
        ("hasty", "no answer within 100ms"),
        ("sick", "500"),
        ("late", "it was not ready within 100ms"),
    ] {
        eventually(&format!("{role} fails"), || failed(&agent, role, why));
    }
    assert_eq!((place.lines("strict").len(), place.lines("lenient").len()), (1, 3), "health.failures");
    eventually("it is asked again and again", || place.lines("asked").len() >= 5);
    assert_eq!(place.lines("unasked").len(), 0, "health.every");
    eventually("the question is there", || place.lines("patient").len() == 1);
    eventually("it is asked over HTTP", || well.all().len() >= 3);
    for role in ["asked", "unasked", "patient", "well"] {
        assert!(agent.leads(role) && agent.token(role) == 1, "{role} is well");
    }
}

/// Told to give everything up: what may take as long as it likes does, and what may not is cut off.
#[test]
fn what_runs_is_wound_down_as_it_says() {
    let (store, place) = (Store::file(), Place::new());
    let (go, log) = (place.file("go"), place.file("log"));
    let deaf = format!("trap '' TERM; {}; while :; do sleep 0.05; done", noting(&log, "deaf"));
    let polite = format!(
        "trap '{}; {}; exit 0' TERM; {}; while :; do sleep 0.05; done",
        until_there(&go),
        noting(&log, "polite-ended"),
        noting(&log, "polite")
    );
    let run = |name: &str, more: &str| {
        let script = format!(
            "{}; {}; {}",
            noting(&log, name),
            until_there(&go),
            noting(&log, &format!("{name}-ended"))
        );
        task(name, &format!("role = \"long\"\nevery = \"200ms\"\n{more}\n{}", shell(&script)))
    };
    let config = |more: &str| {
        [
            role_that("short", more, "", &deaf),
            role_that("long", &format!("drain = \"30m\"\n{more}"), "", &polite),
            beside("long", "curt", "drain = \"200ms\"", &deaf),
            run("finishes", ""),
            run("abrupt", "on-stop = \"cancel\""),
        ]
        .concat()
    };
    let agent = Agent::launch(&store, "a", &config(""), |command| {
        command.args(["--set", "timing.ttl=20s", "--set", "timing.drain=200ms"]);
    });
    let noted =
        |word: &str| place.lines("log").iter().filter(|line| line.split(' ').next() == Some(word)).count();
    eventually("all runs", || {
        noted("deaf") == 2 && ["polite", "finishes", "abrupt"].iter().all(|word| noted(word) == 1)
    });
    agent.rewrite(&store, "a", &config("eligible = false"));
    agent.process.signal(Signal::HUP);
    eventually("timing.drain: it is over soon", || {
        told(&agent, &["the work has stopped", "role=short ", "w-short"])
    });
    until_run(&agent, "abrupt", |run| run["state"] == "cancelled");
    until_run(&agent, "finishes", |run| run["state"] == "running");
    assert!(!told(&agent, &["the work has stopped", "role=long "]), "it is waited for");
    std::fs::write(&go, "").unwrap();
    eventually("all is wound down", || told(&agent, &["the work has stopped", "role=long ", "[\"curt\"]"]));
    until_run(&agent, "finishes", |run| run["state"] == "succeeded");
    assert_eq!((noted("polite-ended"), noted("finishes-ended"), noted("abrupt-ended")), (1, 1, 0));
    assert!(!agent.leads("long") && !agent.leads("short"));
}

#[test]
fn a_command_runs_for_the_role_and_in_the_order_that_it_says() {
    let (store, place) = (Store::file(), Place::new());
    let notes = format!("echo $TENURE_WORK $TENURE_ROLE >> {}; exec sleep 600", place.file("log").display());
    let ordered = |name: &str, order: &str| {
        let script = format!("echo {name} >> {}; exec sleep 600", place.file("order").display());
        let ready = format!(
            "health = {{ command = [\"grep\", \"-q\", \"{name}\", {:?}], every = \"50ms\", within = \"1m\" }}",
            place.file("order")
        );
        beside("one", name, &format!("{order}\nready-within = \"10m\"\n{ready}"), &script)
    };
    let config = [
        "[[role]]\nname = \"one\"\n[[role]]\nname = \"two\"\n".to_owned(),
        ordered("last", "order = 2"),
        ordered("second", ""),
        ordered("first", "order = -1"),
        ordered("third", ""),
        beside("two", "other", "", &notes),
        beside("one", "some", "order = 3", &notes),
    ]
    .concat();
    let agent = calm(&store, "a", &config);
    eventually("all runs", || place.lines("order").len() == 4 && place.lines("log").len() == 2);
    assert_eq!(place.lines("order"), ["first", "second", "third", "last"], "order");
    let mut log = place.lines("log");
    log.sort();
    assert_eq!(log, ["other two", "some one"], "name, role, command");
    assert!(agent.leads("one") && agent.leads("two"));
}
