//! Roles: following, claiming, leading, draining, resigning.
//!
//! Rules 4, 5 and 6. A claim is one compare-and-set on the version that the decision was based on; it grants only if
//! the session named in it is still valid when the answer is processed in time. A role is given up once its work has
//! stopped, and a tenure that was given up is never led again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::io::{Cause, Standing, State};
use crate::record::{Holder, Reason, Record, Role as RoleRecord};
use crate::{Entry, Event, Kind, Mutant, Name, OpId, Outcome, Reply, SessionId, Time, Token, Version, Write};

use super::ops::Purpose;
use super::{BATCH, BATCHES_AWAITED, Class, Cx, Engine, Run};

/// One role that this node stands for or watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Role {
    /// How we stand for it; none: we only watch.
    pub(super) standing: Option<Standing>,
    /// Forget it as soon as nothing of it is left.
    withdrawn: bool,
    pub(super) view: View,
    /// Reads sent before this operation are too old to tell.
    view_op: OpId,
    pub(super) stage: Stage,
    /// The tenure whose work was started and has not stopped.
    work: Option<Token>,
    /// The highest token ever seen.
    highest: Token,
    watched_since: Time,
    /// Since when it may be claimed, and how long we leave it to others.
    free: Option<(Time, Duration)>,
    /// Standing back after a failure.
    not_before: Time,
    /// When it is considered again.
    due: Option<Time>,
    /// A claim of this session went unanswered: it may be applied yet.
    maybe_stray: bool,
    /// How often in a row a look did not show our tenure.
    doubts: u8,
    told_state: State,
    told_leader: Option<Name>,
}

/// What is known of a role register.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum View {
    /// Nothing, or nothing any more.
    Unknown,
    /// It does not exist.
    Absent,
    /// It holds this. Known from a hint only, it may be wrong.
    Seen {
        /// Its version.
        version: Version,
        /// Its content.
        record: RoleRecord,
        /// Whether only a hint said so.
        hinted: bool,
    },
}

impl View {
    pub(super) fn record(&self) -> Option<&RoleRecord> {
        match self {
            Self::Seen { record, .. } => Some(record),
            _ => None,
        }
    }

    fn version(&self) -> Option<Version> {
        match self {
            Self::Seen { version, .. } => Some(*version),
            _ => None,
        }
    }

    fn holder(&self) -> Option<&Holder> {
        self.record().and_then(|record| record.holder.as_ref())
    }
}

/// What we do about a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Nothing.
    Following,
    /// The claim is on its way.
    Claiming { op: OpId, session: SessionId, version: Version, record: RoleRecord },
    /// The register is ours; what operators ask is read once more before anybody hears of it.
    Verifying { after: OpId, token: Token, version: Version },
    /// Ours, and worked.
    Leading { token: Token, version: Version, since: Time },
    /// The work was told to stop.
    Draining { token: Token, version: Version, reason: Reason, successor: Option<Name> },
    /// The work has stopped; the register is told.
    Resigning(Resigning),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Resigning {
    expect: Version,
    writing: Option<(OpId, Version, RoleRecord)>,
    unsure: Vec<Version>,
    retry_at: Time,
    reason: Reason,
    successor: Option<Name>,
}

impl Stage {
    /// The token of a tenure that may be relied on.
    pub(super) fn tenure(&self) -> Option<Token> {
        match self {
            Self::Leading { token, .. } | Self::Draining { token, .. } => Some(*token),
            _ => None,
        }
    }
}

/// What is known of a role, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleStatus<'a> {
    /// This node's part in it.
    pub state: State,
    /// The register, as last seen.
    pub view: &'a View,
    /// Whether the holder's session is known to be over.
    pub holder_over: bool,
}

/// What a role wants next.
enum Desire {
    Nothing,
    Wait(Time),
    Claim,
    Resign,
}

impl Role {
    fn new(now: Time) -> Self {
        Self {
            standing: None,
            withdrawn: false,
            view: View::Unknown,
            view_op: OpId(0),
            stage: Stage::Following,
            work: None,
            highest: Token(0),
            watched_since: now,
            free: None,
            not_before: now,
            due: None,
            maybe_stray: false,
            doubts: 0,
            told_state: State::Follower,
            told_leader: None,
        }
    }
}

// What the caller asks.
impl Engine {
    pub(super) fn stand(&mut self, name: &Name, standing: Option<Standing>, cx: &mut Cx<'_>) {
        let now = self.now.time;
        let known = self.roles.contains_key(name);
        let role = self.roles.entry(name.clone()).or_insert_with(|| Role::new(now));
        role.withdrawn = false;
        // Watching a role that we stand for already changes nothing.
        if let Some(standing) = standing {
            role.standing = Some(standing);
        }
        self.card.outdate();
        if !known && self.epoch().is_some() {
            self.look.again(self.named(Kind::Role, name));
        }
        self.note_preemption(name);
        self.obey(name, cx);
        self.consider(name, cx);
    }

    pub(super) fn withdraw(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        role.withdrawn = true;
        self.card.outdate();
        self.drain(name, Reason::Ineligible, None, cx);
        self.forget_withdrawn(name);
    }

    fn forget_withdrawn(&mut self, name: &Name) {
        let Some(role) = self.roles.get(name) else { return };
        let idle = matches!(role.stage, Stage::Following) && role.work.is_none() && !role.maybe_stray;
        if !(role.withdrawn && idle) {
            return;
        }
        self.unindex(name);
        self.set_due(name, None);
        self.ready.remove(name);
        self.roles.remove(name);
    }

    pub(super) fn release(&mut self, name: &Name, token: Token, reason: Reason, cx: &mut Cx<'_>) {
        let now = self.now.time;
        let Some(role) = self.roles.get_mut(name).filter(|role| role.stage.tenure() == Some(token)) else {
            return;
        };
        if reason == Reason::WorkFailed {
            let cool_down = role.standing.as_ref().map_or(Duration::ZERO, |standing| standing.cool_down);
            role.not_before = now.after(cool_down);
        }
        self.drain(name, reason, None, cx);
    }

    /// Rule 6: only now may the role be given up.
    pub(super) fn work_stopped(&mut self, name: &Name, token: Token, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name).filter(|role| role.work == Some(token)) else { return };
        role.work = None;
        self.working.remove(name);
        self.drain(name, Reason::Finished, None, cx);
        if self.session.open_id().is_some() {
            self.resign_drained(name, cx);
        }
        self.consider(name, cx);
        self.forget_withdrawn(name);
    }

    pub(super) fn drain_all(&mut self, reason: Reason, cx: &mut Cx<'_>) {
        for name in self.led() {
            self.drain(&name, reason, None, cx);
        }
    }

    fn led(&self) -> Vec<Name> {
        let led = |role: &Role| role.stage.tenure().is_some();
        self.roles.iter().filter(|(_, role)| led(role)).map(|(name, _)| name.clone()).collect()
    }
}

// Beginnings.
impl Engine {
    pub(super) fn drive_roles(&mut self, cx: &mut Cx<'_>) {
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

    fn send_ready(&mut self, cx: &mut Cx<'_>) {
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
    pub(super) fn consider(&mut self, name: &Name, cx: &mut Cx<'_>) {
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
    pub(super) fn consider_all(&mut self) {
        let names: Vec<Name> = self.roles.keys().cloned().collect();
        for name in names {
            self.set_due(&name, Some(self.now.time));
        }
    }

    fn set_due(&mut self, name: &Name, at: Option<Time>) {
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

    fn note_free(&mut self, name: &Name) {
        let Some(role) = self.roles.get(name) else { return };
        let free = match (self.claimable(role), role.free) {
            (false, _) => None,
            (true, Some(free)) => Some(free),
            (true, None) => Some((self.now.time, self.turn(name, role, role.highest.0))),
        };
        if let Some(role) = self.roles.get_mut(name) {
            role.free = free;
        }
    }

    /// Rule 4: no holder, or a holder whose session a committed read showed to be over; or ourselves, astray.
    fn claimable(&self, role: &Role) -> bool {
        if !matches!(role.stage, Stage::Following) {
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
    fn is_stray(&self, role: &Role) -> bool {
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
        let earliest = self.earliest_claim(role);
        if self.now.time >= earliest { Desire::Claim } else { Desire::Wait(earliest) }
    }

    fn earliest_claim(&self, role: &Role) -> Time {
        let (since, turn) = role.free.unwrap_or((self.now.time, Duration::ZERO));
        let mut earliest = since.after(turn).max(role.not_before).max(self.cluster.quarantined_until);
        if self.config.class == Class::C && !self.mutated(Mutant::QuarantineSkipped) {
            earliest = earliest.max(role.watched_since.after(self.longest_watch()));
        }
        earliest
    }

    /// Whether something other than the election itself keeps us from leading.
    fn barred(&self, name: &Name, role: &Role) -> bool {
        let stands = role.standing.as_ref().is_some_and(|standing| standing.eligible) && !role.withdrawn;
        !stands || self.run != Run::Running || self.drained || self.forbidden(name).is_some()
    }

    fn role_write(&mut self, name: &Name, cx: &mut Cx<'_>) -> Option<Write> {
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

    fn claim(&mut self, name: &Name, cx: &mut Cx<'_>) -> Option<Write> {
        let session = self.session_usable()?;
        let role = self.roles.get(name)?;
        let record = self.claim_record(role, session);
        let (expect, version) = (role.view.version(), cx.version());
        let (op, key) = (self.ops.upcoming(), self.named(Kind::Role, name));
        let role = self.roles.get_mut(name)?;
        role.stage = Stage::Claiming { op, session, version, record: record.clone() };
        self.tell_state(name, cx);
        Some(Write { key, expect, put: Some((version, Record::Role(record))), ring: true })
    }

    fn claim_record(&self, role: &Role, session: SessionId) -> RoleRecord {
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
    fn next_token(&self, role: &Role) -> Token {
        let seen = role.view.record().map_or(Token(0), |record| record.token).max(role.highest);
        if self.mutated(Mutant::TokenNotRaised) && seen > Token(0) {
            return seen;
        }
        let floor = if self.config.class == Class::C && !self.mutated(Mutant::NoTokenFloor) {
            Token(self.now.wall.0.min(Token::MAX.0))
        } else {
            Token(0)
        };
        seen.next().max(floor)
    }

    pub(super) fn role_written(&mut self, op: OpId, name: &Name, outcome: Outcome, cx: &mut Cx<'_>) {
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

    fn claimed(&mut self, name: &Name, outcome: Outcome, cx: &mut Cx<'_>) {
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
    fn claim_applied(
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
    pub(super) fn look_done(&mut self, op: OpId, cx: &mut Cx<'_>) {
        for name in self.look.take_verifying() {
            match self.roles.get(&name).map(|role| &role.stage) {
                Some(Stage::Verifying { after, .. }) if *after <= op => self.elect(&name, cx),
                Some(Stage::Verifying { .. }) => self.look.verifying(&name),
                _ => {}
            }
        }
        self.obey_all(cx);
    }

    fn elect(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Stage::Verifying { token, version, .. } = role.stage else { return };
        if self.session_usable().is_none() {
            return;
        }
        if self.barred(name, role) && !self.mutated(Mutant::PauseNotReread) {
            self.begin_resigning(name, version, Reason::Paused, None);
            cx.event(Event::ElectionFailed { role: name.clone(), cause: Cause::Paused });
            return self.consider(name, cx);
        }
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

// Endings.
impl Engine {
    /// Tells the work to stop. The role is given up once it has.
    pub(super) fn drain(&mut self, name: &Name, reason: Reason, successor: Option<Name>, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Leading { token, version, .. } = role.stage else { return };
        role.stage = Stage::Draining { token, version, reason, successor };
        let working = role.work.is_some();
        if working {
            cx.event(Event::Draining { role: name.clone(), token, reason, forced: false });
        }
        self.tell_state(name, cx);
        if !working || self.mutated(Mutant::ReleaseBeforeStopped) {
            self.resign_drained(name, cx);
        }
    }

    /// The lease runs out: whatever has not stopped by the deadline must be killed.
    pub(super) fn drain_forced(&mut self, reason: Reason, cx: &mut Cx<'_>) {
        for name in self.led() {
            let Some(role) = self.roles.get_mut(&name) else { continue };
            let (Stage::Leading { token, version, .. } | Stage::Draining { token, version, .. }) = role.stage
            else {
                continue;
            };
            role.stage = Stage::Draining { token, version, reason, successor: None };
            cx.event(Event::Draining { role: name.clone(), token, reason, forced: true });
            self.tell_state(&name, cx);
        }
    }

    /// From the decision to resign the tenure is invalid here, before the write is sent.
    fn resign_drained(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let Stage::Draining { token, version, reason, successor } = role.stage.clone() else { return };
        self.begin_resigning(name, version, reason, successor);
        cx.event(Event::Lost { role: name.clone(), token, reason });
        self.consider(name, cx);
    }

    fn begin_resigning(&mut self, name: &Name, expect: Version, reason: Reason, successor: Option<Name>) {
        // When everything stops, one write that closes the session frees all roles; it gets a moment's precedence.
        let hold = if self.run == Run::Stopping { Duration::from_millis(20) } else { Duration::ZERO };
        let retry_at = self.now.time.after(hold);
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Resigning(Resigning {
                expect,
                writing: None,
                unsure: Vec::new(),
                retry_at,
                reason,
                successor,
            });
        }
    }

    fn resign(&mut self, name: &Name, cx: &mut Cx<'_>) -> Option<Write> {
        let (op, version) = (self.ops.upcoming(), cx.version());
        let (key, wall, node) = (self.named(Kind::Role, name), self.now.wall, self.config.node.clone());
        let role = self.roles.get_mut(name)?;
        let token = role.view.record().map_or(role.highest, |record| record.token);
        let Stage::Resigning(resigning) = &mut role.stage else { return None };
        let record = RoleRecord {
            token,
            holder: None,
            since: wall,
            reason: resigning.reason,
            previous: Some(node),
            successor: resigning.successor.clone(),
        };
        resigning.writing = Some((op, version, record.clone()));
        Some(Write {
            key,
            expect: Some(resigning.expect),
            put: Some((version, Record::Role(record))),
            ring: true,
        })
    }

    fn resigned(&mut self, name: &Name, outcome: Outcome, cx: &mut Cx<'_>) {
        let retry = self.now.time.after(self.retry_delay());
        let clobber = self.mutated(Mutant::UnconditionalRelease);
        let Some(role) = self.roles.get_mut(name) else { return };
        let Stage::Resigning(resigning) = &mut role.stage else { return };
        let Some((_, version, record)) = resigning.writing.take() else { return };
        match outcome {
            Outcome::Applied => self.given_up(name, View::Seen { version, record, hinted: false }, cx),
            Outcome::Conflict(Some(entry)) if clobber => {
                (resigning.expect, resigning.retry_at) = (entry.version, retry)
            }
            Outcome::Conflict(found) => {
                let view = View::of(found.as_ref(), false);
                let ours = view.version().is_some_and(|v| resigning.unsure.contains(&v) || v == version);
                if ours {
                    self.given_up(name, view, cx);
                } else {
                    role.stage = Stage::Following;
                    self.learn(name, view, cx);
                }
            }
            Outcome::Failed(_) => {
                resigning.unsure.push(version);
                resigning.retry_at = retry;
            }
        }
    }

    fn given_up(&mut self, name: &Name, view: View, cx: &mut Cx<'_>) {
        if let Some(role) = self.roles.get_mut(name) {
            role.stage = Stage::Following;
        }
        self.count_freed();
        self.learn(name, view, cx);
    }

    /// The session ends: claims and resignations made under it are of no use any more.
    pub(super) fn abandon_claims(&mut self, cx: &mut Cx<'_>) {
        let credited = self.mutated(Mutant::AckCreditedToLaterSession);
        let names: Vec<Name> = self.roles.keys().cloned().collect();
        for name in names {
            let Some(role) = self.roles.get_mut(&name) else { continue };
            role.maybe_stray = false;
            if credited && matches!(role.stage, Stage::Claiming { .. }) {
                continue;
            }
            match role.stage {
                Stage::Claiming { .. } => {
                    role.stage = Stage::Following;
                    self.learn(&name, View::Unknown, cx);
                    self.look_again(self.named(Kind::Role, &name));
                    cx.event(Event::ElectionFailed { role: name.clone(), cause: Cause::SessionOver });
                }
                Stage::Resigning(_) => {
                    role.stage = Stage::Following;
                    self.learn(&name, View::Unknown, cx);
                    self.look_again(self.named(Kind::Role, &name));
                }
                Stage::Verifying { .. } => {
                    role.stage = Stage::Following;
                    cx.event(Event::ElectionFailed { role: name.clone(), cause: Cause::SessionOver });
                }
                _ => continue,
            }
            self.consider(&name, cx);
            self.forget_withdrawn(&name);
        }
    }

    /// Every tenure is over, now.
    pub(super) fn lose_all(&mut self, reason: Reason, cx: &mut Cx<'_>) {
        for name in self.led() {
            self.lose(&name, reason, cx);
        }
    }

    fn lose(&mut self, name: &Name, reason: Reason, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let Some(token) = role.stage.tenure() else { return };
        role.stage = Stage::Following;
        cx.event(Event::Lost { role: name.clone(), token, reason });
        self.consider(name, cx);
        self.tell_leader(name, cx);
        self.forget_withdrawn(name);
    }
}

// What is seen of the registers.
impl View {
    fn of(found: Option<&Entry>, hinted: bool) -> Self {
        match found {
            None => Self::Absent,
            Some(Entry { version, value: Record::Role(record), .. }) => {
                Self::Seen { version: *version, record: record.clone(), hinted }
            }
            // Unreadable: left alone.
            Some(_) => Self::Unknown,
        }
    }

    /// A register only ever moves up in this order: the next token, or the same token given up.
    fn progress(&self) -> (Token, bool) {
        self.record().map_or((Token(0), true), |record| (record.token, record.holder.is_none()))
    }
}

impl Engine {
    /// Takes in what a committed read showed.
    pub(super) fn saw_role(&mut self, op: OpId, name: &Name, found: Option<&Entry>, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        if op < role.view_op {
            return;
        }
        if let Some(entry) = found.filter(|entry| !matches!(entry.value, Record::Role(_))) {
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

    fn follow(&mut self, name: &Name, view: View, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let hinted = matches!(role.view, View::Seen { hinted: true, .. });
        let back = view.progress() < role.view.progress() || view.progress().0 < role.highest;
        if back && !hinted {
            match self.config.class {
                // Nothing is ever forgotten there: the read was stale.
                Class::A | Class::B if !matches!(view, View::Absent) => return,
                Class::A | Class::B => {}
                Class::C => self.quarantine(cx),
            }
        }
        self.learn(name, view, cx);
        if self.mutated(Mutant::TenureReled) {
            self.lead_again(name, cx);
        }
        self.consider(name, cx);
    }

    /// A leader that twice does not find its tenure in the register has lost it, whatever became of it.
    fn audit(&mut self, name: &Name, ours: bool, view: View, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let superseded = view.progress().0 > role.highest;
        role.doubts = if ours { 0 } else { role.doubts + 1 };
        if ours || (role.doubts < 2 && !superseded) {
            return;
        }
        self.lose(name, Reason::Forgotten, cx);
        self.learn(name, view, cx);
        self.consider(name, cx);
    }

    /// A hint may be claimed on directly, because the compare-and-set decides; what it says is read again later.
    pub(super) fn hinted_role(&mut self, name: &Name, entry: &Entry, cx: &mut Cx<'_>) {
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
    fn learn(&mut self, name: &Name, view: View, cx: &mut Cx<'_>) {
        let view_op = self.ops.upcoming();
        let former_holder = self.unindex(name);
        let Some(role) = self.roles.get_mut(name) else { return };
        let resurrected =
            view.record().map(|record| record.token) == role.view.record().map(|record| record.token);
        if let View::Seen { record, hinted: false, .. } = &view {
            role.highest = role.highest.max(record.token);
        }
        if role.view.version() != view.version() {
            role.free = None;
        }
        role.view = view;
        role.view_op = view_op;
        let holder = role.view.holder().map(|holder| holder.session);
        if let Some(session) = holder {
            self.held_by.entry(session).or_default().insert(name.clone());
            if Some(session) != self.session.own_id() && !self.peers.contains_key(&session) {
                self.watch_session(session);
            }
        }
        if former_holder != holder {
            former_holder.into_iter().for_each(|session| self.account_freed(session, true));
            holder.filter(|_| resurrected).into_iter().for_each(|session| self.account_freed(session, false));
        }
        self.tell_leader(name, cx);
    }

    fn unindex(&mut self, name: &Name) -> Option<SessionId> {
        let session = self.roles.get(name)?.view.holder()?.session;
        if let Some(names) = self.held_by.get_mut(&session) {
            names.remove(name);
            if names.is_empty() {
                self.held_by.remove(&session);
            }
        }
        Some(session)
    }

    /// A session is over: the roles in its name may be claimed.
    pub(super) fn holder_over(&mut self, session: SessionId, cx: &mut Cx<'_>) {
        let names: Vec<Name> = self.held_by.get(&session).into_iter().flatten().cloned().collect();
        for name in names {
            let Some(role) = self.roles.get(&name) else { continue };
            if let Some(former) = role.told_leader.clone().filter(|_| matches!(role.stage, Stage::Following))
            {
                cx.event(Event::LeaderDown { role: name.clone(), former });
            }
            self.tell_leader(&name, cx);
            self.consider(&name, cx);
        }
    }

    /// The store forgot everything.
    pub(super) fn forget_views(&mut self) {
        let (now, op) = (self.now.time, self.ops.upcoming());
        self.held_by.clear();
        for role in self.roles.values_mut() {
            role.view = View::Unknown;
            role.view_op = op;
            role.watched_since = now;
            role.free = None;
        }
        self.consider_all();
    }
}

// What is told.
impl Engine {
    fn state(&self, name: &Name, role: &Role) -> State {
        match &role.stage {
            Stage::Leading { .. } => State::Leader,
            Stage::Draining { .. } => State::Draining,
            Stage::Claiming { .. } | Stage::Verifying { .. } => State::Candidate,
            _ if self.is_paused(name) => State::Paused,
            Stage::Following if role.free.is_some() && !self.barred(name, role) => State::Candidate,
            _ => State::Follower,
        }
    }

    fn tell_state(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let (from, to) = (role.told_state, self.state(name, role));
        if from != to {
            if let Some(role) = self.roles.get_mut(name) {
                role.told_state = to;
            }
            cx.event(Event::StateChanged { role: name.clone(), from, to });
        }
    }

    fn tell_leader(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get(name) else { return };
        let leader = role.view.holder().filter(|holder| {
            if Some(holder.session) == self.session.own_id() {
                role.stage.tenure().is_some()
            } else {
                !self.is_over(holder.session)
            }
        });
        let leader = leader.map(|holder| holder.node.clone());
        if leader == role.told_leader {
            return;
        }
        let token = role.view.record().map_or(role.highest, |record| record.token);
        if let Some(role) = self.roles.get_mut(name) {
            let former = std::mem::replace(&mut role.told_leader, leader.clone());
            cx.event(Event::LeaderChanged { role: name.clone(), former, leader, token });
        }
    }

    pub(super) fn role_status<'a>(&self, role: &'a Role) -> RoleStatus<'a> {
        let holder_over = role.view.holder().is_some_and(|holder| self.is_over(holder.session));
        RoleStatus { state: role.told_state, view: &role.view, holder_over }
    }

    /// The roles that we stand for, with our priority for each.
    pub(super) fn candidacies(&self) -> BTreeMap<Name, i32> {
        let stands = |role: &Role| {
            role.standing.as_ref().filter(|s| s.eligible && !role.withdrawn).map(|s| s.priority)
        };
        self.roles.iter().filter_map(|(name, role)| Some((name.clone(), stands(role)?))).collect()
    }
}

// Mistakes that need more than one wrong line.
impl Engine {
    /// "It is in my name, so I lead it."
    fn lead_again(&mut self, name: &Name, cx: &mut Cx<'_>) {
        let Some(role) = self.roles.get_mut(name) else { return };
        let (Some(record), Some(version)) = (role.view.record(), role.view.version()) else { return };
        let mine =
            record.holder.as_ref().is_some_and(|holder| Some(holder.session) == self.session.open_id());
        if mine && role.work.is_none() {
            role.stage = Stage::Verifying { after: OpId(0), token: record.token, version };
            self.elect(name, cx);
        }
    }

    /// "It was applied, so I lead."
    pub(super) fn believe_late_reply(&mut self, _op: OpId, reply: &Reply, cx: &mut Cx<'_>) {
        let Reply::Written(outcomes) = reply else { return };
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Applied)) {
            let names: Vec<Name> = self.roles.keys().cloned().collect();
            for name in names {
                self.lead_again(&name, cx);
            }
        }
    }
}
