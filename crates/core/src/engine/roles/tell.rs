//! What is told about a role, each change once.

use super::{Role, RoleStatus, Stage};
use crate::engine::{Cx, Engine};
use crate::io::State;
use crate::{Event, Name};
use std::collections::BTreeMap;

impl Engine {
    pub(in crate::engine) fn state(&self, name: &Name, role: &Role) -> State {
        match &role.stage {
            Stage::Leading { .. } => State::Leader,
            Stage::Draining { .. } => State::Draining,
            Stage::Claiming { .. } | Stage::Verifying { .. } => State::Candidate,
            _ if self.is_paused(name) => State::Paused,
            Stage::Following if role.free.is_some() && !self.barred(name, role) => State::Candidate,
            _ => State::Follower,
        }
    }

    pub(in crate::engine) fn tell_state(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let (from, to) = (role.told_state, self.state(name, role));
        if from != to {
            if let Some(role) = self.roles.get_mut(name) {
                role.told_state = to;
            }
            cx.event(Event::StateChanged { role: name.clone(), from, to });
        }
    }

    pub(in crate::engine) fn tell_leader(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let leader = role.view.holder().filter(|holder| {
            if Some(holder.session) == self.session.own_id() {
                role.stage.tenure().is_some()
            } else {
                !self.is_over(holder.session)
            }
        });
        let token = role.view.record().map_or(role.highest, |record| record.token);
        // The same node with another token is news too: it led, gave up, and leads again.
        let leader = leader.map(|holder| (holder.node.clone(), token));
        if leader == role.told_leader {
            return;
        }
        if let Some(role) = self.roles.get_mut(name) {
            let former = std::mem::replace(&mut role.told_leader, leader.clone()).map(|(node, _)| node);
            let leader = leader.map(|(node, _)| node);
            cx.event(Event::LeaderChanged { role: name.clone(), former, leader, token });
        }
    }

    pub(in crate::engine) fn role_status<'a>(&self, role: &'a Role) -> RoleStatus<'a> {
        let holder_over = role.view.holder().is_some_and(|holder| self.is_over(holder.session));
        RoleStatus { state: role.told_state, view: &role.view, holder_over }
    }

    /// The roles that we stand for, with our priority for each.
    pub(in crate::engine) fn candidacies(&self) -> BTreeMap<Name, i32> {
        let stands = |role: &Role| {
            role.standing.as_ref().filter(|s| s.eligible && !role.withdrawn).map(|s| s.priority)
        };
        self.roles.iter().filter_map(|(name, role)| Some((name.clone(), stands(role)?))).collect()
    }
}
