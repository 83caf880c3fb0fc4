//! Alerts, what fires, and who was notified.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure::operator::Order;
use utoipa::ToSchema;

use super::{OperatorNote, stamp};
use crate::alerts::AlertReport;
use crate::alerts::record::{Delivered, Episode, Instance};
use crate::time::Stamp;

/// All alerts.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertsPage {
    /// The node that sends notifications: the leader of `tenure.alerts`.
    pub sender: Option<String>,
    /// The alerts, by name.
    pub alerts: Vec<AlertStatus>,
}

/// An alert.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertStatus {
    /// Its name.
    pub alert: String,
    /// inactive, pending, firing; and while it fires: acknowledged, silenced, resolved by hand.
    pub state: String,
    /// critical, warning, info.
    pub severity: String,
    /// Since when the condition holds.
    pub since: Option<String>,
    /// The condition.
    pub condition: String,
    /// How long the condition must hold.
    #[serde(rename = "for")]
    pub hold: String,
    /// What it means.
    pub summary: String,
    /// Number of series that fire.
    pub total: usize,
    /// The summary of the first series that fires.
    pub instances: Vec<AlertInstance>,
    /// Its recipients.
    pub notify: Vec<String>,
    /// The last notification of each recipient.
    pub deliveries: Vec<AlertDelivery>,
    /// Who acknowledged it.
    pub acknowledged: Option<OperatorNote>,
    /// Who resolved it by hand.
    pub resolved: Option<OperatorNote>,
    /// Who silenced it.
    pub silenced: Option<OperatorNote>,
    /// End of the silence.
    pub silenced_until: Option<String>,
    /// When it last fired: begin and end.
    pub last: Option<(String, String)>,
    /// Whether Tenure ships it.
    pub shipped: bool,
}

/// A series that fires.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertInstance {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value; none if it is not a number.
    pub value: Option<f64>,
    /// Since when the condition holds.
    pub since: String,
    /// What it means.
    pub summary: String,
}

/// A notification to a recipient.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertDelivery {
    /// The recipient.
    pub target: String,
    /// firing or resolved.
    pub status: String,
    /// When.
    pub at: String,
    /// Number of attempts.
    pub attempts: u32,
    /// Why it was not delivered; null if it was.
    pub error: Option<String>,
    /// Whether the agent stopped trying.
    pub given_up: bool,
}

impl From<AlertReport> for AlertStatus {
    fn from(report: AlertReport) -> Self {
        let AlertReport { rule, state, instances, record } = report;
        let mut record = record.unwrap_or_default();
        record.silence.take_if(|silence| silence.until <= Stamp::now().0);
        let episode = record.episode.as_ref();
        let shown = match episode {
            Some(episode) => episode.instances.clone(),
            None => instances.clone(),
        };
        let state = match episode {
            Some(Episode { resolved: Some(_), .. }) => "resolved",
            Some(_) if record.silence.is_some() => "silenced",
            Some(Episode { acknowledged: Some(_), .. }) => "acknowledged",
            Some(_) => "firing",
            None => state,
        };
        let since = shown.iter().map(|instance| instance.since).min();
        let order = |pick: fn(&Episode) -> Option<&Order>| episode.and_then(pick).map(OperatorNote::from);
        Self {
            alert: rule.name.to_string(),
            state: state.to_owned(),
            severity: rule.severity.as_str().to_owned(),
            since: since.map(stamp),
            condition: rule.condition.text.clone(),
            hold: humantime::format_duration(rule.hold).to_string(),
            summary: shown.first().map_or_else(|| rule.summary.clone(), |instance| instance.summary.clone()),
            total: episode.map_or(instances.len(), |episode| episode.total),
            instances: shown.iter().map(AlertInstance::from).collect(),
            notify: rule.notify.iter().map(|sink| sink.text.clone()).collect(),
            deliveries: record.told.iter().map(AlertDelivery::from).collect(),
            acknowledged: order(|episode| episode.acknowledged.as_ref()),
            resolved: order(|episode| episode.resolved.as_ref()),
            silenced: record.silence.as_ref().map(|silence| OperatorNote::from(&silence.order)),
            silenced_until: record.silence.as_ref().map(|silence| stamp(silence.until)),
            last: record.past.map(|(from, to)| (stamp(from), stamp(to))),
            shipped: rule.shipped,
        }
    }
}

impl From<&Instance> for AlertInstance {
    fn from(instance: &Instance) -> Self {
        let (labels, since) = (instance.labels.clone(), stamp(instance.since));
        Self { labels, value: instance.value, since, summary: instance.summary.clone() }
    }
}

impl From<(&String, &Delivered)> for AlertDelivery {
    fn from((target, told): (&String, &Delivered)) -> Self {
        Self {
            target: target.clone(),
            status: if told.firing { "firing" } else { "resolved" }.to_owned(),
            at: stamp(told.at),
            attempts: told.attempts,
            error: told.error.clone(),
            given_up: told.given_up,
        }
    }
}
