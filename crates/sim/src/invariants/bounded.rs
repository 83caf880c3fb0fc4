//! Bounded in every way: one awaited write per register and node, batches of at most 256, few outputs per step, few reads
//! per beat.

use std::collections::BTreeMap;

use tenure_core::engine::BATCH;
use tenure_core::{Event, Input, Key, Kind, OpId, Output, Time};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

#[derive(Debug, Clone, Default)]
pub(super) struct Bounded {
    /// The writes that each process waits for.
    writes: PerProcess<BTreeMap<Key, (OpId, Time)>>,
    /// How many reads each process has sent since an instant.
    reads: PerProcess<(Time, usize)>,
}

impl Bounded {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.writes.begun(pid, twin_of);
        self.reads.begun(pid, twin_of);
    }

    pub(super) fn received(&mut self, pid: Pid, input: &Input) {
        if let Input::Replied { op, .. } = input {
            self.writes.get(pid).retain(|_, awaited| awaited.0 != *op);
        }
    }

    pub(super) fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
        if sent.writes.is_empty() || sent.writes.len() > BATCH {
            return Err(format!("a batch of {} writes", sent.writes.len()));
        }
        let timeout = state.node(sent.pid).timing.op_timeout;
        let awaited = self.writes.get(sent.pid);
        for write in sent.writes {
            let before = awaited.insert(write.key.clone(), (sent.op, sent.local));
            // A session that ends abandons its beat: it is neither counted nor awaited any more.
            if WriteKind::of(write) == WriteKind::Close {
                continue;
            }
            if let Some((op, at)) = before.filter(|(_, at)| sent.local < at.after(timeout)) {
                let age = sent.local.since(at);
                return Err(format!("{} is written while {op:?} of {age:?} ago is awaited there", write.key));
            }
        }
        Ok(())
    }

    /// A session that is over voids what was sent under it: its owner waits for none of it.
    pub(super) fn event(&mut self, pid: Pid, event: &Event) {
        if let Event::SessionOver { .. } = event {
            self.writes.get(pid).clear();
        }
    }

    /// An abandoned opening has no owner: every node treats it like any other session.
    pub(super) fn abandoned(&mut self, pid: Pid, outputs: &[Output]) {
        for output in outputs {
            if let Output::ReleaseLock { session } = output {
                self.writes.get(pid).retain(|key, _| !matches!(key, Key::Session(_, id) if id == session));
            }
        }
    }

    /// Whatever inputs come, a process reads a few times for each beat, and a few times for each event.
    pub(super) fn read(&mut self, state: &WorldState, pid: Pid, outputs: &[Output]) -> CheckResult {
        let reads = outputs.iter().filter(|output| matches!(output, Output::Read { .. })).count();
        let (now, beat) = (state.local(pid), state.node(pid).timing.beat);
        let (since, count) = self.reads.get(pid);
        if now >= since.after(beat) {
            (*since, *count) = (now, 0);
        }
        *count += reads;
        let most = most(state);
        if *count > most { Err(format!("p{pid} read {count} times within a beat")) } else { Ok(()) }
    }

    pub(super) fn answered(&self, state: &WorldState, outputs: &[Output]) -> CheckResult {
        let most = most(state);
        if outputs.len() <= most {
            return Ok(());
        }
        // A list of all sessions may make it watch the lock of each of them.
        let sessions = state.store.entries().filter(|(key, _)| key.kind() == Kind::Session).count();
        if outputs.len() > most + 2 * sessions {
            Err(format!("{} outputs of one step", outputs.len()))
        } else {
            Ok(())
        }
    }
}

fn most(state: &WorldState) -> usize {
    64 + 16 * (state.settings.roles.len() + state.settings.nodes.len())
}
