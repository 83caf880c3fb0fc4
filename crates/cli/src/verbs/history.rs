//! `tenure history`: past tenures, when they began and ended, and why.

use std::time::Duration;

use serde::Serialize;
use tenure::history::{EndSource, RoleHistory};
use tenure::{EndReason, Name};
use tenure_agent::model::TenureEntry;

use crate::args::{Common, HistoryArgs};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time;
use crate::output::{self, width};

/// Prints the tenures, the newest first.
///
/// # Errors
/// If the store cannot be used, or there is no such role.
pub async fn main(common: &Common, args: &HistoryArgs) -> Result<Exit, Exit> {
    let source = super::source::Source::of(common).await?;
    let books = source.history(args.role.as_ref()).await?;
    if let Some(role) = args.role.as_ref().filter(|role| !books.contains_key(role)) {
        let snapshot = source.snapshot().await?;
        if snapshot.role(role).is_none() {
            return Err(super::no_such_role(&source, &snapshot, role));
        }
    }
    let mut tenures: Vec<TenureEntry> =
        books.iter().flat_map(|(role, history)| newest(role, history, args.limit.get())).collect();
    tenures.sort_by(|a, b| (&b.began, b.token, &b.role).cmp(&(&a.began, a.token, &a.role)));
    if common.is_json() {
        output::json(&HistoryDocument { tenures })?;
    } else if let (true, Some(role)) = (tenures.is_empty(), &args.role) {
        output::print(&format!(
            "{role} has had no leader yet; run `tenure status {role}` to see its candidates."
        ))?;
    } else if tenures.is_empty() {
        output::print(&super::no_roles_yet(&source))?;
    } else {
        output::print(&pretty(&tenures))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct HistoryDocument {
    tenures: Vec<TenureEntry>,
}

/// The newest tenures of a role.
fn newest(role: &Name, history: &RoleHistory, limit: usize) -> Vec<TenureEntry> {
    let mut tenures = TenureEntry::of_role(role, history);
    tenures.split_off(tenures.len().saturating_sub(limit))
}

fn pretty(tenures: &[TenureEntry]) -> String {
    let mut table = Table::new([
        Column::new("ROLE").least(12),
        Column::new("TOKEN").right(),
        Column::new("NODE").least(10),
        Column::new("BEGAN"),
        Column::new("ENDED"),
        Column::new("HELD FOR"),
        Column::new("ENDED BECAUSE").least(8),
        Column::new("GAP BEFORE").right(),
    ]);
    for past in tenures {
        let goes_on = past.reason.is_none() && past.ended.is_none();
        let ended = match past.ended.as_deref() {
            // The leader was gone: another node measured the end.
            Some(ended) if past.measured.as_deref().is_some_and(|by| by != EndSource::Leader.as_str()) => {
                format!("~{}", time::clock_of(ended)).into()
            }
            Some(ended) => time::clock_of(ended).into(),
            None if goes_on => Cell::new("current", Tone::Good),
            None => Cell::none(),
        };
        let gap = past.gap_ms.map(|ms| time::span(Duration::from_millis(ms)));
        table.row([
            Cell::new(&past.role, Tone::Strong),
            past.token.to_string().into(),
            Cell::from(&past.node),
            time::clock_of(&past.began).into(),
            ended,
            time::span(Duration::from_millis(past.held_ms)).into(),
            Cell::or_none(past.reason.as_deref(), past.reason.as_deref().map_or(Tone::Plain, tone)),
            Cell::or_none(gap, Tone::Plain),
        ]);
    }
    table.render(width())
}

/// A tenure that an operator or its own node ended is in order; any other end deserves attention.
fn tone(reason: &str) -> Tone {
    let failures = [
        EndReason::WorkFailed,
        EndReason::LeaseExpired,
        EndReason::Expelled,
        EndReason::Forgotten,
        EndReason::Cloned,
        EndReason::GuardLost,
        EndReason::ClockFault,
        EndReason::NewerProtocol,
        EndReason::Fault,
    ];
    if failures.iter().any(|failure| failure.as_str() == reason) { Tone::Warn } else { Tone::Plain }
}
