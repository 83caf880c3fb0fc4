//! What is seen of the role registers: by committed reads, by conflicts, and provisionally by hints.

use super::{Stage, View};
use crate::engine::{Class, Cx, Engine};
use crate::record::{Reason, Record};
use crate::{Entry, Event, Mutant, Name, OpId, SessionId, Token};

/// Whether no tenure could follow: somebody wrote the last of all tokens, which nobody ever reaches. Such a role is left
/// alone like everything that cannot be understood.
fn is_used_up(token: Token) -> bool {
    token >= Token::MAX
}

impl View {
    pub(in crate::engine) fn of(found: Option<&Entry>, hinted: bool) -> Self {
        match found {
            None => Self::Absent,
            Some(Entry { version, value: Record::Role(record), .. }) if !is_used_up(record.token) => {
                Self::Seen { version: *version, record: record.clone(), hinted }
            }
            // Unreadable: left alone.
            Some(_) => Self::Unknown,
        }
    }

    /// A register only ever moves up in this order: the next token, or the same token given up.
    pub(in crate::engine) fn progress(&self) -> (Token, bool) {
        self.record().map_or((Token(0), true), |record| (record.token, record.holder.is_none()))
    }
}

impl Engine {
    /// Takes in what a committed read showed.
    pub(in crate::engine) fn saw_role(
        &mut self,
        op: OpId,
        name: &Name,
        found: Option<&Entry>,
        cx: &mut Cx<'_>,
    ) {
        let Some(role) = self.roles.get(name) else { return };
        if op < role.view_op {
            return;
        }
        if let Some(entry) = found.filter(|entry| matches!(View::of(Some(entry), false), View::Unknown)) {
            return cx.event(Event::Unreadable { key: entry.key.clone() });
        }
        let view = View::of(found, false);
        match &role.stage {
            Stage::Following => self.follow(name, view, cx),
            Stage::Leading { version, .. } | Stage::Draining { version, .. } => {
                let ours = view.version() == Some(*version);
                self.audit(name, ours, view, cx);
            }
            _ => {}
        }
    }

    pub(in crate::engine) fn follow(&mut self, name: &Name, view: View, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let hinted = matches!(role.view, View::Seen { hinted: true, .. });
        let back = view.progress() < role.view.progress() || view.progress().0 < role.highest;
        // Seeing the same once more is no news: a register that went back once must not alarm for ever.
        let news = view.version() != role.view.version() || matches!(role.view, View::Unknown);
        if back && !hinted {
            match self.config.class {
                // Nothing is ever forgotten there: the read was stale.
                Class::A | Class::B if !matches!(view, View::Absent) => return,
                Class::A | Class::B => {}
                Class::C if news => self.quarantine(cx),
                Class::C => {}
            }
        }
        self.learn(name, view, cx);
        if self.mutated(Mutant::TenureReled) {
            self.lead_again(name, cx);
        }
        self.consider(name, cx);
    }

    /// A leader that twice does not find its tenure in the register has lost it, whatever became of it.
    pub(in crate::engine) fn audit(&mut self, name: &Name, ours: bool, view: View, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let superseded = view.progress().0 > role.highest;
        role.doubts = if ours { 0 } else { role.doubts + 1 };
        if ours || (role.doubts < 2 && !superseded) {
            return;
        }
        // The reads may have been stale, and the register may be in our name after all: remembered until the session ends.
        role.maybe_stray = true;
        self.lose(name, Reason::Forgotten, cx);
        self.learn(name, view, cx);
        self.consider(name, cx);
    }

    /// A hint may be claimed on directly, because the compare-and-set decides; what it says is read again later.
    pub(in crate::engine) fn hinted_role(&mut self, name: &Name, entry: &Entry, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let view = View::of(Some(entry), true);
        if view.version() == role.view.version() || matches!(view, View::Unknown) {
            return;
        }
        if !matches!(role.stage, Stage::Following) {
            if view.progress() > role.view.progress() {
                self.look_again(entry.key.clone());
            }
            return;
        }
        self.look.verify(name.clone());
        if view.progress() > role.view.progress() {
            self.learn(name, view, cx);
            self.consider(name, cx);
        }
    }

    /// Takes a view for granted, with all that hangs on it.
    pub(in crate::engine) fn learn(&mut self, name: &Name, view: View, cx: &mut Cx<'_>) {
        let view_op = self.ops.upcoming();
        self.unindex(name);
        let Some(role) = self.roles.get_mut(name) else { return };
        if let View::Seen { record, hinted: false, .. } = &view
            && record.token > role.highest
        {
            (role.highest, role.highest_since) = (record.token, self.now.time);
        }
        // A hint is enough: somebody wrote it.
        role.existed |= matches!(view, View::Seen { .. });
        let deleted = matches!(view, View::Absent) && std::mem::take(&mut role.existed);
        if role.view.version() != view.version() {
            role.free = None;
        }
        role.view = view;
        role.view_op = view_op;
        let holder = role.view.holder().map(|holder| holder.session);
        if let Some(session) = holder {
            self.held_by.entry(session).or_default().insert(name.clone());
            if Some(session) != self.session.own_id() {
                if !self.peers.contains_key(&session) {
                    self.watch_session(session);
                }
                self.attend(session, cx);
            }
        }
        if deleted {
            // Role registers are never deleted: whoever led it may count on its lease.
            self.quarantine(cx);
        }
        self.tell_leader(name, cx);
    }

    pub(in crate::engine) fn unindex(&mut self, name: &Name) {
        let Some(holder) = self.roles.get(name).and_then(|role| role.view.holder()) else { return };
        let session = holder.session;
        if let Some(names) = self.held_by.get_mut(&session) {
            names.remove(name);
            if names.is_empty() {
                self.held_by.remove(&session);
            }
        }
    }

    /// A session is over: the roles in its name may be claimed.
    pub(in crate::engine) fn holder_over(&mut self, session: SessionId, cx: &mut Cx<'_>) {
        let names: Vec<Name> = self.held_by.get(&session).into_iter().flatten().cloned().collect();
        for name in names {
            let Some(role) = self.roles.get(&name) else { continue };
            if let Some((former, _)) =
                role.told_leader.clone().filter(|_| matches!(role.stage, Stage::Following))
            {
                cx.event(Event::LeaderDown { role: name.clone(), former });
            }
            self.tell_leader(&name, cx);
            self.consider(&name, cx);
        }
    }

    /// The store forgot everything.
    pub(in crate::engine) fn forget_views(&mut self) {
        let (now, op) = (self.now.time, self.ops.upcoming());
        self.held_by.clear();
        for role in self.roles.values_mut() {
            role.view = View::Unknown;
            role.existed = false;
            role.view_op = op;
            role.watched_since = now;
            role.free = None;
        }
        self.consider_all();
    }
}
