//! Looking: probes, the cluster, roles, nodes, history, the audit trail, metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure::Name;
use tenure::operator::RoleState;
use utoipa::OpenApi;

use super::App;
use super::api::Api;
use super::extract::{NameText, Params, Subject};
use super::guard::Caller;
use super::json::Json;
use super::problem::Problem;
use crate::metrics::ExpositionFormat;
use crate::model::{
    AgentLimits, AuditItem, AuditPage, ClusterStatus, HistoryPage, LeaderStatus, NAMED, NodeStatus,
    NodesPage, ProbeStatus, RoleStatus, RolesPage, TenureEntry,
};

type QueryAnswer<T> = Result<Json<T>, Problem>;

fn probe(why: Option<String>) -> (StatusCode, Json<ProbeStatus>) {
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ProbeStatus { ok: why.is_none(), why }))
}

/// Whether this process works: 503 when its election loop has stalled.
#[utoipa::path(get, path = "/livez", responses((status = 200, body = ProbeStatus), (status = 503, body = ProbeStatus)))]
pub async fn livez(State(app): State<Arc<App>>) -> (StatusCode, Json<ProbeStatus>) {
    probe(app.stalled())
}

/// Whether this agent can take part: 503 while it cannot see the store. Never tied to leading, so that a rollout which
/// waits for it cannot wait for ever.
#[utoipa::path(get, path = "/readyz", responses((status = 200, body = ProbeStatus), (status = 503, body = ProbeStatus)))]
pub async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, Json<ProbeStatus>) {
    let unseen = || app.cluster_view.latest().outage();
    probe(app.stalled().or_else(|| (!app.cluster_view.is_fresh()).then(unseen)))
}

/// Whether this node leads the role at this very moment: 200 here, 503 elsewhere. For load balancers. A node that leads
/// in shadow mode runs no work: it answers 503 and says so.
#[utoipa::path(
    method(get, head), path = "/leader/{role}", params(("role" = NameText, Path, description = "The role")),
    responses((status = 200, body = LeaderStatus), (status = 503, body = LeaderStatus))
)]
pub async fn leader(State(app): State<Arc<App>>, Subject(role): Subject) -> Result<Response, Problem> {
    let lead = app.candidacies.lead(&role);
    let seen = app.cluster_view.latest();
    let report = seen.snapshot.role(&role);
    if lead.is_none() && report.is_none() && !app.config.roles.iter().any(|known| known.name == role) {
        return Err(no_such_role(&role));
    }
    let leads = lead.as_ref().is_some_and(tenure::Lead::check);
    let shadow = leads && app.candidacies.is_in_shadow(&role);
    let here = leads && !shadow;
    let unknown = !leads && report.is_none_or(|report| report.state == RoleState::Unknown);
    // This node knows better than the store whether it leads.
    let elsewhere = report.filter(|report| report.leader.as_ref() != Some(app.node.name()));
    let leader =
        if leads { Some(app.node.name()) } else { elsewhere.and_then(|report| report.leader.as_ref()) };
    let view = LeaderStatus {
        role: role.to_string(),
        here,
        shadow,
        leader: leader.map(ToString::to_string),
        address: report.filter(|_| leader.is_some()).and_then(|report| report.address.clone()),
        token: lead
            .as_ref()
            .map(|lead| lead.token().get())
            .or_else(|| report.map(|report| report.token.get())),
        remaining_ms: lead.map(|lead| u64::try_from(lead.remaining().as_millis()).unwrap_or(u64::MAX)),
        seen_ms_ago: seen.ms_ago(),
        why: if shadow {
            Some("this node leads in shadow mode: it runs no work".to_owned())
        } else {
            unknown.then(|| format!("the leader of {role} is unknown: {}", seen.outage()))
        },
    };
    let status = if here { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(view)).into_response())
}

/// Health of the cluster: healthy, degraded or unhealthy, and why.
#[utoipa::path(get, path = "/v1/cluster", responses((status = 200, body = ClusterStatus)))]
pub async fn cluster(State(app): State<Arc<App>>, caller: Caller) -> Json<ClusterStatus> {
    app.cluster_view.refresh().await;
    let (health, why) = app.cluster_view.health();
    let seen = app.cluster_view.latest();
    let count = |states: Vec<String>| {
        let mut counts = BTreeMap::new();
        states.into_iter().for_each(|state| *counts.entry(state).or_default() += 1);
        counts
    };
    Json(ClusterStatus {
        health,
        why,
        namespace: app.node.namespace().to_string(),
        store: app.node.store().to_string(),
        node: app.node.name().to_string(),
        version: env!("CARGO_PKG_VERSION"),
        ttl_ms: u64::try_from(app.config.timing.ttl.as_millis()).unwrap_or(u64::MAX),
        roles: count(seen.snapshot.roles.iter().map(|role| role.state.to_string()).collect()),
        nodes: count(seen.snapshot.nodes.iter().map(|node| node.state.to_string()).collect()),
        seen_ms_ago: seen.ms_ago(),
        store_error: seen.error,
        may_not_act: caller.refusal(),
        limits: AgentLimits {
            open_files: app.limits.open_files,
            connections: app.limits.connections,
            connections_per_client: app.limits.connections_per_client,
            streams: app.config.http.streams,
            streams_per_client: app.config.http.streams_per_client,
        },
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
        ("after" = Option<NameText>, Query, description = "Last name of the previous page"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "Page size; default 100"),
        ("search" = Option<String>, Query, description = "Only roles whose name, leader or state contains this text"),
    ),
    responses((status = 200, body = RolesPage))
)]
pub async fn roles(State(app): State<Arc<App>>, mut params: Params) -> QueryAnswer<RolesPage> {
    let (after, limit) = (params.name("after")?, params.number("limit", PAGE.0, PAGE.1)?);
    let search = params.text("search").unwrap_or_default();
    params.done()?;
    app.cluster_view.refresh().await;
    let seen = app.cluster_view.latest();
    let matches = |role: &tenure::operator::RoleReport| {
        search.is_empty()
            || role.role.as_str().contains(&search)
            || role.leader.as_ref().is_some_and(|leader| leader.as_str().contains(&search))
            || role.state.to_string() == search
    };
    let (page, next, total) =
        page(&seen.snapshot.roles, |role| role.role.as_str(), matches, text(&after), limit);
    let roles =
        page.into_iter().map(|role| RoleStatus { seen_ms_ago: seen.ms_ago(), ..role.into() }).collect();
    Ok(Json(RolesPage { roles, next, total, seen_ms_ago: seen.ms_ago(), store_error: seen.error }))
}

/// One role.
#[utoipa::path(
    get, path = "/v1/roles/{role}", params(("role" = NameText, Path, description = "The role")),
    responses((status = 200, body = RoleStatus))
)]
pub async fn role(State(app): State<Arc<App>>, Subject(role): Subject) -> QueryAnswer<RoleStatus> {
    app.cluster_view.refresh().await;
    let seen = app.cluster_view.latest();
    let report = seen.snapshot.role(&role).ok_or_else(|| no_such_role(&role))?;
    Ok(Json(RoleStatus { seen_ms_ago: seen.ms_ago(), ..report.into() }))
}

/// The nodes, a page at a time.
#[utoipa::path(
    get, path = "/v1/nodes",
    params(
        ("after" = Option<NameText>, Query, description = "Last name of the previous page"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "Page size; default 100"),
        ("named" = Option<usize>, Query, maximum = 1000, description = "How many roles of each node to name; default 1000"),
    ),
    responses((status = 200, body = NodesPage))
)]
pub async fn nodes(State(app): State<Arc<App>>, mut params: Params) -> QueryAnswer<NodesPage> {
    let (after, limit) = (params.name("after")?, params.number("limit", PAGE.0, PAGE.1)?);
    let named = params.within("named", NAMED, 0..=NAMED)?;
    params.done()?;
    app.cluster_view.refresh().await;
    let seen = app.cluster_view.latest();
    let (page, next, total) =
        page(&seen.snapshot.nodes, |node| node.node.as_str(), |_| true, text(&after), limit);
    Ok(Json(NodesPage {
        nodes: page.into_iter().map(|node| NodeStatus::naming(node, named)).collect(),
        next,
        total,
        seen_ms_ago: seen.ms_ago(),
    }))
}

/// Past tenures of a role, or of a page of roles, and what operators did about them.
#[utoipa::path(
    get, path = "/v1/history",
    params(
        ("role" = Option<NameText>, Query, description = "Only this role"),
        ("after" = Option<NameText>, Query, description = "Last role of the previous page"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 100, description = "Page size; default 20"),
    ),
    responses((status = 200, body = HistoryPage), (status = 503, body = Problem))
)]
pub async fn history(State(app): State<Arc<App>>, mut params: Params) -> QueryAnswer<HistoryPage> {
    let (only, after) = (params.name("role")?, params.name("after")?);
    let limit = params.number("limit", 20, 100)?;
    params.done()?;
    app.cluster_view.refresh().await;
    let snapshot = app.cluster_view.latest().snapshot;
    let (names, next) = match only {
        Some(role) => (vec![role], None),
        None => {
            let (page, next, _) =
                page(&snapshot.roles, |role| role.role.as_str(), |_| true, text(&after), limit);
            (page.into_iter().map(|role| role.role.clone()).collect(), next)
        }
    };
    let histories = app.operator.histories(&names).await?;
    let entries = app.operator.audit().await?;
    let about = entries.iter().filter(|entry| names.contains(&entry.subject) && !entry.action.is_of_task());
    Ok(Json(HistoryPage {
        tenures: histories.iter().flat_map(|(role, history)| TenureEntry::of_role(role, history)).collect(),
        audit: about.map(AuditItem::from).collect(),
        next,
    }))
}

/// What operators did, with who and why.
#[utoipa::path(get, path = "/v1/audit", responses((status = 200, body = AuditPage), (status = 503, body = Problem)))]
pub async fn audit(State(app): State<Arc<App>>) -> QueryAnswer<AuditPage> {
    let entries = app.operator.audit().await?;
    Ok(Json(AuditPage { entries: entries.iter().map(AuditItem::from).collect() }))
}

/// Metrics, in Prometheus text or OpenMetrics.
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))))
)]
pub async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let form = ExpositionFormat::wanted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    ([(header::CONTENT_TYPE, form.content_type())], app.metrics.text(form)).into_response()
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub async fn openapi() -> Response {
    // Always the same, and long: putting it together is the most expensive of all answers.
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| crate::text::json(&Api::openapi()));
    ([(header::CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

fn no_such_role(role: &Name) -> Problem {
    let detail = format!("role \"{role}\" not found (GET /v1/roles lists roles)");
    Problem::missing("role", detail)
}
