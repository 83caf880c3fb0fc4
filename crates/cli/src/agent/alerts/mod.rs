//! Alerts: every agent evaluates the rules, and one of them tells people.
//!
//! ```text
//!   own metrics, other agents, the store ──▶ keep ──▶ eval ──▶ desk ──▶ /v1/alerts, metrics, events
//!                                                               │
//!                                  leader of `tenure.alerts` ───┴──▶ record (in the store) ──▶ notify
//! ```
//!
//! What was told is kept in the store ([`record`]), so that whoever leads `tenure.alerts` next goes on from it.

pub mod eval;
pub mod keep;
pub mod notify;
pub mod promql;
pub mod record;
pub mod rules;
mod sources;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::{Name, Wall};

use super::http::App;
use crate::output::time::Stamp;
use keep::{Found, Keep, Labels};
use record::{Instance, Record};
use rules::{Alerting, Rule};

/// The role whose leader tells people.
pub const ROLE: &str = "tenure.alerts";

/// The rules, what came of them, and what is known of who was told.
#[derive(Debug)]
pub struct Desk {
    state: Mutex<State>,
    began: Instant,
    telling: tell::Telling,
}

#[derive(Debug, Default)]
struct State {
    alerting: Alerting,
    keep: Keep,
    alerts: BTreeMap<Name, Activity>,
    /// What the registers said last.
    records: BTreeMap<Name, Record>,
    deliveries: BTreeMap<(String, &'static str), u64>,
}

/// What came of a rule.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    /// The series for which the condition holds.
    active: BTreeMap<Labels, Active>,
    /// Whether any of them has held for long enough.
    firing: bool,
    /// Why it cannot be evaluated.
    error: Option<String>,
}

/// A series for which a condition holds.
#[derive(Debug, Clone, Copy)]
struct Active {
    began: f64,
    since: Wall,
    value: f64,
    firing: bool,
}

/// Something that happened to an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happened {
    /// A condition has held for long enough.
    AlertFiring {
        /// Which.
        alert: Name,
        /// How bad.
        severity: &'static str,
        /// What it means.
        summary: String,
    },
    /// It does not hold any more.
    AlertOver {
        /// Which.
        alert: Name,
        /// How bad.
        severity: &'static str,
    },
    /// A target was told.
    AlertTold {
        /// Which.
        alert: Name,
        /// Who.
        target: String,
        /// That it fires, or that it is over.
        status: &'static str,
    },
    /// A target could not be told.
    AlertUntold {
        /// Which.
        alert: Name,
        /// Who.
        target: String,
        /// Why.
        error: String,
    },
}

/// An alert as this agent sees it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The rule.
    pub rule: Rule,
    /// inactive, pending or firing.
    pub state: &'static str,
    /// The series for which the condition holds.
    pub instances: Vec<Instance>,
    /// Why it cannot be evaluated.
    pub error: Option<String>,
    /// What is kept about it.
    pub record: Option<Record>,
}

impl Desk {
    /// A desk with these rules; nothing has been evaluated yet.
    #[must_use]
    pub fn new(alerting: Alerting) -> Self {
        let desk = Self { state: Mutex::default(), began: Instant::now(), telling: tell::Telling::default() };
        desk.configure(alerting);
        desk
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        state.keep.want(new.rules.iter().flat_map(|rule| rule.condition.wanted()));
        for sink in new.rules.iter().flat_map(|rule| &rule.notify) {
            for outcome in ["told", "failed"] {
                state.deliveries.entry((sink.text.clone(), outcome)).or_default();
            }
        }
        state.alerting = new;
    }

    /// One round: takes the samples in, and looks what every rule makes of them.
    fn evaluate(&self, sources: Vec<(String, Vec<Found>)>) -> Vec<Happened> {
        let (time, now) = (self.began.elapsed().as_secs_f64(), Stamp::now().0);
        let mut state = self.state();
        let State { alerting, keep, alerts, .. } = &mut *state;
        keep.begin(time, now.0 as f64 / 1e6);
        for (source, found) in sources {
            keep.take(&source, found);
        }
        let each = |rule: &Rule| alerts.entry(rule.name.clone()).or_default().round(rule, keep, time, now);
        alerting.rules.iter().filter_map(each).collect()
    }

    /// For how long this desk has been there.
    fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Every alert, as this agent sees it.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        let state = self.state();
        let report = |rule: &Rule| {
            let activity = state.alerts.get(&rule.name).cloned().unwrap_or_default();
            Report {
                rule: rule.clone(),
                state: activity.state(),
                instances: activity.instances(rule, |_| true),
                error: activity.error,
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

    /// Whether anybody is ever told anything.
    #[must_use]
    pub fn tells(&self) -> bool {
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
            let activity = state.alerts.get(&rule.name).map_or("inactive", Activity::state);
            (rule.name.to_string(), rule.severity.as_str(), activity)
        };
        let told = state.deliveries.iter().map(|((target, how), count)| (target.clone(), *how, *count));
        (state.alerting.rules.iter().map(now).collect(), told.collect())
    }

    /// The series of a rule that fire. What an earlier teller saw firing still does while its condition holds here, and
    /// while this desk is too young to know better.
    fn firing(&self, rule: &Rule, record: &Record) -> Vec<Instance> {
        let known: BTreeSet<&Labels> =
            record.episode.iter().flat_map(|episode| &episode.instances).map(|one| &one.labels).collect();
        let activity = self.state().alerts.get(&rule.name).cloned().unwrap_or_default();
        let firing = activity.instances(rule, |labels| known.contains(labels));
        let young = self.age() < rule.range() + 3 * self.state().alerting.interval;
        match &record.episode {
            Some(episode) if firing.is_empty() && (young || activity.error.is_some()) => {
                episode.instances.clone()
            }
            _ => firing,
        }
    }
}

impl Activity {
    fn round(&mut self, rule: &Rule, keep: &Keep, time: f64, now: Wall) -> Option<Happened> {
        let found = match eval::evaluate(&rule.condition.plan, keep) {
            Ok(found) => found,
            Err(error) => {
                self.error = Some(error);
                return None;
            }
        };
        self.error = None;
        let before = std::mem::take(&mut self.active);
        for (labels, value) in found {
            let fresh = Active { began: time, since: now, value, firing: false };
            let was = before.get(&labels).copied().unwrap_or(fresh);
            let firing = was.firing || time - was.began >= rule.hold.as_secs_f64();
            self.active.insert(labels, Active { value, firing, ..was });
        }
        let was = std::mem::replace(&mut self.firing, self.active.values().any(|active| active.firing));
        let (alert, severity) = (rule.name.clone(), rule.severity.as_str());
        match (was, self.firing) {
            (false, true) => {
                let summary = self.instances(rule, |_| false).first().map(|one| one.summary.clone());
                Some(Happened::AlertFiring { alert, severity, summary: summary.unwrap_or_default() })
            }
            (true, false) => Some(Happened::AlertOver { alert, severity }),
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
        let instance = |(labels, active): (&Labels, &Active)| Instance {
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
        let alerting = app.desk.state().alerting.clone();
        tokio::time::sleep(alerting.interval).await;
        let sources = sources::look(&app, &alerting).await;
        for happened in app.desk.evaluate(sources) {
            app.events.tell_alert(&happened);
        }
        app.desk.telling.round(&app, &alerting).await;
    }
}
