//! A standby's next command waits at a gate: it runs once its node is elected, and never otherwise.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure_torture::judge::WitnessVerdict;
use tenure_torture::witness;

use crate::faults::{NODES, World, is_gone, watchdog_of};
use crate::fleet::{Process, TestDir, wait_until};

/// What waits at the gate of a standby.
fn gated(standby: &Process) -> Pid {
    let watchdog = watchdog_of(standby);
    wait_until("a process at the gate", || {
        let children = std::fs::read_to_string(format!("/proc/{watchdog}/task/{watchdog}/children")).ok()?;
        let pid = Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "lease-gate").then_some(pid)
    })
}

fn command(dir: &TestDir, node: &str) -> Process {
    let mut run = dir.run(node, &["--ttl", "1s"]);
    let script = "echo $TENURE_NODE $TENURE_TOKEN ${#TENURE_SESSION} $$ >> log; exec sleep 1000";
    Process::spawn(run.args(["--", "sh", "-c", script]).current_dir(dir.path()))
}

#[test]
fn what_waits_at_the_gate_of_a_standby_is_its_command_after_the_election() {
    let dir = TestDir::new();
    let mut leader = command(&dir, "a");
    dir.wait_for("log", "a 1 32");
    let standby = command(&dir, "b");
    let waiting = gated(&standby);
    leader.signal(Signal::TERM);
    leader.wait();
    // The token, the session and everything else of the tenure came when the gate was opened.
    dir.wait_for("log", &format!("b 2 32 {waiting}\n"));
}

#[test]
fn a_standby_that_is_killed_or_frozen_runs_nothing_and_leaves_nothing() {
    let dir = TestDir::new();
    let _leader = command(&dir, "a");
    dir.wait_for("log", "a 1");
    for (name, harm) in [("b", Signal::KILL), ("c", Signal::STOP)] {
        let mut standby = command(&dir, name);
        let (watchdog, waiting) = (watchdog_of(&standby), gated(&standby));
        standby.signal(harm);
        if harm == Signal::STOP {
            // For longer than its lease: neither the watchdog nor what waits there does anything by itself.
            std::thread::sleep(Duration::from_millis(1_500));
            assert!(!is_gone(waiting) && !is_gone(watchdog));
            standby.signal(Signal::KILL);
        }
        standby.wait();
        wait_until("nothing to be left", || (is_gone(waiting) && is_gone(watchdog)).then_some(()));
    }
    // On a busy machine the leader may have lost its lease of a second, and lead again.
    let log = std::fs::read_to_string(dir.file("log")).unwrap();
    assert!(log.lines().all(|line| line.starts_with("a ")), "a command of a standby ran:\n{log}");
}

#[test]
fn a_standby_whose_gate_is_frozen_or_killed_leads_all_the_same() {
    for harm in [Signal::STOP, Signal::KILL] {
        let dir = TestDir::new();
        let mut leader = command(&dir, "a");
        dir.wait_for("log", "a 1");
        let standby = command(&dir, "b");
        kill_process(gated(&standby), harm).expect("it can be signalled");
        leader.signal(Signal::TERM);
        leader.wait();
        dir.wait_for("log", "b 2 32");
    }
}

fn storms() -> usize {
    if std::env::var_os("TENURE_LONG").is_some() { 100 } else { 12 }
}

/// Each transfer is asked for while the hand-over before it may still be under way.
#[test]
fn a_storm_of_transfers_never_runs_two_commands() {
    let world = World::new();
    let mut leader = world.next_leader(0);
    let mut moved = 0;
    for round in 0..storms() {
        let to = NODES[round % NODES.len()];
        let mut transfer = world.dir.tenure();
        transfer.args(["transfer", "job", "--to", to, "--why", "a storm"]);
        if !transfer.output().expect("tenure runs").status.success() || to == leader.node {
            continue;
        }
        let next = world.next_leader(leader.token);
        assert!(is_gone(leader.command), "the command of token {} outlived it", leader.token);
        (leader, moved) = (next, moved + 1);
    }
    drop(world.nodes);
    assert!(moved > 0, "no transfer succeeded");
    WitnessVerdict::of_beats(&witness::read(world.dir.path()).expect("the witness is whole")).assert_sound();
}
