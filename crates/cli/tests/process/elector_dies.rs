//! The elector is killed or frozen: the watchdog acts on its own.

use rustix::process::Signal;
use tenure_cli::process::Exit;

use crate::elector::{Answer, Ask};
use crate::support::{
    DAEMON, HEART, Stage, Successor, eventually, freeze, gone, lock_is_free, signal, state,
};

/// Kills the elector under a child and checks that the lock fell only after the last beat, with nobody left.
fn killed_elector(script: &str, hearts: usize) {
    let mut stage = Stage::new(1_000, 200);
    let lock = stage.lock();
    stage.start(script, 600_000);
    let pids = stage.hearts(hearts);
    let successor = Successor::wait_for(&lock, &pids);
    stage.kill_elector();
    let (granted, alive) = successor.granted();
    assert!(alive.is_empty(), "a heart outlived the lock: {alive:?}");
    assert!(stage.beats().iter().all(|(_, time)| *time < granted));
    eventually("the watchdog left", || gone(stage.watchdog));
}

#[test]
fn a_killed_elector_takes_its_child_along() {
    killed_elector(HEART, 1);
}

#[test]
fn a_killed_elector_takes_a_child_along_that_ignores_term() {
    killed_elector(&format!("trap '' TERM HUP INT; {HEART}"), 1);
}

#[test]
fn a_killed_elector_takes_a_daemon_of_its_child_along() {
    killed_elector(&format!("{DAEMON}{HEART}"), 2);
}

/// A process that is never the same for longer than a moment: each one starts the next, in a new session, and
/// ends.
#[test]
fn a_killed_elector_takes_a_hopping_daemon_along() {
    let mut stage = Stage::new(1_000, 200);
    let lock = stage.lock();
    let hop = stage.dir.path().join("hop");
    std::fs::write(&hop, "echo hop >> \"$DIR/hops\"\nsetsid sh \"$DIR/hop\" &\n").unwrap();
    stage.start("sh \"$DIR/hop\"; exec sleep 1000", 600_000);
    eventually("it hops", || stage.written("hops").lines().count() > 20);
    let successor = Successor::wait_for(&lock, &[]);
    stage.kill_elector();
    successor.granted();
    assert_eq!(running(hop.to_str().unwrap()), Vec::<String>::new());
}

/// The command lines of living processes that contain `text`.
fn running(text: &str) -> Vec<String> {
    let read = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cmdline")).ok();
    let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(read);
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn a_killed_elector_takes_a_stopped_child_along() {
    let mut stage = Stage::new(1_000, 200);
    let (pid, _) = stage.start(HEART, 600_000);
    stage.hearts(1);
    freeze(pid);
    stage.kill_elector();
    eventually("the child is gone", || gone(pid));
}

/// Kills an elector whose watchdog is frozen, run by itself or inside another process.
fn killed_elector_with_frozen_watchdog(actor: &str) {
    let mut stage = Stage::with(1_000, 200, |command| {
        command.env("TENURE_TEST_ACTOR", actor);
    });
    let lock = stage.lock();
    let (pid, _) = stage.start(HEART, 600_000);
    freeze(stage.watchdog);
    let successor = Successor::wait_for(&lock, &[pid]);
    signal(stage.elector_pid(), Signal::KILL);
    assert!(successor.granted().1.is_empty(), "the child outlived the lock");
}

#[test]
fn a_killed_elector_wakes_a_frozen_watchdog() {
    killed_elector_with_frozen_watchdog("elector");
}

/// Here the kernel does not wake the watchdog by the rule for stopped orphaned groups: its new parent is in
/// the same session.
#[test]
fn a_killed_elector_wakes_a_frozen_watchdog_that_is_no_orphan() {
    killed_elector_with_frozen_watchdog("nurse");
}

#[test]
fn a_killed_elector_without_a_child_leaves_nothing() {
    let mut stage = Stage::new(1_000, 200);
    stage.kill_elector();
    eventually("the watchdog left", || gone(stage.watchdog));
}

/// Freezes the elector and checks that the child and all of its own ended before the deadline.
fn frozen_elector(script: &str, hearts: usize, expected: Signal) {
    let mut stage = Stage::new(1_000, 500);
    let lock = stage.lock();
    let (pid, deadline) = stage.start(script, 5_000);
    let mut pids = stage.hearts(hearts);
    pids.push(pid);
    freeze(stage.elector_pid());
    eventually("all are gone", || pids.iter().all(|pid| gone(*pid)));
    assert!(stage.beats().iter().all(|(_, time)| *time < deadline), "a beat after the deadline");
    assert!(!lock_is_free(&lock), "the frozen elector still holds it");
    signal(stage.elector_pid(), Signal::CONT);
    let Answer::Ended { exit, .. } = stage.ask(&Ask::Wait) else { panic!("the child ended") };
    assert_eq!(exit, Exit::Signal(expected.as_raw()));
}

#[test]
fn a_frozen_elector_has_no_child_at_the_deadline() {
    frozen_elector(HEART, 1, Signal::TERM);
}

#[test]
fn a_frozen_elector_has_no_stubborn_child_at_the_deadline() {
    frozen_elector(&format!("trap '' TERM; {HEART}"), 1, Signal::KILL);
}

#[test]
fn a_frozen_elector_has_no_daemon_of_its_child_at_the_deadline() {
    frozen_elector(&format!("{DAEMON}{HEART}"), 2, Signal::TERM);
}

#[test]
fn a_child_dies_with_the_watchdog_even_if_the_elector_is_frozen() {
    let mut stage = Stage::new(1_000, 200);
    let (pid, _) = stage.start(HEART, 600_000);
    stage.hearts(1);
    freeze(stage.elector_pid());
    signal(stage.watchdog, Signal::KILL);
    // Dead, though only the frozen elector could reap it.
    eventually("the child is dead", || matches!(state(pid), None | Some('Z')));
}
