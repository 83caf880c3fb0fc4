//! `tenure demo`: real nodes that elect, fail and recover, before your eyes.
//!
//! ```text
//!   member processes ── reports (pipes) ──┐
//!   nemesis, keys ── signals sent ────────┼─▶ happenings ─▶ world ─▶ board, or plain lines
//!   member processes ── witness files ─▶ witness ─▶ verdict
//! ```
//!
//! Nothing is played: the members are processes of this very binary on a temporary embedded store, they are
//! really killed and frozen, and every figure is measured. What the leaders did, they wrote into witness files, from
//! which the verdict tells at the end whether two ever led at once.

mod board;
mod cast;
mod keys;
mod member;
mod nemesis;
mod report;
mod stage;
mod timeline;
mod verdict;
mod witness;
mod world;

use std::io::IsTerminal;
use std::time::Duration;

use tenure::{Name, Settings, Timing};

use crate::args::DemoArgs;
use crate::exit::Exit;

/// The role that the board is about.
const SCHEDULER: &str = "scheduler";

/// How many more roles there are, so that it shows how roles spread over nodes.
const SHARDS: usize = 6;

/// Plays the demo, or is one of its nodes.
///
/// # Errors
/// If two nodes ever led at once, if nobody was elected, or if the demo cannot run here.
pub async fn main(args: DemoArgs) -> Result<Exit, Exit> {
    if let (Some(name), Some(dir)) = (args.member, args.dir) {
        return member::main(name, &dir).await;
    }
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let board = !args.no_tty && !dumb && std::io::stdout().is_terminal();
    stage::play(args.nodes, args.seconds.map(Duration::from_secs), board).await
}

/// All roles, the scheduler first.
fn roles() -> Vec<Name> {
    let shards = (1..=SHARDS).map(|number| format!("shard-{number}"));
    std::iter::once(SCHEDULER.to_owned()).chain(shards).map(|name| name.parse().expect("a name")).collect()
}

/// The profile `fast`, so that a frozen leader is replaced while one watches.
fn timing() -> Timing {
    Timing::new(&Settings { ttl: Some(Timing::FAST_TTL), ..Settings::default() }).expect("a profile")
}
