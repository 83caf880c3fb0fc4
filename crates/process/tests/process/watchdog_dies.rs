//! The watchdog is killed, frozen or told to go: the elector acts in its place.

use rustix::process::Signal;
use tenure_process::Exit;

use crate::elector::{Answer, Ask};
use crate::support::{DAEMON, Fixture, HEART, ended, eventually, freeze, gone, signal};

#[test]
fn a_killed_watchdog_means_that_everything_is_killed() {
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture.start(&format!("{DAEMON}trap '' TERM; {HEART}"), 600_000);
    let pids = fixture.hearts(2);
    signal(fixture.watchdog, Signal::KILL);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::WatchdogLost, false, true));
    assert!(gone(pid) && gone(fixture.watchdog) && pids.iter().all(|pid| gone(*pid)));
    assert_eq!(fixture.ask(&fixture.script("exit 0", 60_000)), Answer::Lost);
}

#[test]
fn after_a_lost_watchdog_another_one_serves() {
    let mut fixture = Fixture::new(1_000, 200);
    signal(fixture.watchdog, Signal::KILL);
    eventually("the watchdog is reaped", || gone(fixture.watchdog));
    fixture.launch(1_000, 200);
    fixture.start("exit 5", 60_000);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(5), false, false));
}

/// Who hears it launches another watchdog, and starts the command again.
#[test]
fn that_the_watchdog_is_lost_is_said_when_nothing_is_left() {
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture
        .start("for i in $(seq 300); do sleep 1000 & done; echo all > \"$DIR/started\"; wait", 600_000);
    fixture.written("started");
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children: Vec<i32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(children.len(), 300);
    signal(fixture.watchdog, Signal::KILL);
    fixture.ask(&Ask::DropChild);
    for _ in 0..5 {
        assert_eq!(fixture.ask(&fixture.script("echo ran > \"$DIR/ran\"", 600_000)), Answer::Lost);
        let left = children.iter().filter(|pid| !gone(**pid)).count();
        assert_eq!(left, 0, "processes of the command before are left");
    }
    assert!(!fixture.dir.path().join("ran").exists());
}

#[test]
fn a_watchdog_that_does_not_answer_a_renewal_is_lost() {
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture.start(&format!("{DAEMON}{HEART}"), 600_000);
    let pids = fixture.hearts(2);
    freeze(fixture.watchdog);
    fixture.ask(&Ask::Renew { ttl_ms: 600_000 });
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::WatchdogLost, false, true));
    assert!(gone(pid) && gone(fixture.watchdog) && pids.iter().all(|pid| gone(*pid)));
}

#[test]
fn a_frozen_watchdog_that_is_to_hold_a_lock_is_lost() {
    let mut fixture = Fixture::new(1_000, 200);
    freeze(fixture.watchdog);
    let path = fixture.dir.path().join("lock").display().to_string();
    assert_eq!(fixture.ask(&Ask::Lock { path }), Answer::Lost);
    assert!(gone(fixture.watchdog));
}

#[test]
fn a_frozen_watchdog_does_not_let_the_child_outlive_the_deadline() {
    let mut fixture = Fixture::new(1_000, 1_000);
    let (pid, deadline) = fixture.start(HEART, 5_000);
    fixture.hearts(1);
    freeze(fixture.watchdog);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::WatchdogLost, false, true));
    assert!(gone(pid));
    assert!(fixture.beats().iter().all(|(_, time)| *time < deadline), "a beat after the deadline");
}

#[test]
fn a_watchdog_survives_what_service_managers_send_to_everyone() {
    let mut fixture = Fixture::new(1_000, 200);
    for number in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::TSTP] {
        signal(fixture.watchdog, number);
    }
    fixture.start("exit 4", 60_000);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(4), false, false));
}

#[test]
fn closing_a_guard_with_a_frozen_watchdog_still_kills_everything() {
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture.start(HEART, 600_000);
    fixture.hearts(1);
    freeze(fixture.watchdog);
    assert_eq!(fixture.ask(&Ask::Close), Answer::Done);
    assert!(gone(pid) && gone(fixture.watchdog));
}
