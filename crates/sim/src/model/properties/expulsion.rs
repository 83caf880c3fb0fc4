//! Rule 3: a node that expels a session has had that very version for `T(1 + ρ)`, or holds evidence; or creates
//! `expelled` where nothing is.

use tenure_core::record::{Record, Session, SessionState};
use tenure_core::{Entry, Input, Key, Outcome, Output, Reply, SessionId, Takeover, Write};

use super::{CheckResult, Stepped};
use crate::model::setup::Setup;
use crate::model::world::{Node, World};

pub(super) fn check(world: &mut World, step: &Stepped<'_>) -> CheckResult {
    let node = &mut world.nodes[step.node];
    remember(node, step);
    let name = Setup::node(step.node);
    let node = &world.nodes[step.node];
    for output in step.outputs {
        let Output::Write { writes, .. } = output else { continue };
        for write in writes {
            if let Some((id, record)) = expulsion(write)
                && write.expect.is_some()
                && !justified(step, node, id, record, write)
            {
                return Err(format!(
                    "{name} expels session {id:?} too early, or another version than it watched"
                ));
            }
        }
    }
    Ok(())
}

fn expulsion(write: &Write) -> Option<(SessionId, &Session)> {
    match (&write.key, &write.put) {
        (Key::Session(_, id), Some((_, Record::Session(record))))
            if record.state == SessionState::Expelled =>
        {
            Some((*id, record))
        }
        _ => None,
    }
}

fn justified(step: &Stepped<'_>, node: &Node, id: SessionId, record: &Session, write: &Write) -> bool {
    let timing = step.setup.timing(step.node);
    let first = node.received.get(&id).filter(|(version, _)| Some(*version) == write.expect);
    let silent = |span| first.is_some_and(|(_, at)| node.clock >= at.after(timing.expulsion_wait(span)));
    let watched = silent(record.ttl);
    let told = node.evidence.get(&id).is_some_and(|at| match record.takeover {
        Takeover::Strict => record.liveness_lock.as_ref().is_some_and(|lock| lock.covers_work),
        Takeover::OnDisconnect => {
            silent(record.grace) || node.clock >= at.after(timing.expulsion_wait(record.grace))
        }
    });
    watched || told
}

/// Remembers when each version of each session was first received.
fn remember(node: &mut Node, step: &Stepped<'_>) {
    let Input::Replied { reply, .. } = step.input else { return };
    if !step.is_answer_in_time(node.clock) {
        return;
    }
    let mut note = |entry: &Entry| {
        if let Key::Session(_, id) = &entry.key {
            let former = node.received.get(id).map(|(version, _)| *version);
            if former != Some(entry.version) {
                node.received.insert(*id, (entry.version, node.clock));
            }
        }
    };
    match reply {
        Reply::Read(entries) => entries.iter().for_each(note),
        Reply::Written(outcomes) => {
            for outcome in outcomes {
                if let Outcome::Conflict(Some(entry)) = outcome {
                    note(entry);
                }
            }
        }
        Reply::Failed(_) => {}
    }
}
