//! The elector is killed or frozen: the watchdog acts on its own.

use rustix::process::Signal;
use tenure_process::Exit;

use crate::elector::{Answer, Ask};
use crate::support::{
    DAEMON, Fixture, HEART, Successor, eventually, freeze, gone, lock_is_free, signal, state,
};

/// Kills the elector under a child and checks that the lock fell only after the last beat, with no process left.
fn killed_elector(script: &str, hearts: usize) {
    let mut fixture = Fixture::new(1_000, 200);
    let lock = fixture.lock();
    fixture.start(script, 600_000);
    let pids = fixture.hearts(hearts);
    let successor = Successor::wait_for(&lock, &pids);
    fixture.kill_elector();
    let (granted, alive) = successor.granted();
    assert!(alive.is_empty(), "a heart outlived the lock: {alive:?}");
    assert!(fixture.beats().iter().all(|(_, time)| *time < granted));
    eventually("the watchdog left", || gone(fixture.watchdog));
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
    let mut fixture = Fixture::new(1_000, 200);
    let lock = fixture.lock();
    let hop = fixture.dir.path().join("hop");
    std::fs::write(&hop, "echo hop >> \"$DIR/hops\"\nsetsid sh \"$DIR/hop\" &\n").unwrap();
    fixture.start("sh \"$DIR/hop\"; exec sleep 1000", 600_000);
    eventually("it hops", || fixture.written("hops").lines().count() > 20);
    let successor = Successor::wait_for(&lock, &[]);
    fixture.kill_elector();
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
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture.start(HEART, 600_000);
    fixture.hearts(1);
    freeze(pid);
    fixture.kill_elector();
    eventually("the child is gone", || gone(pid));
}

/// Kills an elector whose watchdog is frozen, run by itself or inside another process.
fn killed_elector_with_frozen_watchdog(actor: &str) {
    let mut fixture = Fixture::with(1_000, 200, |command| {
        command.env("TENURE_TEST_ACTOR", actor);
    });
    let lock = fixture.lock();
    let (pid, _) = fixture.start(HEART, 600_000);
    freeze(fixture.watchdog);
    let successor = Successor::wait_for(&lock, &[pid]);
    signal(fixture.elector_pid(), Signal::KILL);
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
    killed_elector_with_frozen_watchdog("reaper");
}

#[test]
fn a_killed_elector_without_a_child_leaves_nothing() {
    let mut fixture = Fixture::new(1_000, 200);
    fixture.kill_elector();
    eventually("the watchdog left", || gone(fixture.watchdog));
}

/// Freezes the elector and checks that the child and all of its own ended before the deadline.
fn frozen_elector(script: &str, hearts: usize, expected: Signal) {
    [false, true].into_iter().for_each(|prepared| frozen_elector_of(prepared, script, hearts, expected));
}

fn frozen_elector_of(prepared: bool, script: &str, hearts: usize, expected: Signal) {
    let mut fixture = Fixture::new(1_000, 500);
    let lock = fixture.lock();
    if prepared {
        fixture.prepare();
    }
    let (pid, deadline) = fixture.start(script, 5_000);
    let mut pids = fixture.hearts(hearts);
    pids.push(pid);
    freeze(fixture.elector_pid());
    eventually("all are gone", || pids.iter().all(|pid| gone(*pid)));
    assert!(fixture.beats().iter().all(|(_, time)| *time < deadline), "a beat after the deadline");
    assert!(!lock_is_free(&lock), "the frozen elector still holds it");
    signal(fixture.elector_pid(), Signal::CONT);
    let Answer::Ended { exit, .. } = fixture.ask(&Ask::Wait) else { panic!("the child ended") };
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
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture.start(HEART, 600_000);
    fixture.hearts(1);
    freeze(fixture.elector_pid());
    signal(fixture.watchdog, Signal::KILL);
    // Dead, though only the frozen elector could reap it.
    eventually("the child is dead", || matches!(state(pid), None | Some('Z')));
}
