//! How the engine watches other sessions and expels those that are silent.
//!
//! Rule 3. Expelling is a compare-and-set on the very version that was watched: it either proves that no beat came in
//! between, or fails and changes nothing. One expulsion frees every role of a dead node.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::record::{Record, Session as SessionRecord, SessionState};
use crate::{
    Entry, Evidence, Key, Kind, Name, OpId, Outcome, Output, SessionId, Takeover, Time, Version, Write,
};

use super::ops::Purpose;
use super::peers::{ExpulsionTerms, Freed, LiveNews, NodeView};
use super::{BATCH, Engine, StepContext};

/// A session that has been over for so many ttls may be deleted, once nothing names it.
const KEPT_TTLS: u32 = 12;

impl Engine {
    pub(super) fn track_session(&mut self, session: SessionId) {
        self.peers.track(session);
        self.poll.reread(self.session_key(session));
    }

    /// The sessions that a poll reads. An early one goes out between two beats, for a hint, after a claim, or because of what a read
    /// showed. Among many nodes it reads none of them: while all roles are claimed there are many early polls, and together they
    /// would take all that store and nodes have.
    pub(super) fn sessions_to_poll(&self, early: bool) -> Vec<SessionId> {
        let own = self.session.own_id();
        let few = self.peers.are_few();
        if early && !few {
            return Vec::new();
        }
        let watchers = if few { BTreeSet::new() } else { self.watchers_to_read() };
        let needed = |id: &SessionId| few || self.depends_on(*id) || watchers.contains(id);
        let wanted = |id: &SessionId| Some(*id) != own && needed(id);
        self.peers.undecided().filter(wanted).collect()
    }

    fn depends_on(&self, session: SessionId) -> bool {
        self.roles.are_held_by(session)
            || self.own_node.holder() == Some(session)
            || self.awaited_target() == Some(session)
    }

    /// Takes in what a committed read or a conflict showed of a session.
    pub(super) fn observe_session(
        &mut self,
        id: SessionId,
        found: Option<&Entry>,
        sent_at: Time,
        ctx: &mut StepContext<'_>,
    ) {
        if self.session.own_id() == Some(id) {
            if let Some(entry) = found {
                self.observe_own_session(entry, ctx);
            }
            return;
        }
        match found.map(|entry| (entry.version, &entry.value)) {
            None => self.observe_absent(id, ctx),
            Some((version, Record::Session(record))) if record.state == SessionState::Live => {
                self.observe_live(id, version, record, sent_at, ctx);
            }
            Some((_, Record::Session(_))) => self.mark_over(id, ctx),
            // Unreadable: left alone. Whether it is over cannot be told.
            Some(_) => {}
        }
    }

    fn observe_absent(&mut self, id: SessionId, ctx: &mut StepContext<'_>) {
        if self.rules.absent_is_over() {
            return self.mark_over(id, ctx);
        }
        let (rules, longest) = (&self.rules, self.longest_wait());
        let wait = |record: Option<&SessionRecord>| {
            record.map_or(longest, |record| rules.expulsion_wait(record.ttl))
        };
        if self.peers.observe_absent(id, self.now.time, wait) && self.rules.store_can_forget() {
            self.quarantine(ctx);
        }
    }

    fn observe_live(
        &mut self,
        id: SessionId,
        version: Version,
        record: &SessionRecord,
        sent_at: Time,
        ctx: &mut StepContext<'_>,
    ) {
        let received_at = self.rules.received_at(sent_at, self.now.time);
        let received_at = self.rules.counts_from(self.rhythm.sent_after(id), received_at);
        let news = self.peers.observe_live(id, version, record, received_at);
        if news == LiveNews::Stale {
            return;
        }
        self.watch_lock(id, ctx);
        if news == LiveNews::Version {
            self.reread_freed(id, record);
            if self.peers.follow_node_writes(id, record) {
                self.poll.reread(self.named(Kind::Node, &record.node));
            }
        }
    }

    /// Watches its liveness lock, if that matters to us: among many nodes each would otherwise wait for
    /// every other one, and each waiting costs a thread or a question.
    pub(super) fn watch_lock(&mut self, id: SessionId, ctx: &mut StepContext<'_>) {
        if !self.peers.are_few() && !self.depends_on(id) {
            return;
        }
        if let Some((lock, takeover)) = self.peers.watch_lock(id) {
            ctx.out.push(Output::WatchLock { session: id, lock, takeover });
        }
    }

    /// Roles that were resigned since the last read are read again, whether a hint came or not.
    fn reread_freed(&mut self, id: SessionId, record: &SessionRecord) {
        if !self.rules.follows_freed_count() {
            return;
        }
        let roles: Vec<Name> = match self.peers.follow_freed(id, record) {
            Freed::Roles(roles) => roles.into_iter().filter(|role| self.roles.knows(role)).collect(),
            Freed::Unknown => self.roles.held_by(id),
        };
        for role in roles {
            self.poll.reread(self.named(Kind::Role, &role));
        }
    }

    /// Over is final; what it held may be claimed.
    pub(super) fn mark_over(&mut self, id: SessionId, ctx: &mut StepContext<'_>) {
        let Some(lock_watched) = self.peers.mark_over(id, self.now.time) else { return };
        self.poll.note_news();
        if lock_watched {
            ctx.out.push(Output::UnwatchLock { session: id });
        }
        self.holder_over(id, ctx);
    }

    /// Evidence from outside the store.
    pub(super) fn take_evidence(&mut self, evidence: &Evidence) {
        let (Evidence::Dead { session, .. } | Evidence::Disconnected { session, .. }) = evidence;
        if self.peers.observe_evidence(evidence, &self.rules, self.now.time) {
            // Whatever it means, it is a hint.
            self.poll.reread(self.session_key(*session));
        }
    }

    pub(super) fn peers_wake(&self) -> Time {
        self.with_expulsion_terms(|terms| self.peers.next_expulsion(terms))
    }

    pub(super) fn drive_peers(&mut self, ctx: &mut StepContext<'_>) {
        if self.epoch().is_none() {
            return;
        }
        let own = self.session.own_id();
        let due: Vec<SessionId> = self.with_expulsion_terms(|terms| {
            self.peers.to_expel(terms).filter(|id| Some(*id) != own).take(BATCH).collect()
        });
        if due.is_empty() {
            return;
        }
        if !self.rules.expels_before_claiming() {
            return due.into_iter().for_each(|id| self.mark_over(id, ctx));
        }
        let writes = due.iter().map(|id| self.expulsion(*id, ctx)).collect();
        let op = self.send_writes(writes, Purpose::Expel(due.clone()), ctx);
        due.into_iter().for_each(|id| self.peers.begin_expelling(id, op));
    }

    fn with_expulsion_terms<T>(&self, answer: impl FnOnce(&ExpulsionTerms<'_>) -> T) -> T {
        let depends_on = |id| self.depends_on(id);
        answer(&ExpulsionTerms {
            rules: &self.rules,
            now: self.now.time,
            own_name: &self.node,
            quarantined_until: self.cluster.quarantined_until(),
            depends_on: &depends_on,
        })
    }

    fn expulsion(&self, id: SessionId, ctx: &mut StepContext<'_>) -> Write {
        let (expect, record) = match self.peers.version(id) {
            Some((version, record)) => (Some(version), record),
            None => (None, self.placeholder()),
        };
        let put = Some((ctx.version(), Record::Session(self.rules.expulsion(record))));
        Write { key: self.session_key(id), expect, put, notify: true, requires_lock: false }
    }

    /// What is written where a session should be and nothing is.
    fn placeholder(&self) -> SessionRecord {
        let timing = self.rules.timing();
        SessionRecord {
            node: self.node.clone(),
            beat: 0,
            freed: 0,
            freed_lately: Vec::new(),
            node_writes: 0,
            holds_back: false,
            ttl: timing.ttl,
            every: Duration::ZERO,
            takeover: Takeover::Strict,
            grace: timing.grace,
            liveness_lock: None,
            state: SessionState::Expelled,
            beat_at: self.now.wall,
        }
    }

    pub(super) fn expel_answered(
        &mut self,
        op: OpId,
        id: SessionId,
        outcome: Outcome,
        ctx: &mut StepContext<'_>,
    ) {
        if !self.peers.end_expelling(id, op) {
            return;
        }
        match outcome {
            Outcome::Applied if self.rules.hands_off() => self.mark_over(id, ctx),
            Outcome::Applied => self.poll.reread(self.session_key(id)),
            // It lives, or another node was faster: either way this is what a committed read shows.
            Outcome::Conflict(found) => self.observe_session(id, found.as_ref(), self.now.time, ctx),
            Outcome::Failed(_) => {
                self.peers.retry_expelling(id, self.now.time.after(self.rules.retry_delay()));
                self.poll.reread(self.session_key(id));
            }
        }
    }

    /// Takes in a node register that is not ours.
    pub(super) fn observe_node(&mut self, name: &Name, found: Option<&Entry>) {
        let Some(Entry { version, value: Record::Node(record), .. }) = found else {
            return self.peers.remove_node(name);
        };
        if self.peers.set_node(name, NodeView::new(*version, record.clone())) {
            self.poll.note_news();
        }
        if Some(record.session) != self.session.own_id() && !self.peers.knows(record.session) {
            self.track_session(record.session);
        }
    }

    /// Forgets sessions that are over, or absent, and that nothing we know names.
    pub(super) fn forget_sessions(&mut self, listed: impl Fn(SessionId) -> bool) {
        let needed: Vec<SessionId> =
            self.peers.ids().filter(|id| self.depends_on(*id) || listed(*id)).collect();
        self.peers.forget_sessions(|id| needed.binary_search(&id).is_ok());
    }

    /// Sessions that have been over for so long that their registers may go, once nothing names them.
    pub(super) fn long_over(&self) -> Vec<SessionId> {
        let age: Duration = KEPT_TTLS * self.rules.timing().ttl;
        self.peers.over_for(age, self.now.time)
    }

    /// The deletion of a register needs the version that a list showed.
    pub(super) fn deletion(key: Key, version: Version) -> Write {
        Write { key, expect: Some(version), put: None, notify: false, requires_lock: false }
    }
}
