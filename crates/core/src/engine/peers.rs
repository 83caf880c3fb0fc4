//! Other sessions, and who runs under which name.
//!
//! Rule 3. We count from *after* we first received a version. Expelling is a compare-and-set on that very version:
//! it either proves that no beat came in between, or fails and changes nothing.

use std::time::Duration;

use crate::record::{Node as NodeRecord, Record, Session as SessionRecord, SessionState};
use crate::{
    Entry, Evidence, Key, Kind, Mutant, Name, OpId, Outcome, Output, SessionId, Takeover, Time, Version,
    Write,
};

use super::ops::Purpose;
use super::{Class, Cx, Engine};

/// A session that is not ours.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Peer {
    pub(super) sight: Sight,
    expelling: Option<OpId>,
    retry_at: Time,
    attended: bool,
    /// How many roles it had given up when it was last read.
    freed: Option<u64>,
    /// How often it had written its name's register when it was last read.
    card: Option<u64>,
}

/// What was last seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) enum Sight {
    /// Nothing yet.
    #[default]
    Unknown,
    /// No register. Not over: a late opening could still arrive, and if somebody deleted it by hand, its owner does not
    /// know and counts on its lease, which has run out by then.
    Absent { lapsed_at: Time },
    /// A live register.
    Live(Live),
    /// Over, for good.
    Over { since: Time },
}

/// A version of a live session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Live {
    version: Version,
    record: SessionRecord,
    /// When this version was first received.
    received_at: Time,
    /// An earlier version was received too.
    moved: bool,
    /// When a witness that covers the work said that it is dead.
    dead_since: Option<Time>,
    /// When a witness said that its connection dropped.
    dropped_at: Option<Time>,
}

impl Live {
    /// A witness spoke against it.
    fn is_suspect(&self) -> bool {
        let dropped = self.dropped_at.is_some() && self.record.takeover == Takeover::OnDisconnect;
        dropped || self.dead_since.is_some()
    }
}

/// A node register as it was last read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NodeView {
    pub(super) version: Version,
    pub(super) record: NodeRecord,
}

impl NodeView {
    pub(super) fn session(&self) -> SessionId {
        self.record.session
    }

    pub(super) fn priority(&self, role: &Name) -> Option<i32> {
        self.record.candidacies.get(role).copied()
    }
}

/// With so few nodes every session is looked at on every beat, and every witness attended.
pub(super) const FEW_NODES: usize = 16;

impl Engine {
    /// A committed read showed that session to be over.
    pub(super) fn is_over(&self, session: SessionId) -> bool {
        self.peers.get(&session).is_some_and(|peer| matches!(peer.sight, Sight::Over { .. }))
    }

    /// Its beat was seen to move, and nothing speaks against it.
    pub(super) fn seen_alive(&self, session: SessionId) -> bool {
        let alive = |live: &Live| live.moved && !live.is_suspect();
        matches!(self.peers.get(&session), Some(Peer { sight: Sight::Live(live), .. }) if alive(live))
    }

    /// Nothing speaks against it, whether its beat was seen to move or not.
    pub(super) fn may_live(&self, session: SessionId) -> bool {
        match self.peers.get(&session).map(|peer| &peer.sight) {
            None | Some(Sight::Unknown) => true,
            Some(Sight::Live(live)) => !live.is_suspect(),
            Some(Sight::Absent { .. } | Sight::Over { .. }) => false,
        }
    }

    /// The ttl of a session that was seen alive; nothing otherwise.
    pub(super) fn ttl_of(&self, session: SessionId) -> Duration {
        match self.peers.get(&session).map(|peer| &peer.sight) {
            Some(Sight::Live(live)) => live.record.ttl,
            _ => Duration::ZERO,
        }
    }

    pub(super) fn watch_session(&mut self, session: SessionId) {
        self.peers.entry(session).or_default();
        self.look.again(self.session_key(session));
    }

    /// The sessions to look at on every beat.
    pub(super) fn depended_on(&self) -> Vec<SessionId> {
        let own = self.session.own_id();
        let undecided = |peer: &Peer| !matches!(peer.sight, Sight::Over { .. });
        let few = self.peers.len() <= FEW_NODES;
        self.peers
            .iter()
            .filter(|(id, peer)| Some(**id) != own && undecided(peer) && (few || self.depends_on(**id)))
            .map(|(id, _)| *id)
            .collect()
    }

    fn depends_on(&self, session: SessionId) -> bool {
        self.held_by.contains_key(&session)
            || self.card.holder() == Some(session)
            || self.awaited_target() == Some(session)
    }

    /// Takes in what a committed read or a conflict showed of a session.
    pub(super) fn saw_session(
        &mut self,
        id: SessionId,
        found: Option<&Entry>,
        sent_at: Time,
        cx: &mut Cx<'_>,
    ) {
        if self.session.own_id() == Some(id) {
            if let Some(entry) = found {
                self.saw_own_session(entry, cx);
            }
            return;
        }
        match found.map(|entry| (entry.version, &entry.value)) {
            None => self.saw_absent(id, cx),
            Some((version, Record::Session(record))) if record.state == SessionState::Live => {
                self.saw_live(id, version, record, sent_at, cx);
            }
            Some((_, Record::Session(_))) => self.note_over(id, cx),
            Some(_) => cx.event(crate::Event::Unreadable { key: self.session_key(id) }),
        }
    }

    fn saw_absent(&mut self, id: SessionId, cx: &mut Cx<'_>) {
        if self.mutated(Mutant::AbsentIsOver) {
            return self.note_over(id, cx);
        }
        let wait = match self.peers.get(&id).map(|peer| &peer.sight) {
            // Over is final, and may be deleted.
            None | Some(Sight::Over { .. } | Sight::Absent { .. }) => return,
            Some(Sight::Live(live)) => self.silence(&live.record),
            Some(Sight::Unknown) => self.longest_watch(),
        };
        let lapsed_at = self.now.time.after(wait);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.sight = Sight::Absent { lapsed_at };
        }
        if self.config.class == Class::C {
            self.quarantine(cx);
        }
    }

    fn saw_live(
        &mut self,
        id: SessionId,
        version: Version,
        record: &SessionRecord,
        sent_at: Time,
        cx: &mut Cx<'_>,
    ) {
        let received_at = if self.mutated(Mutant::ExpelFromAsked) { sent_at } else { self.now.time };
        let peer = self.peers.entry(id).or_default();
        match &mut peer.sight {
            // A stale read: over is final.
            Sight::Over { .. } => return,
            Sight::Live(live) if live.version == version => return self.attend(id, cx),
            Sight::Live(live) => {
                live.moved |= record.beat > live.record.beat;
                (live.version, live.record, live.received_at) = (version, record.clone(), received_at);
            }
            sight => {
                let record = record.clone();
                *sight = Sight::Live(Live {
                    version,
                    record,
                    received_at,
                    moved: false,
                    dead_since: None,
                    dropped_at: None,
                });
            }
        }
        self.attend(id, cx);
        self.follow_freed(id, record);
        self.follow_card(id, record);
    }

    /// Asks its witness to tell when it is gone, if that matters to us: among many nodes each would otherwise wait for
    /// every other one, and each waiting costs a thread or a question.
    pub(super) fn attend(&mut self, id: SessionId, cx: &mut Cx<'_>) {
        if self.peers.len() > FEW_NODES && !self.depends_on(id) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Sight::Live(Live { record: SessionRecord { witness: Some(witness), takeover, .. }, .. }) =
            &peer.sight
        else {
            return;
        };
        if !std::mem::replace(&mut peer.attended, true) {
            cx.out.push(Output::Attend { session: id, witness: witness.id.clone(), takeover: *takeover });
        }
    }

    /// Roles that were given up since the last read are read again, whether a hint came or not.
    fn follow_freed(&mut self, id: SessionId, record: &SessionRecord) {
        if self.mutated(Mutant::FreedIgnored) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let news = match peer.freed.replace(record.freed) {
            Some(before) => usize::try_from(record.freed.saturating_sub(before)).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let lately = &record.freed_lately;
        let roles: Vec<Name> = if news <= lately.len() {
            lately[lately.len() - news..]
                .iter()
                .filter(|role| self.roles.contains_key(role))
                .cloned()
                .collect()
        } else {
            self.held_by.get(&id).into_iter().flatten().cloned().collect()
        };
        for role in roles {
            self.look.again(self.named(Kind::Role, &role));
        }
    }

    /// What a node says of itself is read again when it has changed.
    fn follow_card(&mut self, id: SessionId, record: &SessionRecord) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.card.replace(record.card) != Some(record.card) {
            self.look.again(self.named(Kind::Node, &record.node));
        }
    }

    /// Over is final; what it held may be claimed.
    pub(super) fn note_over(&mut self, id: SessionId, cx: &mut Cx<'_>) {
        let since = self.now.time;
        let peer = self.peers.entry(id).or_default();
        if matches!(peer.sight, Sight::Over { .. }) {
            return;
        }
        peer.sight = Sight::Over { since };
        peer.expelling = None;
        if std::mem::take(&mut peer.attended) {
            cx.out.push(Output::Ignore { session: id });
        }
        self.holder_over(id, cx);
    }

    /// What a witness outside the store saw. Believed only if it is the one that the record names.
    pub(super) fn witnessed(&mut self, evidence: &Evidence) {
        let (any, elector) =
            (self.mutated(Mutant::AnyWitness), self.mutated(Mutant::ElectorDeathIsWorkDeath));
        let now = self.now.time;
        let (Evidence::Dead { session, witness } | Evidence::Disconnected { session, witness }) = evidence;
        let Some(Peer { sight: Sight::Live(live), .. }) = self.peers.get_mut(session) else { return };
        let Some(named) = &live.record.witness else { return };
        if named.id != *witness && !any {
            return;
        }
        let covers = named.covers_work || elector;
        match evidence {
            Evidence::Dead { .. } if covers => live.dead_since = live.dead_since.or(Some(now)),
            Evidence::Disconnected { .. } if live.dropped_at.is_none() => live.dropped_at = Some(now),
            _ => {}
        }
        // Whatever it means, it is a hint.
        self.look.again(self.session_key(*session));
    }

    /// When that session may be expelled, if ever.
    fn expel_at(&self, id: SessionId, peer: &Peer) -> Time {
        let at = match &peer.sight {
            Sight::Unknown | Sight::Over { .. } => return Time::NEVER,
            Sight::Absent { .. } if !self.depends_on(id) => return Time::NEVER,
            Sight::Absent { lapsed_at } => (*lapsed_at).max(self.cluster.quarantined_until),
            Sight::Live(live) => live.dead_since.unwrap_or_else(|| self.expires_at(live)),
        };
        let at = at.max(peer.retry_at);
        if at > self.now.time {
            return at;
        }
        let urgent =
            !matches!(&peer.sight, Sight::Live(live) if live.dead_since.is_none() && !self.depends_on(id));
        // Nobody waits for a session that holds nothing: somebody expels it some time.
        at.after(if urgent { self.expel_turn(id) } else { 4 * self.config.timing.beat })
    }

    /// On disconnect the owner counts no beat for longer than its grace. No beat that was proven on the connection was sent
    /// after the evidence came; nor was this version, which the expulsion proves to be the last, sent after it came.
    fn expires_at(&self, live: &Live) -> Time {
        let silent_at = live.received_at.after(self.silence(&live.record));
        match live.dropped_at {
            Some(dropped_at) if live.record.takeover == Takeover::OnDisconnect => {
                let grace =
                    if self.mutated(Mutant::GraceSkipped) { Duration::ZERO } else { live.record.grace };
                let last_sent = dropped_at.min(live.received_at);
                silent_at.min(last_sent.after(self.config.timing.watch(grace)))
            }
            _ => silent_at,
        }
    }

    /// Rule 3: how long one version of that session must have been here before it may be expelled.
    fn silence(&self, record: &SessionRecord) -> Duration {
        let ttl = if self.mutated(Mutant::OwnTtl) { self.config.timing.ttl } else { record.ttl };
        if self.mutated(Mutant::ExpelEarly) {
            // "Both clocks are good."
            return ttl - ttl / 50;
        }
        self.config.timing.watch(ttl)
    }

    pub(super) fn peers_wake(&self) -> Time {
        let waiting = self.peers.iter().filter(|(_, peer)| peer.expelling.is_none());
        waiting.map(|(id, peer)| self.expel_at(*id, peer)).min().unwrap_or(Time::NEVER)
    }

    pub(super) fn drive_peers(&mut self, cx: &mut Cx<'_>) {
        if self.epoch().is_none() {
            return;
        }
        let now = self.now.time;
        let own = self.session.own_id();
        let due = self.peers.iter().filter(|(id, peer)| {
            Some(**id) != own && peer.expelling.is_none() && self.expel_at(**id, peer) <= now
        });
        let due: Vec<SessionId> = due.map(|(id, _)| *id).take(super::BATCH).collect();
        if due.is_empty() {
            return;
        }
        if self.mutated(Mutant::ClaimWithoutExpulsion) {
            return due.into_iter().for_each(|id| self.note_over(id, cx));
        }
        let writes = due.iter().map(|id| self.expulsion(*id, cx)).collect();
        let op = self.send_writes(writes, Purpose::Expel(due.clone()), cx);
        for id in due {
            self.peers.entry(id).or_default().expelling = Some(op);
        }
    }

    fn expulsion(&self, id: SessionId, cx: &mut Cx<'_>) -> Write {
        let (expect, record) = match &self.peers[&id].sight {
            Sight::Live(live) => (Some(live.version), live.record.clone()),
            _ => (None, self.placeholder()),
        };
        let record = if self.mutated(Mutant::FollowersRenew) {
            SessionRecord { beat: record.beat + 1, ..record }
        } else {
            SessionRecord { state: SessionState::Expelled, ..record }
        };
        Write {
            key: self.session_key(id),
            expect,
            put: Some((cx.version(), Record::Session(record))),
            ring: true,
            witnessed: false,
        }
    }

    /// What is written where a session should be and nothing is.
    fn placeholder(&self) -> SessionRecord {
        let timing = &self.config.timing;
        SessionRecord {
            node: self.config.node.clone(),
            beat: 0,
            freed: 0,
            freed_lately: Vec::new(),
            card: 0,
            ttl: timing.ttl,
            takeover: Takeover::Strict,
            grace: timing.grace,
            witness: None,
            state: SessionState::Expelled,
            beat_at: self.now.wall,
        }
    }

    pub(super) fn expelled(&mut self, op: OpId, id: SessionId, outcome: Outcome, cx: &mut Cx<'_>) {
        let retry = self.now.time.after(self.retry_delay());
        let renews = self.mutated(Mutant::FollowersRenew);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.expelling.take_if(|awaited| *awaited == op).is_none() {
            return;
        }
        match outcome {
            Outcome::Applied if renews => self.look.again(self.session_key(id)),
            Outcome::Applied => self.note_over(id, cx),
            // It lives, or somebody was faster: either way this is what a committed read shows.
            Outcome::Conflict(found) => self.saw_session(id, found.as_ref(), self.now.time, cx),
            Outcome::Failed(_) => {
                peer.retry_at = retry;
                self.look.again(self.session_key(id));
            }
        }
    }

    /// Takes in a node register that is not ours.
    pub(super) fn saw_node(&mut self, name: &Name, found: Option<&Entry>) {
        match found {
            Some(Entry { version, value: Record::Node(record), .. }) => {
                let session = record.session;
                self.nodes.insert(name.clone(), NodeView { version: *version, record: record.clone() });
                if Some(session) != self.session.own_id() && !self.peers.contains_key(&session) {
                    self.watch_session(session);
                }
            }
            _ => {
                self.nodes.remove(name);
            }
        }
    }

    /// Sessions that nobody needs to be remembered: over, and named by nothing that we know.
    pub(super) fn forget_peers(&mut self, listed: impl Fn(SessionId) -> bool) {
        let named: Vec<SessionId> = self
            .peers
            .iter()
            .filter(|(id, peer)| {
                let idle = peer.expelling.is_none() && !self.depends_on(**id) && !listed(**id);
                let node = self.nodes.values().any(|view| view.session() == **id);
                idle && !node && !matches!(peer.sight, Sight::Unknown)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in named {
            self.peers.remove(&id);
        }
    }

    /// Sessions that have been over for so long that their registers may go, once nothing names them.
    pub(super) fn long_over(&self) -> Vec<SessionId> {
        let age = 12 * self.config.timing.ttl;
        let old =
            |peer: &Peer| matches!(peer.sight, Sight::Over { since } if self.now.time.since(since) >= age);
        self.peers.iter().filter(|(_, peer)| old(peer)).map(|(id, _)| *id).collect()
    }

    /// The key of a session for deletion needs the version that a list showed.
    pub(super) fn deletion(key: Key, version: Version) -> Write {
        Write { key, expect: Some(version), put: None, ring: false, witnessed: false }
    }
}

#[cfg(feature = "canon")]
#[path = "canon/peers.rs"]
mod canon;
