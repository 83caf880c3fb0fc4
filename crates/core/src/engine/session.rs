//! Our own session: proof of life, and the deadline of everything we lead.
//!
//! Rules 1, 2, 3 and 6. Validity counts from *before* a beat was sent, and only an acknowledged beat extends it.
//! When it can no longer be saved, the work is told to stop while there is still time; the session is closed once
//! the work has stopped, and only then is the next one opened.

use std::time::Duration;

use crate::record::{RECENTLY, Reason, Record, Session as SessionRecord, SessionState, Witness};
use crate::{
    Entry, Event, Fate, Key, Mutant, Name, OpId, Outcome, Output, SessionId, Takeover, Time, Version, Write,
};

use super::ops::Purpose;
use super::{Cx, Engine, Run};

/// So often a witness that does not come in time is asked for anew, where it matters.
const ATTESTS: u32 = 8;

/// Where our session stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Session {
    /// None is open; the next one may be opened from then on.
    None { retry_at: Time },
    /// The store makes ready a witness for it.
    Attesting { id: SessionId, since: Time, tries: u32 },
    /// The one write that opens it is on its way. Unacknowledged, the id is abandoned.
    Opening { op: OpId, sent_at: Time, own: Own },
    /// It is ours, and valid until its deadline.
    Open(Open),
    /// It will not be renewed any more. Waits for the work to stop, then closes.
    Ending { own: Own, valid_until: Time, gone: bool, reason: Reason },
    /// The work has stopped; the register is told that the session is over.
    Closing { own: Own, writing: Option<OpId>, retry_at: Time, reason: Reason },
}

/// A session register that is ours: what we wrote into it last, and what we may have written since.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Own {
    pub(super) id: SessionId,
    /// The last version known to be there; none: the register is absent.
    version: Option<Version>,
    record: SessionRecord,
    /// Versions that were sent without an answer: any of them may be there.
    unsure: Vec<Version>,
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Open {
    own: Own,
    valid_until: Time,
    next_beat: Time,
    beating: Option<Beating>,
    in_doubt: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Beating {
    op: OpId,
    sent_at: Time,
    version: Version,
}

/// How abruptly a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The lease runs out: the work has until the deadline to stop.
    AtDeadline,
    /// Nothing may be relied on any more, but the register may still say that we live.
    AtOnce,
    /// The register says that it is over, or is gone.
    RegisterGone,
}

impl Session {
    /// The session on which tenures rest, and until when.
    pub(super) fn validity(&self) -> Option<(SessionId, Time)> {
        match self {
            Self::Open(open) => Some((open.own.id, open.valid_until)),
            Self::Ending { own, valid_until, .. } => Some((own.id, *valid_until)),
            _ => None,
        }
    }

    /// The session under which claims may be made.
    pub(super) fn open_id(&self) -> Option<SessionId> {
        match self {
            Self::Open(open) => Some(open.own.id),
            _ => None,
        }
    }

    /// Every id that is ours now, in whatever state.
    pub(super) fn own_id(&self) -> Option<SessionId> {
        match self {
            Self::None { .. } => None,
            Self::Attesting { id, .. } => Some(*id),
            Self::Open(open) => Some(open.own.id),
            Self::Opening { own, .. } | Self::Ending { own, .. } | Self::Closing { own, .. } => Some(own.id),
        }
    }
}

impl Engine {
    /// The session may be claimed with: open, and not about to be given up.
    pub(super) fn session_usable(&self) -> Option<SessionId> {
        match &self.session {
            Session::Open(open) if self.now.time < self.cancel_at(open.valid_until) => Some(open.own.id),
            _ => None,
        }
    }

    /// Counts a write of our name's register, so that followers read it again even if the hint is lost.
    pub(super) fn count_card(&mut self) {
        if let Session::Open(open) = &mut self.session {
            open.own.record.card += 1;
        }
    }

    /// Counts a role given up, so that followers look again even if the hint is lost.
    pub(super) fn count_freed(&mut self, role: &Name) {
        if let Session::Open(open) = &mut self.session {
            let record = &mut open.own.record;
            record.freed += 1;
            record.freed_lately.push(role.clone());
            let excess = record.freed_lately.len().saturating_sub(RECENTLY);
            record.freed_lately.drain(..excess);
        }
    }

    /// From then on no beat is sent or counted any more.
    fn gives_up_at(&self, valid_until: Time) -> Time {
        if self.mutated(Mutant::BeatAfterCancel) { valid_until } else { self.cancel_at(valid_until) }
    }

    /// How long a beat of that session counts, from before it was sent.
    fn hold(&self, record: &SessionRecord) -> Duration {
        self.config.timing.hold_under(record.takeover)
    }

    fn cancel_at(&self, valid_until: Time) -> Time {
        valid_until.before(self.config.timing.stop_grace)
    }

    pub(super) fn session_wake(&self) -> Time {
        match &self.session {
            Session::None { retry_at } if self.run == Run::Running && self.cluster_ready() => *retry_at,
            Session::Attesting { since, .. } => since.after(self.config.timing.op_timeout),
            Session::Open(open) if open.beating.is_none() => {
                open.next_beat.min(self.gives_up_at(open.valid_until))
            }
            Session::Open(open) => self.gives_up_at(open.valid_until),
            Session::Ending { valid_until, .. } if *valid_until > self.now.time => *valid_until,
            Session::Closing { writing: None, retry_at, .. } => *retry_at,
            _ => Time::NEVER,
        }
    }

    /// Rule 6: the work is told to stop at `deadline − stop_grace`; at the deadline every tenure is over.
    pub(super) fn pass_deadlines(&mut self, cx: &mut Cx<'_>) {
        if self.mutated(Mutant::BooleanLeadership) {
            return;
        }
        if let Session::Open(open) = &self.session
            && self.now.time >= self.gives_up_at(open.valid_until)
        {
            self.end_session(Reason::LeaseExpired, Cut::AtDeadline, cx);
        }
        if let Session::Ending { valid_until, reason, .. } = self.session
            && self.now.time >= valid_until
        {
            self.lose_all(reason, cx);
        }
    }

    pub(super) fn drive_session(&mut self, cx: &mut Cx<'_>) {
        match &self.session {
            Session::None { retry_at } => {
                let due = self.now.time >= *retry_at;
                if self.run == Run::Stopping {
                    self.finish();
                } else if due && self.cluster_ready() {
                    self.attest(1, cx);
                }
            }
            Session::Attesting { id, since, tries } => {
                let tries = *tries;
                let (id, late) = (*id, self.now.time >= since.after(self.config.timing.op_timeout));
                if self.run == Run::Stopping {
                    cx.out.push(Output::Release { session: id });
                    self.finish();
                } else if late && self.config.timing.takeover == Takeover::OnDisconnect && tries < ATTESTS {
                    // The connection that is to hold it may be on its way.
                    cx.out.push(Output::Release { session: id });
                    self.attest(tries + 1, cx);
                } else if late {
                    self.open(id, None, cx);
                }
            }
            Session::Opening { .. } => {
                if self.run == Run::Stopping {
                    self.close_opening();
                    self.drive_closing(cx);
                }
            }
            Session::Open(_) => self.drive_open(cx),
            Session::Ending { .. } => self.drive_ending(cx),
            Session::Closing { .. } => self.drive_closing(cx),
        }
    }

    fn finish(&mut self) {
        self.run = Run::Stopped;
        self.session = Session::None { retry_at: self.now.time };
    }

    fn attest(&mut self, tries: u32, cx: &mut Cx<'_>) {
        let id = SessionId(cx.entropy.nonce());
        self.session = Session::Attesting { id, since: self.now.time, tries };
        cx.out.push(Output::Attest { session: id, takeover: self.config.timing.takeover });
    }

    pub(super) fn attested(&mut self, session: SessionId, witness: Option<Witness>, cx: &mut Cx<'_>) {
        if matches!(&self.session, Session::Attesting { id, .. } if *id == session)
            && self.run == Run::Running
        {
            self.open(session, witness, cx);
        }
    }

    /// Rule 2: one write opens a session id. Without anybody who sees the connection, only the lease can count, and the
    /// record says so: both sides know.
    fn open(&mut self, id: SessionId, witness: Option<Witness>, cx: &mut Cx<'_>) {
        let timing = &self.config.timing;
        let takeover = match &witness {
            Some(witness) if witness.connection => timing.takeover,
            _ => Takeover::Strict,
        };
        if takeover != timing.takeover {
            cx.event(Event::NoWitness { session: id });
        }
        let record = SessionRecord {
            node: self.config.node.clone(),
            beat: 1,
            freed: 0,
            freed_lately: Vec::new(),
            card: 0,
            ttl: timing.ttl,
            takeover,
            grace: timing.grace,
            witness,
            state: SessionState::Live,
            beat_at: self.now.wall,
        };
        let own = Own { id, version: Some(cx.version()), record, unsure: Vec::new() };
        self.send_opening(own, cx);
    }

    fn send_opening(&mut self, own: Own, cx: &mut Cx<'_>) {
        let put = own.version.map(|version| (version, Record::Session(own.record.clone())));
        let witnessed = own.record.takeover == Takeover::OnDisconnect;
        let write = Write { key: self.session_key(own.id), expect: None, put, ring: false, witnessed };
        let op = self.send_writes(vec![write], Purpose::Open, cx);
        self.session = Session::Opening { op, sent_at: self.now.time, own };
    }

    pub(super) fn session_key(&self, id: SessionId) -> Key {
        Key::Session(self.epoch().unwrap_or_default(), id)
    }

    pub(super) fn opened(&mut self, op: OpId, outcome: &Outcome, cx: &mut Cx<'_>) {
        let Session::Opening { op: awaited, sent_at, own } = &self.session else { return };
        if *awaited != op {
            return;
        }
        let (sent_at, own) = (*sent_at, own.clone());
        let valid_until = sent_at.after(self.hold(&own.record));
        match outcome {
            Outcome::Applied if self.now.time < self.cancel_at(valid_until) => {
                self.start_beating(own, sent_at, cx)
            }
            Outcome::Failed(_) if self.mutated(Mutant::OpeningSentTwice) => self.send_opening(own, cx),
            Outcome::Conflict(Some(_)) if self.mutated(Mutant::OpeningSentTwice) => {
                // "It is there, so it must have been ours."
                self.start_beating(own, self.now.time, cx);
            }
            _ => {
                cx.out.push(Output::Release { session: own.id });
                self.session = Session::None { retry_at: self.now.time.after(self.retry_delay()) };
            }
        }
    }

    fn start_beating(&mut self, own: Own, sent_at: Time, cx: &mut Cx<'_>) {
        let valid_until = sent_at.after(self.hold(&own.record));
        let next_beat = sent_at.after(self.config.timing.beat);
        cx.event(Event::SessionOpened { session: own.id });
        cx.out.push(Output::Valid { until: valid_until });
        self.session = Session::Open(Open { own, valid_until, next_beat, beating: None, in_doubt: false });
        self.consider_all();
    }

    fn drive_open(&mut self, cx: &mut Cx<'_>) {
        let Session::Open(open) = &self.session else { return };
        if self.run == Run::Stopping && self.working.is_empty() {
            self.end_session(Reason::Shutdown, Cut::AtOnce, cx);
            self.drive_ending(cx);
        } else if open.beating.is_none() && self.now.time >= open.next_beat {
            self.beat(cx);
        }
    }

    /// Rule 1: the instant counts that was read before this very beat was sent.
    fn beat(&mut self, cx: &mut Cx<'_>) {
        let version = cx.version();
        let (wall, sent_at, beat) = (self.now.wall, self.now.time, self.config.timing.beat);
        let lowered = self.mutated(Mutant::TtlLowered).then(|| self.config.timing.ttl / 2);
        let Session::Open(open) = &mut self.session else { return };
        open.own.record.beat += 1;
        open.own.record.beat_at = wall;
        if let Some(ttl) = lowered {
            open.own.record.ttl = ttl;
        }
        let (id, expect, record) = (open.own.id, open.own.version, open.own.record.clone());
        let witnessed = record.takeover == Takeover::OnDisconnect && !self.mutated(Mutant::BeatUnproven);
        let put = Some((version, Record::Session(record)));
        let write = Write { key: self.session_key(id), expect, put, ring: false, witnessed };
        let op = self.send_writes(vec![write], Purpose::Beat, cx);
        if let Session::Open(open) = &mut self.session {
            open.next_beat = sent_at.after(beat);
            open.beating = Some(Beating { op, sent_at, version });
        }
    }

    pub(super) fn beaten(&mut self, op: OpId, outcome: Outcome, cx: &mut Cx<'_>) {
        let outcome = match outcome {
            Outcome::Failed(_) if self.mutated(Mutant::UnknownIsSuccess) => Outcome::Applied,
            outcome => outcome,
        };
        let Session::Open(open) = &mut self.session else { return };
        let Some(beating) = open.beating.take_if(|beating| beating.op == op) else { return };
        match outcome {
            Outcome::Applied => self.extend(&beating, cx),
            Outcome::Conflict(found) => {
                open.own.unsure.push(beating.version);
                self.beat_refused(found, cx);
            }
            // The witness is taken once for each session, and never again: the next beats could not be proven either.
            Outcome::Failed(Fate::Severed) => self.end_session(Reason::Disconnected, Cut::AtDeadline, cx),
            Outcome::Failed(fate) => {
                if fate == Fate::Unknown {
                    open.own.unsure.push(beating.version);
                }
                self.doubt(beating.sent_at, cx);
            }
        }
    }

    fn extend(&mut self, beating: &Beating, cx: &mut Cx<'_>) {
        let from = if self.mutated(Mutant::ValidityFromReply) { self.now.time } else { beating.sent_at };
        let Session::Open(open) = &self.session else { return };
        let until = from.after(self.hold(&open.own.record));
        let Session::Open(open) = &mut self.session else { return };
        open.own.version = Some(beating.version);
        open.own.unsure.clear();
        open.valid_until = open.valid_until.max(until);
        let cleared = std::mem::take(&mut open.in_doubt);
        cx.out.push(Output::Valid { until: open.valid_until });
        if cleared {
            cx.event(Event::Certain);
        }
    }

    /// The register holds something else: one of our own beats whose answer was lost, or the end.
    fn beat_refused(&mut self, found: Option<Entry>, cx: &mut Cx<'_>) {
        if self.mutated(Mutant::UnconditionalRenew) {
            let Session::Open(open) = &mut self.session else { return };
            open.own.version = found.map(|entry| entry.version);
            return self.beat(cx);
        }
        let unnoticed = self.mutated(Mutant::CloneUnnoticed);
        let Session::Open(open) = &mut self.session else { return };
        match open.own.recognise(found.as_ref()) {
            // It proves nothing about time that we may count; but we know where to go on.
            Found::Mine(version) => {
                open.own.version = Some(version);
                self.beat(cx);
            }
            Found::Over => self.end_session(Reason::Expelled, Cut::RegisterGone, cx),
            Found::Cloned if unnoticed => {
                open.own.version = found.map(|entry| entry.version);
                self.beat(cx);
            }
            Found::Cloned => self.end_session(Reason::Cloned, Cut::RegisterGone, cx),
            Found::Gone => {
                if self.config.class == super::Class::C {
                    self.quarantine(cx);
                }
                self.end_session(Reason::Forgotten, Cut::AtOnce, cx);
            }
        }
    }

    fn doubt(&mut self, sent_at: Time, cx: &mut Cx<'_>) {
        let retry = self.now.time.after(self.retry_delay());
        let timed_out = self.now.time >= sent_at.after(self.config.timing.op_timeout);
        let now = self.now.time;
        let Session::Open(open) = &mut self.session else { return };
        // After a timeout time is short: at once. After an error: shortly.
        open.next_beat =
            if timed_out { now } else { retry.min(sent_at.after(self.config.timing.beat)).max(now) };
        if !std::mem::replace(&mut open.in_doubt, true) {
            cx.event(Event::InDoubt);
        }
    }

    /// Ends the session in use, if one is open: no beat is sent or counted any more.
    pub(super) fn end_session(&mut self, reason: Reason, cut: Cut, cx: &mut Cx<'_>) {
        let (own, valid_until) = match &mut self.session {
            Session::Open(open) => {
                if let Some(beating) = open.beating.take() {
                    open.own.unsure.push(beating.version);
                }
                (open.own.clone(), open.valid_until)
            }
            Session::Ending { own, valid_until, .. } if cut != Cut::AtDeadline => (own.clone(), *valid_until),
            Session::Opening { own, .. } if cut == Cut::RegisterGone => {
                cx.out.push(Output::Release { session: own.id });
                self.session = Session::None { retry_at: self.now.time.after(self.retry_delay()) };
                return;
            }
            _ => return,
        };
        self.session = Session::Ending { own, valid_until, gone: cut == Cut::RegisterGone, reason };
        self.abandon_claims(cx);
        match cut {
            Cut::AtDeadline => self.drain_forced(reason, cx),
            Cut::AtOnce | Cut::RegisterGone => self.lose_all(reason, cx),
        }
    }

    /// Rule 6: work that will not stop means neither resign nor close.
    fn drive_ending(&mut self, cx: &mut Cx<'_>) {
        let Session::Ending { own, gone, reason, .. } = &self.session else { return };
        if !self.working.is_empty() && !self.mutated(Mutant::ReleaseBeforeStopped) {
            return;
        }
        let (own, gone, reason) = (own.clone(), *gone, *reason);
        self.lose_all(reason, cx);
        if gone {
            self.over(own.id, reason, cx);
        } else if self.mutated(Mutant::ExpiredLeftOpen) && self.run == Run::Running {
            self.session = Session::None { retry_at: self.now.time };
        } else {
            self.session = Session::Closing { own, writing: None, retry_at: self.now.time, reason };
            self.drive_closing(cx);
        }
    }

    /// An opening that may yet be applied is closed like a session.
    fn close_opening(&mut self) {
        let Session::Opening { own, .. } = &self.session else { return };
        let mut own = own.clone();
        own.unsure.extend(own.version.take());
        self.session =
            Session::Closing { own, writing: None, retry_at: self.now.time, reason: Reason::Shutdown };
    }

    fn drive_closing(&mut self, cx: &mut Cx<'_>) {
        let Session::Closing { own, writing: None, retry_at, .. } = &self.session else { return };
        if self.now.time < *retry_at {
            return;
        }
        let record =
            SessionRecord { state: SessionState::Closed, beat_at: self.now.wall, ..own.record.clone() };
        let version = cx.version();
        let put = Some((version, Record::Session(record)));
        let write =
            Write { key: self.session_key(own.id), expect: own.version, put, ring: true, witnessed: false };
        let op = self.send_writes(vec![write], Purpose::Close, cx);
        if let Session::Closing { writing, .. } = &mut self.session {
            *writing = Some(op);
        }
    }

    pub(super) fn closed(&mut self, op: OpId, outcome: Outcome, cx: &mut Cx<'_>) {
        let retry = self.now.time.after(self.retry_delay());
        let now = self.now.time;
        let Session::Closing { own, writing, retry_at, reason } = &mut self.session else { return };
        if writing.take_if(|awaited| *awaited == op).is_none() {
            return;
        }
        let (id, reason) = (own.id, *reason);
        match outcome {
            Outcome::Applied => self.over(id, reason, cx),
            Outcome::Failed(_) => *retry_at = retry,
            Outcome::Conflict(found) => match own.recognise(found.as_ref()) {
                Found::Mine(version) => (own.version, *retry_at) = (Some(version), now),
                // Absent is not over: a late opening or claim could still arrive. Close it where nothing is.
                Found::Gone => (own.version, *retry_at) = (None, now),
                Found::Over => self.over(id, reason, cx),
                // The twin's session is none of ours to call over.
                Found::Cloned => self.over(id, Reason::Cloned, cx),
            },
        }
    }

    /// Over is final: the id is never used again.
    fn over(&mut self, id: SessionId, reason: Reason, cx: &mut Cx<'_>) {
        cx.event(Event::SessionOver { session: id, reason });
        cx.out.push(Output::Release { session: id });
        self.session = Session::None { retry_at: self.now.time };
        if matches!(reason, Reason::Cloned) {
            // A twin lives under it: it is anybody's but ours, and watched like anybody's.
            self.watch_session(id);
        } else {
            self.note_over(id, cx);
        }
        if self.run == Run::Stopping {
            self.finish();
        }
    }

    /// What a read of our own session tells. It never extends anything; it may end it.
    pub(super) fn saw_own_session(&mut self, found: &Entry, cx: &mut Cx<'_>) {
        if matches!(&found.value, Record::Session(record) if record.state != SessionState::Live)
            && matches!(self.session, Session::Open(_) | Session::Ending { .. })
        {
            self.end_session(Reason::Expelled, Cut::RegisterGone, cx);
        }
        if self.mutated(Mutant::ValidityFromRead) {
            let until = self.now.time.after(self.config.timing.hold());
            if let Session::Open(open) = &mut self.session {
                open.valid_until = open.valid_until.max(until);
            }
        }
    }
}

/// What a register of ours was found to hold.
enum Found {
    /// One of our own values, alive.
    Mine(Version),
    /// The end.
    Over,
    /// A live value that we never sent.
    Cloned,
    /// Nothing.
    Gone,
}

impl Own {
    fn recognise(&self, found: Option<&Entry>) -> Found {
        let Some(entry) = found else { return Found::Gone };
        let Record::Session(record) = &entry.value else { return Found::Cloned };
        if record.state != SessionState::Live {
            Found::Over
        } else if self.unsure.contains(&entry.version) || self.version == Some(entry.version) {
            Found::Mine(entry.version)
        } else {
            Found::Cloned
        }
    }
}

#[cfg(feature = "canon")]
#[path = "canon/session.rs"]
mod canon;
