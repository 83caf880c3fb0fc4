//! `tenure demo`, for real: it ends well, and nothing of it is left behind, however it ends.

use std::io::{BufRead, BufReader, Write as _};
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
fn a_short_demo_ends_well_and_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(temporary.path(), &["--seconds", "6", "--no-tty"]).output().unwrap();
    let lines = lines(&output);
    let all = lines.join("\n");
    assert!(output.status.success(), "{all}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(all.contains("leads scheduler with token 1"), "{all}");
    assert!(all.contains(" elections of all roles, ") && all.contains(" of scheduler"), "{all}");
    assert!(lines.contains(&"leaders at once: never more than 1; tokens: strictly rising"), "{all}");
    assert!(all.contains("\n(witnessed at ") && all.contains("\nTry next:\n"), "{all}");
    assert_eq!(left_behind(temporary.path()), 0);
}

/// The proof is worth something only if it can fail: here a node claims to have led all the time.
#[test]
fn a_second_leader_would_be_told_with_the_evidence() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = demo(temporary.path(), &["--nodes", "2", "--forever"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = lines_of(&mut child);
    let members = members(&mut said, 2);
    assert!(said.any(|line| line.contains(": scheduler")));
    let stage = std::fs::read_dir(temporary.path()).unwrap().next().unwrap().unwrap().path();
    let file = stage.join(format!("node-1-{}.notes", members[0].as_raw_pid()));
    let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    let act = r#""what":"act","role":"scheduler","token":99,"leads":true,"until":0"#;
    let note = |t: u64| format!(r#"{{"t":{t},"node":"node-1","pid":1,{act}}}"#);
    file.write_all(format!("{}\n{}\n", note(1), note(u64::MAX)).as_bytes()).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(said.any(|line| line.starts_with("leaders at once: 2, A VIOLATION")));
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("two led at once (scheduler, ") && why.contains("under token 99"), "{why}");
}

/// Waits for what the fault script does and what comes of it, however long that takes here.
#[test]
fn leaders_crash_hand_over_and_freeze_and_others_lead() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child =
        demo(temporary.path(), &["--seconds", "600", "--no-tty"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = lines_of(&mut child);
    for text in [" after the crash of ", " stopped working", " was frozen", "sees that its session is over"] {
        assert!(said.any(|line| line.contains(text)), "{text:?} never came");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(said.any(|line| line == "leaders at once: never more than 1; tokens: strictly rising"));
    assert!(child.wait().unwrap().success());
    assert_eq!(left_behind(temporary.path()), 0);
}

/// Where there is no terminal, no home, no writable directory but the temporary one, and another demo: it ends by itself.
#[test]
fn without_a_terminal_two_tours_end_by_themselves_with_nothing_but_a_temporary_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let tour = || {
        let mut command = demo(temporary.path(), &[]);
        command.env_clear().env("TMPDIR", temporary.path()).current_dir("/proc");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in [tour(), tour()] {
        let output = child.wait_with_output().unwrap();
        let all = lines(&output).join("\n");
        assert!(output.status.success(), "{all}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(all.contains("leaders at once: never more than 1") && all.contains("Try next:"), "{all}");
    }
    assert_eq!(left_behind(temporary.path()), 0);
}

/// However early it comes.
#[test]
fn signals_end_it_well_and_leave_nothing_behind() {
    for (signal, until) in
        [(Signal::INT, " starts as process "), (Signal::TERM, "leads scheduler"), (Signal::HUP, " joins")]
    {
        let temporary = tempfile::tempdir().unwrap();
        let mut child =
            demo(temporary.path(), &["--forever", "--no-tty"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = lines_of(&mut child);
        let mut started = Vec::new();
        for line in said.by_ref() {
            started
                .extend(line.rsplit_once("starts as process ").map(|(_, pid)| pid.parse::<i32>().unwrap()));
            if line.contains(until) {
                break;
            }
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        started.extend(said.filter_map(|line| line.rsplit_once("starts as process ")?.1.parse::<i32>().ok()));
        assert!(child.wait().unwrap().success(), "{signal:?}");
        assert_eq!(left_behind(temporary.path()), 0, "{signal:?}");
        for pid in started {
            wait_until_gone(Pid::from_raw(pid).unwrap());
        }
    }
}

#[test]
fn members_die_with_a_demo_that_is_killed_even_if_they_are_frozen() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child =
        demo(temporary.path(), &["--nodes", "2", "--forever"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = lines_of(&mut child);
    let members = members(&mut said, 2);
    kill_process(members[0], Signal::STOP).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for member in members {
        wait_until_gone(member);
    }
}
