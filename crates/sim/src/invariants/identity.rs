//! Identity: a session id is opened by one write, after the session before is over; twins do not go on together.

use std::collections::BTreeSet;

use tenure_core::{Event, Key, SessionId};

use super::{Act, PerProcess, Sent, Verdict};
use crate::process::Pid;
use crate::scene::Scene;

/// Every id that was opened, and the session that each process uses.
#[derive(Debug, Clone, Default)]
pub(super) struct Identity {
    opened: BTreeSet<SessionId>,
    used: PerProcess<Option<SessionId>>,
}

impl Identity {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.used.begun(pid, twin_of);
    }

    pub(super) fn event(&mut self, pid: Pid, event: &Event) {
        if let Event::SessionOpened { session } = event {
            *self.used.get(pid) = Some(*session);
        }
    }

    pub(super) fn sent(&mut self, scene: &Scene, sent: Sent<'_>) -> Verdict {
        for write in sent.writes.iter().filter(|write| Act::of(write) == Act::Open) {
            let Key::Session(epoch, id) = &write.key else { continue };
            // A twin may have been made just before the opening; then the compare-and-set tells them apart.
            if !self.opened.insert(*id) && scene.processes[sent.pid].twin.is_none() {
                return Err(format!("{id:?} is opened a second time"));
            }
            let Some(before) = *self.used.get(sent.pid) else { continue };
            let left_open = scene.is_live(&Key::Session(*epoch, before));
            if left_open && scene.is_durable() && scene.processes[sent.pid].twin.is_none() {
                return Err(format!("{id:?} is opened while {before:?} is left open"));
            }
        }
        Ok(())
    }
}

/// Twins use one session together no longer than the lease that both inherited.
pub(super) fn no_two_twins(scene: &Scene, pid: Pid) -> Verdict {
    let Some((twin, _)) = scene.processes[pid].twin else { return Ok(()) };
    if !scene.processes[twin].is_alive() || scene.is_excused(pid, twin) {
        return Ok(());
    }
    let valid = |pid: Pid| {
        let session = scene.processes[pid].engine.session();
        session.filter(|(_, deadline)| scene.local(pid) < *deadline).map(|(id, _)| id)
    };
    match (valid(pid), valid(twin)) {
        (Some(one), Some(other)) if one == other => {
            Err(format!("p{pid} and p{twin} both go on with {one:?}"))
        }
        _ => Ok(()),
    }
}
