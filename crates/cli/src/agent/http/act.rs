//! Acting: what operators ask for, with who and why on record.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use tenure::operator::Act;
use tenure::{Leader, Name};
use tokio::task::AbortHandle;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{Asked, ForWhom, NameText, SpanText};
use super::problem::Problem;
use super::views::Done;

pub(super) type Answer = Result<Json<Done>, Problem>;

/// Why, and who says so.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// For whom the client asks; kept beside who the client is.
    #[serde(default)]
    pub by: Option<String>,
}

/// Why, who says so, and how long it may take.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitAsk {
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// For whom the client asks; kept beside who the client is.
    #[serde(default)]
    pub by: Option<String>,
    /// How long to wait for it, such as `30s`.
    #[serde(default)]
    #[schema(value_type = Option<SpanText>)]
    pub wait: Option<String>,
}

/// Which node is to lead, and when.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferAsk {
    /// The node.
    #[schema(value_type = NameText)]
    pub to: String,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// For whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
    /// How long to wait for it, such as `30s`.
    #[serde(default)]
    #[schema(value_type = Option<SpanText>)]
    pub wait: Option<String>,
    /// When, RFC 3339; at once if not said. This agent keeps it in mind, and only as long as it runs.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub at: Option<String>,
}

/// A node to be tied to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinAsk {
    /// The node.
    #[schema(value_type = NameText)]
    pub node: String,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// For whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
}

/// Whether this agent's node claims a role.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EligibleAsk {
    /// Whether it does.
    pub eligible: bool,
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// For whom the client asks.
    #[serde(default)]
    pub by: Option<String>,
}

/// Why something is taken back, and who says so.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// Why; kept in the audit trail.
    #[serde(default)]
    pub why: String,
    /// For whom the client asks; kept beside who the client is.
    #[serde(default)]
    pub by: Option<String>,
}

/// Each of these says for whom it is asked.
macro_rules! for_whom {
    ($($ask:ty),*) => {$(
        impl $crate::agent::http::extract::ForWhom for $ask {
            fn by(&self) -> Option<&str> {
                self.by.as_deref()
            }
        }
    )*};
}
pub(super) use for_whom;
for_whom!(Ask, WaitAsk, TransferAsk, PinAsk, EligibleAsk);

impl ForWhom for Undo {
    const IN_QUERY: bool = true;

    fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }
}

/// How often a transfer is tried whose time has come, and how long after one that failed.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_secs(2);

/// Transfers that are to come, one for each role.
#[derive(Debug, Default)]
pub struct Later {
    waiting: Mutex<BTreeMap<Name, AbortHandle>>,
}

impl Later {
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

/// Hands a role to a node, and answers when that node leads it; or later, at a given time.
#[utoipa::path(
    post, path = "/v1/roles/{role}/transfer", params(("role" = NameText, Path, description = "The role")),
    request_body = TransferAsk, responses((status = 200, body = Done), (status = 202, body = Done))
)]
pub async fn transfer(
    Asked { app, subject: role, ask, operator }: Asked<TransferAsk>,
) -> Result<(StatusCode, Json<Done>), Problem> {
    let to = Name::new(&ask.to).map_err(|error| Problem::field("to", error.to_string()))?;
    let wait = patience(&app, ask.wait.as_deref())?;
    let Some(at) = &ask.at else {
        let leader = operator.transfer(&role, &to, &ask.why, wait, wait).await?;
        return Ok((StatusCode::OK, Json(led(format!("{to} leads {role}"), leader))));
    };
    let delay = until(at)?;
    if app.sight.seen().snapshot.role(&role).is_none() {
        return Err(tenure::Error::NoSuchRole { role, namespace: app.node.namespace().clone() }.into());
    }
    operator.note(Act::Scheduled, &role, Some(&to), &format!("{} (at {at})", ask.why)).await?;
    let done = format!("{to} is to lead {role} at {at}");
    let (later, why) = (role.clone(), ask.why);
    let task = tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        insist(|| operator.transfer(&later, &to, &why, wait, wait)).await;
    });
    app.later.put(&role, task.abort_handle());
    Ok((StatusCode::ACCEPTED, Json(plain(done))))
}

/// Nobody is there at night to try it again: a store that does not answer, or a leader that just then is none, is not the
/// end of it.
async fn insist<A: Future<Output = Result<Leader, tenure::Error>>>(transfer: impl Fn() -> A) {
    for _ in 0..TRIES {
        let Err(error) = transfer().await else { return };
        tracing::warn!(%error, "a transfer that was to happen now did not");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Forgets a transfer that is to come, and withdraws one that the leader has not agreed to.
#[utoipa::path(
    delete, path = "/v1/roles/{role}/transfer", params(("role" = NameText, Path, description = "The role"), Undo),
    responses((status = 200, body = Done))
)]
pub async fn cancel(Asked { app, subject: role, ask, operator }: Asked<Undo>) -> Answer {
    let later = app.later.cancel(&role);
    if !later && !operator.withdraw_request(&role).await? {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("no transfer of {role} is open")));
    }
    operator.note(Act::Cancelled, &role, None, &ask.why).await?;
    Ok(Json(plain(format!("the transfer of {role} is cancelled"))))
}

/// Makes the leader of a role give it up, and answers when somebody leads again.
#[utoipa::path(
    post, path = "/v1/roles/{role}/step-down", params(("role" = NameText, Path, description = "The role")),
    request_body = WaitAsk, responses((status = 200, body = Done))
)]
pub async fn step_down(Asked { app, subject: role, ask, operator }: Asked<WaitAsk>) -> Answer {
    let wait = patience(&app, ask.wait.as_deref())?;
    let leader = operator.step_down(&role, &ask.why, wait).await?;
    Ok(Json(led(format!("{} leads {role}", leader.node), leader)))
}

/// Lets nobody lead a role. Names the leader that has not given up in time, if there is one.
#[utoipa::path(
    post, path = "/v1/roles/{role}/pause", params(("role" = NameText, Path, description = "The role")),
    request_body = WaitAsk, responses((status = 200, body = Done))
)]
pub async fn pause(Asked { app, subject: role, ask, operator }: Asked<WaitAsk>) -> Answer {
    let wait = patience(&app, ask.wait.as_deref())?;
    let still = operator.pause(&role, &ask.why, wait).await?;
    let done = format!("{role} is paused");
    Ok(Json(Done { leader: still.map(|leader| leader.to_string()), ..plain(done) }))
}

/// Lets a role be led again.
#[utoipa::path(
    post, path = "/v1/roles/{role}/resume", params(("role" = NameText, Path, description = "The role")),
    request_body = Ask, responses((status = 200, body = Done))
)]
pub async fn resume(Asked { subject: role, ask, operator, .. }: Asked<Ask>) -> Answer {
    let was = operator.resume(&role, &ask.why).await?;
    Ok(Json(plain(if was { format!("{role} is resumed") } else { format!("{role} was not paused") })))
}

/// Ties a role to a node.
#[utoipa::path(
    post, path = "/v1/roles/{role}/pin", params(("role" = NameText, Path, description = "The role")),
    request_body = PinAsk, responses((status = 200, body = Done))
)]
pub async fn pin(Asked { subject: role, ask, operator, .. }: Asked<PinAsk>) -> Answer {
    let node = Name::new(&ask.node).map_err(|error| Problem::field("node", error.to_string()))?;
    let done = format!("{role} is tied to {node}");
    operator.pin(&role, Some(node), &ask.why).await?;
    Ok(Json(plain(done)))
}

/// Unties a role.
#[utoipa::path(
    delete, path = "/v1/roles/{role}/pin", params(("role" = NameText, Path, description = "The role"), Undo),
    responses((status = 200, body = Done))
)]
pub async fn unpin(Asked { subject: role, ask, operator, .. }: Asked<Undo>) -> Answer {
    operator.pin(&role, None, &ask.why).await?;
    Ok(Json(plain(format!("{role} is not tied to a node"))))
}

/// Makes this agent's node claim a role, or only follow, until it is told otherwise or reads its configuration again.
#[utoipa::path(
    post, path = "/v1/roles/{role}/eligible", params(("role" = NameText, Path, description = "The role")),
    request_body = EligibleAsk, responses((status = 200, body = Done))
)]
pub async fn eligible(Asked { app, subject: role, ask, operator }: Asked<EligibleAsk>) -> Answer {
    let node = app.node.name();
    let act = if ask.eligible { Act::Eligible } else { Act::Ineligible };
    app.roster.set_eligible(&role, ask.eligible)?;
    operator.note(act, &role, Some(node), &ask.why).await?;
    let does = if ask.eligible { "claims" } else { "does not claim" };
    Ok(Json(plain(format!("{node} {does} {role}"))))
}

/// Makes a node give up its roles and stand for none.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/drain", params(("node" = NameText, Path, description = "The node")),
    request_body = Ask, responses((status = 200, body = Done))
)]
pub async fn drain(Asked { app, subject: node, ask, operator }: Asked<Ask>) -> Answer {
    if app.sight.seen().snapshot.node(&node).is_none() {
        let detail = format!("there is no node {node}; /v1/nodes lists those there are");
        return Err(Problem::missing("node", detail));
    }
    operator.drain(&node, true, &ask.why).await?;
    Ok(Json(plain(format!("{node} is drained"))))
}

/// Lets a node stand again.
#[utoipa::path(
    delete, path = "/v1/nodes/{node}/drain", params(("node" = NameText, Path, description = "The node"), Undo),
    responses((status = 200, body = Done))
)]
pub async fn undrain(Asked { subject: node, ask, operator, .. }: Asked<Undo>) -> Answer {
    operator.drain(&node, false, &ask.why).await?;
    Ok(Json(plain(format!("{node} is not drained"))))
}

/// How long to wait: not longer than a request may take.
fn patience(app: &App, wait: Option<&str>) -> Result<Duration, Problem> {
    let most = app.config.http.request_timeout.mul_f32(0.9);
    let Some(text) = wait else { return Ok(most.min(Duration::from_secs(30))) };
    match humantime::parse_duration(text) {
        Ok(wait) => Ok(wait.min(most)),
        Err(_) => {
            Err(Problem::field("wait", format!("{text:?} is not a time; write it like 500ms, 5s or 1m")))
        }
    }
}

/// How long it is until then.
fn until(at: &str) -> Result<Duration, Problem> {
    const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);
    let then = at.parse::<jiff::Timestamp>();
    let then =
        then.map_err(|_| Problem::field("at", format!("{at:?} is not a time such as 2030-01-31T12:00:00Z")))?;
    let millis = then.as_millisecond() - jiff::Timestamp::now().as_millisecond();
    let left = u64::try_from(millis).map(Duration::from_millis);
    let left = left.map_err(|_| Problem::field("at", format!("{at} has passed")))?;
    if left > LONGEST {
        return Err(Problem::field("at", "no more than 31 days ahead"));
    }
    Ok(left)
}

pub(super) fn plain(done: String) -> Done {
    Done { done, leader: None, token: None, address: None }
}

fn led(done: String, leader: Leader) -> Done {
    Done { done, leader: Some(leader.node.to_string()), token: Some(leader.token.0), address: leader.address }
}
