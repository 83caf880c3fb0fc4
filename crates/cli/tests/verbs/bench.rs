//! `tenure bench --only scale`, small: what it tells of many nodes and roles has happened.

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::TestDir;

/// Ten nodes and fifty roles, each with three candidates.
fn measured(store: &[&str]) -> Vec<(String, String)> {
    let size = ["bench", "--only", "scale", "--nodes", "10", "--roles", "50", "--ttl", "1s"];
    let told = TestDir::new().json(&[&size, store].concat());
    let text = |figure: &Value, key: &str| figure[key].as_str().unwrap().to_owned();
    let figures = told["figures"].as_array().unwrap();
    figures.iter().map(|figure| (text(figure, "what"), text(figure, "value"))).collect()
}

/// The value of the one figure whose name has this in it.
fn value<'a>(figures: &'a [(String, String)], part: &str) -> &'a str {
    let mut found = figures.iter().filter(|(what, _)| what.contains(part));
    let (Some((_, value)), None) = (found.next(), found.next()) else { panic!("{part}: {figures:?}") };
    value
}

/// The number that stands before this word.
fn number(text: &str, word: &str) -> f64 {
    let before = text.split(word).next().filter(|before| before.len() < text.len());
    let last = before.and_then(|before| before.split_whitespace().next_back()?.parse().ok());
    last.unwrap_or_else(|| panic!("no number before {word}: {text}"))
}

fn check(figures: &[(String, String)]) {
    assert_ne!(value(figures, "10 nodes, 50 roles of 3 candidates: all led"), "");
    let rest = value(figures, "… at rest");
    let (operations, rows) = (number(rest, " operations"), number(rest, " rows"));
    assert!(operations > 0.0 && rows >= operations, "each operation at rest has a row: {rest}");
    let led_again = figures.iter().find(|(what, _)| what.starts_with("busiest node cut off"));
    let (what, _) = led_again.unwrap_or_else(|| panic!("{figures:?}"));
    assert!(number(what, " roles led again") >= 5.0, "one of ten leads at least a tenth: {what}");
    let handed_over = figures.iter().find(|(what, _)| what.contains(" hand-overs"));
    let (what, _) = handed_over.unwrap_or_else(|| panic!("{figures:?}"));
    assert!(number(what, " hand-overs") >= 50.0, "every leader was restarted: {what}");
    assert_ne!(value(figures, "rolling restart of 10 nodes"), "");
}

#[test]
fn many_nodes_and_roles_are_measured_on_the_embedded_store() {
    let figures = measured(&[]);
    check(&figures);
    assert!(!figures.iter().any(|(what, _)| what.contains("of the server")), "{figures:?}");
}

/// A server tells what it has used: two connections for each node.
#[test]
fn many_nodes_and_roles_are_measured_on_a_server() {
    let figures = measured(&["--private", "redis"]);
    check(&figures);
    let server = value(&figures, "… of the server");
    let connections = number(server, " connections");
    assert!((20.0..=24.0).contains(&connections), "{server}");
    assert!(number(server, " requests") > 0.0 && number(server, " MiB sent") > 0.0, "{server}");
}

/// The processes that a process started and that have this name.
fn children(parent: u32, name: &str) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<u32> =
        children.flat_map(|text| text.split(' ').flat_map(str::parse).collect::<Vec<u32>>()).collect();
    let comm = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pids.into_iter().filter(|pid| comm(pid).trim_end() == name).collect()
}

#[test]
fn an_interrupted_measurement_leaves_no_server_behind() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["bench", "--private", "redis", "--only", "crash", "--rounds", "1000"]);
    let mut bench = command.spawn().unwrap();
    let server = loop {
        if let [server] = children(bench.id(), "redis-server")[..] {
            break server;
        }
        assert!(bench.try_wait().unwrap().is_none(), "it runs");
        std::thread::sleep(Duration::from_millis(10));
    };
    kill_process(Pid::from_child(&bench), Signal::TERM).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(143));
    let command = std::fs::read_to_string(format!("/proc/{server}/comm"));
    assert!(command.is_err(), "a server is left behind: {command:?}");
}
