//! The wall clock, on which nothing depends.

use crate::rig::Rig;
use crate::world::World;

/// A plain minute: 2026-11-15 18:33.
const MINUTE: u64 = 1_794_767_580;
/// Central Europe puts its clocks on: 2026-03-29 01:00 UTC.
const SPRING: u64 = 1_774_746_000;
/// … and back: 2026-10-25 01:00 UTC.
const AUTUMN: u64 = 1_792_890_000;
const HOUR: u64 = 3600;

/// The `locks` table could not be renewed in the last ten seconds of any minute, and held a lease for an hour too long in
/// autumn. Here the role changes hands in every second of a minute, at both edges, and while people set the clock.
pub(crate) async fn every_second_of_the_minute_and_both_edges_of_summer_time<R: Rig>() {
    let world = World::<R>::of(2).await;
    let minute = (0..60).map(|second| MINUTE + second);
    let edges = [SPRING, AUTUMN].into_iter().flat_map(|edge| [edge - 10, edge - 1, edge, edge + 1]);
    let set_by_hand = [MINUTE - HOUR, MINUTE + HOUR, 0, MINUTE];
    let first = world.leader().await;
    let mut last = first;
    for wall in minute.chain(edges).chain(set_by_hand) {
        world.clock().set(wall);
        world.members[last.nth].candidate.resign();
        last = world.leader_after(last.token).await;
    }
    world.judge();
    assert!(last.token.get() >= first.token.get() + 72, "each time another node, or the same anew");
}
