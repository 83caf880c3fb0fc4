//! `tenure torture` on every store: short rounds with fixed seeds; long ones with TENURE_LONG.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Safety is judged to the nanosecond. How long no node led is not, here: other tests run beside this one, and what a
/// server waited for before it answered, no thread of the witness could measure.
const GENEROUS: &str = "10s";

fn torture(temporary: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("torture").args(args).arg("--no-tty").args(["--allowance", GENEROUS]);
    command.arg("--page").arg(temporary.join("page.html"));
    command.env("TMPDIR", temporary).env_remove("TENURE_STORE").env_remove("TENURE_NAMESPACE");
    command
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A round on a private store, which must end well and leave nothing but its page.
fn round(store: &str, faults: &str, seed: &str) -> String {
    round_of(store, faults, seed, if is_long() { "5" } else { "0.3" })
}

fn is_long() -> bool {
    std::env::var_os("TENURE_LONG").is_some()
}

fn round_of(store: &str, faults: &str, seed: &str, minutes: &str) -> String {
    let temporary = tempfile::tempdir().unwrap();
    let args = ["--private", store, "--nodes", "3", "--ttl", "1s", "--seed", seed, "--minutes", minutes];
    let output = torture(temporary.path(), &[&args[..], &["--faults", faults]].concat()).output().unwrap();
    let all = told(&output);
    assert!(output.status.success(), "{all}");
    assert!(all.contains(&format!("violations: 0; repeat with --seed {seed}")), "{all}");
    let page = std::fs::read_to_string(temporary.path().join("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("no violation") && !page.contains("http"), "{page}");
    let left = std::fs::read_dir(temporary.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect::<Vec<_>>();
    assert_eq!(left, ["page.html"], "{all}");
    all
}

const KIND: &str = "process,link,store,operator,clock,config,neighbour";

/// The neighbour did everything that it does.
fn was_hostile(all: &str) {
    let line = all.lines().find(|line| line.starts_with("neighbour: ")).unwrap_or_else(|| panic!("{all}"));
    for word in ["notifications forged", "attempts refused", "connections flooded"] {
        let before = line.split(word).next().unwrap_or_default();
        let count: u64 = before.split(' ').rev().find_map(|word| word.parse().ok()).unwrap_or_default();
        assert!(count > 0 && line.contains(word), "{word}: {line}");
    }
}

#[test]
fn on_the_embedded_store() {
    let all = round("sqlite", KIND, "1");
    assert!(all.contains("skipped:") && all.contains("no proxy fits between"), "{all}");
    assert!(all.contains("skipped:    neighbour (no other login has access there)"), "{all}");
}

#[test]
fn on_redis() {
    was_hostile(&round("redis", KIND, "2"));
}

/// Class C: what is lost is told, and the token holds.
#[test]
fn on_redis_that_fails_over() {
    let all = round("redis-failover", "process,failover,operator,config", "3");
    assert!(all.contains("lost:") && all.contains("and it held"), "{all}");
}

#[test]
fn on_postgres() {
    was_hostile(&round("postgres", KIND, "4"));
}

#[test]
fn on_mariadb() {
    was_hostile(&round("mysql", KIND, "5"));
}

/// Three members that all take writes; nodes follow when theirs is gone.
#[test]
fn on_galera() {
    let all = round("galera", "kill,member-kill,member-freeze,member-cut,config", "9");
    assert!(all.contains("ticks:      ") && all.contains("none twice, none lost"), "{all}");
}

/// Every other fail-over loses nothing, and every other one what the replica lacked.
#[test]
fn on_a_semi_synchronous_pair() {
    let all = round("mysql-pair", "kill,failover,member-kill,member-cut", "10");
    assert!(all.contains("(class B)"), "{all}");
}

/// Three members, which are killed, frozen and cut off, one or all of them.
#[test]
fn on_peers() {
    round("peers", KIND, "7");
}

/// Where no disk of its own can be mounted for the store, that is what is told.
#[test]
fn on_full_disks() {
    for store in ["sqlite", "redis", "postgres"] {
        let all = round_of(store, "kill,disk-full", "8", if is_long() { "2" } else { "0.1" });
        assert!(all.contains("disk-full"), "{all}");
    }
}

/// What destroys data is beyond every promise but one: the token.
#[test]
fn on_redis_that_is_flushed() {
    let all = round("redis", "kill,freeze-long,flush,delete-rows,restore", "6");
    assert!(all.contains("lost:"), "{all}");
}

#[test]
fn a_seed_is_a_plan() {
    let temporary = tempfile::tempdir().unwrap();
    let plan = |seed: &str| {
        let args = ["--private", "sqlite", "--plan", "--minutes", "2", "--seed", seed];
        told(&torture(temporary.path(), &args).output().unwrap())
    };
    assert_eq!(plan("7"), plan("7"));
    assert_ne!(plan("7"), plan("8"));
    assert!(plan("7").lines().count() > 10);
}

#[test]
fn what_cannot_be_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    for (args, words) in [
        (["--faults", "earthquake"], "cannot inject \"earthquake\": no such fault"),
        (["--minutes", "0"], "--minutes 0 is out of range"),
        (["--ttl", "100ms"], "too short"),
        (["--store", "memory:"], "name another store"),
    ] {
        let output = torture(temporary.path(), &args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", told(&output));
        assert!(told(&output).contains(words), "{args:?}: {}", told(&output));
    }
}

/// The proof is worth something only if it can fail: here a node claims to have led all the time, on a store that is
/// one's own and left alone.
#[test]
fn a_second_leader_is_told_with_the_evidence_and_ends_with_1() {
    let (temporary, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = format!("sqlite:{}", own.path().join("own.db").display());
    let args =
        ["--store", &store, "--nodes", "2", "--ttl", "1s", "--minutes", "60", "--faults", "kill,flush"];
    let mut child =
        torture(temporary.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("role-1 node-")), "a node leads");
    let mut folders = std::fs::read_dir(temporary.path()).unwrap().flatten().map(|entry| entry.path());
    let folder = folders.find(|path| path.is_dir()).unwrap();
    let act = |t: u64| {
        format!(
            r#"{{"t":{t},"node":"node-9","pid":9,"what":"act","role":"role-1","token":99,"leads":true,"until":0}}"#
        )
    };
    let forged = folder.join("forged");
    std::fs::write(&forged, format!("{}\n{}\n", act(1), act(u64::MAX / 4))).unwrap();
    std::fs::rename(forged, folder.join("node-9-9.notes")).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let rest = said.collect::<Vec<_>>().join("\n");
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{rest}\n{why}");
    assert!(why.contains("two led at once") && why.contains("under token 99"), "{why}");
    assert!(rest.contains("skipped:    flush (the store is yours, and is left alone)"), "{rest}");
    assert!(own.path().join("own.db").exists());
}
