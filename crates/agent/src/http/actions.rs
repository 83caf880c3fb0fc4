//! Actions of operators; who asked, and why, is kept in the audit trail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;
use tenure::operator::OperatorAction;
use tenure::{Leader, Name};
use tokio::task::AbortHandle;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{NameText, OnBehalfOf, OperatorCall, SpanText};
use super::json::Json;
use super::problem::Problem;
use crate::model::ActionOutcome;

pub(super) type ActionAnswer = Result<Json<ActionOutcome>, Problem>;

/// Why an operator asks, and for whom.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorRequest {
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// The person for whom the client asks; the audit trail keeps it beside the identity of the client.
    #[serde(default)]
    pub by: Option<String>,
}

/// Why an operator asks, for whom, and how long the agent waits for the outcome.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// The person for whom the client asks; the audit trail keeps it beside the identity of the client.
    #[serde(default)]
    pub by: Option<String>,
    /// How long to wait for the outcome, such as `30s`.
    #[serde(default)]
    #[schema(value_type = Option<SpanText>)]
    pub wait: Option<String>,
}

/// Which node is to lead, and when.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// The node.
    #[schema(value_type = NameText)]
    pub to: String,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// The person for whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
    /// How long to wait for the outcome, such as `30s`.
    #[serde(default)]
    #[schema(value_type = Option<SpanText>)]
    pub wait: Option<String>,
    /// The time of the transfer, RFC 3339; at once if absent. This agent keeps it in memory: it is lost when the agent stops.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub at: Option<String>,
}

/// The node that a role is pinned to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinRequest {
    /// The node.
    #[schema(value_type = NameText)]
    pub node: String,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// The person for whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
}

/// Whether this agent's node claims a role.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EligibleRequest {
    /// Whether it does.
    pub eligible: bool,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// The person for whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
}

/// Why an operator takes something back, and for whom.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct UndoParams {
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// The person for whom the client asks; the audit trail keeps it beside the identity of the client.
    #[serde(default)]
    pub by: Option<String>,
}

/// Each of these says for whom it is asked.
macro_rules! on_behalf_of {
    ($($request:ty),*) => {$(
        impl $crate::http::extract::OnBehalfOf for $request {
            fn by(&self) -> Option<&str> {
                self.by.as_deref()
            }
        }
    )*};
}
pub(super) use on_behalf_of;
on_behalf_of!(OperatorRequest, WaitRequest, TransferRequest, PinRequest, EligibleRequest);

impl OnBehalfOf for UndoParams {
    const IN_QUERY: bool = true;

    fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }
}

/// How often a transfer is tried whose time has come, and how long after one that failed.
const TRANSFER_ATTEMPTS: u32 = 5;
const TRANSFER_RETRY: Duration = Duration::from_secs(2);

/// Transfers that are to come, one for each role.
#[derive(Debug, Default)]
pub struct ScheduledTransfers {
    waiting: Mutex<BTreeMap<Name, AbortHandle>>,
}

impl ScheduledTransfers {
    fn put(&self, role: &Name, task: AbortHandle) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(former) = waiting.insert(role.clone(), task) {
            former.abort();
        }
    }

    fn cancel(&self, role: &Name) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(role).filter(|task| !task.is_finished()).map(|task| task.abort()).is_some()
    }
}

/// Answers when this agent has seen what was done, so that its next answer shows it.
pub async fn answer_when_seen(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status().is_success() {
        app.cluster_view.catch_up().await;
    }
    response
}

/// Hands a role to a node, and answers when that node leads it; or later, at a given time.
#[utoipa::path(
    post, path = "/v1/roles/{role}/transfer", params(("role" = NameText, Path, description = "The role")),
    request_body = TransferRequest, responses((status = 200, body = ActionOutcome), (status = 202, body = ActionOutcome))
)]
pub async fn transfer(
    OperatorCall { app, subject: role, request, operator }: OperatorCall<TransferRequest>,
) -> Result<(StatusCode, Json<ActionOutcome>), Problem> {
    let to = Name::new(&request.to).map_err(|error| Problem::field("to", error.to_string()))?;
    let wait = wait_limit(&app, request.wait.as_deref())?;
    let former = leader_of(&app, &role);
    let Some(at) = &request.at else {
        let leader = operator.transfer(&role, &to, &request.why, wait, wait).await?;
        let outcome = ActionOutcome::new("transfer", &role, format!("{to} leads {role}")).node(&to);
        return Ok((StatusCode::OK, Json(outcome.leader(&leader, former.as_ref()))));
    };
    let delay = until(at)?;
    if app.cluster_view.latest().snapshot.role(&role).is_none() {
        return Err(tenure::Error::NoSuchRole { role, namespace: app.node.namespace().clone() }.into());
    }
    operator
        .record_action(OperatorAction::Scheduled, &role, Some(&to), &format!("{} (at {at})", request.why))
        .await?;
    let message = format!("{role} is transferred to {to} at {at}");
    let outcome = ActionOutcome::new("schedule-transfer", &role, message).node(&to);
    let (later, why) = (role.clone(), request.why);
    let task = tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        retry_transfer(|| operator.transfer(&later, &to, &why, wait, wait)).await;
    });
    app.scheduled.put(&role, task.abort_handle());
    Ok((StatusCode::ACCEPTED, Json(outcome)))
}

/// No operator is there at night to try it again: a store that does not answer, or a leader that just then is none, is not the
/// end of it.
async fn retry_transfer<A: Future<Output = Result<Leader, tenure::Error>>>(transfer: impl Fn() -> A) {
    for _ in 0..TRANSFER_ATTEMPTS {
        let Err(error) = transfer().await else { return };
        tracing::warn!(%error, "scheduled transfer failed");
        tokio::time::sleep(TRANSFER_RETRY).await;
    }
}

/// Cancels a scheduled transfer, and withdraws one that the leader has not agreed to.
#[utoipa::path(
    delete, path = "/v1/roles/{role}/transfer", params(("role" = NameText, Path, description = "The role"), UndoParams),
    responses((status = 200, body = ActionOutcome))
)]
pub async fn cancel(
    OperatorCall { app, subject: role, request, operator }: OperatorCall<UndoParams>,
) -> ActionAnswer {
    let later = app.scheduled.cancel(&role);
    if !later && !operator.withdraw_request(&role).await? {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("no transfer of {role} is pending")));
    }
    operator.record_action(OperatorAction::Cancelled, &role, None, &request.why).await?;
    let message = format!("the transfer of {role} is cancelled");
    Ok(Json(ActionOutcome::new("cancel-transfer", &role, message)))
}

/// Makes the leader of a role give it up, and answers when a node leads again.
#[utoipa::path(
    post, path = "/v1/roles/{role}/step-down", params(("role" = NameText, Path, description = "The role")),
    request_body = WaitRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn step_down(
    OperatorCall { app, subject: role, request, operator }: OperatorCall<WaitRequest>,
) -> ActionAnswer {
    let wait = wait_limit(&app, request.wait.as_deref())?;
    let former = leader_of(&app, &role);
    let leader = operator.step_down(&role, &request.why, wait).await?;
    let outcome = ActionOutcome::new("step-down", &role, format!("{} leads {role}", leader.node));
    Ok(Json(outcome.leader(&leader, former.as_ref())))
}

/// Keeps a role without a leader. Names the leader that has not given up in time, if there is one.
#[utoipa::path(
    post, path = "/v1/roles/{role}/pause", params(("role" = NameText, Path, description = "The role")),
    request_body = WaitRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn pause(
    OperatorCall { app, subject: role, request, operator }: OperatorCall<WaitRequest>,
) -> ActionAnswer {
    let wait = wait_limit(&app, request.wait.as_deref())?;
    let former = leader_of(&app, &role).map(|leader| leader.to_string());
    let still = operator.pause(&role, &request.why, wait).await?;
    let outcome = ActionOutcome::new("pause", &role, format!("{role} is paused"));
    Ok(Json(ActionOutcome { leader: still.map(|leader| leader.to_string()), former, ..outcome }))
}

/// Lets a role be led again.
#[utoipa::path(
    post, path = "/v1/roles/{role}/resume", params(("role" = NameText, Path, description = "The role")),
    request_body = OperatorRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn resume(
    OperatorCall { subject: role, request, operator, .. }: OperatorCall<OperatorRequest>,
) -> ActionAnswer {
    let changed = operator.resume(&role, &request.why).await?;
    let message = if changed { format!("{role} is resumed") } else { format!("{role} was not paused") };
    Ok(Json(ActionOutcome { changed, ..ActionOutcome::new("resume", &role, message) }))
}

/// Takes a role without candidates out of status, metrics and alerts, until it has one.
#[utoipa::path(
    post, path = "/v1/roles/{role}/forget", params(("role" = NameText, Path, description = "The role")),
    request_body = OperatorRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn forget(
    OperatorCall { subject: role, request, operator, .. }: OperatorCall<OperatorRequest>,
) -> ActionAnswer {
    operator.forget(&role, &request.why).await?;
    Ok(Json(ActionOutcome::new("forget", &role, format!("{role} is forgotten"))))
}

/// Pins a role to a node: no other node may lead it.
#[utoipa::path(
    post, path = "/v1/roles/{role}/pin", params(("role" = NameText, Path, description = "The role")),
    request_body = PinRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn pin(
    OperatorCall { subject: role, request, operator, .. }: OperatorCall<PinRequest>,
) -> ActionAnswer {
    let node = Name::new(&request.node).map_err(|error| Problem::field("node", error.to_string()))?;
    let outcome = ActionOutcome::new("pin", &role, format!("{role} is pinned to {node}")).node(&node);
    operator.pin(&role, Some(node), &request.why).await?;
    Ok(Json(outcome))
}

/// Unpins a role.
#[utoipa::path(
    delete, path = "/v1/roles/{role}/pin", params(("role" = NameText, Path, description = "The role"), UndoParams),
    responses((status = 200, body = ActionOutcome))
)]
pub async fn unpin(
    OperatorCall { subject: role, request, operator, .. }: OperatorCall<UndoParams>,
) -> ActionAnswer {
    operator.pin(&role, None, &request.why).await?;
    Ok(Json(ActionOutcome::new("unpin", &role, format!("{role} is unpinned"))))
}

/// Makes this agent's node claim a role, or only follow, until it is told otherwise or reads its configuration again.
#[utoipa::path(
    post, path = "/v1/roles/{role}/eligible", params(("role" = NameText, Path, description = "The role")),
    request_body = EligibleRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn eligible(
    OperatorCall { app, subject: role, request, operator }: OperatorCall<EligibleRequest>,
) -> ActionAnswer {
    let node = app.node.name();
    let act = if request.eligible { OperatorAction::Eligible } else { OperatorAction::Ineligible };
    app.candidacies.set_eligible(&role, request.eligible)?;
    operator.record_action(act, &role, Some(node), &request.why).await?;
    let (action, does) =
        if request.eligible { ("eligible", "claims") } else { ("ineligible", "does not claim") };
    Ok(Json(ActionOutcome::new(action, &role, format!("{node} {does} {role}")).node(node)))
}

/// Makes a node give up its roles and campaign for none.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/drain", params(("node" = NameText, Path, description = "The node")),
    request_body = OperatorRequest, responses((status = 200, body = ActionOutcome))
)]
pub async fn drain(
    OperatorCall { app, subject: node, request, operator }: OperatorCall<OperatorRequest>,
) -> ActionAnswer {
    if app.cluster_view.latest().snapshot.node(&node).is_none() {
        let detail = format!("node \"{node}\" not found (GET /v1/nodes lists nodes)");
        return Err(Problem::missing("node", detail));
    }
    operator.drain(&node, true, &request.why).await?;
    Ok(Json(ActionOutcome::new("drain", &node, format!("{node} is drained"))))
}

/// Ends the drain of a node: it campaigns again.
#[utoipa::path(
    delete, path = "/v1/nodes/{node}/drain", params(("node" = NameText, Path, description = "The node"), UndoParams),
    responses((status = 200, body = ActionOutcome))
)]
pub async fn undrain(
    OperatorCall { subject: node, request, operator, .. }: OperatorCall<UndoParams>,
) -> ActionAnswer {
    operator.drain(&node, false, &request.why).await?;
    Ok(Json(ActionOutcome::new("undrain", &node, format!("{node} is not drained"))))
}

/// How long to wait: not longer than a request may take.
fn wait_limit(app: &App, wait: Option<&str>) -> Result<Duration, Problem> {
    let most = app.config.http.request_timeout.mul_f32(0.9);
    let Some(text) = wait else { return Ok(most.min(Duration::from_secs(30))) };
    match humantime::parse_duration(text) {
        Ok(wait) => Ok(wait.min(most)),
        Err(_) => Err(Problem::field("wait", format!("{text:?} is not a duration; use 500ms, 5s or 1m"))),
    }
}

/// How long it is until then.
fn until(at: &str) -> Result<Duration, Problem> {
    const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);
    let then = at.parse::<jiff::Timestamp>();
    let then = then.map_err(|_| {
        Problem::field("at", format!("{at:?} is not an RFC 3339 time; use 2030-01-31T12:00:00Z"))
    })?;
    let millis = then.as_millisecond() - jiff::Timestamp::now().as_millisecond();
    let left = u64::try_from(millis).map(Duration::from_millis);
    let left = left.map_err(|_| Problem::field("at", format!("{at} is in the past")))?;
    if left > LONGEST {
        return Err(Problem::field("at", "at most 31 days ahead"));
    }
    Ok(left)
}

fn leader_of(app: &App, role: &Name) -> Option<Name> {
    app.cluster_view.latest().snapshot.role(role)?.leader.clone()
}
