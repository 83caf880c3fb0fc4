//! At any moment of true time at most one node leads, or has work running.

use super::CheckResult;
use crate::model::setup::Setup;
use crate::model::world::World;

pub(super) fn check(_: &Setup, world: &World) -> CheckResult {
    let role = Setup::role();
    let occupied = |n: &usize| world.nodes[*n].leads(&role).is_some() || !world.nodes[*n].works.is_empty();
    let busy: Vec<usize> = (0..world.nodes.len()).filter(occupied).collect();
    if busy.len() < 2 {
        return Ok(());
    }
    let tell = |n: &usize| {
        let node = &world.nodes[*n];
        format!("{} (leads: {:?}, works: {:?})", Setup::node(*n), node.leads(&role), node.works)
    };
    Err(format!("two at once: {}", busy.iter().map(tell).collect::<Vec<_>>().join(" and ")))
}
