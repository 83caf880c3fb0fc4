//! What operators, and nodes of higher priority, ask. It may only ever add delay or make a leader give up.
//!
//! A request names the tenure that it addresses and is answered in its register before the leader gives up, so that
//! it cannot fell the next leader too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::record::{Answer, Order, Reason, Record, Request, RoleControl};
use crate::{Entry, Event, Key, Kind, Mutant, Name, Outcome, SessionId, Time, Token, Version, Write};

use super::ops::Purpose;
use super::roles::Stage;
use super::{Cx, Engine, Run};

/// Requests that we have to do with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Requests {
    /// When a request was first seen.
    seen: BTreeMap<Name, (SessionId, Time)>,
    /// Writes to control registers on their way.
    writing: BTreeMap<Name, (Version, Option<RoleControl>)>,
    /// Roles that we want from leaders of lower priority.
    preempting: BTreeSet<Name>,
    /// When we may ask again.
    ask_at: BTreeMap<Name, Time>,
}

impl Engine {
    pub(super) fn is_paused(&self, role: &Name) -> bool {
        self.controls.get(role).is_some_and(|(_, control)| control.pause.is_some())
    }

    /// Why this node may not lead the role, if it may not.
    pub(super) fn forbidden(&self, role: &Name) -> Option<Reason> {
        let (_, control) = self.controls.get(role)?;
        if control.pause.is_some() {
            return Some(Reason::Paused);
        }
        control.pin.as_ref().filter(|pin| pin.node != self.config.node).map(|_| Reason::Pinned)
    }

    /// Takes in all control registers of roles: those that are not there are gone.
    pub(super) fn saw_controls(&mut self, found: &[Entry], cx: &mut Cx<'_>) {
        let control = |entry: &Entry| match (&entry.key, &entry.value) {
            (Key::Named(_, Kind::RoleControl, name), Record::RoleControl(control)) => {
                Some((name.clone(), (entry.version, control.clone())))
            }
            _ => None,
        };
        let controls: BTreeMap<Name, (Version, RoleControl)> = found.iter().filter_map(control).collect();
        if controls == self.controls {
            return;
        }
        let former = std::mem::take(&mut self.controls);
        let changed: BTreeSet<Name> = former.keys().chain(controls.keys()).cloned().collect();
        let changed =
            changed.into_iter().filter(|name| former.get(name) != controls.get(name)).collect::<Vec<_>>();
        self.controls = controls;
        for name in changed {
            let paused =
                |control: Option<&(Version, RoleControl)>| control.is_some_and(|(_, c)| c.pause.is_some());
            self.control_changed(&name, paused(former.get(&name)), cx);
        }
    }

    fn control_changed(&mut self, name: &Name, was_paused: bool, cx: &mut Cx<'_>) {
        let paused = self.is_paused(name);
        if paused != was_paused && self.roles.contains_key(name) {
            cx.event(Event::Paused { role: name.clone(), paused });
        }
        let request = self.controls.get(name).and_then(|(_, control)| control.request.as_ref());
        match request.map(|request| request.id) {
            Some(id) if self.requests.seen.get(name).is_some_and(|(seen, _)| *seen == id) => {}
            Some(id) => _ = self.requests.seen.insert(name.clone(), (id, self.now.time)),
            None => _ = self.requests.seen.remove(name),
        }
        self.obey(name, cx);
        self.consider(name, cx);
    }

    pub(super) fn saw_node_control(&mut self, found: Option<&Entry>, cx: &mut Cx<'_>) {
        let drained = matches!(found, Some(Entry { value: Record::NodeControl(control), .. }) if control.drain.is_some());
        if std::mem::replace(&mut self.drained, drained) != drained {
            if drained {
                self.drain_all(Reason::Drained, cx);
            }
            self.consider_all();
        }
    }

    /// After each look: what waits for time, or for a target, is weighed again.
    pub(super) fn obey_all(&mut self, cx: &mut Cx<'_>) {
        let names: Vec<Name> = self.controls.keys().cloned().collect();
        for name in names {
            self.obey(&name, cx);
        }
        self.ask_all(cx);
    }

    /// Does what is asked of a role that we lead.
    pub(super) fn obey(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Stage::Leading { token, since, .. } = role.stage else { return };
        if role.standing.as_ref().is_none_or(|standing| !standing.eligible) {
            return self.drain(name, Reason::Ineligible, None, cx);
        }
        let min_tenure = role.standing.as_ref().map_or(Duration::ZERO, |standing| standing.min_tenure);
        let young = self.now.time.since(since) < min_tenure;
        let Some((_, control)) = self.controls.get(name) else { return };
        if control.pause.is_some() {
            return self.drain(name, Reason::Paused, None, cx);
        }
        if let Some(pin) = control.pin.as_ref().filter(|pin| pin.node != self.config.node) {
            let node = pin.node.clone();
            return self.drain(name, Reason::Pinned, Some(node), cx);
        }
        if let Some(request) = control.request.clone() {
            self.obey_request(name, &request, token, young, cx);
        }
    }

    fn obey_request(&mut self, name: &Name, request: &Request, token: Token, young: bool, cx: &mut Cx<'_>) {
        if self.mutated(Mutant::RequestFellsAnyone) && request.answer != Answer::NoTarget {
            return self.drain(name, Reason::StepDown, request.to.clone(), cx);
        }
        if request.token < token {
            // It addressed a tenure that is over: cleared away.
            return self.clear_request(name, cx);
        }
        if request.token != token {
            return;
        }
        match request.answer {
            Answer::Accepted => {
                let reason = if request.to.is_some() { Reason::Transfer } else { Reason::StepDown };
                self.drain(name, reason, request.to.clone(), cx);
            }
            Answer::NoTarget | Answer::TooYoung => {}
            Answer::Open if request.preemption && young => self.answer(name, Answer::TooYoung, cx),
            Answer::Open => self.weigh(name, request, cx),
        }
    }

    /// A step-down is accepted at once; a transfer once its target is alive and stands for the role.
    fn weigh(&mut self, name: &Name, request: &Request, cx: &mut Cx<'_>) {
        let ready = match &request.to {
            None => true,
            Some(node) if *node == self.config.node => false,
            Some(node) => self.ready_to_lead(node, name),
        };
        let since = self.requests.seen.get(name).map_or(self.now.time, |(_, since)| *since);
        if ready {
            self.answer(name, Answer::Accepted, cx);
        } else if self.now.time.since(since) >= request.patience {
            self.answer(name, Answer::NoTarget, cx);
        }
    }

    /// The session of a node that a role of ours is to be handed to.
    pub(super) fn awaited_target(&self) -> Option<SessionId> {
        let open =
            |control: &RoleControl| control.request.as_ref().filter(|r| r.answer == Answer::Open)?.to.clone();
        let node = self.controls.values().find_map(|(_, control)| open(control))?;
        self.nodes.get(&node).map(super::peers::NodeView::session)
    }

    fn answer(&mut self, name: &Name, answer: Answer, cx: &mut Cx<'_>) {
        let Some((_, control)) = self.controls.get(name) else { return };
        let mut control = control.clone();
        if let Some(request) = &mut control.request {
            request.answer = answer;
        }
        self.write_control(name, Some(control), cx);
    }

    fn clear_request(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some((_, control)) = self.controls.get(name) else { return };
        let rest = RoleControl { request: None, ..control.clone() };
        self.write_control(name, (rest != RoleControl::default()).then_some(rest), cx);
    }

    fn write_control(&mut self, name: &Name, control: Option<RoleControl>, cx: &mut Cx<'_>) {
        if self.requests.writing.contains_key(name) || self.session_usable().is_none() {
            return;
        }
        let version = cx.version();
        let put = control.clone().map(|control| (version, Record::RoleControl(control)));
        let expect = self.controls.get(name).map(|(version, _)| *version);
        let write =
            Write { key: self.named(Kind::RoleControl, name), expect, put, ring: true, witnessed: false };
        self.requests.writing.insert(name.clone(), (version, control));
        self.send_writes(vec![write], Purpose::Control(name.clone()), cx);
    }

    pub(super) fn control_written(&mut self, name: &Name, outcome: Outcome, cx: &mut Cx<'_>) {
        let Some((version, control)) = self.requests.writing.remove(name) else { return };
        let was_paused = self.is_paused(name);
        let current = match outcome {
            Outcome::Applied => control.map(|control| (version, control)),
            Outcome::Conflict(Some(Entry { version, value: Record::RoleControl(control), .. })) => {
                Some((version, control))
            }
            Outcome::Conflict(_) => None,
            // What is there will tell.
            Outcome::Failed(_) => return self.look.soon(),
        };
        match current {
            Some(current) => _ = self.controls.insert(name.clone(), current),
            None => _ = self.controls.remove(name),
        }
        self.control_changed(name, was_paused, cx);
    }
}

// Asking for ourselves.
impl Engine {
    pub(super) fn note_preemption(&mut self, name: &Name) {
        let preempts =
            self.roles.get(name).and_then(|role| role.standing.as_ref()).is_some_and(|s| s.preempt);
        if preempts {
            self.requests.preempting.insert(name.clone());
        } else {
            self.requests.preempting.remove(name);
        }
    }

    fn ask_all(&mut self, cx: &mut Cx<'_>) {
        if self.requests.preempting.is_empty() || self.session_usable().is_none() || self.run != Run::Running
        {
            return;
        }
        let names: Vec<Name> = self.requests.preempting.iter().cloned().collect();
        for name in names {
            self.ask(&name, cx);
        }
    }

    /// Asks a leader of lower priority to hand over to us.
    fn ask(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let due = self.requests.ask_at.get(name).is_none_or(|at| self.now.time >= *at);
        let answered = self.controls.get(name).is_some_and(|(_, c)| {
            c.pause.is_some()
                || c.pin.is_some()
                || c.request.as_ref().is_some_and(|r| r.answer == Answer::Open)
        });
        if !due || answered || !self.has_name() || self.drained {
            return;
        }
        let Some((token, pause)) = self.outranked(name) else { return };
        let request = Request {
            id: SessionId(cx.entropy.nonce()),
            token,
            to: Some(self.config.node.clone()),
            preemption: true,
            patience: self.config.timing.ttl,
            order: Order {
                by: self.config.node.to_string(),
                why: "higher priority".to_owned(),
                at: self.now.wall,
            },
            answer: Answer::Open,
        };
        self.requests.ask_at.insert(name.clone(), self.now.time.after(pause));
        self.write_control(name, Some(RoleControl { request: Some(request), ..RoleControl::default() }), cx);
    }

    /// The tenure of a live leader whose priority is lower than ours, and how long to wait between two requests.
    fn outranked(&self, name: &Name) -> Option<(Token, Duration)> {
        let role = self.roles.get(name)?;
        let standing = role.standing.as_ref().filter(|standing| standing.eligible)?;
        let record = role.view.record()?;
        let holder = record.holder.as_ref().filter(|holder| !self.is_over(holder.session))?;
        let idle = matches!(role.stage, Stage::Following) && !role.stands_back(self.now.time);
        if holder.node == self.config.node || !idle {
            return None;
        }
        let theirs = self.nodes.get(&holder.node)?.priority(name)?;
        let pause = standing.cool_down.max(standing.min_tenure).max(self.config.timing.ttl);
        (standing.priority > theirs).then_some((record.token, pause))
    }
}

#[cfg(feature = "canon")]
#[path = "canon/control.rs"]
mod canon;
