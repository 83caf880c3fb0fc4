//! `tenure nodes`: the nodes.

use std::time::Duration;

use serde::Serialize;
use tenure::Name;
use tenure::operator::{NodeReport, NodeState};
use tenure_agent::model::NodeStatus;

use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time;
use crate::output::{self, width};

/// Prints the nodes.
///
/// # Errors
/// If the store cannot be used.
pub async fn main(common: &Common) -> Result<Exit, Exit> {
    let source = super::source::Source::of(common).await?;
    let snapshot = source.snapshot().await?;
    if common.is_json() {
        let all = |report: &NodeReport| NodeStatus::naming(report, usize::MAX);
        output::json(&NodesDocument { nodes: snapshot.nodes.iter().map(all).collect() })?;
    } else if snapshot.nodes.is_empty() && snapshot.roles.is_empty() {
        output::print(&super::no_roles_yet(&source))?;
    } else if snapshot.nodes.is_empty() {
        output::print(&format!(
            "No nodes in namespace {} of {} now; run `tenure history` to see past leaders.",
            source.namespace(),
            source.location()
        ))?;
    } else {
        output::print(&pretty(&snapshot.nodes))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct NodesDocument {
    nodes: Vec<NodeStatus>,
}

fn pretty(nodes: &[NodeReport]) -> String {
    let width = width();
    let mut table = Table::new([
        Column::new("NODE").least(12),
        Column::new("STATE"),
        Column::new("LEADS").least(12),
        Column::new("CANDIDATE FOR").least(12),
        Column::new("LABELS").least(8).optional(),
        Column::new("ADDRESS").least(8).optional(),
        Column::new("HOST").least(8).optional(),
        Column::new("VERSION").optional(),
        Column::new("JOINED"),
        Column::new("LAST BEAT"),
    ]);
    for report in nodes {
        let labels: Vec<String> = report.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let beat = report.last_beat_ms_ago.map(|ms| time::ago(Duration::from_millis(ms)));
        let (state, tone) = state(report);
        let candidate_for: Vec<String> =
            report.candidacies.iter().map(|(role, priority)| with_priority(role, *priority)).collect();
        table.row([
            Cell::new(&report.node, Tone::Strong),
            Cell::new(state, tone),
            some(&report.roles.iter().map(Name::to_string).collect::<Vec<_>>()),
            some(&candidate_for),
            Cell::or_none((!labels.is_empty()).then(|| labels.join(" ")), Tone::Plain),
            Cell::or_none(report.address.as_ref(), Tone::Plain),
            Cell::or_none(report.host.as_ref(), Tone::Plain),
            Cell::or_none(report.version.as_ref(), Tone::Plain),
            time::since_within(report.since, width).into(),
            Cell::or_none(
                beat,
                if matches!(report.state, NodeState::Silent | NodeState::Unknown) {
                    Tone::Bad
                } else {
                    Tone::Plain
                },
            ),
        ]);
    }
    table.render(width)
}

fn state(report: &NodeReport) -> (String, Tone) {
    let tone = match report.state {
        NodeState::Live if report.drained.is_some() => return ("live, drained".to_owned(), Tone::Warn),
        NodeState::Live => Tone::Good,
        NodeState::Silent | NodeState::Unknown => Tone::Bad,
        NodeState::Closed => Tone::Faint,
        _ => Tone::Warn,
    };
    (report.state.to_string(), tone)
}

/// The default priority is not shown.
fn with_priority(role: &Name, priority: i32) -> String {
    if priority == 0 { role.to_string() } else { format!("{role} ({priority:+})") }
}

/// How many, and the first of them.
fn some(names: &[String]) -> Cell {
    const SHOWN: usize = 3;
    match names.len() {
        0 => Cell::none(),
        1 => names[0].as_str().into(),
        n if n <= SHOWN => format!("{n}: {}", names.join(", ")).into(),
        n => format!("{n}: {}, …", names[..SHOWN].join(", ")).into(),
    }
}
