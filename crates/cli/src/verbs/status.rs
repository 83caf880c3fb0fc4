//! `tenure status`: who leads which role, and who would be next.

use std::time::Duration;

use serde::Serialize;
use tenure::operator::{ClusterSnapshot, RoleReport, RoleState};
use tenure::{Name, Token};
use tenure_agent::model::RoleStatus;

use super::source::Source;
use crate::args::{Common, StatusArgs};
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time;
use crate::output::{self, sanitize, width};

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
        let seen_ms_ago = u64::try_from(snapshot.age.as_millis()).unwrap_or(u64::MAX);
        let roles = roles
            .iter()
            .map(|report| RoleStatus { seen_ms_ago: Some(seen_ms_ago), ..RoleStatus::from(*report) })
            .collect();
        let longest_lease_ms = snapshot.longest_lease.map(|lease| lease.as_millis());
        output::json(&StatusDocument {
            roles,
            seen_ms_ago,
            longest_lease_ms,
            unreadable: &snapshot.unreadable,
        })?;
    } else if snapshot.roles.is_empty() {
        output::print(&super::no_roles_yet(&source))?;
    } else if !roles.is_empty() {
        output::print(&pretty(&roles, &snapshot))?;
    }
    Ok(verdict(&source, &snapshot, &roles, args))
}

/// A role that does not exist is never fine; one without a leader that beats is not when one is required.
fn verdict(source: &Source, snapshot: &ClusterSnapshot, roles: &[&RoleReport], args: &StatusArgs) -> Exit {
    if let Some(missing) = args.roles.iter().find(|role| snapshot.role(role).is_none()) {
        return super::no_such_role(source, snapshot, missing);
    }
    if !args.require_leader {
        return Exit::Done;
    }
    if roles.is_empty() {
        return Exit::No(format!("no roles in namespace {}", source.namespace()));
    }
    let without: Vec<&&RoleReport> = roles.iter().filter(|report| report.state != RoleState::Led).collect();
    let Some(first) = without.first() else { return Exit::Done };
    let seen = match first.state {
        RoleState::Unknown => {
            format!(", because the store was last reached {} ago", time::span(snapshot.age))
        }
        _ => String::new(),
    };
    let unknown = first.state == RoleState::Unknown;
    let first = format!("{} is {}{seen}", first.role, first.state);
    Exit::No(match without.len() {
        1 if unknown => format!("{first}: no live leader is known"),
        1 => format!("{first}: it has no live leader"),
        n => format!("{first}: {} of {} roles have no known live leader", n, roles.len()),
    })
}

#[derive(Serialize)]
struct StatusDocument<'a> {
    roles: Vec<RoleStatus>,
    seen_ms_ago: u64,
    /// How long nodes wait after a loss of data; only known where the store itself was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_lease_ms: Option<u128>,
    /// Registers that cannot be read; none are listed through an agent.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    unreadable: &'a [String],
}

/// None for a role that has had no leader yet.
fn token(report: &RoleReport) -> Option<Token> {
    (report.token != Token::new(0)).then_some(report.token)
}

fn pretty(roles: &[&RoleReport], snapshot: &ClusterSnapshot) -> String {
    let width = width();
    let mut table = Table::new([
        Column::new("ROLE").least(12),
        Column::new("STATE"),
        Column::new("LEADER").least(10),
        Column::new("TOKEN").right(),
        Column::new("SINCE"),
        Column::new("LAST BEAT"),
        Column::new("ADDRESS").least(8).optional(),
        Column::new("CANDIDATES").least(12),
    ]);
    for report in roles {
        let silent = matches!(report.state, RoleState::Silent | RoleState::Unknown);
        let beat = report.last_beat_ms_ago.map(|ms| time::ago(Duration::from_millis(ms)));
        let next: Vec<&str> = report.candidates.iter().map(Name::as_str).collect();
        table.row([
            Cell::new(&report.role, Tone::Strong),
            Cell::new(report.state.to_string(), tone(report.state)),
            match (&report.leader, &report.last_leader) {
                (None, Some(last)) => Cell::new(format!("({last})"), Tone::Faint),
                (leader, _) => Cell::or_none(leader.as_ref(), Tone::Plain),
            },
            Cell::or_none(token(report).map(|token| token.to_string()), Tone::Plain),
            Cell::or_none(report.since.map(|since| time::since_within(since, width)), Tone::Plain),
            Cell::or_none(beat, if silent { Tone::Bad } else { Tone::Plain }),
            Cell::or_none(report.address.as_ref(), Tone::Plain),
            Cell::or_none((!next.is_empty()).then(|| next.join(", ")), Tone::Plain),
        ]);
    }
    let mut text = table.render(width);
    if roles.iter().any(|report| report.state == RoleState::Unknown) {
        let old = format!(
            "The agent last reached the store {} ago; the table shows what it knew then.",
            time::span(snapshot.age)
        );
        text.push_str("\n\n");
        text.push_str(&Tone::Bad.paint(&old));
    }
    let notes = roles.iter().filter_map(|report| Some((report, note(report)?)));
    for (nth, (report, note)) in notes.enumerate() {
        text.push_str(if nth == 0 { "\n\n" } else { "\n" });
        text.push_str(&Tone::Warn.paint(&sanitize(&format!("{} is {note}", report.role))));
    }
    text
}

fn tone(state: RoleState) -> Tone {
    match state {
        RoleState::Led => Tone::Good,
        RoleState::Silent | RoleState::Unknown => Tone::Bad,
        _ => Tone::Warn,
    }
}

/// What operators want of the role.
fn note(report: &RoleReport) -> Option<String> {
    let paused = report.paused.as_ref().map(|order| match order.why.as_str() {
        "" => format!("paused by {}", order.by),
        why => format!("paused by {}: {why}", order.by),
    });
    let pinned = report.pinned.as_ref().map(|node| format!("pinned to {node}"));
    let transfer = report.transfer.as_ref().map(|node| format!("being transferred to {node}"));
    let notes: Vec<String> = [paused, pinned, transfer].into_iter().flatten().collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}
