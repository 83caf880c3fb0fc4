//! Streams: events, and candidacies.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt, unfold};
use serde::Deserialize;
use tenure::{Name, Token};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::App;
use super::extract::{Body, NameText, Params, Subject};
use super::guard::{Acting, Caller, Peer, Way};
use super::limits;
use super::problem::Problem;
use super::views::Done;
use crate::agent::campaign::{Campaign, Notice};
use crate::agent::events::{Next, Told};

/// What happens, as server-sent events. After a break, `Last-Event-ID` goes on where it was; `missed` says that events
/// are gone.
#[utoipa::path(
    get, path = "/v1/events",
    params(
        ("role" = Option<NameText>, Query, description = "Only what is about this role"),
        ("Last-Event-ID" = Option<String>, Header, description = "The last event that was seen"),
    ),
    responses((status = 200, body = String, content_type = "text/event-stream"))
)]
pub async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    mut params: Params,
) -> Result<Response, Problem> {
    let role = params.name("role")?;
    params.done()?;
    let permit = room(&app, &caller)?;
    let last_seen = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let events = app.events.clone();
    let wanted = move |next: &Next| match (next, &role) {
        (Next::Event(told), Some(role)) => told.role.as_ref() == Some(role),
        _ => true,
    };
    let sent =
        app.events.read(last_seen).filter(move |next| std::future::ready(wanted(next))).map(move |next| {
            let _open = &permit;
            Ok::<_, Infallible>(match next {
                Next::Event(told) => event(&events.id(told.number), &told),
                Next::Missed(number) => {
                    Sent::default().id(events.id(number)).event("missed").data("{\"event\":\"missed\"}")
                }
            })
        });
    Ok(answer(sent))
}

fn event(id: &str, told: &Told) -> Sent {
    Sent::default().id(id).event(&told.kind).data(&told.data)
}

fn answer(events: impl Stream<Item = Result<Sent, Infallible>> + Send + 'static) -> Response {
    let alive = KeepAlive::new().interval(Duration::from_secs(10));
    Sse::new(events).keep_alive(alive).into_response()
}

fn room(app: &App, caller: &Caller) -> Result<limits::Stream, Problem> {
    let full = || {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many open streams; close one, or raise http.streams")
    };
    app.streams.open(&caller.client).ok_or_else(full)
}

/// So many events wait for a client that does not read; with one more it is cut off.
const WAITING: usize = 4;
/// How small the buffers of such a connection are made, so that it is noticed soon that nobody reads.
const BUFFER: usize = 4096;

/// A candidacy as a stream: while it is open, this client stands for the role. It is told `elected` with a token and a
/// deadline, `renewed` with a later deadline, `draining` when it is to stop and say so by `POST …/ready`, and `lost`.
/// Closing the stream gives the role up, once the last deadline has passed that the client was told.
#[utoipa::path(
    get, path = "/v1/campaign/{role}", params(("role" = NameText, Path, description = "The role")),
    responses(
        (status = 200, body = Notice, content_type = "text/event-stream"),
        (status = 409, body = Problem),
    )
)]
pub async fn campaign(
    State(app): State<Arc<App>>,
    Acting(caller): Acting,
    Subject(role): Subject,
    axum::Extension(peer): axum::Extension<Peer>,
) -> Result<Response, Problem> {
    let permit = room(&app, &caller)?;
    let share = app.roster.campaign(&role).await?;
    if let Some(wire) = &peer.wire {
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(wire, BUFFER);
    }
    let (out, notices) = mpsc::channel(WAITING);
    let campaign = Campaign {
        share,
        client: caller.client,
        campaigns: app.campaigns.clone(),
        node: app.node.name().clone(),
        slack: app.config.timing.kill_slack,
        out,
    };
    tokio::spawn(campaign.run());
    let padding = padding(peer.way);
    let sent = unfold((notices, permit), move |(mut notices, permit)| {
        let padding = padding.clone();
        async move {
            let notice: Notice = notices.recv().await?;
            let data = serde_json::to_string(&notice).unwrap_or_default();
            let sent = Sent::default().event(notice.event).data(data).comment(padding);
            Some((Ok::<_, Infallible>(sent), (notices, permit)))
        }
    });
    Ok(answer(sent))
}

/// Fills the buffers of a client that does not read. Those of another host are larger, and not ours to choose.
fn padding(way: Way) -> String {
    ".".repeat(match way {
        Way::Unix(_) => 1000,
        Way::Tcp(_) => 4000,
    })
}

/// A client has stopped.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The token of the tenure under which it worked.
    pub token: u64,
}

/// The client that leads under this token has stopped: the role is given up at once.
#[utoipa::path(
    post, path = "/v1/campaign/{role}/ready", params(("role" = NameText, Path, description = "The role")),
    request_body = Ready,
    responses((status = 200, body = Done))
)]
pub async fn ready(
    State(app): State<Arc<App>>,
    Acting(caller): Acting,
    Subject(role): Subject,
    Body(ready): Body<Ready>,
) -> Result<Json<Done>, Problem> {
    if app.campaigns.ready(&role, Token(ready.token), &caller.client) {
        return Ok(Json(given_up(&role)));
    }
    let detail = format!("no client of yours leads {role} under token {}", ready.token);
    Err(Problem::missing("token", detail))
}

fn given_up(role: &Name) -> Done {
    Done { done: format!("{role} is given up"), leader: None, token: None, address: None }
}
