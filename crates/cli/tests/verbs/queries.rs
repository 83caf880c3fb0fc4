//! `status`, `nodes` and `history`.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::store::{Key, Kind, Name, Query};

use crate::kit::{TestDir, assert_stamp, keys};

#[test]
fn an_empty_namespace_says_what_to_do_next() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&["doctor"]).code, Some(0), "it makes the file");
    for verb in ["status", "nodes", "history"] {
        let ran = dir.run(&[verb]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        assert!(ran.out.contains("tenure run --role") && ran.out.contains("t.db"), "{verb}: {}", ran.out);
    }
    assert_eq!(dir.json(&["status"]), json!({ "roles": [], "seen_ms_ago": 0 }));
    assert_eq!(dir.json(&["nodes"]), json!({ "nodes": [] }));
    assert_eq!(dir.json(&["history"]), json!({ "tenures": [] }));
    assert_eq!(dir.run(&["status", "--require-leader"]).code, Some(1));
}

#[test]
fn status_shows_who_leads_and_who_is_next() {
    let dir = TestDir::new();
    let _a = dir.node_process("a", &["scheduler"], &[("address", "10.0.0.1:80")]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let _b = dir.node("b", &["scheduler"]);
    let role = dir.until("scheduler", |role| role["candidates"] == json!(["b"]));
    assert_stamp(&role["since"]);
    assert!(role["last_beat_ms_ago"].as_u64().unwrap() < role["ttl_ms"].as_u64().unwrap());
    let rest =
        json!({ "role": "scheduler", "leader": "a", "token": 1, "state": "led", "address": "10.0.0.1:80" });
    for (key, value) in rest.as_object().unwrap() {
        assert_eq!(&role[key], value, "{key}");
    }
    assert_eq!(dir.run(&["status", "--require-leader"]).code, Some(0));
    let pretty = dir.run(&["status"]).out;
    let (head, row) = pretty.trim_end().split_once('\n').unwrap();
    let heads = ["ROLE", "STATE", "LEADER", "TOKEN", "SINCE", "LAST BEAT", "ADDRESS", "CANDIDATES"];
    assert!(heads.iter().all(|part| head.contains(part)), "{head}");
    assert!(
        ["scheduler", "led", "a", "1", "ago", "10.0.0.1:80", "b"].iter().all(|p| row.contains(p)),
        "{row}"
    );
}

#[test]
fn top_prints_one_screen_where_there_is_no_terminal() {
    let dir = TestDir::new();
    let _a = dir.node_process("a", &["scheduler"], &[("address", "10.0.0.1:80")]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let ran = dir.run(&["top"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let parts =
        ["tenure top", "1 roles: 1 led", "scheduler", "nodes", "leads 1", "leaders of scheduler", "token 1"];
    assert!(parts.iter().all(|part| ran.out.contains(part)), "{}", ran.out);
    assert_eq!(dir.run(&["top", "--once", "--format", "json"]).code, Some(2), "it is for people");
}

/// The keys are the documented ones, and no more: programs depend on them.
#[test]
fn the_json_has_exactly_the_documented_keys() {
    let dir = TestDir::new();
    let a = dir.node("a", &["scheduler"]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let role = [
        "address",
        "candidates",
        "last_beat_ms_ago",
        "last_leader",
        "leader",
        "paused",
        "pinned",
        "reason",
        "role",
        "seen_ms_ago",
        "since",
        "state",
        "token",
        "transfer",
        "ttl_ms",
    ];
    assert_eq!(keys(&dir.json(&["status"])["roles"][0]), role);
    let node = [
        "address",
        "candidacies",
        "candidate_for",
        "drained",
        "host",
        "joined",
        "labels",
        "last_beat_ms_ago",
        "leads",
        "node",
        "roles",
        "session",
        "state",
        "ttl_ms",
        "version",
    ];
    assert_eq!(keys(&dir.json(&["nodes"])["nodes"][0]), node);
    let past =
        ["began", "ended", "gap_ms", "held_ms", "measured", "node", "reason", "role", "session", "token"];
    assert_eq!(keys(&dir.json(&["history"])["tenures"][0]), past);
    let outcome = [
        "action", "address", "changed", "former", "leader", "message", "node", "subject", "token", "took_ms",
    ];
    assert_eq!(keys(&dir.json(&["pause", "scheduler"])), outcome);
    let paused = &dir.json(&["status"])["roles"][0];
    assert_eq!(keys(paused), role);
    assert_eq!(keys(&paused["paused"]), ["at", "by", "why"]);
    for action in
        [&["resume", "scheduler"][..], &["step-down", "scheduler"], &["transfer", "scheduler", "--to", "a"]]
    {
        assert_eq!(keys(&dir.json(action)), outcome, "{action:?}");
    }
    let untimed: Vec<&str> = outcome.into_iter().filter(|key| *key != "took_ms").collect();
    for (action, name, subject) in [
        (&["pin", "scheduler", "--to", "a"][..], "pin", "scheduler"),
        (&["pin", "scheduler"], "unpin", "scheduler"),
        (&["drain", "a"], "drain", "a"),
        (&["drain", "a", "--undo"], "undrain", "a"),
    ] {
        let done = dir.json(action);
        assert_eq!(keys(&done), untimed, "{action:?}");
        assert_eq!((&done["action"], &done["subject"]), (&json!(name), &json!(subject)));
    }
    a.stop();
}

#[test]
fn a_frozen_leader_is_silent_and_never_healthy() {
    let dir = TestDir::new();
    let a = dir.node_process("a", &["scheduler"], &[("ttl", "600")]);
    dir.until("scheduler", |role| role["state"] == "led");
    dir.freeze(&a);
    let role = dir.until("scheduler", |role| role["state"] == "silent");
    assert_eq!(role["leader"], "a");
    assert!(role["last_beat_ms_ago"].as_u64().unwrap() >= 600, "{role}");
    let ran = dir.run(&["status", "scheduler", "--require-leader"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("scheduler is silent"), "{}", ran.err);
    assert!(ran.out.contains("silent"), "{}", ran.out);
    assert_eq!(dir.json(&["nodes"])["nodes"][0]["state"], "silent");
    assert_eq!(dir.run(&["status"]).code, Some(0));
    let paused = dir.run(&["pause", "scheduler", "--wait", "10ms"]);
    assert_eq!(paused.code, Some(1));
    assert!(paused.err.contains("silent"), "{}", paused.err);
    a.signal(Signal::CONT);
    dir.until("scheduler", |role| role["state"] == "paused");
}

#[test]
fn a_vacant_role_has_no_leader_to_require() {
    let dir = TestDir::new();
    dir.vacant(&["scheduler", "other"]);
    let role = dir.role("scheduler");
    assert_eq!(role["token"], 1);
    assert_eq!((&role["leader"], &role["candidates"]), (&Value::Null, &json!([])));
    let ran = dir.run(&["status", "--require-leader"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("2 of 2"), "{}", ran.err);
}

#[test]
fn only_the_roles_that_were_named_are_shown_and_an_unknown_one_is_told() {
    let dir = TestDir::new();
    let _a = dir.node("a", &["scheduler", "metrics"]);
    dir.until("metrics", |role| role["state"] == "led");
    dir.until("scheduler", |role| role["state"] == "led");
    let one = dir.json(&["status", "metrics"]);
    assert_eq!((one["roles"].as_array().unwrap().len(), &one["roles"][0]["role"]), (1, &json!("metrics")));
    for args in [vec!["status", "shceduler"], vec!["status", "metrics", "shceduler", "--require-leader"]] {
        let ran = dir.run(&args);
        assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 1), "{ran:?}");
        assert!(ran.err.contains("did you mean scheduler?"), "{}", ran.err);
    }
    let ran = dir.run(&["history", "backup"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("role \"backup\" not found in namespace \"default\""), "{}", ran.err);
    let elsewhere = dir.json(&["status", "--namespace", "elsewhere"]);
    assert_eq!(elsewhere, json!({ "roles": [], "seen_ms_ago": 0 }));
}

#[test]
fn nodes_shows_what_each_leads_and_stands_for() {
    let dir = TestDir::new();
    let roles = ["r1", "r2", "r3", "r4", "r5"];
    let _a = dir.node_process("a", &roles, &[("label", "zone=eu"), ("address", "a:1"), ("priority", "7")]);
    for role in roles {
        dir.until(role, |role| role["leader"] == "a");
    }
    let b = dir.node("b", &["r1"]);
    dir.until("r1", |role| role["candidates"][0] == "b");
    let nodes = dir.json(&["nodes"]);
    let a = &nodes["nodes"][0];
    assert_eq!((&a["node"], &a["state"], &a["roles"]), (&json!("a"), &json!("live"), &json!(roles)));
    assert_eq!(
        (&a["labels"], &a["address"], &a["ttl_ms"]),
        (&json!({"zone": "eu"}), &json!("a:1"), &json!(3000))
    );
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!((&a["host"], &a["version"]), (&json!(host), &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!(a["candidacies"]["r1"], 7);
    assert_eq!(a["session"].as_str().unwrap().len(), 32);
    assert_stamp(&a["joined"]);
    assert_eq!(nodes["nodes"][1]["roles"], json!([]));
    let pretty = dir.run(&["nodes"]).out;
    for part in
        ["NODE", "CANDIDATE FOR", "5: r1, r2, r3, …", "zone=eu", "a:1", "r1 (+7)", "HOST", "VERSION", &host]
    {
        assert!(pretty.contains(part), "{part}: {pretty}");
    }
    b.kill();
    dir.until("r1", |role| role["candidates"] == json!([]));
}

/// History is written after the fact: waits until it is, so that a death cannot come before it.
async fn written_down(dir: &TestDir, role: &str) {
    let (store, namespace, epoch) = dir.registers().await;
    let key = Key::Named(epoch, Kind::History, Name::new(role).unwrap());
    let query = Query { keys: vec![key], kinds: Vec::new() };
    while store.read(&namespace, &query).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn history_tells_when_why_and_how_long_no_node_led() {
    let dir = TestDir::new();
    let [a, b] = dir.led("scheduler");
    written_down(&dir, "scheduler").await;
    a.kill();
    dir.until("scheduler", |role| role["leader"] == "b");
    let ran = dir.run(&["step-down", "scheduler"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    b.stop();
    let tenures = dir.json(&["history", "scheduler"])["tenures"].clone();
    let told: Vec<_> =
        tenures.as_array().unwrap().iter().map(|t| (t["token"].clone(), t["reason"].clone())).collect();
    let expected =
        [(json!(3), json!("shutdown")), (json!(2), json!("step-down")), (json!(1), json!("expelled"))];
    assert_eq!(told, expected, "{tenures}");
    assert_eq!(tenures[2]["gap_ms"], Value::Null);
    assert!(tenures[1]["gap_ms"].is_u64() && tenures[1]["held_ms"].is_u64(), "{tenures}");
    assert_stamp(&tenures[2]["ended"]);
    assert_eq!(dir.json(&["history", "-n", "1"])["tenures"].as_array().unwrap().len(), 1);
    let pretty = dir.run(&["history"]).out;
    let rows: Vec<&str> = pretty.lines().collect();
    assert!(
        rows[0].contains("GAP BEFORE") && rows[1].contains("shutdown") && rows[3].contains("expelled"),
        "{pretty}"
    );
}

#[test]
fn the_tenure_that_goes_on_has_no_end() {
    let dir = TestDir::new();
    let a = dir.node("a", &["scheduler"]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let tenure = dir.json(&["history"])["tenures"][0].clone();
    assert_eq!(
        (&tenure["ended"], &tenure["reason"], &tenure["token"]),
        (&Value::Null, &Value::Null, &json!(1))
    );
    assert!(dir.run(&["history"]).out.contains("current"));
    a.stop();
}

#[test]
fn there_is_no_colour_without_a_terminal() {
    let dir = TestDir::new();
    let _a = dir.node("a", &["scheduler"]);
    dir.until("scheduler", |role| role["leader"] == "a");
    for verb in ["status", "nodes", "history", "check", "doctor"] {
        let piped = dir.run(&[verb]);
        assert!(!piped.out.contains('\u{1b}') && !piped.err.contains('\u{1b}'), "{verb}: {piped:?}");
        let forced = dir.command(&[verb]).env("CLICOLOR_FORCE", "1").output().unwrap();
        assert!(forced.stdout.contains(&0x1b), "{verb}");
        let refused = dir.command(&[verb]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap();
        assert!(!refused.stdout.contains(&0x1b), "{verb}");
    }
}
