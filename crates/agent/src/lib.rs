//! The agent: one node for everything on this host, which runs Linux.
//!
//! ```text
//!   config ──▶ node ──▶ candidacies ──▶ campaign streams
//!                │
//!                └──▶ cluster_view (one watch of the store) + events ──▶ http, metrics
//! ```
#![allow(missing_docs, reason = "a doc comment says here what a name cannot")]

pub mod alerts;
pub mod campaign;
pub mod candidacies;
pub mod client;
pub mod cluster_view;
pub mod config;
mod error;
pub mod events;
mod gaps;
pub mod http;
pub mod identity;
pub mod log;
pub mod metrics;
pub mod model;
pub mod nearest;
pub mod outbound;
mod secret_file;
pub mod store;
pub mod systemd;
pub mod task;
pub mod text;
pub mod time;
pub mod ui;
mod work;

use std::sync::Arc;
use std::time::Duration;

use tenure::Node;
use tokio::signal::unix::{Signal, SignalKind, signal};

use candidacies::CandidacyError;
use config::{Config, Sources};
pub use error::Error;
use events::Events;
use http::{App, limits};
use metrics::{Metrics, StoreMeter};
use store::{AgentStore, SessionsRead};
use systemd::ServiceManager;
use tenure_process::environment;

/// Runs the agent until it is told to stop.
///
/// # Errors
/// If the configuration cannot be, the store cannot be used, or a socket cannot be had.
pub async fn run(sources: &Sources) -> Result<(), Error> {
    let config = Config::load(sources)?;
    for notice in &config.notices {
        tracing::info!("{notice}");
    }
    limits::raise_open_files();
    let signals = Signals::new().map_err(|error| Error::Failed(format!("signals: {error}")))?;
    let manager = ServiceManager::from_env();
    environment::set(config.pass_env.clone(), config.secret_variables());
    let app = start(&config).await?;
    log_limits(&app);
    app.candidacies.register_all(&config.roles).map_err(|error| Error::Invalid(error.to_string()))?;
    http::serve::serve(&app).await.map_err(Error::Failed)?;
    apply(&app, &config).await.map_err(|error| Error::Invalid(error.to_string()))?;
    // A store that refuses us is told at once; one that is not up yet is waited for while the agent answers.
    if let Ok(reached) = tokio::time::timeout(config.timing.op_timeout, app.node.wait_for_store()).await {
        reached?;
    }
    manager.notify("READY=1");
    Running { app, sources, manager, config }.until_stopped(signals).await
}

/// The node and everything around it, without sockets.
///
/// # Errors
/// If the store cannot be used.
pub async fn start(config: &Config) -> Result<Arc<App>, Error> {
    let meter = Arc::new(StoreMeter::default());
    let sessions = Arc::new(SessionsRead::default());
    let store = AgentStore::new(tenure::store::open(&config.store)?, meter.clone(), sessions.clone());
    let metrics = Metrics::new(&config.metrics, &config.node.name, &config.namespace, &meter);
    let events = Arc::new(Events::new(config.http.events_kept));
    let mut builder = Node::builder_with_store(Arc::new(store))
        .namespace(config.namespace.as_str())
        .name(config.node.name.as_str())
        .timing(config.settings.clone())
        .election_checks(config.node.election_checks)
        .drain(config.drain);
    for (key, value) in &config.node.labels {
        builder = builder.label(key, value);
    }
    if let Some(address) = &config.node.address {
        builder = builder.address(address);
    }
    let (heard, told) = tokio::sync::mpsc::unbounded_channel();
    let node = builder.listen(move |event| _ = heard.send(event.clone())).start_without_waiting()?;
    let app = App::new(config.clone(), node, metrics, events);
    tokio::spawn(forward_events(app.clone(), told));
    let looking = app.clone();
    tokio::spawn(async move {
        let App { cluster_view, operator, events, metrics, .. } = &*looking;
        cluster_view.run(operator, &sessions, events, metrics).await
    });
    tokio::spawn(alerts::run(app.clone()));
    Ok(app)
}

/// Stands for these roles and runs these tasks, and no others.
async fn apply(app: &App, config: &Config) -> Result<(), CandidacyError> {
    app.candidacies.sync_on_every_node(&config.everywhere)?;
    app.candidacies.sync(&config.roles).await
}

/// Passes on what the node tells.
async fn forward_events(app: Arc<App>, mut told: tokio::sync::mpsc::UnboundedReceiver<tenure::Event>) {
    while let Some(event) = told.recv().await {
        // Roles of Tenure's own are not shown.
        if event.kind.role().is_some_and(tenure::operator::is_internal) {
            continue;
        }
        app.metrics.count_event(&event);
        app.events.publish_event(&event);
    }
}

/// Says how much there is room for.
fn log_limits(app: &App) {
    let limits::Limits { open_files, connections, connections_per_client } = app.limits;
    tracing::info!(open_files, connections, connections_per_client, "connection limits");
    if connections < app.config.http.connections {
        let asked = app.config.http.connections;
        tracing::warn!(asked, connections, "http.connections exceeds the open-file limit; raise LimitNOFILE");
    }
}

struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            reload: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Returns if the store refuses this node, or has not answered once in time.
async fn store_gave_up(node: &Node, timeout: Option<Duration>) -> Error {
    let too_late = async {
        match timeout {
            Some(timeout) => tokio::time::timeout(timeout, node.wait_for_store()).await.is_err(),
            None => false,
        }
    };
    tokio::select! {
        error = node.store_refused() => error.into(),
        () = async { if !too_late.await { std::future::pending::<()>().await } } => {
            Error::Store(node.store_problem().unwrap_or_default())
        }
    }
}

struct Running<'a> {
    app: Arc<App>,
    sources: &'a Sources,
    manager: ServiceManager,
    config: Config,
}

impl Running<'_> {
    async fn until_stopped(mut self, mut signals: Signals) -> Result<(), Error> {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let candidacies = self.app.candidacies.clone();
        let everywhere =
            tokio::spawn(async move { candidacies.run_on_every_node(async { _ = stopped.await }).await });
        let period = self.manager.watchdog();
        let mut watchdog = tokio::time::interval(period.unwrap_or(Duration::from_secs(3600)));
        let node = self.app.node.clone();
        let mut refused = std::pin::pin!(store_gave_up(&node, self.config.store_timeout));
        loop {
            tokio::select! {
                _ = signals.reload.recv() => self.reload().await,
                _ = signals.terminate.recv() => break,
                _ = signals.interrupt.recv() => break,
                error = &mut refused => return Err(error),
                // A loop that hangs is not alive, whatever else still is.
                _ = watchdog.tick(), if period.is_some() && self.app.stalled().is_none() => self.manager.notify("WATCHDOG=1"),
            }
        }
        self.manager.notify("STOPPING=1");
        drop(stop);
        tokio::select! {
            _ = async { tokio::join!(self.app.node.stop(), everywhere) } => {}
            _ = signals.terminate.recv() => {}
            _ = signals.interrupt.recv() => {}
        }
        if let Some(socket) = &self.config.http.socket {
            let _ = std::fs::remove_file(socket);
        }
        Ok(())
    }

    /// Reads the configuration again. What is wrong in it changes nothing.
    async fn reload(&mut self) {
        self.manager.notify("RELOADING=1");
        match Config::load(self.sources) {
            Ok(new) => {
                for notice in &new.notices {
                    tracing::info!("{notice}");
                }
                for stays in self.config.fixed_differences(&new) {
                    tracing::warn!("{stays}");
                }
                environment::set(new.pass_env.clone(), new.secret_variables());
                match apply(&self.app, &new).await {
                    Ok(()) => tracing::info!("configuration reloaded"),
                    Err(error) => tracing::error!(%error, "configuration not fully applied"),
                }
                self.app.alert_manager.configure(new.alerting.clone());
                // The files that were named at the start: who may come in is decided by them alone.
                if let Err(why) = self.app.access.read(&self.app.config.http) {
                    tracing::error!("cannot reload tokens and certificates: {why}");
                }
                self.config = new;
            }
            Err(Error::Invalid(why)) => {
                tracing::error!("cannot reload the configuration: {}", why.replace("\n  ", "; "));
            }
            Err(_) => tracing::error!("cannot reload the configuration"),
        }
        self.manager.notify("READY=1");
    }
}
