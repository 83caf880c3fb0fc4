//! `tenure audit`: what operators did, and why.

use serde::Serialize;

use super::source::Source;
use crate::agent::http::views::DeedView;
use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{self, tame, width};

/// Prints the deeds, the newest first.
///
/// # Errors
/// If the store cannot be used.
pub async fn main(common: &Common) -> Result<Exit, Exit> {
    #[derive(Serialize)]
    struct Document {
        deeds: Vec<DeedView>,
    }
    let mut deeds = Source::of(common).await?.audit().await?;
    deeds.reverse();
    if common.is_json() {
        output::json(&Document { deeds })?;
    } else if deeds.is_empty() {
        output::print("No operator has done anything yet.")?;
    } else {
        output::print(&pretty(&deeds))?;
    }
    Ok(Exit::Done)
}

fn pretty(deeds: &[DeedView]) -> String {
    let mut table = Table::new([
        Column::new("AT"),
        Column::new("BY").least(8),
        Column::new("DID"),
        Column::new("TO").least(10),
        Column::new("NODE").least(8),
        Column::new("WHY").least(8),
    ]);
    for deed in deeds {
        table.row([
            deed.at.clone().into(),
            tame(&deed.by).into(),
            Cell::new(&deed.act, Tone::Strong),
            deed.subject.clone().into(),
            Cell::or_none(deed.node.clone(), Tone::Plain),
            tame(&deed.why).into(),
        ]);
    }
    table.render(width())
}
