//! Commands and HTTP calls, run by a schedule.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::{PATIENCE, TestDir, often};

#[test]
fn a_command_knows_what_it_runs_for_and_its_exit_is_entered() {
    let dir = TestDir::new();
    let line = "echo $TENURE_TASK $TENURE_TOKEN $TENURE_ROLE $TENURE_NODE $TENURE_ATTEMPT $TENURE_RUN >> \"$0\"; exit 3";
    let command = json!({ "command": ["sh", "-c", line, dir.file("said")] });
    let node = dir.node("a", &[often("greet", &command)]);
    let run = dir.until_run("greet", |run| run["state"] == "failed");
    assert_eq!((&run["exit"], &run["node"]), (&json!(3), &json!("a")));
    assert!(run["why"].as_str().unwrap().contains("code 3"), "{run}");
    let said = std::fs::read_to_string(dir.file("said")).unwrap();
    let first: Vec<&str> = said.lines().next().unwrap().split(' ').collect();
    assert_eq!(first[..5], ["greet", &run["token"].to_string(), "scheduler", "a", "1"]);
    let runs: std::collections::BTreeSet<&str> =
        said.lines().filter_map(|line| line.split(' ').nth(5)).collect();
    assert_eq!(runs.len(), said.lines().count(), "one id for each tick: {said}");
    assert!(runs.iter().all(|run| run.starts_with("greet@")), "{said}");
    node.stop();
}

/// What a command said last on stderr is on record beside its exit.
#[test]
fn the_last_words_of_a_command_that_fails_are_entered() {
    let dir = TestDir::new();
    let line = "for n in 1 2 3 4 5 6 7; do echo word $n >&2; done; exit 3";
    let node = dir.node("a", &[often("talk", &json!({ "command": ["sh", "-c", line] }))]);
    let run = dir.until_run("talk", |run| run["state"] == "failed");
    let why = run["why"].as_str().unwrap();
    assert_eq!(why, "it exited with code 3; last output: word 3 | word 4 | word 5 | word 6 | word 7");
    node.stop();
}

/// Two commands at a time, each under a watchdog of its own: the end of one is not the end of the other.
#[test]
fn commands_run_beside_each_other() {
    let dir = TestDir::new();
    let slow = json!({ "every": "1h", "command": ["sh", "-c", "sleep 2"] });
    let quick = json!({ "command": ["true"] });
    let node = dir.node("a", &[often("slow", &slow), often("quick", &quick)]);
    dir.until_run("quick", |run| run["state"] == "succeeded");
    let asked = dir.json(&["task", "trigger", "slow", "--wait", "60s"]);
    assert_eq!((&asked["run"]["state"], &asked["run"]["exit"]), (&json!("succeeded"), &json!(0)), "{asked}");
    let during = |run: &serde_json::Value| {
        run["state"] == "succeeded" && run["started"].as_str() > asked["run"]["started"].as_str()
    };
    dir.until_run("quick", during);
    node.stop();
}

/// A command that takes too long is told to end, and killed with everything it started.
#[test]
fn a_command_that_takes_too_long_is_ended_with_all_it_started() {
    let dir = TestDir::new();
    let beat = "trap '' TERM; (while :; do date +%s%N >> \"$0\"; sleep 0.02; done) & wait; sleep 60";
    let more = json!({ "every": "1h", "timeout": "300ms", "command": ["sh", "-c", beat, dir.file("beats")] });
    let node = dir.node("a", &[often("stuck", &more)]);
    wait_for_ledger(&dir, "stuck");
    let asked = dir.json(&["task", "trigger", "stuck", "--wait", "60s"]);
    assert_eq!(asked["run"]["state"], "timed-out", "{asked}");
    let beats = || std::fs::read_to_string(dir.file("beats")).unwrap_or_default().lines().count();
    let after = beats();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(beats(), after, "nothing of it is left");
    node.stop();
}

/// The node is killed: its command dies with it, and the next leader enters the run as interrupted.
#[test]
fn a_command_dies_with_its_node_and_its_run_is_interrupted() {
    let dir = TestDir::new();
    let beat = "while :; do date +%s%N >> \"$0\"; sleep 0.02; done";
    let more = json!({ "command": ["sh", "-c", beat, dir.file("beats")] });
    let a = dir.node("a", &[often("long", &more)]);
    let run = dir.until_run("long", |run| run["state"] == "running");
    let begun = Instant::now();
    while !std::path::Path::new(&dir.file("beats")).exists() {
        assert!(begun.elapsed() < PATIENCE, "it never began");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(a);
    let b = dir.node("b", &[often("long", &json!({ "command": ["true"] }))]);
    let found = dir.until_run("long", |found| found["tick"] == run["tick"]);
    let found = if found["state"] == "running" {
        dir.until_run("long", |found| found["tick"] == run["tick"] && found["state"] != "running")
    } else {
        found
    };
    assert_eq!(found["state"], "interrupted", "{found}");
    dir.until_run("long", |run| run["state"] == "succeeded" && run["node"] == "b");
    let beats = || std::fs::read_to_string(dir.file("beats")).unwrap().lines().count();
    let after = beats();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(beats(), after, "two workers");
    b.stop();
}

/// Told to stop with a long job in flight: it is cancelled when the drain time is over, entered, and only then resigned.
#[test]
fn a_node_that_stops_cancels_its_command_after_the_drain_and_then_resigns() {
    let dir = TestDir::new();
    let tasks = [often("job", &json!({ "command": ["sleep", "600"] }))];
    let a = dir.node("a", &tasks);
    let run = dir.until_run("job", |run| run["state"] == "running");
    let b = dir.node("b", &[often("job", &json!({ "command": ["true"] }))]);
    a.stop();
    let ended = dir.until_run("job", |found| found["tick"] == run["tick"] && found["state"] != "running");
    assert_eq!(ended["state"], "cancelled", "{ended}");
    let next = dir.until_run("job", |run| run["node"] == "b" && run["state"] == "succeeded");
    assert!(next["token"].as_u64() > run["token"].as_u64());
    let history = dir.json(&["history", "scheduler"]);
    let reasons: Vec<_> = history["tenures"].as_array().unwrap().iter().map(|past| &past["reason"]).collect();
    assert!(reasons.contains(&&json!("shutdown")), "{history}");
    b.stop();
}

/// The token is in a header; what may pass is tried again, what will not is not.
#[test]
fn an_http_call_carries_the_token_and_is_tried_again() {
    let dir = TestDir::new();
    let (address, calls) = serve(&["503 Service Unavailable", "200 OK", "404 Not Found"]);
    let http = json!({ "http": { "url": format!("http://{address}/hook"), "headers": { "x-key": "7" }, "body": "go" },
        "every": "1h", "retries": 3, "backoff": "1ms" });
    let node = dir.node("a", &[often("call", &http)]);
    wait_for_ledger(&dir, "call");
    let asked = dir.json(&["task", "trigger", "call", "--wait", "60s"]);
    let run = &asked["run"];
    assert_eq!(
        (&run["state"], &run["attempts"], &run["exit"]),
        (&json!("succeeded"), &json!(2), &json!(200))
    );
    let call = calls.recv_timeout(PATIENCE).unwrap();
    assert!(call.starts_with("POST /hook") && call.ends_with("go"), "{call}");
    for header in ["tenure-task: call", "tenure-role: scheduler", "tenure-node: a", "x-key: 7"] {
        assert!(call.contains(header), "{header}: {call}");
    }
    assert!(call.contains(&format!("tenure-token: {}", run["token"])), "{call}");
    assert!(call.contains("tenure-run: "), "{call}");
    let asked = dir.json(&["task", "trigger", "call", "--wait", "60s"]);
    let run = &asked["run"];
    assert_eq!((&run["state"], &run["attempts"], &run["exit"]), (&json!("failed"), &json!(1), &json!(404)));
    node.stop();
}

fn wait_for_ledger(dir: &TestDir, task: &str) {
    let begun = Instant::now();
    while dir.run(&["task", "list", task]).code != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "{task} is not in the ledger");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Answers calls one after another with these, and gives what was asked.
fn serve(answers: &'static [&'static str]) -> (std::net::SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, calls) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let _ = sender.send(answered(stream, answer));
        }
    });
    (address, calls)
}

fn answered(mut stream: TcpStream, answer: &str) -> String {
    let (mut call, mut some) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&call).contains("\r\n\r\n") || !call.ends_with(b"go") {
        let length = stream.read(&mut some).unwrap();
        assert_ne!(length, 0, "the whole call comes");
        call.extend_from_slice(&some[..length]);
    }
    write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    String::from_utf8(call).unwrap()
}
