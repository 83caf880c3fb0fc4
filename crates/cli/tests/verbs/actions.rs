//! `transfer`, `step-down`, `pause` and `resume`.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::kit::{CommandOutput, TestDir, ran};

fn assert_no(ran: &CommandOutput, part: &str) {
    assert_eq!((ran.code, ran.err.lines().count(), ran.out.as_str()), (Some(1), 1, ""), "{ran:?}");
    assert!(ran.err.contains(part), "{}", ran.err);
}

#[test]
fn a_transfer_returns_when_the_target_leads() {
    let dir = TestDir::new();
    let _nodes = dir.led("scheduler");
    let ran = dir.run(&["transfer", "scheduler", "--to", "b", "--why", "a test"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.starts_with("b leads scheduler now, after a, token 2 (took "), "{}", ran.out);
    assert_eq!(dir.role("scheduler")["leader"], "b");
    let again = dir.json(&["transfer", "scheduler", "--to", "b"]);
    assert_eq!(
        (&again["changed"], &again["leader"], &again["token"]),
        (&json!(false), &json!("b"), &json!(2))
    );
    let back = dir.json(&["transfer", "scheduler", "--to", "a"]);
    assert_eq!((&back["changed"], &back["former"], &back["token"]), (&json!(true), &json!("b"), &json!(3)));
    let already = dir.run(&["transfer", "scheduler", "--to", "a"]);
    assert_eq!((already.code, already.out.as_str()), (Some(0), "a leads scheduler already, token 3\n"));
}

#[test]
fn a_transfer_says_why_not() {
    let dir = TestDir::new();
    let [_a, b] = dir.led("scheduler");
    let _web = dir.node("web-1", &["other"]);
    dir.until("other", |role| role["leader"] == "web-1");
    assert_no(
        &dir.run(&["transfer", "scheduler", "--to", "web-1"]),
        "web-1 cannot take scheduler: it is not a candidate",
    );
    assert_no(&dir.run(&["transfer", "scheduler", "--to", "web1"]), "did you mean web-1?");
    assert_no(&dir.run(&["transfer", "scheduler", "--to", "stranger"]), "no node of that name is registered");
    assert_no(&dir.run(&["transfer", "schedule", "--to", "b"]), "did you mean scheduler?");
    b.kill();
    // Whether its death is known yet or not: it cannot take the role, and that is told without waiting for long.
    let begun = std::time::Instant::now();
    assert_no(&dir.run(&["transfer", "scheduler", "--to", "b", "--wait", "10m"]), "b cannot take scheduler");
    assert!(begun.elapsed() < crate::kit::PATIENCE);
    assert_eq!(dir.role("scheduler")["leader"], "a");
    assert_eq!(dir.run(&["pause", "scheduler"]).code, Some(0));
    assert_no(&dir.run(&["transfer", "scheduler", "--to", "a"]), "scheduler is paused by tester@");
    assert_no(&dir.run(&["step-down", "scheduler"]), "tenure resume scheduler");
}

#[test]
fn a_target_that_stopped_is_told_from_one_that_never_was() {
    let dir = TestDir::new();
    let [_a, b] = dir.led("scheduler");
    b.stop();
    let ran = dir.run(&["transfer", "scheduler", "--to", "b"]);
    assert_no(&ran, "b cannot take scheduler");
    assert!(ran.err.contains("stopped") || ran.err.contains("no node of that name"), "{}", ran.err);
}

#[tokio::test]
async fn a_drained_target_is_refused() {
    let dir = TestDir::new();
    let _nodes = dir.led("scheduler");
    let store = tenure::store::open(&dir.url()).unwrap();
    let operator = tenure::Operator::new(store, tenure::Name::new("default").unwrap(), "tester");
    operator.drain(&tenure::Name::new("b").unwrap(), true, "a test").await.unwrap();
    assert_no(&dir.run(&["transfer", "scheduler", "--to", "b"]), "it is being drained");
    assert!(dir.run(&["nodes"]).out.contains("live, drained"));
    assert_eq!(dir.json(&["nodes"])["nodes"][1]["drained"]["why"], "a test");
}

#[test]
fn a_leader_that_steps_down_is_followed_by_the_next_in_line() {
    let dir = TestDir::new();
    let [_a, b] = dir.led("scheduler");
    let ran = dir.run(&["step-down", "scheduler"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("a stepped down; b leads scheduler now, token 2 (took "), "{}", ran.out);
    b.stop();
    dir.until("scheduler", |role| role["leader"] == "a");
    let alone = dir.run(&["step-down", "scheduler"]);
    assert!(alone.out.contains("leads scheduler again"), "{alone:?}");
}

#[test]
fn a_leader_that_winds_down_slowly_is_told() {
    let dir = TestDir::new();
    let _a = dir.node_process("a", &["scheduler"], &[("wind", "600000")]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let _b = dir.node("b", &["scheduler"]);
    dir.until("scheduler", |role| role["candidates"][0] == "b");
    let args = ["transfer", "scheduler", "--to", "b", "--wait", "4s"];
    assert_no(&dir.run(&args), "a is still stopping its work on scheduler");
}

#[test]
fn an_interrupted_request_is_withdrawn() {
    let dir = TestDir::new();
    let a = dir.node_process("a", &["scheduler"], &[("ttl", "600000")]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let _b = dir.node("b", &["scheduler"]);
    dir.until("scheduler", |role| role["candidates"][0] == "b");
    dir.freeze(&a);
    let mut command = dir.command(&["transfer", "scheduler", "--to", "b", "--wait", "10m"]);
    let asking = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    dir.until("scheduler", |role| role["transfer"] == "b");
    let pid = Pid::from_raw(i32::try_from(asking.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_no(
        &ran(asking.wait_with_output().unwrap()),
        "interrupted; the request for scheduler was withdrawn",
    );
    assert!(dir.role("scheduler")["transfer"].is_null());
}

#[test]
fn no_node_leads_a_paused_role_until_it_is_resumed() {
    let dir = TestDir::new();
    let _nodes = dir.led("scheduler");
    let ran = dir.run(&["pause", "scheduler", "--why", "an upgrade"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("scheduler is paused: a resigned"), "{}", ran.out);
    let role = dir.role("scheduler");
    assert_eq!((&role["state"], &role["leader"]), (&json!("paused"), &json!(null)));
    assert_eq!(role["paused"]["why"], "an upgrade");
    assert!(role["paused"]["by"].as_str().unwrap().starts_with("tester@"));
    assert!(dir.run(&["status"]).out.contains("paused by tester@"));
    assert_eq!(dir.run(&["status", "--require-leader"]).code, Some(1));
    let again = dir.run(&["pause", "scheduler"]);
    assert!(again.code == Some(0) && again.out.contains("already paused, by tester@"), "{again:?}");
    let resumed = dir.json(&["resume", "scheduler"]);
    assert_eq!((&resumed["changed"], &resumed["action"]), (&json!(true), &json!("resume")));
    assert!(resumed["leader"].is_string(), "{resumed}");
    dir.until("scheduler", |role| role["state"] == "led" && role["token"] == 2);
    let ran = dir.run(&["resume", "scheduler"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "scheduler was not paused\n"));
}

#[test]
fn a_vacant_role_is_paused_at_once_and_resumed_without_a_leader() {
    let dir = TestDir::new();
    dir.vacant(&["scheduler"]);
    let ran = dir.run(&["step-down", "scheduler"]);
    assert_no(&ran, "cannot hand scheduler over: it has no leader");
    assert_eq!(dir.json(&["pause", "scheduler"])["changed"], true);
    assert_eq!(dir.role("scheduler")["state"], "paused");
    let resumed = dir.run(&["resume", "scheduler"]);
    assert_eq!(resumed.code, Some(0));
    assert!(resumed.out.contains("it has no candidates"), "{}", resumed.out);
    assert_eq!(dir.role("scheduler")["state"], "vacant");
}

#[test]
fn a_role_without_candidates_ever_cannot_be_asked() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&["doctor"]).code, Some(0), "it makes the file");
    for verb in ["pause", "resume", "step-down"] {
        assert_no(&dir.run(&[verb, "scheduler"]), "role \"scheduler\" not found in namespace \"default\"");
    }
    dir.vacant(&["scheduler"]);
    for verb in ["pause", "resume", "step-down"] {
        assert_no(&dir.run(&[verb, "scheduler2"]), "did you mean scheduler?");
        assert_no(&dir.run(&[verb, "unlike"]), "run `tenure status` to list roles");
    }
    assert_eq!(dir.json(&["status"])["roles"].as_array().unwrap().len(), 1, "asking leaves nothing behind");
}

/// A role cannot be pinned to a node that does not exist.
#[test]
fn a_role_is_tied_only_to_a_node_that_there_is() {
    let dir = TestDir::new();
    let _nodes = dir.led("scheduler");
    let pin = |role: &str, node: &str| dir.run(&["pin", role, "--to", node, "--why", "a test"]);
    assert_no(&pin("scheduler", "missing"), "missing");
    assert_no(&pin("scheduler2", "a"), "role \"scheduler2\" not found");
    assert_eq!(dir.role("scheduler")["leader"], "a");
    assert_eq!(pin("scheduler", "a").code, Some(0));
}

#[test]
fn doctor_examines_no_other_store_than_the_one_that_is_meant() {
    let dir = TestDir::new();
    let asked = dir.run(&["doctor", "--agent", "/run/tenure/agent.sock"]);
    assert!(asked.code == Some(2) && asked.err.contains("no option --agent"), "{asked:?}");
}

/// A mistyped role is out of sight once an operator says so, keeps its token, and comes back when a node stands for it.
#[test]
fn a_role_without_candidates_is_forgotten_and_keeps_its_token() {
    let dir = TestDir::new();
    dir.vacant(&["schedluer"]);
    let token = dir.role("schedluer")["token"].as_u64().unwrap();
    let kept = dir.node("b", &["scheduler"]);
    dir.until("scheduler", |found| found["leader"] == "b");
    assert_no(
        &dir.run(&["forget", "scheduler"]),
        "cannot forget scheduler: b leads it or is a candidate for it",
    );
    let forgotten = dir.json(&["forget", "schedluer", "--why", "a typo"]);
    assert_eq!((&forgotten["action"], &forgotten["changed"]), (&"forget".into(), &true.into()));
    assert!(dir.role("schedluer").is_null() && !dir.role("scheduler").is_null());
    assert_eq!(dir.run(&["status", "--require-leader"]).code, Some(0));
    assert!(dir.run(&["audit"]).out.contains("a typo"));
    let back = dir.node("c", &["schedluer"]);
    let found = dir.until("schedluer", |found| found["leader"] == "c");
    assert!(found["token"].as_u64().unwrap() > token, "{found}");
    back.stop();
    dir.until("schedluer", |found| found["state"] == "vacant");
    kept.stop();
}
