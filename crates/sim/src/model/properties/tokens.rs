//! Every tenure has a higher token than every tenure before it, whoever had that.

use tenure_core::{Event, Output};

use super::{Stepped, Verdict};
use crate::model::world::World;

pub(super) fn check(world: &World, step: &Stepped<'_>) -> Verdict {
    for output in step.outputs {
        if let Output::Event(Event::Elected { token, .. }) = output
            && *token <= world.top
        {
            return Err(format!("a tenure with token {token} begins after one with token {}", world.top));
        }
    }
    Ok(())
}
