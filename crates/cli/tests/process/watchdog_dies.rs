//! The watchdog is killed, frozen or told to go: the elector acts in its place.

use rustix::process::Signal;
use tenure_cli::process::Exit;

use crate::elector::{Answer, Ask};
use crate::support::{DAEMON, HEART, Stage, ended, eventually, freeze, gone, signal};

#[test]
fn a_killed_watchdog_means_that_everything_is_killed() {
    let mut stage = Stage::new(1_000, 200);
    let (pid, _) = stage.start(&format!("{DAEMON}trap '' TERM; {HEART}"), 600_000);
    let pids = stage.hearts(2);
    signal(stage.watchdog, Signal::KILL);
    assert_eq!(stage.ask(&Ask::Wait), ended(Exit::WatchdogLost, false, true));
    assert!(gone(pid) && gone(stage.watchdog) && pids.iter().all(|pid| gone(*pid)));
    assert_eq!(stage.ask(&stage.script("exit 0", 60_000)), Answer::Lost);
}

#[test]
fn after_a_lost_watchdog_another_one_serves() {
    let mut stage = Stage::new(1_000, 200);
    signal(stage.watchdog, Signal::KILL);
    eventually("the watchdog is reaped", || gone(stage.watchdog));
    stage.launch(1_000, 200);
    stage.start("exit 5", 60_000);
    assert_eq!(stage.ask(&Ask::Wait), ended(Exit::Code(5), false, false));
}

#[test]
fn a_watchdog_that_does_not_answer_a_renewal_is_lost() {
    let mut stage = Stage::new(1_000, 200);
    let (pid, _) = stage.start(&format!("{DAEMON}{HEART}"), 600_000);
    let pids = stage.hearts(2);
    freeze(stage.watchdog);
    stage.ask(&Ask::Renew { ttl_ms: 600_000 });
    assert_eq!(stage.ask(&Ask::Wait), ended(Exit::WatchdogLost, false, true));
    assert!(gone(pid) && gone(stage.watchdog) && pids.iter().all(|pid| gone(*pid)));
}

#[test]
fn a_frozen_watchdog_does_not_let_the_child_outlive_the_deadline() {
    let mut stage = Stage::new(1_000, 1_000);
    let (pid, deadline) = stage.start(HEART, 5_000);
    stage.hearts(1);
    freeze(stage.watchdog);
    assert_eq!(stage.ask(&Ask::Wait), ended(Exit::WatchdogLost, false, true));
    assert!(gone(pid));
    assert!(stage.beats().iter().all(|(_, time)| *time < deadline), "a beat after the deadline");
}

#[test]
fn a_watchdog_survives_what_service_managers_send_to_everyone() {
    let mut stage = Stage::new(1_000, 200);
    for number in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::TSTP] {
        signal(stage.watchdog, number);
    }
    stage.start("exit 4", 60_000);
    assert_eq!(stage.ask(&Ask::Wait), ended(Exit::Code(4), false, false));
}

#[test]
fn closing_a_guard_with_a_frozen_watchdog_still_kills_everything() {
    let mut stage = Stage::new(1_000, 200);
    let (pid, _) = stage.start(HEART, 600_000);
    stage.hearts(1);
    freeze(stage.watchdog);
    assert_eq!(stage.ask(&Ask::Close), Answer::Done);
    assert!(gone(pid) && gone(stage.watchdog));
}
