//! What is in `deploy/` fits the binary: flags, keys, probes, metrics, alerts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tenure_agent::alerts::rules::shipped;
use tenure_agent::metrics::METRICS;

use crate::kit::{Agent, Store, eventually, tenure};

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands after a key, in each line that has it.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim_start_matches(['-', ' ']).strip_prefix(key))
        .map(str::trim)
        .collect()
}

/// Fails unless its brackets pair, and every metric in it is exposed.
fn assert_known(expression: &str) {
    let mut open = Vec::new();
    for c in expression.chars() {
        match c {
            '(' | '[' | '{' => open.push(c),
            ')' | ']' | '}' => assert!(
                matches!((open.pop(), c), (Some('('), ')') | (Some('['), ']') | (Some('{'), '}')),
                "{expression}"
            ),
            _ => {}
        }
    }
    assert!(open.is_empty(), "{expression}");
    let mut known = BTreeSet::new();
    for (name, kind, _) in METRICS {
        known.insert(format!("tenure_{name}"));
        if *kind == "histogram" {
            known.extend(["bucket", "sum", "count"].map(|part| format!("tenure_{name}_{part}")));
        }
    }
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with("tenure_")) {
        assert!(known.contains(word), "{word} is not exposed: {expression}");
    }
}

#[test]
fn the_rules_for_prometheus_are_those_that_come_with_the_agent() {
    let text = read("prometheus-rules.yml");
    let camel = |name: &str| {
        let words = name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]);
        format!("Tenure{}", words.collect::<String>())
    };
    let ours: BTreeSet<String> =
        shipped("tenure", Duration::from_secs(5), &[]).iter().map(|rule| camel(rule.name.as_str())).collect();
    let theirs = values(&text, "alert:").into_iter().map(str::to_owned).collect();
    assert_eq!(ours, theirs);
    let expressions = values(&text, "expr:");
    assert_eq!(expressions.len(), ours.len());
    expressions.into_iter().for_each(assert_known);
    let runbook = include_str!("../../../../docs/guides/operations.md");
    for place in values(&text, "runbook:") {
        let heading = place.trim_matches('"').split_once(", ").unwrap().1;
        assert!(runbook.contains(&format!("\n## {heading}\n")), "{heading} is not in the runbook");
    }
}

#[test]
fn the_grafana_dashboard_shows_what_is_exposed() {
    fn expressions(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("expr").and_then(Value::as_str).map(str::to_owned));
                object.values().for_each(|value| expressions(value, found));
            }
            Value::Array(array) => array.iter().for_each(|value| expressions(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    expressions(&serde_json::from_str(&read("grafana.json")).unwrap(), &mut found);
    assert!(found.len() >= 10, "{found:?}");
    found.iter().for_each(|expression| assert_known(expression));
}

/// The arguments, with another path of the configuration; the agent says what it would run on.
fn print_config(arguments: &[&str], config: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.toml");
    std::fs::write(&path, config).unwrap();
    let path = path.display().to_string();
    let arguments = arguments.iter().map(|word| if word.ends_with("/tenure.toml") { &path } else { *word });
    let ran = tenure().args(arguments).arg("--print-config").current_dir(dir.path()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn the_unit_starts_reloads_and_watches_the_agent() {
    let text = read("tenure-agent.service");
    let start: Vec<&str> = values(&text, "ExecStart=")[0].split(' ').collect();
    assert_eq!(start[0], "/usr/local/bin/tenure");
    print_config(&start[1..], "");
    for line in ["Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "RuntimeDirectory=tenure"] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    // The sign of life comes twice as often, and only while the loop turned within two ttls.
    let watchdog: u64 = values(&text, "WatchdogSec=")[0].parse().unwrap();
    assert!(watchdog > 2 * 5);
}

/// No more exposed than it is documented to be; and when it stops, or dies, nothing that it started is left.
#[test]
fn the_unit_is_hardened_and_leaves_no_process_behind() {
    let text = read("tenure-agent.service");
    for line in ["KillMode=mixed", "SendSIGKILL=yes", "NoNewPrivileges=yes", "UMask=0077"] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/tenure-agent.service");
    let mut analyze = std::process::Command::new("systemd-analyze");
    analyze.args(["security", "--no-pager", "--offline=true", "--threshold=15"]).arg(unit);
    let analyzed = analyze.output().unwrap();
    assert!(analyzed.status.success(), "{}", String::from_utf8_lossy(&analyzed.stdout));
}

/// The words of a list such as `["tenure", "probe"]`.
fn words(list: &str) -> Vec<&str> {
    let inner = list.split_once('[').and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
    inner.split(", ").map(|word| word.trim_matches('"')).collect()
}

#[test]
fn the_sidecar_reads_its_configuration_and_its_probes_answer() {
    let (text, image) = (read("kubernetes-sidecar.yaml"), read("Dockerfile"));
    let block = text.split_once("tenure.toml: |\n").unwrap().1.split_once("---").unwrap().0;
    let config: String = block.lines().map(|line| format!("{}\n", line.trim())).collect();
    print_config(&words(values(&text, "args:")[0]), &config);

    let store = Store::file();
    let agent = Agent::start(&store, "a", "[[role]]\nname = \"scheduler\"\nmode = \"campaign\"");
    let probes: Vec<Vec<&str>> = values(&text, "exec:")
        .into_iter()
        .map(words)
        .chain([words(values(&image, "HEALTHCHECK")[0])])
        .collect();
    assert_eq!(probes.len(), 3, "{probes:?}");
    for probe in probes {
        let socket = PathBuf::from(&agent.socket);
        let arguments = probe[1..].iter().filter(|word| **word != "--agent" && !word.ends_with(".sock"));
        eventually("it says yes", || {
            let ran = tenure().arg("--agent").arg(&socket).args(arguments.clone()).output().unwrap();
            ran.status.success()
        });
    }
}

/// A small image has no certificates of authorities, and a socket needs none.
#[test]
fn an_agent_is_asked_without_any_certificates() {
    let store = Store::file();
    let agent = Agent::launch(&store, "a", "", |command| {
        command.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nonexistent");
    });
    let mut probe = tenure();
    probe.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nonexistent");
    let ran = probe.arg("--agent").arg(&agent.socket).args(["probe", "live"]).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert!(read("Dockerfile").contains("ca-certificates"), "what does need them has them");
}

#[test]
fn a_probe_says_why_the_answer_is_no() {
    let store = Store::file();
    let agents = ["a", "b"].map(|name| Agent::start(&store, name, "[[role]]\nname = \"job\""));
    let probe = |agent: &Agent, what: &[&str]| {
        let ran = tenure().arg("--agent").arg(&agent.socket).arg("probe").args(what).output().unwrap();
        let text = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (ran.status.code(), text.trim().to_owned())
    };
    eventually("one leads, and both know", || {
        let mut answers = agents.iter().map(|agent| probe(agent, &["leader", "job"])).collect::<Vec<_>>();
        answers.sort();
        let no = |node: &str| (Some(1), format!("tenure: not here: {node} leads job"));
        answers[0] == (Some(0), "leads job".to_owned()) && [no("a"), no("b")].contains(&answers[1])
    });
    let (code, why) = probe(&agents[0], &["leader", "nothing"]);
    assert!(code == Some(1) && why.contains("role \"nothing\" not found"), "{why}");
    let nowhere = tenure().args(["--agent", "/nonexistent.sock", "probe", "live"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(122), "{nowhere:?}");
    // One that hangs is not waited for.
    agents[0].process.signal(Signal::STOP);
    let (code, why) = probe(&agents[0], &["live"]);
    assert!(code == Some(122) && why.contains("does not answer within"), "{why}");
}
