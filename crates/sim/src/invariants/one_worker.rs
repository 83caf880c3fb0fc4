//! No two workers of a role at once.

use super::CheckResult;
use crate::work::WorkId;
use crate::world_state::WorldState;

/// Some work begins, or goes on after its process was frozen: no other work of that role may be going on.
pub(super) fn working(state: &WorldState, id: WorkId) -> CheckResult {
    let Some(work) = state.works.get(id) else { return Ok(()) };
    if !state.is_working(work) {
        return Ok(());
    }
    for (other_id, other) in state.works.iter() {
        if other_id == id || other.role != work.role || !state.is_working(other) {
            continue;
        }
        let sessions: Vec<_> = work.session.into_iter().chain(other.session).collect();
        if !state.is_excused(work.pid, other.pid) && !state.is_unaware(&work.role, &sessions) {
            let (role, mine, theirs) = (&work.role, work.pid, other.pid);
            return Err(format!(
                "{role} is worked on by p{mine} with {} and by p{theirs} with {}",
                work.token, other.token
            ));
        }
    }
    Ok(())
}
