//! Metrics, in Prometheus text and OpenMetrics. What they mean is in [`METRICS`], and in `docs/agent.md` from there.
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
use tenure::event::What;
use tenure::operator::{Change, NodeState, RoleState, Snapshot};
use tenure::store::{Fate, StoreError};
use tenure::{Event, Name, Reason};

use super::alerts::Desk;
use super::config::MetricsConfig;
use super::roster::Roster;
use super::sight::Gaps;
use tasks::Tasks;
pub use text::Form;

/// Every metric: its name after the prefix, its type, its meaning.
pub const METRICS: &[(&str, &str, &str)] = &[
    (
        "is_leader",
        "gauge",
        "1 if this node leads the role at this very moment, by its deadline; 0 if it stands and does not",
    ),
    ("elections_total", "counter", "tenures of this node, by role"),
    ("tenure_seconds", "gauge", "how long this node has led the role without interruption; 0 if it does not"),
    (
        "failovers_total",
        "counter",
        "tenures of this node that followed a leader which had died or fallen silent; the sum over all nodes counts each once",
    ),
    (
        "lease_remaining_seconds",
        "gauge",
        "how long leadership may be relied on if nothing more is heard from the store; 0 without it",
    ),
    (
        "leaderless_seconds_total",
        "counter",
        "how long this agent has seen the role without a leader that beats; every agent sees it, so take the max",
    ),
    ("roles", "gauge", "roles of the cluster by state, as this agent sees them"),
    ("nodes", "gauge", "nodes of the cluster by state, as this agent sees them"),
    ("leading", "gauge", "how many roles this node leads at this very moment"),
    ("in_doubt", "gauge", "1 from the first failed beat to the next that succeeds"),
    ("doubts_total", "counter", "how often that began"),
    ("beat_seconds", "histogram", "how long the store took for each beat of this node"),
    ("beat_failures_total", "counter", "beats that the store did not acknowledge"),
    (
        "handover_seconds",
        "histogram",
        "how long this agent saw nobody lead before somebody took over from a leader that gave up",
    ),
    ("failover_seconds", "histogram", "the same after a leader that had died or fallen silent"),
    (
        "store_errors_total",
        "counter",
        "answers of the store that were errors, by operation and by what may be assumed (unknown, not-applied)",
    ),
    (
        "loop_turned_seconds",
        "gauge",
        "how long ago the election loop last turned; more than a ttl means that it hangs",
    ),
    (
        "sight_age_seconds",
        "gauge",
        "how long ago the cluster was last looked at; it grows while the store is gone",
    ),
    ("task_runs_total", "counter", "runs of scheduled tasks that this node started, by task"),
    ("task_failures_total", "counter", "those of them that failed or took too long"),
    ("task_cancelled_total", "counter", "those of them that were stopped because their leader had to stop"),
    ("task_late_total", "counter", "those of them that began later than the task's `late` allows"),
    ("task_missed_total", "counter", "ticks that this node found missed: nobody could start them in time"),
    ("task_skipped_total", "counter", "ticks that this node passed over on purpose"),
    ("task_running", "gauge", "runs that go on here at this moment"),
    ("task_seconds", "histogram", "how long runs took"),
    ("events_total", "counter", "events of this node, by kind"),
    ("alerts", "gauge", "1 for each alert with its severity and its state, as this agent evaluates it"),
    (
        "alert_deliveries_total",
        "counter",
        "how often this agent told a target of alerts, and how often it could not",
    ),
    ("log_lines_dropped_total", "counter", "log lines that nobody read in time"),
    ("build_info", "gauge", "1, with the version, the node and the namespace"),
];

/// A label with a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRole {
    role: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEvent {
    event: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfError {
    op: &'static str,
    fate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAlert {
    alert: String,
    severity: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDelivery {
    target: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    node: String,
    namespace: String,
}

/// What the store did.
#[derive(Debug)]
pub struct StoreMeter {
    beats: Histogram,
    failures: Counter,
    errors: Family<OfError, Counter>,
}

impl Default for StoreMeter {
    fn default() -> Self {
        let (failures, errors) = (Counter::default(), Family::<OfError, Counter>::default());
        for op in ["read", "write"] {
            for fate in ["unknown", "not-applied"] {
                drop(errors.get_or_create(&OfError { op, fate }));
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
            self.errors.get_or_create(&OfError { op, fate }).inc();
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
    /// One without the other tells nothing.
    state: Mutex<State>,
    elections: Family<OfRole, Counter>,
    failovers: Family<OfRole, Counter>,
    events: Family<OfEvent, Counter>,
    in_doubt: Counter,
    handover: Histogram,
    failover: Histogram,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct State {
    roster: Option<Arc<Roster>>,
    desk: Option<Arc<Desk>>,
    loop_turned: Option<tenure::Node>,
    gaps: Gaps,
    /// Elections and fail-overs of other nodes, by role and node.
    others: std::collections::BTreeMap<(Name, Name), (u64, u64)>,
    leaderless: std::collections::BTreeMap<Name, Duration>,
    /// Roles that nobody leads because their leader gave them up, or stopped.
    given_up: std::collections::BTreeSet<Name>,
    snapshot: Arc<Snapshot>,
    looked: Option<Instant>,
    elected: std::collections::BTreeMap<Name, Instant>,
    doubtful: bool,
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(config: &MetricsConfig, node: &Name, namespace: &Name, meter: &StoreMeter) -> Self {
        let counts = Arc::new(Counts {
            node: node.clone(),
            limit: config.roles,
            state: Mutex::default(),
            elections: Family::default(),
            failovers: Family::default(),
            events: Family::default(),
            in_doubt: Counter::default(),
            handover: seconds(),
            failover: seconds(),
            tasks: Tasks::new(config.roles),
        });
        let mut registry = Registry::with_prefix(&config.prefix);
        registry.register("doubts", help_of("doubts_total"), counts.in_doubt.clone());
        registry.register("beat_seconds", help_of("beat_seconds"), meter.beats.clone());
        registry.register("beat_failures", help_of("beat_failures_total"), meter.failures.clone());
        registry.register("handover_seconds", help_of("handover_seconds"), counts.handover.clone());
        registry.register("failover_seconds", help_of("failover_seconds"), counts.failover.clone());
        registry.register("store_errors", help_of("store_errors_total"), meter.errors.clone());
        registry.register("events", help_of("events_total"), counts.events.clone());
        registry
            .register_collector(Box::new(AtScrape { counts: counts.clone(), namespace: namespace.clone() }));
        Self { registry: Mutex::new(registry), counts }
    }

    /// From now on what this node leads is told, too.
    pub fn attach(&self, node: &tenure::Node, roster: &Arc<Roster>) {
        let mut state = self.counts.state();
        (state.roster, state.loop_turned) = (Some(roster.clone()), Some(node.clone()));
    }

    /// From now on alerts are told, too.
    pub fn attach_alerts(&self, desk: &Arc<Desk>) {
        self.counts.state().desk = Some(desk.clone());
    }

    /// Elections and fail-overs of other nodes, as far as this agent has seen them: role, node, how many of each.
    #[must_use]
    pub fn others(&self) -> Vec<(Name, Name, u64, u64)> {
        let state = self.counts.state();
        let all = state.others.iter().map(|((role, node), (elections, failovers))| {
            (role.clone(), node.clone(), *elections, *failovers)
        });
        all.collect()
    }

    /// Counts an event of this node.
    pub fn heard(&self, event: &Event) {
        let kind = serde_json::to_value(&event.what).ok();
        let kind = kind.as_ref().and_then(|value| value["event"].as_str()).unwrap_or("unknown").to_owned();
        self.counts.events.get_or_create(&OfEvent { event: kind }).inc();
        let mut state = self.counts.state();
        match &event.what {
            What::Elected { role, .. } => {
                state.elected.insert(role.clone(), Instant::now());
                self.counts.of_role(&self.counts.elections, role, &state).inc();
            }
            What::Lost { role, .. } => _ = state.elected.remove(role),
            What::InDoubt { .. } => {
                state.doubtful = true;
                self.counts.in_doubt.inc();
            }
            What::Certain { .. } | What::SessionOpened { .. } => state.doubtful = false,
            What::TaskEnded { task, took_ms, .. } => {
                let known = state.roster.as_ref().map_or(0, |roster| roster.counters().known());
                self.counts.tasks.ended(task, Duration::from_millis(*took_ms), known);
            }
            _ => {}
        }
    }

    /// Counts what a look at the cluster showed.
    pub fn looked(&self, snapshot: &Arc<Snapshot>, changes: &[Change]) {
        let mut state = self.counts.state();
        for change in changes {
            self.counts.changed(change, &mut state, snapshot);
        }
        let since = state.looked.map(|looked| looked.elapsed()).unwrap_or_default();
        let vacant: Vec<Name> = state.gaps.look(snapshot).into_iter().cloned().collect();
        for role in vacant {
            *state.leaderless.entry(role).or_default() += since;
        }
        (state.looked, state.snapshot) = (Some(Instant::now()), snapshot.clone());
    }

    /// All of it.
    #[must_use]
    pub fn text(&self, form: Form) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        form.of(text)
    }
}

fn has_stopped(node: &Name, now: &Snapshot) -> bool {
    now.node(node).is_some_and(|report| report.state == NodeState::Closed)
}

impl Counts {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The series of a role; one for all where there are too many.
    fn of_role<'a>(
        &self,
        family: &'a Family<OfRole, Counter>,
        role: &Name,
        state: &State,
    ) -> impl std::ops::Deref<Target = Counter> + 'a {
        let role = if self.too_many(state) { ALL.to_owned() } else { role.to_string() };
        family.get_or_create(&OfRole { role })
    }

    fn too_many(&self, state: &State) -> bool {
        state.snapshot.roles.len() > self.limit || state.elected.len() > self.limit
    }

    fn changed(&self, change: &Change, state: &mut State, now: &Snapshot) {
        match change {
            Change::Vacant { role, .. } => _ = state.given_up.insert(role.clone()),
            Change::LeaderLost { role, .. } => _ = state.given_up.remove(role),
            Change::LeaderChanged { role, leader, reason: Some(reason), former, .. } => {
                let given_up = state.given_up.remove(role);
                let stopped = former.as_ref().map_or(given_up, |former| has_stopped(former, now));
                // One that stops closes its session, which frees all its roles at once: its successors take them over.
                let failed = *reason == Reason::Takeover && !stopped;
                self.observe(role, *reason, failed, former.as_ref() != Some(leader), state);
                self.count(role, leader, failed, state);
            }
            _ => {}
        }
    }

    /// How long nobody led.
    fn observe(&self, role: &Name, reason: Reason, failed: bool, another: bool, state: &State) {
        let gap = state.gaps.of(role).as_secs_f64();
        match reason {
            _ if failed => self.failover.observe(gap),
            Reason::First => {}
            _ if another => self.handover.observe(gap),
            _ => {}
        }
    }

    /// Whose tenure it is, and whether it followed a leader that failed.
    fn count(&self, role: &Name, leader: &Name, failed: bool, state: &mut State) {
        if *leader != self.node {
            let (elections, failovers) = state.others.entry((role.clone(), leader.clone())).or_default();
            *elections += 1;
            *failovers += u64::from(failed);
        } else if failed {
            self.of_role(&self.failovers, role, state).inc();
        }
    }
}

/// The role of a series that stands for all of them.
const ALL: &str = "";

/// What is computed when it is asked.
struct AtScrape {
    counts: Arc<Counts>,
    namespace: Name,
}

impl fmt::Debug for AtScrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtScrape")
    }
}

impl Collector for AtScrape {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let state = self.counts.state();
        let mine = state.roster.as_ref().map(|roster| roster.leads()).unwrap_or_default();
        let leading = mine.iter().filter(|(_, lead)| lead.is_some()).count();
        if !self.counts.too_many(&state) {
            self.of_roles(&mut to, &state, &mine)?;
        }
        counters(&mut to, "elections", &self.counts.elections)?;
        counters(&mut to, "failovers", &self.counts.failovers)?;
        let by_state = |states: Vec<(String, usize)>| -> Vec<(OfState, f64)> {
            states.into_iter().map(|(state, count)| (OfState { state }, count as f64)).collect()
        };
        gauges(&mut to, "roles", &by_state(role_states(&state.snapshot)))?;
        gauges(&mut to, "nodes", &by_state(node_states(&state.snapshot)))?;
        let turned = state.loop_turned.as_ref().map(|node| node.loop_turned().as_secs_f64());
        let age = state.looked.map(|looked| looked.elapsed().as_secs_f64());
        for (name, value) in [
            ("leading", Some(leading as f64)),
            ("in_doubt", Some(f64::from(u8::from(state.doubtful)))),
            ("loop_turned_seconds", turned),
            ("sight_age_seconds", age),
        ] {
            if let Some(value) = value {
                gauges::<[(&str, &str); 0]>(&mut to, name, &[([], value)])?;
            }
        }
        let counted = state.roster.as_ref().map(|roster| roster.counters().all()).unwrap_or_default();
        self.counts.tasks.encode(&mut to, &counted)?;
        of_alerts(&mut to, state.desk.as_deref())?;
        let dropped = ConstCounter::new(crate::output::log::dropped());
        let name = "log_lines_dropped";
        dropped.encode(to.encode_descriptor(
            name,
            help_of("log_lines_dropped_total"),
            None,
            MetricType::Counter,
        )?)?;
        let version = env!("CARGO_PKG_VERSION");
        let build =
            Build { version, node: self.counts.node.to_string(), namespace: self.namespace.to_string() };
        gauges(&mut to, "build_info", &[(build, 1.0)])
    }
}

impl AtScrape {
    fn of_roles(
        &self,
        to: &mut DescriptorEncoder<'_>,
        state: &State,
        mine: &[(Name, Option<tenure::Lead>)],
    ) -> Result<(), fmt::Error> {
        let of = |role: &Name| OfRole { role: role.to_string() };
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
        let leaderless = state.snapshot.roles.iter().map(|role| {
            let gone = state.leaderless.get(&role.role).copied().unwrap_or_default();
            (of(&role.role), gone.as_secs_f64())
        });
        let help = help_of("leaderless_seconds_total");
        let mut encoder = to.encode_descriptor("leaderless_seconds", help, None, MetricType::Counter)?;
        for (labels, value) in leaderless {
            ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The state of each alert, and how often people were told.
fn of_alerts(to: &mut DescriptorEncoder<'_>, desk: Option<&Desk>) -> Result<(), fmt::Error> {
    let (alerts, deliveries) = desk.map(Desk::counts).unwrap_or_default();
    let alert = |(alert, severity, state)| (OfAlert { alert, severity, state }, 1.0);
    gauges(to, "alerts", &alerts.into_iter().map(alert).collect::<Vec<_>>())?;
    let help = help_of("alert_deliveries_total");
    let mut encoder = to.encode_descriptor("alert_deliveries", help, None, MetricType::Counter)?;
    for (target, outcome, count) in deliveries {
        ConstCounter::new(count).encode(encoder.encode_family(&OfDelivery { target, outcome })?)?;
    }
    Ok(())
}

fn counters(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    family: &Family<OfRole, Counter>,
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

fn role_states(snapshot: &Snapshot) -> Vec<(String, usize)> {
    let states = [RoleState::Led, RoleState::Silent, RoleState::Vacant, RoleState::Paused];
    let count = |state| snapshot.roles.iter().filter(|role| role.state == state).count();
    states.into_iter().map(|state| (state.to_string(), count(state))).collect()
}

fn node_states(snapshot: &Snapshot) -> Vec<(String, usize)> {
    let states = [NodeState::Live, NodeState::Silent, NodeState::Closed, NodeState::Expelled];
    let count = |state| snapshot.nodes.iter().filter(|node| node.state == state).count();
    states.into_iter().map(|state| (state.to_string(), count(state))).collect()
}

/// The table of `docs/agent.md`.
#[must_use]
pub fn table() -> String {
    let mut text = String::from("| metric | type | meaning |\n|---|---|---|\n");
    for (name, kind, meaning) in METRICS {
        text.push_str(&format!("| `{name}` | {kind} | {meaning} |\n"));
    }
    text
}
