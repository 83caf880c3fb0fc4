//! `tenure repair`: shows the registers that no node can go on from, and with `--yes` mends them.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use tenure::Operator;
use tenure::operator::{DamagedRegister, Remedy};

use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::Tone;
use crate::output::{self, sanitize};

/// What can be said to it.
#[derive(Debug, Clone, Args)]
pub struct RepairArgs {
    /// Repair what was found; without it, only list it
    #[arg(long)]
    pub yes: bool,
    /// Why; kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// Lists what is wrong; with `--yes` mends it.
///
/// # Errors
/// If the store cannot be used, or only an agent was named.
pub async fn main(common: &Common, args: &RepairArgs) -> Result<Exit, Exit> {
    if common.names_only_an_agent() {
        let why = "cannot repair through an agent: name the store with --store";
        return Err(Exit::Usage(why.to_owned()));
    }
    let store = tenure::store::open_read_only(&common.store_url())?;
    let operator = Operator::new(store, common.namespace(), super::whoami());
    let found = operator.find_damage().await?;
    let mended = if args.yes { operator.repair(&found, &args.why).await? } else { Vec::new() };
    if common.is_json() {
        output::json(&Document { poisoned: &found, repaired: &mended })?;
    } else {
        output::print(&pretty(&found, &mended, args.yes))?;
    }
    Ok(verdict(&found, &mended, args.yes))
}

#[derive(Serialize)]
struct Document<'a> {
    poisoned: &'a [DamagedRegister],
    repaired: &'a [DamagedRegister],
}

fn verdict(found: &[DamagedRegister], mended: &[DamagedRegister], yes: bool) -> Exit {
    let left = found.len() - mended.len();
    match (left, yes) {
        (0, _) => Exit::Done,
        (_, false) => Exit::No(format!("{left} to repair; run `tenure repair --yes`")),
        (_, true) => Exit::No(format!(
            "{left} not repaired: they changed meanwhile, or were written by a newer Tenure; run the command again, or the newer version"
        )),
    }
}

fn pretty(found: &[DamagedRegister], mended: &[DamagedRegister], yes: bool) -> String {
    if found.is_empty() {
        return Tone::Good.paint("All registers are readable.");
    }
    let mut text = String::new();
    for one in found {
        let (state, tone) = match (mended.contains(one), yes) {
            (true, _) => ("repaired", Tone::Good),
            (false, true) => ("left", Tone::Bad),
            (false, false) => ("found", Tone::Warn),
        };
        let (register, problem) = (sanitize(&one.register), sanitize(&one.problem));
        let _ = writeln!(text, "{} {register}: {problem}", tone.paint(&format!("{state:<8}")));
        if !mended.contains(one) {
            let _ = writeln!(text, "         remedy: {}", one.remedy.as_str());
        }
    }
    if !yes && found.iter().any(|one| one.remedy == Remedy::Renew) {
        text.push_str(
            "A new epoch ends every tenure in the namespace: run it when an interruption is acceptable.",
        );
    }
    text.trim_end().to_owned()
}
