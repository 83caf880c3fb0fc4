//! Beginnings: from a free role to a tenure.
//!
//! `consider` decides about one role as things are now; `claim_write` sends; `claim_answered` takes the answer; `elect` comes after one
//! more poll of what operators ask.

use super::{NextAction, Resigning, RoleView, Stage, TrackedRole};
use crate::engine::ops::Purpose;
use crate::engine::rules::TokenFloor;
use crate::engine::{BATCH, BATCHES_AWAITED, Engine, Lifecycle, StepContext};
use crate::io::ElectionFailure;
use crate::record::{EndReason, Holder, Record, Role as RoleRecord, StartReason};
use crate::{Event, Kind, Name, OpId, Outcome, SessionId, Time, Token, Version, Write};
use std::time::Duration;

impl Engine {
    pub(in crate::engine) fn drive_roles(&mut self, ctx: &mut StepContext<'_>) {
        self.claim_on_hint(ctx);
        while let Some(name) = self.roles.take_due(self.now.time) {
            self.verify(&name);
            self.consider(&name, ctx);
        }
        while self.roles.any_ready() && self.ops.awaited_about_roles() < BATCHES_AWAITED {
            self.send_ready(ctx);
        }
    }

    pub(in crate::engine) fn send_ready(&mut self, ctx: &mut StepContext<'_>) {
        let (mut names, mut writes) = (Vec::new(), Vec::new());
        while writes.len() < BATCH {
            let Some(name) = self.roles.take_ready() else { break };
            if let Some(write) = self.compose_role_write(&name, ctx) {
                names.push(name);
                writes.push(write);
            }
        }
        if writes.is_empty() {
            return;
        }
        let claims = names.iter().any(|name| self.roles.get(name).is_some_and(TrackedRole::is_claiming));
        let op = self.send_writes(writes, Purpose::Roles(names), ctx);
        if claims && self.rules.controls_follow_claim() {
            ctx.claim = Some(op);
        }
    }

    /// Decides about one role: to write, to wait, or nothing.
    pub(in crate::engine) fn consider(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        self.update_claimable(name);
        let Some(role) = self.roles.get(name) else { return };
        let (ready, due) = match self.next_action(name, role) {
            NextAction::Nothing => (false, None),
            NextAction::Wait(at) => (false, Some(at)),
            NextAction::Claim | NextAction::Resign => (true, None),
        };
        self.roles.set_ready(name, ready);
        self.roles.set_due(name, due);
        self.report_state(name, ctx);
    }

    /// Something changed that concerns every role: consider each at the next opportunity.
    pub(in crate::engine) fn consider_all(&mut self) {
        let names: Vec<Name> = self.roles.names().cloned().collect();
        for name in names {
            self.roles.set_due(&name, Some(self.now.time));
        }
    }

    pub(in crate::engine) fn update_claimable(&mut self, name: &Name) {
        let Some(role) = self.roles.get(name) else { return };
        let claimable_since = match (self.claimable(role), role.claimable_since) {
            (false, _) => None,
            (true, Some(since)) => Some(since),
            (true, None) => Some(self.now.time),
        };
        if let Some(role) = self.roles.get_mut(name) {
            role.claimable_since = claimable_since;
        }
    }

    /// Rule 4: no holder, or a holder whose session a committed read showed to be over; or ourselves, astray.
    pub(in crate::engine) fn claimable(&self, role: &TrackedRole) -> bool {
        if !matches!(role.stage, Stage::Following) || role.highest_token >= Token::MAX {
            return false;
        }
        match &role.view {
            RoleView::Unknown => false,
            RoleView::Absent => true,
            RoleView::Seen { record: RoleRecord { holder: None, .. }, .. } => true,
            RoleView::Seen { .. } => {
                self.is_stray(role) || role.view.holder().is_some_and(|h| self.peers.is_over(h.session))
            }
        }
    }

    /// Rule 5: our own live session holds a role that we do not lead.
    pub(in crate::engine) fn is_stray(&self, role: &TrackedRole) -> bool {
        let own = self.session.open_id();
        self.rules.clears_strays() && own.is_some() && role.view.holder().map(|holder| holder.session) == own
    }

    fn next_action(&self, name: &Name, role: &TrackedRole) -> NextAction {
        match &role.stage {
            Stage::Resigning(resigning)
                if resigning.writing.is_none() && self.session.open_id().is_some() =>
            {
                NextAction::Resign.from(resigning.retry_at, self.now.time)
            }
            Stage::Following if self.claimable(role) => self.next_claim_action(name, role),
            Stage::Restamping if self.session_usable().is_some() => NextAction::Claim,
            // Also once that has passed: only the due list starts the verification.
            Stage::Verifying { after: None, ready_at, .. } => NextAction::Wait(*ready_at),
            _ => NextAction::Nothing,
        }
    }

    fn next_claim_action(&self, name: &Name, role: &TrackedRole) -> NextAction {
        if !self.could_claim(name, role) {
            // A stray role is resigned.
            let gives_back = self.may_write(role) && self.is_stray(role);
            let give_back = NextAction::Resign.from(role.resign_from, self.now.time);
            return if gives_back { give_back } else { NextAction::Nothing };
        }
        NextAction::Claim.from(self.earliest_claim(name, role), self.now.time)
    }

    pub(in crate::engine) fn earliest_claim(&self, name: &Name, role: &TrackedRole) -> Time {
        // Computed anew each time: the other candidates, and whether they live, may have become known since.
        let (since, turn) = (role.claimable_since.unwrap_or(self.now.time), self.claim_delay(name, role));
        since.after(turn).max(role.not_before).max(self.may_claim_from(role))
    }

    /// Whether nothing but the election itself, and time, keeps us from claiming a role: we have a session and our name, no
    /// former work goes on, and nothing bars us.
    pub(in crate::engine) fn could_claim(&self, name: &Name, role: &TrackedRole) -> bool {
        self.may_write(role) && self.owns_name() && !self.barred(name, role)
    }

    /// Rule 6: nothing is written about a role whose former work has not stopped.
    fn may_write(&self, role: &TrackedRole) -> bool {
        self.session_usable().is_some() && role.work.is_none()
    }

    /// Rule 7: not before every lease has run out that another node may rely on without our knowing.
    pub(in crate::engine) fn may_claim_from(&self, role: &TrackedRole) -> Time {
        let from = self.cluster.quarantined_until();
        if self.rules.watches_before_claiming() {
            return from.max(role.watched_since.after(self.longest_wait()));
        }
        from
    }

    /// Whether every role that we campaign for may be claimed, as far as the store is concerned.
    pub(in crate::engine) fn may_claim_all(&self) -> bool {
        self.roles
            .iter()
            .all(|(_, role)| role.candidacy.is_none() || self.may_claim_from(role) <= self.now.time)
    }

    /// Whether something other than the election itself keeps us from leading.
    pub(in crate::engine) fn barred(&self, name: &Name, role: &TrackedRole) -> bool {
        let stands = role.candidacy.as_ref().is_some_and(|candidacy| candidacy.eligible) && !role.withdrawn;
        !stands
            || self.lifecycle != Lifecycle::Running
            || self.controls.is_drained()
            || self.controls.forbid(name, &self.node)
    }

    pub(in crate::engine) fn compose_role_write(
        &mut self,
        name: &Name,
        ctx: &mut StepContext<'_>,
    ) -> Option<Write> {
        let role = self.roles.get(name)?;
        match (self.next_action(name, role), &role.stage) {
            (NextAction::Claim, _) => self.claim_write(name, ctx),
            (NextAction::Resign, Stage::Following) => {
                let expect = role.view.version()?;
                self.begin_resigning(name, expect, EndReason::Resigned, None);
                self.resign_write(name, ctx)
            }
            (NextAction::Resign, _) => self.resign_write(name, ctx),
            _ => None,
        }
    }

    pub(in crate::engine) fn claim_write(&mut self, name: &Name, ctx: &mut StepContext<'_>) -> Option<Write> {
        let role = self.roles.get(name)?;
        let (expect, former) = (role.view.version(), role.view.record().cloned());
        self.compose_claim(name, expect, former.as_ref(), false, ctx)
    }

    /// A claim that replaces `former`, as it was read or, `on_hint`, as it is foreseen.
    pub(super) fn compose_claim(
        &mut self,
        name: &Name,
        expect: Option<Version>,
        former: Option<&RoleRecord>,
        on_hint: bool,
        ctx: &mut StepContext<'_>,
    ) -> Option<Write> {
        let session = self.session_usable()?;
        let record = self.claim_record(self.roles.get(name)?, former, session);
        let (op, version, key) = (self.ops.next_id(), ctx.version(), self.named(Kind::Role, name));
        let role = self.roles.get_mut(name)?;
        role.stage = Stage::Claiming { op, session, version, record: record.clone(), on_hint };
        self.report_state(name, ctx);
        Some(Write {
            key,
            expect,
            put: Some((version, Record::Role(record))),
            notify: true,
            requires_lock: false,
        })
    }

    fn claim_record(
        &self,
        role: &TrackedRole,
        former: Option<&RoleRecord>,
        session: SessionId,
    ) -> RoleRecord {
        if let (Stage::Restamping, Some(former)) = (&role.stage, former) {
            return RoleRecord { token: self.next_token(role), since: self.now.wall, ..former.clone() };
        }
        let reason = match former.map(|record| &record.holder) {
            None => StartReason::First,
            Some(None) => StartReason::Vacant,
            Some(Some(holder)) if holder.session == session => StartReason::Reclaimed,
            Some(Some(_)) => StartReason::Takeover,
        };
        let previous = former.and_then(|record| match &record.holder {
            Some(holder) => Some(holder.node.clone()),
            None => record.previous.clone(),
        });
        let holder = Some(Holder { session, node: self.node.clone() });
        RoleRecord {
            token: self.next_token(role),
            holder,
            since: self.now.wall,
            reason: reason.into(),
            previous,
            successor: None,
        }
    }

    pub(in crate::engine) fn next_token(&self, role: &TrackedRole) -> Token {
        let seen = role.view.record().map_or(Token::new(0), |record| record.token);
        let seen = seen.max(role.highest_token).max(self.cluster.floor());
        let floor = TokenFloor {
            wall: self.now.wall.as_micros(),
            highest: role.highest_token,
            highest_age: self.now.time.since(role.highest_since),
        };
        let forgets = self.rules.store_can_forget() || self.cluster.is_forgetful();
        self.rules.next_token(seen, forgets.then_some(floor))
    }

    pub(in crate::engine) fn role_write_answered(
        &mut self,
        op: OpId,
        name: &Name,
        outcome: Outcome,
        ctx: &mut StepContext<'_>,
    ) {
        match self.roles.get(name).map(|role| &role.stage) {
            Some(Stage::Claiming { op: awaited, .. }) if *awaited == op => {
                self.claim_answered(name, outcome, ctx)
            }
            Some(Stage::Resigning(Resigning { writing: Some((awaited, ..)), .. })) if *awaited == op => {
                self.resign_answered(name, outcome, ctx);
            }
            // The session under which it was sent is gone: its result is worth reading, and a token that it shows counts.
            _ => {
                if let Outcome::Conflict(found) = &outcome {
                    self.note_highest_token(name, found.as_ref());
                }
                self.reread_if_relevant(self.named(Kind::Role, name));
            }
        }
        self.consider(name, ctx);
        self.forget_withdrawn(name);
    }

    pub(in crate::engine) fn claim_answered(
        &mut self,
        name: &Name,
        outcome: Outcome,
        ctx: &mut StepContext<'_>,
    ) {
        let outcome = self.rules.claim_outcome(outcome);
        let retry = self.now.time.after(self.rules.retry_delay());
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Claiming { op, session, version, record, on_hint } =
            std::mem::replace(&mut role.stage, Stage::Following)
        else {
            return;
        };
        match outcome {
            Outcome::Applied => {
                if on_hint {
                    // The hint was true.
                    self.poll.note_news();
                }
                self.claim_applied(name, (op, session), version, record, ctx);
            }
            // As good as a read.
            Outcome::Conflict(found) if on_hint => self.follow_view(name, RoleView::of(found.as_ref()), ctx),
            Outcome::Conflict(found) => {
                let view = RoleView::of(found.as_ref());
                self.note_loss(name, &view, ctx);
                self.apply_view(name, view, ctx);
                ctx.event(Event::ElectionFailed { role: name.clone(), cause: ElectionFailure::Outrun });
            }
            // Nothing was learned: as far as we know its leader leads. The hint is followed by a read.
            Outcome::Failed(fate) if on_hint => {
                role.not_before = role.not_before.max(retry);
                role.maybe_stray |= fate == crate::Fate::Unknown;
                self.reread_if_relevant(self.named(Kind::Role, name));
            }
            Outcome::Failed(fate) => {
                role.not_before = role.not_before.max(retry);
                if fate == crate::Fate::Unknown {
                    role.maybe_stray = true;
                    self.apply_view(name, RoleView::Unknown, ctx);
                    self.reread_if_relevant(self.named(Kind::Role, name));
                }
                ctx.event(Event::ElectionFailed { role: name.clone(), cause: ElectionFailure::Store });
            }
        }
    }

    /// Rule 4: it grants only if the session *named in it* is still valid now.
    pub(in crate::engine) fn claim_applied(
        &mut self,
        name: &Name,
        (op, session): (OpId, SessionId),
        version: Version,
        record: RoleRecord,
        ctx: &mut StepContext<'_>,
    ) {
        let token = record.token;
        let overtaken = self.may_be_overtaken(name, session, &record);
        self.apply_view(name, RoleView::Seen { version, record }, ctx);
        let credited = self.session_usable().is_some() && !self.rules.claim_ends_with_session();
        if self.session_usable() != Some(session) && !credited {
            return;
        }
        if overtaken {
            return self.restamp(name, ctx);
        }
        let ready_at = self.now.time.after(self.rules.claim_settling());
        let after = self.poll.follows_claim(op).filter(|_| self.rules.controls_follow_claim());
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Verifying { after, ready_at, seen: false, token, version };
            role.claimed_in_session = true;
        }
        match after {
            Some(_) => self.poll.verifying_later(name),
            None => self.verify(name),
        }
        if !self.rules.rereads_controls() {
            self.elect(name, ctx);
        }
    }

    /// On a store that can forget: whether another claim may have been made, led and lost while this one was in flight,
    /// so that its token is too low. Not on top of a claim of our own: what was lost was lost before that one was applied.
    fn may_be_overtaken(&self, name: &Name, session: SessionId, record: &RoleRecord) -> bool {
        let Some(role) = self.roles.get(name) else { return false };
        let on_top = role.view.holder().is_some_and(|holder| holder.session == session);
        let in_flight =
            if on_top { 0 } else { self.now.wall.as_micros().saturating_sub(record.since.as_micros()) };
        self.rules.must_restamp(Duration::from_micros(in_flight), record.token, role.highest_token)
    }

    fn restamp(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Restamping;
            role.claimed_in_session = true;
        }
        self.consider(name, ctx);
    }

    /// Requests the last poll before the election as soon as it may begin.
    fn verify(&mut self, name: &Name) {
        let next_id = self.ops.next_id();
        let Some(TrackedRole { stage: Stage::Verifying { after, ready_at, .. }, .. }) =
            self.roles.get_mut(name)
        else {
            return;
        };
        if self.now.time < *ready_at {
            return;
        }
        *after = Some(next_id);
        if self.rules.store_can_forget() {
            self.poll.reread(self.named(Kind::Role, name));
        }
        self.poll.verifying(name);
    }

    /// A poll that was served after the claim has been answered: the last check before the election.
    pub(in crate::engine) fn poll_done(&mut self, op: OpId, ctx: &mut StepContext<'_>) {
        for name in self.poll.take_verifying() {
            match self.roles.get(&name).map(|role| &role.stage) {
                Some(Stage::Verifying { .. }) if !self.cluster_ready() => self.poll.verifying_later(&name),
                Some(Stage::Verifying { after, seen, .. })
                    if after.is_some_and(|after| after <= op) && (*seen || !self.rules.claims_settle()) =>
                {
                    self.elect(&name, ctx);
                }
                Some(Stage::Verifying { .. }) => self.verify(&name),
                _ => {}
            }
        }
        self.apply_controls(ctx);
    }

    pub(in crate::engine) fn elect(&mut self, name: &Name, ctx: &mut StepContext<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Stage::Verifying { token, version, .. } = role.stage else { return };
        if self.session_usable().is_none() {
            return;
        }
        let barred = self.barred(name, role) && self.rules.rereads_controls();
        // A store that has just been seen to forget may have let us claim a role that another node still leads.
        let (reason, cause) = match () {
            () if self.store_forgot() => (EndReason::Forgotten, ElectionFailure::Forgotten),
            () if barred => (EndReason::Paused, ElectionFailure::Paused),
            // A read that was late showed a token which the store has lost.
            () if token < role.highest_token && self.rules.store_can_forget() => {
                return self.restamp(name, ctx);
            }
            () => return self.begin_tenure(name, token, version, ctx),
        };
        self.begin_resigning(name, version, reason, None);
        ctx.event(Event::ElectionFailed { role: name.clone(), cause });
        self.consider(name, ctx);
    }

    fn begin_tenure(&mut self, name: &Name, token: Token, version: Version, ctx: &mut StepContext<'_>) {
        let since = self.now.time;
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Leading { token, version, since };
            role.missed_audits = 0;
        }
        self.roles.start_work(name, token);
        ctx.event(Event::Elected { role: name.clone(), token });
        self.report_state(name, ctx);
        self.report_leader(name, ctx);
    }
}
