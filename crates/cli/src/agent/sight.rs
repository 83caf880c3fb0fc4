//! The cluster as this agent sees it: kept in memory by one watch of the store, so that no request reads registers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tenure::operator::{Change, NodeState, RoleReport, RoleState, Snapshot, Watch};
use tenure::{Name, Operator, Timing};

use super::events::Events;
use super::metrics::Metrics;

/// What was seen last.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Everything, as it was then.
    pub snapshot: Arc<Snapshot>,
    /// When; none before the first look.
    pub at: Option<Instant>,
    /// What the store says instead, since then.
    pub error: Option<String>,
}

/// The last look, and how fresh it must be.
#[derive(Debug)]
pub struct Sight {
    seen: RwLock<Seen>,
    stale_after: Duration,
}

/// How the cluster fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// All is well.
    Healthy,
    /// It works, but a person should look.
    Degraded,
    /// A role that somebody stands for has no leader, or nothing is known.
    Unhealthy,
}

impl Sight {
    /// Nothing yet.
    #[must_use]
    pub fn new(timing: &Timing) -> Self {
        let stale_after = (2 * timing.ttl).max(Duration::from_secs(5));
        Self { seen: RwLock::default(), stale_after }
    }

    /// What was seen last.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Looks for as long as it is polled, and tells what changes.
    pub async fn keep(&self, operator: &Operator, events: &Events, metrics: &Metrics) {
        let mut watch = self.begin(operator).await;
        let mut first = true;
        loop {
            let changes = if std::mem::take(&mut first) { Ok(Vec::new()) } else { watch.look_again().await };
            match changes {
                Ok(changes) => self.took_in(&watch, &changes, events, metrics),
                Err(error) => {
                    self.change(|seen| seen.error = Some(error.to_string()));
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn begin(&self, operator: &Operator) -> Watch {
        loop {
            match operator.watch().await {
                Ok(watch) => return watch,
                Err(error) => self.change(|seen| seen.error = Some(error.to_string())),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn took_in(&self, watch: &Watch, changes: &[Change], events: &Events, metrics: &Metrics) {
        let snapshot = Arc::new(watch.last().clone());
        metrics.looked(&snapshot, changes);
        self.change(|seen| *seen = Seen { snapshot, at: Some(Instant::now()), error: None });
        for change in changes {
            events.tell_change(change);
        }
    }

    /// Whether the store was seen lately.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.seen().at.is_some_and(|at| at.elapsed() < self.stale_after)
    }

    /// How the cluster fares, and why, the worst first.
    #[must_use]
    pub fn health(&self) -> (Health, Vec<String>) {
        let seen = self.seen();
        let mut found: Vec<(Health, String)> = Vec::new();
        if !self.is_fresh() {
            let why = seen.error.clone().unwrap_or_else(|| "the store has not answered yet".to_owned());
            found.push((Health::Unhealthy, why));
        }
        judge_roles(&seen.snapshot, &mut found);
        judge_nodes(&seen.snapshot, &mut found);
        if !seen.snapshot.unreadable.is_empty() {
            let count = seen.snapshot.unreadable.len();
            found.push((Health::Degraded, format!("{count} registers cannot be read by this version")));
        }
        found.sort_by_key(|(health, _)| std::cmp::Reverse(*health));
        let worst = found.first().map_or(Health::Healthy, |(health, _)| *health);
        (worst, found.into_iter().map(|(_, why)| why).collect())
    }
}

fn judge_roles(snapshot: &Snapshot, found: &mut Vec<(Health, String)>) {
    let mut tell = |health, what: &str, wrong: &dyn Fn(&RoleReport) -> bool| {
        let names: Vec<&Name> =
            snapshot.roles.iter().filter(|role| wrong(role)).map(|role| &role.role).collect();
        if !names.is_empty() {
            found.push((health, format!("{what}: {}", some(&names))));
        }
    };
    let vacant = |role: &RoleReport| role.state == RoleState::Vacant;
    tell(Health::Unhealthy, "nobody leads, although somebody stands", &|role| {
        vacant(role) && !role.candidates.is_empty()
    });
    tell(Health::Unhealthy, "the leader is silent", &|role| role.state == RoleState::Silent);
    tell(Health::Degraded, "nobody leads, and nobody stands", &|role| {
        vacant(role) && role.candidates.is_empty()
    });
    tell(Health::Degraded, "paused by an operator", &|role| role.state == RoleState::Paused);
}

fn judge_nodes(snapshot: &Snapshot, found: &mut Vec<(Health, String)>) {
    let silent: Vec<&Name> =
        snapshot.nodes.iter().filter(|node| node.state == NodeState::Silent).map(|node| &node.node).collect();
    if !silent.is_empty() {
        found.push((Health::Degraded, format!("nodes that fell silent: {}", some(&silent))));
    }
}

/// The first few of many names.
fn some(names: &[&Name]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(|name| name.as_str()).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Since when roles have had no leader, to tell how long a fail-over took.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    since: BTreeMap<Name, Instant>,
}

impl Gaps {
    /// Takes a look in; returns the roles that nobody leads.
    pub(super) fn look<'a>(&mut self, snapshot: &'a Snapshot) -> Vec<&'a Name> {
        let led = |role: &RoleReport| role.state == RoleState::Led;
        let vacant: Vec<&Name> =
            snapshot.roles.iter().filter(|role| !led(role)).map(|role| &role.role).collect();
        let now: BTreeSet<&Name> = vacant.iter().copied().collect();
        self.since.retain(|role, _| now.contains(role));
        for role in &vacant {
            self.since.entry((*role).clone()).or_insert_with(Instant::now);
        }
        vacant
    }

    /// For how long nobody led this role, if that was seen at all.
    pub(super) fn of(&self, role: &Name) -> Duration {
        self.since.get(role).map(Instant::elapsed).unwrap_or_default()
    }
}
