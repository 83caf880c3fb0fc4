//! Job control: `tenure run` in an interactive shell, on a terminal of its own.
//!
//! `script` (util-linux) makes the terminal: what is written to its standard input is typed.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::fleet::{Process, TestDir, wait_until};

/// Longer than anything here takes, so that no lease runs out by accident.
const LONG: &[&str] = &["--ttl", "60s"];

struct Terminal {
    dir: TestDir,
    script: Child,
}

impl Terminal {
    fn new(inside: &str) -> Self {
        Self::behind(&[], inside)
    }

    /// The terminal is made behind this command.
    fn behind(prefix: &[&str], inside: &str) -> Self {
        let dir = TestDir::new();
        let words = [prefix, &["script", "-qefc", inside, "screen"]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(dir.path()).env("SHELL", "/bin/sh");
        command.env("PS1", "$ ").env("TENURE_LOG", "info").env("TENURE", env!("CARGO_BIN_EXE_tenure"));
        command.env("TENURE_STORE", format!("sqlite:{}", dir.file("tenure.db").display()));
        let script = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("script runs");
        Self { dir, script }
    }

    fn shell() -> Self {
        Self::new("exec env --default-signal bash --norc --noprofile -i")
    }

    fn type_in(&mut self, keys: &str) {
        let typed = self.script.stdin.as_mut().expect("it is piped");
        typed.write_all(keys.as_bytes()).expect("the terminal is there");
        typed.flush().expect("the terminal is there");
    }

    /// `tenure run` with a command that writes a line to `log` for each line typed.
    fn run(&mut self, args: &[&str]) {
        let args = args.join(" ");
        let work = "echo up >> log; while read -r line; do echo \"$line\" >> log; done";
        self.type_in(&format!("\"$TENURE\" run --role job --node a {args} -- sh -c '{work}'\n"));
        self.dir.wait_for("log", "up\n");
        // It reads: the terminal is its own.
        self.type_in("ready\n");
        self.dir.wait_for("log", "ready\n");
    }

    /// The shell answers: the terminal is its own.
    fn shell_answers(&mut self, to: &str) {
        self.type_in(&format!("echo {to} >> shell\n"));
        self.dir.wait_for("shell", to);
    }

    fn says(&self, words: &str, times: usize) {
        wait_until(&format!("{words:?} on the screen"), || {
            let screen = std::fs::read(self.dir.file("screen")).ok()?;
            (String::from_utf8_lossy(&screen).matches(words).count() >= times).then_some(())
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let screen = std::fs::read(self.dir.file("screen")).unwrap_or_default();
            println!("on the screen:\n{}", String::from_utf8_lossy(&screen));
            let processes = Command::new("ps").args(["-eo", "pid,ppid,pgid,sid,tpgid,stat,args"]).output();
            println!("{}", String::from_utf8_lossy(&processes.map(|ps| ps.stdout).unwrap_or_default()));
        }
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_gives_it_back() {
    let mut terminal = Terminal::shell();
    terminal.run(LONG);
    for (times, round) in [(1, "one"), (2, "two")] {
        terminal.type_in("\u{1a}");
        terminal.says("Stopped", times);
        terminal.shell_answers(round);
        terminal.type_in("fg\n");
        terminal.type_in(&format!("{round}\n"));
        terminal.dir.wait_for("log", &format!("{round}\n"));
    }
    terminal.type_in("\u{4}");
    terminal.shell_answers("after");
    assert_eq!(std::fs::read_to_string(terminal.dir.file("log")).unwrap(), "up\nready\none\ntwo\n");
}

/// The command has the terminal, and Ctrl-C reaches it alone: it did not fail, a person ended it.
#[test]
fn ctrl_c_is_a_stop_and_no_failure_of_the_work() {
    let mut terminal = Terminal::shell();
    terminal.run(LONG);
    terminal.type_in("\u{3}");
    terminal.says("session over", 1);
    // The history is written after the fact.
    wait_until("the end of the tenure is on record", || {
        let mut history = terminal.dir.tenure();
        let told = history.args(["history", "--format", "json"]).output().expect("it runs").stdout;
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(!told.contains("work-failed"), "{told}");
        told.contains("\"reason\":\"shutdown\"").then_some(())
    });
}

/// No node leads with a stopped program for longer than a lease: its command ends, and the next node takes over.
#[test]
fn a_leader_that_stays_stopped_loses_its_role_and_campaigns_again_in_the_foreground() {
    let mut terminal = Terminal::shell();
    terminal.run(&["--ttl", "1s"]);
    terminal.type_in("\u{1a}");
    terminal.says("Stopped", 1);
    let mut other = terminal.dir.run("b", &["--ttl", "1s"]);
    other.args(["--", "sh", "-c", "echo b >> other; sleep 1000"]).current_dir(terminal.dir.path());
    let other = Process::spawn(&mut other);
    terminal.dir.wait_for("other", "b");
    drop(other);
    terminal.type_in("fg\n");
    terminal.dir.wait_for("log", "up\nready\nup\n");
    terminal.type_in("again\n");
    terminal.dir.wait_for("log", "again\n");
}

/// Without a shell nothing could continue what Ctrl-Z stopped: as for any other program, nothing happens.
#[test]
fn without_a_shell_ctrl_z_does_nothing() {
    ctrl_z_does_nothing(&[]);
}

/// As in a container: the session that started it has no number there.
#[test]
fn in_a_pid_namespace_without_a_shell_ctrl_z_does_nothing() {
    let root: &[&str] =
        if rustix::process::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
    ctrl_z_does_nothing(&[&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], root].concat());
}

fn ctrl_z_does_nothing(prefix: &[&str]) {
    let work = "echo up >> log; while read -r line; do echo \"$line\" >> log; done";
    let run = format!("exec env --default-signal \"$TENURE\" run --role job --ttl 60s -- sh -c '{work}'");
    let mut terminal = Terminal::behind(prefix, &run);
    terminal.dir.wait_for("log", "up\n");
    terminal.type_in("\u{1a}");
    terminal.says("^Z", 1);
    terminal.type_in("still here\n");
    terminal.dir.wait_for("log", "still here\n");
}

/// In the background it gets no input: it is stopped with its command, and the shell says so.
#[test]
fn in_the_background_it_stops_when_its_command_reads() {
    let mut terminal = Terminal::shell();
    terminal.run(LONG);
    terminal.type_in("\u{1a}");
    terminal.says("Stopped", 1);
    terminal.type_in("bg\n");
    wait_until("the job to be stopped again", || {
        terminal.type_in("jobs -s > stopped\n");
        std::fs::read_to_string(terminal.dir.file("stopped")).ok().filter(|text| text.contains("--role job"))
    });
    terminal.type_in("fg\nback\n");
    terminal.dir.wait_for("log", "back\n");
}

/// A terminal that goes away takes the command with it, also a stopped one: nothing could continue it.
#[test]
fn a_terminal_that_goes_away_ends_a_stopped_leader() {
    let mut terminal = Terminal::shell();
    terminal.run(LONG);
    terminal.type_in("\u{1a}");
    terminal.says("Stopped", 1);
    let mut other = terminal.dir.run("b", LONG);
    other.args(["--", "sh", "-c", "echo b >> other"]).current_dir(terminal.dir.path());
    let mut other = Process::spawn(&mut other);
    terminal.script.kill().expect("it runs");
    terminal.dir.wait_for("other", "b");
    assert!(other.wait().success());
}

/// The command hears of it, and is told to end after that: it may take the one for "read your settings again".
#[test]
fn a_terminal_that_goes_away_ends_a_command_that_ignores_that() {
    let work = "trap \"echo hup >> log\" HUP; trap \"echo term >> log; exit\" TERM; echo up >> log; while :; do sleep 0.01; done";
    let run = format!("exec env --default-signal \"$TENURE\" run --role job --ttl 60s -- sh -c '{work}'");
    let mut terminal = Terminal::new(&run);
    terminal.dir.wait_for("log", "up\n");
    terminal.script.kill().expect("it runs");
    assert!(terminal.dir.wait_for("log", "term\n").contains("hup\n"));
}
