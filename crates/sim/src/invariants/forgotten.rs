//! A leader that hears, on a store that keeps what it acknowledged, that its data is gone or older, leads no more.

use tenure_core::engine::Class;

use super::CheckResult;
use crate::process::Pid;
use crate::world_state::WorldState;

/// A process has taken in what it was told: perhaps that the store lost something.
pub(super) fn told(state: &WorldState, pid: Pid, forgot: bool) -> CheckResult {
    if !forgot || state.settings.class == Class::C {
        return Ok(());
    }
    match state.settings.roles.iter().find(|role| state.leads(pid, role).is_some()) {
        Some(role) => Err(format!("p{pid} leads {role} although it losses_heard that the store lost data")),
        None => Ok(()),
    }
}
