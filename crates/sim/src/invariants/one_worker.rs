//! No two workers of a role at once.

use super::Verdict;
use crate::scene::Scene;
use crate::work::WorkId;

/// Some work begins, or goes on after its process was frozen: no other work of that role may be going on.
pub(super) fn working(scene: &Scene, id: WorkId) -> Verdict {
    let Some(work) = scene.works.get(id) else { return Ok(()) };
    if !scene.is_durable() || !scene.is_working(work) {
        return Ok(());
    }
    for (other_id, other) in scene.works.iter() {
        let twins = scene.is_excused(work.pid, other.pid);
        if other_id != id && other.role == work.role && scene.is_working(other) && !twins {
            let (role, mine, theirs) = (&work.role, work.pid, other.pid);
            return Err(format!(
                "{role} is worked on by p{mine} with {} and by p{theirs} with {}",
                work.token, other.token
            ));
        }
    }
    Ok(())
}
