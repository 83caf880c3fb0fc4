//! Changes in a namespace, as an operator sees them: the difference between two polls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use tenure_core::record::{EndReason, Order, Reason, StartReason};

use super::liveness::LivenessMonitor;
use super::registers::Registers;
use super::{ClusterSnapshot, NodeReport, Operator, RoleReport, RoleState};
use crate::{Error, Name, SessionId, Token};

/// Polls whenever something may have changed, and returns the changes. What comes and goes between two polls is reported as
/// the difference that it made.
pub struct ClusterWatch {
    operator: Operator,
    changes: BoxStream<'static, ()>,
    monitor: LivenessMonitor,
    last: ClusterSnapshot,
    pause: Duration,
    /// How long the last poll took.
    took: Duration,
    /// When it began: what it shows is at least as old as that.
    began: Instant,
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
/// After a poll it rests this many times as long as the poll took.
const REST_FACTOR: u32 = 4;

impl Operator {
    /// Begins to watch: from here on nothing is missed.
    pub async fn watch(&self) -> Result<ClusterWatch, Error> {
        let changes = self.changes(MAX_INTERVAL);
        let (operator, last) = (self.clone(), ClusterSnapshot::default());
        let mut watch = ClusterWatch {
            operator,
            changes,
            monitor: LivenessMonitor::default(),
            last,
            pause: MAX_INTERVAL,
            took: Duration::ZERO,
            began: Instant::now(),
        };
        watch.last = watch.read().await?;
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
    /// it polls less often, so that polling takes a fifth of a core at most. After an error you may call it again.
    pub async fn poll(&mut self) -> Result<Vec<ClusterChange>, Error> {
        // However long a poll takes, the next comes before a lease could run out unseen.
        tokio::time::sleep((self.took * REST_FACTOR).min(self.pause * 2)).await;
        let _ = tokio::time::timeout(self.pause, self.changes.next()).await;
        self.poll_now().await
    }

    /// Polls without waiting, and returns what has changed since the last poll, if anything has.
    pub async fn poll_now(&mut self) -> Result<Vec<ClusterChange>, Error> {
        while let Some(Some(())) = self.changes.next().now_or_never() {}
        let began = Instant::now();
        let now = self.read().await?;
        let changes = difference(&self.last, &now);
        self.last = now;
        (self.took, self.began) = (began.elapsed(), began);
        Ok(changes)
    }

    async fn read(&mut self) -> Result<ClusterSnapshot, Error> {
        let Operator { store, namespace, .. } = &self.operator;
        let Some(registers) = Registers::read(store, namespace).await? else {
            return Ok(ClusterSnapshot::default());
        };
        let liveness = self.monitor.observe_all(&registers.sessions);
        let shortest =
            liveness.values().filter(|status| !status.state.is_over()).map(|status| status.ttl).min();
        self.pause = shortest.map_or(MAX_INTERVAL, |ttl| (ttl / 5).clamp(MIN_INTERVAL, MAX_INTERVAL));
        Ok(registers.report(&liveness))
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
            let expelled = now.is_some_and(|now| now.state == super::NodeState::Expelled);
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
