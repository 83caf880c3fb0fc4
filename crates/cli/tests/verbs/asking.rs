//! `transfer`, `step-down`, `pause` and `resume`.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::kit::{Place, Ran, ran};

fn assert_no(ran: &Ran, part: &str) {
    assert_eq!((ran.code, ran.err.lines().count(), ran.out.as_str()), (Some(1), 1, ""), "{ran:?}");
    assert!(ran.err.contains(part), "{}", ran.err);
}

#[test]
fn a_transfer_returns_when_the_target_leads() {
    let place = Place::new();
    let _nodes = place.led("scheduler");
    let ran = place.run(&["transfer", "scheduler", "--to", "b", "--why", "a test"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.starts_with("b leads scheduler now, after a, token 2 (took "), "{}", ran.out);
    assert_eq!(place.role("scheduler")["leader"], "b");
    let again = place.json(&["transfer", "scheduler", "--to", "b"]);
    assert_eq!(
        (&again["changed"], &again["leader"], &again["token"]),
        (&json!(false), &json!("b"), &json!(2))
    );
    let back = place.json(&["transfer", "scheduler", "--to", "a"]);
    assert_eq!((&back["changed"], &back["former"], &back["token"]), (&json!(true), &json!("b"), &json!(3)));
    let already = place.run(&["transfer", "scheduler", "--to", "a"]);
    assert_eq!((already.code, already.out.as_str()), (Some(0), "a leads scheduler already, token 3\n"));
}

#[test]
fn a_transfer_says_why_not() {
    let place = Place::new();
    let [_a, b] = place.led("scheduler");
    let _web = place.node("web-1", &["other"]);
    place.until("other", |role| role["leader"] == "web-1");
    assert_no(
        &place.run(&["transfer", "scheduler", "--to", "web-1"]),
        "web-1 cannot take scheduler: it does not stand",
    );
    assert_no(&place.run(&["transfer", "scheduler", "--to", "web1"]), "did you mean web-1?");
    assert_no(
        &place.run(&["transfer", "scheduler", "--to", "stranger"]),
        "no node of that name is registered",
    );
    assert_no(&place.run(&["transfer", "schedule", "--to", "b"]), "did you mean scheduler?");
    b.kill();
    // Whether its death is known yet or not: it cannot take the role, and that is told without waiting for long.
    let begun = std::time::Instant::now();
    assert_no(
        &place.run(&["transfer", "scheduler", "--to", "b", "--wait", "10m"]),
        "b cannot take scheduler",
    );
    assert!(begun.elapsed() < crate::kit::PATIENCE);
    assert_eq!(place.role("scheduler")["leader"], "a");
    assert_eq!(place.run(&["pause", "scheduler"]).code, Some(0));
    assert_no(&place.run(&["transfer", "scheduler", "--to", "a"]), "scheduler is paused by tester@");
    assert_no(&place.run(&["step-down", "scheduler"]), "tenure resume scheduler");
}

#[test]
fn a_target_that_stopped_is_told_from_one_that_never_was() {
    let place = Place::new();
    let [_a, b] = place.led("scheduler");
    b.stop();
    let ran = place.run(&["transfer", "scheduler", "--to", "b"]);
    assert_no(&ran, "b cannot take scheduler");
    assert!(ran.err.contains("stopped") || ran.err.contains("no node of that name"), "{}", ran.err);
}

#[tokio::test]
async fn a_drained_target_is_refused() {
    let place = Place::new();
    let _nodes = place.led("scheduler");
    let store = tenure::store::open(&place.url()).unwrap();
    let operator = tenure::Operator::new(store, tenure::Name::new("default").unwrap(), "tester");
    operator.drain(&tenure::Name::new("b").unwrap(), true, "a test").await.unwrap();
    assert_no(&place.run(&["transfer", "scheduler", "--to", "b"]), "it is being drained");
    assert!(place.run(&["nodes"]).out.contains("live, drained"));
    assert_eq!(place.json(&["nodes"])["nodes"][1]["drained"]["why"], "a test");
}

#[test]
fn a_leader_that_steps_down_is_followed_by_the_next_in_line() {
    let place = Place::new();
    let [_a, b] = place.led("scheduler");
    let ran = place.run(&["step-down", "scheduler"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("a stepped down; b leads scheduler now, token 2 (took "), "{}", ran.out);
    b.stop();
    place.until("scheduler", |role| role["leader"] == "a");
    let alone = place.run(&["step-down", "scheduler"]);
    assert!(alone.out.contains("leads scheduler again"), "{alone:?}");
}

#[test]
fn a_leader_that_winds_down_slowly_is_told() {
    let place = Place::new();
    let _a = place.actor("a", &["scheduler"], &[("wind", "600000")]);
    place.until("scheduler", |role| role["leader"] == "a");
    let _b = place.node("b", &["scheduler"]);
    place.until("scheduler", |role| role["candidates"][0] == "b");
    let args = ["transfer", "scheduler", "--to", "b", "--wait", "4s"];
    assert_no(&place.run(&args), "a is still winding its work on scheduler down");
}

#[test]
fn an_interrupted_request_is_withdrawn() {
    let place = Place::new();
    let a = place.actor("a", &["scheduler"], &[("ttl", "600000")]);
    place.until("scheduler", |role| role["leader"] == "a");
    let _b = place.node("b", &["scheduler"]);
    place.until("scheduler", |role| role["candidates"][0] == "b");
    place.freeze(&a);
    let mut command = place.command(&["transfer", "scheduler", "--to", "b", "--wait", "10m"]);
    let asking = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.until("scheduler", |role| role["transfer"] == "b");
    let pid = Pid::from_raw(i32::try_from(asking.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_no(
        &ran(asking.wait_with_output().unwrap()),
        "interrupted; the request about scheduler was withdrawn",
    );
    assert!(place.role("scheduler").get("transfer").is_none());
}

#[test]
fn nobody_leads_a_paused_role_until_it_is_resumed() {
    let place = Place::new();
    let _nodes = place.led("scheduler");
    let ran = place.run(&["pause", "scheduler", "--why", "an upgrade"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("scheduler is paused: a gave it up"), "{}", ran.out);
    let role = place.role("scheduler");
    assert_eq!((&role["state"], &role["leader"]), (&json!("paused"), &json!(null)));
    assert_eq!(role["paused"]["why"], "an upgrade");
    assert!(role["paused"]["by"].as_str().unwrap().starts_with("tester@"));
    assert!(place.run(&["status"]).out.contains("paused by tester@"));
    assert_eq!(place.run(&["status", "--require-leader"]).code, Some(1));
    let again = place.run(&["pause", "scheduler"]);
    assert!(again.code == Some(0) && again.out.contains("paused already, by tester@"), "{again:?}");
    let resumed = place.json(&["resume", "scheduler"]);
    assert_eq!((&resumed["changed"], &resumed["state"]), (&json!(true), &json!("resumed")));
    assert!(resumed["leader"].is_string(), "{resumed}");
    place.until("scheduler", |role| role["state"] == "led" && role["token"] == 2);
    let ran = place.run(&["resume", "scheduler"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "scheduler was not paused\n"));
}

#[test]
fn a_vacant_role_is_paused_at_once_and_resumed_without_a_leader() {
    let place = Place::new();
    place.vacant(&["scheduler"]);
    let ran = place.run(&["step-down", "scheduler"]);
    assert_no(&ran, "nobody leads scheduler");
    assert_eq!(place.json(&["pause", "scheduler"])["changed"], true);
    assert_eq!(place.role("scheduler")["state"], "paused");
    let resumed = place.run(&["resume", "scheduler"]);
    assert_eq!(resumed.code, Some(0));
    assert!(resumed.out.contains("nobody stands for it"), "{}", resumed.out);
    assert_eq!(place.role("scheduler")["state"], "vacant");
}

#[test]
fn what_nobody_ever_stood_for_cannot_be_asked() {
    let place = Place::new();
    assert_eq!(place.run(&["doctor"]).code, Some(0), "it makes the file");
    for verb in ["pause", "resume", "step-down"] {
        assert_no(&place.run(&[verb, "scheduler"]), "there is no role scheduler in namespace default");
    }
    place.vacant(&["scheduler"]);
    for verb in ["pause", "resume", "step-down"] {
        assert_no(&place.run(&[verb, "scheduler2"]), "did you mean scheduler?");
        assert_no(&place.run(&[verb, "unlike"]), "`tenure status` lists those there are");
    }
    assert_eq!(place.json(&["status"])["roles"].as_array().unwrap().len(), 1, "asking leaves nothing behind");
}

/// A role that is tied to nobody is led by nobody.
#[test]
fn a_role_is_tied_only_to_a_node_that_there_is() {
    let place = Place::new();
    let _nodes = place.led("scheduler");
    let pin = |role: &str, node: &str| place.run(&["pin", role, "--to", node, "--why", "a test"]);
    assert_no(&pin("scheduler", "nobody"), "nobody");
    assert_no(&pin("scheduler2", "a"), "there is no role scheduler2");
    assert_eq!(place.role("scheduler")["leader"], "a");
    assert_eq!(pin("scheduler", "a").code, Some(0));
}

#[test]
fn doctor_examines_no_other_store_than_the_one_that_is_meant() {
    let place = Place::new();
    let asked = place.run(&["doctor", "--agent", "/run/tenure/agent.sock"]);
    assert!(asked.code == Some(2) && asked.err.contains("--store"), "{asked:?}");
}
