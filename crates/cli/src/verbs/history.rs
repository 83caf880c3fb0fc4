//! `tenure history`: past tenures, when they began and ended, and why.

use std::time::Duration;

use serde::Serialize;
use tenure::history::{History, Past};
use tenure::{Name, Reason, SessionId, Token, Wall};

use crate::args::{Common, HistoryArgs};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time::{self, Stamp};
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
    let mut tenures: Vec<View<'_>> =
        books.iter().flat_map(|(role, book)| of_role(role, book, args.limit.get())).collect();
    tenures.sort_by(|a, b| (b.began.0, b.token, b.role).cmp(&(a.began.0, a.token, a.role)));
    if common.is_json() {
        output::json(&Document { tenures })?;
    } else if let (true, Some(role)) = (tenures.is_empty(), &args.role) {
        output::print(&format!(
            "Nobody has led {role} yet; `tenure status {role}` shows who stands for it."
        ))?;
    } else if tenures.is_empty() {
        output::print(&super::nobody_yet(&source))?;
    } else {
        output::print(&pretty(&tenures))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Document<'a> {
    tenures: Vec<View<'a>>,
}

/// A tenure, for programs.
#[derive(Serialize)]
struct View<'a> {
    role: &'a Name,
    token: Token,
    node: &'a Name,
    session: SessionId,
    began: Stamp,
    ended: Option<Stamp>,
    reason: Option<Reason>,
    held_ms: u64,
    gap_ms: Option<u64>,
}

/// The newest tenures of a role, with how long nobody had led before each.
fn of_role<'a>(role: &'a Name, book: &'a History, limit: usize) -> Vec<View<'a>> {
    let now = Stamp::now().0;
    let before = std::iter::once(None).chain(book.tenures.iter().map(Some));
    let view = |(past, before): (&'a Past, Option<&'a Past>)| View {
        role,
        token: past.token,
        node: &past.node,
        session: past.session,
        began: Stamp(past.began),
        ended: past.ended.map(Stamp),
        reason: past.reason,
        held_ms: millis(past.began, past.ended.unwrap_or(now)),
        gap_ms: before.and_then(|before| before.ended).map(|ended| millis(ended, past.began)),
    };
    let skipped = book.tenures.len().saturating_sub(limit);
    book.tenures.iter().zip(before).map(view).skip(skipped).collect()
}

/// Times are those of different nodes' wall clocks: less than nothing is nothing.
fn millis(from: Wall, to: Wall) -> u64 {
    to.0.saturating_sub(from.0) / 1000
}

fn pretty(tenures: &[View<'_>]) -> String {
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
        let ended = match past.ended {
            Some(ended) => time::clock(ended.0).into(),
            None if goes_on => Cell::new("goes on", Tone::Good),
            None => Cell::none(),
        };
        let gap = past.gap_ms.map(|ms| time::span(Duration::from_millis(ms)));
        table.row([
            Cell::new(past.role, Tone::Strong),
            past.token.to_string().into(),
            Cell::from(past.node),
            time::clock(past.began.0).into(),
            ended,
            time::span(Duration::from_millis(past.held_ms)).into(),
            Cell::or_none(past.reason.map(Reason::as_str), past.reason.map_or(Tone::Plain, tone)),
            Cell::or_none(gap, Tone::Plain),
        ]);
    }
    table.render(width())
}

/// Somebody wanted it, or something went wrong.
fn tone(reason: Reason) -> Tone {
    match reason {
        Reason::WorkFailed
        | Reason::LeaseExpired
        | Reason::Expelled
        | Reason::Forgotten
        | Reason::Cloned
        | Reason::ClockFault
        | Reason::Fault => Tone::Warn,
        _ => Tone::Plain,
    }
}
