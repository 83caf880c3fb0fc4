//! Hands off: no node writes another's live session, except to expel it, nor a role or name held by a session that
//! is not over; a beat replaces only what its owner wrote; over is final for its owner; what a session promised never
//! changes.

use std::collections::{BTreeSet, VecDeque};

use tenure_core::record::{Session, SessionState};
use tenure_core::{Key, Record, SessionId, Version, Write};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

/// So many values of its session are remembered per process: more than it can have on their way.
const REMEMBERED: usize = 64;

/// What one process wrote.
#[derive(Debug, Clone, Default)]
struct Wrote {
    sessions: BTreeSet<SessionId>,
    versions: VecDeque<Version>,
}

/// What each process wrote, and which sessions were ever over.
#[derive(Debug, Clone, Default)]
pub(super) struct HandsOff {
    wrote: PerProcess<Wrote>,
    over: BTreeSet<SessionId>,
}

impl HandsOff {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.wrote.begun(pid, twin_of);
    }

    pub(super) fn sent(&mut self, sent: SentBatch<'_>) -> CheckResult {
        for write in sent.writes {
            let Key::Session(_, id) = &write.key else { continue };
            let wrote = self.wrote.get(sent.pid);
            let act = WriteKind::of(write);
            if act == WriteKind::Open {
                wrote.sessions.insert(*id);
            }
            if matches!(act, WriteKind::Beat | WriteKind::Close) && !wrote.sessions.contains(id) {
                return Err(format!("{act:?} on {id:?}, the session of another node"));
            }
            if act == WriteKind::Beat
                && !write.expect.is_some_and(|version| wrote.versions.contains(&version))
            {
                return Err(format!(
                    "a beat of {id:?} replaces {:?}, which its owner never wrote",
                    write.expect
                ));
            }
            if let (WriteKind::Open | WriteKind::Beat, Some((version, _))) = (act, &write.put) {
                if wrote.versions.len() >= REMEMBERED {
                    wrote.versions.pop_front();
                }
                wrote.versions.push_back(*version);
            }
        }
        Ok(())
    }

    pub(super) fn applied(&mut self, before: &WorldState, pid: Option<Pid>, write: &Write) -> CheckResult {
        match &write.key {
            Key::Session(_, id) => self.session_applied(before, *id, write),
            Key::Named(..) => match before.store.get(&write.key) {
                Some((_, Record::Role(role))) => match &role.holder {
                    Some(holder) => self.may_replace(before, pid, holder.session, write),
                    None => Ok(()),
                },
                Some((_, Record::Node(node))) => self.may_replace(before, pid, node.session, write),
                _ => Ok(()),
            },
            Key::Cluster => Ok(()),
        }
    }

    fn session_applied(&mut self, before: &WorldState, id: SessionId, write: &Write) -> CheckResult {
        let Some((_, Record::Session(record))) = &write.put else {
            let over = before.is_over(&write.key);
            return if over { Ok(()) } else { Err(format!("{id:?} is deleted before it is over")) };
        };
        if record.state != SessionState::Live {
            self.over.insert(id);
        } else if self.over.contains(&id)
            && !before.losses.took_session(id)
            && !is_late_opening(before, id, write)
        {
            return Err(format!("{id:?} was over and is live again"));
        }
        match before.store.get(&write.key) {
            Some((_, Record::Session(former))) if promise(former) != promise(record) => Err(format!(
                "{id:?} changes what it promised: {:?} to {:?}",
                promise(former),
                promise(record)
            )),
            _ => Ok(()),
        }
    }

    fn may_replace(
        &mut self,
        before: &WorldState,
        pid: Option<Pid>,
        held_by: SessionId,
        write: &Write,
    ) -> CheckResult {
        let own = pid.is_some_and(|pid| self.wrote.get(pid).sessions.contains(&held_by));
        if own || self.over.contains(&held_by) || before.losses.took_session(held_by) {
            return Ok(());
        }
        Err(format!(
            "{:?} on {}, which {held_by:?} holds and which is not over",
            WriteKind::of(write),
            write.key
        ))
    }
}

/// An opening that arrives after its session was closed and its register tidied away makes a session that no node relies on.
fn is_late_opening(before: &WorldState, id: SessionId, write: &Write) -> bool {
    let mut pids = 0..before.processes.len();
    let unused = pids.all(|pid| !before.processes[pid].is_alive() || before.session(pid) != Some(id));
    unused && WriteKind::of(write) == WriteKind::Open && before.store.get(&write.key).is_none()
}

fn promise(session: &Session) -> (std::time::Duration, std::time::Duration, tenure_core::Takeover) {
    (session.ttl, session.grace, session.takeover)
}
