//! Tokens strictly rise per role: in the register at every claim, and among the tenures that began, even on a store
//! that forgets. What accepts only tokens that are not lower than the highest it saw never goes back, and never
//! locks out a leader.

use std::collections::BTreeMap;

use tenure_core::{Name, Record, Token, Write};

use super::{Act, Verdict};
use crate::process::Pid;
use crate::scene::Scene;

/// The highest token of any tenure that began, for each role: what a fenced resource has seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens(BTreeMap<Name, (Token, Pid)>);

impl Tokens {
    pub(super) fn applied(&self, before: &Scene, write: &Write) -> Verdict {
        let Some((_, Record::Role(former))) = before.store.get(&write.key) else { return Ok(()) };
        let (key, was) = (&write.key, former.token);
        match &write.put {
            None => Err(format!("{key} is deleted, and its token {was} with it")),
            Some((_, Record::Role(role))) if Act::of(write) == Act::Claim && role.token <= was => {
                Err(format!("{key} is claimed with {} after {was}", role.token))
            }
            Some((_, Record::Role(role))) if role.token < was => {
                Err(format!("{key} goes back from {was} to {}", role.token))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn elected(&mut self, scene: &Scene, pid: Pid, role: &Name, token: Token) -> Verdict {
        let (highest, by) = self.0.entry(role.clone()).or_default();
        // Twins may have been parted between the claim and the election.
        if token <= *highest && !scene.is_excused(pid, *by) {
            let name = &scene.node(pid).name;
            return Err(format!("{role} is led by {name} with {token} after {highest}"));
        }
        (*highest, *by) = (token.max(*highest), pid);
        Ok(())
    }
}
