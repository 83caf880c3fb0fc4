//! The `cluster` register: which life of the store this is, and how long its longest lease lasts.
//!
//! Rule 7. A store that forgot is never taken for a new one: whoever sees the register gone, changed or gone back
//! claims nothing until the longest lease that could still be relied on has run out.

use std::time::Duration;

use crate::record::{Cluster as ClusterRecord, PROTOCOL, Reason, Record};
use crate::{Entry, Epoch, Event, Key, Mutant, Outcome, Time, Version, Write};

use super::ops::Purpose;
use super::session::Cut;
use super::{Class, Cx, Engine};

/// What is known of the register, and what is being done about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Cluster {
    known: Option<Known>,
    /// Nothing is claimed before.
    pub(super) quarantined_until: Time,
    writing: Option<Writing>,
    /// A read showed it absent: create it, which also tells whether it really is.
    absent: bool,
    retry_at: Time,
    /// The store was seen to forget: what it says of tokens is no longer enough.
    pub(super) forgetful: bool,
    /// The largest ttl ever seen here, also in former lives.
    max_ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Known {
    version: Version,
    record: ClusterRecord,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Writing {
    version: Version,
    record: ClusterRecord,
}

impl Cluster {
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.known.as_ref().map(|known| known.record.epoch)
    }
}

impl Engine {
    /// How long to watch before claiming on a store that may have forgotten.
    pub(super) fn longest_watch(&self) -> Duration {
        self.config.timing.watch(self.cluster.max_ttl.max(self.config.timing.ttl))
    }

    /// What the store holds may not be all that was acknowledged: nothing that it says now is a reason to lead.
    pub(super) fn store_forgot(&self) -> bool {
        (self.cluster.absent || self.now.time < self.cluster.quarantined_until)
            && !self.mutated(Mutant::QuarantineSkipped)
    }

    /// The register allows sessions of our ttl.
    pub(super) fn cluster_ready(&self) -> bool {
        self.cluster.known.as_ref().is_some_and(|known| known.record.max_ttl >= self.config.timing.ttl)
    }

    pub(super) fn cluster_wake(&self) -> Option<Time> {
        let wants = self.cluster.writing.is_none() && self.cluster_wish().is_some();
        wants.then_some(self.cluster.retry_at)
    }

    pub(super) fn drive_cluster(&mut self, cx: &mut Cx<'_>) {
        if self.cluster.writing.is_some() || self.now.time < self.cluster.retry_at {
            return;
        }
        let Some((expect, mut record)) = self.cluster_wish() else { return };
        if expect.is_none() {
            // Never zero: that is the epoch of the register itself.
            record.epoch = Epoch((cx.entropy.nonce() as u64) >> 12 | 1);
        }
        let version = cx.version();
        let put = Some((version, Record::Cluster(record.clone())));
        let write = Write { key: Key::Cluster, expect, put, ring: true, witnessed: false };
        self.send_writes(vec![write], Purpose::Cluster, cx);
        self.cluster.writing = Some(Writing { version, record });
    }

    /// What the register should become, if anything.
    fn cluster_wish(&self) -> Option<(Option<Version>, ClusterRecord)> {
        let ttl = self.config.timing.ttl;
        if self.cluster.absent {
            let max_ttl = self.cluster.max_ttl.max(ttl);
            return Some((None, ClusterRecord { epoch: Epoch(0), max_ttl, protocol: PROTOCOL }));
        }
        let known = self.cluster.known.as_ref()?;
        (known.record.max_ttl < ttl)
            .then(|| (Some(known.version), ClusterRecord { max_ttl: ttl, ..known.record.clone() }))
    }

    pub(super) fn cluster_written(&mut self, outcome: Outcome, cx: &mut Cx<'_>) {
        let Some(writing) = self.cluster.writing.take() else { return };
        match outcome {
            Outcome::Applied => {
                self.cluster.absent = false;
                self.adopt(writing.version, writing.record, cx);
            }
            Outcome::Conflict(found) => self.saw_cluster(found.as_ref(), cx),
            Outcome::Failed(_) => {
                // It may have been applied: what is there tells.
                self.cluster.retry_at = self.now.time.after(self.retry_delay());
                self.look.again(Key::Cluster);
            }
        }
    }

    /// Takes in what a read or a conflict showed.
    pub(super) fn saw_cluster(&mut self, found: Option<&Entry>, cx: &mut Cx<'_>) {
        match found {
            None => self.cluster.absent = true,
            Some(Entry { version, value: Record::Cluster(record), .. }) if record.protocol == PROTOCOL => {
                self.cluster.absent = false;
                self.adopt(*version, record.clone(), cx);
            }
            Some(entry) => cx.event(Event::Unreadable { key: entry.key.clone() }),
        }
    }

    fn adopt(&mut self, version: Version, record: ClusterRecord, cx: &mut Cx<'_>) {
        self.cluster.max_ttl = self.cluster.max_ttl.max(record.max_ttl);
        let former = self.cluster.epoch();
        let epoch = record.epoch;
        self.cluster.known = Some(Known { version, record });
        match former {
            Some(former) if former == epoch => {}
            Some(_) => self.start_over(cx),
            None => {
                self.look.everything();
                // A register that we have just created proves nothing on a store that can forget.
                if self.config.class == Class::C {
                    self.quarantine(cx);
                }
            }
        }
    }

    /// The store forgot everything: nothing that we knew of it counts, and nothing that we held.
    fn start_over(&mut self, cx: &mut Cx<'_>) {
        self.quarantine(cx);
        self.end_session(Reason::Forgotten, Cut::RegisterGone, cx);
        self.peers.clear();
        self.nodes.clear();
        self.controls.clear();
        self.card.forget();
        self.forget_views();
        self.look.forget();
        self.look.everything();
    }

    /// Rule 7: wait until every lease that somebody may still rely on has run out.
    pub(super) fn quarantine(&mut self, cx: &mut Cx<'_>) {
        if self.mutated(Mutant::QuarantineSkipped) {
            return;
        }
        self.cluster.forgetful = true;
        let until = self.now.time.after(self.longest_watch());
        if until > self.cluster.quarantined_until {
            self.cluster.quarantined_until = until;
            cx.event(Event::Quarantined { until });
        }
        self.consider_all();
    }
}

#[cfg(feature = "canon")]
#[path = "canon/cluster.rs"]
mod canon;
