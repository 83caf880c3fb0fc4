//! Exit codes, environment, signals, restarts: what a script or an init system relies on.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::fleet::{Place, Process, wait_until};

fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().expect("tenure runs")
}

fn sh(place: &Place, node: &str, args: &[&str], script: &str) -> Command {
    let mut command = place.run(node, args);
    command.args(["--", "sh", "-c", script]).current_dir(place.path());
    command
}

#[test]
fn the_code_of_the_command_is_passed_through() {
    let place = Place::new();
    for code in [0, 1, 3, 77] {
        let done = output(sh(&place, "a", &[], &format!("exit {code}")));
        assert_eq!(done.status.code(), Some(code), "{done:?}");
    }
    let killed = output(sh(&place, "a", &[], "kill -USR1 $$"));
    assert_eq!(killed.status.code(), Some(128 + 10));
}

#[test]
fn a_command_that_cannot_run_has_the_codes_of_a_shell() {
    let place = Place::new();
    let mut missing = place.run("a", &[]);
    missing.args(["--", "no-such-command-anywhere"]);
    let missing = output(missing);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-command-anywhere"));
    let mut plain = place.run("a", &[]);
    plain.arg("--").arg(place.path());
    assert_eq!(output(plain).status.code(), Some(126));
}

#[test]
fn the_command_gets_its_environment_and_its_standard_streams() {
    let place = Place::new();
    let done = output(sh(
        &place,
        "web-1",
        &[],
        r#"echo "$TENURE_ROLE $TENURE_NODE $TENURE_TOKEN ${#TENURE_SESSION}"; echo oops >&2"#,
    ));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "job web-1 1 32\n");
    assert!(String::from_utf8_lossy(&done.stderr).contains("oops"));
    let again = output(sh(&place, "web-1", &[], "echo $TENURE_TOKEN"));
    assert_eq!(String::from_utf8_lossy(&again.stdout), "2\n", "every tenure has its own token");
}

#[test]
fn bad_input_gets_one_clear_line_and_code_2() {
    let place = Place::new();
    for (args, words) in [
        (&["run", "--role", "no good", "--", "true"][..], "not a valid name"),
        (&["run", "--role", "x", "--ttl", "5", "--", "true"], "time unit"),
        (&["run", "--role", "x", "--ttl", "10ms", "--", "true"], "ttl = 10ms"),
        (&["run", "--role", "x"], "required"),
        (&["run", "--", "true"], "--role"),
    ] {
        let mut command = place.tenure();
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
    let place = Place::new();
    let _leader = Process::spawn(&mut sh(&place, "a", &[], "touch leading; exec sleep 1000"));
    wait_until("the leader", || place.file("leading").exists().then_some(()));
    let done = output(sh(&place, "b", &["--wait", "300ms"], "true"));
    assert_eq!(done.status.code(), Some(120), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("a leads it"), "{done:?}");
}

#[test]
fn term_lets_the_command_finish_and_hands_over() {
    let place = Place::new();
    let script =
        "trap 'echo bye >> log; exit 5' TERM; echo $TENURE_TOKEN >> log; while :; do sleep 0.01; done";
    let mut first = Process::spawn(&mut sh(&place, "a", &[], script));
    place.wait_for("log", "1\n");
    let mut second = Process::spawn(&mut sh(&place, "b", &[], script));
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(5), "the command's own code");
    assert_eq!(place.wait_for("log", "2\n"), "1\nbye\n2\n");
    second.signal(Signal::INT);
    assert_eq!(second.wait().code(), Some(128 + 2), "INT is passed on as INT");
}

#[test]
fn a_second_term_kills_at_once() {
    let place = Place::new();
    let script = "trap 'echo heard >> log' TERM; echo on >> log; while :; do sleep 0.01; done";
    let mut stubborn = Process::spawn(&mut sh(&place, "a", &["--drain", "1h"], script));
    place.wait_for("log", "on");
    stubborn.signal(Signal::TERM);
    place.wait_for("log", "heard");
    assert!(stubborn.is_running());
    stubborn.signal(Signal::TERM);
    assert_eq!(stubborn.wait().code(), Some(128 + 9));
}

#[test]
fn a_command_that_ignores_term_is_killed_after_its_drain() {
    let place = Place::new();
    let script = "trap '' TERM; echo on >> log; while :; do sleep 0.01; done";
    let mut stubborn = Process::spawn(&mut sh(&place, "a", &["--drain", "200ms"], script));
    place.wait_for("log", "on");
    stubborn.signal(Signal::TERM);
    assert_eq!(stubborn.wait().code(), Some(128 + 9));
}

#[test]
fn other_signals_are_forwarded() {
    let place = Place::new();
    let script = "for s in HUP USR1 USR2 QUIT; do trap \"echo $s >> log\" $s; done; echo on >> log; \
                  while :; do sleep 0.01; done";
    let process = Process::spawn(&mut sh(&place, "a", &[], script));
    place.wait_for("log", "on");
    for (signal, name) in
        [(Signal::HUP, "HUP"), (Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::QUIT, "QUIT")]
    {
        process.signal(signal);
        place.wait_for("log", name);
    }
}

#[test]
fn a_standby_ends_at_once_when_told() {
    let place = Place::new();
    let _leader = Process::spawn(&mut sh(&place, "a", &[], "echo on >> log; exec sleep 1000"));
    place.wait_for("log", "on");
    let mut standby = Process::spawn(&mut sh(&place, "b", &[], "echo never >> log"));
    wait_until("the standby to take part", || {
        let mut nodes = place.tenure();
        nodes.args(["nodes", "--format", "json"]);
        String::from_utf8_lossy(&output(nodes).stdout).contains("\"b\"").then_some(())
    });
    standby.signal(Signal::TERM);
    let status = standby.wait();
    assert_eq!((status.code(), status.signal()), (Some(128 + 15), None));
    assert!(!std::fs::read_to_string(place.file("log")).unwrap().contains("never"));
}

#[test]
fn restart_policies() {
    let place = Place::new();
    let args = ["--cool-down", "10ms", "--restart"];
    let counting = "echo run >> runs; [ $(wc -l < runs) -lt 3 ]";
    // Fails the third time; `always` goes on, so that only a signal ends it.
    let done = output(sh(
        &place,
        "a",
        &[&args[..], &["on-failure"]].concat(),
        "echo run >> runs; [ $(wc -l < runs) -ge 3 ]",
    ));
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(place.file("runs")).unwrap().lines().count(), 3);
    std::fs::remove_file(place.file("runs")).unwrap();
    let mut always = Process::spawn(&mut sh(&place, "a", &[&args[..], &["always"]].concat(), counting));
    place.wait_for("runs", "run\nrun\nrun\nrun\n");
    always.signal(Signal::TERM);
    always.wait();
}

#[test]
fn an_operator_moves_the_leader_and_once_means_once() {
    let place = Place::new();
    let script = "echo $TENURE_NODE >> log; exec sleep 1000";
    let mut first = Process::spawn(&mut sh(&place, "a", &["--once", "--ttl", "1s"], script));
    place.wait_for("log", "a\n");
    let _second = Process::spawn(&mut sh(&place, "b", &["--ttl", "1s"], script));
    wait_until("the transfer", || {
        let mut transfer = place.tenure();
        transfer.args(["transfer", "job", "--to", "b", "--why", "a test"]);
        output(transfer).status.success().then_some(())
    });
    assert_eq!(place.wait_for("log", "b\n"), "a\nb\n");
    assert_eq!(first.wait().code(), Some(121));
}

#[test]
fn a_second_process_of_one_name_says_so_and_never_leads() {
    let place = Place::new();
    let mut first = place.worker("same", &["--ttl", "1s"]);
    wait_until("the first to lead", || {
        (!tenure_testkit::witness::read(place.path()).ok()?.is_empty()).then_some(())
    });
    let log = place.file("second.log");
    let mut command = place.run("same", &["--ttl", "1s"]);
    command.args(["--", "sh", "-c", "echo led > second-led; sleep 1000"]).current_dir(place.path());
    command.stderr(std::fs::File::create(&log).unwrap());
    let _second = Process::spawn(&mut command);
    place.wait_for("second.log", "another live process has this node's name");
    assert!(!place.file("second-led").exists());
    first.signal(Signal::TERM);
    first.wait();
    wait_until("the second to lead", || place.file("second-led").exists().then_some(()));
}

#[test]
fn quiet_means_quiet_and_the_store_must_be_reachable_by_others() {
    let place = Place::new();
    let mut quiet = sh(&place, "a", &["--quiet"], "true");
    quiet.env_remove("TENURE_LOG");
    let done = output(quiet);
    assert_eq!((done.status.code(), done.stderr.as_slice()), (Some(0), &b""[..]), "{done:?}");
    let mut alone = Command::new(env!("CARGO_BIN_EXE_tenure"));
    alone.args(["--store", "memory:x", "run", "--role", "x", "--", "true"]);
    let done = output(alone);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("every copy would lead"), "{done:?}");
}

#[test]
fn one_tenure_run_within_another_is_a_node_of_its_own() {
    let place = Place::new();
    let inner = format!(
        "{} --store sqlite:{} run --role inner --wait 30s -- echo inside",
        env!("CARGO_BIN_EXE_tenure"),
        place.file("tenure.db").display()
    );
    let done = output(sh(&place, "outer", &[], &inner));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "inside\n", "{done:?}");
}

#[test]
fn history_says_that_a_leader_was_stopped() {
    let place = Place::new();
    let mut leader = Process::spawn(&mut sh(&place, "a", &[], "echo on >> log; exec sleep 1000"));
    place.wait_for("log", "on");
    leader.signal(Signal::TERM);
    leader.wait();
    let mut history = place.tenure();
    history.args(["history", "--format", "json"]);
    let told = String::from_utf8_lossy(&output(history).stdout).into_owned();
    assert!(told.contains("\"reason\":\"shutdown\""), "{told}");
}
