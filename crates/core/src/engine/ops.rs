//! Pending operations. A reply to any other operation is inert: an observation at most, never a grant.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::io::Pairing;
use crate::{Fate, Key, Kind, Name, OpId, Outcome, Output, Query, Reply, SessionId, Time, Write};

use super::poll::PollScope;
use super::{Engine, StepContext};

/// Operations that were sent and have neither a reply nor timed out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct PendingOps {
    next: u64,
    awaited: BTreeMap<OpId, PendingOp>,
}

/// One awaited operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PendingOp {
    /// Read before it was sent.
    pub(super) sent_at: Time,
    /// When it is given up.
    expires: Time,
    pub(super) purpose: Purpose,
}

/// What an operation is for, and so who takes its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Poll(PollScope),
    Cluster,
    Open,
    Beat,
    Close,
    OwnNode,
    /// One claim or resignation for each.
    Roles(Vec<Name>),
    /// One expulsion for each.
    Expel(Vec<SessionId>),
    /// The answer to a request, or a request of our own.
    Control(Name),
    /// Deletions of registers that no node needs.
    GarbageCollection,
}

impl PendingOps {
    /// The id that the next operation will have: every operation sent from now on has this one or a later one.
    pub(super) fn next_id(&self) -> OpId {
        OpId::new(self.next)
    }

    pub(super) fn next_expiry(&self) -> Time {
        // All operations have the same patience, so that the oldest expires first.
        self.awaited.first_key_value().map_or(Time::NEVER, |(_, op)| op.expires)
    }

    pub(super) fn take_expired(&mut self, now: Time) -> Option<(OpId, PendingOp)> {
        if self.next_expiry() > now {
            return None;
        }
        self.awaited.pop_first()
    }

    pub(super) fn awaited_about_roles(&self) -> usize {
        self.awaited.values().filter(|op| matches!(op.purpose, Purpose::Roles(_))).count()
    }

    fn send(&mut self, now: Time, timeout: Duration, purpose: Purpose) -> OpId {
        let op = OpId::new(self.next);
        self.next += 1;
        self.awaited.insert(op, PendingOp { sent_at: now, expires: now.after(timeout), purpose });
        op
    }
}

impl Engine {
    /// Sends a read; `with`: a write of this step with which it goes out.
    pub(super) fn send_read(
        &mut self,
        query: Query,
        scope: PollScope,
        with: Option<Pairing>,
        ctx: &mut StepContext<'_>,
    ) -> OpId {
        let op = self.ops.send(self.now.time, self.rules.timing().op_timeout, Purpose::Poll(scope));
        ctx.out.push(Output::Read { op, query, with });
        op
    }

    pub(super) fn send_writes(
        &mut self,
        writes: Vec<Write>,
        purpose: Purpose,
        ctx: &mut StepContext<'_>,
    ) -> OpId {
        debug_assert!(!writes.is_empty() && writes.len() <= super::BATCH);
        let op = self.ops.send(self.now.time, self.rules.timing().op_timeout, purpose);
        ctx.out.push(Output::Write { op, writes });
        op
    }

    pub(super) fn reply_received(&mut self, op: OpId, reply: Reply, ctx: &mut StepContext<'_>) {
        match self.ops.awaited.remove(&op) {
            Some(awaited) => self.complete(op, awaited, reply, ctx),
            None => self.late_reply(op, &reply, ctx),
        }
    }

    /// Hands a reply to the part that waits for it. A timeout is a reply too: unknown.
    pub(super) fn complete(&mut self, op: OpId, awaited: PendingOp, reply: Reply, ctx: &mut StepContext<'_>) {
        let sent_at = awaited.sent_at;
        match awaited.purpose {
            Purpose::Poll(scope) => self.poll_answered(op, sent_at, scope, reply, ctx),
            Purpose::Cluster => self.cluster_write_answered(single(reply), ctx),
            Purpose::Open => self.open_answered(op, &single(reply), ctx),
            Purpose::Beat => self.beat_answered(op, single(reply), ctx),
            Purpose::Close => self.close_answered(op, single(reply), ctx),
            Purpose::OwnNode => self.own_node_write_answered(op, single(reply)),
            Purpose::Roles(names) => {
                for (name, outcome) in names.iter().zip(outcomes(reply, names.len())) {
                    self.role_write_answered(op, name, outcome, ctx);
                }
                self.poll.forget_claim(op);
            }
            Purpose::Expel(sessions) => {
                for (session, outcome) in sessions.iter().zip(outcomes(reply, sessions.len())) {
                    self.expel_answered(op, *session, outcome, ctx);
                }
            }
            Purpose::Control(role) => self.control_write_answered(&role, single(reply), ctx),
            Purpose::GarbageCollection => self.poll.garbage_collected(),
        }
    }

    /// A late reply grants nothing, but the registers that it shows are worth reading again.
    fn late_reply(&mut self, op: OpId, reply: &Reply, ctx: &mut StepContext<'_>) {
        if !self.rules.late_replies_are_inert() {
            self.believe_late_reply(op, reply, ctx);
        }
        let Reply::Written(outcomes) = reply else { return };
        for outcome in outcomes {
            if let Outcome::Conflict(Some(entry)) = outcome {
                self.reread_if_relevant(entry.key.clone());
            }
        }
    }

    /// Marks a register as worth reading, if it concerns us.
    pub(super) fn reread_if_relevant(&mut self, key: Key) {
        if self.is_relevant(&key) {
            self.poll.reread(key);
        }
    }

    /// Whether what a register holds matters to us.
    pub(super) fn is_relevant(&self, key: &Key) -> bool {
        let known = match key {
            Key::Cluster => true,
            Key::Session(_, id) => self.peers.knows(*id),
            Key::Named(_, Kind::Role | Kind::RoleControl, name) => self.roles.knows(name),
            Key::Named(_, Kind::NodeControl, name) => *name == self.node,
            Key::Named(_, kind, _) => *kind == Kind::Node,
        };
        known && self.epoch().is_some_and(|epoch| *key == Key::Cluster || key.epoch() == epoch)
    }
}

/// The outcome of a write that has one item.
fn single(reply: Reply) -> Outcome {
    outcomes(reply, 1).next().unwrap_or(Outcome::Failed(Fate::Unknown))
}

/// One outcome for each item, whatever the answer was; what is missing is unknown.
fn outcomes(reply: Reply, count: usize) -> impl Iterator<Item = Outcome> {
    let (given, fate) = match reply {
        Reply::Written(outcomes) => (outcomes, Fate::Unknown),
        Reply::Failed(fate) => (Vec::new(), fate),
        Reply::Read(_) => (Vec::new(), Fate::Unknown),
    };
    given.into_iter().chain(std::iter::repeat_n(Outcome::Failed(fate), count)).take(count)
}

#[cfg(feature = "canonical")]
#[path = "canonical/ops.rs"]
mod canonical;
