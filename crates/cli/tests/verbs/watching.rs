//! `watch`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kit::{TestDir, assert_stamp, keys};

/// `tenure watch` under way.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn begin(dir: &TestDir, args: &[&str]) -> Self {
        let mut command = dir.command(&[&["watch"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("it goes on").unwrap()
    }

    fn any_event(&mut self) -> Value {
        let event: Value = serde_json::from_str(&self.line()).unwrap();
        assert_stamp(&event["at"]);
        event
    }

    /// Reads events until one is of that kind.
    fn event(&mut self, kind: &str) -> Value {
        loop {
            let event = self.any_event();
            if event["event"] == kind {
                return event;
            }
        }
    }

    /// Reads events until a node is expelled and that one leads; gives the expulsion. One look may see both, in any order.
    fn expelled_for(&mut self, leader: &str) -> Value {
        let (mut expelled, mut leads) = (None, false);
        loop {
            let event = self.any_event();
            match event["event"].as_str() {
                Some("leader-changed") => leads = event["leader"] == leader,
                Some("node-expelled") => expelled = Some(event),
                _ => {}
            }
            if let Some(expelled) = expelled.take_if(|_| leads) {
                return expelled;
            }
        }
    }

    /// Pauses and resumes a role until the watch has told of it: from then on it misses nothing.
    fn settle(&mut self, dir: &TestDir, role: &str) {
        let told = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !told.load(Ordering::Relaxed) {
                    dir.run(&["pause", role]);
                    dir.run(&["resume", role]);
                }
            });
            self.event("paused");
            told.store(true, Ordering::Relaxed);
        });
        let begun = std::time::Instant::now();
        let token = dir.role(role)["token"].clone();
        while self.event("leader-changed")["token"] != token {
            assert!(begun.elapsed() < crate::kit::PATIENCE);
        }
    }

    fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_change_is_a_line_of_json() {
    let dir = TestDir::new();
    let [a, b] = dir.led("scheduler");
    let mut watch = Watching::begin(&dir, &["--format", "json"]);
    watch.settle(&dir, "scheduler");
    assert_eq!(dir.run(&["transfer", "scheduler", "--to", "a"]).code, Some(0));
    a.kill();
    // A watch that had not seen the next leader yet could not name it when it is paused.
    let expelled = watch.expelled_for("b");
    assert_eq!(keys(&expelled), ["at", "event", "node", "session"]);
    assert_eq!(expelled["node"], "a");
    assert_eq!(dir.run(&["pause", "scheduler", "--why", "a test"]).code, Some(0));
    let paused = watch.event("paused");
    assert_eq!(keys(&paused), ["at", "by", "event", "role", "why"]);
    assert_eq!(paused["why"], "a test");
    let vacant = watch.event("vacant");
    assert_eq!(keys(&vacant), ["at", "event", "former", "reason", "role", "token"]);
    assert_eq!((&vacant["former"], &vacant["reason"]), (&Value::from("b"), &Value::from("paused")));
    assert_eq!(dir.run(&["resume", "scheduler"]).code, Some(0));
    assert_eq!(watch.event("resumed")["role"], "scheduler");
    let led = watch.event("leader-changed");
    assert_eq!(keys(&led), ["at", "event", "former", "leader", "reason", "role", "token"]);
    b.stop();
    assert_eq!(watch.event("node-left")["node"], "b");
    let _c = dir.node("c", &[]);
    assert_eq!(watch.event("node-joined")["node"], "c");
}

#[test]
fn a_frozen_leader_is_told_and_told_again_when_it_is_back() {
    let dir = TestDir::new();
    let a = dir.node_process("a", &["scheduler"], &[("ttl", "600")]);
    dir.until("scheduler", |role| role["leader"] == "a");
    let mut watch = Watching::begin(&dir, &["--format", "json", "scheduler"]);
    watch.settle(&dir, "scheduler");
    dir.freeze(&a);
    assert_eq!(watch.event("leader-silent")["leader"], "a");
    a.signal(Signal::CONT);
    // Frozen for longer than its lease it leads anew, under a session and a token of its own.
    assert_eq!(watch.event("leader-changed")["leader"], "a");
}

#[test]
fn a_leader_that_dies_alone_is_lost_only_when_a_node_says_so() {
    let dir = TestDir::new();
    let [a, b] = dir.led("scheduler");
    let _c = dir.node("c", &["other"]);
    dir.until("other", |role| role["leader"] == "c");
    b.stop();
    let mut watch = Watching::begin(&dir, &["--format", "json", "scheduler"]);
    watch.settle(&dir, "scheduler");
    a.kill();
    let lost = watch.event("leader-lost");
    assert_eq!(keys(&lost), ["at", "event", "former", "reason", "role", "token"]);
    assert_eq!((&lost["former"], &lost["reason"]), (&Value::from("a"), &Value::from("expelled")));
}

#[test]
fn it_stops_after_so_many_lines() {
    let dir = TestDir::new();
    let _nodes = dir.led("scheduler");
    let mut watch = Watching::begin(&dir, &["--count", "2"]);
    std::thread::scope(|scope| {
        let ended = scope.spawn(move || {
            let lines = [watch.line(), watch.line()];
            (lines, watch.lines.next().is_none(), watch.ended())
        });
        while !ended.is_finished() {
            dir.run(&["step-down", "scheduler"]);
        }
        let (lines, silent, code) = ended.join().unwrap();
        assert!(silent && code == Some(0));
        assert!(lines.iter().all(|line| line.contains("scheduler  ") && line.contains("token")), "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
    });
}

#[test]
fn it_ends_cleanly_when_interrupted_or_when_its_output_is_closed() {
    let dir = TestDir::new();
    let _nodes = dir.led("scheduler");
    let mut watch = Watching::begin(&dir, &["--format", "json"]);
    watch.settle(&dir, "scheduler");
    let pid = Pid::from_raw(i32::try_from(watch.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(watch.ended(), Some(0));

    let mut command = dir.command(&["watch"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    while child.try_wait().unwrap().is_none() {
        dir.run(&["step-down", "scheduler"]);
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
