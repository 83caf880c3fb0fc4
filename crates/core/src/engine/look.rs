//! Looking: one read at a time, at least once a beat.
//!
//! On each beat: the `cluster` register, what operators ask, the sessions we depend on, and one of our roles in
//! turn. A hint or a doubt adds what may have changed; every fifth look lists all sessions, to find those that
//! nobody depends on, and now and then one reads our own node register. What a look costs does not grow with the number of
//! roles.

use std::collections::BTreeSet;

use crate::record::Record;
use crate::{Entry, Event, Key, Kind, Mutant, Name, OpId, Query, Reply, SessionId, Time};

use super::ops::Purpose;
use super::{BATCH, Cx, Engine, Run};

/// What to look at next, and when.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Look {
    awaited: Option<OpId>,
    next_at: Time,
    /// After a failure: not before.
    hold_until: Time,
    count: u64,
    /// Worth reading at once.
    again: BTreeSet<Key>,
    /// Known from a hint only: read along with the next looks.
    unverified: BTreeSet<Name>,
    /// Hints may have been missed: read every role and node.
    everything: bool,
    /// Deletions on their way.
    tidying: bool,
    /// Sessions long over that a list of all roles and nodes covered: what it left is named by something.
    examined: BTreeSet<SessionId>,
    /// Somebody waits for a look that begins after now.
    wanted: bool,
    /// Roles claimed, to be led after a look that began later.
    verifying: BTreeSet<Name>,
    /// The role that was looked at last, in turn.
    audited: Option<Name>,
}

/// What an awaited look covers: what it does not return of this is absent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    keys: Vec<Key>,
    controls: bool,
    sessions: bool,
    nodes: bool,
    tidy: bool,
}

/// Every so many looks list all sessions.
const SWEEP: u64 = 5;
/// So many unverified roles go along with a look.
const VERIFY: usize = 64;

impl Look {
    pub(super) fn again(&mut self, key: Key) {
        self.again.insert(key);
    }

    pub(super) fn verify(&mut self, role: Name) {
        self.unverified.insert(role);
    }

    pub(super) fn everything(&mut self) {
        self.everything = true;
        self.wanted = true;
    }

    pub(super) fn soon(&mut self) {
        self.wanted = true;
    }

    pub(super) fn verifying(&mut self, role: &Name) {
        self.verifying.insert(role.clone());
        self.wanted = true;
    }

    pub(super) fn tidied(&mut self) {
        self.tidying = false;
    }

    pub(super) fn take_verifying(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.verifying)
    }

    pub(super) fn forget(&mut self) {
        self.again.clear();
        self.unverified.clear();
        self.examined.clear();
    }

    fn urgent(&self) -> bool {
        self.wanted || !self.again.is_empty()
    }
}

impl Engine {
    pub(super) fn look_wake(&self) -> Time {
        match self.look.awaited {
            Some(_) => Time::NEVER,
            None if self.look.urgent() => self.look.hold_until.max(self.now.time),
            None => self.look.next_at.max(self.look.hold_until),
        }
    }

    pub(super) fn drive_look(&mut self, cx: &mut Cx<'_>) {
        if self.run == Run::Stopped || self.look.awaited.is_some() || self.now.time < self.look.hold_until {
            return;
        }
        if self.now.time < self.look.next_at && !self.look.urgent() {
            return;
        }
        let regular = self.now.time >= self.look.next_at;
        let (query, scope) = match self.epoch() {
            // Until the epoch is known there is nothing else to name.
            None => self.look_at_cluster(),
            Some(_) => self.compose(regular),
        };
        self.look.wanted = false;
        if regular {
            self.look.next_at = self.now.time.after(self.config.timing.beat);
            self.look.count += 1;
        }
        self.look.awaited = Some(self.send_read(query, scope, cx));
    }

    fn look_at_cluster(&self) -> (Query, Scope) {
        let keys = vec![Key::Cluster];
        let scope = Scope { keys: keys.clone(), controls: false, sessions: false, nodes: false, tidy: false };
        (Query { keys, kinds: Vec::new() }, scope)
    }

    fn compose(&mut self, regular: bool) -> (Query, Scope) {
        let epoch = self.epoch().unwrap_or_default();
        if std::mem::take(&mut self.look.everything) {
            let roles: Vec<Key> = self.roles.keys().map(|role| self.named(Kind::Role, role)).collect();
            self.look.again.extend(roles);
            self.look.again.insert(self.named(Kind::Node, &self.config.node));
            return self.compose_with(epoch, regular, true);
        }
        self.compose_with(epoch, regular, false)
    }

    fn compose_with(&mut self, epoch: crate::Epoch, regular: bool, nodes: bool) -> (Query, Scope) {
        let mut keys: BTreeSet<Key> =
            BTreeSet::from([Key::Cluster, self.named(Kind::NodeControl, &self.config.node)]);
        keys.extend(self.depended_on().into_iter().map(|id| self.session_key(id)));
        if regular {
            keys.extend(self.next_audit());
            keys.extend(self.card_audit());
            let verify: Vec<Name> = self.look.unverified.iter().take(VERIFY).cloned().collect();
            for role in verify {
                self.look.unverified.remove(&role);
                keys.insert(self.named(Kind::Role, &role));
            }
        }
        while keys.len() < BATCH {
            let Some(key) = self.look.again.pop_first() else { break };
            keys.insert(key);
        }
        let sessions = nodes || (regular && self.look.count.is_multiple_of(SWEEP));
        let tidy = sessions && self.tidies();
        let mut kinds = vec![(epoch, Kind::RoleControl)];
        kinds.extend(sessions.then_some((epoch, Kind::Session)));
        kinds.extend((nodes || tidy).then_some((epoch, Kind::Node)));
        kinds.extend(tidy.then_some((epoch, Kind::Role)));
        let scope = Scope {
            keys: keys.iter().cloned().collect(),
            controls: true,
            sessions,
            nodes: nodes || tidy,
            tidy,
        };
        // What a kind covers need not be named in the query; that it was asked for still counts.
        keys.retain(|key| !kinds.contains(&(key.epoch(), key.kind())));
        (Query { keys: keys.into_iter().collect(), kinds }, scope)
    }

    /// One role in turn, so that a register changed behind everybody's back is noticed.
    fn next_audit(&mut self) -> Option<Key> {
        let after = self.look.audited.as_ref().and_then(|last| {
            let range = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.roles.range::<Name, _>(range).next()
        });
        let (name, _) = after.or_else(|| self.roles.first_key_value())?;
        self.look.audited = Some(name.clone());
        Some(self.named(Kind::Role, name))
    }

    /// Our own node register, which somebody may have deleted by hand. It grows with our roles, and so is read more seldom the
    /// more there are.
    fn card_audit(&self) -> Option<Key> {
        let due = self.look.count % self.audit_period() == SWEEP - 1;
        due.then(|| self.named(Kind::Node, &self.config.node))
    }

    /// After so many looks everything that is looked at in turn begins anew.
    pub(super) fn audit_period(&self) -> u64 {
        SWEEP * (self.roles.len() as u64).max(1)
    }

    pub(super) fn looked(&mut self, op: OpId, sent_at: Time, scope: Scope, reply: Reply, cx: &mut Cx<'_>) {
        self.look.awaited.take_if(|awaited| *awaited == op);
        let Reply::Read(mut found) = reply else { return self.look_failed(scope) };
        found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        if scope.keys.contains(&Key::Cluster) {
            let epoch = self.epoch();
            self.saw_cluster(find(&found, &Key::Cluster), cx);
            if self.epoch() != epoch {
                // What else it returned belongs to another life of the store.
                return;
            }
        }
        if scope.controls {
            self.saw_controls(&found, cx);
        }
        if scope.nodes {
            let gone = |name: &Name| find(&found, &self.named(Kind::Node, name)).is_none();
            let gone: Vec<Name> = self.nodes.keys().filter(|name| gone(name)).cloned().collect();
            gone.iter().for_each(|name| self.saw_node(name, None));
        }
        let tidy = if scope.tidy { self.tidy(&found) } else { Vec::new() };
        for key in &scope.keys {
            self.saw(op, sent_at, key, find(&found, key), cx);
        }
        for entry in found.iter().filter(|entry| scope.keys.binary_search(&entry.key).is_err()) {
            self.saw(op, sent_at, &entry.key, Some(entry), cx);
        }
        if scope.sessions {
            self.swept(&found, cx);
        }
        if !tidy.is_empty() {
            self.look.tidying = true;
            self.send_writes(tidy, Purpose::Tidy, cx);
        }
        self.look_done(op, cx);
        cx.event(Event::Checked);
    }

    fn look_failed(&mut self, scope: Scope) {
        self.look.again.extend(scope.keys);
        self.look.everything |= scope.nodes && !scope.tidy;
        self.look.wanted |= !self.look.verifying.is_empty();
        self.look.hold_until = self.now.time.after(self.retry_delay());
        self.look.next_at = self.look.next_at.min(self.look.hold_until);
    }

    fn saw(&mut self, op: OpId, sent_at: Time, key: &Key, found: Option<&Entry>, cx: &mut Cx<'_>) {
        match key {
            Key::Cluster => {}
            Key::Session(_, id) => self.saw_session(*id, found, sent_at, cx),
            Key::Named(_, Kind::Node, name) => {
                if *name == self.config.node {
                    self.read_card(op, found);
                }
                self.saw_node(name, found);
            }
            Key::Named(_, Kind::Role, name) => self.saw_role(op, name, found, cx),
            Key::Named(_, Kind::NodeControl, name) if *name == self.config.node => {
                self.saw_node_control(found, cx)
            }
            Key::Named(..) => {}
        }
    }

    /// A hint about a role may be acted on: the compare-and-set decides. About anything else it means: read it.
    pub(super) fn hinted_change(&mut self, entry: Entry, cx: &mut Cx<'_>) {
        if self.mutated(Mutant::HintBelieved)
            && let Key::Session(_, id) = entry.key
            && matches!(&entry.value, Record::Session(record) if record.state != crate::record::SessionState::Live)
        {
            return self.note_over(id, cx);
        }
        match &entry.key {
            Key::Named(epoch, Kind::Role, name) if Some(*epoch) == self.epoch() => {
                let name = name.clone();
                self.hinted_role(&name, &entry, cx);
            }
            // Every look reads all of these anyway.
            Key::Named(_, Kind::RoleControl, _) => self.look.soon(),
            Key::Named(_, Kind::NodeControl, name) if *name == self.config.node => self.look.soon(),
            Key::Named(_, Kind::Node, name) if *name != self.config.node => self.look_again(entry.key),
            Key::Session(..) | Key::Cluster => self.look_again(entry.key),
            Key::Named(..) => {}
        }
    }

    /// After a list of all sessions: those that it lacks are absent, or forgotten.
    fn swept(&mut self, found: &[Entry], cx: &mut Cx<'_>) {
        let own = self.session.own_id();
        let epoch = self.epoch().unwrap_or_default();
        let listed = |id: SessionId| find(found, &Key::Session(epoch, id)).is_some();
        let missing: Vec<SessionId> =
            self.peers.keys().filter(|id| !listed(**id) && Some(**id) != own).copied().collect();
        for id in missing {
            self.saw_session(id, None, self.now.time, cx);
        }
        self.forget_peers(listed);
    }

    /// Whether there is something new to clear away, and it is for us to do it: it takes a list of everything.
    fn tidies(&self) -> bool {
        let new = |id: SessionId| !self.look.examined.contains(&id) && self.expel_turn(id).is_zero();
        !self.look.tidying && self.session_usable().is_some() && self.long_over().into_iter().any(new)
    }

    /// What a list of everything says may be cleared away.
    fn tidy(&mut self, found: &[Entry]) -> Vec<crate::Write> {
        let (writes, complete) = self.tidy_writes(found);
        if complete {
            self.look.examined = self.long_over().into_iter().collect();
        }
        writes
    }

    /// Deletes sessions that are over and named by nothing, and the names of nodes that are gone, which named them. Tells
    /// whether nothing is left for the next time.
    fn tidy_writes(&self, found: &[Entry]) -> (Vec<crate::Write>, bool) {
        let over: BTreeSet<SessionId> = self.long_over().into_iter().collect();
        let mut named = BTreeSet::new();
        let mut writes = Vec::new();
        // Our own name is the card's business.
        let own_name = self.named(Kind::Node, &self.config.node);
        for entry in found {
            match &entry.value {
                Record::Role(role) => named.extend(role.holder.as_ref().map(|holder| holder.session)),
                Record::Node(node) if over.contains(&node.session) && entry.key != own_name => {
                    named.insert(node.session);
                    writes.push(Self::deletion(entry.key.clone(), entry.version));
                }
                Record::Node(node) => _ = named.insert(node.session),
                _ => {}
            }
        }
        let sessions = found.iter().filter(|entry| match (&entry.key, &entry.value) {
            (Key::Session(_, id), Record::Session(record)) => {
                record.state != crate::record::SessionState::Live && over.contains(id) && !named.contains(id)
            }
            _ => false,
        });
        let names = writes.len();
        writes.extend(sessions.map(|entry| Self::deletion(entry.key.clone(), entry.version)));
        let complete = names == 0 && writes.len() <= BATCH;
        writes.truncate(BATCH);
        (writes, complete)
    }
}

/// An entry of a sorted list.
fn find<'a>(found: &'a [Entry], key: &Key) -> Option<&'a Entry> {
    found.binary_search_by(|entry| entry.key.cmp(key)).ok().map(|at| &found[at])
}

#[cfg(feature = "canon")]
#[path = "canon/look.rs"]
mod canon;
