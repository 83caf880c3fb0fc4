//! `tenure demo`: real nodes that elect, fail and recover, before your eyes.
//!
//! ```text
//!   node processes ── messages (pipes) ──┐
//!   script, keys ── signals sent ────────┼─▶ events ─▶ cluster ─▶ board, or plain lines
//!   node processes ── notes ─▶ judge of `tenure-torture` ─▶ summary
//! ```
//!
//! The nodes are processes of this same binary on a temporary embedded store. They are really killed and frozen, and every
//! figure is measured. The leaders write notes of their work, from which the judge finds whether two ever led at once.

mod board;
mod cluster;
mod keys;
mod member;
mod message;
mod nodes;
mod runner;
mod script;
mod summary;
mod timeline;

use std::io::IsTerminal;
use std::time::Duration;

use tenure::{Name, Timing, TimingSettings};

use crate::args::DemoArgs;
use crate::exit::Exit;

/// The role that the board is about.
const SCHEDULER: &str = "scheduler";

/// How many more roles there are, so that it shows how roles spread over nodes.
const SHARDS: usize = 6;

/// How long the demo lasts where no key can end it: long enough for a crash, a hand-over and a freeze.
const TOUR: Duration = Duration::from_secs(20);

/// Plays the demo, or is one of its nodes.
///
/// # Errors
/// If two nodes ever led at once, if no node was elected, or if the demo cannot run here.
pub async fn main(args: DemoArgs) -> Result<Exit, Exit> {
    if let (Some(name), Some(dir)) = (args.member, args.dir) {
        return member::main(name, &dir).await;
    }
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let board = !args.no_tty && !dumb && std::io::stdout().is_terminal();
    let tour = (!board && !args.forever).then_some(TOUR);
    runner::run_demo(args.nodes, args.seconds.map(Duration::from_secs).or(tour), board).await
}

/// All roles, the scheduler first.
fn roles() -> Vec<Name> {
    let shards = (1..=SHARDS).map(|number| format!("shard-{number}"));
    std::iter::once(SCHEDULER.to_owned()).chain(shards).map(|name| name.parse().expect("a name")).collect()
}

/// The profile `fast`, so that a frozen leader is replaced while one watches.
fn timing() -> Timing {
    Timing::new(&TimingSettings { ttl: Some(Timing::FAST_TTL), ..TimingSettings::default() })
        .expect("a profile")
}
