//! The HTTP API: [`router`] is a value, so that tests can call it without a socket; [`serve`] puts it behind sockets.
//!
//! Queries are answered from memory ([`crate::cluster_view`]), except history, the audit trail and the ledgers of tasks,
//! which are read from the store.

pub mod access;
pub mod actions;
pub mod alerts;
pub mod api;
pub mod extract;
pub mod guard;
pub mod json;
pub mod limits;
mod pace;
pub mod problem;
pub mod queries;
pub mod serve;
pub mod streams;
pub mod tasks;
pub mod tokens;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode};
use axum::routing::{get, post};
use tenure::{Node, Operator};

use super::alerts::AlertManager;
use super::campaign::Campaigns;
use super::candidacies::Candidacies;
use super::cluster_view::ClusterView;
use super::config::Config;
use super::events::Events;
use super::metrics::Metrics;
use super::ui;
use access::Access;
use limits::{Cost, Limits, RateLimit, SlotPool, Turns};
use problem::Problem;

/// What every request can reach.
#[derive(Debug)]
pub struct App {
    /// What the agent runs on.
    pub config: Config,
    pub node: Node,
    /// Looks and asks.
    pub operator: Operator,
    /// The cluster, as it was seen last.
    pub cluster_view: ClusterView,
    /// What happens.
    pub events: Arc<Events>,
    pub candidacies: Arc<Candidacies>,
    /// Clients that lead.
    pub campaigns: Arc<Campaigns>,
    pub alert_manager: Arc<AlertManager>,
    /// Counts.
    pub metrics: Metrics,
    /// Tokens and certificates.
    pub access: Access,
    /// How much there is room for.
    pub limits: Limits,
    /// Requests.
    pub rate: RateLimit,
    /// Tokens that were wrong.
    pub failures: RateLimit,
    pub streams: Arc<SlotPool>,
    /// Answers that cost something.
    pub turns: Turns,
    /// The ledgers of tasks, as they were read last.
    pub ledgers: tasks::Ledgers,
    /// What is to be done later.
    pub scheduled: actions::ScheduledTransfers,
    addresses: Mutex<Vec<SocketAddr>>,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(config: Config, node: Node, metrics: Metrics, events: Arc<Events>) -> Arc<Self> {
        let candidacies = Arc::new(Candidacies::new(node.clone(), &config));
        metrics.attach(&node, &candidacies);
        let alert_manager = Arc::new(AlertManager::new(config.alerting.clone()));
        metrics.attach_alerts(&alert_manager);
        let by = format!("agent {}", node.name());
        let operator = Operator::new(node.store().clone(), node.namespace().clone(), by);
        let http = &config.http;
        Arc::new(Self {
            cluster_view: ClusterView::new(&config.timing),
            access: Access::new(http),
            limits: Limits::of(http, limits::open_files()),
            rate: RateLimit::new(http.rate, Duration::from_secs(1)),
            failures: RateLimit::new(http.auth_failures, Duration::from_secs(60)),
            streams: SlotPool::new(http.streams_per_client, http.streams),
            turns: Turns::default(),
            campaigns: Arc::default(),
            ledgers: tasks::Ledgers::default(),
            scheduled: actions::ScheduledTransfers::default(),
            alert_manager,
            addresses: Mutex::default(),
            config,
            node,
            operator,
            events,
            candidacies,
            metrics,
        })
    }

    /// Where the agent listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn listens_on(&self, address: SocketAddr) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    }

    /// Why the agent is not alive, if it is not: the election loop turns with every beat.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        let (turned, limit) = (self.node.since_loop_turn(), 2 * self.config.timing.ttl);
        (turned > limit).then(|| format!("the election loop has stalled for {turned:?}"))
    }
}

/// Whether answers at this path go on for long.
#[must_use]
pub fn is_stream(path: &str) -> bool {
    path == "/v1/events" || (path.starts_with("/v1/campaign/") && !path.ends_with("/ready"))
}

/// Whether this path asks how the agent is. An answer costs no more than a refusal, and the client may decide about the
/// life of this process, or where requests go: it is never refused for want of room.
#[must_use]
pub fn is_probe(path: &str) -> bool {
    ["/livez", "/readyz"].contains(&path) || path.starts_with("/leader/")
}

/// What an answer costs, if it costs something that other clients would have to wait for.
#[must_use]
pub fn cost(method: &Method, path: &str) -> Option<Cost> {
    let reads = [Method::GET, Method::HEAD].contains(method);
    match path {
        _ if !reads || is_probe(path) || is_stream(path) || ui::is_page(path) => None,
        "/v1/history" | "/v1/audit" => Some(Cost::Store),
        _ if path.starts_with("/v1/tasks") => Some(Cost::Store),
        _ => Some(Cost::Memory),
    }
}

/// All routes; no socket.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(ui::page))
        .route("/ui/{file}", get(ui::file))
        .route("/livez", get(queries::livez))
        .route("/readyz", get(queries::readyz))
        .route("/leader/{role}", get(queries::leader))
        .route("/v1/cluster", get(queries::cluster))
        .route("/v1/roles", get(queries::roles))
        .route("/v1/roles/{role}", get(queries::role))
        .route("/v1/nodes", get(queries::nodes))
        .route("/v1/history", get(queries::history))
        .route("/v1/audit", get(queries::audit))
        .route("/metrics", get(queries::metrics))
        .route("/openapi.json", get(queries::openapi))
        .route("/v1/events", get(streams::events))
        .route("/v1/campaign/{role}", get(streams::campaign))
        .route("/v1/campaign/{role}/ready", post(streams::ready))
        .merge(actions_of_operators(&app))
        .route("/v1/tasks", get(tasks::tasks))
        .route("/v1/tasks/{task}", get(tasks::task))
        .route("/v1/tasks/{task}/trigger", post(tasks::trigger))
        .route("/v1/tasks/{task}/pause", post(tasks::pause))
        .route("/v1/tasks/{task}/resume", post(tasks::resume))
        .route("/v1/alerts", get(alerts::alerts))
        .route("/v1/alerts/{alert}/acknowledge", post(alerts::acknowledge))
        .route("/v1/alerts/{alert}/resolve", post(alerts::resolve))
        .route("/v1/alerts/{alert}/silence", post(alerts::silence).delete(alerts::unsilence))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "not found; /openapi.json lists every path"))
        .method_not_allowed_fallback(async |method: Method| {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here"))
        })
        .layer(DefaultBodyLimit::max(app.config.http.max_body))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::admit))
        .with_state(app)
}

/// What operators ask of roles and nodes. What they asked for is seen by this agent when they are answered.
fn actions_of_operators(app: &Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route("/v1/roles/{role}/transfer", post(actions::transfer).delete(actions::cancel))
        .route("/v1/roles/{role}/step-down", post(actions::step_down))
        .route("/v1/roles/{role}/pause", post(actions::pause))
        .route("/v1/roles/{role}/resume", post(actions::resume))
        .route("/v1/roles/{role}/forget", post(actions::forget))
        .route("/v1/roles/{role}/pin", post(actions::pin).delete(actions::unpin))
        .route("/v1/roles/{role}/eligible", post(actions::eligible))
        .route("/v1/nodes/{node}/drain", post(actions::drain).delete(actions::undrain))
        .route_layer(axum::middleware::from_fn_with_state(app.clone(), actions::answer_when_seen))
}
