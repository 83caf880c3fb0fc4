//! A reply to an operation that timed out grants nothing and extends nothing.

use tenure_core::{Event, Input, Output};

use super::{CheckResult, Stepped};
use crate::model::setup::Setup;
use crate::model::world::World;

pub(super) fn check(world: &World, step: &Stepped<'_>) -> CheckResult {
    if !matches!(step.input, Input::Replied { .. }) || step.is_answer_in_time(world.nodes[step.node].clock) {
        return Ok(());
    }
    for output in step.outputs {
        if matches!(
            output,
            Output::Valid { .. }
                | Output::Event(Event::Elected { .. } | Event::SessionOpened { .. } | Event::Certain)
        ) {
            return Err(format!("{} believes a late answer: {output:?}", Setup::node(step.node)));
        }
    }
    Ok(())
}
