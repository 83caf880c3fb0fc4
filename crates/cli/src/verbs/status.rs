//! `tenure status`: who leads which role, and who would be next.

use std::time::Duration;

use serde::Serialize;
use tenure::operator::{RoleReport, RoleState, Snapshot};
use tenure::{Name, Token};

use super::OrderView;
use super::source::Source;
use crate::args::{Common, StatusArgs};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time::{self, Stamp};
use crate::output::{self, tame, width};

/// Prints the roles; with `--require-leader` the answer is no unless each is led.
///
/// # Errors
/// If the store cannot be used.
pub async fn main(common: &Common, args: &StatusArgs) -> Result<Exit, Exit> {
    let source = Source::of(common).await?;
    let snapshot = source.snapshot().await?;
    let wanted = |report: &&RoleReport| args.roles.is_empty() || args.roles.contains(&report.role);
    let roles: Vec<&RoleReport> = snapshot.roles.iter().filter(wanted).collect();
    if common.is_json() {
        let roles = roles.iter().map(|report| View::of(report)).collect();
        output::json(&Document { roles })?;
    } else if snapshot.roles.is_empty() {
        output::print(&super::nobody_yet(&source))?;
    } else if !roles.is_empty() {
        output::print(&pretty(&roles))?;
    }
    Ok(verdict(&source, &snapshot, &roles, args))
}

/// A role that does not exist is never fine; one without a leader that beats is not when one is required.
fn verdict(source: &Source, snapshot: &Snapshot, roles: &[&RoleReport], args: &StatusArgs) -> Exit {
    if let Some(missing) = args.roles.iter().find(|role| snapshot.role(role).is_none()) {
        return super::no_such_role(source, snapshot, missing);
    }
    if !args.require_leader {
        return Exit::Done;
    }
    if roles.is_empty() {
        return Exit::No(format!("there is no role in namespace {}", source.namespace()));
    }
    let without: Vec<&&RoleReport> = roles.iter().filter(|report| report.state != RoleState::Led).collect();
    let Some(first) = without.first() else { return Exit::Done };
    let first = format!("{} is {}", first.role, first.state);
    Exit::No(match without.len() {
        1 => format!("{first}, so that it has no leader to rely on"),
        n => format!("{first}, and so have {} of {} roles no leader to rely on", n, roles.len()),
    })
}

#[derive(Serialize)]
struct Document<'a> {
    roles: Vec<View<'a>>,
}

/// A role, for programs.
#[derive(Serialize)]
struct View<'a> {
    role: &'a Name,
    leader: Option<&'a Name>,
    token: Option<Token>,
    since: Option<Stamp>,
    state: RoleState,
    last_beat_ms_ago: Option<u64>,
    address: Option<&'a str>,
    candidates: &'a [Name],
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<OrderView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<&'a Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer: Option<&'a Name>,
}

impl<'a> View<'a> {
    fn of(report: &'a RoleReport) -> Self {
        Self {
            role: &report.role,
            leader: report.leader.as_ref(),
            token: token(report),
            since: report.since.map(Stamp),
            state: report.state,
            last_beat_ms_ago: report.last_beat_ms_ago,
            address: report.address.as_deref(),
            candidates: &report.candidates,
            paused: report.paused.as_ref().map(OrderView::from),
            pinned: report.pinned.as_ref(),
            transfer: report.transfer.as_ref(),
        }
    }
}

/// None for a role that nobody has led yet.
fn token(report: &RoleReport) -> Option<Token> {
    (report.token != Token(0)).then_some(report.token)
}

fn pretty(roles: &[&RoleReport]) -> String {
    let width = width();
    let mut table = Table::new([
        Column::new("ROLE").least(12),
        Column::new("STATE"),
        Column::new("LEADER").least(10),
        Column::new("TOKEN").right(),
        Column::new("SINCE"),
        Column::new("LAST BEAT"),
        Column::new("ADDRESS").least(8).optional(),
        Column::new("NEXT IN LINE").least(12),
    ]);
    for report in roles {
        let silent = report.state == RoleState::Silent;
        let beat = report.last_beat_ms_ago.map(|ms| time::ago(Duration::from_millis(ms)));
        let next: Vec<&str> = report.candidates.iter().map(Name::as_str).collect();
        table.row([
            Cell::new(&report.role, Tone::Strong),
            Cell::new(report.state.to_string(), tone(report.state)),
            Cell::or_none(report.leader.as_ref(), Tone::Plain),
            Cell::or_none(token(report).map(|token| token.to_string()), Tone::Plain),
            Cell::or_none(report.since.map(|since| time::since_within(since, width)), Tone::Plain),
            Cell::or_none(beat, if silent { Tone::Bad } else { Tone::Plain }),
            Cell::or_none(report.address.as_ref(), Tone::Plain),
            Cell::or_none((!next.is_empty()).then(|| next.join(", ")), Tone::Plain),
        ]);
    }
    let mut text = table.render(width);
    let notes = roles.iter().filter_map(|report| Some((report, note(report)?)));
    for (nth, (report, note)) in notes.enumerate() {
        text.push_str(if nth == 0 { "\n\n" } else { "\n" });
        text.push_str(&Tone::Warn.paint(&tame(&format!("{} is {note}", report.role))));
    }
    text
}

fn tone(state: RoleState) -> Tone {
    match state {
        RoleState::Led => Tone::Good,
        RoleState::Silent => Tone::Bad,
        RoleState::Vacant | RoleState::Paused => Tone::Warn,
    }
}

/// What operators want of the role.
fn note(report: &RoleReport) -> Option<String> {
    let paused = report.paused.as_ref().map(|order| match order.why.as_str() {
        "" => format!("paused by {}", order.by),
        why => format!("paused by {}: {why}", order.by),
    });
    let pinned = report.pinned.as_ref().map(|node| format!("pinned to {node}"));
    let transfer = report.transfer.as_ref().map(|node| format!("to be handed to {node}"));
    let notes: Vec<String> = [paused, pinned, transfer].into_iter().flatten().collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}
