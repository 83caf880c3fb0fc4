//! The `cluster` register: which life of the store this is, and how long its longest lease lasts.
//!
//! Rule 7. A store that forgot is never taken for a new one: a node that sees the register gone, changed or gone back
//! claims nothing until the longest lease that could still be relied on has run out.

use std::time::Duration;

use crate::record::{Cluster as ClusterRecord, EndReason, PROTOCOL, Record, SessionState};
use crate::{Entry, Epoch, Event, Key, OpId, Outcome, Time, Token, Version, Write};

use super::ops::Purpose;
use super::rules::Rules;
use super::session::EndMode;
use super::{Engine, StepContext};

/// The last known version of the register, and our pending write to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Cluster {
    known: Option<VersionedCluster>,
    /// Nothing is claimed before.
    quarantined_until: Time,
    writing: Option<VersionedCluster>,
    /// A read showed it absent: create it, which also tells whether it really is.
    absent: bool,
    retry_at: Time,
    /// The store was seen to forget: what it says of tokens is no longer enough.
    forgetful: bool,
    /// The largest ttl seen here, also in former lives, that may still be counted on.
    max_ttl: Duration,
    /// The register shows less: until then it may have been forgotten there.
    lapses_at: Option<Time>,
    reduction: LeaseReduction,
    /// Other nodes speak this newer protocol.
    newer: Option<u32>,
}

/// How far we are with lowering the longest lease: see [`Cluster::review_longest_lease`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct LeaseReduction {
    /// Polls from this one on began after the announcement was seen.
    announced: OpId,
    /// When every list of sessions will have agreed with it for the longest lease.
    falls_at: Option<Time>,
    /// What the last list wants the register to become, on top of that version.
    wanted: Option<(Version, ClusterRecord)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct VersionedCluster {
    version: Version,
    record: ClusterRecord,
}

/// What a register that was read, or written, means for the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EpochNews {
    /// The epoch that we knew.
    Same,
    /// The first one that we see. It may have replaced another whose leases still run.
    First { renewed: bool },
    /// The store forgot everything, or was replaced.
    Another,
}

/// Questions.
impl Cluster {
    /// Every token is above this one.
    pub(super) fn floor(&self) -> Token {
        self.known.as_ref().map_or(Token::new(0), |known| known.record.floor)
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.known.as_ref().map(|known| known.record.epoch)
    }

    /// Nothing is claimed before.
    pub(super) fn quarantined_until(&self) -> Time {
        self.quarantined_until
    }

    /// The store was seen to forget: what it says of tokens is no longer enough.
    pub(super) fn is_forgetful(&self) -> bool {
        self.forgetful
    }

    /// What the store holds may not be all that was acknowledged.
    fn is_doubtful(&self, now: Time) -> bool {
        self.absent || now < self.quarantined_until
    }

    /// Whether the register allows sessions of that ttl.
    fn allows(&self, ttl: Duration) -> bool {
        let allows =
            |record: &ClusterRecord| record.falling.unwrap_or(record.max_ttl).min(record.max_ttl) >= ttl;
        self.newer.is_none() && self.known.as_ref().is_some_and(|known| allows(&known.record))
    }

    /// What the register should become for a node of that ttl, if anything.
    fn wanted(&self, ttl: Duration, now: Time) -> Option<(Option<Version>, ClusterRecord)> {
        if self.absent {
            let max_ttl = self.max_ttl.max(ttl);
            let (epoch, floor) = (Epoch::new(0), Token::new(0));
            return Some((
                None,
                ClusterRecord { epoch, max_ttl, falling: None, protocol: PROTOCOL, floor, renewed: false },
            ));
        }
        let known = self.known.as_ref()?;
        if let Some((version, wanted)) = &self.reduction.wanted
            && *version == known.version
        {
            return Some((Some(*version), wanted.clone()));
        }
        let wanted = ClusterRecord {
            max_ttl: known.record.max_ttl.max(ttl),
            falling: known.record.falling.filter(|to| *to >= ttl),
            // The node that clears the flag has waited for the leases of the former epoch; later nodes need not.
            renewed: known.record.renewed && now < self.quarantined_until,
            ..known.record.clone()
        };
        (wanted != known.record).then_some((Some(known.version), wanted))
    }
}

/// Observations.
impl Cluster {
    /// Takes in a version of the register. Polls from `next_op` on begin after it was seen.
    fn adopt(&mut self, version: Version, record: ClusterRecord, next_op: OpId) -> EpochNews {
        self.absent = false;
        if self.known.as_ref().is_none_or(|known| known.version != version) {
            let announced = record.falling.map_or(OpId::new(0), |_| next_op);
            self.reduction = LeaseReduction { announced, ..LeaseReduction::default() };
        }
        let former = self.epoch();
        let (epoch, renewed) = (record.epoch, record.renewed);
        self.known = Some(VersionedCluster { version, record });
        match former {
            Some(former) if former == epoch => EpochNews::Same,
            Some(_) => EpochNews::Another,
            None => EpochNews::First { renewed },
        }
    }

    /// A register that shows a shorter lease than before may have forgotten the longer one: a node that has it says so
    /// again while it lives, and has lost it after that time.
    fn remember_lease(&mut self, shown: Duration, now: Time, rules: &Rules) {
        let lapses_at = now.after(rules.timing().expulsion_wait(self.max_ttl));
        let lapses_at = self.lapses_at.filter(|_| shown < self.max_ttl).unwrap_or(lapses_at);
        self.lapses_at = Some(lapses_at);
        if shown >= self.max_ttl || now >= lapses_at {
            (self.max_ttl, self.lapses_at) = (shown, None);
        }
    }

    /// Nothing is claimed before `until`; whether that is later than it was.
    fn quarantine(&mut self, until: Time) -> bool {
        self.forgetful = true;
        let later = until > self.quarantined_until;
        self.quarantined_until = self.quarantined_until.max(until);
        later
    }

    /// Lets the longest lease fall to `needed`, which a list of all sessions shows that began with operation `op`.
    ///
    /// First it is announced. A node that opens a longer session withdraws that, and leads nothing before it has read
    /// the register once more; so a longer lease that is led was opened before the announcement, and every list that
    /// shows the announcement also shows the session, unless the store forgot the session. Then it was forgotten before
    /// the first list, and its lease has run out once the lists agree for the longest lease.
    fn review_longest_lease(&mut self, op: OpId, needed: Duration, falls_at: Time, now: Time, rules: &Rules) {
        let Some(VersionedCluster { version, record }) = &self.known else { return };
        let agrees = record.falling.is_some_and(|to| needed <= to) && op >= self.reduction.announced;
        let falls_at = self.reduction.falls_at.unwrap_or(falls_at);
        self.reduction.falls_at = agrees.then_some(falls_at);
        let wanted = match record.falling {
            _ if !rules.announces_shorter_leases() && needed < record.max_ttl => Some((needed, None)),
            None if needed < record.max_ttl => Some((record.max_ttl, Some(needed))),
            Some(to) if needed > to => Some((record.max_ttl, None)),
            Some(to) if agrees && now >= falls_at => Some((to, None)),
            _ => None,
        };
        self.reduction.wanted =
            wanted.map(|(max_ttl, falling)| (*version, ClusterRecord { max_ttl, falling, ..record.clone() }));
    }

    /// The longest ttl of a session in a list that lives; of one that cannot be read the longest possible.
    fn longest_listed(&self, found: &[Entry]) -> Duration {
        let longest = self.known.as_ref().map_or(Duration::ZERO, |known| known.record.max_ttl);
        let needed = |entry: &Entry| match (&entry.key, &entry.value) {
            (Key::Session(..), Record::Session(session)) if session.state != SessionState::Live => {
                Duration::ZERO
            }
            (Key::Session(..), Record::Session(session)) => session.ttl,
            (Key::Session(..), _) => longest,
            _ => Duration::ZERO,
        };
        found.iter().map(needed).max().unwrap_or_default()
    }

    /// Whether a list shows the version of the register that we know.
    fn is_listed(&self, found: &[Entry]) -> bool {
        let known = self.known.as_ref().map(|known| known.version);
        found.iter().any(|entry| entry.key == Key::Cluster && Some(entry.version) == known)
    }
}

/// What the engine does about it.
impl Engine {
    /// How long to watch before claiming on a store that may have forgotten.
    pub(super) fn longest_wait(&self) -> Duration {
        let timing = self.rules.timing();
        timing.expulsion_wait(self.cluster.max_ttl.max(timing.ttl))
    }

    /// What the store holds may not be all that was acknowledged: nothing that it says now is a reason to lead.
    pub(super) fn store_forgot(&self) -> bool {
        self.cluster.is_doubtful(self.now.time) && self.rules.quarantines()
    }

    /// The other nodes keep rules that this version does not know. It writes nothing but the end of its own session, and
    /// reads nothing but the register that may call it back.
    pub(super) fn stays_out(&self) -> bool {
        self.cluster.newer.is_some()
    }

    /// The register allows sessions of our ttl.
    pub(super) fn cluster_ready(&self) -> bool {
        self.cluster.allows(self.rules.timing().ttl)
    }

    /// After a list of all sessions that shows the very version of the register that we know.
    pub(super) fn review_longest_lease(&mut self, op: OpId, found: &[Entry]) {
        if !self.rules.store_can_forget() || self.session_usable().is_none() || !self.cluster.is_listed(found)
        {
            return;
        }
        let needed = self.cluster.longest_listed(found).max(self.rules.timing().ttl);
        let falls_at = self.now.time.after(self.longest_wait());
        self.cluster.review_longest_lease(op, needed, falls_at, self.now.time, &self.rules);
    }

    pub(super) fn cluster_wake(&self) -> Option<Time> {
        let wants = self.cluster.writing.is_none() && self.wanted_cluster().is_some();
        wants.then_some(self.cluster.retry_at)
    }

    pub(super) fn drive_cluster(&mut self, ctx: &mut StepContext<'_>) {
        if self.cluster.writing.is_some() || self.now.time < self.cluster.retry_at {
            return;
        }
        let Some((expect, mut record)) = self.wanted_cluster() else { return };
        if expect.is_none() {
            // Never zero: that is the epoch of the register itself.
            record.epoch = Epoch::new((ctx.entropy.nonce() as u64) >> 12 | 1);
        }
        let version = ctx.version();
        let put = Some((version, Record::Cluster(record.clone())));
        let write = Write { key: Key::Cluster, expect, put, notify: true, requires_lock: false };
        self.send_writes(vec![write], Purpose::Cluster, ctx);
        self.cluster.writing = Some(VersionedCluster { version, record });
    }

    fn wanted_cluster(&self) -> Option<(Option<Version>, ClusterRecord)> {
        self.cluster.wanted(self.rules.timing().ttl, self.now.time)
    }

    pub(super) fn cluster_write_answered(&mut self, outcome: Outcome, ctx: &mut StepContext<'_>) {
        let Some(writing) = self.cluster.writing.take() else { return };
        match outcome {
            Outcome::Applied => self.adopt_cluster(writing.version, writing.record, ctx),
            Outcome::Conflict(found) => self.observe_cluster(found.as_ref(), ctx),
            Outcome::Failed(_) => {
                // It may have been applied: what is there tells.
                self.cluster.retry_at = self.now.time.after(self.rules.retry_delay());
                self.poll.reread(Key::Cluster);
            }
        }
    }

    /// Takes in what a read or a conflict showed.
    pub(super) fn observe_cluster(&mut self, found: Option<&Entry>, ctx: &mut StepContext<'_>) {
        let newer = found.and_then(Entry::newer_protocol);
        if self.cluster.newer != newer {
            self.cluster.newer = newer;
            match newer {
                None => self.poll.everything(),
                Some(protocol) => {
                    ctx.event(Event::NewerProtocol { protocol });
                    self.end_session(EndReason::NewerProtocol, EndMode::AtOnce, ctx);
                }
            }
        }
        match found {
            None => self.cluster.absent = true,
            Some(entry @ Entry { version, value: Record::Cluster(record), .. }) if !entry.is_unreadable() => {
                self.adopt_cluster(*version, record.clone(), ctx);
            }
            Some(_) => {}
        }
    }

    fn adopt_cluster(&mut self, version: Version, record: ClusterRecord, ctx: &mut StepContext<'_>) {
        self.remember_lease(record.max_ttl);
        match self.cluster.adopt(version, record, self.ops.next_id()) {
            EpochNews::Same => {}
            EpochNews::Another => self.reset_epoch(ctx),
            EpochNews::First { renewed } => {
                self.poll.everything();
                // A register that we have just created proves nothing on a store that can forget, and behind one that
                // replaced another there may be leaders.
                if self.rules.store_can_forget() || renewed {
                    self.quarantine(ctx);
                }
            }
        }
    }

    pub(super) fn remember_lease(&mut self, shown: Duration) {
        self.cluster.remember_lease(shown, self.now.time, &self.rules);
    }

    /// The store forgot everything: nothing that we knew of it counts, and nothing that we held.
    fn reset_epoch(&mut self, ctx: &mut StepContext<'_>) {
        self.quarantine(ctx);
        self.end_session(EndReason::Forgotten, EndMode::RegisterGone, ctx);
        self.peers.clear();
        self.controls.forget();
        self.own_node.forget();
        self.forget_views();
        self.poll.forget();
        self.poll.everything();
    }

    /// Rule 7: wait until every lease that a node may still rely on has run out.
    pub(super) fn quarantine(&mut self, ctx: &mut StepContext<'_>) {
        if !self.rules.quarantines() {
            return;
        }
        self.suspect_loss();
        let until = self.now.time.after(self.longest_wait());
        if self.cluster.quarantine(until) {
            ctx.event(Event::Quarantined { until });
        }
        self.consider_all();
    }
}

#[cfg(feature = "canonical")]
#[path = "canonical/cluster.rs"]
mod canonical;

#[cfg(test)]
#[path = "tests/cluster.rs"]
mod tests;
