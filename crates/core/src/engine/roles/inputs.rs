//! Inputs about a role: campaign, withdraw, resign, and the report that its work has stopped.

use super::{Stage, TrackedRole};
use crate::engine::{Engine, StepContext};
use crate::io::Candidacy;
use crate::record::EndReason;
use crate::{Kind, Name, Token};
use std::time::Duration;

impl Engine {
    pub(in crate::engine) fn campaign(
        &mut self,
        name: &Name,
        candidacy: Option<Candidacy>,
        ctx: &mut StepContext<'_>,
    ) {
        let now = self.now.time;
        let known = self.roles.knows(name);
        let role = self.roles.track(name, now);
        role.withdrawn = false;
        // Watching a role that we already campaign for changes nothing.
        if let Some(candidacy) = candidacy {
            role.candidacy = Some(candidacy);
        }
        self.own_node.outdate();
        if !known && self.epoch().is_some() {
            self.poll.reread(self.named(Kind::Role, name));
        }
        self.note_preemption(name);
        self.apply_control(name, ctx);
        self.consider(name, ctx);
    }

    pub(in crate::engine) fn withdraw(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        role.withdrawn = true;
        role.candidacy = None;
        self.own_node.outdate();
        self.drain(name, EndReason::Ineligible, None, ctx);
        self.forget_withdrawn(name);
    }

    pub(in crate::engine) fn forget_withdrawn(&mut self, name: &Name) {
        let Some(role) = self.roles.get(name) else { return };
        let may_return = role.claimed_in_session && self.rules.resigned_role_may_return();
        let idle =
            matches!(role.stage, Stage::Following) && role.work.is_none() && !role.maybe_stray && !may_return;
        // In the name of our session, though not by us: a clone of this process claimed it. No other node can clear it.
        if !(role.withdrawn && idle) || self.is_stray(role) {
            return;
        }
        self.roles.remove(name);
    }

    pub(in crate::engine) fn release(
        &mut self,
        name: &Name,
        token: Token,
        reason: EndReason,
        ctx: &mut StepContext<'_>,
    ) {
        if self.roles.get(name).is_none_or(|role| role.stage.tenure() != Some(token)) {
            return;
        }
        if reason == EndReason::WorkFailed {
            self.back_off(name);
        }
        self.drain(name, reason, None, ctx);
    }

    /// Claims nothing before the cool-down has passed.
    pub(in crate::engine) fn back_off(&mut self, name: &Name) {
        let now = self.now.time;
        let Some(role) = self.roles.get_mut(name) else { return };
        let cool_down = role.candidacy.as_ref().map_or(Duration::ZERO, |candidacy| candidacy.cool_down);
        role.not_before = role.not_before.max(now.after(cool_down));
    }

    /// Rule 6: only now may the role be given up.
    pub(in crate::engine) fn work_stopped(&mut self, name: &Name, token: Token, ctx: &mut StepContext<'_>) {
        if !self.roles.stop_work(name, token) {
            return;
        }
        self.drain(name, EndReason::Finished, None, ctx);
        if self.session.open_id().is_some() {
            self.resign_drained(name, ctx);
        }
        self.consider(name, ctx);
        self.forget_withdrawn(name);
    }

    pub(in crate::engine) fn drain_all(&mut self, reason: EndReason, ctx: &mut StepContext<'_>) {
        for name in self.led_roles() {
            self.drain(&name, reason, None, ctx);
        }
    }

    pub(in crate::engine) fn led_roles(&self) -> Vec<Name> {
        let led = |role: &TrackedRole| role.stage.tenure().is_some();
        self.roles.iter().filter(|(_, role)| led(role)).map(|(name, _)| name.clone()).collect()
    }
}
