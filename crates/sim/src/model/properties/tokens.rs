//! Every tenure has a higher token than every tenure before it, of any node.

use tenure_core::{Event, Output};

use super::{CheckResult, Stepped};
use crate::model::world::World;

pub(super) fn check(world: &World, step: &Stepped<'_>) -> CheckResult {
    for output in step.outputs {
        if let Output::Event(Event::Elected { token, .. }) = output
            && *token <= world.top
        {
            return Err(format!("a tenure with token {token} begins after one with token {}", world.top));
        }
    }
    Ok(())
}
