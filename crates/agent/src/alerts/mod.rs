//! Alerts: every agent evaluates the rules, and one of them sends notifications.
//!
//! ```text
//!   own metrics, other agents, the store ──▶ samples ──▶ eval ──▶ manager ──▶ /v1/alerts, metrics, events
//!                                                               │
//!                                  leader of `tenure.alerts` ───┴──▶ record (in the store) ──▶ notify
//! ```
//!
//! What was told is kept in the store ([`record`]), so that the next leader of `tenure.alerts` goes on from it.

pub mod condition;
mod delivery;
pub mod eval;
pub mod record;
pub mod rules;
pub mod samples;
mod sources;
pub mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::{Name, Timestamp};

use super::http::App;
use crate::time::Stamp;
use record::{Instance, Record};
use rules::{Alerting, Rule};
use samples::{Labels, SampleStore, SeriesValue};

/// The role whose leader tells people.
pub const ROLE: &str = "tenure.alerts";

/// The rules, what came of them, and what is known of who was told.
#[derive(Debug)]
pub struct AlertManager {
    state: Mutex<ManagerState>,
    began: Instant,
    notifier: delivery::Notifier,
}

#[derive(Debug, Default)]
struct ManagerState {
    alerting: Alerting,
    samples: SampleStore,
    alerts: BTreeMap<Name, RuleActivity>,
    /// What the registers said last.
    records: BTreeMap<Name, Record>,
    deliveries: BTreeMap<(String, &'static str), u64>,
    /// What the ledgers of tasks said, and after how many polls of the registers.
    ledgers: Option<(u64, Vec<SeriesValue>)>,
}

/// What came of a rule.
#[derive(Debug, Clone, Default)]
pub struct RuleActivity {
    /// The series for which the condition holds.
    active: BTreeMap<Labels, ActiveSeries>,
    /// Whether any of them has held for long enough.
    firing: bool,
}

/// A series for which a condition holds.
#[derive(Debug, Clone, Copy)]
struct ActiveSeries {
    began: f64,
    since: Timestamp,
    value: f64,
    firing: bool,
}

/// Something that happened to an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum AlertEvent {
    /// A condition has held for long enough.
    AlertFiring {
        alert: Name,
        /// How bad.
        severity: &'static str,
        /// What it means.
        summary: String,
    },
    /// It does not hold any more.
    AlertResolved {
        alert: Name,
        /// How bad.
        severity: &'static str,
    },
    /// A target was told.
    AlertNotified {
        alert: Name,
        target: String,
        /// That it fires, or that it is over.
        status: &'static str,
    },
    /// A target could not be told.
    AlertNotifyFailed {
        alert: Name,
        target: String,
        /// Why.
        error: String,
    },
}

/// An alert as this agent sees it.
#[derive(Debug, Clone)]
pub struct AlertReport {
    pub rule: Rule,
    /// inactive, pending or firing.
    pub state: &'static str,
    /// The series for which the condition holds.
    pub instances: Vec<Instance>,
    /// What is kept about it.
    pub record: Option<Record>,
}

impl AlertManager {
    /// Nothing has been evaluated yet.
    #[must_use]
    pub fn new(alerting: Alerting) -> Self {
        let manager =
            Self { state: Mutex::default(), began: Instant::now(), notifier: delivery::Notifier::default() };
        manager.configure(alerting);
        manager
    }

    fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes other rules and targets. What is known about a rule whose condition stays as it was stays, too.
    pub fn configure(&self, alerting: Alerting) {
        let mut state = self.state();
        let condition = |rules: &[Rule], name: &Name| {
            rules.iter().find(|rule| rule.name == *name).map(|rule| rule.condition.text.clone())
        };
        let (old, new) = (std::mem::take(&mut state.alerting), alerting);
        state.alerts.retain(|name, _| {
            let stays = condition(&new.rules, name);
            stays.is_some() && stays == condition(&old.rules, name)
        });
        state.samples.want(new.rules.iter().flat_map(|rule| rule.condition.wanted()));
        for sink in new.rules.iter().flat_map(|rule| &rule.notify) {
            for outcome in ["delivered", "failed"] {
                state.deliveries.entry((sink.text.clone(), outcome)).or_default();
            }
        }
        state.alerting = new;
    }

    /// One round: takes the samples in, and looks what every rule makes of them.
    fn evaluate(&self, sources: Vec<(String, Vec<SeriesValue>)>) -> Vec<AlertEvent> {
        let (time, now) = (self.began.elapsed().as_secs_f64(), Stamp::now().0);
        let mut state = self.state();
        let ManagerState { alerting, samples, alerts, .. } = &mut *state;
        samples.begin(time);
        for (source, found) in sources {
            samples.take(&source, found);
        }
        let each =
            |rule: &Rule| alerts.entry(rule.name.clone()).or_default().update(rule, samples, time, now);
        alerting.rules.iter().filter_map(each).collect()
    }

    /// How long ago this manager was created.
    fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Every alert, as this agent sees it.
    #[must_use]
    pub fn reports(&self) -> Vec<AlertReport> {
        let state = self.state();
        let report = |rule: &Rule| {
            let activity = state.alerts.get(&rule.name).cloned().unwrap_or_default();
            AlertReport {
                rule: rule.clone(),
                state: activity.state(),
                instances: activity.instances(rule, |_| true),
                record: state.records.get(&rule.name).cloned(),
            }
        };
        state.alerting.rules.iter().map(report).collect()
    }

    /// Whether there is a rule of that name.
    #[must_use]
    pub fn knows(&self, alert: &Name) -> bool {
        self.state().alerting.rules.iter().any(|rule| rule.name == *alert)
    }

    /// Whether any target is ever told anything.
    #[must_use]
    pub fn has_recipients(&self) -> bool {
        self.state().alerting.rules.iter().any(|rule| !rule.notify.is_empty())
    }

    /// Takes in what the registers say.
    pub fn remember(&self, records: BTreeMap<Name, Record>) {
        self.state().records = records;
    }

    /// The state of every alert, and how often targets were told and were not, for metrics.
    #[must_use]
    #[allow(clippy::type_complexity)]
    pub fn counts(&self) -> (Vec<(String, &'static str, &'static str)>, Vec<(String, &'static str, u64)>) {
        let state = self.state();
        let now = |rule: &Rule| {
            let activity = state.alerts.get(&rule.name).map_or("inactive", RuleActivity::state);
            (rule.name.to_string(), rule.severity.as_str(), activity)
        };
        let told = state.deliveries.iter().map(|((target, how), count)| (target.clone(), *how, *count));
        (state.alerting.rules.iter().map(now).collect(), told.collect())
    }

    /// The series of a rule that fire. What an earlier teller saw firing still does while its condition holds here, and
    /// while this manager is too young to know better.
    fn firing(&self, rule: &Rule, record: &Record) -> Vec<Instance> {
        let known: BTreeSet<&Labels> =
            record.episode.iter().flat_map(|episode| &episode.instances).map(|one| &one.labels).collect();
        let activity = self.state().alerts.get(&rule.name).cloned().unwrap_or_default();
        let firing = activity.instances(rule, |labels| known.contains(labels));
        let young = self.age() < rule.range() + 3 * self.state().alerting.interval;
        match &record.episode {
            Some(episode) if firing.is_empty() && young => episode.instances.clone(),
            _ => firing,
        }
    }
}

impl RuleActivity {
    fn update(
        &mut self,
        rule: &Rule,
        samples: &SampleStore,
        time: f64,
        now: Timestamp,
    ) -> Option<AlertEvent> {
        let found = eval::evaluate(&rule.condition, samples);
        let before = std::mem::take(&mut self.active);
        for (labels, value) in found {
            let fresh = ActiveSeries { began: time, since: now, value, firing: false };
            let was = before.get(&labels).copied().unwrap_or(fresh);
            let firing = was.firing || time - was.began >= rule.hold.as_secs_f64();
            self.active.insert(labels, ActiveSeries { value, firing, ..was });
        }
        let was = std::mem::replace(&mut self.firing, self.active.values().any(|active| active.firing));
        let (alert, severity) = (rule.name.clone(), rule.severity.as_str());
        match (was, self.firing) {
            (false, true) => {
                let summary = self.instances(rule, |_| false).first().map(|one| one.summary.clone());
                Some(AlertEvent::AlertFiring { alert, severity, summary: summary.unwrap_or_default() })
            }
            (true, false) => Some(AlertEvent::AlertResolved { alert, severity }),
            _ => None,
        }
    }

    fn state(&self) -> &'static str {
        match (self.firing, self.active.is_empty()) {
            (true, _) => "firing",
            (false, false) => "pending",
            (false, true) => "inactive",
        }
    }

    /// The series that fire, and those that do not yet but are wanted anyway.
    fn instances(&self, rule: &Rule, also: impl Fn(&Labels) -> bool) -> Vec<Instance> {
        let wanted = self.active.iter().filter(|(labels, active)| active.firing || also(labels));
        let instance = |(labels, active): (&Labels, &ActiveSeries)| Instance {
            labels: labels.clone(),
            value: Some(active.value).filter(|value| value.is_finite()),
            since: active.since,
            summary: rule.say(labels, active.value),
        };
        wanted.map(instance).collect()
    }
}

/// Evaluates and tells for as long as it is polled.
pub async fn run(app: Arc<App>) {
    loop {
        let alerting = app.alert_manager.state().alerting.clone();
        tokio::time::sleep(alerting.interval).await;
        let sources = sources::collect(&app, &alerting).await;
        for happened in app.alert_manager.evaluate(sources) {
            app.events.publish_alert(&happened);
        }
        app.alert_manager.notifier.round(&app, &alerting).await;
    }
}
