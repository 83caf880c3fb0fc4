//! Only an acknowledged write extends validity, counted from when that very write was sent; after the work was told
//! to stop no beat is sent or counted any more; nothing revives a lease that ran out.

use std::collections::VecDeque;

use tenure_core::{Event, Input, Key, OpId, Outcome, Record, Reply, SessionId, Time, Version};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

/// So many beats are remembered per process: more than can be on their way.
const REMEMBERED: usize = 64;

/// One opening or beat on its way.
#[derive(Debug, Clone)]
struct Beat {
    op: OpId,
    item: usize,
    session: SessionId,
    version: Version,
    opens: bool,
    /// Until when it may be counted on.
    until: Time,
}

/// One session that was opened.
#[derive(Debug, Clone)]
struct Lease {
    session: SessionId,
    until: Time,
    cancelled: bool,
}

/// What one process sent, and the leases that it got; the newest last.
#[derive(Debug, Clone, Default)]
struct Owner {
    beats: VecDeque<Beat>,
    leases: VecDeque<Lease>,
}

/// What each process may rely on.
#[derive(Debug, Clone, Default)]
pub(super) struct Validity(PerProcess<Owner>);

impl Validity {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.0.begun(pid, twin_of);
    }

    pub(super) fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
        let timing = &state.node(sent.pid).timing;
        let stop_grace = timing.stop_grace;
        let owner = self.0.get(sent.pid);
        for (item, write) in sent.writes.iter().enumerate() {
            let act = WriteKind::of(write);
            let (
                WriteKind::Open | WriteKind::Beat,
                Key::Session(_, id),
                Some((version, Record::Session(record))),
            ) = (act, &write.key, &write.put)
            else {
                continue;
            };
            let lease = owner.lease(*id).filter(|_| act == WriteKind::Beat);
            if lease.is_some_and(|lease| lease.cancelled || sent.local >= lease.until.before(stop_grace)) {
                return Err(format!("a beat of {id:?} after its work was told to stop"));
            }
            if owner.beats.len() >= REMEMBERED {
                owner.beats.pop_front();
            }
            let opens = act == WriteKind::Open;
            owner.beats.push_back(Beat {
                op: sent.op,
                item,
                session: *id,
                version: *version,
                opens,
                until: sent.local.after(timing.validity_under(record.takeover)),
            });
        }
        Ok(())
    }

    pub(super) fn received(&mut self, pid: Pid, local: Time, input: &Input) {
        let Input::Replied { op, reply: Reply::Written(outcomes) } = input else { return };
        let owner = self.0.get(pid);
        for (item, outcome) in outcomes.iter().enumerate() {
            let acknowledged = match outcome {
                Outcome::Applied => owner.beats.iter().rev().find(|beat| beat.op == *op && beat.item == item),
                // A conflict that returns my own value tells that it was applied, whichever sending of it was.
                Outcome::Conflict(Some(entry)) => {
                    owner.beats.iter().find(|beat| beat.version == entry.version)
                }
                _ => None,
            };
            if let Some(beat) = acknowledged.cloned() {
                owner.acknowledge(&beat, local, beat.until);
            }
        }
    }

    /// The process says until when it may be relied on.
    pub(super) fn valid(&mut self, state: &WorldState, pid: Pid, until: Time) -> CheckResult {
        let Some((session, _)) = state.processes[pid].engine.session() else { return Ok(()) };
        let allowed = self.0.get(pid).lease(session).map_or(Time::from_nanos(0), |lease| lease.until);
        if until <= allowed {
            return Ok(());
        }
        let more = until.since(allowed);
        Err(format!("p{pid} relies on {session:?} for {more:?} longer than any acknowledged beat allows"))
    }

    pub(super) fn event(&mut self, state: &WorldState, pid: Pid, event: &Event) {
        let Event::Draining { forced: true, .. } = event else { return };
        let Some((session, _)) = state.processes[pid].engine.session() else { return };
        if let Some(lease) = self.0.get(pid).lease(session) {
            lease.cancelled = true;
        }
    }
}

impl Owner {
    fn lease(&mut self, session: SessionId) -> Option<&mut Lease> {
        self.leases.iter_mut().rev().find(|lease| lease.session == session)
    }

    fn acknowledge(&mut self, beat: &Beat, local: Time, until: Time) {
        match self.lease(beat.session) {
            Some(lease) if local < lease.until && !lease.cancelled => lease.until = lease.until.max(until),
            None if beat.opens => {
                if self.leases.len() >= REMEMBERED {
                    self.leases.pop_front();
                }
                self.leases.push_back(Lease { session: beat.session, until, cancelled: false });
            }
            _ => {}
        }
    }
}
