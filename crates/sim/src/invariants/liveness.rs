//! No role is orphaned for ever: once everything is healed, each is led within a bound that follows from the times.

use tenure_core::Name;
use tenure_core::engine::Class;

use super::Verdict;
use crate::clock::{Instant, SECOND};
use crate::scene::Scene;

/// How long a healed world may take to lead every role, in true time, once the last message of the bad days has
/// arrived.
///
/// What may have to happen one after the other, each once: a node's own former session runs out and is closed; a
/// dead process's session is watched and expelled before its node name is free (on a store that forgets, after a
/// quarantine as long); a holder's session is watched and expelled; the candidates of higher rank wait their turn;
/// work that drains takes its time. The sum is doubled, because a message that is answered a moment too late costs
/// another round: this is a bound against "for ever", not a figure of speed.
#[must_use]
pub fn bound(scene: &Scene) -> Instant {
    let nodes = &scene.settings.nodes;
    let longest = nodes.iter().map(|node| {
        let timing = &node.timing;
        let lease = timing.watch(scene.settings.max_ttl());
        let round = timing.beat + 4 * timing.op_timeout;
        let quarantine = if scene.settings.class == Class::C { 2 * lease } else { lease };
        (3 * lease + quarantine + 4 * round).as_nanos() as Instant
    });
    let standing = scene.processes.iter().flat_map(|process| process.standing.values());
    let delays =
        standing.map(|standing| (standing.takeover_delay + standing.cool_down).as_nanos() as Instant);
    2 * (longest.max().unwrap_or(0) + delays.max().unwrap_or(0)) + SECOND
}

/// The roles that somebody stands for and nobody leads at this instant.
pub fn orphans(scene: &Scene) -> impl Iterator<Item = &Name> {
    let alive = |scene: &Scene| {
        (0..scene.processes.len()).filter(|pid| scene.processes[*pid].is_alive()).collect::<Vec<_>>()
    };
    let pids = alive(scene);
    scene.settings.roles.iter().filter(move |role| {
        let candidates =
            pids.iter().any(|pid| scene.processes[*pid].standing.get(*role).is_some_and(|how| how.eligible));
        candidates && !pids.iter().any(|pid| scene.leads(*pid, role).is_some())
    })
}

/// The bound has passed: no role may be without a leader, unless it is just changing hands.
pub fn judge(scene: &Scene, bound: Instant) -> Verdict {
    let changing = |role: &Name| scene.lost_at.get(role).is_some_and(|at| scene.now - at < bound / 4);
    let orphans: Vec<_> = orphans(scene).filter(|role| !changing(role)).map(Name::as_str).take(5).collect();
    if orphans.is_empty() {
        return Ok(());
    }
    let seconds = bound as f64 / SECOND as f64;
    Err(format!("nobody leads {} although everything was healed {seconds:.1} s ago", orphans.join(", ")))
}
