//! Looking: probes, the cluster, roles, nodes, history, the audit trail, metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure::Name;
use utoipa::OpenApi;

use super::App;
use super::api::Api;
use super::extract::{NameText, Params, Subject};
use super::problem::Problem;
use super::views::{
    AuditView, ClusterView, DeedView, HistoryView, LeaderView, NAMED, NodeView, NodesPage, PastView,
    ProbeView, RoleView, RolesPage,
};
use crate::agent::metrics::Form;

type Found<T> = Result<Json<T>, Problem>;

fn probe(why: Option<String>) -> (StatusCode, Json<ProbeView>) {
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ProbeView { ok: why.is_none(), why }))
}

/// Whether this process works: 503 when its election loop has stalled.
#[utoipa::path(get, path = "/livez", responses((status = 200, body = ProbeView), (status = 503, body = ProbeView)))]
pub async fn livez(State(app): State<Arc<App>>) -> (StatusCode, Json<ProbeView>) {
    probe(app.stalled())
}

/// Whether this agent can take part: 503 while it cannot see the store. Never tied to leading, so that a rollout which
/// waits for it cannot wait for ever.
#[utoipa::path(get, path = "/readyz", responses((status = 200, body = ProbeView), (status = 503, body = ProbeView)))]
pub async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, Json<ProbeView>) {
    let unseen = || app.sight.seen().error.unwrap_or_else(|| "the store has not answered yet".to_owned());
    probe(app.stalled().or_else(|| (!app.sight.is_fresh()).then(unseen)))
}

/// Whether this node leads the role at this very moment: 200 here, 503 elsewhere. For load balancers.
#[utoipa::path(
    method(get, head), path = "/leader/{role}", params(("role" = NameText, Path, description = "The role")),
    responses((status = 200, body = LeaderView), (status = 503, body = LeaderView))
)]
pub async fn leader(State(app): State<Arc<App>>, Subject(role): Subject) -> Result<Response, Problem> {
    let lead = app.roster.lead(&role);
    let seen = app.sight.seen();
    let report = seen.snapshot.role(&role);
    if lead.is_none() && report.is_none() && !app.config.roles.iter().any(|known| known.name == role) {
        return Err(no_such_role(&role));
    }
    let here = lead.as_ref().is_some_and(tenure::Lead::check);
    let view = LeaderView {
        role: role.to_string(),
        here,
        leader: match here {
            true => Some(app.node.name().to_string()),
            false => report.and_then(|report| report.leader.as_ref()).map(ToString::to_string),
        },
        address: report.and_then(|report| report.address.clone()),
        token: lead.as_ref().map(|lead| lead.token().0).or_else(|| report.map(|report| report.token.0)),
        remaining_ms: lead.map(|lead| u64::try_from(lead.remaining().as_millis()).unwrap_or(u64::MAX)),
    };
    let status = if here { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(view)).into_response())
}

/// How the cluster fares: healthy, degraded, unhealthy, and why.
#[utoipa::path(get, path = "/v1/cluster", responses((status = 200, body = ClusterView)))]
pub async fn cluster(State(app): State<Arc<App>>) -> Json<ClusterView> {
    let (health, why) = app.sight.health();
    let seen = app.sight.seen();
    let count = |states: Vec<String>| {
        let mut counts = BTreeMap::new();
        states.into_iter().for_each(|state| *counts.entry(state).or_default() += 1);
        counts
    };
    Json(ClusterView {
        health,
        why,
        namespace: app.node.namespace().to_string(),
        store: app.node.store().to_string(),
        node: app.node.name().to_string(),
        version: env!("CARGO_PKG_VERSION"),
        ttl_ms: u64::try_from(app.config.timing.ttl.as_millis()).unwrap_or(u64::MAX),
        roles: count(seen.snapshot.roles.iter().map(|role| role.state.to_string()).collect()),
        nodes: count(seen.snapshot.nodes.iter().map(|node| node.state.to_string()).collect()),
        seen_ms_ago: seen.at.map(|at| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)),
        store_error: seen.error,
    })
}

/// How many are on a page, and how many at most.
pub(super) const PAGE: (usize, usize) = (100, 1000);

/// A page of what is sorted by name: what comes after a name, and the name to go on after.
pub(super) fn page<'a, T>(
    all: &'a [T],
    name: impl Fn(&T) -> &str,
    matches: impl Fn(&T) -> bool,
    after: Option<&str>,
    limit: usize,
) -> (Vec<&'a T>, Option<String>, usize) {
    let total = all.iter().filter(|one| matches(one)).count();
    let mut rest = all.iter().filter(|one| matches(one) && after.is_none_or(|after| name(one) > after));
    let page: Vec<&T> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(page.last()).map(|last| name(last).to_string());
    (page, next, total)
}

fn text(name: &Option<Name>) -> Option<&str> {
    name.as_ref().map(Name::as_str)
}

/// The roles, a page at a time.
#[utoipa::path(
    get, path = "/v1/roles",
    params(
        ("after" = Option<NameText>, Query, description = "The last name of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "How many; 100 if not said"),
        ("search" = Option<String>, Query, description = "Only names, leaders and states that contain this"),
    ),
    responses((status = 200, body = RolesPage))
)]
pub async fn roles(State(app): State<Arc<App>>, mut params: Params) -> Found<RolesPage> {
    let (after, limit) = (params.name("after")?, params.number("limit", PAGE.0, PAGE.1)?);
    let search = params.text("search").unwrap_or_default();
    params.done()?;
    let snapshot = app.sight.seen().snapshot;
    let matches = |role: &tenure::operator::RoleReport| {
        search.is_empty()
            || role.role.as_str().contains(&search)
            || role.leader.as_ref().is_some_and(|leader| leader.as_str().contains(&search))
            || role.state.to_string() == search
    };
    let (page, next, total) = page(&snapshot.roles, |role| role.role.as_str(), matches, text(&after), limit);
    Ok(Json(RolesPage { roles: page.into_iter().map(RoleView::from).collect(), next, total }))
}

/// One role.
#[utoipa::path(
    get, path = "/v1/roles/{role}", params(("role" = NameText, Path, description = "The role")),
    responses((status = 200, body = RoleView))
)]
pub async fn role(State(app): State<Arc<App>>, Subject(role): Subject) -> Found<RoleView> {
    let snapshot = app.sight.seen().snapshot;
    snapshot.role(&role).map(|report| Json(RoleView::from(report))).ok_or_else(|| no_such_role(&role))
}

/// The nodes, a page at a time.
#[utoipa::path(
    get, path = "/v1/nodes",
    params(
        ("after" = Option<NameText>, Query, description = "The last name of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "How many; 100 if not said"),
        ("named" = Option<usize>, Query, maximum = 1000, description = "How many roles of each node are named; 1000 if not said"),
    ),
    responses((status = 200, body = NodesPage))
)]
pub async fn nodes(State(app): State<Arc<App>>, mut params: Params) -> Found<NodesPage> {
    let (after, limit) = (params.name("after")?, params.number("limit", PAGE.0, PAGE.1)?);
    let named = params.within("named", NAMED, 0..=NAMED)?;
    params.done()?;
    let snapshot = app.sight.seen().snapshot;
    let (page, next, total) = page(&snapshot.nodes, |node| node.node.as_str(), |_| true, text(&after), limit);
    Ok(Json(NodesPage {
        nodes: page.into_iter().map(|node| NodeView::naming(node, named)).collect(),
        next,
        total,
    }))
}

/// Past tenures of a role, or of a page of roles, and what operators did about them.
#[utoipa::path(
    get, path = "/v1/history",
    params(
        ("role" = Option<NameText>, Query, description = "Only this role"),
        ("after" = Option<NameText>, Query, description = "The last role of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 100, description = "How many roles; 20 if not said"),
    ),
    responses((status = 200, body = HistoryView), (status = 503, body = Problem))
)]
pub async fn history(State(app): State<Arc<App>>, mut params: Params) -> Found<HistoryView> {
    let (only, after) = (params.name("role")?, params.name("after")?);
    let limit = params.number("limit", 20, 100)?;
    params.done()?;
    let snapshot = app.sight.seen().snapshot;
    let (names, next) = match only {
        Some(role) => (vec![role], None),
        None => {
            let (page, next, _) =
                page(&snapshot.roles, |role| role.role.as_str(), |_| true, text(&after), limit);
            (page.into_iter().map(|role| role.role.clone()).collect(), next)
        }
    };
    let books = app.operator.histories(&names).await?;
    let deeds = app.operator.audit().await?;
    let about = deeds.iter().filter(|deed| names.contains(&deed.subject) && !deed.act.is_of_task());
    let tenures = |book: &tenure::history::History| book.tenures.iter().map(PastView::from).collect();
    Ok(Json(HistoryView {
        roles: books.iter().map(|(role, book)| (role.to_string(), tenures(book))).collect(),
        deeds: about.map(DeedView::from).collect(),
        next,
    }))
}

/// What operators did, with who and why.
#[utoipa::path(get, path = "/v1/audit", responses((status = 200, body = AuditView), (status = 503, body = Problem)))]
pub async fn audit(State(app): State<Arc<App>>) -> Found<AuditView> {
    let deeds = app.operator.audit().await?;
    Ok(Json(AuditView { deeds: deeds.iter().map(DeedView::from).collect() }))
}

/// Metrics, in Prometheus text or OpenMetrics.
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))))
)]
pub async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let form = Form::wanted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    ([(header::CONTENT_TYPE, form.content_type())], app.metrics.text(form)).into_response()
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Api::openapi())
}

fn no_such_role(role: &Name) -> Problem {
    let detail = format!("there is no role {role}; /v1/roles lists those there are");
    Problem::missing("role", detail)
}
