//! Three `tenure run` processes on one role are killed, frozen and restarted; never do two of their commands run.
//!
//! The witness is the command itself: it writes its token and the host's clock every two milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tenure_torture::judge::WitnessVerdict;
use tenure_torture::witness;

use crate::fleet::{Process, TestDir, wait_until};

pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];
const TIMES: &[&str] = &["--ttl", "1s"];

/// Every round does one kind of harm to the leader. The full count is for `./test --long`.
fn rounds() -> usize {
    if std::env::var_os("TENURE_LONG").is_some() { 200 } else { 24 }
}

pub(crate) struct World {
    pub(crate) dir: TestDir,
    pub(crate) nodes: BTreeMap<&'static str, Process>,
    times: &'static [&'static str],
}

/// A command that is running: who leads.
#[derive(Debug, Clone)]
pub(crate) struct Leader {
    pub(crate) node: &'static str,
    pub(crate) token: u64,
    pub(crate) command: Pid,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::on(TestDir::new(), TIMES)
    }

    pub(crate) fn on(dir: TestDir, times: &'static [&'static str]) -> Self {
        let mut world = Self { dir, nodes: BTreeMap::new(), times };
        for node in NODES {
            world.start(node);
        }
        world
    }

    pub(crate) fn start(&mut self, node: &'static str) {
        let process = self.dir.worker(node, self.times);
        self.nodes.insert(node, process);
    }

    /// Waits for a command with a later token than this.
    pub(crate) fn next_leader(&self, after: u64) -> Leader {
        let files = || std::fs::read_dir(self.dir.path()).expect("the directory is there");
        wait_until(&format!("a command with a token after {after}"), || {
            let newest = files()
                .filter_map(|entry| tenure_of_file(&entry.ok()?.file_name().into_string().ok()?))
                .max();
            let (token, pid) = newest.filter(|(token, _)| *token > after)?;
            let beats = witness::read(self.dir.path()).expect("the witness is whole");
            let beat = beats.iter().find(|beat| beat.token == token)?;
            let node = NODES.into_iter().find(|node| *node == beat.node).expect("one of ours");
            Some(Leader { node, token, command: Pid::from_raw(pid).expect("a pid") })
        })
    }

    /// Does one kind of harm to the leader, waits for the next one, and brings the first back as a standby.
    pub(crate) fn harm_leader(&mut self, leader: &Leader, round: usize) -> Leader {
        let mut victim = self.nodes.remove(leader.node).expect("the leader is one of ours");
        let frozen = match round % 4 {
            // Killed: on one host the kernel tells, and the next command runs at once.
            0 | 2 => {
                victim.signal(Signal::KILL);
                None
            }
            // Frozen for longer than its lease; thawed when another leads.
            1 => {
                victim.signal(Signal::STOP);
                Some(victim)
            }
            // Stopped as a deployment stops it.
            _ => {
                victim.signal(Signal::TERM);
                assert_eq!(victim.wait().code(), Some(128 + 15));
                None
            }
        };
        let next = self.next_leader(leader.token);
        assert!(is_gone(leader.command), "round {round}: the command of token {} outlived it", leader.token);
        match frozen {
            // It finds its session over, and stands again.
            Some(process) => {
                process.signal(Signal::CONT);
                self.nodes.insert(leader.node, process);
            }
            None => self.start(leader.node),
        }
        next
    }
}

/// `job-TOKEN-PID.beats`
fn tenure_of_file(file: &str) -> Option<(u64, i32)> {
    let mut parts = file.strip_suffix(".beats")?.split('-').skip(1);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub(crate) fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err()
}

#[test]
fn never_two_commands_whatever_happens_to_tenure() {
    let mut world = World::new();
    let mut leader = world.next_leader(0);
    let mut fail_overs = Vec::new();
    for round in 0..rounds() {
        let before = witness::now();
        let next = world.harm_leader(&leader, round);
        fail_overs.push((round % 4, next.token, before));
        leader = next;
    }
    drop(world.nodes);
    let verdict = WitnessVerdict::of_beats(&witness::read(world.dir.path()).expect("the witness is whole"));
    verdict.assert_sound();
    assert!(verdict.tenures.len() > rounds(), "every round had its own tenure");
    report(&verdict, &fail_overs);
}

/// Figures for people; nothing depends on them: from the harm to the first beat of the next command.
fn report(verdict: &WitnessVerdict, harms: &[(usize, u64, u64)]) {
    let began = |token: u64| {
        verdict
            .tenures
            .iter()
            .find(|tenure| tenure.token == token)
            .and_then(|tenure| tenure.led)
            .map(|(from, _)| from)
    };
    for (kinds, name) in [(&[0, 2][..], "kill -9"), (&[1], "freeze"), (&[3], "TERM")] {
        let of_kind = harms.iter().filter(|(kind, ..)| kinds.contains(kind));
        let took = of_kind.filter_map(|(_, token, at)| Some(began(*token)?.saturating_sub(*at) / 1000));
        let mut took: Vec<u64> = took.collect();
        took.sort_unstable();
        let Some(worst) = took.last() else { continue };
        let (count, median) = (took.len(), took[took.len() / 2]);
        println!("{name:8} × {count}: next command after {median} µs (median), {worst} µs (worst)");
    }
}

#[test]
fn a_frozen_tenure_has_no_living_command_when_the_next_one_starts() {
    let world = World::new();
    let leader = world.next_leader(0);
    let victim = &world.nodes[leader.node];
    victim.signal(Signal::STOP);
    world.next_leader(leader.token);
    assert!(is_gone(leader.command));
    // Thawed, it must not bring its command back.
    victim.signal(Signal::CONT);
    std::thread::sleep(Duration::from_millis(200));
    drop(world.nodes);
    WitnessVerdict::of_beats(&witness::read(world.dir.path()).expect("the witness is whole")).assert_sound();
}

#[test]
fn a_lost_watchdog_takes_the_command_with_it_and_the_node_campaigns_again() {
    let mut world = World::new();
    let leader = world.next_leader(0);
    let watchdog = parent_of(leader.command);
    kill_process(watchdog, Signal::KILL).expect("the watchdog can be killed");
    let next = world.next_leader(leader.token);
    assert!(is_gone(leader.command) && is_gone(watchdog));
    // Alone, it is elected again, under a watchdog of its own.
    world.nodes.retain(|node, _| *node == leader.node);
    let again = world.next_leader(if next.node == leader.node { next.token - 1 } else { next.token });
    assert_eq!(again.node, leader.node);
    assert!(world.nodes.get_mut(leader.node).expect("one of ours").is_running());
    drop(world.nodes);
    WitnessVerdict::of_beats(&witness::read(world.dir.path()).expect("the witness is whole")).assert_sound();
}

/// The watchdog of a standby has nothing to do, so that nothing misses it before the election.
#[test]
fn a_standby_whose_watchdog_is_killed_or_frozen_leads_all_the_same() {
    for harm in [Signal::KILL, Signal::STOP] {
        let mut world = World::on(TestDir::new(), TIMES);
        let leader = world.next_leader(0);
        world.nodes.retain(|node, _| *node == leader.node || *node == standby_of(&leader));
        let standby = standby_of(&leader);
        let watchdog = watchdog_of(&world.nodes[standby]);
        kill_process(watchdog, harm).expect("the watchdog can be signalled");
        drop(world.nodes.remove(leader.node));
        let next = world.next_leader(leader.token);
        assert_eq!(next.node, standby, "after {harm:?}");
        assert_ne!(parent_of(next.command), watchdog);
        assert!(world.nodes.get_mut(standby).expect("one of ours").is_running());
    }
}

/// A watchdog that is killed before it is ready is replaced.
#[test]
fn a_watchdog_that_is_killed_while_it_starts_ends_nothing() {
    for _ in 0..5 {
        let dir = TestDir::new();
        let mut run = dir.run("a", &[]);
        run.args(["--", "sh", "-c", "echo on >> log; exec sleep 1000"]).current_dir(dir.path());
        let mut process = Process::spawn(&mut run);
        kill_process(watchdog_of(&process), Signal::KILL).expect("the watchdog can be signalled");
        dir.wait_for("log", "on");
        assert!(process.is_running());
    }
}

fn standby_of(leader: &Leader) -> &'static str {
    NODES.into_iter().find(|node| *node != leader.node).expect("three are more than one")
}

/// The one child that a standby has.
pub(crate) fn watchdog_of(process: &Process) -> Pid {
    let pid = process.pid();
    wait_until("the watchdog", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let children =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
        let first = children.flat_map(|text| text.split_whitespace().next().map(str::to_owned)).next()?;
        Pid::from_raw(first.parse().ok()?)
    })
}

fn parent_of(pid: Pid) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line =
        status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("every process has a parent");
    Pid::from_raw(line.trim().parse().expect("a pid")).expect("a parent")
}
