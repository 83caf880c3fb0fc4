//! For each node, elected and lost alternate, with the same token.

use tenure_core::{Event, Output};

use super::{CheckResult, Stepped};
use crate::model::world::World;

pub(super) fn check(world: &mut World, step: &Stepped<'_>) -> CheckResult {
    let granted = &mut world.nodes[step.node].granted;
    for output in step.outputs {
        match output {
            Output::Event(Event::Elected { token, .. }) => {
                if let Some(former) = granted.replace(*token) {
                    return Err(format!("elected with token {token} while {former} was not lost"));
                }
            }
            Output::Event(Event::Lost { token, .. }) if granted.take() != Some(*token) => {
                return Err(format!("token {token} is lost without having been granted"));
            }
            _ => {}
        }
    }
    Ok(())
}
