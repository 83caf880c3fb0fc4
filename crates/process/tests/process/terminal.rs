//! On a terminal the child's group is in front, and the elector's before and after.
//!
//! `script` (util-linux) makes the terminal: what is written to its standard input is typed.

use std::io::Write;
use std::process::{Command, Stdio};

use tenure_process::Exit;

use crate::elector::Ask;
use crate::support::{Fixture, actor, ended, eventually, stat};

struct Typist {
    fixture: Fixture,
    keys: std::process::ChildStdin,
    elector: i32,
}

impl Typist {
    fn new() -> Self {
        let mut command = Command::new("script");
        command
            .args(["-qec", "exec env --default-signal \"$ACTOR\" --exact actor --nocapture", "/dev/null"])
            .env("ACTOR", actor());
        command
            .env("TENURE_TEST_ACTOR", "elector")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut fixture = Fixture::run(1_000, 200, command);
        let keys = fixture.elector.stdin.take().unwrap();
        let elector = fixture.elector_pid();
        Self { fixture, keys, elector }
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// The group in front, as the kernel says.
    fn in_front(&self) -> String {
        stat(self.elector, 8).unwrap()
    }

    fn elector_is_in_front(&self) -> bool {
        Some(self.in_front()) == stat(self.elector, 5)
    }
}

#[test]
fn a_child_reads_from_the_terminal_and_gives_it_back() {
    let mut typist = Typist::new();
    assert!(typist.elector_is_in_front());
    for word in ["first", "second", "prepared", "again"] {
        if word == "prepared" {
            typist.fixture.prepare();
            assert!(typist.elector_is_in_front(), "what waits at a gate has no terminal");
        }
        let (pid, _) = typist.fixture.start("read -r line; echo \"$line\" > \"$DIR/$line\"", 600_000);
        eventually("the child is in front", || typist.in_front() == pid.to_string());
        typist.type_in(&format!("{word}\n"));
        assert_eq!(typist.fixture.written(word), format!("{word}\n"));
        assert_eq!(typist.fixture.ask(&Ask::Wait), ended(Exit::Code(0), false, false));
        assert!(typist.elector_is_in_front());
    }
}

#[test]
fn an_interrupt_from_the_keyboard_reaches_the_child_alone() {
    let mut typist = Typist::new();
    let script = "trap 'exit 6' INT; echo up > \"$DIR/up\"; while :; do sleep 0.01; done";
    typist.fixture.start(script, 600_000);
    typist.fixture.written("up");
    typist.type_in("\u{3}");
    assert_eq!(typist.fixture.ask(&Ask::Wait), ended(Exit::Code(6), false, false));
    assert!(typist.elector_is_in_front());
}

#[test]
fn the_terminal_comes_back_from_a_child_that_is_killed() {
    let mut typist = Typist::new();
    typist.fixture.start("exec sleep 1000", 600_000);
    assert!(!typist.elector_is_in_front());
    assert_eq!(typist.fixture.ask(&Ask::Kill), ended(Exit::Signal(9), false, true));
    assert!(typist.elector_is_in_front());
}
