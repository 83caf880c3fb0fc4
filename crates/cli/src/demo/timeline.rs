//! The last minute of a role as text: one lane per node, one cell per slice of time.

use std::time::Duration;

use tenure::Name;

use super::world::{Cause, Health, World};

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
    pub(super) fn lane(&self, world: &World, node: &Name) -> Vec<Cell> {
        (0..self.slices as u64)
            .map(|index| self.from + index * self.slice)
            .map(|from| cell(world, node, from, from + self.slice - 1))
            .collect()
    }
}

fn cell(world: &World, node: &Name, from: u64, to: u64) -> Cell {
    let Some(player) = world.player(node) else { return Cell::Absent };
    if let Some(mark) = mark(world, node, from, to) {
        return mark;
    }
    let successor = |token| world.terms().find(|term| term.token > token).map_or(u64::MAX, |term| term.began);
    let mine = || world.terms().filter(|term| term.node == *node);
    if mine().any(|term| term.began <= to && term.ended.is_none_or(|(end, _)| end >= from)) {
        return Cell::Leading;
    }
    let frozen_since = |end: Option<(u64, Cause)>| matches!(end, Some((since, Cause::Freeze)) if since <= to);
    if mine().any(|term| frozen_since(term.ended) && successor(term.token) >= from) {
        return Cell::Holding;
    }
    match player.health_at(to) {
        Health::Dead | Health::Joining => Cell::Absent,
        Health::Frozen => Cell::Frozen,
        Health::Live => Cell::Standby,
    }
}

/// The blow that a node was dealt in that slice: the board shows those above all.
fn mark(world: &World, node: &Name, from: u64, to: u64) -> Option<Cell> {
    let past = &world.player(node)?.past;
    let dealt = past.iter().rev().filter(|(at, _)| (from..=to).contains(at));
    dealt.into_iter().find_map(|(_, health)| match health {
        Health::Dead => Some(Cell::Killed),
        Health::Frozen => Some(Cell::Froze),
        Health::Live | Health::Joining => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::world::Happening;
    use super::super::world::tests::{MS, led, name, two};
    use super::*;

    fn drawn(world: &World, node: &str, now: u64) -> String {
        let window = Window::until(now, Duration::from_millis(1_000), 10);
        window.lane(world, &name(node)).into_iter().map(Cell::symbol).collect()
    }

    #[test]
    fn a_crash_is_marked_and_the_next_lane_goes_on() {
        let mut world = two();
        led(&mut world, "node-1", 1, 200 * MS);
        world.apply(550 * MS, Happening::Killed { node: name("node-1") });
        led(&mut world, "node-2", 2, 558 * MS);
        assert_eq!(drawn(&world, "node-1", 999 * MS), "──███×    ");
        assert_eq!(drawn(&world, "node-2", 999 * MS), "─────█████");
    }

    #[test]
    fn a_freeze_shows_how_long_nobody_could_lead() {
        let mut world = two();
        led(&mut world, "node-1", 1, 0);
        world.apply(310 * MS, Happening::Frozen { node: name("node-1") });
        led(&mut world, "node-2", 2, 650 * MS);
        world.apply(850 * MS, Happening::Woken { node: name("node-1") });
        assert_eq!(drawn(&world, "node-1", 999 * MS), "███‖▒▒▒░──");
        assert_eq!(drawn(&world, "node-2", 999 * MS), "──────████");
    }

    #[test]
    fn the_past_moves_in_whole_cells() {
        let mut world = two();
        led(&mut world, "node-1", 1, 200 * MS);
        assert_eq!(drawn(&world, "node-1", 1_010 * MS), drawn(&world, "node-1", 1_090 * MS));
        assert_eq!(drawn(&world, "node-1", 1_110 * MS), "██████████");
    }
}
