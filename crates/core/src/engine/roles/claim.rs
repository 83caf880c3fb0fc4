//! Beginnings: from a free role to a tenure.
//!
//! `consider` decides about one role as things are now; `claim` sends; `claimed` takes the answer; `elect` comes after one
//! more look at what operators ask.

use super::{Desire, Resigning, Role, Stage, View};
use crate::engine::ops::Purpose;
use crate::engine::{BATCH, BATCHES_AWAITED, Class, Cx, Engine, Run};
use crate::io::Cause;
use crate::record::{Holder, Reason, Record, Role as RoleRecord};
use crate::{Event, Kind, Mutant, Name, OpId, Outcome, SessionId, Time, Token, Version, Write};

impl Engine {
    pub(in crate::engine) fn drive_roles(&mut self, cx: &mut Cx<'_>) {
        while let Some((at, name)) = self.due.first().cloned()
            && at <= self.now.time
        {
            self.set_due(&name, None);
            self.consider(&name, cx);
        }
        while !self.ready.is_empty() && self.ops.awaited_about_roles() < BATCHES_AWAITED {
            self.send_ready(cx);
        }
    }

    pub(in crate::engine) fn send_ready(&mut self, cx: &mut Cx<'_>) {
        let (mut names, mut writes) = (Vec::new(), Vec::new());
        while writes.len() < BATCH {
            let Some(name) = self.ready.pop_first() else { break };
            if let Some(write) = self.role_write(&name, cx) {
                names.push(name);
                writes.push(write);
            }
        }
        if !writes.is_empty() {
            self.send_writes(writes, Purpose::Roles(names), cx);
        }
    }

    /// Decides about one role, as things are now: to write, to wait, or nothing.
    pub(in crate::engine) fn consider(&mut self, name: &Name, cx: &mut Cx<'_>) {
        self.note_free(name);
        let Some(role) = self.roles.get(name) else { return };
        match self.desire(name, role) {
            Desire::Nothing => {
                self.ready.remove(name);
                self.set_due(name, None);
            }
            Desire::Wait(at) => {
                self.ready.remove(name);
                self.set_due(name, Some(at));
            }
            Desire::Claim | Desire::Resign => {
                self.set_due(name, None);
                self.ready.insert(name.clone());
            }
        }
        self.tell_state(name, cx);
    }

    /// Something changed that concerns every role: consider each at the next opportunity.
    pub(in crate::engine) fn consider_all(&mut self) {
        let names: Vec<Name> = self.roles.keys().cloned().collect();
        for name in names {
            self.set_due(&name, Some(self.now.time));
        }
    }

    pub(in crate::engine) fn set_due(&mut self, name: &Name, at: Option<Time>) {
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

    pub(in crate::engine) fn note_free(&mut self, name: &Name) {
        let Some(role) = self.roles.get(name) else { return };
        let free = match (self.claimable(role), role.free) {
            (false, _) => None,
            (true, Some(since)) => Some(since),
            (true, None) => Some(self.now.time),
        };
        if let Some(role) = self.roles.get_mut(name) {
            role.free = free;
        }
    }

    /// Rule 4: no holder, or a holder whose session a committed read showed to be over; or ourselves, astray.
    pub(in crate::engine) fn claimable(&self, role: &Role) -> bool {
        if !matches!(role.stage, Stage::Following) || role.highest >= Token::MAX {
            return false;
        }
        match &role.view {
            View::Unknown => false,
            View::Absent => true,
            View::Seen { record: RoleRecord { holder: None, .. }, .. } => true,
            View::Seen { .. } => {
                self.is_stray(role) || role.view.holder().is_some_and(|h| self.is_over(h.session))
            }
        }
    }

    /// Rule 5: our own live session holds a role that we do not lead.
    pub(in crate::engine) fn is_stray(&self, role: &Role) -> bool {
        let blind = self.mutated(Mutant::StrayIgnored) || self.mutated(Mutant::UnknownIsFailure);
        let own = self.session.open_id();
        !blind && own.is_some() && role.view.holder().map(|holder| holder.session) == own
    }

    fn desire(&self, name: &Name, role: &Role) -> Desire {
        match &role.stage {
            Stage::Resigning(resigning)
                if resigning.writing.is_none() && self.session.open_id().is_some() =>
            {
                if self.now.time >= resigning.retry_at {
                    Desire::Resign
                } else {
                    Desire::Wait(resigning.retry_at)
                }
            }
            Stage::Following if self.claimable(role) => self.desire_to_claim(name, role),
            _ => Desire::Nothing,
        }
    }

    fn desire_to_claim(&self, name: &Name, role: &Role) -> Desire {
        if self.session_usable().is_none() || role.work.is_some() {
            return Desire::Nothing;
        }
        if self.barred(name, role) || !self.has_name() {
            // What is ours by mistake is given back.
            return if self.is_stray(role) { Desire::Resign } else { Desire::Nothing };
        }
        let earliest = self.earliest_claim(name, role);
        if self.now.time >= earliest { Desire::Claim } else { Desire::Wait(earliest) }
    }

    pub(in crate::engine) fn earliest_claim(&self, name: &Name, role: &Role) -> Time {
        // Weighed anew each time: who else stands, and lives, may have become known since.
        let (since, turn) = (role.free.unwrap_or(self.now.time), self.turn(name, role));
        let mut earliest = since.after(turn).max(role.not_before).max(self.cluster.quarantined_until);
        if self.config.class == Class::C && !self.mutated(Mutant::QuarantineSkipped) {
            earliest = earliest.max(role.watched_since.after(self.longest_watch()));
        }
        earliest
    }

    /// Whether something other than the election itself keeps us from leading.
    pub(in crate::engine) fn barred(&self, name: &Name, role: &Role) -> bool {
        let stands = role.standing.as_ref().is_some_and(|standing| standing.eligible) && !role.withdrawn;
        !stands || self.run != Run::Running || self.drained || self.forbidden(name).is_some()
    }

    pub(in crate::engine) fn role_write(&mut self, name: &Name, cx: &mut Cx<'_>) -> Option<Write> {
        let role = self.roles.get(name)?;
        match (self.desire(name, role), &role.stage) {
            (Desire::Claim, _) => self.claim(name, cx),
            (Desire::Resign, Stage::Following) => {
                let expect = role.view.version()?;
                self.begin_resigning(name, expect, Reason::Resigned, None);
                self.resign(name, cx)
            }
            (Desire::Resign, _) => self.resign(name, cx),
            _ => None,
        }
    }

    pub(in crate::engine) fn claim(&mut self, name: &Name, cx: &mut Cx<'_>) -> Option<Write> {
        let session = self.session_usable()?;
        let role = self.roles.get(name)?;
        let record = self.claim_record(role, session);
        let (expect, version) = (role.view.version(), cx.version());
        let (op, key) = (self.ops.upcoming(), self.named(Kind::Role, name));
        let role = self.roles.get_mut(name)?;
        role.stage = Stage::Claiming { op, session, version, record: record.clone() };
        self.tell_state(name, cx);
        Some(Write { key, expect, put: Some((version, Record::Role(record))), ring: true, witnessed: false })
    }

    pub(in crate::engine) fn claim_record(&self, role: &Role, session: SessionId) -> RoleRecord {
        let former = role.view.record();
        let reason = match former.map(|record| &record.holder) {
            None => Reason::First,
            Some(None) => Reason::Vacant,
            Some(Some(holder)) if holder.session == session => Reason::Reclaimed,
            Some(Some(_)) => Reason::Takeover,
        };
        let previous = former.and_then(|record| match &record.holder {
            Some(holder) => Some(holder.node.clone()),
            None => record.previous.clone(),
        });
        let holder = Some(Holder { session, node: self.config.node.clone() });
        RoleRecord {
            token: self.next_token(role),
            holder,
            since: self.now.wall,
            reason,
            previous,
            successor: None,
        }
    }

    /// Rule 7: `max(register, highest ever seen) + 1`; on a store that can forget, the wall clock is a floor.
    ///
    /// Wall clocks differ, and one that is behind those who led before is no floor at all. So the highest token goes on by
    /// itself, a microsecond at a time, from when it was first seen: whoever claims later claims higher, although the store
    /// has forgotten a claim in between that nobody else saw.
    pub(in crate::engine) fn next_token(&self, role: &Role) -> Token {
        let seen = role.view.record().map_or(Token(0), |record| record.token).max(role.highest);
        if self.mutated(Mutant::TokenNotRaised) && seen > Token(0) {
            return seen;
        }
        let forgets = self.config.class == Class::C || self.cluster.forgetful;
        if !forgets || self.mutated(Mutant::NoTokenFloor) {
            return seen.next();
        }
        let age = self.now.time.since(role.highest_since).as_micros();
        let gone_on = role.highest.0.saturating_add(u64::try_from(age).unwrap_or(u64::MAX));
        let floor = self.now.wall.0.max(gone_on).min(Token::MAX.0);
        seen.next().max(Token(floor))
    }

    pub(in crate::engine) fn role_written(
        &mut self,
        op: OpId,
        name: &Name,
        outcome: Outcome,
        cx: &mut Cx<'_>,
    ) {
        match self.roles.get(name).map(|role| &role.stage) {
            Some(Stage::Claiming { op: awaited, .. }) if *awaited == op => self.claimed(name, outcome, cx),
            Some(Stage::Resigning(Resigning { writing: Some((awaited, ..)), .. })) if *awaited == op => {
                self.resigned(name, outcome, cx);
            }
            // The session under which it was sent is gone: what came of it is worth a look.
            _ => self.look_again(self.named(Kind::Role, name)),
        }
        self.consider(name, cx);
        self.forget_withdrawn(name);
    }

    pub(in crate::engine) fn claimed(&mut self, name: &Name, outcome: Outcome, cx: &mut Cx<'_>) {
        let outcome = match outcome {
            Outcome::Failed(_) if self.mutated(Mutant::UnknownIsSuccess) => Outcome::Applied,
            Outcome::Failed(_) if self.mutated(Mutant::UnknownIsFailure) => {
                Outcome::Failed(crate::Fate::NotApplied)
            }
            outcome => outcome,
        };
        let retry = self.now.time.after(self.retry_delay());
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Claiming { session, version, record, .. } =
            std::mem::replace(&mut role.stage, Stage::Following)
        else {
            return;
        };
        match outcome {
            Outcome::Applied => self.claim_applied(name, session, version, record, cx),
            Outcome::Conflict(found) => {
                self.learn(name, View::of(found.as_ref(), false), cx);
                cx.event(Event::ElectionFailed { role: name.clone(), cause: Cause::Outrun });
            }
            Outcome::Failed(fate) => {
                role.not_before = role.not_before.max(retry);
                if fate == crate::Fate::Unknown {
                    role.maybe_stray = true;
                    self.learn(name, View::Unknown, cx);
                    self.look_again(self.named(Kind::Role, name));
                }
                cx.event(Event::ElectionFailed { role: name.clone(), cause: Cause::Store });
            }
        }
    }

    /// Rule 4: it grants only if the session *named in it* is still valid now.
    pub(in crate::engine) fn claim_applied(
        &mut self,
        name: &Name,
        session: SessionId,
        version: Version,
        record: RoleRecord,
        cx: &mut Cx<'_>,
    ) {
        let token = record.token;
        self.learn(name, View::Seen { version, record, hinted: false }, cx);
        let credited = self.session_usable().is_some() && self.mutated(Mutant::AckCreditedToLaterSession);
        if self.session_usable() != Some(session) && !credited {
            return;
        }
        let after = self.ops.upcoming();
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Verifying { after, token, version };
        }
        self.look.soon();
        self.look.verifying(name);
        if self.mutated(Mutant::PauseNotReread) {
            self.elect(name, cx);
        }
    }

    /// A look that began after the claim has been answered: the last word before the election.
    pub(in crate::engine) fn look_done(&mut self, op: OpId, cx: &mut Cx<'_>) {
        for name in self.look.take_verifying() {
            match self.roles.get(&name).map(|role| &role.stage) {
                Some(Stage::Verifying { after, .. }) if *after <= op => self.elect(&name, cx),
                Some(Stage::Verifying { .. }) => self.look.verifying(&name),
                _ => {}
            }
        }
        self.obey_all(cx);
    }

    pub(in crate::engine) fn elect(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Stage::Verifying { token, version, .. } = role.stage else { return };
        if self.session_usable().is_none() {
            return;
        }
        let barred = self.barred(name, role) && !self.mutated(Mutant::PauseNotReread);
        // A store that has just been seen to forget may have let us claim what somebody still leads.
        let (reason, cause) = match () {
            () if self.store_forgot() => (Reason::Forgotten, Cause::Forgotten),
            () if barred => (Reason::Paused, Cause::Paused),
            () => return self.begin_tenure(name, token, version, cx),
        };
        self.begin_resigning(name, version, reason, None);
        cx.event(Event::ElectionFailed { role: name.clone(), cause });
        self.consider(name, cx);
    }

    fn begin_tenure(&mut self, name: &Name, token: Token, version: Version, cx: &mut Cx<'_>) {
        let since = self.now.time;
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Leading { token, version, since };
            role.work = Some(token);
            role.doubts = 0;
        }
        self.working.insert(name.clone());
        cx.event(Event::Elected { role: name.clone(), token });
        self.tell_state(name, cx);
        self.tell_leader(name, cx);
    }
}
