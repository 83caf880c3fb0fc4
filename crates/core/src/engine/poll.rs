//! The poll: one read at a time, at least once a beat. A regular poll goes out together with a beat, in one round trip, unless
//! its answer may be long.
//!
//! On each beat: the `cluster` register, what operators ask, the sessions we depend on, and one of our roles in
//! turn. A hint or a doubt adds what may have changed; every fifth poll lists all sessions, to find those that
//! no role depends on, and now and then a poll reads our own node register. What a poll costs does not grow with the
//! number of roles, nor with the number of hints, which can be forged. Among many nodes a poll between two beats, for
//! a hint or a claim, reads only the sessions that it was told of.

use std::collections::BTreeSet;

use crate::io::Pairing;
use crate::record::Record;
use crate::{Entry, Event, Key, Kind, Name, OpId, Query, Reply, SessionId, Time};

use super::ops::Purpose;
use super::order;
use super::roles::TrackedRole;
use super::{BATCH, Engine, Lifecycle, StepContext};

/// What the next poll reads, and when it goes out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Poll {
    awaited: Option<OpId>,
    /// The awaited claim after which the awaited poll is served.
    after_claim: Option<OpId>,
    next_at: Time,
    /// After a failed poll: the next one goes out no earlier.
    hold_until: Time,
    count: u64,
    /// Registers that the next poll reads, which goes out at once.
    requested: BTreeSet<Key>,
    /// The next poll reads every role and node.
    everything: bool,
    hinted: HintBudget,
    /// Deletions are in flight.
    collecting_garbage: bool,
    /// Sessions long over that a list of all roles and nodes covered: what it left is named by something.
    garbage_examined: BTreeSet<SessionId>,
    /// A part of the engine waits for a poll that begins after now.
    wanted: bool,
    /// Claimed roles whose tenure begins after a poll that began later.
    verifying: BTreeSet<Name>,
    /// The role that the last poll read in turn.
    last_audited: Option<Name>,
    /// Roles of ours that the last poll did not show as ours: the next poll reads them again.
    doubted: BTreeSet<Name>,
    /// The store may have lost something: no beat counts until a poll from this one on has listed all roles.
    suspect_from: Option<OpId>,
    /// Unreadable registers that were reported.
    unreadable: BTreeSet<Key>,
}

/// What hints ask for. A few polls in each beat go out for hints alone, and more once they have brought news, but not without
/// end: stale reads bring news again and again. Other hints wait for the next poll, one beat later at most.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct HintBudget {
    keys: BTreeSet<Key>,
    /// A hint names something that every poll reads.
    anyway: bool,
    /// Hints may have been missed: the next poll reads every role and node.
    everything: bool,
    /// How much of the allowance of this beat is spent since there was news.
    spent: u8,
    /// The polls of this beat that went out for hints alone.
    polls: u8,
}

/// What a pending poll covers: a covered register that the reply lacks is absent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PollScope {
    keys: Vec<Key>,
    controls: bool,
    sessions: bool,
    nodes: bool,
    garbage: bool,
    audit: bool,
}

impl PollScope {
    /// Whether the answer may list every role or node.
    fn is_long(&self) -> bool {
        self.nodes || self.garbage || self.audit
    }
}

/// Every so many polls list all sessions.
const SESSION_LIST_PERIOD: u64 = 5;
/// At most so many polls per beat go out for hints that bring no news.
const HINT_POLLS_PER_BEAT: u8 = 8;
/// At most so many polls per beat go out for hints, whatever they bring.
const HINT_POLLS_WITH_NEWS: u8 = 64;
/// What a poll of everything costs of that allowance.
const FULL_POLL_COST: u8 = 4;

impl Poll {
    pub(super) fn reread(&mut self, key: Key) {
        self.requested.insert(key);
    }

    /// A poll showed news, which no forger can bring about: hints are worth following.
    pub(super) fn note_news(&mut self) {
        self.hinted.spent = 0;
    }

    pub(super) fn everything(&mut self) {
        self.everything = true;
        self.wanted = true;
    }

    /// Hints may have been missed.
    pub(super) fn resync(&mut self) {
        self.hinted.everything = true;
    }

    pub(super) fn soon(&mut self) {
        self.wanted = true;
    }

    pub(super) fn verifying(&mut self, role: &Name) {
        self.verifying.insert(role.clone());
        self.wanted = true;
    }

    /// The same, with the next regular poll.
    pub(super) fn verifying_later(&mut self, role: &Name) {
        self.verifying.insert(role.clone());
    }

    /// The awaited poll, if it is served after that claim.
    pub(super) fn follows_claim(&self, claim: OpId) -> Option<OpId> {
        self.awaited.filter(|_| self.after_claim == Some(claim))
    }

    /// Whether something may still be sent in this beat for the sake of a hint.
    pub(super) fn may_follow_hint(&self, now: Time) -> bool {
        self.hinted.is_left() && now >= self.hold_until
    }

    /// A hint names that register: a read, as far as hints are still followed.
    pub(super) fn hint_read(&mut self, key: Key) {
        self.hinted.keys.insert(key);
    }

    /// Something else was sent for the sake of a hint.
    pub(super) fn hint_followed(&mut self, cost: u8) {
        self.hinted.spend(cost);
    }

    /// That operation was answered, or given up.
    pub(super) fn forget_claim(&mut self, claim: OpId) {
        self.after_claim.take_if(|followed| *followed == claim);
    }

    pub(super) fn garbage_collected(&mut self) {
        self.collecting_garbage = false;
    }

    pub(super) fn take_verifying(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.verifying)
    }

    /// A poll did not show that role as ours: the next poll reads it again.
    pub(super) fn doubt(&mut self, role: &Name) {
        self.doubted.insert(role.clone());
    }

    /// The next regular poll goes out with the beat that is due then.
    pub(super) fn goes_with_beat(&mut self, due: Time) {
        self.next_at = due;
    }

    /// A sign of loss: operations from `from` on show what is left.
    fn suspect(&mut self, from: OpId) {
        self.suspect_from = Some(from);
        self.wanted = true;
    }

    /// Whether the store may have lost what we rely on, and no poll has shown otherwise since.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect_from.is_some()
    }

    /// Whether that poll began after the last sign of loss that no poll has settled yet.
    pub(super) fn is_audit(&self, op: OpId) -> bool {
        self.suspect_from.is_some_and(|from| from <= op)
    }

    pub(super) fn forget(&mut self) {
        self.requested.clear();
        self.hinted.keys.clear();
        self.garbage_examined.clear();
        self.unreadable.clear();
    }

    /// Whether a poll is due early for a reason of our own.
    fn urgent(&self) -> bool {
        self.wanted || !self.requested.is_empty()
    }

    fn is_due_early(&self) -> bool {
        self.urgent() || self.hinted.may_poll()
    }
}

impl HintBudget {
    /// Whether a poll may go out for hints alone.
    fn may_poll(&self) -> bool {
        self.is_left() && (self.anyway || self.everything || !self.keys.is_empty())
    }

    fn is_left(&self) -> bool {
        self.spent < HINT_POLLS_PER_BEAT && self.polls < HINT_POLLS_WITH_NEWS
    }

    /// A poll for hints alone goes out, unless it costs nothing.
    fn spend(&mut self, cost: u8) {
        self.spent = self.spent.saturating_add(cost);
        self.polls = self.polls.saturating_add(cost.min(1));
    }

    /// Whether a poll that goes out now reads everything because of hints.
    fn take_everything(&mut self) -> bool {
        let taken = self.is_left() && std::mem::take(&mut self.everything);
        self.spent = self.spent.saturating_add(if taken { FULL_POLL_COST } else { 0 });
        taken
    }
}

impl Engine {
    pub(super) fn poll_wake(&self) -> Time {
        match self.poll.awaited {
            Some(_) => Time::NEVER,
            None if self.poll.is_due_early() => self.poll.hold_until.max(self.now.time),
            None => self.poll.next_at.max(self.poll.hold_until),
        }
    }

    pub(super) fn drive_poll(&mut self, ctx: &mut StepContext<'_>) {
        if self.lifecycle == Lifecycle::Stopped
            || self.poll.awaited.is_some()
            || self.now.time < self.poll.hold_until
        {
            return;
        }
        let regular = self.now.time >= self.poll.next_at || ctx.beat.is_some();
        if !regular && ctx.claim.is_none() && !self.poll.is_due_early() {
            return;
        }
        let urgent = self.poll.urgent();
        let for_hints = !regular && !urgent && ctx.claim.is_none();
        if regular {
            (self.poll.hinted.spent, self.poll.hinted.polls) = (0, 0);
        }
        let (query, scope) = match self.epoch() {
            // Until the epoch is known there is nothing else to name.
            Some(_) if !self.stays_out() => self.compose(regular),
            _ => self.cluster_query(),
        };
        self.poll.wanted = false;
        self.poll.hinted.spend(self.rules.hint_poll_cost(for_hints));
        if regular {
            self.poll.next_at = self.now.time.after(self.pace());
            self.poll.count += 1;
        }
        // The acknowledgement of a claim or a beat must not wait for a list of everything, nor that of a beat for a read that
        // failed before.
        self.poll.after_claim = ctx.claim.filter(|_| !scope.is_long());
        let with = match self.poll.after_claim {
            Some(claim) => Some(self.rules.pairing_with_claim(claim)),
            None => ctx.beat.filter(|_| !urgent && !scope.is_long()).map(Pairing::Beside),
        };
        self.poll.awaited = Some(self.send_read(query, scope, with, ctx));
    }

    fn cluster_query(&mut self) -> (Query, PollScope) {
        self.poll.requested.remove(&Key::Cluster);
        if self.stays_out() {
            // A node that is called back reads everything.
            self.poll.requested.clear();
            self.poll.hinted = HintBudget {
                spent: self.poll.hinted.spent,
                polls: self.poll.hinted.polls,
                ..HintBudget::default()
            };
        }
        let keys = vec![Key::Cluster];
        let scope = PollScope {
            keys: keys.clone(),
            controls: false,
            sessions: false,
            nodes: false,
            garbage: false,
            audit: false,
        };
        (Query { keys, kinds: Vec::new() }, scope)
    }

    fn compose(&mut self, regular: bool) -> (Query, PollScope) {
        let epoch = self.epoch().unwrap_or_default();
        self.poll.hinted.anyway = false;
        let everything = std::mem::take(&mut self.poll.everything) | self.poll.hinted.take_everything();
        if everything {
            let roles: Vec<Key> = self.roles.names().map(|role| self.named(Kind::Role, role)).collect();
            self.poll.requested.extend(roles);
            self.poll.requested.insert(self.named(Kind::Node, &self.node));
        }
        let early = !(everything || regular || self.poll.wanted);
        self.compose_with(epoch, regular, everything, early)
    }

    fn compose_with(
        &mut self,
        epoch: crate::Epoch,
        regular: bool,
        nodes: bool,
        early: bool,
    ) -> (Query, PollScope) {
        let mut keys: BTreeSet<Key> =
            BTreeSet::from([Key::Cluster, self.named(Kind::NodeControl, &self.node)]);
        keys.extend(self.sessions_to_poll(early).into_iter().map(|id| self.session_key(id)));
        if regular {
            keys.extend(self.next_audits());
            keys.extend(self.own_node_audit());
        }
        while keys.len() < BATCH {
            let Some(key) = self.poll.requested.pop_first().or_else(|| self.poll.hinted.keys.pop_first())
            else {
                break;
            };
            keys.insert(key);
        }
        let sessions = nodes || (regular && self.poll.count.is_multiple_of(SESSION_LIST_PERIOD));
        let garbage = sessions && self.should_collect_garbage();
        let audit = self.poll.is_suspect();
        if audit {
            keys.extend(self.accountable_roles());
        }
        let mut kinds = vec![(epoch, Kind::RoleControl)];
        kinds.extend(sessions.then_some((epoch, Kind::Session)));
        kinds.extend((nodes || garbage).then_some((epoch, Kind::Node)));
        kinds.extend((garbage || audit).then_some((epoch, Kind::Role)));
        let scope = PollScope {
            keys: keys.iter().cloned().collect(),
            controls: true,
            sessions,
            nodes: nodes || garbage,
            garbage,
            audit,
        };
        // What a kind covers need not be named in the query; that it was asked for still counts.
        keys.retain(|key| !kinds.contains(&(key.epoch(), key.kind())));
        (Query { keys: keys.into_iter().collect(), kinds }, scope)
    }

    /// Some roles in turn, so that a register that changed behind our back is noticed; and those that were in doubt.
    fn next_audits(&mut self) -> Vec<Key> {
        let count = self.rules.audited_per_poll();
        let last = self.poll.last_audited.take();
        let mut names = self.roles.next_in_turn(last.as_ref(), count);
        self.poll.last_audited = names.last().cloned();
        names.extend(std::mem::take(&mut self.poll.doubted));
        names.iter().map(|name| self.named(Kind::Role, name)).collect()
    }

    /// A sign that the store lost something: the next poll reads everything that rests on it.
    pub(super) fn suspect_loss(&mut self) {
        if self.rules.audits_losses() {
            self.poll.suspect(self.ops.next_id());
        }
    }

    /// Our own node register, which an operator may have deleted. It grows with our roles, and so is read more seldom the
    /// more there are.
    fn own_node_audit(&self) -> Option<Key> {
        let due = self.poll.count % self.audit_period() == SESSION_LIST_PERIOD - 1;
        due.then(|| self.named(Kind::Node, &self.node))
    }

    /// After so many polls the rotation begins anew.
    pub(super) fn audit_period(&self) -> u64 {
        SESSION_LIST_PERIOD * (self.roles.len() as u64).max(1)
    }

    pub(super) fn poll_answered(
        &mut self,
        op: OpId,
        sent_at: Time,
        scope: PollScope,
        reply: Reply,
        ctx: &mut StepContext<'_>,
    ) {
        if self.poll.awaited.take_if(|awaited| *awaited == op).is_some() {
            self.poll.after_claim = None;
        }
        let Reply::Read(mut found) = reply else { return self.poll_failed(scope) };
        found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        if scope.keys.contains(&Key::Cluster) {
            let epoch = self.epoch();
            self.observe_cluster(find(&found, &Key::Cluster), ctx);
            if self.epoch() != epoch || self.stays_out() {
                // The rest of the reply belongs to another epoch, or to a protocol that this node does not know.
                return;
            }
        }
        if scope.controls {
            self.observe_controls(&found, ctx);
        }
        if scope.nodes {
            let gone = |name: &Name| find(&found, &self.named(Kind::Node, name)).is_none();
            let gone: Vec<Name> =
                self.peers.nodes().map(|(name, _)| name).filter(|name| gone(name)).cloned().collect();
            gone.iter().for_each(|name| self.observe_node(name, None));
        }
        let garbage = if scope.garbage { self.collect_garbage(&found) } else { Vec::new() };
        if scope.audit || scope.garbage {
            self.find_strays(&found);
        }
        for key in &scope.keys {
            self.observe(op, sent_at, key, find(&found, key), ctx);
        }
        for entry in found.iter().filter(|entry| scope.keys.binary_search(&entry.key).is_err()) {
            self.observe(op, sent_at, &entry.key, Some(entry), ctx);
        }
        if scope.sessions {
            self.sessions_listed(&found, ctx);
            self.review_longest_lease(op, &found);
        }
        if !garbage.is_empty() {
            self.poll.collecting_garbage = true;
            self.send_writes(garbage, Purpose::GarbageCollection, ctx);
        }
        if scope.audit {
            self.poll.suspect_from.take_if(|from| *from <= op);
        }
        self.poll_done(op, ctx);
        self.follow(sent_at);
        ctx.event(Event::Polled);
    }

    fn poll_failed(&mut self, scope: PollScope) {
        self.poll.requested.extend(scope.keys);
        self.poll.everything |= scope.nodes && !scope.garbage;
        self.poll.wanted |= !self.poll.verifying.is_empty();
        self.poll.hold_until = self.now.time.after(self.rules.retry_delay());
        self.poll.next_at = self.poll.next_at.min(self.poll.hold_until);
    }

    /// Reports an unreadable register once, until it can be read again or is gone. The engine leaves it alone, and what
    /// depends on nothing in it goes on.
    fn report_unreadable(&mut self, key: &Key, found: Option<&Entry>, ctx: &mut StepContext<'_>) {
        if !found.is_some_and(Entry::is_unreadable) {
            self.poll.unreadable.remove(key);
        } else if self.poll.unreadable.insert(key.clone()) {
            ctx.event(Event::Unreadable { key: key.clone() });
        }
    }

    fn observe(
        &mut self,
        op: OpId,
        sent_at: Time,
        key: &Key,
        found: Option<&Entry>,
        ctx: &mut StepContext<'_>,
    ) {
        self.report_unreadable(key, found, ctx);
        match key {
            Key::Cluster => {}
            Key::Session(_, id) => self.observe_session(*id, found, sent_at, ctx),
            Key::Named(_, Kind::Node, name) => {
                if *name == self.node {
                    self.observe_own_node(op, found);
                }
                self.observe_node(name, found);
            }
            Key::Named(_, Kind::Role, name) => self.observe_role(op, name, found, ctx),
            Key::Named(_, Kind::NodeControl, name) if *name == self.node => {
                self.observe_node_control(found, ctx)
            }
            Key::Named(..) => {}
        }
    }

    /// A hint means: read the register, if it is relevant to us; or claim it, if only a resignation that we foresee can have
    /// brought it about.
    pub(super) fn hinted_change(&mut self, key: Key, ctx: &mut StepContext<'_>) {
        if !self.is_relevant(&key) {
            return;
        }
        match &key {
            // The answer to our claim says more.
            Key::Named(_, Kind::Role, name) if self.roles.get(name).is_some_and(TrackedRole::is_claiming) => {
            }
            Key::Named(_, Kind::Role, name) if self.claims_on_hint(name) => {
                ctx.hinted_role = Some(name.clone());
            }
            Key::Named(_, Kind::RoleControl | Kind::NodeControl, _) => self.poll.hinted.anyway = true,
            Key::Named(_, Kind::Node, name) if *name == self.node => {}
            // A forger can make up names.
            Key::Named(_, Kind::Node, name)
                if self.peers.node(name).is_none() && self.poll.hinted.keys.len() >= BATCH => {}
            _ => _ = self.poll.hinted.keys.insert(key),
        }
    }

    /// After a list of all sessions: those that it lacks are absent, or forgotten.
    fn sessions_listed(&mut self, found: &[Entry], ctx: &mut StepContext<'_>) {
        let own = self.session.own_id();
        let epoch = self.epoch().unwrap_or_default();
        let listed = |id: SessionId| find(found, &Key::Session(epoch, id)).is_some();
        let missing: Vec<SessionId> =
            self.peers.ids().filter(|id| !listed(*id) && Some(*id) != own).collect();
        for id in missing {
            self.observe_session(id, None, self.now.time, ctx);
        }
        self.forget_sessions(listed);
    }

    /// Whether there is new garbage and it is our turn to delete it, which takes a list of everything.
    fn should_collect_garbage(&self) -> bool {
        let new = |id: SessionId| {
            !self.poll.garbage_examined.contains(&id)
                && order::expel_delay(&self.peers, &self.node, id).is_zero()
        };
        !self.poll.collecting_garbage
            && self.session_usable().is_some()
            && self.long_over().into_iter().any(new)
    }

    /// The deletions that a list of everything allows.
    fn collect_garbage(&mut self, found: &[Entry]) -> Vec<crate::Write> {
        let (writes, complete) = self.garbage_writes(found);
        if complete {
            self.poll.garbage_examined = self.long_over().into_iter().collect();
        }
        writes
    }

    /// Deletes sessions that are over and named by nothing, and the names of nodes that are gone, which named them. Tells
    /// whether nothing is left for the next time.
    fn garbage_writes(&self, found: &[Entry]) -> (Vec<crate::Write>, bool) {
        let over: BTreeSet<SessionId> = self.long_over().into_iter().collect();
        let mut named = BTreeSet::new();
        let mut writes = Vec::new();
        // Only the own node part writes our own name.
        let own_name = self.named(Kind::Node, &self.node);
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

#[cfg(feature = "canonical")]
#[path = "canonical/poll.rs"]
mod canonical;

#[cfg(test)]
#[path = "tests/poll.rs"]
mod tests;
