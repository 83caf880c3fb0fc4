//! What operators ask holds: a node of higher priority leaves a role to whom an operator gave it, and a leader that was asked
//! to step down stands back for its cool-down.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::record::{EndReason, Request};
use tenure_core::{Event, Input, Key, Kind, Name, Record, Time, Write};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

/// How long each process stands back from each role after it was asked to, and until when it does.
#[derive(Debug, Clone, Default)]
pub(super) struct Operators(PerProcess<BTreeMap<Name, (Duration, Time)>>);

impl Operators {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.0.begun(pid, twin_of);
    }

    pub(super) fn received(&mut self, pid: Pid, input: &Input) {
        let stood = self.0.get(pid);
        match input {
            Input::Campaign { role, candidacy } => {
                stood.entry(role.clone()).or_insert((Duration::ZERO, Time::from_nanos(0))).0 =
                    candidacy.cool_down;
            }
            Input::Withdraw { role } => _ = stood.remove(role),
            _ => {}
        }
    }

    pub(super) fn event(&mut self, state: &WorldState, pid: Pid, event: &Event) {
        if let Event::Lost { role, reason: EndReason::StepDown, .. } = event
            && let Some((cool_down, until)) = self.0.get(pid).get_mut(role)
        {
            *until = state.local(pid).after(*cool_down);
        }
    }

    pub(super) fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
        for write in sent.writes {
            let Key::Named(_, kind, role) = &write.key else { continue };
            let stands_back = self.0.get(sent.pid).get(role).is_some_and(|(_, until)| sent.local < *until);
            if *kind == Kind::Role && WriteKind::of(write) == WriteKind::Claim && stands_back {
                return Err(format!("p{} claims {role}, from which it was asked to step down", sent.pid));
            }
            if *kind == Kind::RoleControl && undoes(state, role, write) {
                return Err(format!("p{} asks for {role}, which an operator gave to its leader", sent.pid));
            }
        }
        Ok(())
    }
}

/// Whether a request of a node of higher priority takes the place of an operator's transfer to the leader whom it addresses.
fn undoes(state: &WorldState, role: &Name, write: &Write) -> bool {
    let held = state.store.get(&write.key);
    let (Some((version, Record::RoleControl(control))), Some((_, Record::RoleControl(new)))) =
        (held, &write.put)
    else {
        return false;
    };
    let preempts = |request: &&Request| request.preemption && write.expect == Some(*version);
    let (Some(request), Some(given)) = (new.request.as_ref().filter(preempts), &control.request) else {
        return false;
    };
    let key = Key::Named(write.key.epoch(), Kind::Role, role.clone());
    let Some((_, Record::Role(record))) = state.store.get(&key) else { return false };
    let leader = record.holder.as_ref().filter(|_| record.token == request.token);
    leader.is_some_and(|leader| given.transferred_to(&leader.node))
}
