//! What operators, and nodes of higher priority, ask. It may only ever add delay or make a leader give up.
//!
//! A request names the tenure that it addresses and is answered in its register before the leader gives up, so that
//! it cannot fell the next leader too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::record::{Answer, EndReason, Order, Record, Request, RoleControl};
use crate::{Entry, Event, Key, Kind, Name, Outcome, SessionId, Time, Token, Version, Write};

use super::ops::Purpose;
use super::roles::TrackedRole;
use super::{Engine, StepContext};

/// What operators, and nodes of higher priority, ask; and what we ask ourselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Controls {
    /// The control registers of roles, as last read.
    registers: BTreeMap<Name, (Version, RoleControl)>,
    /// Whether an operator drains this node.
    drained: bool,
    /// When a request was first seen.
    first_seen: BTreeMap<Name, (SessionId, Time)>,
    /// Pending writes to control registers.
    writing: BTreeMap<Name, (Version, Option<RoleControl>)>,
    /// Roles that we want from leaders of lower priority.
    preempting: BTreeSet<Name>,
    /// When we may ask again.
    next_request_at: BTreeMap<Name, Time>,
}

impl Controls {
    fn get(&self, role: &Name) -> Option<&RoleControl> {
        self.registers.get(role).map(|(_, control)| control)
    }

    fn request(&self, role: &Name) -> Option<&Request> {
        self.get(role).and_then(|control| control.request.as_ref())
    }

    /// Whether an operator or a node asks for a hand-over of the role, or an operator pins it to a node.
    pub(super) fn hand_over(&self, role: &Name) -> bool {
        self.get(role).is_some_and(|control| control.request.is_some() || control.pin.is_some())
    }

    /// Whether the role is asked for, for that node, or pinned to it.
    pub(super) fn names_successor(&self, role: &Name, node: &Name) -> bool {
        let asked = self.request(role).is_some_and(|request| request.to.as_ref() == Some(node));
        asked || self.get(role).and_then(|control| control.pin.as_ref()).is_some_and(|pin| pin.node == *node)
    }

    pub(super) fn is_drained(&self) -> bool {
        self.drained
    }

    pub(super) fn is_paused(&self, role: &Name) -> bool {
        self.get(role).is_some_and(|control| control.pause.is_some())
    }

    /// Whether operators keep that node from leading the role.
    pub(super) fn forbid(&self, role: &Name, node: &Name) -> bool {
        let forbids = |control: &RoleControl| {
            control.pause.is_some() || control.pin.as_ref().is_some_and(|pin| pin.node != *node)
        };
        self.get(role).is_some_and(forbids)
    }

    /// The node that an open transfer waits for.
    fn awaited_target(&self) -> Option<&Name> {
        let requests = self.registers.values().filter_map(|(_, control)| control.request.as_ref());
        requests.filter(|request| request.answer == Answer::Open).find_map(|request| request.to.as_ref())
    }

    /// Replaces all registers; the roles whose register changed, and whether each was paused.
    fn replace(&mut self, registers: BTreeMap<Name, (Version, RoleControl)>) -> Vec<(Name, bool)> {
        if registers == self.registers {
            return Vec::new();
        }
        let former = std::mem::replace(&mut self.registers, registers);
        let names: BTreeSet<&Name> = former.keys().chain(self.registers.keys()).collect();
        let changed = names.into_iter().filter(|name| former.get(*name) != self.registers.get(*name));
        let paused = |name: &Name| former.get(name).is_some_and(|(_, control)| control.pause.is_some());
        changed.map(|name| (name.clone(), paused(name))).collect()
    }

    fn set(&mut self, role: &Name, register: Option<(Version, RoleControl)>) {
        match register {
            Some(register) => _ = self.registers.insert(role.clone(), register),
            None => _ = self.registers.remove(role),
        }
    }

    /// Remembers when the request of a role was first seen.
    fn note_request(&mut self, role: &Name, now: Time) {
        match self.request(role).map(|request| request.id) {
            Some(id) if self.first_seen.get(role).is_some_and(|(seen, _)| *seen == id) => {}
            Some(id) => _ = self.first_seen.insert(role.clone(), (id, now)),
            None => _ = self.first_seen.remove(role),
        }
    }

    /// The store forgot everything.
    pub(super) fn forget(&mut self) {
        self.registers.clear();
    }
}

impl Engine {
    /// Takes in all control registers of roles: those that are not there are gone.
    pub(super) fn observe_controls(&mut self, found: &[Entry], ctx: &mut StepContext<'_>) {
        let control = |entry: &Entry| match (&entry.key, &entry.value) {
            (Key::Named(_, Kind::RoleControl, name), Record::RoleControl(control)) => {
                Some((name.clone(), (entry.version, control.clone())))
            }
            _ => None,
        };
        let changed = self.controls.replace(found.iter().filter_map(control).collect());
        if !changed.is_empty() {
            self.poll.note_news();
        }
        for (name, was_paused) in changed {
            self.control_changed(&name, was_paused, ctx);
        }
    }

    fn control_changed(&mut self, name: &Name, was_paused: bool, ctx: &mut StepContext<'_>) {
        let paused = self.controls.is_paused(name);
        if paused != was_paused && self.roles.knows(name) {
            ctx.event(Event::Paused { role: name.clone(), paused });
        }
        self.controls.note_request(name, self.now.time);
        self.apply_control(name, ctx);
        self.consider(name, ctx);
    }

    pub(super) fn observe_node_control(&mut self, found: Option<&Entry>, ctx: &mut StepContext<'_>) {
        let drained = matches!(found, Some(Entry { value: Record::NodeControl(control), .. }) if control.drain.is_some());
        if std::mem::replace(&mut self.controls.drained, drained) != drained {
            if drained {
                self.drain_all(EndReason::Drained, ctx);
            }
            self.consider_all();
        }
    }

    /// After each poll: decides again about requests that wait for time, or for a target.
    pub(super) fn apply_controls(&mut self, ctx: &mut StepContext<'_>) {
        let names: Vec<Name> = self.controls.registers.keys().cloned().collect();
        for name in names {
            self.apply_control(&name, ctx);
        }
        self.request_preemptions(ctx);
    }

    /// Does what is asked of a role that we lead.
    pub(super) fn apply_control(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Some((token, since)) = role.led_since() else { return };
        if role.candidacy().is_none_or(|candidacy| !candidacy.eligible) {
            return self.drain(name, EndReason::Ineligible, None, ctx);
        }
        let min_tenure = role.candidacy().map_or(Duration::ZERO, |candidacy| candidacy.min_tenure);
        let young = self.now.time.since(since) < min_tenure;
        let Some(control) = self.controls.get(name) else { return };
        if control.pause.is_some() {
            return self.drain(name, EndReason::Paused, None, ctx);
        }
        if let Some(pin) = control.pin.as_ref().filter(|pin| pin.node != self.node) {
            let node = pin.node.clone();
            return self.drain(name, EndReason::Pinned, Some(node), ctx);
        }
        if let Some(request) = control.request.clone() {
            self.handle_request(name, &request, token, young, ctx);
        }
    }

    fn handle_request(
        &mut self,
        name: &Name,
        request: &Request,
        token: Token,
        young: bool,
        ctx: &mut StepContext<'_>,
    ) {
        if !self.rules.requests_address_one_tenure() && request.answer != Answer::NoTarget {
            return self.drain(name, EndReason::StepDown, request.to.clone(), ctx);
        }
        if request.token < token {
            // It addressed a tenure that is over: cleared away, unless we lead because of it. That is how those of higher
            // priority know that an operator wanted it so.
            if !request.transferred_to(&self.node) {
                self.clear_request(name, ctx);
            }
            return;
        }
        if request.token != token {
            return;
        }
        match request.answer {
            Answer::Accepted => {
                let reason = if request.to.is_some() { EndReason::Transfer } else { EndReason::StepDown };
                self.drain(name, reason, request.to.clone(), ctx);
            }
            Answer::NoTarget | Answer::TooYoung => {}
            Answer::Open if request.preemption && young => self.answer(name, Answer::TooYoung, ctx),
            Answer::Open => self.decide_request(name, request, ctx),
        }
    }

    /// A step-down is accepted at once; a transfer once its target is alive and campaigns for the role.
    fn decide_request(&mut self, name: &Name, request: &Request, ctx: &mut StepContext<'_>) {
        let ready = match &request.to {
            None => true,
            Some(node) if *node == self.node => false,
            Some(node) => self.ready_to_lead(node, name),
        };
        let since = self.controls.first_seen.get(name).map_or(self.now.time, |(_, since)| *since);
        if ready {
            self.answer(name, Answer::Accepted, ctx);
        } else if self.now.time.since(since) >= request.patience {
            self.answer(name, Answer::NoTarget, ctx);
        }
    }

    /// The session of a node that a role of ours is to be handed to.
    pub(super) fn awaited_target(&self) -> Option<SessionId> {
        let node = self.controls.awaited_target()?;
        self.peers.node(node).map(super::peers::NodeView::session)
    }

    fn answer(&mut self, name: &Name, answer: Answer, ctx: &mut StepContext<'_>) {
        let Some(control) = self.controls.get(name) else { return };
        let mut control = control.clone();
        if let Some(request) = &mut control.request {
            request.answer = answer;
        }
        self.write_control(name, Some(control), ctx);
    }

    fn clear_request(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(control) = self.controls.get(name) else { return };
        let rest = RoleControl { request: None, ..control.clone() };
        self.write_control(name, (rest != RoleControl::default()).then_some(rest), ctx);
    }

    fn write_control(&mut self, name: &Name, control: Option<RoleControl>, ctx: &mut StepContext<'_>) {
        if self.controls.writing.contains_key(name) || self.session_usable().is_none() {
            return;
        }
        let version = ctx.version();
        let put = control.clone().map(|control| (version, Record::RoleControl(control)));
        let expect = self.controls.registers.get(name).map(|(version, _)| *version);
        let write = Write {
            key: self.named(Kind::RoleControl, name),
            expect,
            put,
            notify: true,
            requires_lock: false,
        };
        self.controls.writing.insert(name.clone(), (version, control));
        self.send_writes(vec![write], Purpose::Control(name.clone()), ctx);
    }

    pub(super) fn control_write_answered(
        &mut self,
        name: &Name,
        outcome: Outcome,
        ctx: &mut StepContext<'_>,
    ) {
        let Some((version, control)) = self.controls.writing.remove(name) else { return };
        let was_paused = self.controls.is_paused(name);
        let current = match outcome {
            Outcome::Applied => control.map(|control| (version, control)),
            Outcome::Conflict(Some(Entry { version, value: Record::RoleControl(control), .. })) => {
                Some((version, control))
            }
            Outcome::Conflict(_) => None,
            // What is there will tell.
            Outcome::Failed(_) => return self.poll.soon(),
        };
        self.controls.set(name, current);
        self.control_changed(name, was_paused, ctx);
    }
}

// Asking for ourselves.
impl Engine {
    pub(super) fn note_preemption(&mut self, name: &Name) {
        let preempts = self.roles.get(name).and_then(TrackedRole::candidacy).is_some_and(|s| s.preempt);
        if preempts {
            self.controls.preempting.insert(name.clone());
        } else {
            self.controls.preempting.remove(name);
        }
    }

    fn request_preemptions(&mut self, ctx: &mut StepContext<'_>) {
        let names: Vec<Name> = self.controls.preempting.iter().cloned().collect();
        for name in names {
            self.request_preemption(&name, ctx);
        }
    }

    /// Asks a leader of lower priority to hand over to us.
    fn request_preemption(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let due = self.controls.next_request_at.get(name).is_none_or(|at| self.now.time >= *at);
        let answered = self.controls.get(name).is_some_and(|c| {
            c.pause.is_some()
                || c.pin.is_some()
                || c.request.as_ref().is_some_and(|r| r.answer == Answer::Open)
        });
        if !due || answered {
            return;
        }
        let Some((token, pause)) = self.outranked(name) else { return };
        let request = Request {
            id: SessionId::new(ctx.entropy.nonce()),
            token,
            to: Some(self.node.clone()),
            preemption: true,
            patience: self.rules.timing().ttl,
            order: Order { by: self.node.to_string(), why: "higher priority".to_owned(), at: self.now.wall },
            answer: Answer::Open,
        };
        self.controls.next_request_at.insert(name.clone(), self.now.time.after(pause));
        self.write_control(name, Some(RoleControl { request: Some(request), ..RoleControl::default() }), ctx);
    }

    /// The tenure of a live leader whose priority is lower than ours, and how long to wait between two requests.
    fn outranked(&self, name: &Name) -> Option<(Token, Duration)> {
        let role = self.roles.get(name)?;
        let candidacy = role.candidacy()?;
        let record = role.record()?;
        let holder = record.holder.as_ref().filter(|holder| !self.peers.is_over(holder.session))?;
        let waited = self.rules.may_preempt(self.now.time >= self.may_claim_from(role));
        // Only one that could claim at once what it is given.
        let able = waited && !role.is_backing_off(self.now.time) && self.could_claim(name, role);
        let idle = role.is_following() && able;
        if holder.node == self.node || !idle || self.wanted_by_operator(name, &holder.node) {
            return None;
        }
        let theirs = self.peers.node(&holder.node)?.priority(name)?;
        let pause = candidacy.cool_down.max(candidacy.min_tenure).max(self.rules.timing().ttl);
        (candidacy.priority > theirs).then_some((record.token, pause))
    }

    /// An operator's transfer holds until another node leads: priority does not undo it.
    fn wanted_by_operator(&self, name: &Name, leader: &Name) -> bool {
        let request = self.controls.request(name);
        request.is_some_and(|request| request.transferred_to(leader)) && self.rules.transfers_hold()
    }
}

#[cfg(feature = "canonical")]
#[path = "canonical/control.rs"]
mod canonical;

#[cfg(test)]
#[path = "tests/control.rs"]
mod tests;
