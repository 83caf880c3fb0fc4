//! No role is orphaned for ever: once everything is healed, each is led within a bound that follows from the times.

use tenure_core::Name;
use tenure_core::engine::Class;

use super::CheckResult;
use crate::clock::{Instant, SECOND};
use crate::world_state::WorldState;

/// How long a healed world may take to lead every role, in true time, once the last message of the bad days has
/// arrived.
///
/// What may have to happen one after the other: a dead process's session is watched and expelled, before its name is
/// free or its roles are; on a store that forgets, a quarantine as long comes first, and one more if what was
/// forgotten is found out only then; then a role waits for its turn. Around that, two rounds of looking, claiming and
/// being answered, in which every operation may time out once. Half of that is added, because a message of the bad
/// days that arrives at the worst moment costs another round: this is a bound against "for ever", not a figure of
/// speed.
#[must_use]
pub fn bound(state: &WorldState) -> Instant {
    let nodes = &state.settings.nodes;
    let longest = nodes.iter().map(|node| {
        let timing = &node.timing;
        let lease = timing.expulsion_wait(state.settings.max_ttl());
        let round = timing.beat + 3 * timing.op_timeout + ORDERING;
        let quarantine = if state.settings.class == Class::C { 2 * lease } else { std::time::Duration::ZERO };
        (lease + quarantine + 2 * round).as_nanos() as Instant
    });
    let candidacies = state.processes.iter().flat_map(|process| process.candidacies.values());
    let delays =
        candidacies.map(|candidacy| (candidacy.takeover_delay + candidacy.cool_down).as_nanos() as Instant);
    let sum = longest.max().unwrap_or(0) + delays.max().unwrap_or(0);
    sum + sum / 2
}

/// The longest that candidates wait for each other.
const ORDERING: std::time::Duration = std::time::Duration::from_millis(50);

/// The roles that have a candidate and no leader at this instant.
pub fn orphans(state: &WorldState) -> impl Iterator<Item = &Name> {
    let alive = |state: &WorldState| {
        (0..state.processes.len()).filter(|pid| state.processes[*pid].is_alive()).collect::<Vec<_>>()
    };
    let pids = alive(state);
    state.settings.roles.iter().filter(move |role| {
        let candidates = pids
            .iter()
            .any(|pid| state.processes[*pid].candidacies.get(*role).is_some_and(|how| how.eligible));
        candidates && !pids.iter().any(|pid| state.leads(*pid, role).is_some())
    })
}

/// The bound has passed: no role may be without a leader, unless it is just changing hands.
pub fn judge(state: &WorldState, bound: Instant) -> CheckResult {
    let changing = |role: &Name| state.lost_at.get(role).is_some_and(|at| state.now - at < bound / 4);
    let orphans: Vec<_> = orphans(state).filter(|role| !changing(role)).map(Name::as_str).take(5).collect();
    if orphans.is_empty() {
        return Ok(());
    }
    let seconds = bound as f64 / SECOND as f64;
    Err(format!("no node leads {} although everything was healed {seconds:.1} s ago", orphans.join(", ")))
}

/// So many leases a healed world is watched on, once every role is led.
pub const WATCHED: u32 = 8;

/// In that time a role may be handed over for the sake of priorities, but not back and forth.
pub fn at_rest(state: &WorldState) -> CheckResult {
    match state.won.iter().find(|(_, times)| **times > WATCHED / 2) {
        Some((role, times)) => {
            Err(format!("{role} changed hands {times} times although nothing was the matter"))
        }
        None => Ok(()),
    }
}
