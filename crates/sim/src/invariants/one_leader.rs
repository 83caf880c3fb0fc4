//! One valid leader per role in true time.
//!
//! A tenure is an interval: from its election until it is lost or its deadline passes. Two intervals overlap only if
//! one begins while the other lasts, so it is enough to look at each election, and for as long as two processes
//! both believe in a tenure of one role, at every step of either.

use std::collections::BTreeMap;

use tenure_core::Name;

use super::{CheckResult, PerProcess};
use crate::process::Pid;
use crate::world_state::WorldState;

/// Who was elected and has not lost it, for each role.
#[derive(Debug, Clone, Default)]
pub(super) struct OneLeader {
    led: BTreeMap<Name, Vec<Pid>>,
    contested: PerProcess<Vec<Name>>,
}

impl OneLeader {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.contested.begun(pid, None);
        let Some(twin) = twin_of else { return };
        for (role, led) in &mut self.led {
            if led.contains(&twin) {
                led.push(pid);
                self.contested.get(pid).push(role.clone());
                self.contested.get(twin).push(role.clone());
            }
        }
    }

    pub(super) fn ended(&mut self, pid: Pid) {
        for led in self.led.values_mut() {
            led.retain(|other| *other != pid);
        }
        self.contested.get(pid).clear();
    }

    pub(super) fn lost(&mut self, pid: Pid, role: &Name) {
        if let Some(led) = self.led.get_mut(role) {
            led.retain(|other| *other != pid);
        }
        self.contested.get(pid).retain(|other| other != role);
    }

    pub(super) fn elected(&mut self, state: &WorldState, pid: Pid, role: &Name) -> CheckResult {
        if !self.led.contains_key(role) {
            self.led.insert(role.clone(), Vec::new());
        }
        let led = self.led.get_mut(role).expect("it was just put in");
        let others = led.clone();
        led.push(pid);
        for other in &others {
            self.contested.get(*other).push(role.clone());
            self.contested.get(pid).push(role.clone());
        }
        alone(state, pid, role, &others)
    }

    /// While two processes believe in a tenure of one role, every step of either is checked.
    pub(super) fn contested(&mut self, state: &WorldState, pid: Pid) -> CheckResult {
        for role in self.contested.get(pid).iter() {
            if let Some(led) = self.led.get(role) {
                alone(state, pid, role, led)?;
            }
        }
        Ok(())
    }
}

fn alone(state: &WorldState, pid: Pid, role: &Name, others: &[Pid]) -> CheckResult {
    let Some(token) = state.leads(pid, role) else { return Ok(()) };
    for other in others.iter().filter(|other| **other != pid && !state.is_excused(pid, **other)) {
        let Some(held) = state.leads(*other, role) else { continue };
        let sessions: Vec<_> = [pid, *other].into_iter().filter_map(|pid| state.session(pid)).collect();
        if !state.is_unaware(role, &sessions) {
            return Err(format!("{role} is led by p{pid} with {token} and by p{other} with {held}"));
        }
    }
    Ok(())
}
