//! `tenure bench`: figures from this machine, each next to what the store itself needs, measured in the same run.
//!
//! It works in a scratch namespace of the store that was named, on nodes of this process; only what must die is a
//! process of its own. Shared machines are noisy: compare ratios within one run, never milliseconds between two.

mod figures;
mod measure;
mod metered;

use std::time::Duration;

use tenure::store::SharedStore;
use tenure::{Name, Node};

use crate::args::{BenchArgs, Common};
use crate::exit::Exit;
use crate::torture::ground::Ground;
use figures::Figures;

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
    let namespace = Name::new(format!("bench-{}", std::process::id())).map_err(tenure::Error::from)?;
    let private = match args.private {
        Some(private) => Some(Ground::open(Some(private), "", &[]).await?),
        None => None,
    };
    let url = private.as_ref().map_or_else(|| common.store_url(), |ground| ground.url.clone());
    let bench = Bench { url, namespace, rounds: args.rounds.max(1), roles: args.roles.max(1) };
    let mut figures = Figures::default();
    measure::check(&bench, &mut figures).await?;
    measure::hand_over(&bench, &mut figures).await?;
    measure::steady_state(&bench, &mut figures).await?;
    measure::mass_takeover(&bench, &mut figures).await?;
    measure::crash(&bench, &mut figures).await?;
    if common.is_json() {
        crate::output::json(&figures)?;
    } else {
        crate::output::print(&figures.to_string())?;
    }
    Ok(Exit::Done)
}

impl Bench {
    /// What a clean hand-over may take. Where the store has no notifications the floor is our own work, and no measure.
    fn hand_over_target(&self) -> &'static str {
        let polled = ["mysql:", "mariadb:"].iter().any(|scheme| self.url.starts_with(scheme));
        if polled { "p99 ≤ 60 ms" } else { "≤ 3 ×" }
    }

    /// A handle of its own on the store, as another process would have.
    fn store(&self) -> Result<SharedStore, Exit> {
        Ok(tenure::store::visit(&self.url)?)
    }

    async fn node(&self, name: &str, ttl: Duration) -> Result<Node, Exit> {
        self.node_on(self.store()?, name, ttl).await
    }

    async fn node_on(&self, store: SharedStore, name: &str, ttl: Duration) -> Result<Node, Exit> {
        Ok(Node::with_store(store).namespace(self.namespace.as_str()).name(name).ttl(ttl).start().await?)
    }
}

/// Says on stderr what takes time.
pub(crate) fn progress(what: &str) {
    anstream::eprintln!("measuring {what} …");
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
