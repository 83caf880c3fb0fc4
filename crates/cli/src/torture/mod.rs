//! `tenure torture`: a store and its nodes under attack, and a verdict. The torture itself is the crate `tenure-torture`;
//! here are its arguments, what it prints, and how it ends.

mod board;
mod evidence;
mod page;
mod report;

use std::io::IsTerminal;
use std::time::Duration;

use tenure_torture::plan::Plan;
use tenure_torture::target::TargetStore;
use tenure_torture::{StopSignal, TortureSettings, fault, member};

use crate::args::{Common, TortureArgs};
use crate::exit::Exit;
use crate::output;
use board::Board;

fn settings(args: &TortureArgs) -> Result<TortureSettings, Exit> {
    if !(args.minutes > 0.0 && args.minutes <= 10_000.0) {
        let why = format!("--minutes {} is out of range: use more than 0 and at most 10000", args.minutes);
        return Err(Exit::Usage(why));
    }
    if args.ttl < Duration::from_millis(500) {
        return Err(Exit::Usage(format!(
            "--ttl {:?} is too short for a torture: use 500ms or more",
            args.ttl
        )));
    }
    Ok(TortureSettings {
        nodes: usize::from(args.nodes),
        lasts: Duration::from_secs_f64(args.minutes * 60.0),
        ttl: args.ttl,
        seed: args.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000)),
        kinds: fault::chosen(&args.faults)?,
        allowance: args.allowance,
    })
}

/// A store is never attacked because an option was left out.
fn missing_target(settings: &TortureSettings) -> Exit {
    let (nodes, lasts) = (settings.nodes, humantime::format_duration(settings.lasts));
    Exit::Usage(format!(
        "cannot start a torture without a store: it would start {nodes} nodes, and kill, freeze and cut them off for {lasts}. \
         Use --private redis to start a server of its own and attack it too, or --store URL to use yours, in a namespace of \
         its own, and leave the server alone; add --plan to only show what would be done"
    ))
}

/// Runs the torture, or one of its nodes.
///
/// # Errors
/// If anything happened that must never happen, or if it cannot run here.
pub async fn main(common: &Common, args: TortureArgs) -> Result<Exit, Exit> {
    if let Some(options) = &args.member {
        member::main(options).await?;
        return Ok(Exit::Done);
    }
    let settings = settings(&args)?;
    if args.private.is_none() && common.store.is_none() {
        return Err(missing_target(&settings));
    }
    let stop = StopSignal::listen()?;
    let target = TargetStore::open(args.private, &common.store_url(), &settings.kinds).await?;
    let plan = Plan::new(&settings, &target);
    if args.plan {
        return output::print(&plan.to_string()).map(|()| Exit::Done);
    }
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let live = !args.no_tty && !dumb && std::io::stdout().is_terminal();
    let mut board = Board::new(&settings, &target, live);
    let record = tenure_torture::torture(&settings, target, plan, stop, &mut board).await?;
    let verdict = record.judge();
    output::print(&report::text(&record, &verdict))?;
    let page = args.page.unwrap_or_else(|| format!("tenure-torture-{}.html", settings.seed).into());
    let written = std::fs::write(&page, page::page(&record, &verdict));
    written.map_err(|error| {
        Exit::Failed(format!("cannot write {}: {error}; use another --page", page.display()))
    })?;
    output::print(&format!("page: {}", page.display()))?;
    if let Some(file) = &args.evidence {
        evidence::append(file, &record, &verdict)?;
    }
    let exit = report::exit(&record, &verdict);
    if exit != Exit::Done {
        output::print(&format!("notes: {}", record.dir.keep().display()))?;
    }
    Ok(exit)
}
