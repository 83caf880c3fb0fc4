//! Everything is well: children start, end, are stopped, and are passed what belongs to them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::Signal;
use tenure_process::Exit;
use tenure_process::clock::lease_now;

use crate::elector::{Answer, Ask};
use crate::support::{Fixture, HEART, ended, eventually, freeze, gone, lock_is_free, stat};

const LONG: u64 = 600_000;

#[test]
fn the_exit_is_the_childs() {
    let mut fixture = Fixture::new(1_000, 200);
    for (script, exit) in
        [("exit 0", Exit::Code(0)), ("exit 3", Exit::Code(3)), ("kill -USR1 $$", Exit::Signal(10))]
    {
        let (pid, _) = fixture.start(script, LONG);
        assert_eq!(fixture.ask(&Ask::Wait), ended(exit, false, false), "{script}");
        assert!(gone(pid));
    }
}

#[test]
fn a_command_that_cannot_be_started_says_why() {
    [false, true].into_iter().for_each(cannot_be_started);
}

fn cannot_be_started(prepared: bool) {
    let mut fixture = Fixture::new(1_000, 200);
    let plain = fixture.dir.path().join("plain");
    fs::write(&plain, "not a program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let cases = [("no-such-program-anywhere", 127, "No such file"), (plain.to_str().unwrap(), 126, "denied")];
    for (program, expected, words) in cases {
        let waiting = prepared.then(|| fixture.prepare());
        let ask = Ask::Start { program: program.into(), args: vec![], env: vec![], cwd: None, ttl_ms: LONG };
        let Answer::NotStarted { code, message } = fixture.ask(&ask) else { panic!("{program} started") };
        assert_eq!(code, expected);
        assert!(message.contains(words), "{message}");
        assert!(waiting.is_none_or(gone), "nothing is left of it");
    }
    fixture.start("exit 0", LONG);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(0), false, false));
}

#[test]
fn nothing_starts_on_a_lease_that_is_all_but_over_or_beside_another_child() {
    let mut fixture = Fixture::new(1_000, 200);
    assert_eq!(fixture.ask(&fixture.script("exit 0", 500)), Answer::TooLate);
    fixture.start(HEART, LONG);
    assert!(matches!(fixture.ask(&fixture.script("exit 0", LONG)), Answer::NotStarted { code: 126, .. }));
}

#[test]
fn what_a_child_leaves_behind_ends_before_it_counts_as_gone() {
    let mut fixture = Fixture::new(1_000, 200);
    let quick = "(TENURE_TEST_ACTOR=heart \"$ACTOR\" --exact actor --nocapture &) ; ";
    fixture.start(&format!("{quick} until [ -s \"$HEART\" ]; do sleep 0.01; done; exit 7"), LONG);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(7), true, false));
    assert!(fixture.hearts(1).iter().all(|pid| gone(*pid)));
}

#[test]
fn what_a_child_leaves_behind_is_killed_if_it_will_not_end() {
    let mut fixture = Fixture::new(1_000, 200);
    let stubborn =
        format!("setsid sh -c \"trap '' TERM; {}\" & ", HEART.replace('"', "\\\"").replace('$', "\\$"));
    fixture.start(&format!("{stubborn} until [ -s \"$HEART\" ]; do sleep 0.01; done; exit 7"), LONG);
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(7), true, true));
    assert!(fixture.hearts(1).iter().all(|pid| gone(*pid)));
}

#[test]
fn renewals_carry_a_child_past_its_first_deadline() {
    let mut fixture = Fixture::new(300, 100);
    let (pid, mut deadline) = fixture.start(HEART, 2_000);
    let first = deadline;
    eventually("well past the first deadline", || {
        if let Answer::Renewed { deadline: next } = fixture.ask(&Ask::Renew { ttl_ms: 2_000 }) {
            deadline = next;
        }
        fixture.beats().last().is_some_and(|(_, time)| *time > first + 1_000_000_000)
    });
    assert!(!gone(pid));
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Signal(Signal::TERM.as_raw()), false, false));
    assert!(fixture.beats().iter().all(|(_, time)| *time < deadline));
    assert!(lease_now() > first);
}

#[test]
fn a_renewal_that_comes_after_the_time_to_stop_saves_no_tenure() {
    let mut fixture = Fixture::new(3_000, 1_000);
    let script = "trap 'echo told > \"$DIR/told\"' TERM; while :; do sleep 0.01; done";
    let (_, deadline) = fixture.start(script, 5_000);
    fixture.written("told");
    fixture.ask(&Ask::Renew { ttl_ms: LONG });
    let Answer::Ended { exit, killed, .. } = fixture.ask(&Ask::Wait) else { panic!("it ended") };
    assert!(killed && exit == Exit::Signal(9), "{exit:?}");
    assert!(lease_now() < deadline);
}

#[test]
fn a_child_that_is_told_to_stop_may_finish() {
    let mut fixture = Fixture::new(1_000, 200);
    let script = "trap 'echo finished > \"$DIR/said\"; exit 9' TERM; echo up > \"$DIR/up\"; \
                  while :; do sleep 0.01; done";
    fixture.start(script, LONG);
    fixture.written("up");
    assert_eq!(fixture.ask(&Ask::Stop { grace_ms: LONG }), ended(Exit::Code(9), false, false));
    assert_eq!(fixture.written("said"), "finished\n");
}

/// A second SIGTERM means "at once" to many programs.
#[test]
fn what_is_left_of_a_group_that_was_told_to_stop_is_not_told_twice() {
    let mut fixture = Fixture::new(1_000, 200);
    let inner = "trap 'echo told >> \"$DIR/told\"' TERM; echo up > \"$DIR/up\"; n=0; \
                 while [ $n -lt 30 ]; do sleep 0.01; [ -s \"$DIR/told\" ] && n=$((n+1)); done";
    let outer = "trap 'until [ -s \"$DIR/told\" ]; do sleep 0.01; done; exit 0' TERM";
    fixture.start(&format!("{outer}; ({inner}) & while :; do sleep 0.01; done"), LONG);
    fixture.written("up");
    assert_eq!(fixture.ask(&Ask::Stop { grace_ms: LONG }), ended(Exit::Code(0), true, false));
    assert_eq!(fixture.written("told"), "told\n");
}

#[test]
fn a_child_that_was_frozen_hears_that_it_is_to_stop() {
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture.start(HEART, LONG);
    fixture.hearts(1);
    freeze(pid);
    assert_eq!(fixture.ask(&Ask::Stop { grace_ms: LONG }), ended(Exit::Signal(15), false, false));
}

#[test]
fn a_child_that_will_not_stop_is_killed() {
    let mut fixture = Fixture::new(1_000, 200);
    let (pid, _) = fixture.start(&format!("trap '' TERM; {HEART}"), LONG);
    let pids = fixture.hearts(1);
    assert_eq!(fixture.ask(&Ask::Stop { grace_ms: 50 }), ended(Exit::Signal(9), false, true));
    assert!(gone(pid) && pids.iter().all(|pid| gone(*pid)));
}

#[test]
fn kill_and_drop_leave_nothing() {
    let mut fixture = Fixture::new(1_000, 200);
    fixture.start(HEART, LONG);
    assert_eq!(fixture.ask(&Ask::Kill), ended(Exit::Signal(9), false, true));
    let (pid, _) = fixture.start(HEART, LONG);
    assert_eq!(fixture.ask(&Ask::DropChild), Answer::Done);
    let (next, _) = fixture.start(HEART, LONG);
    assert!(gone(pid), "the next one starts when nothing is left of the one before");
    let pid = next;
    assert_eq!(fixture.ask(&Ask::Close), Answer::Done);
    assert!(gone(pid) && gone(fixture.watchdog));
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Signal(9), false, true));
}

#[test]
fn signals_reach_the_whole_group() {
    let mut fixture = Fixture::new(1_000, 200);
    // The leader waits for the other: what is left when it ends is told to end too.
    let listen = |name: &str| {
        format!(
            "trap 'wait; echo heard > \"$DIR/{name}\"; exit 0' USR1; echo up > \"$DIR/{name}-up\"; \
             while :; do sleep 0.01; done"
        )
    };
    fixture.start(&format!("({}) & {}", listen("inner"), listen("outer")), LONG);
    fixture.written("inner-up");
    fixture.written("outer-up");
    fixture.ask(&Ask::Signal { signal: Signal::USR1.as_raw() });
    fixture.written("inner");
    fixture.written("outer");
    let Answer::Ended { exit, .. } = fixture.ask(&Ask::Wait) else { panic!("it ended") };
    assert_eq!(exit, Exit::Code(0));
}

/// Compared with a child that this test starts itself, by the same parentage of descriptors, masks and
/// priority.
#[test]
fn a_child_inherits_nothing_that_is_ours() {
    [false, true].into_iter().for_each(inherits_nothing_that_is_ours);
}

fn inherits_nothing_that_is_ours(prepared: bool) {
    let mut fixture = Fixture::new(1_000, 200);
    fixture.lock();
    if prepared {
        fixture.prepare();
    }
    let (pid, _) = fixture.start("exec sleep 1000", LONG);
    let mut plain = std::process::Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let plain_pid = i32::try_from(plain.id()).unwrap();
    eventually("both run", || {
        [pid, plain_pid].iter().all(|pid| status(*pid, "Name:").as_deref() == Some("sleep"))
    });
    let facts = |pid: i32| {
        let mut fds: Vec<_> =
            fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|fd| fd.unwrap().file_name()).collect();
        fds.sort();
        (fds, status(pid, "SigBlk:"), status(pid, "SigIgn:"), stat(pid, 19))
    };
    // Not at once: the loader opens files of its own at first.
    eventually("they have the same", || facts(pid) == facts(plain_pid));
    plain.kill().unwrap();
    plain.wait().unwrap();
}

fn status(pid: i32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field).map(|value| value.trim().to_owned()))
}

#[test]
fn a_very_long_command_line_arrives_whole() {
    [false, true].into_iter().for_each(long_command_line);
}

fn long_command_line(prepared: bool) {
    let mut fixture = Fixture::new(1_000, 200);
    if prepared {
        fixture.prepare();
    }
    let long = "x".repeat(100_000);
    let mut args: Vec<String> =
        ["-c", "last=${10}; [ ${#last} = 100000 ] && exit $#", "sh"].map(Into::into).into();
    args.extend(std::iter::repeat_n(long, 12));
    let ask = Ask::Start { program: "bash".into(), args, env: vec![], cwd: None, ttl_ms: LONG };
    assert!(matches!(fixture.ask(&ask), Answer::Started { .. }));
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(12), false, false));
}

#[test]
fn the_lock_changes_hands_only_when_no_child_needs_it() {
    let mut fixture = Fixture::new(1_000, 200);
    let first = fixture.lock();
    fixture.start(HEART, LONG);
    let second = fixture.dir.path().join("second");
    assert_eq!(fixture.ask(&Ask::Lock { path: second.to_str().unwrap().into() }), Answer::Done);
    assert!(!lock_is_free(&first), "the child that runs was started under it");
    fixture.ask(&Ask::Kill);
    assert!(lock_is_free(&first));
    assert!(!lock_is_free(&second));
    assert_eq!(fixture.ask(&Ask::Unlock), Answer::Done);
    assert!(!lock_is_free(&second), "the elector itself still holds it");
}

#[test]
fn environment_directory_and_streams_are_passed() {
    [false, true].into_iter().for_each(passed_to_the_child);
}

fn passed_to_the_child(prepared: bool) {
    let mut fixture = Fixture::with(1_000, 200, |command| {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("OF_ELECTOR", "inherited");
    });
    let ask = Ask::Start {
        program: "sh".into(),
        args: ["-c", "read -r line; echo \"out $line $OF_ELECTOR $TENURE_TOKEN $PWD\"; echo err >&2", "sh"]
            .map(Into::into)
            .into(),
        env: vec![("TENURE_TOKEN".into(), "42".into())],
        cwd: Some("/usr".into()),
        ttl_ms: LONG,
    };
    if prepared {
        fixture.prepare();
    }
    assert!(matches!(fixture.ask(&ask), Answer::Started { .. }));
    fixture.elector.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    assert_eq!(fixture.ask(&Ask::Wait), ended(Exit::Code(0), false, false));
    fixture.kill_elector();
    let (mut out, mut err) = (String::new(), String::new());
    fixture.elector.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    fixture.elector.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(out.contains("out hello inherited 42 /usr\n"), "{out}");
    assert!(err.contains("err\n"), "{err}");
}

#[test]
fn many_children_one_after_another_leave_nothing() {
    let mut fixture = Fixture::new(1_000, 200);
    let descriptors = |fixture: &mut Fixture| {
        let watchdog = fs::read_dir(format!("/proc/{}/fd", fixture.watchdog)).unwrap().count();
        (fixture.ask(&Ask::Descriptors), watchdog)
    };
    let before = descriptors(&mut fixture);
    for round in 0..20 {
        if round % 2 == 1 {
            fixture.prepare();
        }
        let (pid, _) = fixture.start(&format!("sleep 0 & exit {round}"), LONG);
        let Answer::Ended { exit, .. } = fixture.ask(&Ask::Wait) else { panic!("it ended") };
        assert_eq!(exit, Exit::Code(round));
        assert!(gone(pid));
    }
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", fixture.watchdog)).unwrap();
    assert_eq!(children.trim(), "", "the watchdog has no children, dead or alive");
    assert_eq!(descriptors(&mut fixture), before);
    assert_eq!(fixture.ask(&Ask::Close), Answer::Done);
    assert!(gone(fixture.watchdog));
}

#[test]
fn orphans_that_end_while_the_child_runs_are_reaped() {
    let mut fixture = Fixture::new(1_000, 200);
    fixture.start("(sh -c 'echo $$ > \"$DIR/orphan\"' &); exec sleep 1000", LONG);
    let orphan: i32 = fixture.written("orphan").trim().parse().unwrap();
    eventually("the orphan is reaped", || {
        fixture.ask(&Ask::Renew { ttl_ms: LONG });
        gone(orphan)
    });
}
