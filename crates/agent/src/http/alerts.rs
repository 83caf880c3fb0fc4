//! Alerts: what fires, who was told, and what operators do about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tenure::operator::{OperatorAction, Order};
use tenure::{Name, Timestamp};
use utoipa::ToSchema;

use super::App;
use super::actions::{ActionAnswer, OperatorRequest, UndoParams, on_behalf_of};
use super::extract::{NameText, OperatorCall, SpanText};
use super::json::Json;
use super::problem::Problem;
use crate::alerts::ROLE;
use crate::alerts::record::{Episode, Record, Silence};
use crate::model::{ActionOutcome, AlertStatus, AlertsPage, stamp};
use crate::time::Stamp;

/// For how long no target is notified.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceRequest {
    /// Such as `2h`; 31 days at most.
    #[serde(rename = "for")]
    #[schema(value_type = SpanText)]
    pub span: String,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// The person for whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
}

on_behalf_of!(SilenceRequest);

/// Every alert: whether it fires, which targets were notified, which operator looks after it.
#[utoipa::path(get, path = "/v1/alerts", responses((status = 200, body = AlertsPage)))]
pub async fn alerts(State(app): State<Arc<App>>) -> Json<AlertsPage> {
    // Without the store what is known here has to do.
    if let Ok(records) = app.operator.alerts().await {
        app.alert_manager.remember(records);
    }
    let seen = app.cluster_view.latest();
    let sender = Name::new(ROLE).ok().and_then(|role| seen.snapshot.role(&role)?.leader.clone());
    let mut alerts: Vec<AlertStatus> =
        app.alert_manager.reports().into_iter().map(AlertStatus::from).collect();
    alerts.sort_by(|a, b| a.alert.cmp(&b.alert));
    Json(AlertsPage { sender: sender.map(|node| node.to_string()), alerts })
}

/// An operator looks after an alert: its notification is not repeated while it fires.
#[utoipa::path(
    post, path = "/v1/alerts/{alert}/acknowledge", params(("alert" = NameText, Path, description = "The alert")),
    request_body = OperatorRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn acknowledge(call: OperatorCall<OperatorRequest>) -> ActionAnswer {
    change_episode(&call, OperatorAction::Acknowledge, |episode, order| episode.acknowledged = Some(order))
        .await?;
    let message = format!("{} is acknowledged", call.subject);
    Ok(Json(ActionOutcome::new("acknowledge", &call.subject, message)))
}

/// An operator ends an alert: the targets that were notified hear that, and the alert stays quiet until its condition was
/// false once.
#[utoipa::path(
    post, path = "/v1/alerts/{alert}/resolve", params(("alert" = NameText, Path, description = "The alert")),
    request_body = OperatorRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn resolve(call: OperatorCall<OperatorRequest>) -> ActionAnswer {
    change_episode(&call, OperatorAction::Resolve, |episode, order| episode.resolved = Some(order)).await?;
    Ok(Json(ActionOutcome::new("resolve", &call.subject, format!("{} is resolved", call.subject))))
}

/// No target is notified of an alert for a while.
#[utoipa::path(
    post, path = "/v1/alerts/{alert}/silence", params(("alert" = NameText, Path, description = "The alert")),
    request_body = SilenceRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn silence(
    OperatorCall { app, subject: alert, request, operator }: OperatorCall<SilenceRequest>,
) -> ActionAnswer {
    const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);
    let wrong = || {
        Problem::field(
            "for",
            format!("{:?} is not a duration such as 30m or 2h, at most 31 days", request.span),
        )
    };
    let span =
        humantime::parse_duration(&request.span).ok().filter(|span| !span.is_zero() && *span <= LONGEST);
    let span = span.ok_or_else(wrong)?;
    known(&app, &alert)?;
    operator
        .record_action(
            OperatorAction::Silence,
            &alert,
            None,
            &format!("{} (for {})", request.why, request.span),
        )
        .await?;
    let now = Stamp::now().0;
    let until = Timestamp::from_micros(
        now.as_micros().saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
    );
    let order = Order { by: operator.name().to_owned(), why: request.why, at: now };
    let silence = Silence { until, order };
    operator
        .change_alert(&alert, |kept: Option<Record>| {
            Some(Record { silence: Some(silence.clone()), ..kept.unwrap_or_default() })
        })
        .await?;
    let message = format!("{alert} is silenced until {}", stamp(until));
    Ok(Json(ActionOutcome::new("silence", &alert, message)))
}

/// Ends the silence of an alert.
#[utoipa::path(
    delete, path = "/v1/alerts/{alert}/silence",
    params(("alert" = NameText, Path, description = "The alert"), UndoParams), responses((status = 200, body = ActionOutcome))
)]
pub async fn unsilence(
    OperatorCall { app, subject: alert, request, operator }: OperatorCall<UndoParams>,
) -> ActionAnswer {
    known(&app, &alert)?;
    operator.record_action(OperatorAction::Unsilence, &alert, None, &request.why).await?;
    operator.change_alert(&alert, |kept: Option<Record>| Some(Record { silence: None, ..kept? })).await?;
    Ok(Json(ActionOutcome::new("unsilence", &alert, format!("{alert} is not silenced"))))
}

fn known(app: &App, alert: &Name) -> Result<(), Problem> {
    if app.alert_manager.knows(alert) {
        return Ok(());
    }
    let detail = format!("alert \"{alert}\" not found (GET /v1/alerts lists alerts)");
    Err(Problem::missing("alert", detail))
}

/// Changes what goes on, if anything does: what was asked for is on record first.
async fn change_episode(
    OperatorCall { app, subject: alert, request, operator }: &OperatorCall<OperatorRequest>,
    act: OperatorAction,
    change: impl Fn(&mut Episode, Order),
) -> Result<(), Problem> {
    known(app, alert)?;
    let records: BTreeMap<Name, Record> = operator.alerts().await?;
    let fires = records.get(alert).is_some_and(|record| record.episode.is_some());
    let quiet = || {
        let why = match app.alert_manager.has_recipients() {
            true => "does not fire, or no recipient was notified yet",
            false => "has no recipients: no [[notify]] is configured",
        };
        Problem::new(StatusCode::CONFLICT, format!("{alert} {why}"))
    };
    if !fires {
        return Err(quiet());
    }
    operator.record_action(act, alert, None, &request.why).await?;
    let order = Order { by: operator.name().to_owned(), why: request.why.clone(), at: Stamp::now().0 };
    let changed = operator
        .change_alert(alert, |kept: Option<Record>| {
            let mut record = kept?;
            change(record.episode.as_mut()?, order.clone());
            Some(record)
        })
        .await?;
    changed.map(|_| ()).ok_or_else(quiet)
}
