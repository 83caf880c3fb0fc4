//! The cluster as this agent sees it: kept in memory by one watch of the store.
//!
//! At rest it costs the store next to nothing: whether sessions beat it learns from what the agent's own node reads anyway, and what
//! else changes notifies. It reads by itself after a notification, while a client looks, and now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tenure::operator::{ClusterChange, ClusterSnapshot, ClusterWatch, NodeState, RoleReport, RoleState};
use tenure::{Name, Operator, Timing};
use tokio::sync::Notify;

use super::events::Events;
use super::metrics::Metrics;
use super::store::SessionsRead;

/// What was seen last.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// Everything that can still be said of what was seen then.
    pub snapshot: Arc<ClusterSnapshot>,
    /// When; none before the first look.
    pub at: Option<Instant>,
    /// What the store says instead, since then.
    pub error: Option<String>,
}

impl Observation {
    /// How long ago that was; none before the first look.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.at.map(|at| at.elapsed())
    }

    /// The same in milliseconds.
    #[must_use]
    pub fn ms_ago(&self) -> Option<u64> {
        self.age().map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    }

    /// Why nothing is known, for people: what the store says, and since when it was not seen.
    #[must_use]
    pub fn outage(&self) -> String {
        let said = self.error.clone().unwrap_or_else(|| "the store does not answer".to_owned());
        match self.age() {
            Some(age) => format!("the store was last reached {} ago: {said}", crate::time::span(age)),
            None => format!("the store has not been reached yet: {said}"),
        }
    }
}

/// The last look, and how fresh it must be.
#[derive(Debug)]
pub struct ClusterView {
    seen: RwLock<Observation>,
    stale_after: Duration,
    /// When the store was last seen to have lost what it had acknowledged.
    data_lost_at: RwLock<Option<Instant>>,
    /// What is younger than this is taken as it was seen: no lease runs out within a beat.
    beat: Duration,
    /// A request wants the store to be polled now.
    wanted: Notify,
    /// The store was polled.
    polled: Notify,
    /// How often it was.
    polls: AtomicU64,
}

/// How long an answer waits for what it changed to be seen; a store that answers is polled much sooner.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(2);

/// What is older than this is read again for clients that look.
const REFRESH_AFTER: Duration = Duration::from_secs(1);
/// How long a client waits for that.
const REFRESH_LIMIT: Duration = Duration::from_millis(500);

/// For so long a store that has forgotten is no healthy one, as in the alert.
const DATA_LOSS_SHOWN: Duration = Duration::from_secs(15 * 60);

/// Health of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// All is well.
    Healthy,
    /// It works, but an operator should look.
    Degraded,
    /// A role with candidates has no leader, or nothing is known.
    Unhealthy,
}

impl ClusterView {
    /// Nothing yet.
    #[must_use]
    pub fn new(timing: &Timing) -> Self {
        let stale_after = (2 * timing.ttl).max(Duration::from_secs(5));
        Self {
            seen: RwLock::default(),
            stale_after,
            data_lost_at: RwLock::default(),
            beat: timing.beat,
            wanted: Notify::new(),
            polled: Notify::new(),
            polls: AtomicU64::new(0),
        }
    }

    /// How often the registers were read.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// A client looks: what it sees is hardly older than a moment, unless the store does not answer.
    pub async fn refresh(&self) {
        let seen = self.latest();
        let recent = self.beat.min(REFRESH_AFTER);
        if seen.error.is_none() && seen.age().is_some_and(|age| age > recent) {
            let _ = tokio::time::timeout(REFRESH_LIMIT, self.catch_up()).await;
        }
    }

    /// Returns when everything that happened before the call is seen, or cannot be seen for the moment.
    pub async fn catch_up(&self) {
        let asked = Instant::now();
        let caught_up = async {
            loop {
                let polled = self.polled.notified();
                if self.seen.read().unwrap_or_else(PoisonError::into_inner).at >= Some(asked) {
                    return;
                }
                self.wanted.notify_one();
                polled.await;
            }
        };
        let _ = tokio::time::timeout(CATCH_UP_LIMIT, caught_up).await;
    }

    /// What was seen last, and how much of it is still known: see [`ClusterSnapshot::aged`].
    #[must_use]
    pub fn latest(&self) -> Observation {
        let mut seen = self.seen.read().unwrap_or_else(PoisonError::into_inner).clone();
        let age = seen.age().unwrap_or_default();
        if age > self.beat {
            seen.snapshot = Arc::new(seen.snapshot.aged(age));
        }
        seen
    }

    fn change(&self, change: impl FnOnce(&mut Observation)) {
        change(&mut self.seen.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Looks for as long as it is polled, and tells what changes.
    pub async fn run(
        &self,
        operator: &Operator,
        sessions: &SessionsRead,
        events: &Events,
        metrics: &Metrics,
    ) {
        let mut watch = self.begin(operator).await;
        let mut first = true;
        loop {
            let changes = if std::mem::take(&mut first) {
                Ok(Vec::new())
            } else {
                self.look(&mut watch, sessions).await
            };
            match changes {
                Ok(changes) => {
                    self.update(&watch, &changes, events, metrics);
                    reconcile_gaps(operator, metrics).await;
                }
                Err(error) => {
                    self.change(|seen| seen.error = Some(error.to_string()));
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn look(
        &self,
        watch: &mut ClusterWatch,
        sessions: &SessionsRead,
    ) -> Result<Vec<ClusterChange>, tenure::Error> {
        let polled = tokio::select! {
            changes = watch.poll() => changes?,
            () = self.wanted.notified() => watch.poll_now().await?,
            (asked, read) = sessions.next() => return Ok(watch.take_in(&read, asked)),
        };
        self.polls.fetch_add(1, Ordering::Relaxed);
        Ok(polled)
    }

    async fn begin(&self, operator: &Operator) -> ClusterWatch {
        loop {
            match operator.watch().await {
                Ok(watch) => return watch,
                Err(error) => self.change(|seen| seen.error = Some(error.to_string())),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn update(&self, watch: &ClusterWatch, changes: &[ClusterChange], events: &Events, metrics: &Metrics) {
        let shown = self.seen.read().unwrap_or_else(PoisonError::into_inner).at;
        if shown == Some(watch.taken_at()) && changes.is_empty() {
            return;
        }
        let snapshot = Arc::new(watch.snapshot().clone());
        metrics.update(&snapshot, changes, watch.taken_at());
        self.change(|seen| *seen = Observation { snapshot, at: Some(watch.taken_at()), error: None });
        self.polled.notify_waiters();
        for change in changes {
            events.publish_change(change);
            if let ClusterChange::StoreForgot { .. } = change {
                *self.data_lost_at.write().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
        }
    }

    /// Whether the store was seen lately.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        seen.age().is_some_and(|age| age < self.stale_after)
    }

    /// How the cluster fares, and why, the worst first.
    #[must_use]
    pub fn health(&self) -> (Health, Vec<String>) {
        let seen = self.latest();
        let mut found: Vec<(Health, String)> = Vec::new();
        if !self.is_fresh() {
            found.push((Health::Unhealthy, seen.outage()));
        }
        let data_lost_at = *self.data_lost_at.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(ago) = data_lost_at.map(|at| at.elapsed()).filter(|ago| *ago < DATA_LOSS_SHOWN) {
            let ago = crate::time::span(ago);
            let why =
                format!("the store lost acknowledged writes {ago} ago: see `docs/guides/operations.md`");
            found.push((Health::Unhealthy, why));
        }
        assess_roles(&seen.snapshot, &mut found);
        assess_nodes(&seen.snapshot, &mut found);
        if !seen.snapshot.unreadable.is_empty() {
            let registers = match seen.snapshot.unreadable.len() {
                1 => "a register".to_owned(),
                count => format!("{count} registers"),
            };
            found.push((Health::Degraded, format!("this version cannot read {registers}")));
        }
        found.sort_by_key(|(health, _)| std::cmp::Reverse(*health));
        let worst = found.first().map_or(Health::Healthy, |(health, _)| *health);
        (worst, found.into_iter().map(|(_, why)| why).collect())
    }
}

/// What happened while this agent could not look is told by the books that the leaders keep.
async fn reconcile_gaps(operator: &Operator, metrics: &Metrics) {
    let roles = metrics.unreconciled();
    if !roles.is_empty()
        && let Ok(books) = operator.histories(&roles).await
    {
        metrics.reconcile(&books);
    }
}

fn assess_roles(snapshot: &ClusterSnapshot, found: &mut Vec<(Health, String)>) {
    let mut add = |health, what: &str, wrong: &dyn Fn(&RoleReport) -> bool| {
        let names: Vec<&Name> =
            snapshot.roles.iter().filter(|role| wrong(role)).map(|role| &role.role).collect();
        if !names.is_empty() {
            found.push((health, format!("{what}: {}", first_names(&names))));
        }
    };
    let vacant = |role: &RoleReport| role.state == RoleState::Vacant;
    add(Health::Unhealthy, "no leader, although there are candidates", &|role| {
        vacant(role) && !role.candidates.is_empty()
    });
    add(Health::Unhealthy, "leader unknown, because the store is unreachable", &|role| {
        role.state == RoleState::Unknown
    });
    add(Health::Unhealthy, "silent leader", &|role| role.state == RoleState::Silent);
    add(Health::Degraded, "no leader and no candidates", &|role| vacant(role) && role.candidates.is_empty());
    // As an operator wants it: worth knowing, and no trouble.
    add(Health::Healthy, "paused by an operator", &|role| role.state == RoleState::Paused);
}

fn assess_nodes(snapshot: &ClusterSnapshot, found: &mut Vec<(Health, String)>) {
    let silent: Vec<&Name> =
        snapshot.nodes.iter().filter(|node| node.state == NodeState::Silent).map(|node| &node.node).collect();
    if !silent.is_empty() {
        found.push((Health::Degraded, format!("silent nodes: {}", first_names(&silent))));
    }
}

/// The first few of many names.
fn first_names(names: &[&Name]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(|name| name.as_str()).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
