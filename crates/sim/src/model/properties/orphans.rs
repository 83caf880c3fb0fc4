//! No role is orphaned: when the faults stop, a node leads within a bounded time.
//!
//! From a given state every message in flight is delivered, every process runs again, and from then on nothing goes
//! wrong. The check shows that a node leads after at most [`patience`] ticks, whatever happened before; states met
//! on the way need not be tried again.

use std::collections::HashSet;

use super::CheckResult;
use crate::model::action::{Action, begin, enabled};
use crate::model::canonical;
use crate::model::search::fingerprint;
use crate::model::setup::Setup;
use crate::model::world::{Node, World};

/// So many ticks are enough: a dead process is waited for, its name is taken over, the role is claimed; with a margin
/// for delays that a tick rounds up.
#[must_use]
pub fn patience(setup: &Setup) -> u32 {
    4 * setup.paces.iter().map(|pace| pace.ttl).max().unwrap_or(0) + 8
}

/// Checks one state; `good` are fingerprints of states from which a node is known to lead in time.
pub fn check(setup: &Setup, world: &World, good: &mut HashSet<u128>) -> CheckResult {
    let mut world = world.clone();
    let mut met = Vec::new();
    for _ in 0..patience(setup) {
        if is_led(&world) {
            good.extend(met);
            return Ok(());
        }
        let mark = fingerprint(&world);
        if good.contains(&mark) {
            good.extend(met);
            return Ok(());
        }
        met.push(mark);
        world = quiet_tick(setup, world)?;
    }
    let ticks = patience(setup);
    Err(format!("no node leads {ticks} ticks after the last fault; the registers are {:#?}", world.registers))
}

fn is_led(world: &World) -> bool {
    world.nodes.iter().any(|node| node.is_up() && node.leads(&Setup::role()).is_some())
}

/// One tick in which nothing goes wrong and nothing is left lying.
fn quiet_tick(setup: &Setup, mut world: World) -> Result<World, String> {
    while let Some(action) = next_repair(setup, &world) {
        world = without_faults(setup, &world, &action)?;
    }
    world = without_faults(setup, &world, &Action::Tick)?;
    while let Some(action) = next_repair(setup, &world) {
        world = without_faults(setup, &world, &action)?;
    }
    canonical::canonicalize(setup, &mut world);
    Ok(world)
}

fn next_repair(setup: &Setup, world: &World) -> Option<Action> {
    let heals = |action: &Action| {
        matches!(
            action,
            Action::Thaw(_)
                | Action::Partition(None)
                | Action::Restart(_)
                | Action::Start(_)
                | Action::WorkStops(_)
                | Action::Deliver(_)
                | Action::Apply(_, true)
                | Action::Wake(_)
        )
    };
    enabled(setup, world).into_iter().find(heals)
}

/// The only outcome of an action when nothing goes wrong.
pub fn without_faults(setup: &Setup, world: &World, action: &Action) -> Result<World, String> {
    let run = begin(setup, world, action, true, false).outcomes().pop().expect("one outcome");
    match run.broken {
        Some(broken) => Err(broken),
        None => Ok(run.world),
    }
}

/// A world in which a node has led for a while.
///
/// # Panics
/// If it does not come about.
#[must_use]
pub fn settled(setup: &Setup) -> World {
    // Every node knows every other.
    let fault_free = &Setup { sweep: true, hints: true, ..setup.clone() };
    let mut world = World::new(setup);
    for _ in 0..12 {
        world = quiet_tick(fault_free, world).expect("nothing goes wrong");
    }
    assert!(is_led(&world) && !world.nodes.iter().any(Node::is_due), "a fault_free world settles");
    world
}
