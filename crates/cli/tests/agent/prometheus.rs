//! The rules that are shipped for Prometheus, judged by Prometheus' own `promtool` on what real agents expose.

use std::collections::BTreeMap;
use std::process::Command;

use rustix::process::Signal;
use tenure_torture::servers::program;

use crate::kit::{Agent, Store, eventually, tenure};

const ROLE: &str = "[[role]]\nname = \"job\"\n";

/// What agents exposed, and which alert that is about must fire.
struct Case {
    name: &'static str,
    rule: &'static str,
    /// When the rule is asked.
    at: &'static str,
    series: String,
    fires: Option<Firing>,
}

/// An alert as people get it.
struct Firing {
    labels: String,
    summary: String,
    runbook: &'static str,
}

impl Case {
    /// Whether somebody must be paged about which role, after a minute.
    fn no_leader(name: &'static str, series: String, pages: Option<&'static str>) -> Self {
        let fires = pages.map(|role| {
            let label = if role.is_empty() { String::new() } else { format!(", role: {role}") };
            let labels = format!("severity: critical{label}");
            Firing { labels, summary: format!("{role} has no known leader"), runbook: "No leader" }
        });
        Self { name, rule: "TenureNoLeader", at: "1m", series, fires }
    }
}

/// What an agent exposes, by series.
fn exposed(instance: &str, agent: &Agent) -> BTreeMap<String, String> {
    let text = agent.get("/metrics").body;
    let lines = text.lines().filter(|line| line.starts_with("tenure_") && !line.contains("_bucket"));
    let series = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let open = series.strip_suffix('}').map_or_else(|| format!("{series}{{"), str::to_owned);
        let labels = if open.ends_with('{') { open } else { format!("{open},") };
        (format!("{labels}instance=\"{instance}\"}}"), value.to_owned())
    });
    series.collect()
}

/// The series of these agents, each of which stays as it is for five minutes.
fn recorded(agents: &[(&str, &Agent)]) -> String {
    let all = agents.iter().flat_map(|(instance, agent)| exposed(instance, agent));
    all.map(|(series, value)| input(&series, &format!("{value}x20"))).collect()
}

/// What was exposed for a minute, and for ten minutes after it.
fn then(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> String {
    let line = |(series, later): (&String, &String)| {
        // A series that was not there has no samples.
        let first = before.get(series).map_or("_", String::as_str);
        input(series, &format!("{first}x4 {later}x40"))
    };
    after.iter().map(line).collect()
}

fn input(series: &str, values: &str) -> String {
    format!("      - series: '{series}'\n        values: '{values}'\n")
}

/// A test for promtool.
fn written(case: &Case) -> String {
    let expected = case.fires.as_ref().map_or_else(
        || " []".to_owned(),
        |Firing { labels, summary, runbook }| {
            format!(
                "\n          - exp_labels: {{ {labels} }}\n            exp_annotations:\n              \
                 summary: \"{summary}\"\n              runbook: \"docs/guides/operations.md, {runbook}\""
            )
        },
    );
    let Case { name, rule, at, series, .. } = case;
    let input = if series.is_empty() {
        "    input_series: []\n".to_owned()
    } else {
        format!("    input_series:\n{series}")
    };
    format!(
        "  - interval: 15s\n    name: {name}\n{input}    alert_rule_test:\n      - eval_time: {at}\n        \
         alertname: {rule}\n        exp_alerts:{expected}\n"
    )
}

fn promtool(cases: &[Case]) {
    let dir = tempfile::tempdir().unwrap();
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus-rules.yml");
    std::fs::copy(rules, dir.path().join("rules.yml")).unwrap();
    let tests: String = cases.iter().map(written).collect();
    std::fs::write(dir.path().join("cases.yml"), format!("rule_files: [rules.yml]\ntests:\n{tests}"))
        .unwrap();
    let mut command = Command::new(program("promtool", "prometheus", &["/usr/bin"]));
    let ran = command.args(["test", "rules", "cases.yml"]).current_dir(dir.path()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{text}");
}

#[test]
fn the_rules_page_when_nobody_is_known_to_lead_and_not_for_a_paused_role() {
    let store = Store::redis();
    let [mut a, mut b] = ["a", "b"].map(|name| Agent::hasty(&store, name, ROLE));
    let onlooker = Agent::hasty(&store, "onlooker", "");
    let few = Agent::hasty(&store, "few", "[metrics]\nroles = 0\n");
    let state = |agent: &Agent, state: &str| eventually(state, || agent.role("job")["state"] == state);
    let order = |verb: &str| {
        let ran = tenure().arg("--agent").arg(&onlooker.socket).args([verb, "job"]).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    };
    let mut cases = Vec::new();
    let mut case = |name, series, pages| cases.push(Case::no_leader(name, series, pages));
    [&a, &b, &onlooker, &few].into_iter().for_each(|agent| state(agent, "led"));
    case("led", recorded(&[("a", &a), ("b", &b), ("onlooker", &onlooker)]), None);
    case("led, and only one that does not stand is scraped", recorded(&[("onlooker", &onlooker)]), None);
    case("led, without a series for each role", recorded(&[("few", &few)]), None);
    order("pause");
    [&a, &b, &onlooker, &few].into_iter().for_each(|agent| state(agent, "paused"));
    case("paused", recorded(&[("a", &a), ("b", &b), ("onlooker", &onlooker), ("few", &few)]), None);
    case("paused, without a series for each role", recorded(&[("few", &few)]), None);
    order("resume");
    store.freeze(true);
    [&a, &b, &onlooker].into_iter().for_each(|agent| state(agent, "unknown"));
    case("the store is gone", recorded(&[("a", &a), ("b", &b), ("onlooker", &onlooker)]), Some("job"));
    store.freeze(false);
    [&onlooker, &few].into_iter().for_each(|agent| state(agent, "led"));
    a.process.kill();
    b.process.kill();
    [&onlooker, &few].into_iter().for_each(|agent| {
        eventually("nobody leads", || {
            ["silent", "vacant"].iter().any(|state| agent.role("job")["state"] == *state)
        });
    });
    case("every candidate is gone", recorded(&[("onlooker", &onlooker)]), Some("job"));
    case("every candidate is gone, without a series for each role", recorded(&[("few", &few)]), Some(""));
    case("nobody is scraped", String::new(), Some(""));
    promtool(&cases);
}

/// Six fail-overs between two agents, each of which is stopped while the other takes over.
#[test]
fn the_rules_count_fail_overs_from_the_first_on_and_two_that_claim_to_lead() {
    let store = Store::redis();
    let agents = ["a", "b"].map(|name| Agent::hasty(&store, name, ROLE));
    let all = || -> BTreeMap<String, String> {
        agents.iter().zip(["a", "b"]).flat_map(|(agent, name)| exposed(name, agent)).collect()
    };
    eventually("one leads", || agents.iter().any(|agent| agent.leads("job")));
    let first = usize::from(agents[1].leads("job"));
    eventually("both know", || agents.iter().all(|agent| agent.role("job")["state"] == "led"));
    let calm = all();
    let (mut once, mut claims) = (None, BTreeMap::new());
    for round in 0..6 {
        let (leader, standby) = (&agents[(first + round) % 2], &agents[(first + round + 1) % 2]);
        claims.extend(exposed(["a", "b"][(first + round) % 2], leader));
        leader.process.signal(Signal::STOP);
        eventually("the other leads", || standby.leads("job"));
        leader.process.signal(Signal::CONT);
        let failovers = |agent: &Agent| agent.metric("tenure_failovers_total{role=\"job\"}").unwrap_or(0.0);
        let counted = || agents.iter().map(failovers).sum::<f64>() > round as f64;
        eventually("the fail-over is counted", counted);
        eventually("both take part", || agents.iter().all(|agent| agent.role("job")["state"] == "led"));
        once.get_or_insert_with(&all);
    }
    let often = Firing {
        labels: "severity: warning, role: job".to_owned(),
        summary: "job failed over 6 times in 15 minutes".to_owned(),
        runbook: "It changes too often",
    };
    let two = Firing {
        labels: "severity: critical, role: job".to_owned(),
        summary: "2 nodes report that they lead job".to_owned(),
        runbook: "Two leaders",
    };
    let frequent = |name, later: &BTreeMap<String, String>, fires| {
        let series = then(&calm, later);
        Case { name, rule: "TenureFrequentFailovers", at: "10m", series, fires }
    };
    let claimed =
        |name, series: String, fires| Case { name, rule: "TenureTwoLeaders", at: "1m", series, fires };
    promtool(&[
        frequent("six fail-overs", &all(), Some(often)),
        frequent("one fail-over", &once.unwrap(), None),
        frequent("no fail-over", &calm, None),
        claimed("one leads", then(&calm, &calm), None),
        claimed("each says that it leads", then(&claims, &claims), Some(two)),
    ]);
}
