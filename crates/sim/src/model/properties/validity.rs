//! Rule 1: only an acknowledged beat or opening extends validity, and only to `sent_at + T(1 − ρ)`.

use tenure_core::record::{Record, SessionState};
use tenure_core::{Engine, Input, Outcome, Output, Reply, Time, Write};

use super::{CheckResult, Stepped};
use crate::model::setup::Setup;
use crate::model::world::World;

pub(super) fn check(world: &mut World, step: &Stepped<'_>) -> CheckResult {
    let node = &mut world.nodes[step.node];
    let until = |engine: &Engine| engine.session();
    let (before, after) = (until(step.before), node.engine.as_deref().and_then(until));
    if let Some((id, now_until)) = after
        && before.is_none_or(|(former, was)| former != id || was < now_until)
    {
        let allowed = acknowledged(step, &node.sent).unwrap_or(Time::from_nanos(0));
        if now_until > allowed {
            return Err(format!(
                "{} counts on its session until {now_until:?}; an acknowledged beat allows {allowed:?}",
                Setup::node(step.node)
            ));
        }
    }
    if let Input::Replied { op, .. } = step.input {
        node.sent.retain(|(sent, _)| sent != op);
    }
    for output in step.outputs {
        if let Output::Write { op, writes } = output
            && writes.iter().any(is_beat)
        {
            node.sent.push((*op, node.clock));
        }
    }
    Ok(())
}

/// The deadline that the answer in this step allows.
fn acknowledged(step: &Stepped<'_>, sent: &[(tenure_core::OpId, Time)]) -> Option<Time> {
    let Input::Replied { op, reply: Reply::Written(outcomes) } = step.input else { return None };
    if !matches!(outcomes[..], [Outcome::Applied]) {
        return None;
    }
    let (_, sent_at) = sent.iter().find(|(sent, _)| sent == op)?;
    let timing = step.setup.timing(step.node);
    Some(sent_at.after(timing.validity()))
}

fn is_beat(write: &Write) -> bool {
    matches!(&write.put, Some((_, Record::Session(record))) if record.state == SessionState::Live)
}
