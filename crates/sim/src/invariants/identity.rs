//! Identity: a session id is opened by one write, after the session before is over; twins do not go on together.

use std::collections::BTreeSet;

use tenure_core::{Event, Key, SessionId};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

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

    pub(super) fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
        for write in sent.writes.iter().filter(|write| WriteKind::of(write) == WriteKind::Open) {
            let Key::Session(epoch, id) = &write.key else { continue };
            // A twin may have been made just before the opening; then the compare-and-set tells them apart.
            if !self.opened.insert(*id) && state.processes[sent.pid].twin.is_none() {
                return Err(format!("{id:?} is opened a second time"));
            }
            let Some(before) = *self.used.get(sent.pid) else { continue };
            let left_open = state.is_live(&Key::Session(*epoch, before));
            let excused = state.losses.took_session(before) || state.processes[sent.pid].twin.is_some();
            if left_open && !excused {
                return Err(format!("{id:?} is opened while {before:?} is left open"));
            }
        }
        Ok(())
    }
}

/// Twins use one session together no longer than the lease that both inherited.
pub(super) fn no_two_twins(state: &WorldState, pid: Pid) -> CheckResult {
    let Some((twin, _)) = state.processes[pid].twin else { return Ok(()) };
    if !state.processes[twin].is_alive() || state.is_excused(pid, twin) {
        return Ok(());
    }
    let valid = |pid: Pid| {
        let session = state.processes[pid].engine.session();
        session.filter(|(_, deadline)| state.local(pid) < *deadline).map(|(id, _)| id)
    };
    match (valid(pid), valid(twin)) {
        (Some(one), Some(other)) if one == other => {
            Err(format!("p{pid} and p{twin} both go on with {one:?}"))
        }
        _ => Ok(()),
    }
}
