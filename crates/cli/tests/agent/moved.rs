//! Every metric that is exposed moves for a cause: hand-overs, a frozen leader, a store that is gone, tasks and work that
//! fail, a log that is not read.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::json;
use tenure_agent::metrics::METRICS;

use crate::duty::shell;
use crate::hook::Hook;
use crate::kit::{Agent, Store, eventually};

/// The names of what these agents expose with another value than nought; a histogram by its count.
fn moved(agents: &[Agent]) -> BTreeSet<String> {
    let text: String = agents.iter().map(|agent| agent.get("/metrics").body).collect();
    let moved = text.lines().filter_map(|line| {
        let (series, value) = line.strip_prefix("tenure_")?.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        (value.parse::<f64>().ok()? != 0.0).then(|| name.strip_suffix("_count").unwrap_or(name).to_owned())
    });
    moved.collect()
}

fn config(hook: &Hook) -> String {
    let task = |name: &str, more: &str, script: &str| {
        format!("[[task]]\nname = \"{name}\"\nrole = \"job\"\n{more}\n{}", shell(script))
    };
    [
        "[alerting]\ninterval = \"200ms\"\n".to_owned(),
        format!("[[notify]]\nname = \"hook\"\nurl = \"http://127.0.0.1:{}\"\n", hook.port()),
        "[[alert]]\nname = \"leads\"\ncondition = \"tenure_is_leader{role='job'} == 1\"\n".to_owned(),
        "[[role]]\nname = \"job\"\ndrain = \"100ms\"\n".to_owned(),
        task("wrong", "every = \"200ms\"\ncatch-up = 0", "exit 1"),
        task("long", "every = \"300ms\"\non-stop = \"cancel\"", "exec sleep 1000"),
        task("slow", "every = \"100ms\"\noverlap = \"queue\"\nlate = \"100ms\"", "exec sleep 0.3"),
        "[[role]]\nname = \"broken\"\n[[work]]\nname = \"w\"\nrole = \"broken\"\nmax-restarts = 0\n"
            .to_owned(),
        shell("exit 1"),
    ]
    .concat()
}

/// An agent whose stderr is a pipe that is not read, and whose work says more than fits.
fn unread(store: &Store) -> (Agent, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let talks = format!(
        "[[role]]\nname = \"talks\"\n[[work]]\nname = \"w\"\nrole = \"talks\"\n{}",
        shell("yes | head -n 20000 >&2; exec sleep 1000")
    );
    (Agent::launch_into(store, "c", &talks, Some(writer.into()), |_| {}), reader)
}

#[test]
fn every_metric_moves_for_its_cause() {
    let (store, hook) = (Store::redis(), Hook::start());
    let mut agents: Vec<Agent> = ["a", "b"].map(|name| Agent::hasty(&store, name, &config(&hook))).into();
    let (talks, _unread) = unread(&store);
    agents.push(talks);
    let mut seen = BTreeSet::new();
    let mut until = |metrics: &[&str]| {
        eventually(&format!("{metrics:?}"), || {
            seen.append(&mut moved(&agents));
            metrics.iter().all(|metric| seen.contains(*metric))
        });
    };
    until(&[
        "is_leader",
        "log_lines_dropped_total",
        "work_failures_total",
        "task_skipped_total",
        "task_late_total",
    ]);
    let leader = || agents[..2].iter().position(|agent| agent.leads("job"));
    eventually("it steps down", || {
        let (agent, body) = (leader().map(|leader| &agents[leader]), json!({ "why": "a test" }));
        agent.is_some_and(|agent| agent.post("/v1/roles/job/step-down", &body).status == 200)
    });
    until(&["handover_seconds", "task_cancelled_total"]);
    let mut frozen = None;
    eventually("it leads", || {
        frozen = leader();
        frozen.is_some()
    });
    let (frozen, other) = (&agents[frozen.unwrap()], &agents[1 - frozen.unwrap()]);
    frozen.process.signal(Signal::STOP);
    eventually("the other leads", || other.leads("job"));
    frozen.process.signal(Signal::CONT);
    until(&["failovers_total", "failover_seconds", "leaderless_seconds_total"]);
    store.freeze(true);
    until(&["in_doubt", "doubts_total", "beat_failures_total", "store_errors_total"]);
    store.freeze(false);
    until(&["task_missed_total"]);
    let listed: BTreeSet<String> = METRICS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let still: Vec<&String> = listed.difference(&seen).collect();
    // A store that loses is a scene of its own, in `prometheus.rs`.
    assert_eq!(still, ["store_forgot_total", "store_weakened"]);
}
