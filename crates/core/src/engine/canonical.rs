//! The canonical form, for the exhaustive model: every number in an engine that is only ever compared, never printed.
//!
//! Absolute times, rising tokens and fresh nonces never repeat, so that a search over states as they are would never
//! end. [`Engine::visit`] shows each such number to a [`Visitor`], which may replace it. A visitor that keeps what the
//! engine can tell apart (equality of nonces, order of tokens and operations, how long ago something was) leaves an
//! engine that behaves exactly as before, up to that renaming; the model tests it by walking both side by side.
//!
//! Each file of the engine has its own part here, in `canonical/`, because only it knows what its numbers mean.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::{Node, Record, Role, RoleControl, Session};
use crate::{Entry, Key, Name, OpId, Outcome, Query, Reply, SessionId, Time, Token, Version, Write};

use super::Engine;

/// Is shown every number that may be replaced, in an order that does not depend on the values of versions.
pub trait Visitor {
    /// A session. Their order matters: registers and views are sorted by it.
    fn session(&mut self, id: &mut SessionId);
    /// A session that is remembered only as over. False: forget it.
    fn over(&mut self, id: &mut SessionId) -> bool;
    /// A version: told apart from others, nothing more.
    fn version(&mut self, version: &mut Version);
    /// Versions that may turn up in a register; those that cannot may go.
    fn unacknowledged(&mut self, versions: &mut Vec<Version>);
    /// The id of a request: told apart from others, nothing more.
    fn request(&mut self, id: &mut SessionId);
    /// An operation that is awaited.
    fn op(&mut self, op: &mut OpId);
    /// A bound: only operations before it, and from it on, are told apart.
    fn bound(&mut self, op: &mut OpId);
    /// A token. Their order matters.
    fn token(&mut self, token: &mut Token);
    /// How often that session has beaten. The order of its values matters.
    fn beat(&mut self, session: SessionId, beat: &mut u64);
    /// How many roles that session has given up. Differences matter.
    fn freed(&mut self, session: SessionId, freed: &mut u64);
    /// When something happens or happened; longer ago than `matters` is all the same.
    fn past(&mut self, at: &mut Time, matters: Duration);
    /// When something may happen; once it may, it is all the same.
    fn due(&mut self, at: &mut Time);
    /// When something may happen, if it is only ever compared with the clock: which of the moments between two readings of the
    /// clock it is makes no difference.
    fn moment(&mut self, at: &mut Time);
    /// A counter of polls of which only the remainder by `period` matters.
    fn polls(&mut self, count: &mut u64, period: u64);
}

/// Whether, for expelling the session `nonce`, the nodes come in the order given: the one thing that an engine reads
/// out of a nonce. The model draws only nonces for which it is so.
#[must_use]
pub fn expels_in_order(nonce: u128, nodes: &[Name]) -> bool {
    nodes.is_sorted_by_key(|node| super::order::spread_hash(nonce as u64, node))
}

impl Engine {
    /// Shows every number of this engine that is only ever compared.
    pub fn visit<V: Visitor>(&mut self, v: &mut V) {
        let longest = self.longest_memory();
        v.past(&mut self.now.time, longest);
        self.now.wall = crate::Timestamp::from_micros(0);
        self.ops.visit(longest, v);
        self.poll.visit(self.audit_period(), v);
        self.cluster.visit(v);
        self.session.visit(longest, v);
        // Only the moments of beats and polls follow from it, which are between two readings of the clock there.
        self.rhythm.forget();
        self.own_node.visit(v);
        let settling = self.longest_expulsion_delay();
        self.peers.visit(self.rules.timing(), settling, v);
        self.controls.visit(longest, v);
        let watched = if self.rules.store_can_forget() { self.longest_wait() } else { Duration::ZERO };
        self.roles.visit(watched, longest, v);
    }

    /// Whether evidence about that session can matter: it was seen alive, and not seen to be over.
    #[must_use]
    pub fn watches_lock_of(&self, session: SessionId) -> bool {
        self.peers.is_live(session)
    }

    /// Nothing that happened longer ago than this makes a difference.
    fn longest_memory(&self) -> Duration {
        self.longest_wait() + self.longest_expulsion_delay()
    }
}

pub(super) fn keep<V: Visitor>(v: &mut V, id: &mut SessionId) -> bool {
    v.session(id);
    true
}

pub(super) fn rekeyed<T>(
    map: BTreeMap<SessionId, T>,
    mut visit: impl FnMut(&mut SessionId, &mut T) -> bool,
) -> BTreeMap<SessionId, T> {
    map.into_iter()
        .filter_map(|(mut id, mut value)| visit(&mut id, &mut value).then_some((id, value)))
        .collect()
}

/// The numbers of a key.
pub fn visit_key<V: Visitor>(key: &mut Key, v: &mut V) {
    if let Key::Session(_, id) = key {
        v.session(id);
    }
}

/// The numbers of a register.
pub fn visit_entry<V: Visitor>(key: &mut Key, version: &mut Version, value: &mut Record, v: &mut V) {
    v.version(version);
    match value {
        Record::Session(record) => {
            if let Key::Session(_, id) = key {
                visit_session(*id, record, v);
            }
        }
        Record::Node(record) => visit_node(record, v),
        Record::Role(record) => visit_role(record, v),
        Record::RoleControl(control) => visit_control(control, v),
        Record::NodeControl(_) | Record::Cluster(_) | Record::Newer(_) | Record::Foreign => {}
    }
    visit_key(key, v);
}

/// The numbers of a read.
pub fn visit_query<V: Visitor>(query: &mut Query, v: &mut V) {
    query.keys.iter_mut().for_each(|key| visit_key(key, v));
}

/// The numbers of a write.
pub fn visit_write<V: Visitor>(write: &mut Write, v: &mut V) {
    if let Some(expect) = &mut write.expect {
        v.version(expect);
    }
    match &mut write.put {
        Some((version, value)) => visit_entry(&mut write.key, version, value, v),
        None => visit_key(&mut write.key, v),
    }
}

/// The numbers of an answer.
pub fn visit_reply<V: Visitor>(reply: &mut Reply, v: &mut V) {
    let mut entry = |entry: &mut Entry| visit_entry(&mut entry.key, &mut entry.version, &mut entry.value, v);
    match reply {
        Reply::Read(entries) => entries.iter_mut().for_each(entry),
        Reply::Written(outcomes) => {
            for outcome in outcomes {
                if let Outcome::Conflict(Some(found)) = outcome {
                    entry(found);
                }
            }
        }
        Reply::Failed(_) => {}
    }
}

pub(super) fn visit_session<V: Visitor>(id: SessionId, record: &mut Session, v: &mut V) {
    if record.state == crate::record::SessionState::Live {
        v.beat(id, &mut record.beat);
        v.freed(id, &mut record.freed);
    } else {
        // No node counts anything of a session that is over.
        (record.beat, record.freed, record.node_writes) = (0, 0, 0);
        record.freed_lately.clear();
    }
    record.beat_at = crate::Timestamp::from_micros(0);
}

pub(super) fn visit_node<V: Visitor>(record: &mut Node, v: &mut V) {
    v.session(&mut record.session);
    record.since = crate::Timestamp::from_micros(0);
}

pub(super) fn visit_role<V: Visitor>(record: &mut Role, v: &mut V) {
    v.token(&mut record.token);
    if let Some(holder) = &mut record.holder {
        v.session(&mut holder.session);
    }
    record.since = crate::Timestamp::from_micros(0);
}

pub(super) fn visit_control<V: Visitor>(control: &mut RoleControl, v: &mut V) {
    if let Some(request) = &mut control.request {
        v.request(&mut request.id);
        v.token(&mut request.token);
    }
}
