//! One valid leader per role in true time.
//!
//! A tenure is an interval: from its election until it is lost or its deadline passes. Two intervals overlap only if
//! one begins while the other lasts, so it is enough to look at each election, and for as long as two processes
//! both believe in a tenure of one role, at every step of either.

use std::collections::BTreeMap;

use tenure_core::Name;

use super::{PerProcess, Verdict};
use crate::process::Pid;
use crate::scene::Scene;

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

    pub(super) fn elected(&mut self, scene: &Scene, pid: Pid, role: &Name) -> Verdict {
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
        alone(scene, pid, role, &others)
    }

    /// While two believe in a tenure of one role, each step of either is looked at.
    pub(super) fn contested(&mut self, scene: &Scene, pid: Pid) -> Verdict {
        for role in self.contested.get(pid).iter() {
            if let Some(led) = self.led.get(role) {
                alone(scene, pid, role, led)?;
            }
        }
        Ok(())
    }
}

fn alone(scene: &Scene, pid: Pid, role: &Name, others: &[Pid]) -> Verdict {
    if !scene.is_durable() {
        return Ok(());
    }
    let Some(token) = scene.leads(pid, role) else { return Ok(()) };
    for other in others.iter().filter(|other| **other != pid && !scene.is_excused(pid, **other)) {
        if let Some(held) = scene.leads(*other, role) {
            return Err(format!("{role} is led by p{pid} with {token} and by p{other} with {held}"));
        }
    }
    Ok(())
}
