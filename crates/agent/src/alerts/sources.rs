//! Where samples come from: this agent's own exposition, that of others, and what the store tells.

use std::time::Duration;

use futures_util::future::join_all;
use tenure::Name;
use tenure::operator::{NodeState, RoleState};

use super::rules::Alerting;
use super::samples::{Labels, SeriesValue, read_exposition};
use super::target;
use crate::cluster_view::Observation;
use crate::http::App;
use crate::metrics::ExpositionFormat;

/// One look at everything: each source with what it says.
pub(super) async fn collect(app: &App, alerting: &Alerting) -> Vec<(String, Vec<SeriesValue>)> {
    let me = app.node.name().to_string();
    let prefixes = [app.config.metrics.prefix.as_str(), "tenure", "forge_leader"];
    let mut sources = scraped(app, alerting, &prefixes).await;
    // A scraped agent speaks for itself.
    let mut speaks: Vec<String> = sources.iter().map(|(node, _)| node.clone()).collect();
    speaks.push(me.clone());
    let seen = app.cluster_view.latest();
    if seen.at.is_some() {
        sources.push(("the store".to_owned(), store_series(&seen, app, &speaks)));
    }
    if app.cluster_view.is_fresh() {
        let wanted = |metric| app.alert_manager.state().samples.wants(metric);
        if wanted("ledger_missed_total") || wanted("ledger_failures_total") {
            sources.extend(ledgers(app).await.map(|found| ("the ledgers".to_owned(), found)));
        }
    }
    let own = app.metrics.text(ExpositionFormat::Prometheus);
    sources.push((me.clone(), own_series(&own, &prefixes, &me)));
    sources
}

/// What an agent says of itself. Whether roles are led it has from the store, as this one does: that counts once.
fn own_series(text: &str, prefixes: &[&str], node: &str) -> Vec<SeriesValue> {
    let mut found = read_exposition(text, prefixes, node);
    found.retain(|one| one.metric != "led");
    found
}

/// What other agents expose, each under the name of its node. An agent that does not answer says nothing.
async fn scraped(app: &App, alerting: &Alerting, prefixes: &[&str]) -> Vec<(String, Vec<SeriesValue>)> {
    let limit = alerting.interval.clamp(Duration::from_secs(1), Duration::from_secs(10));
    let ask = |agent: &String| {
        let (agent, token) = (agent.clone(), alerting.scrape_token.clone());
        async move { (target::scrape(&app.config.outbound, &agent, token.as_ref(), limit).await, agent) }
    };
    let mut sources = Vec::new();
    for (text, agent) in join_all(alerting.scrape.iter().map(ask)).await {
        match text {
            Ok(text) => sources.push(named(&text, prefixes, &agent)),
            Err(why) => tracing::debug!(agent, why, "cannot scrape agent"),
        }
    }
    sources
}

/// An agent says in its exposition which node it is.
fn named(text: &str, prefixes: &[&str], agent: &str) -> (String, Vec<SeriesValue>) {
    let mut found = own_series(text, prefixes, "");
    let build = found.iter().find(|one| one.metric == "build_info");
    let node = build.and_then(|build| build.labels.get("node")).filter(|node| !node.is_empty()).cloned();
    let node = node.unwrap_or_else(|| agent.to_owned());
    for one in &mut found {
        one.labels.insert("node".to_owned(), node.clone());
    }
    (node, found)
}

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn found(metric: &str, labels: Labels, value: f64) -> SeriesValue {
    SeriesValue { metric: metric.to_owned(), labels, value }
}

/// What the store tells of the whole cluster, but for those who speak for themselves.
fn store_series(seen: &Observation, app: &App, speaks: &[String]) -> Vec<SeriesValue> {
    let silent = |node: &Name| !speaks.iter().any(|other| other == node.as_str());
    let truth = |yes: bool| f64::from(u8::from(yes));
    let mut all = Vec::new();
    for role in &seen.snapshot.roles {
        let (name, led) = (role.role.as_str(), role.state == RoleState::Led);
        if role.paused.is_none() {
            all.push(found("led", labels([("role", name)]), truth(led)));
        }
        for node in role.leader.iter().filter(|node| silent(node)) {
            all.push(found("is_leader", labels([("role", name), ("node", node.as_str())]), truth(led)));
        }
        for node in role.candidates.iter().filter(|node| silent(node)) {
            all.push(found("is_leader", labels([("role", name), ("node", node.as_str())]), 0.0));
        }
    }
    for node in
        seen.snapshot.nodes.iter().filter(|node| matches!(node.state, NodeState::Live | NodeState::Silent))
    {
        if let (Some(ago), Some(ttl @ 1..)) = (node.last_beat_ms_ago, node.ttl_ms) {
            let ratio = ago as f64 / ttl as f64;
            all.push(found("silence_ratio", labels([("node", node.node.as_str())]), ratio));
        }
    }
    for ((role, node), counts) in app.metrics.others() {
        if node.as_ref().is_some_and(|node| !silent(node)) {
            continue;
        }
        let labels = labels([("role", role.as_str()), ("node", node.as_ref().map_or("", Name::as_str))]);
        all.push(found("elections_total", labels.clone(), counts.elections as f64));
        all.push(found("failovers_total", labels.clone(), counts.failovers as f64));
        all.push(found("work_failures_total", labels, counts.work_failures as f64));
    }
    all
}

/// What the ledgers of tasks tell; none if they cannot be read. They are read again when the registers were: a notification came,
/// a client looks, or it was time to.
async fn ledgers(app: &App) -> Option<Vec<SeriesValue>> {
    let polls = app.cluster_view.polls();
    if let Some((read, found)) = app.alert_manager.state().ledgers.clone()
        && read == polls
    {
        return Some(found);
    }
    let ledgers = app.operator.tasks(None).await.ok()?;
    let totals = ledgers.iter().flat_map(|ledger| {
        let mut labels = labels([("task", ledger.task.as_str())]);
        if let Some(node) = &ledger.node {
            labels.insert("node".to_owned(), node.to_string());
        }
        let failures = found("ledger_failures_total", labels.clone(), ledger.totals.failures as f64);
        [failures, found("ledger_missed_total", labels, ledger.totals.missed as f64)]
    });
    let found: Vec<SeriesValue> = totals.collect();
    app.alert_manager.state().ledgers = Some((polls, found.clone()));
    Some(found)
}
