//! Metrics, in Prometheus text and OpenMetrics. What they mean is in [`METRICS`], and in `docs/reference/metrics.md` from there.
//!
//! What this node leads is computed when it is asked, from the deadline: a hung loop cannot claim to lead. Counters are
//! fed by the node's own events, by each look at the cluster, and by the meter on the store.

mod tasks;
mod text;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tenure::event::EventKind;
use tenure::operator::{ClusterChange, ClusterSnapshot, NodeState, RoleReport, RoleState};
use tenure::store::{Fate, StoreError};
use tenure::{EndReason, Event, Name, StartReason};

use super::alerts::AlertManager;
use super::candidacies::Candidacies;
use super::config::MetricsConfig;
use super::gaps::{Gaps, Reconciled, Succession};
use tasks::Tasks;
pub use text::ExpositionFormat;

/// Every metric: its name after the prefix, its type, its meaning.
pub const METRICS: &[(&str, &str, &str)] = &[
    (
        "is_leader",
        "gauge",
        "1 if this node leads the role now, by its deadline; 0 if it is a candidate, and in shadow mode",
    ),
    ("elections_total", "counter", "tenures of this node, by role"),
    ("tenure_seconds", "gauge", "age of the current tenure of this node; 0 without one"),
    (
        "failovers_total",
        "counter",
        "tenures of this node that followed a failed leader; the sum over all nodes counts each once",
    ),
    (
        "lease_remaining_seconds",
        "gauge",
        "remaining lease if nothing more is heard from the store; 0 without leadership",
    ),
    (
        "leaderless_seconds_total",
        "counter",
        "leaderless time of the role: from the last beat of a failed leader, or the end that a leader measured itself, to the next tenure; every agent counts it, so take the max",
    ),
    (
        "led",
        "gauge",
        "1 if the role has a live leader, 0 if not or unknown, as this agent sees the cluster; absent while the role is paused. Every agent reports every role, so take the max",
    ),
    ("roles", "gauge", "roles of the cluster by state, as this agent sees them"),
    ("nodes", "gauge", "nodes of the cluster by state, as this agent sees them"),
    ("leading", "gauge", "roles that this node leads now; none in shadow mode"),
    ("in_doubt", "gauge", "1 from the first failed beat to the next that succeeds"),
    ("doubts_total", "counter", "how often in_doubt became 1"),
    ("beat_seconds", "histogram", "latency of the store for each beat of this node"),
    ("beat_failures_total", "counter", "beats that the store did not acknowledge"),
    ("handover_seconds", "histogram", "leaderless time after a leader resigned, as this agent saw it"),
    ("failover_seconds", "histogram", "leaderless time after a leader failed, as this agent saw it"),
    (
        "store_errors_total",
        "counter",
        "store errors, by operation and by fate of the write (unknown, not-applied)",
    ),
    (
        "loop_turned_seconds",
        "gauge",
        "time since the last turn of the election loop; more than a ttl means that it hangs",
    ),
    (
        "cluster_view_age_seconds",
        "gauge",
        "time since this agent last read the cluster from the store; it grows while the store is unreachable",
    ),
    (
        "store_forgot_total",
        "counter",
        "how often this agent saw that the store had lost acknowledged writes: a token fell, or everything was gone",
    ),
    (
        "store_weakened",
        "gauge",
        "1 if the store became able to lose acknowledged writes since this node started; see `tenure doctor`",
    ),
    (
        "work_failures_total",
        "counter",
        "failures of the work of this node, by role: it did not start, died, hung, panicked or failed its health check; each start counts",
    ),
    ("task_runs_total", "counter", "runs of scheduled tasks that this node started, by task"),
    ("task_failures_total", "counter", "runs that failed or timed out"),
    ("task_cancelled_total", "counter", "runs that were stopped because their leader had to stop"),
    ("task_late_total", "counter", "runs that began later than the task's `late` allows"),
    ("task_missed_total", "counter", "ticks that this node found missed: no node started them in time"),
    ("task_skipped_total", "counter", "ticks that this node skipped on purpose"),
    ("task_running", "gauge", "runs in progress on this node"),
    ("task_seconds", "histogram", "duration of runs"),
    ("events_total", "counter", "events of this node, by kind"),
    ("alerts", "gauge", "1 for each alert with its severity and its state, as this agent evaluates it"),
    (
        "alert_deliveries_total",
        "counter",
        "notifications that this agent delivered, or failed to deliver, by target",
    ),
    ("log_lines_dropped_total", "counter", "log lines dropped because stderr was not read in time"),
    ("build_info", "gauge", "1, with the version, the node and the namespace"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabel {
    role: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    op: &'static str,
    fate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertLabels {
    alert: String,
    severity: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeliveryLabels {
    target: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    node: String,
    namespace: String,
}

/// What the store did.
#[derive(Debug)]
pub struct StoreMeter {
    beats: Histogram,
    failures: Counter,
    errors: Family<ErrorLabels, Counter>,
}

impl Default for StoreMeter {
    fn default() -> Self {
        let (failures, errors) = (Counter::default(), Family::<ErrorLabels, Counter>::default());
        for op in ["read", "write"] {
            for fate in ["unknown", "not-applied"] {
                drop(errors.get_or_create(&ErrorLabels { op, fate }));
            }
        }
        Self { beats: seconds(), failures, errors }
    }
}

impl StoreMeter {
    /// An operation ended, perhaps with an error.
    pub fn outcome(&self, op: &'static str, error: Option<&StoreError>) {
        if let Some(error) = error {
            let fate = if error.fate() == Fate::Unknown { "unknown" } else { "not-applied" };
            self.errors.get_or_create(&ErrorLabels { op, fate }).inc();
        }
    }

    /// A beat was answered.
    pub fn beat(&self, took: Duration, acknowledged: bool) {
        self.beats.observe(took.as_secs_f64());
        if !acknowledged {
            self.failures.inc();
        }
    }
}

/// From 100 µs to about a minute.
fn seconds() -> Histogram {
    Histogram::new((0..20).map(|step| 0.0001 * 2_f64.powi(step)))
}

/// What is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    node: Name,
    limit: usize,
    began: Instant,
    /// One without the other tells nothing.
    state: Mutex<State>,
    elections: Family<RoleLabel, Counter>,
    failovers: Family<RoleLabel, Counter>,
    work_failures: Family<RoleLabel, Counter>,
    events: Family<EventLabel, Counter>,
    in_doubt: Counter,
    forgot: Counter,
    handover: Histogram,
    failover: Histogram,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct State {
    candidacies: Option<Arc<Candidacies>>,
    alert_manager: Option<Arc<AlertManager>>,
    loop_turned: Option<tenure::Node>,
    gaps: Gaps,
    /// Of other nodes, by role and node; of one whose tenure was too short to be seen there is no name.
    others: std::collections::BTreeMap<(Name, Option<Name>), OthersCounts>,
    /// The last tenure of this node in each role.
    own_tokens: std::collections::BTreeMap<Name, tenure::Token>,
    /// Roles without a leader because it gave them up, or stopped.
    given_up: std::collections::BTreeSet<Name>,
    snapshot: Arc<ClusterSnapshot>,
    looked: Option<Instant>,
    elected: std::collections::BTreeMap<Name, Instant>,
    doubtful: bool,
    weakened: bool,
}

/// What an agent has seen of another node in a role.
#[derive(Debug, Clone, Copy, Default)]
pub struct OthersCounts {
    /// Its tenures.
    pub elections: u64,
    /// Those that followed a leader which failed.
    pub failovers: u64,
    /// Those that ended because its work failed.
    pub work_failures: u64,
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(config: &MetricsConfig, node: &Name, namespace: &Name, meter: &StoreMeter) -> Self {
        let counts = Arc::new(Counts {
            node: node.clone(),
            limit: config.roles,
            began: Instant::now(),
            state: Mutex::default(),
            elections: Family::default(),
            failovers: Family::default(),
            work_failures: Family::default(),
            events: Family::default(),
            in_doubt: Counter::default(),
            forgot: Counter::default(),
            handover: seconds(),
            failover: seconds(),
            tasks: Tasks::new(config.roles),
        });
        for (kind, _) in super::events::EVENTS.iter().filter(|(kind, says)| is_counted(kind, says)) {
            drop(counts.events.get_or_create(&EventLabel { event: (*kind).to_owned() }));
        }
        let mut registry = Registry::with_prefix(&config.prefix);
        registry.register("doubts", help_of("doubts_total"), counts.in_doubt.clone());
        registry.register("store_forgot", help_of("store_forgot_total"), counts.forgot.clone());
        registry.register("beat_seconds", help_of("beat_seconds"), meter.beats.clone());
        registry.register("beat_failures", help_of("beat_failures_total"), meter.failures.clone());
        registry.register("handover_seconds", help_of("handover_seconds"), counts.handover.clone());
        registry.register("failover_seconds", help_of("failover_seconds"), counts.failover.clone());
        registry.register("store_errors", help_of("store_errors_total"), meter.errors.clone());
        registry.register("events", help_of("events_total"), counts.events.clone());
        registry.register_collector(Box::new(ScrapeCollector {
            counts: counts.clone(),
            namespace: namespace.clone(),
        }));
        Self { registry: Mutex::new(registry), counts }
    }

    /// From now on what this node leads is told, too.
    pub fn attach(&self, node: &tenure::Node, candidacies: &Arc<Candidacies>) {
        let mut state = self.counts.state();
        (state.candidacies, state.loop_turned) = (Some(candidacies.clone()), Some(node.clone()));
    }

    /// From now on alerts are told, too.
    pub fn attach_alerts(&self, alert_manager: &Arc<AlertManager>) {
        self.counts.state().alert_manager = Some(alert_manager.clone());
    }

    /// What other nodes did, as far as this agent has seen it, by role and node. A tenure that was over before it was
    /// seen has no node.
    #[must_use]
    pub fn others(&self) -> Vec<((Name, Option<Name>), OthersCounts)> {
        self.counts.state().others.iter().map(|(key, counts)| (key.clone(), *counts)).collect()
    }

    /// Counts an event of this node.
    pub fn count_event(&self, event: &Event) {
        let kind = serde_json::to_value(&event.kind).ok();
        let kind = kind.as_ref().and_then(|value| value["event"].as_str()).unwrap_or("unknown").to_owned();
        self.counts.events.get_or_create(&EventLabel { event: kind }).inc();
        let mut state = self.counts.state();
        match &event.kind {
            EventKind::Elected { role, token, .. } => {
                state.elected.insert(role.clone(), Instant::now());
                state.own_tokens.insert(role.clone(), *token);
                self.counts.series_of(&self.counts.elections, role, &state).inc();
            }
            EventKind::Lost { role, .. } => _ = state.elected.remove(role),
            EventKind::InDoubt { .. } => {
                state.doubtful = true;
                self.counts.in_doubt.inc();
            }
            EventKind::Certain { .. } | EventKind::SessionOpened { .. } => state.doubtful = false,
            EventKind::StoreWeakened { .. } => state.weakened = true,
            EventKind::WorkRestarted { role, .. } | EventKind::WorkFailed { role, .. } => {
                self.counts.series_of(&self.counts.work_failures, role, &state).inc();
            }
            EventKind::TaskEnded { task, took_ms, .. } => {
                let known =
                    state.candidacies.as_ref().map_or(0, |candidacies| candidacies.counters().known());
                self.counts.tasks.ended(task, Duration::from_millis(*took_ms), known);
            }
            _ => {}
        }
    }

    /// Counts what a look at the cluster showed.
    pub fn update(&self, snapshot: &Arc<ClusterSnapshot>, changes: &[ClusterChange], began: Instant) {
        let mut state = self.counts.state();
        for change in changes {
            self.counts.changed(change, &mut state, snapshot);
        }
        state.gaps.observe(snapshot);
        (state.looked, state.snapshot) = (Some(began), snapshot.clone());
    }

    /// Roles of which only the history tells for how long they had no leader.
    #[must_use]
    pub fn unreconciled(&self) -> Vec<Name> {
        self.counts.state().gaps.unreconciled()
    }

    /// Takes in what the history says of them.
    pub fn reconcile(&self, books: &std::collections::BTreeMap<Name, tenure::history::RoleHistory>) {
        let mut state = self.counts.state();
        for Reconciled { role, gap, succession, turned_out_failed } in state.gaps.reconcile(books) {
            if succession.failed || turned_out_failed {
                self.counts.failover.observe(gap.as_secs_f64());
            } else if succession.another {
                self.counts.handover.observe(gap.as_secs_f64());
            }
            if turned_out_failed {
                self.counts.count_failover(&role, &succession.leader, &mut state);
            }
        }
    }

    /// All of it.
    #[must_use]
    pub fn text(&self, form: ExpositionFormat) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        form.of(text)
    }
}

/// Whether an event is one of a node itself, by what is said of it. Alerts have a metric of their own.
fn is_counted(kind: &str, says: &str) -> bool {
    let of_a_node = |(scopes, _): (&str, &str)| scopes.split(", ").any(|scope| scope == "node");
    !kind.starts_with("alert-") && says.split_once(':').is_some_and(of_a_node)
}

fn has_stopped(node: &Name, now: &ClusterSnapshot) -> bool {
    now.node(node).is_some_and(|report| report.state == NodeState::Closed)
}

impl Counts {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The series of a role; one for all where there are too many.
    fn series_of<'a>(
        &self,
        family: &'a Family<RoleLabel, Counter>,
        role: &Name,
        state: &State,
    ) -> impl std::ops::Deref<Target = Counter> + 'a {
        let role = if self.too_many(state) { ALL.to_owned() } else { role.to_string() };
        family.get_or_create(&RoleLabel { role })
    }

    fn too_many(&self, state: &State) -> bool {
        state.snapshot.roles.len() > self.limit || state.elected.len() > self.limit
    }

    fn changed(&self, change: &ClusterChange, state: &mut State, now: &ClusterSnapshot) {
        match change {
            ClusterChange::Vacant { role, reason, former, token } => {
                state.given_up.insert(role.clone());
                if *reason == Some(EndReason::WorkFailed) && state.own_tokens.get(role) != Some(token) {
                    state.others.entry((role.clone(), former.clone())).or_default().work_failures += 1;
                }
            }
            ClusterChange::StoreForgot { .. } => _ = self.forgot.inc(),
            ClusterChange::LeaderLost { role, .. } => _ = state.given_up.remove(role),
            ClusterChange::LeaderChanged { role, leader, reason: Some(reason), former, .. } => {
                let given_up = state.given_up.remove(role);
                let stopped = former.as_ref().map_or(given_up, |former| has_stopped(former, now));
                // One that stops closes its session, which frees all its roles at once: its successors take them over.
                let over = *reason == StartReason::Takeover;
                let (failed, closed) = (over && !stopped, over && stopped);
                let another = former.as_ref() != Some(leader);
                let succession = Succession { leader: leader.clone(), failed, closed, another };
                self.observe(role, *reason, &succession, state);
                if *leader != self.node {
                    state.others.entry((role.clone(), Some(leader.clone()))).or_default().elections += 1;
                }
                if failed {
                    self.count_failover(role, leader, state);
                }
            }
            _ => {}
        }
    }

    /// How long no node led.
    fn observe(&self, role: &Name, reason: StartReason, succession: &Succession, state: &mut State) {
        // What this agent did not watch is told later, by the history.
        let Some(gap) = state.gaps.end(role, succession) else { return };
        let gap = gap.as_secs_f64();
        match reason {
            _ if succession.failed => self.failover.observe(gap),
            StartReason::First => {}
            _ if succession.another => self.handover.observe(gap),
            _ => {}
        }
    }

    /// A tenure of this leader followed a leader that failed.
    fn count_failover(&self, role: &Name, leader: &Name, state: &mut State) {
        if *leader == self.node {
            self.series_of(&self.failovers, role, state).inc();
        } else {
            state.others.entry((role.clone(), Some(leader.clone()))).or_default().failovers += 1;
        }
    }
}

/// The role of a series that stands for all of them.
const ALL: &str = "";

/// What is computed when it is asked.
struct ScrapeCollector {
    counts: Arc<Counts>,
    namespace: Name,
}

impl fmt::Debug for ScrapeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScrapeCollector")
    }
}

impl Collector for ScrapeCollector {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let state = self.counts.state();
        let mine = state.candidacies.as_ref().map(|candidacies| candidacies.leads()).unwrap_or_default();
        // Prometheus sees no increase of a series that begins with its first event.
        for (role, _) in &mine {
            for family in [&self.counts.elections, &self.counts.failovers, &self.counts.work_failures] {
                drop(self.counts.series_of(family, role, &state));
            }
        }
        let leading = mine.iter().filter(|(_, lead)| lead.is_some()).count();
        let age = state.looked.unwrap_or(self.counts.began).elapsed();
        let seen = state.snapshot.aged(age);
        if !self.counts.too_many(&state) {
            self.encode_roles(&mut to, &state, &seen, &mine)?;
        }
        counters(&mut to, "elections", &self.counts.elections)?;
        counters(&mut to, "failovers", &self.counts.failovers)?;
        counters(&mut to, "work_failures", &self.counts.work_failures)?;
        let by_state = |states: Vec<(String, usize)>| -> Vec<(StateLabel, f64)> {
            states.into_iter().map(|(state, count)| (StateLabel { state }, count as f64)).collect()
        };
        gauges(&mut to, "roles", &by_state(role_states(&seen)))?;
        gauges(&mut to, "nodes", &by_state(node_states(&seen)))?;
        let turned = state.loop_turned.as_ref().map(|node| node.since_loop_turn().as_secs_f64());
        for (name, value) in [
            ("leading", Some(leading as f64)),
            ("in_doubt", Some(f64::from(u8::from(state.doubtful)))),
            ("store_weakened", Some(f64::from(u8::from(state.weakened)))),
            ("loop_turned_seconds", turned),
            ("cluster_view_age_seconds", Some(age.as_secs_f64())),
        ] {
            if let Some(value) = value {
                gauges::<[(&str, &str); 0]>(&mut to, name, &[([], value)])?;
            }
        }
        let counted =
            state.candidacies.as_ref().map(|candidacies| candidacies.counters().all()).unwrap_or_default();
        self.counts.tasks.encode(&mut to, &counted)?;
        encode_alerts(&mut to, state.alert_manager.as_deref())?;
        let dropped = ConstCounter::new(crate::log::dropped());
        let name = "log_lines_dropped";
        dropped.encode(to.encode_descriptor(
            name,
            help_of("log_lines_dropped_total"),
            None,
            MetricType::Counter,
        )?)?;
        let version = env!("CARGO_PKG_VERSION");
        let build = BuildLabels {
            version,
            node: self.counts.node.to_string(),
            namespace: self.namespace.to_string(),
        };
        gauges(&mut to, "build_info", &[(build, 1.0)])
    }
}

impl ScrapeCollector {
    fn encode_roles(
        &self,
        to: &mut DescriptorEncoder<'_>,
        state: &State,
        seen: &ClusterSnapshot,
        mine: &[(Name, Option<tenure::Lead>)],
    ) -> Result<(), fmt::Error> {
        let of = |role: &Name| RoleLabel { role: role.to_string() };
        let (mut is_leader, mut tenure, mut lease) = (Vec::new(), Vec::new(), Vec::new());
        for (role, lead) in mine {
            // Asked once more, because the list was made a moment ago.
            let leads = lead.as_ref().is_some_and(tenure::Lead::check);
            let since = state.elected.get(role).filter(|_| leads).map(|since| since.elapsed().as_secs_f64());
            let left = lead.as_ref().map(|lead| lead.remaining().as_secs_f64());
            is_leader.push((of(role), f64::from(u8::from(leads))));
            tenure.push((of(role), since.unwrap_or(0.0)));
            lease.push((of(role), left.unwrap_or(0.0)));
        }
        gauges(to, "is_leader", &is_leader)?;
        gauges(to, "tenure_seconds", &tenure)?;
        gauges(to, "lease_remaining_seconds", &lease)?;
        let wanted = seen.roles.iter().filter(|role| role.paused.is_none());
        let led = |role: &RoleReport| (of(&role.role), f64::from(u8::from(role.state == RoleState::Led)));
        gauges(to, "led", &wanted.map(led).collect::<Vec<_>>())?;
        let leaderless =
            seen.roles.iter().map(|role| (of(&role.role), state.gaps.total(&role.role).as_secs_f64()));
        let help = help_of("leaderless_seconds_total");
        let mut encoder = to.encode_descriptor("leaderless_seconds", help, None, MetricType::Counter)?;
        for (labels, value) in leaderless {
            ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The state of each alert, and how often people were told.
fn encode_alerts(
    to: &mut DescriptorEncoder<'_>,
    alert_manager: Option<&AlertManager>,
) -> Result<(), fmt::Error> {
    let (alerts, deliveries) = alert_manager.map(AlertManager::counts).unwrap_or_default();
    let alert = |(alert, severity, state)| (AlertLabels { alert, severity, state }, 1.0);
    gauges(to, "alerts", &alerts.into_iter().map(alert).collect::<Vec<_>>())?;
    let help = help_of("alert_deliveries_total");
    let mut encoder = to.encode_descriptor("alert_deliveries", help, None, MetricType::Counter)?;
    for (target, outcome, count) in deliveries {
        ConstCounter::new(count).encode(encoder.encode_family(&DeliveryLabels { target, outcome })?)?;
    }
    Ok(())
}

fn counters(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    family: &Family<RoleLabel, Counter>,
) -> Result<(), fmt::Error> {
    let encoder = to.encode_descriptor(name, help_of(&format!("{name}_total")), None, MetricType::Counter)?;
    family.encode(encoder)
}

fn gauges<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    series: &[(L, f64)],
) -> Result<(), fmt::Error> {
    let mut encoder = to.encode_descriptor(name, help_of(name), None, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(*value).encode(encoder.encode_family(labels)?)?;
    }
    Ok(())
}

fn help_of(name: &str) -> &'static str {
    METRICS.iter().find(|(known, ..)| *known == name).map_or("", |(_, _, help)| *help)
}

fn role_states(snapshot: &ClusterSnapshot) -> Vec<(String, usize)> {
    let count = |state| snapshot.roles.iter().filter(|role| role.state == state).count();
    RoleState::ALL.into_iter().map(|state| (state.to_string(), count(state))).collect()
}

fn node_states(snapshot: &ClusterSnapshot) -> Vec<(String, usize)> {
    let count = |state| snapshot.nodes.iter().filter(|node| node.state == state).count();
    NodeState::ALL.into_iter().map(|state| (state.to_string(), count(state))).collect()
}

/// The table of `docs/reference/metrics.md`.
#[must_use]
pub fn table() -> String {
    let mut text = String::from("| metric | type | meaning |\n|---|---|---|\n");
    for (name, kind, meaning) in METRICS {
        text.push_str(&format!("| `{name}` | {kind} | {meaning} |\n"));
    }
    text
}
