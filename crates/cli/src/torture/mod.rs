//! `tenure torture`: a store and its nodes under attack, and a verdict.
//!
//! ```text
//!   seed ─▶ plan ─▶ nemesis ─┬─▶ crew    (node processes: killed, frozen, starved, doubled, wrong clocks)
//!                            ├─▶ links   (a proxy for each node)
//!                            ├─▶ ground  (the store itself, if it is private)
//!                            └─▶ operator (transfer, step-down, pause, drain)
//!   crew, fence, meters ── notes ─▶ judge ─▶ verdict ─▶ terminal, page, evidence
//! ```
//!
//! The nodes are processes of this very binary. What is done to them follows from the seed alone; what they do is
//! written down by themselves on one clock, and judged by the testkit's judge, which knows nothing of how they work.

mod board;
mod crew;
mod evidence;
mod fault;
mod fence;
pub(crate) mod ground;
mod links;
mod member;
mod nemesis;
mod page;
mod plan;
mod report;
mod servers;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Common, TortureArgs};
use crate::exit::Exit;
use crate::output;

use fault::Kind;

/// How many roles there are.
const ROLES: usize = 3;

/// Everything that a torture follows from.
#[derive(Debug, Clone)]
struct Settings {
    nodes: usize,
    lasts: Duration,
    ttl: Duration,
    seed: u64,
    kinds: Vec<Kind>,
    allowance: Duration,
    board: bool,
}

impl Settings {
    fn of(args: &TortureArgs) -> Result<Self, Exit> {
        if !(args.minutes > 0.0 && args.minutes <= 10_000.0) {
            return Err(Exit::Usage(format!(
                "--minutes {} is not possible: between 0 and 10000",
                args.minutes
            )));
        }
        if args.ttl < Duration::from_millis(500) {
            return Err(Exit::Usage(format!(
                "--ttl {:?} is too short for a torture: 500ms at least",
                args.ttl
            )));
        }
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Ok(Self {
            nodes: usize::from(args.nodes),
            lasts: Duration::from_secs_f64(args.minutes * 60.0),
            ttl: args.ttl,
            seed: args.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000)),
            kinds: fault::chosen(&args.faults)?,
            allowance: args.allowance,
            board: !args.no_tty && !dumb && std::io::stdout().is_terminal(),
        })
    }

    /// The longest ttl that any node has.
    fn longest_ttl(&self) -> Duration {
        if self.kinds.contains(&Kind::Mixed) { member::LONGER.apply(self.ttl) } else { self.ttl }
    }

    /// How long after a fault everything can be expected again: a lease that was known, and a quarantine.
    fn recovery(&self) -> Duration {
        2 * self.longest_ttl() + Duration::from_secs(1)
    }
}

/// Whether somebody wants it to end. Heard from before the first server is started: whoever just died would leave it
/// behind.
#[derive(Debug, Clone)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn listen() -> Result<Self, Exit> {
        let failed = |error: std::io::Error| Exit::Failed(format!("no signals: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let asked = Arc::new(AtomicBool::new(false));
        let stop = Self(asked.clone());
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            asked.store(true, Ordering::Release);
        });
        Ok(stop)
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Tortures, or is one of the nodes.
///
/// # Errors
/// If anything happened that must never happen, or if it cannot run here.
pub async fn main(common: &Common, args: TortureArgs) -> Result<Exit, Exit> {
    if let Some(how) = &args.member {
        return member::main(how).await;
    }
    let settings = Settings::of(&args)?;
    let stop = Stop::listen()?;
    let ground = ground::Ground::open(args.private, &common.store_url(), &settings.kinds).await?;
    let (able, unable) = ground.able(&settings.kinds);
    let plan = plan::plan(&settings, &able);
    if args.plan {
        return plan::show(&plan).and_then(|text| output::print(&text)).map(|()| Exit::Done);
    }
    let record = nemesis::torture(&settings, ground, &able, &unable, plan, stop).await?;
    let verdict = record.judge();
    output::print(&report::text(&record, &verdict))?;
    let page = args.page.unwrap_or_else(|| format!("tenure-torture-{}.html", settings.seed).into());
    let written = std::fs::write(&page, page::page(&record, &verdict));
    written.map_err(|error| Exit::Failed(format!("{}: {error}; name another --page", page.display())))?;
    output::print(&format!("page: {}", page.display()))?;
    if let Some(file) = &args.evidence {
        evidence::append(file, &record, &verdict)?;
    }
    let exit = report::exit(&record, &verdict);
    if exit != Exit::Done {
        // Whoever looks into it wants to read what the nodes wrote.
        output::print(&format!("notes: {}", record.dir.keep().display()))?;
    }
    Ok(exit)
}
