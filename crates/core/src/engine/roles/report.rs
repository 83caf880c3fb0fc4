//! Reports the changes of a role, each change once.

use super::{RoleStatus, Stage, TrackedRole};
use crate::engine::{Engine, StepContext};
use crate::io::State;
use crate::{Event, Name};
use std::collections::BTreeMap;

impl Engine {
    pub(in crate::engine) fn state(&self, name: &Name, role: &TrackedRole) -> State {
        match &role.stage {
            Stage::Leading { .. } => State::Leader,
            Stage::Draining { .. } => State::Draining,
            Stage::Claiming { on_hint: false, .. } | Stage::Restamping | Stage::Verifying { .. } => {
                State::Candidate
            }
            _ if self.controls.is_paused(name) => State::Paused,
            Stage::Following if role.claimable_since.is_some() && !self.barred(name, role) => {
                State::Candidate
            }
            _ => State::Follower,
        }
    }

    pub(in crate::engine) fn report_state(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let (from, to) = (role.reported_state, self.state(name, role));
        if from != to {
            if let Some(role) = self.roles.get_mut(name) {
                role.reported_state = to;
            }
            ctx.event(Event::StateChanged { role: name.clone(), from, to });
        }
    }

    pub(in crate::engine) fn report_leader(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let leader = role.view.holder().filter(|holder| {
            if Some(holder.session) == self.session.own_id() {
                role.stage.tenure().is_some()
            } else {
                !self.peers.is_over(holder.session)
            }
        });
        let token = role.view.record().map_or(role.highest_token, |record| record.token);
        // The same node with another token is news too: it led, gave up, and leads again.
        let leader = leader.map(|holder| (holder.node.clone(), token));
        if leader == role.reported_leader {
            return;
        }
        if let Some(role) = self.roles.get_mut(name) {
            let former = std::mem::replace(&mut role.reported_leader, leader.clone()).map(|(node, _)| node);
            let leader = leader.map(|(node, _)| node);
            ctx.event(Event::LeaderChanged { role: name.clone(), former, leader, token });
        }
    }

    pub(in crate::engine) fn role_status<'a>(&self, role: &'a TrackedRole) -> RoleStatus<'a> {
        let holder_over = role.view.holder().is_some_and(|holder| self.peers.is_over(holder.session));
        RoleStatus { state: role.reported_state, view: &role.view, holder_over }
    }

    /// The roles that we campaign for, with our priority for each.
    pub(in crate::engine) fn candidacies(&self) -> BTreeMap<Name, i32> {
        let stands = |role: &TrackedRole| {
            role.candidacy.as_ref().filter(|s| s.eligible && !role.withdrawn).map(|s| s.priority)
        };
        self.roles.iter().filter_map(|(name, role)| Some((name.clone(), stands(role)?))).collect()
    }
}
