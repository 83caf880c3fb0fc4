//! What can be typed, and what comes of what cannot.

use crate::kit::{Place, bare, ran};

const VERBS: [&str; 27] = [
    "run",
    "agent",
    "status",
    "nodes",
    "history",
    "watch",
    "top",
    "transfer",
    "step-down",
    "pause",
    "resume",
    "task",
    "pin",
    "drain",
    "eligible",
    "alerts",
    "audit",
    "probe",
    "check",
    "doctor",
    "schema",
    "peers",
    "demo",
    "bench",
    "torture",
    "completions",
    "man",
];

#[test]
fn every_verb_explains_itself() {
    for verb in VERBS {
        let ran = ran(bare(&[verb, "--help"]).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{verb}");
        assert!(ran.out.contains(&format!("Usage: tenure {verb}")), "{verb}: {}", ran.out);
    }
    let help = ran(bare(&["--help"]).output().unwrap());
    assert!(VERBS.iter().all(|verb| help.out.contains(verb)), "{}", help.out);
}

#[test]
fn bad_input_gets_one_line_and_exit_code_2() {
    let place = Place::new();
    for (args, part) in [
        (vec!["status", "a b"], "not a valid name"),
        (vec!["status", "-x"], "'-x'"),
        (vec!["status", ""], "empty"),
        (vec!["pause", ".hidden"], "not a valid name"),
        (vec!["transfer", "a", "--to", "ä"], "not a valid name"),
        (vec!["transfer", "a"], "--to"),
        (vec!["transfer", "a", "--to", "b", "--wait", "30"], "500ms"),
        (vec!["check", "--ttl", "5 parsecs"], "500ms"),
        (vec!["check", "--ttl", "-5s"], "-5"),
        (vec!["status", "--namespace", "no/slash"], "not a valid name"),
        (vec!["status", "--format", "yaml"], "pretty"),
        (vec!["watch", "--count", "many"], "many"),
        (vec!["history", "-n", "-1"], "-1"),
        (vec!["statsu"], "status"),
        (vec!["completions", "tcsh-ish"], "bash"),
    ] {
        let ran = place.run(&args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("tenure: ") && ran.err.contains(part), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn nothing_typed_shows_the_help_and_is_a_mistake() {
    let ran = ran(bare(&[]).output().unwrap());
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("Usage: tenure"), "{ran:?}");
}

#[test]
fn a_store_that_cannot_be_used_is_122_in_one_line_without_its_secrets() {
    let place = Place::new();
    std::fs::write(
        place.path().join("notes.txt"),
        "these are my notes, not a database, and longer than a header is\n".repeat(9),
    )
    .unwrap();
    for (url, part) in [
        ("redis://:hunter2@127.0.0.1:1/0", "redis"),
        ("postgres://me:hunter2@127.0.0.1:1/db", "postgres"),
        ("mysql://me:hunter2@127.0.0.1:1/db", "mysql"),
        ("sqlite:notes.txt", "not a SQLite database"),
        ("sqlite:/dev/null/x.db", "cannot"),
        ("sqlite:.", "is a directory"),
    ] {
        for verb in [
            vec!["status"],
            vec!["nodes"],
            vec!["history"],
            vec!["watch"],
            vec!["doctor"],
            vec!["pause", "a"],
        ] {
            let ran = place.run(&[verb.as_slice(), &["--store", url]].concat());
            assert_eq!(ran.code, Some(122), "{url} {verb:?}: {ran:?}");
            assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""), "{url}: {}", ran.err);
            assert!(ran.err.contains(part) && !ran.err.contains("hunter2"), "{url}: {}", ran.err);
        }
    }
}

#[test]
fn what_names_no_store_is_a_mistake_in_one_line_without_secrets() {
    let place = Place::new();
    for (url, part) in [
        ("nonsense:hunter2", "is not a kind of store"),
        ("hunter2", "named by a URL"),
        ("sqlite://relative.db", "sqlite:///PATH"),
        ("redis://:hunter2@127.0.0.1/zero", "not a Redis URL"),
        ("postgres://me:hunter2@127.0.0.1/db?hunter2", "cannot be read"),
        ("mysql://me:hunter2@127.0.0.1/db?hunter2", "cannot be read"),
        ("peers:hunter2", "not a URL of peers"),
    ] {
        for verb in
            [vec!["status"], vec!["doctor"], vec!["pause", "a"], vec!["run", "--role", "a", "--", "true"]]
        {
            let ran = place.run(&[&["--store", url], verb.as_slice()].concat());
            assert_eq!(ran.code, Some(2), "{url} {verb:?}: {ran:?}");
            assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""), "{url}: {}", ran.err);
            assert!(ran.err.contains(part) && !ran.err.contains("hunter2"), "{url}: {}", ran.err);
        }
    }
}

/// Whoever mistypes a path should hear of it, and not find an empty store there.
#[test]
fn a_file_that_is_not_there_is_told_and_not_made() {
    let place = Place::new();
    let missing = place.path().join("deep/missing.db");
    let url = format!("sqlite:{}", missing.display());
    for verb in [
        vec!["status"],
        vec!["nodes"],
        vec!["history"],
        vec!["audit"],
        vec!["watch"],
        vec!["top", "--once"],
        vec!["task", "list"],
        vec!["task", "history"],
        vec!["pause", "a"],
        vec!["drain", "a"],
        vec!["transfer", "a", "--to", "b"],
    ] {
        let ran = place.run(&[&["--store", &url], verb.as_slice()].concat());
        assert_eq!(ran.code, Some(122), "{verb:?}: {ran:?}");
        assert!(ran.err.contains("there is no") && ran.err.contains("missing.db"), "{verb:?}: {ran:?}");
        assert!(!missing.parent().unwrap().exists(), "{verb:?} made something");
    }
    assert_eq!(place.run(&["--store", &url, "doctor"]).code, Some(0), "it tells what the store will be");
    assert_eq!(place.run(&["--store", &url, "status"]).code, Some(0));
}

#[test]
fn a_damaged_file_is_122_and_left_as_it_is() {
    let place = Place::new();
    assert_eq!(place.run(&["doctor"]).code, Some(0));
    let path = place.path().join("t.db");
    // What is still in the log only would hide the damage.
    let _ = std::fs::remove_file(place.path().join("t.db-wal"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100..].iter_mut().for_each(|byte| *byte = 0x5a);
    std::fs::write(&path, &bytes).unwrap();
    let ran = place.run(&["status"]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(122), 1), "{ran:?}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn the_help_does_not_show_the_store_that_the_environment_names() {
    let mut command = bare(&["status", "--help"]);
    let ran = ran(command.env("TENURE_STORE", "redis://:hunter2@host/0").output().unwrap());
    assert!(ran.out.contains("TENURE_STORE") && !ran.out.contains("hunter2"), "{}", ran.out);
}

#[test]
fn check_prints_what_follows_for_people_and_for_programs() {
    let place = Place::new();
    let pretty = place.run(&["check"]);
    assert_eq!(pretty.code, Some(0));
    for part in ["ttl", "5s", "6.15s", "1.1s", "3.95s", "4.85s", "4.95s", "120"] {
        assert!(pretty.out.contains(part), "{part}: {}", pretty.out);
    }
    let json = place.json(&["check", "--ttl", "2s"]);
    let expected = serde_json::json!({
        "settings": {
            "ttl_ms": 2000.0, "takeover": "strict", "grace_ms": null, "beat_ms": 400.0, "op_timeout_ms": 400.0, "stop_grace_ms": 400.0, "kill_slack_ms": 40.0,
            "clock_error_ppm": 10_000
        },
        "bounds": {
            "crash_ms": 2520.0, "disconnect_ms": null, "hand_over_ms": 500.0, "in_doubt_ms": 800.0, "stop_ms": 1580.0, "kill_ms": 1940.0,
            "over_ms": 1980.0, "operations_per_minute": 300
        }
    });
    assert_eq!(json, expected);
}

#[test]
fn check_says_what_a_dropped_connection_means() {
    let place = Place::new();
    let pretty = place.run(&["check", "--takeover", "on-disconnect"]);
    assert!(pretty.out.contains("one whose connection drops, within"), "{}", pretty.out);
    assert!(pretty.out.contains("2.63s"), "{}", pretty.out);
    let json = place.json(&["check", "--ttl", "1m", "--takeover", "on-disconnect", "--grace", "2s"]);
    let (settings, bounds) = (&json["settings"], &json["bounds"]);
    assert_eq!((&settings["takeover"], &settings["grace_ms"]), (&"on-disconnect".into(), &2000.0.into()));
    assert_eq!((&bounds["disconnect_ms"], &bounds["over_ms"]), (&2120.0.into(), &1980.0.into()));
    let mut from_env = place.command(&["check"]);
    let ran =
        ran(from_env.envs([("TENURE_TAKEOVER", "on-disconnect"), ("TENURE_GRACE", "6s")]).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("grace 6s is longer than ttl 5s"), "{}", ran.err);
}

#[test]
fn check_refuses_what_cannot_work_with_both_numbers() {
    let place = Place::new();
    let ran = place.run(&["check", "--ttl", "5s", "--beat", "3s"]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(2), 1), "{ran:?}");
    assert!(ran.err.contains("= 5s") && ran.err.contains("3.95s"), "{}", ran.err);
}

#[test]
fn completions_and_the_manual_name_every_verb() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = ran(bare(&["completions", shell]).output().unwrap());
        assert_eq!(ran.code, Some(0));
        assert!(VERBS.iter().all(|verb| ran.out.contains(verb)), "{shell}");
    }
    let man = ran(bare(&["man"]).output().unwrap());
    assert_eq!(man.code, Some(0));
    assert!(man.out.contains(".TH tenure"), "{}", man.out);
    for verb in VERBS {
        assert!(man.out.contains(&format!(".SH \"TENURE {}\"", verb.to_uppercase())), "{verb}");
    }
}
