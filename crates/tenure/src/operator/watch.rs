//! Changes in a namespace, as an operator sees them: the difference between two polls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use tenure_core::Key;
use tenure_core::record::{EndReason, Order, Reason, StartReason};

use super::liveness::LivenessMonitor;
use super::registers::Registers;
use super::{ClusterSnapshot, NodeReport, NodeState, Operator, RoleReport, RoleState};
use crate::store::Entry;
use crate::{Error, Name, SessionId, Token};

/// Polls whenever something may have changed, and returns the changes. What comes and goes between two polls is reported as
/// the difference that it made.
pub struct ClusterWatch {
    operator: Operator,
    changes: BoxStream<'static, ()>,
    monitor: LivenessMonitor,
    registers: Registers,
    last: ClusterSnapshot,
    /// When the next poll is due, if no notification comes.
    due: Instant,
    /// No poll before this, whatever comes: polling takes a fifth of a core at most.
    rests_until: Instant,
    /// When what the snapshot shows was asked for: it is at least as old as that.
    began: Instant,
    /// When this watch polled last.
    polled_at: Instant,
    /// The leases of sessions that are not over, and whether each was seen to beat within it.
    leases: BTreeMap<SessionId, (Duration, bool)>,
    /// When each session was last read, by this watch or by a node; none if this watch alone reads.
    read_at: Option<BTreeMap<SessionId, Instant>>,
}

impl std::fmt::Debug for ClusterWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("operator", &self.operator).finish_non_exhaustive()
    }
}

/// A change between two polls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum ClusterChange {
    /// A role has another leader, or the same one under a new token.
    LeaderChanged {
        role: Name,
        leader: Name,
        token: Token,
        /// The leader at the last poll, if there was one.
        former: Option<Name>,
        reason: Option<StartReason>,
    },
    /// The leader's session was ended by others, and the role has no leader.
    LeaderLost { role: Name, former: Option<Name>, token: Token, reason: Option<EndReason> },
    /// The leader gave the role up, and the role has no leader.
    Vacant {
        role: Name,
        /// The former leader, if it was seen.
        former: Option<Name>,
        token: Token,
        reason: Option<EndReason>,
    },
    /// The leader has not beaten for a ttl.
    LeaderSilent { role: Name, leader: Name, token: Token },
    /// A silent leader beats again.
    LeaderBack { role: Name, leader: Name, token: Token },
    /// An operator paused a role.
    Paused { role: Name, by: String, why: String },
    /// An operator lets a role be led again.
    Resumed { role: Name },
    /// A process takes part under that name.
    NodeJoined { node: Name, session: SessionId },
    /// It stopped.
    NodeLeft { node: Name, session: SessionId },
    /// Others proved it gone.
    NodeExpelled { node: Name, session: SessionId },
    /// The store lost what it had acknowledged: everything, or a tenure of that role, whose token fell.
    StoreForgot {
        /// Which role; none if it forgot everything.
        role: Option<Name>,
        /// The token that the role had.
        token: Option<Token>,
        /// The token that it has now.
        now: Option<Token>,
    },
}

impl ClusterChange {
    /// The role that it is about, if it is about one.
    #[must_use]
    pub fn role(&self) -> Option<&Name> {
        match self {
            Self::LeaderChanged { role, .. }
            | Self::LeaderLost { role, .. }
            | Self::Vacant { role, .. }
            | Self::LeaderSilent { role, .. }
            | Self::LeaderBack { role, .. }
            | Self::Paused { role, .. }
            | Self::Resumed { role } => Some(role),
            Self::StoreForgot { role, .. } => role.as_ref(),
            Self::NodeJoined { .. } | Self::NodeLeft { .. } | Self::NodeExpelled { .. } => None,
        }
    }
}

/// The longest pause between two polls: beats notify no node.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest pause, however short a ttl is.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// The same for a watch that is told of beats: notifications may be lost.
const MAX_TOLD_INTERVAL: Duration = Duration::from_secs(60);
const MIN_TOLD_INTERVAL: Duration = Duration::from_secs(10);
/// After a look it rests this many times as long as the look took.
const REST_FACTOR: u32 = 4;

impl Operator {
    /// Begins to watch: from here on nothing is missed.
    pub async fn watch(&self) -> Result<ClusterWatch, Error> {
        let now = Instant::now();
        let mut watch = ClusterWatch {
            operator: self.clone(),
            changes: self.changes(MAX_TOLD_INTERVAL),
            monitor: LivenessMonitor::default(),
            registers: Registers::default(),
            last: ClusterSnapshot::default(),
            due: now,
            rests_until: now,
            began: now,
            polled_at: now,
            leases: BTreeMap::new(),
            read_at: None,
        };
        watch.poll_now().await?;
        Ok(watch)
    }
}

impl ClusterWatch {
    /// The namespace at the last poll.
    #[must_use]
    pub fn snapshot(&self) -> &ClusterSnapshot {
        &self.last
    }

    /// When the last poll that succeeded began. An answer may have waited here for this process to go on: what it shows
    /// is as old as the question.
    #[must_use]
    pub fn taken_at(&self) -> Instant {
        self.began
    }

    /// Waits until something has changed, and returns the changes. After an error you may call it again.
    pub async fn next(&mut self) -> Result<Vec<ClusterChange>, Error> {
        loop {
            let changes = self.poll().await?;
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
    }

    /// Waits until it is time to poll, polls once, and returns what has changed since, if anything has. With very many roles
    /// it polls less often, so that polling takes a fifth of a core at most. After an error you may call it again. You may
    /// drop the future while it waits.
    pub async fn poll(&mut self) -> Result<Vec<ClusterChange>, Error> {
        tokio::time::sleep_until(self.rests_until.into()).await;
        let _ = tokio::time::timeout_at(self.due.into(), self.changes.next()).await;
        self.poll_now().await
    }

    /// Polls without waiting, and returns what has changed since the last poll, if anything has.
    pub async fn poll_now(&mut self) -> Result<Vec<ClusterChange>, Error> {
        while let Some(Some(())) = self.changes.next().now_or_never() {}
        let began = Instant::now();
        let read = Registers::read(&self.operator).await?;
        let found = read.is_some();
        self.registers = read.unwrap_or_default();
        if let Some(read_at) = &mut self.read_at {
            *read_at = self.registers.sessions.keys().map(|id| (*id, began)).collect();
        }
        let changes = self.look(began, found);
        self.polled_at = Instant::now();
        self.due = self.next_poll();
        self.rest(began);
        Ok(changes)
    }

    /// Takes in sessions that a node of this process read, asked for at `began`, and returns what has changed. From the first call on
    /// this watch reads by itself when notified, when a session tells that more has changed, when a live session was read by
    /// neither for more than half of its lease, and now and then.
    pub fn take_in(&mut self, sessions: &[Entry], began: Instant) -> Vec<ClusterChange> {
        let (known, asked) = (&self.registers.sessions, self.began);
        let read_at = self.read_at.get_or_insert_with(|| known.keys().map(|id| (*id, asked)).collect());
        let mut told = true;
        for entry in sessions {
            told &= self.registers.refresh(entry);
            if let Key::Session(_, id) = entry.key {
                read_at.insert(id, began);
            }
        }
        let now = Instant::now();
        // With very many roles a look takes longer than a beat: beats alone do not ask for one.
        let changes = if told && now < self.rests_until {
            Vec::new()
        } else {
            let changes = self.look(began.max(asked), self.last.epoch.is_some());
            self.rest(now);
            changes
        };
        let now = Instant::now();
        if !told {
            self.due = now;
        } else if self.due > now {
            self.due = self.next_poll();
        }
        changes
    }

    /// After a look that began then. A short one asks for no rest; after a long one the next comes before a lease could run out
    /// unseen.
    fn rest(&mut self, began: Instant) {
        let ended = Instant::now();
        let rest = ((ended - began) * REST_FACTOR).min(self.interval() * 2);
        self.rests_until = if rest < MIN_INTERVAL { ended } else { ended + rest };
    }

    /// How often a watch polls that reads alone: no lease runs out unseen.
    fn interval(&self) -> Duration {
        let shortest = self.leases.values().map(|(ttl, _)| *ttl).min();
        shortest.map_or(MAX_INTERVAL, |ttl| (ttl / 5).clamp(MIN_INTERVAL, MAX_INTERVAL))
    }

    fn next_poll(&self) -> Instant {
        let Some(read_at) = &self.read_at else { return self.polled_at + self.interval() };
        let beating = self.leases.iter().filter(|(_, (_, beats))| *beats);
        let lapse = beating.filter_map(|(id, (ttl, _))| Some(*read_at.get(id)? + *ttl * 3 / 5)).min();
        let longest = self.leases.values().map(|(ttl, _)| *ttl).max().unwrap_or_default();
        let audit = self.polled_at + (longest * 4).clamp(MIN_TOLD_INTERVAL, MAX_TOLD_INTERVAL);
        lapse.map_or(audit, |lapse| lapse.min(audit))
    }

    /// What the registers say now, and how that differs from what they said before.
    fn look(&mut self, began: Instant, found: bool) -> Vec<ClusterChange> {
        let liveness = self.monitor.observe_all(&self.registers.sessions);
        let there = liveness.iter().filter(|(_, status)| !status.state.is_over());
        self.leases =
            there.map(|(id, status)| (*id, (status.ttl, status.state == NodeState::Live))).collect();
        let now = if found { self.registers.report(&liveness) } else { ClusterSnapshot::default() };
        let changes = difference(&self.last, &now);
        (self.last, self.began) = (now, began);
        changes
    }
}

/// The changes between two polls: nodes first, because they explain the rest.
fn difference(before: &ClusterSnapshot, after: &ClusterSnapshot) -> Vec<ClusterChange> {
    let mut changes = Vec::from_iter(forgotten(before, after));
    let (was, is) = (by_name(&before.nodes, |n| &n.node), by_name(&after.nodes, |n| &n.node));
    both(&was, &is, |before, after| changes.extend(of_node(before, after)));
    let (was, is) = (by_name(&before.roles, |r| &r.role), by_name(&after.roles, |r| &r.role));
    both(&was, &is, |before, after| {
        changes.extend(of_token(before, after));
        changes.extend(of_orders(before, after));
        changes.extend(of_tenure(before, after));
        changes.extend(of_silence(before, after));
    });
    changes
}

fn by_name<T>(all: &[T], name: impl Fn(&T) -> &Name) -> BTreeMap<&Name, &T> {
    all.iter().map(|one| (name(one), one)).collect()
}

/// Calls `tell` for every name that either side has.
fn both<T>(
    before: &BTreeMap<&Name, &T>,
    after: &BTreeMap<&Name, &T>,
    mut tell: impl FnMut(Option<&T>, Option<&T>),
) {
    let names: BTreeSet<&Name> = before.keys().chain(after.keys()).copied().collect();
    for name in names {
        tell(before.get(name).copied(), after.get(name).copied());
    }
}

fn of_node(before: Option<&NodeReport>, after: Option<&NodeReport>) -> Option<ClusterChange> {
    let present =
        |report: Option<&NodeReport>| report.filter(|report| !report.state.is_over()).map(|r| r.session);
    match (before, after) {
        (_, Some(now)) if present(after).is_some() && present(before) != present(after) => {
            Some(ClusterChange::NodeJoined { node: now.node.clone(), session: now.session })
        }
        (Some(was), now) if present(before).is_some() && present(after).is_none() => {
            let (node, session) = (was.node.clone(), was.session);
            let expelled = now.is_some_and(|now| now.state == NodeState::Expelled);
            Some(if expelled {
                ClusterChange::NodeExpelled { node, session }
            } else {
                ClusterChange::NodeLeft { node, session }
            })
        }
        _ => None,
    }
}

/// A store that is not in the life in which it was has lost everything, unless an operator renewed it: then its floor
/// keeps the tokens of the former life.
fn forgotten(before: &ClusterSnapshot, after: &ClusterSnapshot) -> Option<ClusterChange> {
    let renewed = after.epoch.is_some() && after.floor >= highest(before).max(Token::new(1));
    let forgot = before.epoch.is_some() && before.epoch != after.epoch && !renewed;
    forgot.then_some(ClusterChange::StoreForgot { role: None, token: None, now: None })
}

/// The highest token seen that a tenure can have: repair replaces those that none can have.
fn highest(seen: &ClusterSnapshot) -> Token {
    let tokens = seen.roles.iter().chain(&seen.internal).map(|role| role.token);
    tokens.filter(|token| *token < Token::IMPLAUSIBLE).max().unwrap_or(Token::new(0))
}

/// Tokens never fall. Those of a store that has forgotten everything are told of once, and not role by role.
fn of_token(before: Option<&RoleReport>, after: Option<&RoleReport>) -> Option<ClusterChange> {
    let (was, is) = (before?, after?);
    let (role, token, now) = (Some(was.role.clone()), Some(was.token), Some(is.token));
    (is.token < was.token).then_some(ClusterChange::StoreForgot { role, token, now })
}

fn of_orders(before: Option<&RoleReport>, after: Option<&RoleReport>) -> Option<ClusterChange> {
    let pause = |report: Option<&RoleReport>| report.and_then(|report| report.paused.clone());
    let role = before.or(after)?.role.clone();
    match (pause(before), pause(after)) {
        (None, Some(Order { by, why, .. })) => Some(ClusterChange::Paused { role, by, why }),
        (Some(_), None) => Some(ClusterChange::Resumed { role }),
        _ => None,
    }
}

fn of_tenure(before: Option<&RoleReport>, after: Option<&RoleReport>) -> Option<ClusterChange> {
    let led = |report: Option<&RoleReport>| report.and_then(|report| report.leader.clone());
    let (former, leader) = (led(before), led(after));
    let token = |report: Option<&RoleReport>| report.map_or(Token::new(0), |report| report.token);
    if former == leader && token(before) == token(after) {
        return None;
    }
    let role = before.or(after)?.role.clone();
    let (token, reason) = match after {
        Some(after) => (after.token, after.reason),
        None => (token(before), Some(EndReason::Forgotten.into())),
    };
    if let Some(leader) = leader {
        let reason = reason.and_then(Reason::start);
        return Some(ClusterChange::LeaderChanged { role, leader, token, former, reason });
    }
    let reason = reason.and_then(Reason::end);
    let lost = matches!(reason, Some(EndReason::Expelled | EndReason::Forgotten));
    Some(if lost {
        ClusterChange::LeaderLost { role, former, token, reason }
    } else {
        ClusterChange::Vacant { role, former, token, reason }
    })
}

fn of_silence(before: Option<&RoleReport>, after: Option<&RoleReport>) -> Option<ClusterChange> {
    let after = after?;
    let (role, leader, token) = (after.role.clone(), after.leader.clone()?, after.token);
    let same = before.filter(|before| before.token == token);
    let was = same.map_or(RoleState::Led, |before| before.state);
    match (was, after.state) {
        (RoleState::Led, RoleState::Silent) => Some(ClusterChange::LeaderSilent { role, leader, token }),
        (RoleState::Silent, RoleState::Led) => Some(ClusterChange::LeaderBack { role, leader, token }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Timestamp;

    use super::*;

    fn role(
        leader: Option<&str>,
        token: u64,
        state: RoleState,
        reason: impl Into<Reason>,
    ) -> ClusterSnapshot {
        let report = RoleReport {
            leader: leader.map(|leader| Name::new(leader).unwrap()),
            reason: Some(reason.into()),
            ..RoleReport::new(Name::new("scheduler").unwrap(), Token::new(token), state)
        };
        ClusterSnapshot { roles: vec![report], ..ClusterSnapshot::default() }
    }

    fn changes(before: &ClusterSnapshot, after: &ClusterSnapshot) -> Vec<String> {
        let kind = |change: &ClusterChange| {
            serde_json::to_value(change).unwrap()["event"].as_str().unwrap().to_owned()
        };
        difference(before, after).iter().map(kind).collect()
    }

    #[test]
    fn a_tenure_that_began_or_ended_is_told() {
        let led = role(Some("a"), 1, RoleState::Led, StartReason::First);
        assert_eq!(changes(&ClusterSnapshot::default(), &led), ["leader-changed"]);
        assert_eq!(changes(&led, &led), [""; 0]);
        assert_eq!(
            changes(&led, &role(Some("a"), 2, RoleState::Led, StartReason::Reclaimed)),
            ["leader-changed"]
        );
        assert_eq!(changes(&led, &role(None, 1, RoleState::Vacant, EndReason::Resigned)), ["vacant"]);
        assert_eq!(changes(&led, &role(None, 1, RoleState::Vacant, EndReason::Expelled)), ["leader-lost"]);
        assert_eq!(changes(&led, &ClusterSnapshot::default()), ["leader-lost"]);
        let passed = role(None, 2, RoleState::Vacant, EndReason::Resigned);
        assert_eq!(changes(&role(None, 1, RoleState::Vacant, EndReason::Resigned), &passed), ["vacant"]);
    }

    #[test]
    fn a_store_that_forgets_is_told() {
        let at = |epoch, snapshot: ClusterSnapshot| ClusterSnapshot {
            epoch: Some(tenure_core::Epoch::new(epoch)),
            ..snapshot
        };
        let led = |token| role(Some("a"), token, RoleState::Led, StartReason::First);
        assert_eq!(changes(&ClusterSnapshot::default(), &at(1, led(7))), ["leader-changed"], "it is new");
        assert_eq!(changes(&at(1, led(7)), &at(1, led(6))), ["store-forgot", "leader-changed"]);
        assert_eq!(changes(&at(1, led(7)), &ClusterSnapshot::default()), ["store-forgot", "leader-lost"]);
        assert_eq!(changes(&at(1, led(7)), &at(2, led(8))), ["store-forgot", "leader-changed"]);
    }

    #[test]
    fn a_namespace_that_an_operator_renewed_has_lost_nothing() {
        let led = role(Some("a"), 7, RoleState::Led, StartReason::First);
        let before = ClusterSnapshot { epoch: Some(tenure_core::Epoch::new(1)), ..led };
        let renewed = |floor| {
            let epoch = Some(tenure_core::Epoch::new(2));
            ClusterSnapshot { epoch, floor: Token::new(floor), ..ClusterSnapshot::default() }
        };
        assert_eq!(changes(&before, &renewed(7)), ["leader-lost"]);
        assert_eq!(changes(&before, &renewed(6)), ["store-forgot", "leader-lost"], "a token may come again");
        assert_eq!(changes(&before, &renewed(0)), ["store-forgot", "leader-lost"], "it was made anew");
        let forgotten = ClusterSnapshot { epoch: before.epoch, ..ClusterSnapshot::default() };
        assert_eq!(changes(&forgotten, &renewed(0)), ["store-forgot"]);
    }

    #[test]
    fn silence_is_told_once_and_its_end_too() {
        let (led, silent) = (
            role(Some("a"), 1, RoleState::Led, StartReason::First),
            role(Some("a"), 1, RoleState::Silent, StartReason::First),
        );
        assert_eq!(changes(&led, &silent), ["leader-silent"]);
        assert_eq!(changes(&silent, &silent), [""; 0]);
        assert_eq!(changes(&silent, &led), ["leader-back"]);
        assert_eq!(changes(&ClusterSnapshot::default(), &silent), ["leader-changed", "leader-silent"]);
    }

    #[test]
    fn orders_are_told_before_what_they_cause() {
        let led = role(Some("a"), 1, RoleState::Led, StartReason::First);
        let mut paused = role(None, 1, RoleState::Paused, EndReason::Paused);
        paused.roles[0].paused =
            Some(Order { by: "ada".into(), why: String::new(), at: Timestamp::from_micros(0) });
        assert_eq!(changes(&led, &paused), ["paused", "vacant"]);
        assert_eq!(
            changes(&paused, &role(Some("b"), 2, RoleState::Led, StartReason::Vacant)),
            ["resumed", "leader-changed"]
        );
    }
}
