//! What is seen of the role registers, by committed reads and by conflicts. Hints show nothing.

use super::{RoleView, Stage, TrackedRole};
use crate::engine::{Engine, StepContext};
use crate::io::ElectionFailure;
use crate::record::{EndReason, Record};
use crate::{Entry, Event, Key, Kind, Name, OpId, SessionId, Token};

impl RoleView {
    pub(in crate::engine) fn of(found: Option<&Entry>) -> Self {
        match found {
            None => Self::Absent,
            Some(entry @ Entry { version, value: Record::Role(record), .. }) if !entry.is_unreadable() => {
                Self::Seen { version: *version, record: record.clone() }
            }
            // Unreadable: left alone.
            Some(_) => Self::Unknown,
        }
    }

    /// A register only ever moves up in this order: the next token, or the same token given up.
    pub(in crate::engine) fn progress(&self) -> (Token, bool) {
        self.record().map_or((Token::new(0), true), |record| (record.token, record.holder.is_none()))
    }
}

impl Engine {
    /// Takes in what a committed read showed.
    pub(in crate::engine) fn observe_role(
        &mut self,
        op: OpId,
        name: &Name,
        found: Option<&Entry>,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(role) = self.roles.get(name) else { return };
        if op < role.view_from {
            return self.note_highest_token(name, found);
        }
        if found.is_some_and(Entry::is_unreadable) {
            return;
        }
        let view = RoleView::of(found);
        match &role.stage {
            // A claim on a hint may be refused before the resignation that is read meanwhile.
            Stage::Following | Stage::Claiming { on_hint: true, .. } => self.follow_view(name, view, ctx),
            Stage::Leading { version, .. } | Stage::Draining { version, .. } => {
                let ours = view.version() == Some(*version);
                self.audit(op, name, ours, view, ctx);
            }
            Stage::Verifying { version, after: Some(after), .. }
                if *after <= op && self.rules.store_can_forget() =>
            {
                let ours = view.version() == Some(*version);
                self.verify_claim(name, ours, view, ctx);
            }
            _ => self.note_highest_token(name, found),
        }
    }

    /// Even a read that is too old for anything else shows a token that was given.
    pub(in crate::engine) fn note_highest_token(&mut self, name: &Name, found: Option<&Entry>) {
        let now = self.now.time;
        let (Some(role), Some(record)) = (self.roles.get_mut(name), RoleView::of(found).record().cloned())
        else {
            return;
        };
        if record.token > role.highest_token {
            (role.highest_token, role.highest_since, role.set_back) = (record.token, now, false);
        }
    }

    pub(in crate::engine) fn follow_view(&mut self, name: &Name, view: RoleView, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        if !self.rules.store_can_forget() && role.went_back(&view) && !matches!(view, RoleView::Absent) {
            // Nothing is ever forgotten there: the read was stale.
            return;
        }
        let news = role.is_news(&view);
        self.note_loss(name, &view, ctx);
        if news {
            self.poll.note_news();
        }
        self.apply_view(name, view, ctx);
        if !self.rules.never_leads_again() {
            self.lead_again(name, ctx);
        }
        self.consider(name, ctx);
    }

    /// Rule 8: on a store that can forget, a register that went back is a sign of loss, whether a read or a refusal shows it.
    pub(in crate::engine) fn note_loss(&mut self, name: &Name, view: &RoleView, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get_mut(name).filter(|_| self.rules.store_can_forget()) else { return };
        let known = !matches!(role.view, RoleView::Unknown);
        // A register that went back and goes on from there alarms no more, though it is below the highest token seen.
        let goes_on = role.set_back && known && view.progress() > role.view.progress();
        if role.went_back(view) && role.is_news(view) && !goes_on {
            role.set_back = true;
            self.quarantine(ctx);
        }
    }

    /// A leader that twice does not find its tenure in the register has lost it, whatever became of it; once is enough after
    /// a sign that the store lost something.
    pub(in crate::engine) fn audit(
        &mut self,
        op: OpId,
        name: &Name,
        ours: bool,
        view: RoleView,
        ctx: &mut StepContext<'_>,
    ) {
        let certain = self.poll.is_audit(op);
        let Some(role) = self.roles.get_mut(name) else { return };
        let superseded = view.progress().0 > role.highest_token;
        role.missed_audits = if ours { 0 } else { role.missed_audits + 1 };
        if ours {
            return;
        }
        if role.missed_audits < 2 && !superseded && !certain {
            return self.poll.doubt(name);
        }
        // The reads may have been stale, and the register may be in our name after all: remembered until the session ends.
        role.maybe_stray = true;
        self.lose(name, EndReason::Forgotten, ctx);
        self.note_loss(name, &view, ctx);
        self.apply_view(name, view, ctx);
        self.consider(name, ctx);
    }

    /// On a store that can forget, an acknowledged claim is read once more before its tenure begins.
    fn verify_claim(&mut self, name: &Name, ours: bool, view: RoleView, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        if let Stage::Verifying { seen, .. } = &mut role.stage
            && ours
        {
            *seen = true;
            return;
        }
        role.stage = Stage::Following;
        role.maybe_stray = true;
        // The read may have been stale: claiming anew at once, and reading anew, would go on for as long as reads are.
        role.not_before = role.not_before.max(self.now.time.after(self.rules.timing().beat));
        ctx.event(Event::ElectionFailed { role: name.clone(), cause: ElectionFailure::Forgotten });
        self.note_loss(name, &view, ctx);
        self.apply_view(name, view, ctx);
        self.consider(name, ctx);
    }

    /// The roles that may be in the name of our session: led, or resigned before, which the store may have lost.
    pub(in crate::engine) fn accountable_roles(&self) -> Vec<Key> {
        let ours = |role: &TrackedRole| role.claimed_in_session || role.stage.tenure().is_some();
        let names = self.roles.iter().filter(|(_, role)| ours(role)).map(|(name, _)| name);
        names.map(|name| self.named(Kind::Role, name)).collect()
    }

    /// Rule 5: finds roles in the name of our session that we do not know, to resign them.
    pub(in crate::engine) fn find_strays(&mut self, found: &[Entry]) {
        let own = self.session.open_id();
        for entry in found {
            let (Key::Named(_, Kind::Role, name), Record::Role(record)) = (&entry.key, &entry.value) else {
                continue;
            };
            let ours = own.is_some() && record.holder.as_ref().map(|holder| holder.session) == own;
            if ours && !self.roles.knows(name) && self.rules.finds_unknown_strays() {
                let role = self.roles.track(name, self.now.time);
                (role.withdrawn, role.claimed_in_session) = (true, true);
            }
        }
    }

    /// Replaces the view of a role and updates everything that depends on it.
    pub(in crate::engine) fn apply_view(&mut self, name: &Name, view: RoleView, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        if let RoleView::Seen { record, .. } = &view
            && record.token > role.highest_token
        {
            (role.highest_token, role.highest_since, role.set_back) = (record.token, self.now.time, false);
        }
        role.existed |= matches!(view, RoleView::Seen { .. });
        let deleted = matches!(view, RoleView::Absent) && std::mem::take(&mut role.existed);
        let holder = view.holder().map(|holder| holder.session);
        let is_new = role.view.version() != view.version();
        let successor = view.record().and_then(|record| record.successor.clone()).filter(|_| is_new);
        self.roles.set_view(name, view, self.ops.next_id());
        if let Some(successor) = successor.filter(|successor| !self.is_known_to_stand(successor, name)) {
            // The leader that named it knows more: what we read of that node may have been stale.
            self.poll.reread(self.named(Kind::Node, &successor));
        }
        if let Some(session) = holder.filter(|session| Some(*session) != self.session.own_id()) {
            if !self.peers.knows(session) {
                self.track_session(session);
            }
            self.watch_lock(session, ctx);
        }
        if deleted {
            // Role registers are never deleted by nodes: the leader may still count on its lease.
            self.quarantine(ctx);
        }
        self.report_leader(name, ctx);
    }

    /// A session is over: the roles in its name may be claimed.
    pub(in crate::engine) fn holder_over(&mut self, session: SessionId, ctx: &mut StepContext<'_>) {
        for name in self.roles.held_by(session) {
            let Some(role) = self.roles.get(&name) else { continue };
            if let Some((former, _)) = role.reported_leader.clone().filter(|_| role.stage.follows()) {
                ctx.event(Event::LeaderDown { role: name.clone(), former });
            }
            self.report_leader(&name, ctx);
            self.consider(&name, ctx);
        }
    }

    /// The store forgot everything.
    pub(in crate::engine) fn forget_views(&mut self) {
        self.roles.forget_views(self.ops.next_id(), self.now.time);
        self.consider_all();
    }
}
