//! Only an acknowledged write extends validity, counted from when that very write was sent; after the work was told
//! to stop no beat is sent or counted any more; nothing revives a lease that ran out.

use std::collections::VecDeque;

use tenure_core::{Event, Input, Key, OpId, Outcome, Reply, SessionId, Time, Version};

use super::{Act, PerProcess, Sent, Verdict};
use crate::process::Pid;
use crate::scene::Scene;

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
    sent: Time,
}

/// What one process may rely on.
#[derive(Debug, Clone, Default)]
struct Lease {
    beats: VecDeque<Beat>,
    session: Option<SessionId>,
    until: Time,
    cancelled: bool,
}

/// What each process may rely on.
#[derive(Debug, Clone, Default)]
pub(super) struct Validity(PerProcess<Lease>);

impl Validity {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.0.begun(pid, twin_of);
    }

    pub(super) fn sent(&mut self, sent: Sent<'_>) -> Verdict {
        let lease = self.0.get(sent.pid);
        for (item, write) in sent.writes.iter().enumerate() {
            let act = Act::of(write);
            let (Act::Open | Act::Beat, Key::Session(_, id), Some((version, _))) = (act, &write.key, &write.put) else {
                continue;
            };
            if act == Act::Beat && lease.cancelled && lease.session == Some(*id) {
                return Err(format!("a beat of {id:?} after its work was told to stop"));
            }
            if lease.beats.len() >= REMEMBERED {
                lease.beats.pop_front();
            }
            let opens = act == Act::Open;
            lease.beats.push_back(Beat { op: sent.op, item, session: *id, version: *version, opens, sent: sent.local });
        }
        Ok(())
    }

    pub(super) fn received(&mut self, scene: &Scene, pid: Pid, local: Time, input: &Input) {
        let Input::Replied { op, reply: Reply::Written(outcomes) } = input else { return };
        let hold = scene.node(pid).timing.hold();
        let lease = self.0.get(pid);
        for (item, outcome) in outcomes.iter().enumerate() {
            let acknowledged = match outcome {
                Outcome::Applied => lease.beats.iter().find(|beat| beat.op == *op && beat.item == item),
                // A conflict that returns my own value tells that it was applied, whichever sending of it was.
                Outcome::Conflict(Some(entry)) => lease.beats.iter().find(|beat| beat.version == entry.version),
                _ => None,
            };
            if let Some(beat) = acknowledged.cloned() {
                lease.acknowledge(&beat, local, beat.sent.after(hold));
            }
        }
    }

    pub(super) fn valid(&mut self, pid: Pid, until: Time) -> Verdict {
        let allowed = self.0.get(pid).until;
        if until <= allowed {
            return Ok(());
        }
        let more = until.since(allowed);
        Err(format!("p{pid} relies on its lease for {more:?} longer than any acknowledged beat allows"))
    }

    pub(super) fn event(&mut self, pid: Pid, event: &Event) {
        if let Event::Draining { forced: true, .. } = event {
            self.0.get(pid).cancelled = true;
        }
    }
}

impl Lease {
    fn acknowledge(&mut self, beat: &Beat, local: Time, until: Time) {
        if beat.opens && self.session != Some(beat.session) {
            *self = Self { beats: std::mem::take(&mut self.beats), session: Some(beat.session), until, cancelled: false };
        } else if self.session == Some(beat.session) && local < self.until && !self.cancelled {
            self.until = self.until.max(until);
        }
    }
}
