//! Our own session: proof of life, and the deadline of everything we lead.
//!
//! Rules 1, 2, 3 and 6. Validity counts from *before* a beat was sent, and only an acknowledged beat extends it.
//! When it can no longer be saved, the work is told to stop while there is still time; the session is closed once
//! the work has stopped, and only then is the next one opened.

use crate::record::{
    EndReason, LivenessLock, MAX_FREED_LATELY, Record, Session as SessionRecord, SessionState,
};
use crate::{
    Entry, Event, Fate, Key, Name, OpId, Outcome, Output, SessionId, Takeover, Time, Version, Write,
};

use super::ops::Purpose;
use super::{Engine, Lifecycle, StepContext};

/// So many beats of a new session come before it rests, so that others see it move.
const FIRST_BEATS: u8 = 2;

/// How often a liveness lock that does not come in time is asked for anew, where it matters.
const LOCK_TRIES: u32 = 8;

/// Our own session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OwnSession {
    stage: SessionStage,
}

impl Default for OwnSession {
    fn default() -> Self {
        Self { stage: SessionStage::None { retry_at: Time::from_nanos(0) } }
    }
}

/// How far our session is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SessionStage {
    /// None is open; the next one may be opened from then on.
    None { retry_at: Time },
    /// The store acquires its liveness lock.
    AcquiringLock { id: SessionId, since: Time, tries: u32 },
    /// The one write that opens it is on its way. Unacknowledged, the id is abandoned, and closed before another is opened.
    Opening { op: OpId, sent_at: Time, own: OwnRegister },
    /// It is ours, and valid until its deadline.
    Open(OpenSession),
    /// It is not renewed any more. Waits for the work to stop, then closes.
    Ending { own: OwnRegister, valid_until: Time, gone: bool, reason: EndReason },
    /// The work has stopped; the close of the register is pending. No reason: it was never open.
    Closing { own: OwnRegister, writing: Option<OpId>, retry_at: Time, reason: Option<EndReason> },
}

/// A session register that is ours: what we wrote into it last, and what we may have written since.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OwnRegister {
    id: SessionId,
    /// The last version known to be there; none: the register is absent.
    version: Option<Version>,
    record: SessionRecord,
    /// Versions that were sent without an answer: any of them may be there.
    unacknowledged: Vec<Version>,
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OpenSession {
    own: OwnRegister,
    valid_until: Time,
    next_beat: Time,
    pending_beat: Option<PendingBeat>,
    in_doubt: bool,
    /// The record tells something that no beat carries yet.
    has_news: bool,
    /// So many beats are still to come before others have seen it move.
    first_beats: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PendingBeat {
    op: OpId,
    sent_at: Time,
    version: Version,
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndMode {
    /// The lease runs out: the work has until the deadline to stop.
    AtDeadline,
    /// Nothing may be relied on any more, but the register may still say that we live.
    AtOnce,
    /// The register says that it is over, or is gone.
    RegisterGone,
}

impl OwnSession {
    /// The session on which tenures rest, and until when.
    pub(super) fn validity(&self) -> Option<(SessionId, Time)> {
        match &self.stage {
            SessionStage::Open(open) => Some((open.own.id, open.valid_until)),
            SessionStage::Ending { own, valid_until, .. } => Some((own.id, *valid_until)),
            _ => None,
        }
    }

    /// The session under which claims may be made.
    pub(super) fn open_id(&self) -> Option<SessionId> {
        match &self.stage {
            SessionStage::Open(open) => Some(open.own.id),
            _ => None,
        }
    }

    /// Whether others have been told all that the record says, and have seen it move.
    pub(super) fn is_told(&self) -> bool {
        matches!(&self.stage, SessionStage::Open(open)
            if !open.has_news && !open.in_doubt && !open.own.record.holds_back && open.first_beats == 0)
    }

    /// What a dropped connection means for the open session.
    pub(super) fn takeover(&self) -> Option<Takeover> {
        match &self.stage {
            SessionStage::Open(open) => Some(open.own.record.takeover),
            _ => None,
        }
    }

    /// Every id that is ours now, in whatever state.
    pub(super) fn own_id(&self) -> Option<SessionId> {
        match &self.stage {
            SessionStage::None { .. } => None,
            SessionStage::AcquiringLock { id, .. } => Some(*id),
            SessionStage::Open(open) => Some(open.own.id),
            SessionStage::Opening { own, .. }
            | SessionStage::Ending { own, .. }
            | SessionStage::Closing { own, .. } => Some(own.id),
        }
    }
}

impl Engine {
    /// The session under which claims may be made: open, and not about to end.
    pub(super) fn session_usable(&self) -> Option<SessionId> {
        match &self.session.stage {
            SessionStage::Open(open) if self.now.time < self.rules.cancel_at(open.valid_until) => {
                Some(open.own.id)
            }
            _ => None,
        }
    }

    /// Counts a write of our node register, so that followers read it again even if the hint is lost.
    pub(super) fn count_node_write(&mut self) {
        if let SessionStage::Open(open) = &mut self.session.stage {
            open.own.record.node_writes += 1;
            open.has_news = true;
        }
    }

    /// Counts a resigned role, so that followers read it again even if the hint is lost.
    pub(super) fn count_freed(&mut self, role: &Name) {
        if let SessionStage::Open(open) = &mut self.session.stage {
            open.has_news = true;
            let record = &mut open.own.record;
            record.freed += 1;
            record.freed_lately.push(role.clone());
            let excess = record.freed_lately.len().saturating_sub(MAX_FREED_LATELY);
            record.freed_lately.drain(..excess);
        }
    }

    pub(super) fn session_wake(&self) -> Time {
        match &self.session.stage {
            SessionStage::None { retry_at }
                if self.lifecycle == Lifecycle::Running && self.cluster_ready() =>
            {
                *retry_at
            }
            SessionStage::AcquiringLock { since, .. } => since.after(self.rules.timing().op_timeout),
            SessionStage::Open(open) if open.pending_beat.is_none() => {
                self.beat_due(open).min(self.rules.beats_end_at(open.valid_until))
            }
            SessionStage::Open(open) => self.rules.beats_end_at(open.valid_until),
            SessionStage::Ending { valid_until, .. } if *valid_until > self.now.time => *valid_until,
            SessionStage::Closing { writing: None, retry_at, .. } => *retry_at,
            _ => Time::NEVER,
        }
    }

    /// When the next beat is due. A session that rested beats as soon as there is a reason to: a claim has its whole lease then.
    fn beat_due(&self, open: &OpenSession) -> Time {
        let rested = open.own.record.every > self.rules.timing().beat;
        if rested && !open.in_doubt && !self.is_resting() { self.now.time } else { open.next_beat }
    }

    /// Rule 6: the work is told to stop at `deadline − stop_grace`; at the deadline every tenure is over.
    pub(super) fn expire_session(&mut self, ctx: &mut StepContext<'_>) {
        if !self.rules.deadlines_count() {
            return;
        }
        if let SessionStage::Open(open) = &self.session.stage
            && self.now.time >= self.rules.beats_end_at(open.valid_until)
        {
            self.end_session(EndReason::LeaseExpired, EndMode::AtDeadline, ctx);
        }
        if let SessionStage::Ending { valid_until, reason, .. } = self.session.stage
            && self.now.time >= valid_until
        {
            self.lose_all(reason, ctx);
        }
    }

    pub(super) fn drive_session(&mut self, ctx: &mut StepContext<'_>) {
        match &self.session.stage {
            SessionStage::None { retry_at } => {
                let due = self.now.time >= *retry_at;
                if self.lifecycle == Lifecycle::Stopping {
                    self.finish();
                } else if due && self.cluster_ready() {
                    self.acquire_lock(1, ctx);
                }
            }
            SessionStage::AcquiringLock { id, since, tries } => {
                let tries = *tries;
                let (id, late) = (*id, self.now.time >= since.after(self.rules.timing().op_timeout));
                if self.stays_out() && self.lifecycle == Lifecycle::Running {
                    ctx.out.push(Output::ReleaseLock { session: id });
                    self.session.stage = SessionStage::None { retry_at: self.now.time };
                } else if self.lifecycle == Lifecycle::Stopping {
                    ctx.out.push(Output::ReleaseLock { session: id });
                    self.finish();
                } else if late && self.rules.timing().takeover == Takeover::OnDisconnect && tries < LOCK_TRIES
                {
                    // The connection that is to hold it may be on its way.
                    ctx.out.push(Output::ReleaseLock { session: id });
                    self.acquire_lock(tries + 1, ctx);
                } else if late {
                    self.open(id, None, ctx);
                }
            }
            SessionStage::Opening { .. } => {
                if self.lifecycle == Lifecycle::Stopping {
                    self.close_opening(ctx);
                }
            }
            SessionStage::Open(_) => self.drive_open(ctx),
            SessionStage::Ending { .. } => self.drive_ending(ctx),
            SessionStage::Closing { .. } => self.drive_closing(ctx),
        }
    }

    fn finish(&mut self) {
        self.lifecycle = Lifecycle::Stopped;
        self.session.stage = SessionStage::None { retry_at: self.now.time };
    }

    fn acquire_lock(&mut self, tries: u32, ctx: &mut StepContext<'_>) {
        let id = SessionId::new(ctx.entropy.nonce());
        self.session.stage = SessionStage::AcquiringLock { id, since: self.now.time, tries };
        ctx.out.push(Output::AcquireLock { session: id, takeover: self.rules.timing().takeover });
    }

    pub(super) fn lock_acquired(
        &mut self,
        session: SessionId,
        lock: Option<LivenessLock>,
        ctx: &mut StepContext<'_>,
    ) {
        if matches!(&self.session.stage, SessionStage::AcquiringLock { id, .. } if *id == session)
            && self.lifecycle == Lifecycle::Running
        {
            self.open(session, lock, ctx);
        }
    }

    /// Rule 2: one write opens a session id. Without a liveness lock of the connection, only the lease can count, and the
    /// record says so: both sides know.
    fn open(&mut self, id: SessionId, lock: Option<LivenessLock>, ctx: &mut StepContext<'_>) {
        let timing = self.rules.timing();
        let takeover = match &lock {
            Some(lock) if lock.connection => timing.takeover,
            _ => Takeover::Strict,
        };
        if takeover != timing.takeover {
            ctx.event(Event::NoLivenessLock { session: id });
        }
        let record = SessionRecord {
            node: self.node.clone(),
            beat: 1,
            freed: 0,
            freed_lately: Vec::new(),
            node_writes: 0,
            holds_back: !self.may_claim_all(),
            ttl: timing.ttl,
            every: timing.watch(),
            takeover,
            grace: timing.grace,
            liveness_lock: lock,
            state: SessionState::Live,
            beat_at: self.now.wall,
        };
        let own = OwnRegister { id, version: Some(ctx.version()), record, unacknowledged: Vec::new() };
        self.send_opening(own, ctx);
    }

    fn send_opening(&mut self, own: OwnRegister, ctx: &mut StepContext<'_>) {
        let put = own.version.map(|version| (version, Record::Session(own.record.clone())));
        let requires_lock = own.record.takeover == Takeover::OnDisconnect;
        let write = Write { key: self.session_key(own.id), expect: None, put, notify: false, requires_lock };
        let op = self.send_writes(vec![write], Purpose::Open, ctx);
        self.session.stage = SessionStage::Opening { op, sent_at: self.now.time, own };
    }

    pub(super) fn session_key(&self, id: SessionId) -> Key {
        Key::Session(self.epoch().unwrap_or_default(), id)
    }

    pub(super) fn open_answered(&mut self, op: OpId, outcome: &Outcome, ctx: &mut StepContext<'_>) {
        let SessionStage::Opening { op: awaited, sent_at, own } = &self.session.stage else { return };
        if *awaited != op {
            return;
        }
        let (sent_at, own) = (*sent_at, own.clone());
        let valid_until = sent_at.after(self.rules.validity(&own.record));
        match outcome {
            Outcome::Applied if self.now.time < self.rules.cancel_at(valid_until) => {
                self.start_beating(own, sent_at, ctx)
            }
            Outcome::Failed(_) if !self.rules.abandons_openings() => self.send_opening(own, ctx),
            Outcome::Conflict(Some(_)) if !self.rules.abandons_openings() => {
                // "It is there, so it must have been ours."
                self.start_beating(own, self.now.time, ctx);
            }
            // It is there, or may yet come. What a store that is too slow acknowledges too late would else count as live with every
            // node, one register for each attempt, and make the store slower.
            Outcome::Applied | Outcome::Failed(Fate::Unknown) => self.close_opening(ctx),
            _ => {
                ctx.out.push(Output::ReleaseLock { session: own.id });
                self.session.stage =
                    SessionStage::None { retry_at: self.now.time.after(self.rules.retry_delay()) };
            }
        }
    }

    fn start_beating(&mut self, own: OwnRegister, sent_at: Time, ctx: &mut StepContext<'_>) {
        let valid_until = sent_at.after(self.rules.validity(&own.record));
        let next_beat = sent_at.after(self.rules.timing().watch());
        ctx.event(Event::SessionOpened { session: own.id });
        ctx.out.push(Output::Valid { until: valid_until });
        self.session.stage = SessionStage::Open(OpenSession {
            own,
            valid_until,
            next_beat,
            pending_beat: None,
            in_doubt: false,
            has_news: false,
            first_beats: FIRST_BEATS,
        });
        self.consider_all();
    }

    fn drive_open(&mut self, ctx: &mut StepContext<'_>) {
        let SessionStage::Open(open) = &self.session.stage else { return };
        if self.stays_out() {
            // It was being opened when the register told of a newer protocol.
            self.end_session(EndReason::NewerProtocol, EndMode::AtOnce, ctx);
            self.drive_ending(ctx);
        } else if self.lifecycle == Lifecycle::Stopping && !self.roles.any_working() {
            self.end_session(EndReason::Shutdown, EndMode::AtOnce, ctx);
            self.drive_ending(ctx);
        } else if open.pending_beat.is_none() && self.now.time >= self.beat_due(open) {
            self.beat(ctx);
        }
    }

    /// Rule 1: the instant counts that was read before this very beat was sent.
    fn beat(&mut self, ctx: &mut StepContext<'_>) {
        let version = ctx.version();
        let (wall, sent_at, pace) = (self.now.wall, self.now.time, self.pace());
        let holds_back = !self.may_claim_all();
        let SessionStage::Open(open) = &mut self.session.stage else { return };
        open.has_news = false;
        open.own.record.beat += 1;
        open.own.record.every = pace;
        open.own.record.holds_back = holds_back;
        open.own.record.beat_at = wall;
        open.own.record.ttl = self.rules.beat_ttl(open.own.record.ttl);
        let (id, expect, record) = (open.own.id, open.own.version, open.own.record.clone());
        let requires_lock = self.rules.beat_is_proven(record.takeover);
        let put = Some((version, Record::Session(record)));
        let write = Write { key: self.session_key(id), expect, put, notify: false, requires_lock };
        let op = self.send_writes(vec![write], Purpose::Beat, ctx);
        if let SessionStage::Open(open) = &mut self.session.stage {
            // After a failure each goes alone: what holds up the one must not hold up the other again.
            ctx.beat = (!open.in_doubt).then_some(op);
            let due = std::mem::replace(&mut open.next_beat, sent_at.after(pace));
            self.rhythm.look_sent(due, sent_at);
            open.pending_beat = Some(PendingBeat { op, sent_at, version });
        }
    }

    pub(super) fn beat_answered(&mut self, op: OpId, outcome: Outcome, ctx: &mut StepContext<'_>) {
        let outcome = self.rules.beat_outcome(outcome);
        let SessionStage::Open(open) = &mut self.session.stage else { return };
        let Some(pending_beat) = open.pending_beat.take_if(|pending_beat| pending_beat.op == op) else {
            return;
        };
        match outcome {
            Outcome::Applied => self.extend(&pending_beat, ctx),
            Outcome::Conflict(found) => {
                open.own.unacknowledged.push(pending_beat.version);
                self.beat_refused(found, ctx);
            }
            // The liveness lock is taken once for each session, and never again: the next beats could not be proven either.
            Outcome::Failed(Fate::Severed) => {
                self.end_session(EndReason::Disconnected, EndMode::AtDeadline, ctx)
            }
            Outcome::Failed(fate) => {
                if fate == Fate::Unknown {
                    open.own.unacknowledged.push(pending_beat.version);
                }
                self.beat_failed(pending_beat.sent_at, ctx);
            }
        }
    }

    fn extend(&mut self, pending_beat: &PendingBeat, ctx: &mut StepContext<'_>) {
        let from = self.rules.beat_counts_from(pending_beat.sent_at, self.now.time);
        let SessionStage::Open(open) = &self.session.stage else { return };
        let until = from.after(self.rules.validity(&open.own.record));
        // While the store may have lost something, a beat proves nothing before a poll has shown what is left.
        let counts = !self.poll.is_suspect();
        let SessionStage::Open(open) = &mut self.session.stage else { return };
        open.own.version = Some(pending_beat.version);
        open.own.unacknowledged.clear();
        open.first_beats = open.first_beats.saturating_sub(1);
        if counts {
            open.valid_until = open.valid_until.max(until);
        }
        let cleared = std::mem::take(&mut open.in_doubt);
        ctx.out.push(Output::Valid { until: open.valid_until });
        if cleared {
            ctx.event(Event::Certain);
        }
    }

    /// The register holds something else: one of our own beats whose reply was lost, or the end.
    fn beat_refused(&mut self, found: Option<Entry>, ctx: &mut StepContext<'_>) {
        if !self.rules.renews_only_own_versions() {
            let SessionStage::Open(open) = &mut self.session.stage else { return };
            open.own.version = found.map(|entry| entry.version);
            return self.beat(ctx);
        }
        let unnoticed = !self.rules.notices_clones();
        let SessionStage::Open(open) = &mut self.session.stage else { return };
        match open.own.recognise(found.as_ref()) {
            // It proves nothing about time that we may count; but we know where to go on.
            Recognised::Mine(version) => {
                open.own.version = Some(version);
                self.beat(ctx);
            }
            Recognised::Over => self.end_session(EndReason::Expelled, EndMode::RegisterGone, ctx),
            Recognised::Cloned if unnoticed => {
                open.own.version = found.map(|entry| entry.version);
                self.beat(ctx);
            }
            Recognised::Cloned => {
                if self.rules.store_can_forget() {
                    // Or the store went back to an older beat of ours.
                    self.quarantine(ctx);
                }
                self.end_session(EndReason::Cloned, EndMode::RegisterGone, ctx);
            }
            Recognised::Gone => {
                if self.rules.store_can_forget() {
                    self.quarantine(ctx);
                }
                self.end_session(EndReason::Forgotten, EndMode::AtOnce, ctx);
            }
        }
    }

    /// The poll that went out with a beat was answered: what it showed of the session that we follow decides when to look again.
    pub(super) fn follow(&mut self, sent_at: Time) {
        let Some(at) = self.next_look(sent_at) else { return };
        if let SessionStage::Open(open) = &mut self.session.stage
            && !open.in_doubt
        {
            open.next_beat = at;
            self.poll.goes_with_beat(at);
        }
    }

    fn beat_failed(&mut self, sent_at: Time, ctx: &mut StepContext<'_>) {
        let retry = self.now.time.after(self.rules.retry_delay());
        let timed_out = self.now.time >= sent_at.after(self.rules.timing().op_timeout);
        let now = self.now.time;
        let SessionStage::Open(open) = &mut self.session.stage else { return };
        // After a timeout time is short: at once. After an error: shortly.
        open.next_beat =
            if timed_out { now } else { retry.min(sent_at.after(self.rules.timing().beat)).max(now) };
        if !std::mem::replace(&mut open.in_doubt, true) {
            ctx.event(Event::InDoubt);
        }
    }

    /// Ends the session in use, if one is open: no beat is sent or counted from now on.
    pub(super) fn end_session(&mut self, reason: EndReason, mode: EndMode, ctx: &mut StepContext<'_>) {
        let (own, valid_until) = match &mut self.session.stage {
            SessionStage::Open(open) => {
                if let Some(pending_beat) = open.pending_beat.take() {
                    open.own.unacknowledged.push(pending_beat.version);
                }
                (open.own.clone(), open.valid_until)
            }
            SessionStage::Ending { own, valid_until, .. } if mode != EndMode::AtDeadline => {
                (own.clone(), *valid_until)
            }
            SessionStage::Opening { own, .. } if mode == EndMode::RegisterGone => {
                ctx.out.push(Output::ReleaseLock { session: own.id });
                self.session.stage =
                    SessionStage::None { retry_at: self.now.time.after(self.rules.retry_delay()) };
                return;
            }
            _ => return,
        };
        self.session.stage =
            SessionStage::Ending { own, valid_until, gone: mode == EndMode::RegisterGone, reason };
        self.abandon_claims(ctx);
        match mode {
            EndMode::AtDeadline => self.drain_forced(reason, ctx),
            EndMode::AtOnce | EndMode::RegisterGone => self.lose_all(reason, ctx),
        }
    }

    /// Rule 6: work that will not stop means neither resign nor close.
    fn drive_ending(&mut self, ctx: &mut StepContext<'_>) {
        let SessionStage::Ending { own, gone, reason, .. } = &self.session.stage else { return };
        if !self.rules.may_give_up(self.roles.any_working()) {
            return;
        }
        let (own, gone, reason) = (own.clone(), *gone, *reason);
        self.lose_all(reason, ctx);
        if gone {
            self.session_over(own.id, Some(reason), ctx);
        } else if !self.rules.closes_expired_sessions() && self.lifecycle == Lifecycle::Running {
            self.session.stage = SessionStage::None { retry_at: self.now.time };
        } else {
            self.session.stage =
                SessionStage::Closing { own, writing: None, retry_at: self.now.time, reason: Some(reason) };
            self.drive_closing(ctx);
        }
    }

    /// An opening that may yet be applied is closed like a session.
    fn close_opening(&mut self, ctx: &mut StepContext<'_>) {
        let SessionStage::Opening { own, .. } = &self.session.stage else { return };
        let mut own = own.clone();
        own.unacknowledged.extend(own.version.take());
        self.session.stage =
            SessionStage::Closing { own, writing: None, retry_at: self.now.time, reason: None };
        self.drive_closing(ctx);
    }

    fn drive_closing(&mut self, ctx: &mut StepContext<'_>) {
        let SessionStage::Closing { own, writing: None, retry_at, reason } = &self.session.stage else {
            return;
        };
        if self.now.time < *retry_at {
            return;
        }
        // A session that ran out ended with its last beat, and not when its owner got round to closing it.
        let beat_at = if *reason == Some(EndReason::Shutdown) { self.now.wall } else { own.record.beat_at };
        let record = SessionRecord { state: SessionState::Closed, beat_at, ..own.record.clone() };
        let version = ctx.version();
        let put = Some((version, Record::Session(record)));
        let write = Write {
            key: self.session_key(own.id),
            expect: own.version,
            put,
            notify: true,
            requires_lock: false,
        };
        let op = self.send_writes(vec![write], Purpose::Close, ctx);
        if let SessionStage::Closing { writing, .. } = &mut self.session.stage {
            *writing = Some(op);
        }
    }

    pub(super) fn close_answered(&mut self, op: OpId, outcome: Outcome, ctx: &mut StepContext<'_>) {
        let retry = self.now.time.after(self.rules.retry_delay());
        let now = self.now.time;
        let SessionStage::Closing { own, writing, retry_at, reason } = &mut self.session.stage else {
            return;
        };
        if writing.take_if(|awaited| *awaited == op).is_none() {
            return;
        }
        let (id, reason) = (own.id, *reason);
        match outcome {
            Outcome::Applied => self.session_over(id, reason, ctx),
            Outcome::Failed(_) => *retry_at = retry,
            Outcome::Conflict(found) => match own.recognise(found.as_ref()) {
                Recognised::Mine(version) => (own.version, *retry_at) = (Some(version), now),
                // Absent is not over: a late opening or claim could still arrive. Close it where nothing is.
                Recognised::Gone => (own.version, *retry_at) = (None, now),
                Recognised::Over => self.session_over(id, reason, ctx),
                // The twin's session is none of ours to call over.
                Recognised::Cloned => self.session_over(id, Some(EndReason::Cloned), ctx),
            },
        }
    }

    /// Over is final: the id is never used again.
    fn session_over(&mut self, id: SessionId, reason: Option<EndReason>, ctx: &mut StepContext<'_>) {
        if let Some(reason) = reason {
            ctx.event(Event::SessionOver { session: id, reason });
        }
        ctx.out.push(Output::ReleaseLock { session: id });
        self.session.stage = SessionStage::None { retry_at: self.now.time };
        if matches!(reason, Some(EndReason::Cloned)) {
            // A twin lives under it: we watch it like the session of any other node.
            self.track_session(id);
        } else {
            self.mark_over(id, ctx);
        }
        if self.lifecycle == Lifecycle::Stopping {
            self.finish();
        }
    }

    /// What a read of our own session tells. It never extends anything; it may end it.
    pub(super) fn observe_own_session(&mut self, found: &Entry, ctx: &mut StepContext<'_>) {
        if matches!(&found.value, Record::Session(record) if record.state != SessionState::Live)
            && matches!(self.session.stage, SessionStage::Open(_) | SessionStage::Ending { .. })
        {
            self.end_session(EndReason::Expelled, EndMode::RegisterGone, ctx);
        }
        if !self.rules.reads_extend_nothing() {
            let until = self.now.time.after(self.rules.timing().validity());
            if let SessionStage::Open(open) = &mut self.session.stage {
                open.valid_until = open.valid_until.max(until);
            }
        }
    }
}

/// What a register of ours was found to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recognised {
    /// One of our own values, alive.
    Mine(Version),
    /// The end.
    Over,
    /// A live value that we never sent.
    Cloned,
    /// Nothing.
    Gone,
}

impl OwnRegister {
    fn recognise(&self, found: Option<&Entry>) -> Recognised {
        let Some(entry) = found else { return Recognised::Gone };
        let Record::Session(record) = &entry.value else { return Recognised::Cloned };
        if record.state != SessionState::Live {
            Recognised::Over
        } else if self.unacknowledged.contains(&entry.version) || self.version == Some(entry.version) {
            Recognised::Mine(entry.version)
        } else {
            Recognised::Cloned
        }
    }
}

#[cfg(feature = "canonical")]
#[path = "canonical/session.rs"]
mod canonical;

#[cfg(test)]
#[path = "tests/session.rs"]
mod tests;
