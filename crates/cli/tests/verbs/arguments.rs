//! What can be typed, and what comes of what cannot.

use crate::kit::{TestDir, bare, ran};

const VERBS: [&str; 29] = [
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
    "forget",
    "pin",
    "drain",
    "eligible",
    "alerts",
    "audit",
    "probe",
    "check",
    "doctor",
    "repair",
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
        assert_eq!(broken_too_early(&ran.out), None, "{verb}: {}", ran.out);
    }
    for verb in ["doctor", "repair"] {
        let help = ran(bare(&[verb, "--help"]).output().unwrap());
        assert!(!help.out.contains("--agent"), "{verb} examines a store: {}", help.out);
        let refused = ran(bare(&[verb, "--agent", "/nowhere"]).output().unwrap());
        assert!(refused.code == Some(2) && refused.err.contains("has no option --agent"), "{refused:?}");
    }
    let refused = ran(bare(&["probe", "live", "--store", "sqlite:x"]).output().unwrap());
    assert!(refused.code == Some(2) && refused.err.contains("has no option --store"), "{refused:?}");
    let help = ran(bare(&["--help"]).output().unwrap());
    assert!(VERBS.iter().all(|verb| help.out.contains(verb)), "{}", help.out);
}

/// A line of a paragraph that ends although the next word would fit.
fn broken_too_early(help: &str) -> Option<&str> {
    let of_text = |line: &str| line.starts_with(|first: char| !first.is_whitespace());
    let lines: Vec<_> = help.lines().collect();
    let pair = lines.windows(2).find(|pair| {
        let next = pair[1].split_whitespace().next().unwrap_or_default();
        pair.iter().all(|line| of_text(line)) && pair[0].len() + 1 + next.len() <= 100
    });
    pair.map(|pair| pair[0])
}

/// Only an agent answers a probe: where there is none, no store is looked for.
#[test]
fn a_probe_without_an_agent_says_so() {
    let dir = TestDir::new();
    let mut probe = bare(&["probe", "live"]);
    let ran =
        ran(probe.env("XDG_RUNTIME_DIR", dir.path()).env("XDG_STATE_HOME", dir.path()).output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("cannot probe: no agent answers on the default socket"), "{ran:?}");
}

#[test]
fn bad_input_gets_one_line_and_exit_code_2() {
    let dir = TestDir::new();
    for (args, part) in [
        (vec!["history", "-n", "0"], "give a number of at least 1"),
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
        (vec!["demo", "--nodes", "1"], "2..=9"),
        (vec!["demo", "--nodes", "10"], "2..=9"),
        (vec!["completions", "tcsh-ish"], "bash"),
        (vec!["check", "--store", "reddis://127.0.0.1"], "reddis"),
    ] {
        let ran = dir.run(&args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("tenure: ") && ran.err.contains(part), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "");
    }
}

/// The URL of a guard lock is read before a node is started.
#[test]
fn a_guard_lock_that_cannot_be_named_leaves_no_session_behind() {
    let dir = TestDir::new();
    let refused = dir.run(&["run", "--role", "r", "--guard", "foo://x", "--", "true"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("a guard lock is named by a URL"), "{refused:?}");
    let nodes = dir.run(&["nodes"]);
    assert!(nodes.err.contains("no node has run on it yet"), "{nodes:?}");
}

/// What is silently ignored is believed to count.
#[test]
fn an_option_that_a_verb_does_not_use_is_a_mistake_and_not_in_its_help() {
    for (args, option) in [
        (&["demo", "--store", "redis://127.0.0.1"][..], "--store"),
        (&["--store", "redis://127.0.0.1", "demo"], "--store"),
        (&["run", "--agent", "/x.sock", "--role", "x", "--", "true"], "--agent"),
        (&["--format", "json", "run", "--role", "x", "--", "true"], "--format"),
        (&["agent", "--agent", "/x.sock"], "--agent"),
        (&["peers", "list", "--namespace", "x"], "--namespace"),
        (&["torture", "--namespace", "x", "--private", "sqlite"], "--namespace"),
        (&["man", "--format", "json"], "--format"),
        (&["demo", "--allow-plaintext-token"], "--allow-plaintext-token"),
        (&["--allow-plaintext-token", "check"], "--allow-plaintext-token"),
        (&["alerts", "--store", "redis://127.0.0.1"], "--store"),
        (&["eligible", "x", "on", "--store", "redis://127.0.0.1"], "--store"),
    ] {
        let typed = ran(bare(args).output().unwrap());
        assert_eq!((typed.code, typed.err.lines().count()), (Some(2), 1), "{args:?}: {typed:?}");
        assert!(typed.err.contains(&format!("has no option {option}")), "{args:?}: {}", typed.err);
        let verb = args.iter().find(|word| VERBS.contains(word)).unwrap();
        let help = ran(bare(&[verb, "--help"]).output().unwrap());
        let listed = |line: &str| line.trim_start().starts_with(&format!("{option} "));
        assert!(!help.out.lines().any(listed), "{verb}: {}", help.out);
    }
    let help = ran(bare(&["status", "--help"]).output().unwrap());
    assert!(["--store <", "--agent <", "--namespace <", "--format <"].iter().all(|o| help.out.contains(o)));
}

#[test]
fn a_command_without_its_dashes_is_hinted_at() {
    let typed = ran(bare(&["run", "--role", "x", "echo", "hi"]).output().unwrap());
    assert_eq!((typed.code, typed.err.lines().count()), (Some(2), 1), "{typed:?}");
    assert!(typed.err.contains("'echo'") && typed.err.contains("after `--`"), "{}", typed.err);
    let other = ran(bare(&["run", "--rolle", "x", "--", "true"]).output().unwrap());
    assert!(!other.err.contains("after `--`"), "{}", other.err);
}

#[test]
fn a_torture_without_a_target_attacks_nothing() {
    let dir = TestDir::new();
    let ran = dir.run(&["torture", "--minutes", "0.1"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("5 nodes") && ran.err.contains("--private redis"), "{}", ran.err);
    assert!(!dir.path().join("t.db").exists());
}

#[test]
fn nothing_typed_shows_the_help_and_is_a_mistake() {
    let ran = ran(bare(&[]).output().unwrap());
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("Usage: tenure"), "{ran:?}");
}

#[test]
fn a_store_that_cannot_be_used_is_122_in_one_line_without_its_secrets() {
    let dir = TestDir::new();
    std::fs::write(
        dir.path().join("notes.txt"),
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
            let ran = dir.run(&[verb.as_slice(), &["--store", url]].concat());
            assert_eq!(ran.code, Some(122), "{url} {verb:?}: {ran:?}");
            assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""), "{url}: {}", ran.err);
            assert!(ran.err.contains(part) && !ran.err.contains("hunter2"), "{url}: {}", ran.err);
        }
    }
}

/// A command that only looks makes no tables.
#[test]
fn looking_at_an_empty_database_creates_nothing() {
    let postgres = tenure_torture::servers::postgres::Postgres::start(&[]);
    let mysql = tenure_torture::servers::mysql::Mysql::start(&[]);
    for url in [postgres.admin_url(), mysql.admin_url()] {
        for verb in [&["status"][..], &["nodes"], &["history"], &["watch"], &["pause", "a"]] {
            let ran = ran(bare(&[&["--store", &url], verb].concat()).output().unwrap());
            assert_eq!((ran.code, ran.err.lines().count()), (Some(122), 1), "{verb:?}: {ran:?}");
            assert!(ran.err.contains("has no tables of tenure: no node has run on it yet"), "{}", ran.err);
        }
    }
}

#[test]
fn what_names_no_store_is_a_mistake_in_one_line_without_secrets() {
    let dir = TestDir::new();
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
            let ran = dir.run(&[&["--store", url], verb.as_slice()].concat());
            assert_eq!(ran.code, Some(2), "{url} {verb:?}: {ran:?}");
            assert_eq!((ran.err.lines().count(), ran.out.as_str()), (1, ""), "{url}: {}", ran.err);
            assert!(ran.err.contains(part) && !ran.err.contains("hunter2"), "{url}: {}", ran.err);
        }
    }
}

/// A user who mistypes a path is told, and not find an empty store there.
#[test]
fn a_file_that_is_not_there_is_told_and_not_made() {
    let dir = TestDir::new();
    let missing = dir.path().join("deep/missing.db");
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
        let ran = dir.run(&[&["--store", &url], verb.as_slice()].concat());
        assert_eq!(ran.code, Some(122), "{verb:?}: {ran:?}");
        assert!(ran.err.contains("there is no") && ran.err.contains("missing.db"), "{verb:?}: {ran:?}");
        assert!(!missing.parent().unwrap().exists(), "{verb:?} made something");
    }
    assert_eq!(dir.run(&["--store", &url, "doctor"]).code, Some(0), "it tells what the store will be");
    assert_eq!(dir.run(&["--store", &url, "status"]).code, Some(0));
}

#[test]
fn a_damaged_file_is_122_and_left_as_it_is() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&["doctor"]).code, Some(0));
    let path = dir.path().join("t.db");
    // What is still in the log only would hide the damage.
    let _ = std::fs::remove_file(dir.path().join("t.db-wal"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100..].iter_mut().for_each(|byte| *byte = 0x5a);
    std::fs::write(&path, &bytes).unwrap();
    let ran = dir.run(&["status"]);
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
    let dir = TestDir::new();
    let pretty = dir.run(&["check"]);
    assert_eq!(pretty.code, Some(0));
    for part in ["ttl", "5s", "1.25s", "6.15s", "7.65s", "1.35s", "3.95s", "4.85s", "4.95s", "48", "24"] {
        assert!(pretty.out.contains(part), "{part}: {}", pretty.out);
    }
    let json = dir.json(&["check", "--ttl", "2s"]);
    let expected = serde_json::json!({
        "settings": {
            "ttl_ms": 2000.0, "takeover": "strict", "grace_ms": null, "beat_ms": 500.0, "op_timeout_ms": 400.0, "stop_grace_ms": 400.0, "kill_slack_ms": 40.0,
            "clock_error_ppm": 10_000
        },
        "bounds": {
            "crash_ms": 2520.0, "crash_of_two_ms": 3120.0, "disconnect_ms": null, "hand_over_ms": 600.0, "in_doubt_ms": 900.0, "stop_ms": 1580.0, "kill_ms": 1940.0,
            "over_ms": 1980.0, "operations_per_minute": 120,
            "standby_operations_per_minute": 60
        }
    });
    assert_eq!(json, expected);
}

#[cfg(feature = "object")]
#[test]
fn check_says_what_requests_cost_where_they_have_a_price() {
    let dir = TestDir::new();
    let bucket = ["--store", "s3://bucket/x?region=eu-west-1"];
    let pretty = dir.run(&[&["check"], &bucket[..]].concat());
    for part in ["20s", "4s", "24.3s", "27 puts and lists and 64 reads a minute", "$6.89 a month", "$0.005"] {
        assert!(pretty.out.contains(part), "{part}: {}", pretty.out);
    }
    let json = dir.json(&[&["check", "--ttl", "40s"], &bucket[..]].concat());
    assert_eq!(json["settings"]["ttl_ms"], 40_000.0);
    assert!(json["cost"].as_str().is_some_and(|cost| cost.contains("$3.45 a month")), "{json}");
}

#[cfg(not(feature = "object"))]
#[test]
fn a_url_whose_feature_is_missing_names_the_feature() {
    let ran = TestDir::new().run(&["status", "--store", "s3://key:hunter2@bucket/x"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("no s3: store (feature `object`)") && !ran.err.contains("hunter2"),
        "{}",
        ran.err
    );
}

#[test]
fn check_says_what_a_dropped_connection_means() {
    let dir = TestDir::new();
    let pretty = dir.run(&["check", "--takeover", "on-disconnect"]);
    assert!(pretty.out.contains("a disconnected leader is replaced within"), "{}", pretty.out);
    assert!(pretty.out.contains("2.63s"), "{}", pretty.out);
    let json = dir.json(&["check", "--ttl", "1m", "--takeover", "on-disconnect", "--grace", "2s"]);
    let (settings, bounds) = (&json["settings"], &json["bounds"]);
    assert_eq!((&settings["takeover"], &settings["grace_ms"]), (&"on-disconnect".into(), &2000.0.into()));
    assert_eq!((&bounds["disconnect_ms"], &bounds["over_ms"]), (&2120.0.into(), &1980.0.into()));
    let mut from_env = dir.command(&["check"]);
    let ran =
        ran(from_env.envs([("TENURE_TAKEOVER", "on-disconnect"), ("TENURE_GRACE", "6s")]).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("grace 6s is longer than ttl 5s"), "{}", ran.err);
}

#[test]
fn check_refuses_what_cannot_work_with_both_numbers() {
    let dir = TestDir::new();
    let ran = dir.run(&["check", "--ttl", "5s", "--beat", "3s"]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(2), 1), "{ran:?}");
    assert!(ran.err.contains("= 5s") && ran.err.contains("3.95s"), "{}", ran.err);
}

#[test]
fn bash_completes_names_of_roles_and_nodes() {
    let dir = TestDir::new();
    let _nodes = dir.led("scheduler");
    let script = ran(bare(&["completions", "bash"]).output().unwrap()).out;
    std::fs::write(dir.path().join("completions"), script).unwrap();
    let complete = |words: &str| {
        let line = format!(
            ". ./completions; COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _tenure_names tenure \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let path = std::path::Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap().display().to_string();
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "-c", &line]).current_dir(dir.path()).env("TENURE_STORE", dir.url());
        ran(bash.env("PATH", format!("{path}:/usr/bin:/bin")).output().unwrap())
    };
    let has = |words: &str, name: &str| {
        let said = complete(words);
        assert!(said.out.lines().any(|line| line == name), "{words}: {said:?}");
    };
    has("tenure status sch", "scheduler");
    has("tenure transfer scheduler --to ''", "b");
    has("tenure drain ''", "a");
    has("tenure forget sch", "scheduler");
    has("tenure probe leader sch", "scheduler");
    has("tenure run --role sch", "scheduler");
    has("tenure stat", "status");
    // Where a name belongs, no file is offered.
    assert!(!complete("tenure transfer scheduler --to ''").out.contains("completions"));
    assert!(!complete("tenure run -r ''").out.contains("completions"));
    assert!(!complete("tenure transfer scheduler --wait ''").out.contains("scheduler"));
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
