//! Bounded in every way: one awaited write per register and node, batches of at most 256, few outputs per step.

use std::collections::BTreeMap;

use tenure_core::engine::BATCH;
use tenure_core::{Event, Input, Key, Kind, OpId, Output, Time};

use super::{Act, PerProcess, Sent, Verdict};
use crate::process::Pid;
use crate::scene::Scene;

/// The writes that each process waits for.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounded(PerProcess<BTreeMap<Key, (OpId, Time)>>);

impl Bounded {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.0.begun(pid, twin_of);
    }

    pub(super) fn received(&mut self, pid: Pid, input: &Input) {
        if let Input::Replied { op, .. } = input {
            self.0.get(pid).retain(|_, awaited| awaited.0 != *op);
        }
    }

    pub(super) fn sent(&mut self, scene: &Scene, sent: Sent<'_>) -> Verdict {
        if sent.writes.is_empty() || sent.writes.len() > BATCH {
            return Err(format!("a batch of {} writes", sent.writes.len()));
        }
        let timeout = scene.node(sent.pid).timing.op_timeout;
        let awaited = self.0.get(sent.pid);
        for write in sent.writes {
            let before = awaited.insert(write.key.clone(), (sent.op, sent.local));
            // A session that ends abandons its beat: it is neither counted nor awaited any more.
            if Act::of(write) == Act::Close {
                continue;
            }
            if let Some((op, at)) = before.filter(|(_, at)| sent.local < at.after(timeout)) {
                let age = sent.local.since(at);
                return Err(format!("{} is written while {op:?} of {age:?} ago is awaited there", write.key));
            }
        }
        Ok(())
    }

    /// A session that is over takes what was sent under it along: it is void, and nobody waits for it.
    pub(super) fn event(&mut self, pid: Pid, event: &Event) {
        if let Event::SessionOver { .. } = event {
            self.0.get(pid).clear();
        }
    }

    /// An opening that is abandoned is nobody's: whoever finds it treats it like anybody's session.
    pub(super) fn abandoned(&mut self, pid: Pid, outputs: &[Output]) {
        for output in outputs {
            if let Output::Release { session } = output {
                self.0.get(pid).retain(|key, _| !matches!(key, Key::Session(_, id) if id == session));
            }
        }
    }

    pub(super) fn answered(&self, scene: &Scene, outputs: &[Output]) -> Verdict {
        let most = 64 + 16 * (scene.settings.roles.len() + scene.settings.nodes.len());
        if outputs.len() <= most {
            return Ok(());
        }
        // A list of all sessions may make it attend to each of them.
        let sessions = scene.store.entries().filter(|(key, _)| key.kind() == Kind::Session).count();
        if outputs.len() > most + 2 * sessions {
            Err(format!("{} outputs of one step", outputs.len()))
        } else {
            Ok(())
        }
    }
}
