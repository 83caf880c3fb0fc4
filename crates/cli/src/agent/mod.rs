//! `tenure agent`: one node for everything on this host.
//!
//! ```text
//!   config ──▶ node ──▶ roster (candidacies) ──▶ campaign streams
//!                │
//!                └──▶ sight (one watch of the store) + events ──▶ http, metrics
//! ```

pub mod alerts;
pub mod campaign;
pub mod client;
pub mod config;
pub mod events;
pub mod http;
pub mod metrics;
pub mod notify;
pub mod roster;
pub mod sight;
pub mod store;
pub mod ui;
mod work;

use std::sync::Arc;
use std::time::Duration;

use tenure::Node;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{AgentArgs, Common};
use crate::exit::Exit;
use crate::output;
use config::Config;
use events::Events;
use http::App;
use metrics::{Metrics, StoreMeter};
use notify::Manager;
use roster::Refused;
use store::AgentStore;

/// Runs the agent until it is told to stop.
///
/// # Errors
/// If the configuration cannot be, the store cannot be used, or a socket cannot be had.
pub async fn main(common: &Common, args: &AgentArgs) -> Result<Exit, Exit> {
    let config = Config::load(common, args)?;
    if args.print_config {
        output::print(config.effective().trim_end())?;
        return Ok(Exit::Done);
    }
    for notice in &config.notices {
        tracing::info!("{notice}");
    }
    raise_file_limit();
    let signals = Signals::new().map_err(|error| Exit::Failed(format!("signals: {error}")))?;
    let manager = Manager::from_env();
    let app = start(&config).await?;
    app.roster.expect(&config.roles).map_err(|error| Exit::Usage(error.to_string()))?;
    http::serve::serve(&app).await.map_err(Exit::Failed)?;
    apply(&app, &config).await.map_err(|error| Exit::Usage(error.to_string()))?;
    manager.tell("READY=1");
    Running { app, common, args, manager, config }.until_stopped(signals).await
}

/// The node and everything around it, without sockets.
///
/// # Errors
/// If the store cannot be used.
pub async fn start(config: &Config) -> Result<Arc<App>, Exit> {
    let meter = Arc::new(StoreMeter::default());
    let store = AgentStore::new(tenure::store::open(&config.store)?, meter.clone());
    let metrics = Metrics::new(&config.metrics, &config.node.name, &config.namespace, &meter);
    let events = Arc::new(Events::new(config.http.events_kept));
    let mut builder = Node::with_store(Arc::new(store))
        .namespace(config.namespace.as_str())
        .name(config.node.name.as_str())
        .timing(config.settings.clone())
        .drain(config.drain);
    for (key, value) in &config.node.labels {
        builder = builder.label(key, value);
    }
    if let Some(address) = &config.node.address {
        builder = builder.address(address);
    }
    let (heard, told) = tokio::sync::mpsc::unbounded_channel();
    let node = builder.listen(move |event| _ = heard.send(event.clone())).start().await?;
    let app = App::new(config.clone(), node, metrics, events);
    tokio::spawn(hear(app.clone(), told));
    let looking = app.clone();
    tokio::spawn(
        async move { looking.sight.keep(&looking.operator, &looking.events, &looking.metrics).await },
    );
    tokio::spawn(alerts::run(app.clone()));
    Ok(app)
}

/// Stands for these roles and runs these tasks, and no others.
async fn apply(app: &App, config: &Config) -> Result<(), Refused> {
    app.roster.sync_everywhere(&config.everywhere)?;
    app.roster.sync(&config.roles).await
}

/// Passes on what the node tells.
async fn hear(app: Arc<App>, mut told: tokio::sync::mpsc::UnboundedReceiver<tenure::Event>) {
    while let Some(event) = told.recv().await {
        // Roles of Tenure's own are nobody else's business.
        if event.what.role().is_some_and(tenure::operator::is_internal) {
            continue;
        }
        app.metrics.heard(&event);
        app.events.tell_event(&event);
    }
}

/// Thousands of streams need as many descriptors; what the system allows is used.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
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

struct Running<'a> {
    app: Arc<App>,
    common: &'a Common,
    args: &'a AgentArgs,
    manager: Manager,
    config: Config,
}

impl Running<'_> {
    async fn until_stopped(mut self, mut signals: Signals) -> Result<Exit, Exit> {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let roster = self.app.roster.clone();
        let everywhere =
            tokio::spawn(async move { roster.run_everywhere(async { _ = stopped.await }).await });
        let period = self.manager.watchdog();
        let mut watchdog = tokio::time::interval(period.unwrap_or(Duration::from_secs(3600)));
        loop {
            tokio::select! {
                _ = signals.reload.recv() => self.reload().await,
                _ = signals.terminate.recv() => break,
                _ = signals.interrupt.recv() => break,
                // A loop that hangs is not alive, whatever else still is.
                _ = watchdog.tick(), if period.is_some() && self.app.stalled().is_none() => self.manager.tell("WATCHDOG=1"),
            }
        }
        self.manager.tell("STOPPING=1");
        drop(stop);
        tokio::select! {
            _ = async { tokio::join!(self.app.node.stop(), everywhere) } => {}
            _ = signals.terminate.recv() => {}
            _ = signals.interrupt.recv() => {}
        }
        if let Some(socket) = &self.config.http.socket {
            let _ = std::fs::remove_file(socket);
        }
        Ok(Exit::Done)
    }

    /// Reads the configuration again. What is wrong in it changes nothing.
    async fn reload(&mut self) {
        self.manager.tell("RELOADING=1");
        match Config::load(self.common, self.args) {
            Ok(new) => {
                for notice in &new.notices {
                    tracing::info!("{notice}");
                }
                for stays in self.config.fixed_differences(&new) {
                    tracing::warn!("{stays}");
                }
                match apply(&self.app, &new).await {
                    Ok(()) => tracing::info!("the configuration was read again"),
                    Err(error) => tracing::error!(%error, "not all of the configuration could be applied"),
                }
                self.app.desk.configure(new.alerting.clone());
                self.config = new;
            }
            Err(Exit::Usage(why)) => tracing::error!("the configuration was not read again: {why}"),
            Err(_) => tracing::error!("the configuration was not read again"),
        }
        self.manager.tell("READY=1");
    }
}
