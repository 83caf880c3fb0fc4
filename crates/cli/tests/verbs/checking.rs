//! `tenure check --config`: whether an agent could run on a file, and what it would do.

use serde_json::{Value, json};

use crate::kit::{CommandOutput, TestDir, bare, ran};

/// Checks a file with these words in it.
fn check(dir: &TestDir, text: &str, more: &[&str]) -> CommandOutput {
    let file = dir.path().join("t.toml");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let args = [&["check", "--config", "t.toml"], more].concat();
    ran(bare(&args).current_dir(dir.path()).output().unwrap())
}

fn checked(dir: &TestDir, text: &str, more: &[&str]) -> Value {
    let ran = check(dir, text, &[more, &["--format", "json"]].concat());
    assert_eq!(ran.code, Some(0), "{text}: {ran:?}");
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

const WHOLE: &str = r##"
store = "redis://user:hunter2@localhost/0"
namespace = "prod"
leaderTtl = "30s"
[node]
name = "web-1"
[[role]]
name = "scheduler"
[[role]]
name = "reports"
mode = "campaign"
[[role]]
name = "new"
migration = "shadow"
static-leader = "web-2"
[[work]]
name = "cache"
role = "scheduler"
command = ["cache-server"]
[[task]]
name = "nightly"
role = "scheduler"
cron = "30 2 1 1 *"
zone = "Europe/Vienna"
command = ["report"]
[[task]]
name = "tidy"
where = "every-node"
every = "1h"
command = ["tidy"]
[[alert]]
name = "busy"
condition = "tenure_leading > 5"
[[notify]]
name = "ops"
url = "https://hooks.example.test/hunter2"
[http]
socket = "none"
listen = ["127.0.0.1:7654"]
[alerting]
defaults = false
"##;

#[test]
fn a_file_that_is_in_order_says_what_it_came_to() {
    let dir = TestDir::new();
    let ran = check(&dir, WHOLE, &[]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    for part in [
        "t.toml is valid",
        "t.toml:4: leaderTtl (Sovereign) became timing.ttl = \"30s\"",
        "redis://…@localhost/0",
        "web-1 in namespace prod",
        "3: scheduler, reports (for clients), new (in shadow mode, led by web-2)",
        "1: cache",
        "2: nightly (next ",
        "1: busy",
        "1: ops",
        "http://127.0.0.1:7654",
        "The settings are valid",
        "a crashed leader is replaced within",
        "36.4s",
    ] {
        assert!(ran.out.contains(part), "{part} in\n{}", ran.out);
    }
    assert!(!ran.out.contains("hunter2"), "{}", ran.out);
    assert!(!ran.out.contains("the kernel reports"), "no kernel reports for an agent: {}", ran.out);
    let reports = |args: &[&str]| dir.run(args).out.contains("the kernel reports it");
    assert!(reports(&["check"]) && !reports(&["check", "--store", "postgres://db.example/app"]));
    let json = checked(&dir, WHOLE, &[]);
    assert_eq!(json["settings"]["ttl_ms"], 30000.0);
    let config = &json["config"];
    assert_eq!((&config["file"], &config["node"]), (&json!("t.toml"), &json!("web-1")));
    assert_eq!(config["roles"][0]["work"], json!(["cache"]));
    let nightly = &config["roles"][0]["tasks"][0];
    assert_eq!((&nightly["task"], &nightly["zone"]), (&json!("nightly"), &json!("Europe/Vienna")));
    assert!(nightly["next"].as_str().unwrap().ends_with("-01-01T01:30:00.000Z"), "{nightly}");
    assert_eq!(
        (&config["roles"][2]["migration"], &config["roles"][2]["static_leader"]),
        (&json!("shadow"), &json!("web-2"))
    );
    assert_eq!(config["tasks"][0]["task"], "tidy");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was made");
}

#[test]
fn a_password_that_would_go_over_the_network_in_clear_is_told() {
    let dir = TestDir::new();
    for (store, told) in [
        ("postgres://ann:hunter2@db.example/app", true),
        ("mysql://ann:hunter2@10.0.0.1/app", true),
        ("redis://:hunter2@cache.example", true),
        ("rediss://:hunter2@cache.example", false),
        ("postgres://ann:hunter2@127.0.0.1/app", false),
    ] {
        let found = checked(&dir, &format!("store = \"{store}\""), &[]);
        let notices = found["config"]["notices"].to_string();
        assert_eq!(notices.contains("not encrypted"), told, "{store}: {notices}");
        assert!(!found.to_string().contains("hunter2"), "{found}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_line_and_its_key() {
    let dir = TestDir::new();
    let wrong = r#"store = "postgres://h/d?x"
leaderTtl = "30"
[node]
nmae = "a"
[timing]
beat = "4s"
[[role]]
name = "job"
[[task]]
name = "t"
cron = "61 * * * *"
command = ["true"]
[[task]]
name = "u"
evry = "5s"
[[alert]]
name = "a"
condition = "topk(1, x)"
"#;
    let ran = check(&dir, wrong, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    for part in [
        "t.toml:1: store: ",
        "t.toml:2: timing.ttl: leaderTtl: ",
        "t.toml:4: unknown key node.nmae; did you mean name?",
        "t.toml:6: timing: ",
        "t.toml:11: task[0].cron: ",
        "t.toml:15: unknown key task[1].evry; did you mean every?",
        "t.toml:18: alert[0].condition: topk",
    ] {
        assert!(ran.err.contains(part), "{part} in\n{}", ran.err);
    }
    assert!(ran.err.starts_with("tenure: "), "{}", ran.err);
    let missing = super::kit::ran(bare(&["check", "--config", "/nowhere.toml"]).output().unwrap());
    assert!(missing.code == Some(2) && missing.err.contains("cannot read /nowhere.toml"), "{missing:?}");
    let not_toml = check(&dir, "[node\n", &[]);
    assert!(not_toml.code == Some(2) && not_toml.err.contains("t.toml:1: "), "{not_toml:?}");
}

#[test]
fn what_is_typed_counts_more_than_what_is_written() {
    let dir = TestDir::new();
    let file = "[node]\nname = \"a\"\n[timing]\nttl = \"10s\"\ntakeover = \"on-disconnect\"\n";
    let json = checked(&dir, file, &["--ttl", "20s", "--set", "node.name=b", "--namespace", "n"]);
    assert_eq!((&json["settings"]["ttl_ms"], &json["config"]["node"]), (&json!(20000.0), &json!("b")));
    assert_eq!(
        (&json["config"]["namespace"], &json["settings"]["takeover"]),
        (&json!("n"), &json!("on-disconnect"))
    );
    assert_eq!(check(&dir, file, &["--set", "node.nam=b"]).code, Some(2));
    let lonely = ran(bare(&["check", "--set", "node.name=b"]).output().unwrap());
    assert!(lonely.code == Some(2) && lonely.err.contains("--config"), "{lonely:?}");
}

/// What a node does in time follows from its bounds, which are those that this prints.
#[test]
fn every_time_that_is_set_moves_a_bound() {
    let dir = TestDir::new();
    let bounds = |timing: &str| checked(&dir, &format!("[timing]\n{timing}"), &[])["bounds"].clone();
    let usual = bounds("");
    for (timing, bound) in [
        ("profile = \"fast\"", "crash_ms"),
        ("ttl = \"20s\"", "crash_ms"),
        ("beat = \"500ms\"", "operations_per_minute"),
        ("beat-at-most = \"500ms\"", "operations_per_minute"),
        ("op-timeout = \"500ms\"", "in_doubt_ms"),
        ("op-timeout-at-most = \"500ms\"", "in_doubt_ms"),
        ("stop-grace = \"500ms\"", "stop_ms"),
        ("kill-slack = \"50ms\"", "kill_ms"),
        ("takeover = \"on-disconnect\"", "disconnect_ms"),
        ("clock-error-ppm = 50000", "crash_ms"),
    ] {
        assert_ne!(bounds(timing)[bound], usual[bound], "{timing}");
    }
    let within = |grace: &str| {
        bounds(&format!("ttl = \"1m\"\ntakeover = \"on-disconnect\"\ngrace = \"{grace}\""))["disconnect_ms"]
            .clone()
    };
    assert_ne!(within("2s"), within("20s"));
    assert_eq!(bounds("beat-at-most = \"1h\""), usual, "an upper limit only");
}
