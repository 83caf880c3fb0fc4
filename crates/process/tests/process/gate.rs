//! What waits at the gate becomes the command when the watchdog opens it, and never otherwise.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;
use tenure_process::Exit;

use crate::elector::{Answer, Ask};
use crate::support::{
    Fixture, HEART, ended, eventually, freeze, gone, is_gated, lock_is_free, signal, state,
};

const LONG: u64 = 600_000;

#[test]
fn what_waits_at_the_gate_becomes_the_command() {
    let mut fixture = Fixture::new(1_000, 200);
    for token in ["7", "8"] {
        let waiting = fixture.prepare();
        assert_eq!(fixture.ask(&Ask::Prepare), Answer::Done);
        let (pid, _) = fixture.start(&format!("echo $$ {token} > \"$DIR/ran-{token}\"; exit {token}"), LONG);
        assert_eq!(pid, waiting);
        assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(token.parse().unwrap()), false, false));
        assert_eq!(fixture.written(&format!("ran-{token}")), format!("{pid} {token}\n"));
        assert!(gone(pid));
    }
}

#[test]
fn a_gate_stays_closed_while_a_command_runs_and_for_a_lease_that_is_all_but_over() {
    let mut fixture = Fixture::new(1_000, 200);
    let waiting = fixture.prepare();
    assert_eq!(fixture.ask(&fixture.script("echo ran > \"$DIR/ran\"", 500)), Answer::TooLate);
    assert!(is_gated(waiting));
    let (pid, _) = fixture.start(HEART, LONG);
    assert_eq!(pid, waiting);
    fixture.hearts(1);
    // No child must mean that nothing is left of the command.
    assert_eq!(fixture.ask(&Ask::Prepare), Answer::Done);
    assert_eq!(fixture.ask(&Ask::Kill), ended(Exit::Signal(9), false, true));
    assert!(!fixture.dir.path().join("ran").exists());
}

#[test]
fn a_gate_that_is_not_opened_leaves_nothing() {
    let mut fixture = Fixture::new(1_000, 200);
    let waiting = fixture.prepare();
    assert_eq!(fixture.ask(&Ask::Close), Answer::Done);
    assert!(gone(waiting) && gone(fixture.watchdog));
}

#[test]
fn a_killed_elector_leaves_nothing_at_the_gate() {
    let mut fixture = Fixture::new(1_000, 200);
    let (lock, waiting) = (fixture.lock(), fixture.prepare());
    fixture.kill_elector();
    eventually("nothing waits any more", || gone(waiting) && gone(fixture.watchdog));
    assert!(lock_is_free(&lock));
}

#[test]
fn a_killed_elector_leaves_nothing_at_the_gate_of_a_frozen_watchdog() {
    let mut fixture = Fixture::new(1_000, 200);
    let waiting = fixture.prepare();
    freeze(fixture.watchdog);
    fixture.kill_elector();
    eventually("nothing waits any more", || gone(waiting) && gone(fixture.watchdog));
}

#[test]
fn a_killed_watchdog_leaves_nothing_at_its_gate() {
    let mut fixture = Fixture::new(1_000, 200);
    let waiting = fixture.prepare();
    signal(fixture.watchdog, Signal::KILL);
    eventually("the elector has cleared up", || gone(waiting) && gone(fixture.watchdog));
    fixture.launch(1_000, 200);
    assert_ne!(fixture.prepare(), waiting);
}

/// Nothing but the kernel is left to end it.
#[test]
fn a_gate_closes_for_good_with_its_watchdog_even_if_the_elector_is_frozen() {
    let mut fixture = Fixture::new(1_000, 200);
    let waiting = fixture.prepare();
    freeze(fixture.elector_pid());
    signal(fixture.watchdog, Signal::KILL);
    eventually("nothing waits any more", || matches!(state(waiting), None | Some('Z')));
}

#[test]
fn what_was_killed_or_frozen_at_the_gate_holds_no_command_up() {
    let mut fixture = Fixture::new(1_000, 200);
    let waiting = fixture.prepare();
    freeze(waiting);
    let (pid, _) = fixture.start("exit 3", LONG);
    assert_eq!(pid, waiting, "it was told to go on");
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(3), false, false));
    let waiting = fixture.prepare();
    signal(waiting, Signal::KILL);
    let (pid, _) = fixture.start("exit 4", LONG);
    assert_ne!(pid, waiting);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(4), false, false));
    assert!(gone(waiting));
}

/// A process at a gate that the test itself holds.
fn at_the_gate() -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure-watchdog"));
    let child = command.arg0("lease-gate").stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).spawn();
    (child.unwrap(), ours)
}

/// The word that opens the gate for a command that leaves a trace.
fn opening(trace: &std::path::Path, start_by: u64) -> Vec<u8> {
    let text = |text: &str| serde_json::json!({ "Unix": text.as_bytes() });
    let start = serde_json::json!({
        "job": 1, "program": text("touch"), "args": [text(trace.to_str().unwrap())], "env": [], "cwd": null,
        "deadline": u64::MAX, "terminal_owner": null,
    });
    let body = serde_json::to_vec(&serde_json::json!({ "start": start, "start_by": start_by })).unwrap();
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}

fn send(socket: &UnixStream, bytes: &[u8]) {
    let stdin = std::fs::File::open("/dev/null").unwrap();
    let fds = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    assert_eq!(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()), Ok(bytes.len()));
}

#[test]
fn only_a_whole_word_in_time_opens_the_gate() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let word = opening(&trace, u64::MAX);
    for part in [0, 3, word.len() - 1] {
        let (mut child, mut socket) = at_the_gate();
        socket.write_all(&word[..part]).unwrap();
        drop(socket);
        assert_eq!(child.wait().unwrap().code(), Some(70));
    }
    let (mut child, mut socket) = at_the_gate();
    send(&socket, &opening(&trace, 1));
    assert_eq!(child.wait().unwrap().code(), Some(70));
    let mut said = Vec::new();
    socket.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("TooLate"), "{said:?}");
    assert!(!trace.exists(), "nothing was executed so far");
    let (mut child, socket) = at_the_gate();
    send(&socket, &word);
    assert!(child.wait().unwrap().success() && trace.exists());
}
