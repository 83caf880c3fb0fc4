//! Stop first: a role is given up, and a session closed, only when the work has stopped.

use tenure_core::{Key, Kind};

use super::{Act, Sent, Verdict};
use crate::scene::Scene;

/// A batch leaves a process: nothing that it gives up is still being worked on.
pub(super) fn sent(scene: &Scene, sent: Sent<'_>) -> Verdict {
    for write in sent.writes {
        let act = Act::of(write);
        let role = match (&write.key, act) {
            (Key::Session(..), Act::Close) => None,
            (Key::Named(_, Kind::Role, role), Act::Resign) => Some(role),
            _ => continue,
        };
        for (_, work) in scene.works.iter() {
            let given_up = role.is_none_or(|role| *role == work.role);
            if work.pid == sent.pid && given_up && scene.is_working(work) {
                return Err(format!(
                    "{act:?} of {} while {} {} is worked on",
                    write.key, work.role, work.token
                ));
            }
        }
    }
    Ok(())
}
