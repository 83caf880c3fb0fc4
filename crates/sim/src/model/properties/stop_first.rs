//! Rule 6: work has stopped before its role is given up, before its session is closed, before the next election.

use tenure_core::record::{Record, SessionState};
use tenure_core::{Event, Output, Write};

use super::{CheckResult, Stepped};
use crate::model::setup::Setup;
use crate::model::world::World;

pub(super) fn check(world: &World, step: &Stepped<'_>) -> CheckResult {
    let works = &world.nodes[step.node].works;
    if works.is_empty() {
        return Ok(());
    }
    let name = Setup::node(step.node);
    for output in step.outputs {
        match output {
            Output::Event(Event::Elected { token, .. }) => {
                return Err(format!("{name} is elected with {token} while its former work runs: {works:?}"));
            }
            // What a former process left behind is not covered by this one's session.
            Output::Write { writes, .. } if works.iter().any(|work| !work.orphan) => {
                if let Some(write) = writes.iter().find(|write| gives_up(write)) {
                    return Err(format!("{name} writes {:?} while its work runs: {works:?}", write.key));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn gives_up(write: &Write) -> bool {
    match &write.put {
        Some((_, Record::Role(role))) => role.holder.is_none(),
        Some((_, Record::Session(session))) => session.state == SessionState::Closed,
        _ => false,
    }
}
