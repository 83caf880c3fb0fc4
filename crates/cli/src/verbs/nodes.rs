//! `tenure nodes`: who takes part.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure::operator::{NodeReport, NodeState};
use tenure::{Name, SessionId};

use super::OrderView;
use crate::args::Common;
use crate::exit::Exit;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time::{self, Stamp};
use crate::output::{self, width};

/// Prints the nodes.
///
/// # Errors
/// If the store cannot be used.
pub async fn main(common: &Common) -> Result<Exit, Exit> {
    let source = super::source::Source::of(common).await?;
    let snapshot = source.snapshot().await?;
    if common.is_json() {
        output::json(&Document { nodes: snapshot.nodes.iter().map(View::of).collect() })?;
    } else if snapshot.nodes.is_empty() && snapshot.roles.is_empty() {
        output::print(&super::nobody_yet(&source))?;
    } else if snapshot.nodes.is_empty() {
        output::print(&format!(
            "No node takes part in namespace {} of {} now; `tenure history` shows who did.",
            source.namespace(),
            source.place()
        ))?;
    } else {
        output::print(&pretty(&snapshot.nodes))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Document<'a> {
    nodes: Vec<View<'a>>,
}

/// A node, for programs.
#[derive(Serialize)]
struct View<'a> {
    node: &'a Name,
    session: SessionId,
    state: NodeState,
    roles: &'a [Name],
    candidacies: &'a BTreeMap<Name, i32>,
    labels: &'a BTreeMap<String, String>,
    address: Option<&'a str>,
    joined: Stamp,
    last_beat_ms_ago: Option<u64>,
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drained: Option<OrderView<'a>>,
}

impl<'a> View<'a> {
    fn of(report: &'a NodeReport) -> Self {
        Self {
            node: &report.node,
            session: report.session,
            state: report.state,
            roles: &report.roles,
            candidacies: &report.candidacies,
            labels: &report.labels,
            address: report.address.as_deref(),
            joined: Stamp(report.since),
            last_beat_ms_ago: report.last_beat_ms_ago,
            ttl_ms: report.ttl_ms,
            drained: report.drained.as_ref().map(OrderView::from),
        }
    }
}

fn pretty(nodes: &[NodeReport]) -> String {
    let width = width();
    let mut table = Table::new([
        Column::new("NODE").least(12),
        Column::new("STATE"),
        Column::new("LEADS").least(12),
        Column::new("STANDS FOR").least(12),
        Column::new("LABELS").least(8).optional(),
        Column::new("ADDRESS").least(8).optional(),
        Column::new("JOINED"),
        Column::new("LAST BEAT"),
    ]);
    for report in nodes {
        let labels: Vec<String> = report.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let beat = report.last_beat_ms_ago.map(|ms| time::ago(Duration::from_millis(ms)));
        let (state, tone) = state(report);
        let stands: Vec<String> =
            report.candidacies.iter().map(|(role, priority)| standing(role, *priority)).collect();
        table.row([
            Cell::new(&report.node, Tone::Strong),
            Cell::new(state, tone),
            some(&report.roles.iter().map(Name::to_string).collect::<Vec<_>>()),
            some(&stands),
            Cell::or_none((!labels.is_empty()).then(|| labels.join(" ")), Tone::Plain),
            Cell::or_none(report.address.as_ref(), Tone::Plain),
            time::since_within(report.since, width).into(),
            Cell::or_none(beat, if report.state == NodeState::Silent { Tone::Bad } else { Tone::Plain }),
        ]);
    }
    table.render(width)
}

fn state(report: &NodeReport) -> (String, Tone) {
    let tone = match report.state {
        NodeState::Live if report.drained.is_some() => return ("live, drained".to_owned(), Tone::Warn),
        NodeState::Live => Tone::Good,
        NodeState::Silent => Tone::Bad,
        NodeState::Expelled => Tone::Warn,
        NodeState::Closed => Tone::Faint,
    };
    (report.state.to_string(), tone)
}

/// A priority is only worth mentioning if somebody chose it.
fn standing(role: &Name, priority: i32) -> String {
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
