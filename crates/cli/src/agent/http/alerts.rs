//! Alerts: what fires, who was told, and what operators do about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure::operator::{Act, Order};
use tenure::{Name, Wall};
use utoipa::ToSchema;

use super::App;
use super::act::{Answer, Ask, Undo, for_whom, plain};
use super::extract::{Asked, NameText, SpanText};
use super::problem::Problem;
use super::views::{Done, OrderView, stamp};
use crate::agent::alerts::record::{Episode, Instance, Record, Silence, Told};
use crate::agent::alerts::{ROLE, Report};
use crate::output::time::Stamp;

/// Every alert.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertsView {
    /// Which node tells people; none if nobody does.
    pub teller: Option<String>,
    /// The alerts, by name.
    pub alerts: Vec<AlertView>,
}

/// An alert.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertView {
    /// Its name.
    pub alert: String,
    /// inactive, pending, firing; and while it fires: acknowledged, silenced, resolved by hand.
    pub state: String,
    /// critical, warning, info.
    pub severity: String,
    /// Since when it is so.
    pub since: Option<String>,
    /// When it holds.
    pub condition: String,
    /// For how long it must hold.
    #[serde(rename = "for")]
    pub hold: String,
    /// What it means.
    pub summary: String,
    /// How many series fire.
    pub total: usize,
    /// The first of them.
    pub instances: Vec<InstanceView>,
    /// Who is told.
    pub notify: Vec<String>,
    /// What each of them was told last.
    pub told: Vec<ToldView>,
    /// Who looks after it.
    pub acknowledged: Option<OrderView>,
    /// Who said that it is over.
    pub resolved: Option<OrderView>,
    /// Who silenced it.
    pub silenced: Option<OrderView>,
    /// Until when.
    pub silenced_until: Option<String>,
    /// When it last fired, from and to.
    pub last: Option<(String, String)>,
    /// Whether it came with Tenure.
    pub shipped: bool,
    /// Why it cannot be evaluated.
    pub error: Option<String>,
}

/// A series that fires.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct InstanceView {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value; none if it is not a number.
    pub value: Option<f64>,
    /// Since when the condition holds.
    pub since: String,
    /// What it means.
    pub summary: String,
}

/// What a target was told.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ToldView {
    /// Who.
    pub target: String,
    /// firing or resolved.
    pub status: String,
    /// When.
    pub at: String,
    /// How often that was tried.
    pub attempts: u32,
    /// Why it was not told.
    pub error: Option<String>,
    /// It is not tried any more.
    pub given_up: bool,
}

/// For how long nobody is told.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceAsk {
    /// Such as `2h`; 31 days at most.
    #[serde(rename = "for")]
    #[schema(value_type = SpanText)]
    pub span: String,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// For whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
}

for_whom!(SilenceAsk);

/// Every alert: whether it fires, who was told, who looks after it.
#[utoipa::path(get, path = "/v1/alerts", responses((status = 200, body = AlertsView)))]
pub async fn alerts(State(app): State<Arc<App>>) -> Json<AlertsView> {
    // Without the store what is known here has to do.
    if let Ok(records) = app.operator.alerts().await {
        app.desk.remember(records.into_iter().collect());
    }
    let seen = app.sight.seen();
    let teller = Name::new(ROLE).ok().and_then(|role| seen.snapshot.role(&role)?.leader.clone());
    let mut alerts: Vec<AlertView> = app.desk.reports().into_iter().map(AlertView::from).collect();
    alerts.sort_by(|a, b| a.alert.cmp(&b.alert));
    Json(AlertsView { teller: teller.map(|node| node.to_string()), alerts })
}

/// Somebody looks after an alert: it is not told again while it goes on.
#[utoipa::path(
    post, path = "/v1/alerts/{alert}/acknowledge", params(("alert" = NameText, Path, description = "The alert")),
    request_body = Ask, responses((status = 200, body = Done))
)]
pub async fn acknowledge(asked: Asked<Ask>) -> Answer {
    change_episode(&asked, Act::Acknowledge, |episode, order| episode.acknowledged = Some(order)).await?;
    Ok(Json(plain(format!("{} is acknowledged", asked.subject))))
}

/// An alert is over because a person says so: those who were told are told that, and it stays quiet until its condition
/// was false once.
#[utoipa::path(
    post, path = "/v1/alerts/{alert}/resolve", params(("alert" = NameText, Path, description = "The alert")),
    request_body = Ask, responses((status = 200, body = Done))
)]
pub async fn resolve(asked: Asked<Ask>) -> Answer {
    change_episode(&asked, Act::Resolve, |episode, order| episode.resolved = Some(order)).await?;
    Ok(Json(plain(format!("{} is resolved", asked.subject))))
}

/// Nobody is told of an alert for a while.
#[utoipa::path(
    post, path = "/v1/alerts/{alert}/silence", params(("alert" = NameText, Path, description = "The alert")),
    request_body = SilenceAsk, responses((status = 200, body = Done))
)]
pub async fn silence(Asked { app, subject: alert, ask, operator }: Asked<SilenceAsk>) -> Answer {
    const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);
    let wrong =
        || Problem::field("for", format!("{:?} is not a time such as 30m or 2h, 31 days at most", ask.span));
    let span = humantime::parse_duration(&ask.span).ok().filter(|span| !span.is_zero() && *span <= LONGEST);
    let span = span.ok_or_else(wrong)?;
    known(&app, &alert)?;
    operator.note(Act::Silence, &alert, None, &format!("{} (for {})", ask.why, ask.span)).await?;
    let now = Stamp::now().0;
    let until = Wall(now.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)));
    let order = Order { by: operator.name().to_owned(), why: ask.why, at: now };
    let silence = Silence { until, order };
    operator
        .change_alert(&alert, |kept: Option<Record>| {
            Some(Record { silence: Some(silence.clone()), ..kept.unwrap_or_default() })
        })
        .await?;
    Ok(Json(plain(format!("{alert} is silenced until {}", stamp(until)))))
}

/// An alert is told of again.
#[utoipa::path(
    delete, path = "/v1/alerts/{alert}/silence",
    params(("alert" = NameText, Path, description = "The alert"), Undo), responses((status = 200, body = Done))
)]
pub async fn unsilence(Asked { app, subject: alert, ask, operator }: Asked<Undo>) -> Answer {
    known(&app, &alert)?;
    operator.note(Act::Unsilence, &alert, None, &ask.why).await?;
    operator.change_alert(&alert, |kept: Option<Record>| Some(Record { silence: None, ..kept? })).await?;
    Ok(Json(plain(format!("{alert} is not silenced"))))
}

fn known(app: &App, alert: &Name) -> Result<(), Problem> {
    if app.desk.knows(alert) {
        return Ok(());
    }
    let detail = format!("there is no alert {alert}; /v1/alerts lists those there are");
    Err(Problem::missing("alert", detail))
}

/// Changes what goes on, if anything does: what was asked for is on record first.
async fn change_episode(
    Asked { app, subject: alert, ask, operator }: &Asked<Ask>,
    act: Act,
    change: impl Fn(&mut Episode, Order),
) -> Result<(), Problem> {
    known(app, alert)?;
    let records: Vec<(Name, Record)> = operator.alerts().await?;
    let fires = |(name, record): &(Name, Record)| name == alert && record.episode.is_some();
    let quiet = || {
        let why = match app.desk.tells() {
            true => "does not fire, or nobody was told yet",
            false => "is told to nobody: there is no [[notify]]",
        };
        Problem::new(StatusCode::CONFLICT, format!("{alert} {why}"))
    };
    if !records.iter().any(fires) {
        return Err(quiet());
    }
    operator.note(act, alert, None, &ask.why).await?;
    let order = Order { by: operator.name().to_owned(), why: ask.why.clone(), at: Stamp::now().0 };
    let changed = operator
        .change_alert(alert, |kept: Option<Record>| {
            let mut record = kept?;
            change(record.episode.as_mut()?, order.clone());
            Some(record)
        })
        .await?;
    changed.map(|_| ()).ok_or_else(quiet)
}

impl From<Report> for AlertView {
    fn from(report: Report) -> Self {
        let Report { rule, state, instances, error, record } = report;
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
        let order = |pick: fn(&Episode) -> Option<&Order>| episode.and_then(pick).map(OrderView::from);
        Self {
            alert: rule.name.to_string(),
            state: state.to_owned(),
            severity: rule.severity.as_str().to_owned(),
            since: since.map(stamp),
            condition: rule.condition.text.clone(),
            hold: humantime::format_duration(rule.hold).to_string(),
            summary: shown.first().map_or_else(|| rule.summary.clone(), |instance| instance.summary.clone()),
            total: episode.map_or(instances.len(), |episode| episode.total),
            instances: shown.iter().map(InstanceView::from).collect(),
            notify: rule.notify.iter().map(|sink| sink.text.clone()).collect(),
            told: record.told.iter().map(ToldView::from).collect(),
            acknowledged: order(|episode| episode.acknowledged.as_ref()),
            resolved: order(|episode| episode.resolved.as_ref()),
            silenced: record.silence.as_ref().map(|silence| OrderView::from(&silence.order)),
            silenced_until: record.silence.as_ref().map(|silence| stamp(silence.until)),
            last: record.past.map(|(from, to)| (stamp(from), stamp(to))),
            shipped: rule.shipped,
            error,
        }
    }
}

impl From<&Instance> for InstanceView {
    fn from(instance: &Instance) -> Self {
        let (labels, since) = (instance.labels.clone(), stamp(instance.since));
        Self { labels, value: instance.value, since, summary: instance.summary.clone() }
    }
}

impl From<(&String, &Told)> for ToldView {
    fn from((target, told): (&String, &Told)) -> Self {
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
