//! The HTTP API: [`router`] is a value, so that tests can call it without a socket; [`serve`] puts it behind sockets.
//!
//! Whatever is asked is answered from memory ([`crate::agent::sight`]), except history, the audit trail and the ledgers of
//! tasks, which are read from the store.

pub mod act;
pub mod alerts;
pub mod api;
pub mod extract;
pub mod guard;
pub mod limits;
pub mod look;
pub mod problem;
pub mod serve;
pub mod streams;
pub mod tasks;
pub mod tokens;
pub mod views;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode};
use axum::routing::{get, post};
use tenure::{Node, Operator};

use super::alerts::Desk;
use super::campaign::Campaigns;
use super::config::Config;
use super::events::Events;
use super::metrics::Metrics;
use super::roster::Roster;
use super::sight::Sight;
use super::ui;
use limits::{Rate, Streams};
use problem::Problem;

/// What every request can reach.
#[derive(Debug)]
pub struct App {
    /// What the agent runs on.
    pub config: Config,
    /// The node.
    pub node: Node,
    /// Looks and asks.
    pub operator: Operator,
    /// The cluster, as it was seen last.
    pub sight: Sight,
    /// What happens.
    pub events: Arc<Events>,
    /// Candidacies.
    pub roster: Arc<Roster>,
    /// Clients that lead.
    pub campaigns: Arc<Campaigns>,
    /// Alerts.
    pub desk: Arc<Desk>,
    /// Counts.
    pub metrics: Metrics,
    /// Requests.
    pub rate: Rate,
    /// Streams.
    pub streams: Arc<Streams>,
    /// The ledgers of tasks, as they were read last.
    pub ledgers: tasks::Ledgers,
    /// What is to be done later.
    pub later: act::Later,
    addresses: Mutex<Vec<SocketAddr>>,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(config: Config, node: Node, metrics: Metrics, events: Arc<Events>) -> Arc<Self> {
        let roster = Arc::new(Roster::new(node.clone(), &config));
        metrics.attach(&node, &roster);
        let desk = Arc::new(Desk::new(config.alerting.clone()));
        metrics.attach_alerts(&desk);
        let by = format!("agent {}", node.name());
        let operator = Operator::new(node.store().clone(), node.namespace().clone(), by);
        let http = &config.http;
        Arc::new(Self {
            sight: Sight::new(&config.timing),
            rate: Rate::new(http.rate),
            streams: Arc::new(Streams::new(http.streams_per_client, http.streams)),
            campaigns: Arc::default(),
            ledgers: tasks::Ledgers::default(),
            later: act::Later::default(),
            desk,
            addresses: Mutex::default(),
            config,
            node,
            operator,
            events,
            roster,
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
        let (turned, limit) = (self.node.loop_turned(), 2 * self.config.timing.ttl);
        (turned > limit).then(|| format!("the election loop has not turned for {turned:?}"))
    }
}

/// Whether answers at this path go on for long.
#[must_use]
pub fn is_stream(path: &str) -> bool {
    path == "/v1/events" || (path.starts_with("/v1/campaign/") && !path.ends_with("/ready"))
}

/// All routes; no socket.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(ui::page))
        .route("/ui/{file}", get(ui::file))
        .route("/livez", get(look::livez))
        .route("/readyz", get(look::readyz))
        .route("/leader/{role}", get(look::leader))
        .route("/v1/cluster", get(look::cluster))
        .route("/v1/roles", get(look::roles))
        .route("/v1/roles/{role}", get(look::role))
        .route("/v1/nodes", get(look::nodes))
        .route("/v1/history", get(look::history))
        .route("/v1/audit", get(look::audit))
        .route("/metrics", get(look::metrics))
        .route("/openapi.json", get(look::openapi))
        .route("/v1/events", get(streams::events))
        .route("/v1/campaign/{role}", get(streams::campaign))
        .route("/v1/campaign/{role}/ready", post(streams::ready))
        .route("/v1/roles/{role}/transfer", post(act::transfer).delete(act::cancel))
        .route("/v1/roles/{role}/step-down", post(act::step_down))
        .route("/v1/roles/{role}/pause", post(act::pause))
        .route("/v1/roles/{role}/resume", post(act::resume))
        .route("/v1/roles/{role}/pin", post(act::pin).delete(act::unpin))
        .route("/v1/roles/{role}/eligible", post(act::eligible))
        .route("/v1/nodes/{node}/drain", post(act::drain).delete(act::undrain))
        .route("/v1/tasks", get(tasks::tasks))
        .route("/v1/tasks/{task}", get(tasks::task))
        .route("/v1/tasks/{task}/trigger", post(tasks::trigger))
        .route("/v1/tasks/{task}/pause", post(tasks::pause))
        .route("/v1/tasks/{task}/resume", post(tasks::resume))
        .route("/v1/alerts", get(alerts::alerts))
        .route("/v1/alerts/{alert}/acknowledge", post(alerts::acknowledge))
        .route("/v1/alerts/{alert}/resolve", post(alerts::resolve))
        .route("/v1/alerts/{alert}/silence", post(alerts::silence).delete(alerts::unsilence))
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "there is nothing here; /openapi.json lists what there is")
        })
        .method_not_allowed_fallback(async |method: Method| {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not possible here"))
        })
        .layer(DefaultBodyLimit::max(app.config.http.max_body))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::admit))
        .with_state(app)
}
