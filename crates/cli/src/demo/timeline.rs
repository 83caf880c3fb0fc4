//! The last minute of a role as text: one lane per node, one cell per slice of time.

use std::time::Duration;

use tenure::Name;

use super::cluster::{Cause, DemoCluster, DemoNode, Health};

/// What one node did in one slice of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// It was not there.
    Absent,
    /// It stood by.
    Standby,
    /// It led.
    Leading,
    /// It held the role, but could not do a thing.
    Holding,
    /// It was frozen, and had been replaced.
    Frozen,
    /// It was killed in this slice.
    Killed,
    /// It was frozen in this slice.
    Froze,
}

impl Cell {
    /// How it is drawn; readable without colour.
    pub(super) fn symbol(self) -> char {
        match self {
            Self::Absent => ' ',
            Self::Standby => '─',
            Self::Leading => '█',
            Self::Holding => '▒',
            Self::Frozen => '░',
            Self::Killed => '×',
            Self::Froze => '‖',
        }
    }
}

/// A window of time in so many slices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    from: u64,
    slice: u64,
    slices: usize,
}

impl Window {
    /// The last `span` before `now`. Slices begin at multiples of their length, so that the past moves in whole cells
    /// and does not flicker.
    pub(super) fn until(now: u64, span: Duration, slices: usize) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let slice = (span / slices.max(1) as u64).max(1);
        let end = (now / slice + 1) * slice;
        Self { from: end.saturating_sub(slice * slices as u64), slice, slices }
    }

    /// One node's lane for the scheduler.
    pub(super) fn lane(&self, cluster: &DemoCluster, node: &Name) -> Vec<Cell> {
        let Some(node_state) = cluster.node_state(node) else { return vec![Cell::Absent; self.slices] };
        let tenure_spans = self.tenure_spans(cluster, node);
        (0..self.slices as u64)
            .map(|index| self.from + index * self.slice)
            .map(|from| cell(node_state, &tenure_spans, from, from + self.slice - 1))
            .collect()
    }

    /// When the node led and held on in this window; what was before it has no place in any cell.
    fn tenure_spans(&self, cluster: &DemoCluster, node: &Name) -> Vec<TenureSpan> {
        let mut next = u64::MAX;
        let mut tenure_spans = Vec::new();
        for tenure in cluster.tenures().rev() {
            if next < self.from {
                break;
            }
            if tenure.node == *node {
                let (until, cause) = tenure.ended.map_or((u64::MAX, None), |(at, cause)| (at, Some(cause)));
                let held = if cause == Some(Cause::Freeze) { next } else { until };
                tenure_spans.push(TenureSpan { from: tenure.began, until, held });
            }
            next = tenure.began;
        }
        tenure_spans
    }
}

/// One tenure: it led until then, and held the role, be it frozen, until then.
struct TenureSpan {
    from: u64,
    until: u64,
    held: u64,
}

fn cell(node_state: &DemoNode, tenure_spans: &[TenureSpan], from: u64, to: u64) -> Cell {
    if let Some(mark) = mark(node_state, from, to) {
        return mark;
    }
    if tenure_spans.iter().any(|reign| reign.from <= to && reign.until >= from) {
        return Cell::Leading;
    }
    if tenure_spans.iter().any(|reign| reign.from <= to && reign.held >= from) {
        return Cell::Holding;
    }
    match node_state.health_at(to) {
        Health::Dead | Health::Joining => Cell::Absent,
        Health::Frozen => Cell::Frozen,
        Health::Live => Cell::Standby,
    }
}

/// The blow that a node was dealt in that slice: the board shows those above all.
fn mark(node_state: &DemoNode, from: u64, to: u64) -> Option<Cell> {
    let since = node_state.past.iter().rev().take_while(|(at, _)| *at >= from);
    since.filter(|(at, _)| *at <= to).find_map(|(_, health)| match health {
        Health::Dead => Some(Cell::Killed),
        Health::Frozen => Some(Cell::Froze),
        Health::Live | Health::Joining => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::cluster::DemoEvent;
    use super::super::cluster::tests::{MS, led, name, two};
    use super::*;

    fn drawn(cluster: &DemoCluster, node: &str, now: u64) -> String {
        let window = Window::until(now, Duration::from_millis(1_000), 10);
        window.lane(cluster, &name(node)).into_iter().map(Cell::symbol).collect()
    }

    #[test]
    fn a_crash_is_marked_and_the_next_lane_goes_on() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 200 * MS);
        cluster.apply(550 * MS, DemoEvent::Killed { node: name("node-1") });
        led(&mut cluster, "node-2", 2, 558 * MS);
        assert_eq!(drawn(&cluster, "node-1", 999 * MS), "──███×    ");
        assert_eq!(drawn(&cluster, "node-2", 999 * MS), "─────█████");
    }

    #[test]
    fn a_freeze_shows_how_long_no_node_could_lead() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 0);
        cluster.apply(310 * MS, DemoEvent::Frozen { node: name("node-1") });
        led(&mut cluster, "node-2", 2, 650 * MS);
        cluster.apply(850 * MS, DemoEvent::Woken { node: name("node-1") });
        assert_eq!(drawn(&cluster, "node-1", 999 * MS), "███‖▒▒▒░──");
        assert_eq!(drawn(&cluster, "node-2", 999 * MS), "──────████");
    }

    #[test]
    fn the_past_moves_in_whole_cells() {
        let mut cluster = two();
        led(&mut cluster, "node-1", 1, 200 * MS);
        assert_eq!(drawn(&cluster, "node-1", 1_010 * MS), drawn(&cluster, "node-1", 1_090 * MS));
        assert_eq!(drawn(&cluster, "node-1", 1_110 * MS), "██████████");
    }
}
