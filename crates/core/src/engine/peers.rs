//! What we know of other sessions, and of the nodes that opened them.
//!
//! Rule 3. We count from *after* we first received a version, and a session that is over stays over. This part only
//! keeps and weighs observations; `expel.rs` acts on them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::{Node as NodeRecord, Session as SessionRecord};
use crate::{Evidence, Name, OpId, SessionId, Takeover, Time, Version};

use super::order;
use super::rhythm::ROLES_TRIED;
use super::rules::Rules;

/// With so few nodes every poll reads every session, and every liveness lock is watched.
const FEW_NODES: usize = 16;

/// Other sessions, our own former ones, and the node registers of other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Peers {
    sessions: BTreeMap<SessionId, Peer>,
    nodes: BTreeMap<Name, NodeView>,
}

/// A session that is not ours.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Peer {
    state: PeerState,
    expelling: Option<OpId>,
    retry_at: Time,
    lock_watched: bool,
    /// How many roles it had resigned when it was last read.
    freed: Option<u64>,
    /// How often it had written its node register when it was last read.
    node_writes: Option<u64>,
}

/// What we know of a session that is not ours.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum PeerState {
    /// Nothing yet.
    #[default]
    Unknown,
    /// No register. Not over: a late opening could still arrive, and if an operator deleted it, its owner does not
    /// know and counts on its lease, which has run out by then.
    Absent { lapsed_at: Time },
    /// A live register.
    Live(Box<LivePeer>),
    /// Over, for good.
    Over { since: Time },
}

/// A version of a live session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LivePeer {
    version: Version,
    record: SessionRecord,
    /// When this version was first received.
    received_at: Time,
    /// An earlier version was received too.
    beat_advanced: bool,
    /// When a liveness lock that covers the work showed it dead.
    dead_since: Option<Time>,
    /// When a liveness lock showed that its connection dropped.
    dropped_at: Option<Time>,
}

impl LivePeer {
    /// Evidence shows it dead, or disconnected where that counts.
    fn is_suspect(&self) -> bool {
        let dropped = self.dropped_at.is_some() && self.record.takeover == Takeover::OnDisconnect;
        dropped || self.dead_since.is_some()
    }

    /// On disconnect the owner counts no beat for longer than its grace. No beat that was proven on the connection was
    /// sent after the evidence came; nor was this version, which the expulsion proves to be the last, sent after it came.
    fn expires_at(&self, rules: &Rules) -> Time {
        let silent_at = self.received_at.after(rules.expulsion_wait(self.record.ttl));
        match (self.dropped_at, rules.disconnect_wait(&self.record)) {
            (Some(dropped_at), Some(wait)) => silent_at.min(dropped_at.min(self.received_at).after(wait)),
            _ => silent_at,
        }
    }
}

/// A node register as it was last read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NodeView {
    version: Version,
    record: NodeRecord,
}

impl NodeView {
    pub(super) fn new(version: Version, record: NodeRecord) -> Self {
        Self { version, record }
    }

    pub(super) fn session(&self) -> SessionId {
        self.record.session
    }

    pub(super) fn address(&self) -> Option<&str> {
        self.record.address.as_deref()
    }

    pub(super) fn priority(&self, role: &Name) -> Option<i32> {
        self.record.candidacies.get(role).copied()
    }

    /// Whether the node stands for one of `roles`, which `contains` tells too: it asks the shorter of the two lists.
    pub(super) fn stands_for_any<'a>(
        &self,
        roles: impl ExactSizeIterator<Item = &'a Name>,
        contains: impl Fn(&Name) -> bool,
    ) -> bool {
        let candidacies = &self.record.candidacies;
        if candidacies.len() < roles.len() {
            candidacies.keys().take(ROLES_TRIED).any(contains)
        } else {
            roles.take(ROLES_TRIED).any(|role| candidacies.contains_key(role))
        }
    }
}

/// What the read of a live session brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiveNews {
    /// A stale read: over is final.
    Stale,
    /// The version that was here before.
    Same,
    /// Another version, or the first one.
    Version,
}

/// What a session has resigned since it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Freed {
    /// These roles, and no others.
    Roles(Vec<Name>),
    /// More than its record names.
    Unknown,
}

/// What the moment of an expulsion depends on, besides the session itself.
pub(super) struct ExpulsionTerms<'a> {
    pub(super) rules: &'a Rules,
    pub(super) now: Time,
    pub(super) own_name: &'a Name,
    /// Nothing that a forgetful store lacks is expelled before.
    pub(super) quarantined_until: Time,
    /// Whether we wait for that session.
    pub(super) depends_on: &'a dyn Fn(SessionId) -> bool,
}

/// Questions.
impl Peers {
    pub(super) fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// A committed read showed that session to be over.
    pub(super) fn is_over(&self, session: SessionId) -> bool {
        matches!(self.state(session), Some(PeerState::Over { .. }))
    }

    /// Its beat was seen to advance, and there is no evidence against it.
    pub(super) fn seen_alive(&self, session: SessionId) -> bool {
        self.live(session).is_some_and(|live| live.beat_advanced && !live.is_suspect())
    }

    /// It was seen alive, and not seen to be over.
    pub(super) fn is_live(&self, session: SessionId) -> bool {
        self.live(session).is_some()
    }

    /// Its last beat, and when it means to send the next one.
    pub(super) fn beat_of(&self, session: SessionId) -> Option<(u64, &SessionRecord)> {
        self.live(session).map(|live| (live.record.beat, &live.record))
    }

    /// It was seen alive, has not been silent for its lease since, and does not rest, as far as it says.
    pub(super) fn is_awake(&self, session: SessionId, rules: &Rules, now: Time) -> bool {
        let awake =
            |live: &LivePeer| now < live.expires_at(rules) && live.record.every <= live.record.ttl / 3;
        self.seen_alive(session) && self.live(session).is_some_and(awake)
    }

    /// How long its owner goes without reading at most, as far as it says: no longer than its lease.
    pub(super) fn pause_of(&self, session: SessionId) -> Duration {
        let pause = |live: &LivePeer| live.record.every.min(live.record.ttl);
        self.live(session).map_or(Duration::ZERO, pause)
    }

    /// No evidence against it, whether its beat was seen to advance or not.
    pub(super) fn may_be_alive(&self, session: SessionId) -> bool {
        match self.state(session) {
            None | Some(PeerState::Unknown) => true,
            Some(PeerState::Live(live)) => !live.is_suspect(),
            Some(PeerState::Absent { .. } | PeerState::Over { .. }) => false,
        }
    }

    /// Its node says that it may not claim anything yet.
    pub(super) fn holds_back(&self, session: SessionId) -> bool {
        self.live(session).is_some_and(|live| live.record.holds_back)
    }

    /// The ttl of a session that was seen alive; nothing otherwise.
    pub(super) fn ttl_of(&self, session: SessionId) -> Duration {
        self.live(session).map_or(Duration::ZERO, |live| live.record.ttl)
    }

    pub(super) fn are_few(&self) -> bool {
        self.sessions.len() <= FEW_NODES
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.keys().copied()
    }

    /// The sessions that are not known to be over.
    pub(super) fn undecided(&self) -> impl Iterator<Item = SessionId> {
        let undecided = |peer: &Peer| !matches!(peer.state, PeerState::Over { .. });
        self.sessions.iter().filter(move |(_, peer)| undecided(peer)).map(|(id, _)| *id)
    }

    /// Sessions that have been over for so long that their registers may go, once nothing names them.
    pub(super) fn over_for(&self, age: Duration, now: Time) -> Vec<SessionId> {
        let old = |peer: &Peer| matches!(peer.state, PeerState::Over { since } if now.since(since) >= age);
        self.sessions.iter().filter(|(_, peer)| old(peer)).map(|(id, _)| *id).collect()
    }

    /// The live version of a session, for an expulsion.
    pub(super) fn version(&self, session: SessionId) -> Option<(Version, SessionRecord)> {
        self.live(session).map(|live| (live.version, live.record.clone()))
    }

    /// When the first expulsion is due.
    pub(super) fn next_expulsion(&self, terms: &ExpulsionTerms<'_>) -> Time {
        self.expulsions(terms).map(|(_, at)| at).min().unwrap_or(Time::NEVER)
    }

    /// The sessions to expel now.
    pub(super) fn to_expel(&self, terms: &ExpulsionTerms<'_>) -> impl Iterator<Item = SessionId> {
        self.expulsions(terms).filter(|(_, at)| *at <= terms.now).map(|(id, _)| id)
    }

    fn expulsions(&self, terms: &ExpulsionTerms<'_>) -> impl Iterator<Item = (SessionId, Time)> {
        let waiting = self.sessions.iter().filter(|(_, peer)| peer.expelling.is_none());
        waiting.map(|(id, peer)| (*id, self.expel_at(*id, peer, terms)))
    }

    /// When that session may be expelled, if ever.
    fn expel_at(&self, id: SessionId, peer: &Peer, terms: &ExpulsionTerms<'_>) -> Time {
        let at = match &peer.state {
            PeerState::Unknown | PeerState::Over { .. } => return Time::NEVER,
            PeerState::Absent { .. } if !(terms.depends_on)(id) => return Time::NEVER,
            PeerState::Absent { lapsed_at } => (*lapsed_at).max(terms.quarantined_until),
            PeerState::Live(live) => live.dead_since.unwrap_or_else(|| live.expires_at(terms.rules)),
        };
        let at = at.max(peer.retry_at);
        if at > terms.now {
            return at;
        }
        let idle = matches!(&peer.state, PeerState::Live(live) if live.dead_since.is_none());
        // No candidate waits for a session that holds nothing: its expulsion is not urgent.
        at.after(if idle && !(terms.depends_on)(id) {
            terms.rules.idle_expulsion_delay(self.are_few())
        } else {
            order::expel_delay(self, terms.own_name, id)
        })
    }

    fn state(&self, session: SessionId) -> Option<&PeerState> {
        self.sessions.get(&session).map(|peer| &peer.state)
    }

    fn live(&self, session: SessionId) -> Option<&LivePeer> {
        match self.state(session) {
            Some(PeerState::Live(live)) => Some(live),
            _ => None,
        }
    }
}

/// Observations of sessions.
impl Peers {
    pub(super) fn track(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default();
    }

    /// No register is there. `wait` says how long its owner may still count on it. False: that is no news.
    pub(super) fn observe_absent(
        &mut self,
        id: SessionId,
        now: Time,
        wait: impl FnOnce(Option<&SessionRecord>) -> Duration,
    ) -> bool {
        let Some(peer) = self.sessions.get_mut(&id) else { return false };
        let wait = match &peer.state {
            // Over is final, and may be deleted.
            PeerState::Over { .. } | PeerState::Absent { .. } => return false,
            PeerState::Live(live) => wait(Some(&live.record)),
            PeerState::Unknown => wait(None),
        };
        peer.state = PeerState::Absent { lapsed_at: now.after(wait) };
        true
    }

    pub(super) fn observe_live(
        &mut self,
        id: SessionId,
        version: Version,
        record: &SessionRecord,
        received_at: Time,
    ) -> LiveNews {
        let peer = self.sessions.entry(id).or_default();
        match &mut peer.state {
            PeerState::Over { .. } => return LiveNews::Stale,
            PeerState::Live(live) if live.version == version => return LiveNews::Same,
            PeerState::Live(live) => {
                live.beat_advanced |= record.beat > live.record.beat;
                (live.version, live.record, live.received_at) = (version, record.clone(), received_at);
            }
            state => {
                let record = record.clone();
                let (beat_advanced, dead_since, dropped_at) = (false, None, None);
                *state = PeerState::Live(Box::new(LivePeer {
                    version,
                    record,
                    received_at,
                    beat_advanced,
                    dead_since,
                    dropped_at,
                }));
            }
        }
        LiveNews::Version
    }

    /// What the session has resigned since it was last read. What a session counts only rises: a read that shows less is
    /// stale.
    pub(super) fn follow_freed(&mut self, id: SessionId, record: &SessionRecord) -> Freed {
        let Some(peer) = self.sessions.get_mut(&id) else { return Freed::Roles(Vec::new()) };
        let before = peer.freed.replace(peer.freed.unwrap_or_default().max(record.freed));
        let news = before.map_or(u64::MAX, |before| record.freed.saturating_sub(before));
        let lately = &record.freed_lately;
        match usize::try_from(news) {
            Ok(news) if news <= lately.len() => Freed::Roles(lately[lately.len() - news..].to_vec()),
            _ => Freed::Unknown,
        }
    }

    /// Whether the node has written its register since its session was last read.
    pub(super) fn follow_node_writes(&mut self, id: SessionId, record: &SessionRecord) -> bool {
        let Some(peer) = self.sessions.get_mut(&id) else { return false };
        let news = peer.node_writes.is_none_or(|known| known < record.node_writes);
        if news {
            peer.node_writes = Some(record.node_writes);
        }
        news
    }

    /// Over is final. None if that was known; otherwise whether its liveness lock is watched.
    pub(super) fn mark_over(&mut self, id: SessionId, now: Time) -> Option<bool> {
        let peer = self.sessions.entry(id).or_default();
        if matches!(peer.state, PeerState::Over { .. }) {
            return None;
        }
        peer.state = PeerState::Over { since: now };
        peer.expelling = None;
        Some(std::mem::take(&mut peer.lock_watched))
    }

    /// The liveness lock to watch from now on, if the session has one that is not watched yet.
    pub(super) fn watch_lock(&mut self, id: SessionId) -> Option<(String, Takeover)> {
        let peer = self.sessions.get_mut(&id)?;
        let PeerState::Live(live) = &peer.state else { return None };
        let lock = live.record.liveness_lock.as_ref()?;
        let first = !std::mem::replace(&mut peer.lock_watched, true);
        first.then(|| (lock.id.clone(), live.record.takeover))
    }

    /// Evidence from outside the store. It counts only if it is of the lock that the record names; whether it does.
    pub(super) fn observe_evidence(&mut self, evidence: &Evidence, rules: &Rules, now: Time) -> bool {
        let (Evidence::Dead { session, lock } | Evidence::Disconnected { session, lock }) = evidence;
        let Some(Peer { state: PeerState::Live(live), .. }) = self.sessions.get_mut(session) else {
            return false;
        };
        let Some(named) = live.record.liveness_lock.as_ref().filter(|named| rules.believes_lock(named, lock))
        else {
            return false;
        };
        match evidence {
            Evidence::Dead { .. } if rules.covers_work(named) => {
                live.dead_since = live.dead_since.or(Some(now))
            }
            Evidence::Disconnected { .. } => live.dropped_at = live.dropped_at.or(Some(now)),
            Evidence::Dead { .. } => {}
        }
        true
    }

    /// The expulsion of that session is pending.
    pub(super) fn begin_expelling(&mut self, id: SessionId, op: OpId) {
        self.sessions.entry(id).or_default().expelling = Some(op);
    }

    /// Whether that operation was the pending expulsion of that session; it is pending no longer.
    pub(super) fn end_expelling(&mut self, id: SessionId, op: OpId) -> bool {
        let peer = self.sessions.get_mut(&id);
        peer.is_some_and(|peer| peer.expelling.take_if(|awaited| *awaited == op).is_some())
    }

    pub(super) fn retry_expelling(&mut self, id: SessionId, at: Time) {
        if let Some(peer) = self.sessions.get_mut(&id) {
            peer.retry_at = at;
        }
    }

    /// Forgets what was read of sessions that nothing names any more.
    pub(super) fn forget_sessions(&mut self, needed: impl Fn(SessionId) -> bool) {
        let nodes = &self.nodes;
        self.sessions.retain(|id, peer| {
            let idle = peer.expelling.is_none() && !matches!(peer.state, PeerState::Unknown);
            !idle || needed(*id) || nodes.values().any(|view| view.session() == *id)
        });
    }

    /// The store forgot everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Node registers.
impl Peers {
    pub(super) fn node(&self, name: &Name) -> Option<&NodeView> {
        self.nodes.get(name)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Name, &NodeView)> {
        self.nodes.iter()
    }

    /// Replaces what is known of a node; whether that is news.
    pub(super) fn set_node(&mut self, name: &Name, view: NodeView) -> bool {
        let version = view.version;
        self.nodes.insert(name.clone(), view).is_none_or(|former| former.version != version)
    }

    pub(super) fn remove_node(&mut self, name: &Name) {
        self.nodes.remove(name);
    }
}

#[cfg(feature = "canonical")]
#[path = "canonical/peers.rs"]
mod canonical;

#[cfg(test)]
#[path = "tests/peers.rs"]
mod tests;
