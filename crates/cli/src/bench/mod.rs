//! `tenure bench`: figures from this machine, each next to what the store itself needs, measured in the same run.
//!
//! It works in a scratch namespace of the store that was named, on nodes of this process; only what must die is a
//! process of its own. Shared machines are noisy: compare ratios within one run, never milliseconds between two.

mod budget;
mod figures;
mod measure;
mod metered;
mod scale;

use std::time::Duration;

use clap::{Args, ValueEnum};
use tenure::store::SharedStore;
use tenure::{Name, Node};

use crate::args::{Common, duration, private_server};
use crate::exit::Exit;
use crate::stop_signals::StopSignals;
use figures::Figures;
use scale::Scale;
use tenure_torture::attacked::PrivateServer;
use tenure_torture::target::TargetStore;

/// `tenure bench`
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Number of measurements of each figure
    #[arg(long, default_value_t = 100)]
    pub rounds: u32,
    /// Number of roles: on one node, or with `--only scale` on all
    #[arg(long, default_value_t = 10_000)]
    pub roles: u32,
    /// With `--only scale`: number of nodes
    #[arg(long, default_value_t = 300)]
    pub nodes: u32,
    /// With `--only scale`: number of nodes that stand for each role
    #[arg(long, default_value_t = 3)]
    pub candidates: u32,
    /// With `--only scale`: lease duration of the nodes
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "5s")]
    pub ttl: Duration,
    /// Start a private server of this kind, and measure there; otherwise --store is used
    #[arg(long, value_name = "KIND", value_parser = private_server())]
    pub private: Option<&'static PrivateServer>,
    /// Measure only these figures, separated by commas [default: all but scale]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURES")]
    pub only: Vec<BenchFigure>,
    /// Run the node that is killed
    #[arg(long, hide = true)]
    pub victim: bool,
}

/// One thing that `tenure bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchFigure {
    /// A local check of leadership
    Check,
    /// A clean hand-over from one node to another
    HandOver,
    /// Operations and memory of an idle leader with one role and with many
    SteadyState,
    /// All roles of a node that dies
    MassTakeover,
    /// `kill -9` of `tenure run`
    Crash,
    /// Many nodes and roles: cost at rest, fail-over of the busiest node, a rolling restart
    Scale,
}

impl BenchFigure {
    /// Those that are measured unless others are named.
    const USUAL: [Self; 5] =
        [Self::Check, Self::HandOver, Self::SteadyState, Self::MassTakeover, Self::Crash];
}

impl BenchArgs {
    fn scale(&self) -> Scale {
        let (nodes, roles) = (self.nodes.max(1) as usize, self.roles.max(1) as usize);
        Scale { nodes, roles, candidates: (self.candidates.max(1) as usize).min(nodes), ttl: self.ttl }
    }

    /// A node has two connections to a server that speaks SQL; one that starts anew has two more for a moment.
    fn connections(&self) -> u32 {
        if self.only.contains(&BenchFigure::Scale) { 200 + 3 * self.nodes } else { 200 }
    }
}

/// What the measurements share.
pub(crate) struct Bench {
    url: String,
    namespace: Name,
    rounds: u32,
    roles: u32,
}

/// Runs the verb.
///
/// # Errors
/// If the store cannot be used.
pub async fn main(common: &Common, args: &BenchArgs) -> Result<Exit, Exit> {
    if args.victim {
        return measure::play_victim(common, args.roles).await;
    }
    let mut signals = StopSignals::listen()?;
    // It ends with the measurement, also if that is interrupted; a signal that comes while it starts is heeded when it has started.
    let private = match args.private {
        Some(private) => Some(TargetStore::open_for(Some(private), "", &[], args.connections()).await?),
        None => None,
    };
    let figures = tokio::select! {
        figures = measured(common, args, private.as_ref()) => figures?,
        signal = signals.any() => return Err(Exit::Signal(signal.as_raw_value().try_into().unwrap_or(0))),
    };
    if common.is_json() {
        crate::output::json(&figures)?;
    } else {
        crate::output::print(&figures.to_string())?;
    }
    Ok(Exit::Done)
}

async fn measured(common: &Common, args: &BenchArgs, private: Option<&TargetStore>) -> Result<Figures, Exit> {
    let namespace = Name::new(format!("bench-{}", std::process::id())).map_err(tenure::Error::from)?;
    let url = private.map_or_else(|| common.store_url(), |target| target.url.clone());
    let bench = Bench { url, namespace, rounds: args.rounds.max(1), roles: args.roles.max(1) };
    let mut figures = Figures::default();
    let wanted = if args.only.is_empty() { &BenchFigure::USUAL[..] } else { &args.only };
    for figure in wanted {
        match figure {
            BenchFigure::Check => measure::check(&bench, &mut figures).await?,
            BenchFigure::HandOver => measure::hand_over(&bench, &mut figures).await?,
            BenchFigure::SteadyState => measure::steady_state(&bench, &mut figures).await?,
            BenchFigure::MassTakeover => measure::mass_takeover(&bench, &mut figures).await?,
            BenchFigure::Crash => measure::crash(&bench, &mut figures).await?,
            BenchFigure::Scale => scale::scale(&bench, args.scale(), private, &mut figures).await?,
        }
    }
    Ok(figures)
}

impl Bench {
    /// What a clean hand-over may take. Where the store has no notifications the floor is our own work, and no measure.
    fn hand_over_target(&self) -> &'static str {
        let native =
            tenure::store::backend_for_url(&self.url).is_ok_and(|backend| backend.native_notifications);
        if native { "≤ 3 ×" } else { "p99 ≤ 60 ms" }
    }

    /// A handle of its own on the store, as another process would have.
    fn store(&self) -> Result<SharedStore, Exit> {
        Ok(tenure::store::open_as_client(&self.url)?)
    }

    async fn node(&self, name: &str, ttl: Duration) -> Result<Node, Exit> {
        self.node_on(self.store()?, name, ttl).await
    }

    async fn node_on(&self, store: SharedStore, name: &str, ttl: Duration) -> Result<Node, Exit> {
        Ok(Node::builder_with_store(store)
            .namespace(self.namespace.as_str())
            .name(name)
            .ttl(ttl)
            .start()
            .await?)
    }
}

/// Says on stderr what takes time.
pub(crate) fn progress(what: &str) {
    anstream::eprintln!("measuring {what} …");
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
