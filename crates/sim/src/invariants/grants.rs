//! Late replies are inert: an election follows only the timely acknowledgement of a claim in the session in use.

use std::collections::VecDeque;

use tenure_core::{Input, Key, Name, OpId, Outcome, Record, Reply, SessionId, Time, Token};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

/// So many claims of a process are remembered: more than it has roles.
const REMEMBERED: usize = 1024;

/// One claim on its way.
#[derive(Debug, Clone)]
struct Claim {
    op: OpId,
    item: usize,
    role: Name,
    token: Token,
    session: SessionId,
    sent: Time,
}

/// The claims of one process: on their way, and acknowledged in time.
#[derive(Debug, Clone, Default)]
struct Claims {
    sent: VecDeque<Claim>,
    timely: VecDeque<(Name, Token, SessionId)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Grants(PerProcess<Claims>);

impl Grants {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.0.begun(pid, twin_of);
    }

    pub(super) fn sent(&mut self, sent: SentBatch<'_>) {
        let claims = self.0.get(sent.pid);
        for (item, write) in sent.writes.iter().enumerate() {
            if WriteKind::of(write) != WriteKind::Claim {
                continue;
            }
            let (Key::Named(_, _, name), Some((_, Record::Role(role)))) = (&write.key, &write.put) else {
                continue;
            };
            let Some(holder) = &role.holder else { continue };
            if claims.sent.len() >= REMEMBERED {
                claims.sent.pop_front();
            }
            claims.sent.push_back(Claim {
                op: sent.op,
                item,
                role: name.clone(),
                token: role.token,
                session: holder.session,
                sent: sent.local,
            });
        }
    }

    pub(super) fn received(&mut self, state: &WorldState, pid: Pid, local: Time, input: &Input) {
        let Input::Replied { op, reply: Reply::Written(outcomes) } = input else { return };
        let claims = self.0.get(pid);
        if claims.sent.is_empty() {
            return;
        }
        let timeout = state.node(pid).timing.op_timeout;
        for claim in claims.sent.iter().filter(|claim| claim.op == *op) {
            let applied = outcomes.get(claim.item) == Some(&Outcome::Applied);
            if applied && local.since(claim.sent) <= timeout {
                claims.timely.push_back((claim.role.clone(), claim.token, claim.session));
            }
        }
        claims.sent.retain(|claim| claim.op != *op);
        while claims.timely.len() > REMEMBERED {
            claims.timely.pop_front();
        }
    }

    pub(super) fn elected(&mut self, state: &WorldState, pid: Pid, role: &Name, token: Token) -> CheckResult {
        let session = state.processes[pid].engine.session().map(|session| session.0);
        let timely = &self.0.get(pid).timely;
        let found = timely.iter().find(|claim| claim.0 == *role && claim.1 == token);
        match found {
            Some((_, _, claimed)) if Some(*claimed) == session => Ok(()),
            Some((_, _, claimed)) => {
                Err(format!("{role} {token} was claimed in {claimed:?} and elected in {session:?}"))
            }
            None => Err(format!("{role} {token} was elected without a timely acknowledgement")),
        }
    }
}
