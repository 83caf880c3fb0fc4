//! Stop first: a role is given up, and a session closed, only when the work has stopped.

use tenure_core::{Key, Kind};

use super::{CheckResult, SentBatch, WriteKind};
use crate::world_state::WorldState;

/// A batch leaves a process: nothing that it gives up is still being worked on.
pub(super) fn sent(state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
    for write in sent.writes {
        let act = WriteKind::of(write);
        let role = match (&write.key, act) {
            (Key::Session(..), WriteKind::Close) => None,
            (Key::Named(_, Kind::Role, role), WriteKind::Resign) => Some(role),
            _ => continue,
        };
        for (_, work) in state.works.iter() {
            let given_up = role.is_none_or(|role| *role == work.role);
            if work.pid == sent.pid && given_up && state.is_working(work) {
                return Err(format!(
                    "{act:?} of {} while {} {} is worked on",
                    write.key, work.role, work.token
                ));
            }
        }
    }
    Ok(())
}
