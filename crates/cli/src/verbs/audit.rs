//! `tenure audit`: what operators did, and why.

use super::source::Source;
use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{self, sanitize, width};
use tenure_agent::model::{AuditItem, AuditPage};

/// Prints the audit trail, the newest entry first.
///
/// # Errors
/// If the store cannot be used.
pub async fn main(common: &Common) -> Result<Exit, Exit> {
    let mut entries = Source::of(common).await?.audit().await?;
    entries.reverse();
    if common.is_json() {
        output::json(&AuditPage { entries })?;
    } else if entries.is_empty() {
        output::print("The audit trail is empty.")?;
    } else {
        output::print(&pretty(&entries))?;
    }
    Ok(Exit::Done)
}

fn pretty(entries: &[AuditItem]) -> String {
    let mut table = Table::new([
        Column::new("AT"),
        Column::new("BY").least(8),
        Column::new("ACTION"),
        Column::new("SUBJECT").least(10),
        Column::new("NODE").least(8),
        Column::new("WHY").least(8),
    ]);
    for entry in entries {
        table.row([
            entry.at.clone().into(),
            sanitize(&entry.by).into(),
            Cell::new(&entry.act, Tone::Strong),
            entry.subject.clone().into(),
            Cell::or_none(entry.node.clone(), Tone::Plain),
            sanitize(&entry.why).into(),
        ]);
    }
    table.render(width())
}
