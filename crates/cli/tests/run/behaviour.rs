//! Exit codes, environment, signals, restarts: what a script or an init system relies on.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::fleet::{Process, TestDir, wait_until};

fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().expect("tenure runs")
}

fn sh(dir: &TestDir, node: &str, args: &[&str], script: &str) -> Command {
    let mut command = dir.run(node, args);
    command.args(["--", "sh", "-c", script]).current_dir(dir.path());
    command
}

/// The same, started with HUP ignored, as by `nohup`, or with its default; otherwise it is inherited from what runs the tests.
fn sh_with_hangup(how: &str, dir: &TestDir, node: &str, script: &str) -> Process {
    let inner = sh(dir, node, &[], script);
    let mut outer = Command::new("env");
    outer.arg(format!("--{how}-signal=HUP")).arg(inner.get_program()).args(inner.get_args());
    Process::spawn(outer.current_dir(dir.path()))
}

#[test]
fn the_code_of_the_command_is_passed_through() {
    let dir = TestDir::new();
    for code in [0, 1, 3, 77] {
        let done = output(sh(&dir, "a", &[], &format!("exit {code}")));
        assert_eq!(done.status.code(), Some(code), "{done:?}");
    }
    let killed = output(sh(&dir, "a", &[], "kill -USR1 $$"));
    assert_eq!(killed.status.code(), Some(128 + 10));
}

#[test]
fn a_command_that_cannot_run_has_the_codes_of_a_shell() {
    let dir = TestDir::new();
    let mut missing = dir.run("a", &[]);
    missing.args(["--", "no-such-command-anywhere"]);
    let missing = output(missing);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-command-anywhere"));
    let mut plain = dir.run("a", &[]);
    plain.arg("--").arg(dir.path());
    assert_eq!(output(plain).status.code(), Some(126));
}

#[test]
fn the_command_gets_its_environment_and_its_standard_streams() {
    let dir = TestDir::new();
    let done = output(sh(
        &dir,
        "web-1",
        &[],
        r#"echo "$TENURE_ROLE $TENURE_NODE $TENURE_TOKEN ${#TENURE_SESSION}"; echo oops >&2"#,
    ));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "job web-1 1 32\n");
    assert!(String::from_utf8_lossy(&done.stderr).contains("oops"));
    let again = output(sh(&dir, "web-1", &[], "echo $TENURE_TOKEN"));
    assert_eq!(String::from_utf8_lossy(&again.stdout), "2\n", "every tenure has its own token");
}

/// The names of all variables of ours that a command of `tenure run` sees, where the elector has secrets in its own.
fn seen_by_the_command(dir: &TestDir, args: &[&str]) -> Vec<String> {
    let mut command = sh(dir, "a", args, "env; tr '\\0' '\\n' < /proc/$PPID/environ");
    for name in ["TENURE_STORE", "TENURE_AGENT_TOKEN", "TENURE_HTTP_TOKENS", "TENURE_ANYTHING"] {
        command.env(name, "hunter2");
    }
    command.env("HOME_MADE", "stays");
    let done = output(command);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.contains("HOME_MADE=stays"), "what is not ours is left alone: {done:?}");
    let ours = text.lines().filter_map(|line| line.split_once('=').map(|(name, _)| name));
    let mut ours: Vec<_> = ours.filter(|name| name.starts_with("TENURE_")).map(str::to_owned).collect();
    ours.sort();
    ours.dedup();
    ours
}

#[test]
fn a_command_and_its_watchdog_inherit_no_secret_unless_told() {
    let dir = TestDir::new();
    let documented = ["TENURE_NODE", "TENURE_ROLE", "TENURE_SESSION", "TENURE_TOKEN"];
    assert_eq!(seen_by_the_command(&dir, &[]), documented);
    let passed = seen_by_the_command(&dir, &["--pass-env", "TENURE_STORE", "--pass-env", "TENURE_ABSENT"]);
    assert_eq!(passed, ["TENURE_NODE", "TENURE_ROLE", "TENURE_SESSION", "TENURE_STORE", "TENURE_TOKEN"]);
}

#[test]
fn bad_input_gets_one_clear_line_and_code_2() {
    let dir = TestDir::new();
    for (args, words) in [
        (&["run", "--role", "no good", "--", "true"][..], "not a valid name"),
        (&["run", "--role", "x", "--ttl", "5", "--", "true"], "time unit"),
        (&["run", "--role", "x", "--ttl", "10ms", "--", "true"], "ttl = 10ms"),
        (&["run", "--role", "x"], "required"),
        (&["run", "--", "true"], "--role"),
    ] {
        let mut command = dir.tenure();
        command.args(args);
        let done = output(command);
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains(words), "{args:?}: {told:?} lacks {words:?}");
    }
}

#[test]
fn a_store_that_cannot_be_used_has_its_own_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["--store", "sqlite:/proc/no/such/place.db", "run", "--role", "x", "--", "true"]);
    let done = output(command);
    assert_eq!(done.status.code(), Some(122), "{done:?}");
}

#[test]
fn waiting_ends_with_its_own_code_and_says_who_leads() {
    let dir = TestDir::new();
    let _leader = Process::spawn(&mut sh(&dir, "a", &[], "touch leading; exec sleep 1000"));
    wait_until("the leader", || dir.file("leading").exists().then_some(()));
    let done = output(sh(&dir, "b", &["--wait", "300ms"], "true"));
    assert_eq!(done.status.code(), Some(120), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("its leader is a"), "{done:?}");
}

#[test]
fn term_lets_the_command_finish_and_hands_over() {
    let dir = TestDir::new();
    let script =
        "trap 'echo bye >> log; exit 5' TERM; echo $TENURE_TOKEN >> log; while :; do sleep 0.01; done";
    let mut first = Process::spawn(&mut sh(&dir, "a", &[], script));
    dir.wait_for("log", "1\n");
    let mut second = Process::spawn(&mut sh(&dir, "b", &[], script));
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(5), "the command's own code");
    assert_eq!(dir.wait_for("log", "2\n"), "1\nbye\n2\n");
    second.signal(Signal::INT);
    assert_eq!(second.wait().code(), Some(128 + 2), "INT is passed on as INT");
}

#[test]
fn a_second_term_kills_at_once() {
    let dir = TestDir::new();
    let script = "trap 'echo heard >> log' TERM; echo on >> log; while :; do sleep 0.01; done";
    let mut stubborn = Process::spawn(&mut sh(&dir, "a", &["--drain", "1h"], script));
    dir.wait_for("log", "on");
    stubborn.signal(Signal::TERM);
    dir.wait_for("log", "heard");
    assert!(stubborn.is_running());
    stubborn.signal(Signal::TERM);
    assert_eq!(stubborn.wait().code(), Some(128 + 9));
}

#[test]
fn a_command_that_ignores_term_is_killed_after_its_drain() {
    let dir = TestDir::new();
    let script = "trap '' TERM; echo on >> log; while :; do sleep 0.01; done";
    let mut stubborn = Process::spawn(&mut sh(&dir, "a", &["--drain", "200ms"], script));
    dir.wait_for("log", "on");
    stubborn.signal(Signal::TERM);
    assert_eq!(stubborn.wait().code(), Some(128 + 9));
}

#[test]
fn other_signals_are_forwarded() {
    let dir = TestDir::new();
    let script = "for s in HUP USR1 USR2 QUIT; do trap \"echo $s >> log\" $s; done; echo on >> log; \
                  while :; do sleep 0.01; done";
    let process = sh_with_hangup("default", &dir, "a", script);
    dir.wait_for("log", "on");
    for (signal, name) in
        [(Signal::HUP, "HUP"), (Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::QUIT, "QUIT")]
    {
        process.signal(signal);
        dir.wait_for("log", name);
    }
}

/// No command is there that could answer a terminal that is gone (HUP) or Ctrl-\ (QUIT).
#[test]
fn a_standby_ends_at_once_when_told() {
    let dir = TestDir::new();
    let _leader = Process::spawn(&mut sh(&dir, "a", &[], "echo on >> log; exec sleep 1000"));
    dir.wait_for("log", "on");
    for (name, signal) in [("b", Signal::TERM), ("c", Signal::HUP), ("d", Signal::QUIT)] {
        let mut standby = sh_with_hangup("default", &dir, name, "echo never >> log");
        takes_part(&dir, name);
        standby.signal(signal);
        let status = standby.wait();
        assert_eq!((status.code(), status.signal()), (Some(128 + signal.as_raw()), None));
    }
    assert!(!std::fs::read_to_string(dir.file("log")).unwrap().contains("never"));
}

#[test]
fn under_nohup_neither_a_standby_nor_a_command_ends_with_its_terminal() {
    let dir = TestDir::new();
    let mut leader =
        sh_with_hangup("ignore", &dir, "a", "echo on >> log; sleep 1000 & wait; echo never >> log");
    dir.wait_for("log", "on");
    let mut standby = sh_with_hangup("ignore", &dir, "b", "echo never >> log");
    takes_part(&dir, "b");
    for process in [&mut standby, &mut leader] {
        process.signal(Signal::HUP);
        process.signal(Signal::TERM);
        assert_eq!(process.wait().code(), Some(128 + 15));
    }
    assert!(!std::fs::read_to_string(dir.file("log")).unwrap().contains("never"));
}

fn takes_part(dir: &TestDir, node: &str) {
    wait_until("the standby to take part", || {
        let mut nodes = dir.tenure();
        nodes.args(["nodes", "--format", "json"]);
        String::from_utf8_lossy(&output(nodes).stdout).contains(&format!("\"{node}\"")).then_some(())
    });
}

#[test]
fn restart_policies() {
    let dir = TestDir::new();
    let args = ["--cool-down", "10ms", "--restart"];
    let counting = "echo run >> runs; [ $(wc -l < runs) -lt 3 ]";
    // Fails the third time; `always` goes on, so that only a signal ends it.
    let done = output(sh(
        &dir,
        "a",
        &[&args[..], &["on-failure"]].concat(),
        "echo run >> runs; [ $(wc -l < runs) -ge 3 ]",
    ));
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(dir.file("runs")).unwrap().lines().count(), 3);
    std::fs::remove_file(dir.file("runs")).unwrap();
    let mut always = Process::spawn(&mut sh(&dir, "a", &[&args[..], &["always"]].concat(), counting));
    dir.wait_for("runs", "run\nrun\nrun\nrun\n");
    always.signal(Signal::TERM);
    always.wait();
}

#[test]
fn an_operator_moves_the_leader_and_once_means_once() {
    let dir = TestDir::new();
    let script = "echo $TENURE_NODE >> log; exec sleep 1000";
    let mut first = Process::spawn(&mut sh(&dir, "a", &["--once", "--ttl", "1s"], script));
    dir.wait_for("log", "a\n");
    let _second = Process::spawn(&mut sh(&dir, "b", &["--ttl", "1s"], script));
    wait_until("the transfer", || {
        let mut transfer = dir.tenure();
        transfer.args(["transfer", "job", "--to", "b", "--why", "a test"]);
        output(transfer).status.success().then_some(())
    });
    assert_eq!(dir.wait_for("log", "b\n"), "a\nb\n");
    assert_eq!(first.wait().code(), Some(121));
}

#[test]
fn a_second_process_of_one_name_says_so_and_never_leads() {
    let dir = TestDir::new();
    let mut first = dir.worker("same", &["--ttl", "1s"]);
    wait_until("the first to lead", || {
        (!tenure_torture::witness::read(dir.path()).ok()?.is_empty()).then_some(())
    });
    let log = dir.file("second.log");
    let mut command = dir.run("same", &["--ttl", "1s"]);
    command.args(["--", "sh", "-c", "echo led > second-led; sleep 1000"]).current_dir(dir.path());
    command.stderr(std::fs::File::create(&log).unwrap());
    let _second = Process::spawn(&mut command);
    dir.wait_for("second.log", "another live process has this node's name");
    assert!(!dir.file("second-led").exists());
    first.signal(Signal::TERM);
    first.wait();
    wait_until("the second to lead", || dir.file("second-led").exists().then_some(()));
}

#[test]
fn quiet_means_quiet_and_the_store_must_be_reachable_by_others() {
    let dir = TestDir::new();
    let mut quiet = sh(&dir, "a", &["--quiet"], "true");
    quiet.env_remove("TENURE_LOG");
    let done = output(quiet);
    assert_eq!((done.status.code(), done.stderr.as_slice()), (Some(0), &b""[..]), "{done:?}");
    let mut alone = Command::new(env!("CARGO_BIN_EXE_tenure"));
    alone.args(["--store", "memory:x", "run", "--role", "x", "--", "true"]);
    let done = output(alone);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("every node would lead"), "{done:?}");
}

#[test]
fn tenure_log_sets_the_level_and_rust_log_does_not() {
    let logged = |level: Option<&str>, rust_log: &str| {
        let dir = TestDir::new();
        let mut command = sh(&dir, "a", &[], "true");
        command.env_remove("TENURE_LOG").env("RUST_LOG", rust_log);
        if let Some(level) = level {
            command.env("TENURE_LOG", level);
        }
        String::from_utf8(output(command).stderr).unwrap()
    };
    let by_default = logged(None, "error");
    assert!(by_default.contains("INFO elected") && !by_default.contains("DEBUG"), "{by_default}");
    assert!(!logged(Some("warn"), "debug").contains("INFO"));
    assert!(logged(Some("debug"), "error").contains("DEBUG"));
    let parts = logged(Some("tenure=info,warn"), "error");
    assert!(parts.contains("INFO elected"), "{parts}");
}

#[test]
fn one_tenure_run_within_another_is_a_node_of_its_own() {
    let dir = TestDir::new();
    let inner = format!(
        "{} --store sqlite:{} run --role inner --wait 30s -- echo inside",
        env!("CARGO_BIN_EXE_tenure"),
        dir.file("tenure.db").display()
    );
    let done = output(sh(&dir, "outer", &[], &inner));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "inside\n", "{done:?}");
}

#[test]
fn history_says_that_a_leader_was_stopped() {
    let dir = TestDir::new();
    let mut leader = Process::spawn(&mut sh(&dir, "a", &[], "echo on >> log; exec sleep 1000"));
    dir.wait_for("log", "on");
    leader.signal(Signal::TERM);
    leader.wait();
    let mut history = dir.tenure();
    history.args(["history", "--format", "json"]);
    let told = String::from_utf8_lossy(&output(history).stdout).into_owned();
    assert!(told.contains("\"reason\":\"shutdown\""), "{told}");
}
