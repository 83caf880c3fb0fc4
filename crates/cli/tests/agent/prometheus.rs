//! The rules that are shipped for Prometheus, judged by Prometheus' own `promtool` on what real agents expose.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_torture::servers::{program, redis};

use crate::duty::{calm, shell};
use crate::kit::{Agent, Store, eventually, tenure};
use crate::registry::exposed_by_a_loop_that_hangs;

const ROLE: &str = "[[role]]\nname = \"job\"\n";
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus-rules.yml");

/// What an agent exposes, by series.
type Exposition = BTreeMap<String, String>;

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
    /// Whether an operator must be paged about which role, after a minute.
    fn no_leader(name: &'static str, series: String, pages: Option<&'static str>) -> Self {
        let fires = pages.map(|role| {
            let label = if role.is_empty() { String::new() } else { format!(", role: {role}") };
            let labels = format!("severity: critical{label}");
            Firing { labels, summary: format!("{role} has no known leader"), runbook: "No leader" }
        });
        Self { name, rule: "TenureNoLeader", at: "1m", series, fires }
    }
}

fn exposed(instance: &str, agent: &Agent) -> Exposition {
    series(instance, &agent.get("/metrics").body)
}

fn series(instance: &str, text: &str) -> Exposition {
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
fn then(before: &Exposition, after: &Exposition) -> String {
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
    std::fs::copy(RULES, dir.path().join("rules.yml")).unwrap();
    let tests: String = cases.iter().map(written).collect();
    std::fs::write(dir.path().join("cases.yml"), format!("rule_files: [rules.yml]\ntests:\n{tests}"))
        .unwrap();
    let mut command = Command::new(program("promtool", "prometheus", &["/usr/bin"]));
    let ran = command.args(["test", "rules", "cases.yml"]).current_dir(dir.path()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{text}");
}

/// Every shipped rule, on what real agents exposed: at least one recording with which it fires, and one with which it does
/// not. A rule without both fails here.
#[test]
fn every_rule_fires_for_its_cause_and_only_then() {
    let recordings: [fn() -> Vec<Case>; 6] =
        [leaders, failovers, a_store_that_is_gone, a_store_that_loses, a_loop_that_hangs, work_and_tasks];
    let cases: Vec<Case> = std::thread::scope(|scope| {
        let threads: Vec<_> = recordings.into_iter().map(|record| scope.spawn(record)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    promtool(&cases);
    let text = std::fs::read_to_string(RULES).unwrap();
    let rules: BTreeSet<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let with = |fires: bool| {
        cases
            .iter()
            .filter(|case| case.fires.is_some() == fires)
            .map(|case| case.rule)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!((with(true), with(false)), (rules.clone(), rules));
}

/// No node is known to lead, or the role is paused.
fn leaders() -> Vec<Case> {
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
        eventually("no node leads", || {
            ["silent", "vacant"].iter().any(|state| agent.role("job")["state"] == *state)
        });
    });
    case("every candidate is gone", recorded(&[("onlooker", &onlooker)]), Some("job"));
    case("every candidate is gone, without a series for each role", recorded(&[("few", &few)]), Some(""));
    case("no agent is scraped", String::new(), Some(""));
    cases
}

fn both(agents: &[Agent; 2]) -> Exposition {
    agents.iter().zip(["a", "b"]).flat_map(|(agent, name)| exposed(name, agent)).collect()
}

/// Two agents of which one leads, and what they exposed before any fail-over. A busy machine may make one meanwhile: then
/// two others are started.
fn calm_pair() -> (Store, [Agent; 2], Exposition) {
    loop {
        let store = Store::redis();
        let agents = ["a", "b"].map(|name| Agent::hasty(&store, name, ROLE));
        eventually("one leads", || agents.iter().any(|agent| agent.leads("job")));
        eventually("both know", || agents.iter().all(|agent| agent.role("job")["state"] == "led"));
        let calm = both(&agents);
        if sum(&calm, "tenure_failovers_total") == 0.0 {
            return (store, agents, calm);
        }
    }
}

/// Six fail-overs between two agents, each of which is stopped while the other takes over.
fn failovers() -> Vec<Case> {
    let (_store, agents, calm) = calm_pair();
    let all = || both(&agents);
    let first = usize::from(agents[1].leads("job"));
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
    // A busy machine may add some of its own.
    let last = all();
    let often = Firing {
        labels: "severity: warning, role: job".to_owned(),
        summary: format!("job failed over {} times in 15 minutes", sum(&last, "tenure_failovers_total")),
        runbook: "It changes too often",
    };
    let two = Firing {
        labels: "severity: critical, role: job".to_owned(),
        summary: "2 nodes report that they lead job".to_owned(),
        runbook: "Two leaders",
    };
    let frequent = |name, later: &Exposition, fires| {
        let series = then(&calm, later);
        Case { name, rule: "TenureFrequentFailovers", at: "10m", series, fires }
    };
    let claimed =
        |name, series: String, fires| Case { name, rule: "TenureTwoLeaders", at: "1m", series, fires };
    vec![
        frequent("six fail-overs", &last, Some(often)),
        frequent("one fail-over", &once.unwrap(), None),
        frequent("no fail-over", &calm, None),
        claimed("one leads", then(&calm, &calm), None),
        claimed("each says that it leads", then(&claims, &claims), Some(two)),
    ]
}

/// A rule about what one agent exposed first, and what later: it fires for the later alone.
fn pair(rule: &'static str, at: &'static str, [calm, later]: [&Exposition; 2], fires: Firing) -> [Case; 2] {
    let case = |name, after, fires| Case { name, rule, at, series: then(calm, after), fires };
    [case("as it should be", calm, None), case("in trouble", later, Some(fires))]
}

/// An alert about one agent.
fn of_agent(severity: &str, summary: String, runbook: &'static str) -> Firing {
    Firing { labels: format!("severity: {severity}, instance: a"), summary, runbook }
}

/// The sum of a metric's series.
fn sum(exposed: &Exposition, metric: &str) -> f64 {
    let of = exposed.iter().filter(|(series, _)| series.starts_with(&format!("{metric}{{")));
    of.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
}

/// The server is killed and stays away.
fn a_store_that_is_gone() -> Vec<Case> {
    let store = Store::redis();
    let Store::Redis(server) = &store else { unreachable!("it was made above") };
    let a = Agent::start(&store, "a", ROLE);
    eventually("it leads", || a.leads("job") && a.role("job")["state"] == "led");
    let well = exposed("a", &a);
    server.signal(Signal::KILL);
    let unseen = |exposed: &Exposition| sum(exposed, "tenure_cluster_view_age_seconds") > 30.0;
    let in_trouble = |exposed: &Exposition| {
        unseen(exposed)
            && sum(exposed, "tenure_in_doubt") > 0.0
            && sum(exposed, "tenure_store_errors_total") > 5.0
    };
    let mut gone = Exposition::new();
    eventually("half a minute passes", || {
        gone = exposed("a", &a);
        in_trouble(&gone)
    });
    let (errors, age) =
        (sum(&gone, "tenure_store_errors_total"), sum(&gone, "tenure_cluster_view_age_seconds"));
    let both = [&well, &gone];
    let renewal = of_agent("warning", "a cannot renew its session".to_owned(), "The store");
    let failing =
        of_agent("warning", format!("a got {errors} errors from the store in 5 minutes"), "The store");
    let away = of_agent("critical", format!("a has not reached the store for {age} seconds"), "The store");
    [
        pair("TenureLeaseRunningOut", "3m", both, renewal),
        pair("TenureStoreErrors", "3m", both, failing),
        pair("TenureStoreUnseen", "3m", both, away),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A server is flushed, and another gets a replica.
fn a_store_that_loses() -> Vec<Case> {
    let (flushed, primary, replica) = (redis::start(redis::FORGETFUL), redis::durable(), redis::durable());
    let on = |server: &tenure_torture::servers::Server| {
        let agent = Agent::start(&Store::Beyond(format!("redis://{}/0", server.address())), "a", ROLE);
        eventually("it leads", || agent.leads("job") && agent.role("job")["state"] == "led");
        agent
    };
    let (forgets, weakens) = (on(&flushed), on(&primary));
    let before = [exposed("a", &forgets), exposed("a", &weakens)];
    redis::command(flushed.address(), &["FLUSHALL"]);
    redis::command(replica.address(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("it is seen", || forgets.metric("tenure_store_forgot_total") > Some(0.0));
    eventually("it is seen", || weakens.metric("tenure_store_weakened") == Some(1.0));
    let (lost, weak) = (exposed("a", &forgets), exposed("a", &weakens));
    let lost_writes = "a saw that the store lost acknowledged writes".to_owned();
    let can_lose = "a saw that the store can now lose acknowledged writes (run tenure doctor)".to_owned();
    [
        pair(
            "TenureStoreForgot",
            "3m",
            [&before[0], &lost],
            of_agent("critical", lost_writes, "The store forgot"),
        ),
        pair(
            "TenureStoreWeakened",
            "3m",
            [&before[1], &weak],
            of_agent("warning", can_lose, "The store forgot"),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn a_loop_that_hangs() -> Vec<Case> {
    let [well, hung] = exposed_by_a_loop_that_hangs(Duration::from_secs(30)).map(|text| series("a", &text));
    let hangs = of_agent("critical", "The election loop of a hangs".to_owned(), "An agent is not alive");
    pair("TenureLoopHangs", "3m", [&well, &hung], hangs).into()
}

/// An agent that stands for the role once it is told to, so that all its series begin with nought.
fn until_told(store: &Store, more: &str) -> (Agent, Exposition) {
    let agent = calm(store, "a", &format!("{ROLE}eligible = false\ncool-down = \"50ms\"\n{more}"));
    eventually("it takes part", || agent.get("/v1/nodes").json()["total"] == 1);
    let before = exposed("a", &agent);
    let told = agent.post("/v1/roles/job/eligible", &serde_json::json!({ "eligible": true }));
    assert_eq!(told.status, 200, "{told:?}");
    (agent, before)
}

/// Work that fails, a task that fails, and one whose ticks pass while its agent is frozen.
fn work_and_tasks() -> Vec<Case> {
    let task = |name: &str, script: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nrole = \"job\"\nevery = \"200ms\"\ncatch-up = 0\n{}",
            shell(script)
        )
    };
    let work = format!("[[work]]\nname = \"w\"\nrole = \"job\"\nbackoff = \"10ms\"\n{}", shell("exit 1"));
    let stores = [Store::file(), Store::file(), Store::file()];
    let (works, no_work) = until_told(&stores[0], &work);
    let (fails, no_failure) = until_told(&stores[1], &task("wrong", "exit 1"));
    let (frozen, none_missed) = until_told(&stores[2], &task("often", "true"));
    eventually("it runs", || frozen.metric("tenure_task_runs_total") > Some(0.0));
    frozen.process.signal(Signal::STOP);
    let since = Instant::now();
    eventually("ticks pass", || since.elapsed() > Duration::from_secs(3));
    frozen.process.signal(Signal::CONT);
    let until = |agent: &Agent, metric: &str, more_than: f64| {
        eventually(metric, || agent.metric(metric) > Some(more_than));
        let found = exposed("a", agent);
        let count = sum(&found, metric);
        (found, count)
    };
    let (work_fails, starts) = until(&works, "tenure_work_failures_total", 2.0);
    let (task_fails, runs) = until(&fails, "tenure_task_failures_total", 0.0);
    let (missed, ticks) = until(&frozen, "tenure_task_missed_total", 0.0);
    let warning = |label: &str, summary: String, runbook| Firing {
        labels: format!("severity: warning, {label}"),
        summary,
        runbook,
    };
    let work = warning(
        "role: job",
        format!("The work of job failed {starts} times in 15 minutes"),
        "The work fails",
    );
    let failed =
        warning("task: wrong", format!("{runs} runs of wrong failed in 15 minutes"), "A task did not run");
    let late =
        warning("task: often", format!("often missed {ticks} ticks in 15 minutes"), "A task did not run");
    [
        pair("TenureWorkFailing", "10m", [&no_work, &work_fails], work),
        pair("TenureTasksFailed", "10m", [&no_failure, &task_fails], failed),
        pair("TenureTasksMissed", "10m", [&none_missed, &missed], late),
    ]
    .into_iter()
    .flatten()
    .collect()
}
