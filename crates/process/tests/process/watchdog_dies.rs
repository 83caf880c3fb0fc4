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
