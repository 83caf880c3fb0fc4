//! Streams: events, and candidacies.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt, unfold};
use serde::Deserialize;
use tenure::Token;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::App;
use super::extract::{Body, NameText, Params, Subject};
use super::guard::{Caller, Operating, Peer, Transport};
use super::json::Json;
use super::limits;
use super::problem::Problem;
use crate::campaign::{Campaign, CampaignEvent, StreamId};
use crate::events::{Next, StreamEvent};
use crate::model::ActionOutcome;

/// What happens, as server-sent events. After a break, `Last-Event-ID` goes on where it was; `missed` says that events
/// are gone.
#[utoipa::path(
    get, path = "/v1/events",
    params(
        ("role" = Option<NameText>, Query, description = "Only events of this role"),
        ("recent" = Option<usize>, Query, description = "Begin with this many past events; at most 1000, default 0"),
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last event received"),
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
    let recent = params.number("recent", 0, 1000)?;
    params.done()?;
    let permit = stream_slot(&app, &caller)?;
    let last_seen = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let events = app.events.clone();
    let wanted = move |next: &Next| match (next, &role) {
        (Next::Event(event), Some(role)) => event.role.as_ref() == Some(role),
        _ => true,
    };
    let sent = app.events.read(last_seen, recent).filter(move |next| std::future::ready(wanted(next))).map(
        move |next| {
            let _open = &permit;
            Ok::<_, Infallible>(match next {
                Next::Event(event) => sse_event(&events.id(event.number), &event),
                Next::Missed(number) => {
                    Sent::default().id(events.id(number)).event("missed").data("{\"event\":\"missed\"}")
                }
            })
        },
    );
    Ok(answer(sent.take_until(Box::pin(app.access.revoked(caller.token)))))
}

fn sse_event(id: &str, event: &StreamEvent) -> Sent {
    Sent::default().id(id).event(&event.kind).data(&event.data)
}

fn answer(events: impl Stream<Item = Result<Sent, Infallible>> + Send + 'static) -> Response {
    let alive = KeepAlive::new().interval(Duration::from_secs(10));
    Sse::new(events).keep_alive(alive).into_response()
}

fn stream_slot(app: &App, caller: &Caller) -> Result<limits::Slot, Problem> {
    let full = || {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many open streams; close one, or raise http.streams")
    };
    app.streams.enter(&caller.client, caller.priority).ok_or_else(full)
}

/// So many events wait for a client that does not read; with one more it is cut off.
const WAITING: usize = 4;
/// How small the buffers of such a connection are made, so that it is noticed soon that the client does not read.
const BUFFER: usize = 4096;

/// A candidacy as a stream: while it is open, the client is a candidate for the role. It receives `elected` with a token and
/// a deadline, `renewed` with a later deadline, `draining` when it must stop and confirm with `POST …/ready`, and `lost`.
/// Closing the stream gives the role up once the last deadline sent to the client has passed.
#[utoipa::path(
    get, path = "/v1/campaign/{role}",
    params(
        ("role" = NameText, Path, description = "The role"),
        ("Tenure-Request" = String, Header, description = "Always `true`; a page of another origin cannot send it"),
    ),
    responses(
        (status = 200, body = CampaignEvent, content_type = "text/event-stream"),
        (status = 409, body = Problem),
    )
)]
pub async fn campaign(
    State(app): State<Arc<App>>,
    Operating(caller): Operating,
    Subject(role): Subject,
    axum::Extension(peer): axum::Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    require_header(&headers)?;
    let permit = stream_slot(&app, &caller)?;
    let candidacy = app.candidacies.campaign(&role).await?;
    if let Some(wire) = &peer.wire {
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(wire, BUFFER);
    }
    let (out, outgoing) = mpsc::channel(WAITING);
    let campaign = Campaign {
        candidacy,
        id: StreamId::new(),
        campaigns: app.campaigns.clone(),
        node: app.node.name().clone(),
        slack: app.config.timing.kill_slack,
        out,
    };
    tokio::spawn(campaign.run());
    let padding = padding(peer.transport);
    let sent = unfold((outgoing, permit), move |(mut outgoing, permit)| {
        let padding = padding.clone();
        async move {
            let notice: CampaignEvent = outgoing.recv().await?;
            let data = crate::text::json(&notice);
            let sent = Sent::default().event(notice.event).data(data).comment(padding);
            Some((Ok::<_, Infallible>(sent), (outgoing, permit)))
        }
    });
    Ok(answer(sent.take_until(Box::pin(app.access.revoked(caller.token)))))
}

/// A GET that changes something could be sent by any page, without asking first, if it had no header of its own.
fn require_header(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(REQUEST).is_some_and(|value| value == "true") {
        return Ok(());
    }
    let detail = "cannot campaign: the header `Tenure-Request: true` is missing; send it with this request";
    Err(Problem::field(REQUEST, detail))
}

/// What a campaigning client says, and no simple request of a page can.
const REQUEST: &str = "Tenure-Request";

/// Fills the buffers of a client that does not read. Those of another host are larger, and not ours to choose.
fn padding(transport: Transport) -> String {
    ".".repeat(match transport {
        Transport::Unix(_) => 1000,
        Transport::Tcp(_) => 4000,
    })
}

/// A client has stopped.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadyRequest {
    /// The token of the tenure under which it worked.
    pub token: u64,
    /// The id of its stream, as every event on it tells.
    pub campaign: String,
}

/// The client that leads under this token has stopped: the role is given up at once.
#[utoipa::path(
    post, path = "/v1/campaign/{role}/ready", params(("role" = NameText, Path, description = "The role")),
    request_body = ReadyRequest,
    responses((status = 200, body = ActionOutcome))
)]
pub async fn ready(
    State(app): State<Arc<App>>,
    _acting: Operating,
    Subject(role): Subject,
    Body(ready): Body<ReadyRequest>,
) -> Result<Json<ActionOutcome>, Problem> {
    match app.campaigns.ready(&role, Token::new(ready.token), &ready.campaign) {
        Ok(()) => Ok(Json(ActionOutcome::new("ready", &role, format!("{role} is resigned")))),
        Err(field) => {
            let detail = format!("this stream does not lead {role} with token {}", ready.token);
            Err(Problem::missing(field, detail))
        }
    }
}
