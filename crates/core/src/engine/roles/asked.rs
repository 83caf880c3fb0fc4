//! What the caller asks of a role: to stand, to withdraw, to give up; and the word that its work has stopped.

use super::{Role, Stage};
use crate::engine::{Cx, Engine};
use crate::io::Standing;
use crate::record::Reason;
use crate::{Kind, Name, Token};
use std::time::Duration;

impl Engine {
    pub(in crate::engine) fn stand(&mut self, name: &Name, standing: Option<Standing>, cx: &mut Cx<'_>) {
        let now = self.now.time;
        let known = self.roles.contains_key(name);
        let role = self.roles.entry(name.clone()).or_insert_with(|| Role::new(now));
        role.withdrawn = false;
        // Watching a role that we stand for already changes nothing.
        if let Some(standing) = standing {
            role.standing = Some(standing);
        }
        self.card.outdate();
        if !known && self.epoch().is_some() {
            self.look.again(self.named(Kind::Role, name));
        }
        self.note_preemption(name);
        self.obey(name, cx);
        self.consider(name, cx);
    }

    pub(in crate::engine) fn withdraw(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        role.withdrawn = true;
        role.standing = None;
        self.card.outdate();
        self.drain(name, Reason::Ineligible, None, cx);
        self.forget_withdrawn(name);
    }

    pub(in crate::engine) fn forget_withdrawn(&mut self, name: &Name) {
        let Some(role) = self.roles.get(name) else { return };
        let idle = matches!(role.stage, Stage::Following) && role.work.is_none() && !role.maybe_stray;
        if !(role.withdrawn && idle) {
            return;
        }
        self.unindex(name);
        self.set_due(name, None);
        self.ready.remove(name);
        self.roles.remove(name);
    }

    pub(in crate::engine) fn release(&mut self, name: &Name, token: Token, reason: Reason, cx: &mut Cx<'_>) {
        let now = self.now.time;
        let Some(role) = self.roles.get_mut(name).filter(|role| role.stage.tenure() == Some(token)) else {
            return;
        };
        if reason == Reason::WorkFailed {
            let cool_down = role.standing.as_ref().map_or(Duration::ZERO, |standing| standing.cool_down);
            role.not_before = now.after(cool_down);
        }
        self.drain(name, reason, None, cx);
    }

    /// Rule 6: only now may the role be given up.
    pub(in crate::engine) fn work_stopped(&mut self, name: &Name, token: Token, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name).filter(|role| role.work == Some(token)) else { return };
        role.work = None;
        self.working.remove(name);
        self.drain(name, Reason::Finished, None, cx);
        if self.session.open_id().is_some() {
            self.resign_drained(name, cx);
        }
        self.consider(name, cx);
        self.forget_withdrawn(name);
    }

    pub(in crate::engine) fn drain_all(&mut self, reason: Reason, cx: &mut Cx<'_>) {
        for name in self.led() {
            self.drain(&name, reason, None, cx);
        }
    }

    pub(in crate::engine) fn led(&self) -> Vec<Name> {
        let led = |role: &Role| role.stage.tenure().is_some();
        self.roles.iter().filter(|(_, role)| led(role)).map(|(name, _)| name.clone()).collect()
    }
}
