//! The roles of this node and their indexes, which only this file touches: by holder, by when a role is due, which have
//! something to write, and which have work that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::{RoleView, TrackedRole};
use crate::{Name, OpId, SessionId, Time, Token};

/// Every role that this node campaigns for or watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(in crate::engine) struct Roles {
    roles: BTreeMap<Name, TrackedRole>,
    /// The roles whose register names a session.
    held_by: BTreeMap<SessionId, BTreeSet<Name>>,
    /// When to consider a role again.
    due: BTreeSet<(Time, Name)>,
    /// Roles that have something to write.
    ready: BTreeSet<Name>,
    /// Roles whose work has been started and not stopped.
    working: BTreeSet<Name>,
}

impl Roles {
    pub(in crate::engine) fn get(&self, name: &Name) -> Option<&TrackedRole> {
        self.roles.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &Name) -> Option<&mut TrackedRole> {
        self.roles.get_mut(name)
    }

    pub(in crate::engine) fn knows(&self, name: &Name) -> bool {
        self.roles.contains_key(name)
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.roles.len()
    }

    pub(in crate::engine) fn names(&self) -> impl Iterator<Item = &Name> {
        self.roles.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, &TrackedRole)> {
        self.roles.iter()
    }

    /// So many names after `last`, in turn; all of them at most once.
    pub(in crate::engine) fn next_in_turn(&self, last: Option<&Name>, count: usize) -> Vec<Name> {
        let later = (last.map_or(Unbounded, Excluded), Unbounded);
        let turn = self.roles.range::<Name, _>(later).chain(&self.roles);
        turn.map(|(name, _)| name.clone()).take(count.min(self.roles.len())).collect()
    }

    /// The role, which is tracked from now on if it was not.
    pub(super) fn track(&mut self, name: &Name, now: Time) -> &mut TrackedRole {
        self.roles.entry(name.clone()).or_insert_with(|| TrackedRole::new(now))
    }

    pub(super) fn remove(&mut self, name: &Name) {
        self.unindex(name);
        self.set_due(name, None);
        self.ready.remove(name);
        self.roles.remove(name);
    }

    /// Replaces what is known of a register, and from which operation on.
    pub(super) fn set_view(&mut self, name: &Name, view: RoleView, view_from: OpId) {
        self.unindex(name);
        let Some(role) = self.roles.get_mut(name) else { return };
        if role.view.version() != view.version() {
            role.claimable_since = None;
        }
        (role.view, role.view_from) = (view, view_from);
        if let Some(holder) = role.view.holder() {
            self.held_by.entry(holder.session).or_default().insert(name.clone());
        }
    }

    /// The store forgot everything: nothing is known of any register, and watching begins anew.
    pub(super) fn forget_views(&mut self, view_from: OpId, now: Time) {
        self.held_by.clear();
        for role in self.roles.values_mut() {
            (role.view, role.view_from) = (RoleView::Unknown, view_from);
            (role.existed, role.set_back) = (false, false);
            (role.watched_since, role.claimable_since) = (now, None);
        }
    }

    fn unindex(&mut self, name: &Name) {
        let Some(holder) = self.roles.get(name).and_then(|role| role.view.holder()) else { return };
        let session = holder.session;
        if let Some(names) = self.held_by.get_mut(&session) {
            names.remove(name);
            if names.is_empty() {
                self.held_by.remove(&session);
            }
        }
    }

    pub(in crate::engine) fn are_held_by(&self, session: SessionId) -> bool {
        self.held_by.contains_key(&session)
    }

    /// The sessions that role registers name.
    pub(in crate::engine) fn holders(&self) -> impl Iterator<Item = SessionId> {
        self.held_by.keys().copied()
    }

    /// Whether every role has a holder.
    pub(in crate::engine) fn all_held(&self) -> bool {
        self.held_by.values().map(BTreeSet::len).sum::<usize>() == self.roles.len()
    }

    pub(in crate::engine) fn is_held_by(&self, role: &Name, session: SessionId) -> bool {
        self.held_by.get(&session).is_some_and(|names| names.contains(role))
    }

    /// The names of the roles whose register names that session.
    pub(in crate::engine) fn names_held_by(
        &self,
        session: SessionId,
    ) -> impl ExactSizeIterator<Item = &Name> {
        static NONE: BTreeSet<Name> = BTreeSet::new();
        self.held_by.get(&session).unwrap_or(&NONE).iter()
    }

    /// The roles whose register names that session.
    pub(in crate::engine) fn held_by(&self, session: SessionId) -> Vec<Name> {
        self.names_held_by(session).cloned().collect()
    }

    /// Considers the role again at that time, or not before something happens.
    pub(super) fn set_due(&mut self, name: &Name, at: Option<Time>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        if role.due == at {
            return;
        }
        if let Some(former) = std::mem::replace(&mut role.due, at) {
            self.due.remove(&(former, name.clone()));
        }
        if let Some(at) = at {
            self.due.insert((at, name.clone()));
        }
    }

    pub(in crate::engine) fn next_due(&self) -> Time {
        self.due.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// A role that is due, which it is no longer then.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Name> {
        let (at, name) = self.due.first()?;
        if *at > now {
            return None;
        }
        let name = name.clone();
        self.set_due(&name, None);
        Some(name)
    }

    /// Whether the role has something to write.
    pub(super) fn set_ready(&mut self, name: &Name, ready: bool) {
        if ready {
            self.ready.insert(name.clone());
        } else {
            self.ready.remove(name);
        }
    }

    pub(in crate::engine) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn take_ready(&mut self) -> Option<Name> {
        self.ready.pop_first()
    }

    /// The work of a tenure starts.
    pub(super) fn start_work(&mut self, name: &Name, token: Token) {
        if let Some(role) = self.roles.get_mut(name) {
            role.work = Some(token);
            self.working.insert(name.clone());
        }
    }

    /// The work of a tenure has stopped. False if it was not running.
    pub(super) fn stop_work(&mut self, name: &Name, token: Token) -> bool {
        let Some(role) = self.roles.get_mut(name).filter(|role| role.work == Some(token)) else {
            return false;
        };
        role.work = None;
        self.working.remove(name);
        true
    }

    pub(in crate::engine) fn any_working(&self) -> bool {
        !self.working.is_empty()
    }
}

#[cfg(feature = "canonical")]
#[path = "../canonical/roles.rs"]
mod canonical;

#[cfg(test)]
#[path = "../tests/roles.rs"]
mod tests;
