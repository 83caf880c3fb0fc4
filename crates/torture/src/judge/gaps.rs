//! Gaps: times in which no node led a role, and what excuses them.
//!
//! A gap is held against the bound only where a leader could be expected: as long as one and the same node ran, was disturbed
//! by no fault and had not been for a while, on a store that was well, for a role that was not paused. From that,
//! what this node's own threads and the witness's were kept waiting for is taken off.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::stalls_of;
use super::violation::{Violation, ViolationKind, millis, show};
use super::{DataLoss, FaultScope, JudgeCase, Note, NoteKind, ObservedTenure, Span, Spans};

/// A time in which no node led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Which role.
    pub role: String,
    /// From when.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// How much of it nothing excuses, in one piece.
    pub unexcused: u64,
    /// Where that piece lies, and who could have led then.
    pub witness: Option<(String, Span)>,
    /// Whether more nodes than one, the former leader, were in trouble during that piece.
    pub of_two: bool,
}

/// The name under which the fault injector's own meter writes.
const INJECTOR: &str = "injector";

/// Every gap of every role that is to be led, within the time in which leaders are expected.
pub(super) fn gaps(case: &JudgeCase, tenures: &[ObservedTenure]) -> Vec<Gap> {
    let mut roles: BTreeMap<&str, Vec<Span>> =
        case.terms.roles.iter().map(|role| (role.as_str(), Vec::new())).collect();
    let all = roles.is_empty();
    for tenure in tenures.iter().filter(|tenure| all || case.terms.roles.contains(&tenure.role)) {
        let spans = roles.entry(&tenure.role).or_default();
        // An instant is a span too.
        spans.extend(tenure.led.map(|(from, to)| (from, to.max(from + 1))));
    }
    let nodes = nodes(case);
    let mut found = Vec::new();
    for (role, led) in roles {
        let free = Spans::of([case.terms.expected]).without(&Spans::of(led));
        let paused = faults(case, |on| matches!(on, FaultScope::Role(of) if of == role) || on.is_store());
        for span in free.iter() {
            found.push(gap(role, span, &paused, &nodes));
        }
    }
    found
}

/// A node: when it could be expected to lead, and when its threads were kept waiting.
struct Node {
    name: String,
    able: Spans,
    stalls: Spans,
}

fn gap(role: &str, span: Span, excused: &Spans, nodes: &[Node]) -> Gap {
    let mut gap =
        Gap { role: role.to_owned(), from: span.0, to: span.1, unexcused: 0, witness: None, of_two: false };
    for node in nodes {
        let unable = Spans::of([span]).without(&node.able);
        for piece in Spans::of([span]).without(excused).without(&unable).iter() {
            let length = (piece.1 - piece.0).saturating_sub(node.stalls.within(piece));
            if length > gap.unexcused {
                (gap.unexcused, gap.witness) = (length, Some((node.name.clone(), piece)));
                let troubled = |node: &&Node| Spans::of([piece]).without(&node.able).iter().next().is_some();
                gap.of_two = nodes.iter().filter(troubled).count() > 1;
            }
        }
    }
    gap
}

fn nodes(case: &JudgeCase) -> Vec<Node> {
    let mut lives: BTreeMap<(&str, u32), Span> = BTreeMap::new();
    let recovery = nanos(case.terms.recovery);
    for note in &case.notes {
        if let NoteKind::Joined { .. } = note.what {
            lives.entry((&note.node, note.pid)).or_insert((note.t.saturating_add(recovery), note.t));
        } else if let Some(life) = lives.get_mut(&(note.node.as_str(), note.pid)) {
            life.1 = life.1.max(note.t);
        }
    }
    let names: BTreeSet<&str> = lives.keys().map(|(name, _)| *name).collect();
    names.into_iter().map(|name| node(case, name, &lives)).collect()
}

fn node(case: &JudgeCase, name: &str, lives: &BTreeMap<(&str, u32), Span>) -> Node {
    let own = Spans::of(lives.iter().filter(|((node, _), _)| *node == name).map(|(_, life)| *life));
    let faulty = faults(case, |on| matches!(on, FaultScope::Node(of) if of == name));
    let stalls = stalls_of(&case.notes, |note: &Note| note.node == name || note.node == INJECTOR);
    Node { name: name.to_owned(), able: own.without(&faulty), stalls }
}

/// When such faults were there, or had been a moment ago: each excuses as long as it can have an effect.
fn faults(case: &JudgeCase, on: impl Fn(&FaultScope) -> bool) -> Spans {
    let (recovery, reconnect) = (nanos(case.terms.recovery), nanos(case.terms.reconnect));
    let those = case.injected.iter().filter(|fault| on(&fault.on));
    Spans::of(those.map(|fault| {
        let lasting =
            fault.loses != DataLoss::None || matches!(fault.on, FaultScope::Node(_) | FaultScope::Servers);
        (fault.from, fault.to.saturating_add(if lasting { recovery } else { reconnect }))
    }))
}

/// Gaps that nothing excuses.
pub(super) fn too_long(case: &JudgeCase, gaps: &[Gap]) -> Vec<Violation> {
    let allowed = nanos(case.terms.allowance);
    let bound = |gap: &Gap| nanos(if gap.of_two { case.terms.bound_of_two } else { case.terms.bound });
    let long = gaps.iter().filter(|gap| gap.unexcused > bound(gap).saturating_add(allowed));
    let told = long.map(|gap| {
        let (who, piece) = gap.witness.clone().unwrap_or_default();
        let text = format!(
            "{} {}, of which {who} could have led for {} that nothing excuses; promised within {}",
            millis(gap.to - gap.from),
            show((gap.from, gap.to)),
            millis(gap.unexcused),
            millis(bound(gap))
        );
        Violation::of(ViolationKind::Gap, &gap.role, piece, text)
    });
    told.collect()
}

pub(super) fn nanos(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
