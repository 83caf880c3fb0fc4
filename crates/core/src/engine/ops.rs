//! The operations that are awaited. An answer to anything else is inert: an observation at most, never a grant.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Fate, Key, Mutant, Name, OpId, Outcome, Output, Query, Reply, SessionId, Time, Write};

use super::look::Scope;
use super::{Cx, Engine};

/// Operations that have been sent and neither answered nor given up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Ops {
    next: u64,
    awaited: BTreeMap<OpId, Op>,
}

/// One awaited operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Op {
    /// Read before it was sent.
    pub(super) sent_at: Time,
    /// When it is given up.
    expires: Time,
    pub(super) purpose: Purpose,
}

/// What an operation is for, and so who takes its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Look(Scope),
    Cluster,
    Open,
    Beat,
    Close,
    Card,
    /// One claim or resignation for each.
    Roles(Vec<Name>),
    /// One expulsion for each.
    Expel(Vec<SessionId>),
    /// The answer to a request, or a request of our own.
    Control(Name),
    /// Deletions of what nobody needs.
    Tidy,
}

impl Ops {
    /// The id that the next operation will have: every operation sent from now on has this one or a later one.
    pub(super) fn upcoming(&self) -> OpId {
        OpId(self.next)
    }

    pub(super) fn next_expiry(&self) -> Time {
        // All operations have the same patience, so that the oldest expires first.
        self.awaited.first_key_value().map_or(Time::NEVER, |(_, op)| op.expires)
    }

    pub(super) fn take_expired(&mut self, now: Time) -> Option<(OpId, Op)> {
        if self.next_expiry() > now {
            return None;
        }
        self.awaited.pop_first()
    }

    pub(super) fn awaited_about_roles(&self) -> usize {
        self.awaited.values().filter(|op| matches!(op.purpose, Purpose::Roles(_))).count()
    }

    fn send(&mut self, now: Time, patience: Duration, purpose: Purpose) -> OpId {
        let op = OpId(self.next);
        self.next += 1;
        self.awaited.insert(op, Op { sent_at: now, expires: now.after(patience), purpose });
        op
    }
}

impl Engine {
    pub(super) fn send_read(&mut self, query: Query, scope: Scope, cx: &mut Cx<'_>) -> OpId {
        let op = self.ops.send(self.now.time, self.config.timing.op_timeout, Purpose::Look(scope));
        cx.out.push(Output::Read { op, query });
        op
    }

    pub(super) fn send_writes(&mut self, writes: Vec<Write>, purpose: Purpose, cx: &mut Cx<'_>) -> OpId {
        debug_assert!(!writes.is_empty() && writes.len() <= super::BATCH);
        let op = self.ops.send(self.now.time, self.config.timing.op_timeout, purpose);
        cx.out.push(Output::Write { op, writes });
        op
    }

    pub(super) fn replied(&mut self, op: OpId, reply: Reply, cx: &mut Cx<'_>) {
        match self.ops.awaited.remove(&op) {
            Some(awaited) => self.settle(op, awaited, reply, cx),
            None => self.replied_late(op, &reply, cx),
        }
    }

    /// Hands an answer to whoever waits for it. A timeout is an answer too: unknown.
    pub(super) fn settle(&mut self, op: OpId, awaited: Op, reply: Reply, cx: &mut Cx<'_>) {
        let sent_at = awaited.sent_at;
        match awaited.purpose {
            Purpose::Look(scope) => self.looked(op, sent_at, scope, reply, cx),
            Purpose::Cluster => self.cluster_written(single(reply), cx),
            Purpose::Open => self.opened(op, &single(reply), cx),
            Purpose::Beat => self.beaten(op, single(reply), cx),
            Purpose::Close => self.closed(op, single(reply), cx),
            Purpose::Card => self.card_written(op, single(reply)),
            Purpose::Roles(names) => {
                for (name, outcome) in names.iter().zip(outcomes(reply, names.len())) {
                    self.role_written(op, name, outcome, cx);
                }
            }
            Purpose::Expel(sessions) => {
                for (session, outcome) in sessions.iter().zip(outcomes(reply, sessions.len())) {
                    self.expelled(op, *session, outcome, cx);
                }
            }
            Purpose::Control(role) => self.control_written(&role, single(reply), cx),
            Purpose::Tidy => self.look.tidied(),
        }
    }

    /// A late answer grants nothing, but what it touched is worth another look.
    fn replied_late(&mut self, op: OpId, reply: &Reply, cx: &mut Cx<'_>) {
        if self.mutated(Mutant::LateReplyBelieved) {
            self.believe_late_reply(op, reply, cx);
        }
        let Reply::Written(outcomes) = reply else { return };
        for outcome in outcomes {
            if let Outcome::Conflict(Some(entry)) = outcome {
                self.look_again(entry.key.clone());
            }
        }
    }

    /// Marks a register as worth reading, if it concerns us.
    pub(super) fn look_again(&mut self, key: Key) {
        let concerns = match &key {
            Key::Cluster => true,
            Key::Session(_, id) => self.peers.contains_key(id),
            Key::Named(_, crate::Kind::Role, name) => self.roles.contains_key(name),
            Key::Named(..) => true,
        };
        if concerns && self.epoch().is_some_and(|epoch| key == Key::Cluster || key.epoch() == epoch) {
            self.look.again(key);
        }
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

#[cfg(feature = "canon")]
#[path = "canon/ops.rs"]
mod canon;
