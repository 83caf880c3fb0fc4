//! A request fells at most the tenure that it names; a pause is seen before an election.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::record::EndReason;
use tenure_core::{Event, Key, Kind, Name, Record, Token, Write};

use super::{CheckResult, WriteKind};
use crate::clock::Instant;
use crate::process::Pid;
use crate::world_state::WorldState;

/// What was ever asked, and when roles were paused and claimed.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    asked: BTreeSet<(Name, Token)>,
    paused_since: BTreeMap<Name, Instant>,
    claimed: BTreeMap<Name, (Token, Instant)>,
}

impl Requests {
    pub(super) fn applied(&mut self, before: &WorldState, write: &Write) {
        let Key::Named(_, kind, name) = &write.key else { return };
        match (kind, &write.put) {
            (Kind::Role, Some((_, Record::Role(role)))) if WriteKind::of(write) == WriteKind::Claim => {
                self.claimed.insert(name.clone(), (role.token, before.now));
            }
            (Kind::RoleControl, Some((_, Record::RoleControl(control)))) => {
                if let Some(request) = &control.request {
                    self.asked.insert((name.clone(), request.token));
                }
                match control.pause {
                    Some(_) => _ = self.paused_since.entry(name.clone()).or_insert(before.now),
                    None => _ = self.paused_since.remove(name),
                }
            }
            (Kind::RoleControl, None) => _ = self.paused_since.remove(name),
            _ => {}
        }
    }

    pub(super) fn event(&mut self, state: &WorldState, pid: Pid, event: &Event) -> CheckResult {
        match event {
            Event::Draining { role, token, reason, .. } | Event::Lost { role, token, reason } => {
                let asked = matches!(reason, EndReason::StepDown | EndReason::Transfer);
                if asked && !self.asked.contains(&(role.clone(), *token)) {
                    return Err(format!(
                        "{role} {token} is given up for {reason}, which no operator asked of it"
                    ));
                }
                Ok(())
            }
            Event::Elected { role, token } => self.not_paused(state, pid, role, *token),
            _ => Ok(()),
        }
    }

    fn not_paused(&self, state: &WorldState, pid: Pid, role: &Name, token: Token) -> CheckResult {
        let fresh_reads = state.settings.reads_are_fresh() && state.losses.count() == 0;
        let (Some(since), Some((claimed, at))) = (self.paused_since.get(role), self.claimed.get(role)) else {
            return Ok(());
        };
        if fresh_reads && *claimed == token && since < at {
            return Err(format!(
                "{role} {token} is elected on p{pid} although it was paused before the claim"
            ));
        }
        Ok(())
    }
}
