//! `tenure demo`, for real: it ends well, and nothing of it is left behind, however it ends.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

fn demo(temporary: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("demo").args(args).env("TMPDIR", temporary).stdin(Stdio::null());
    command
}

fn lines(output: &Output) -> Vec<&str> {
    std::str::from_utf8(&output.stdout).unwrap().lines().collect()
}

fn lines_of(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

fn left_behind(temporary: &Path) -> usize {
    std::fs::read_dir(temporary).unwrap().count()
}

/// The process ids of the members, as the demo tells them, once all have joined.
fn members(said: &mut impl Iterator<Item = String>, count: usize) -> Vec<Pid> {
    let (mut pids, mut joined) = (Vec::new(), 0);
    while joined < count {
        let line = said.next().expect("the demo goes on");
        if let Some((_, pid)) = line.rsplit_once("starts as process ") {
            pids.push(Pid::from_raw(pid.parse().unwrap()).unwrap());
        }
        joined += usize::from(line.ends_with(" joins"));
    }
    pids
}

/// Waits until a process is gone; at once if it is.
fn wait_until_gone(pid: Pid) {
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let mut gone = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut gone, None).unwrap();
    }
}

#[test]
fn a_short_demo_shows_a_crash_and_a_hand_over_and_ends_well() {
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(temporary.path(), &["--seconds", "6", "--no-tty"]).output().unwrap();
    let lines = lines(&output);
    let all = lines.join("\n");
    assert!(output.status.success(), "{all}\n{}", String::from_utf8_lossy(&output.stderr));
    for text in ["is killed (SIGKILL)", "is asked to hand scheduler to", "leads scheduler with token 1"] {
        assert!(all.contains(text), "{text:?} is missing:\n{all}");
    }
    let [.., proof, witness] = lines.as_slice() else { panic!("{all}") };
    assert!(all.contains(" fail-over"), "{all}");
    assert_eq!(*proof, "leaders at once: never more than 1; tokens: strictly rising");
    assert!(witness.starts_with("(witness: "), "{all}");
    assert_eq!(left_behind(temporary.path()), 0);
}

#[test]
fn a_demo_that_is_told_to_end_ends_with_its_verdict() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child =
        demo(temporary.path(), &["--nodes", "2", "--no-tty"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = lines_of(&mut child);
    assert!(said.any(|line| line.contains("leads scheduler")));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(said.any(|line| line.starts_with("leaders at once: never more than 1")));
    assert!(child.wait().unwrap().success());
    assert_eq!(left_behind(temporary.path()), 0);
}

#[test]
fn members_die_with_a_demo_that_is_killed_even_if_they_are_frozen() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child =
        demo(temporary.path(), &["--nodes", "2", "--no-tty"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = lines_of(&mut child);
    let members = members(&mut said, 2);
    kill_process(members[0], Signal::STOP).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for member in members {
        wait_until_gone(member);
    }
}
