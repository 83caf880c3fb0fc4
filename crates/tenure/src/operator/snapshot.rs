//! A snapshot of a namespace: its roles and nodes, put together from the registers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure_core::record::{Order, Reason};
use tenure_core::{Epoch, Timestamp};

use super::registers::Registers;
use super::{Operator, liveness};
use crate::{Error, Name, SessionId, Timing, Token};

/// The roles and nodes of a namespace at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClusterSnapshot {
    /// Every role that ever had a leader, has a candidate, or has orders of an operator.
    pub roles: Vec<RoleReport>,
    /// Roles that serve Tenure itself: see [`is_internal`].
    pub internal: Vec<RoleReport>,
    /// Every node that is registered.
    pub nodes: Vec<NodeReport>,
    /// Registers that hold what this version cannot read; they are left out above.
    pub unreadable: Vec<String>,
    /// The longest lease of any session: every node waits this long after a loss of data, and on a store of class C when it
    /// starts. None if it was not read.
    pub longest_lease: Option<Duration>,
    /// How long ago it was taken; see [`ClusterSnapshot::aged`].
    pub age: Duration,
    /// The epoch that it shows; none if no node was ever there, or if it comes from an agent.
    pub epoch: Option<Epoch>,
    /// Every token of this life is above this one; 0 if no life before it was replaced by `tenure repair`.
    pub floor: Token,
}

/// The state of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RoleState {
    /// Its leader beats.
    Led,
    /// Its leader has not beaten for a ttl: never to be taken for healthy.
    Silent,
    /// It has no leader.
    Vacant,
    /// It has no leader, because an operator paused it.
    Paused,
    /// The store has not been seen for longer than a lease: whatever was seen last may be over.
    Unknown,
}

/// The state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeState {
    /// It beats.
    Live,
    /// It has not beaten for a ttl.
    Silent,
    /// It stopped.
    Closed,
    /// Others proved it gone.
    Expelled,
    /// The store has not been seen for longer than its lease.
    Unknown,
}

/// A role, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RoleReport {
    /// Its name.
    pub role: Name,
    /// Its leader.
    pub leader: Option<Name>,
    /// The leader when the store was last reachable, if the current one is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_leader: Option<Name>,
    /// The token of the current tenure, or of the last one.
    pub token: Token,
    /// Since when it is as it is, in microseconds since 1970.
    pub since: Option<Timestamp>,
    /// Its state.
    pub state: RoleState,
    /// Why the tenure began, or why the last one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The age of its leader's last beat.
    pub last_beat_ms_ago: Option<u64>,
    /// The lease of its leader: how long it may fall silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Where its leader is reached.
    pub address: Option<String>,
    /// The nodes that would lead next, in order.
    pub candidates: Vec<Name>,
    /// The order that paused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Order>,
    /// The node it is pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Name>,
    /// The node it is being handed to, or asked to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Name>,
}

/// A node, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its name.
    pub node: Name,
    /// Its session.
    pub session: SessionId,
    /// Its state.
    pub state: NodeState,
    /// The roles it leads.
    pub roles: Vec<Name>,
    /// The roles it stands for, with its priority for each.
    pub candidacies: BTreeMap<Name, i32>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The host it runs on, as its kernel names it.
    pub host: Option<String>,
    /// The version of Tenure in it.
    pub version: Option<String>,
    /// Where to reach it.
    pub address: Option<String>,
    /// When it joined, in microseconds since 1970.
    pub since: Timestamp,
    /// The age of its last beat.
    pub last_beat_ms_ago: Option<u64>,
    /// Its lease.
    pub ttl_ms: Option<u64>,
    /// The order that drains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<Order>,
}

/// Whether a role serves Tenure itself, such as the one whose leader tells people of alerts. Lists leave them out.
#[must_use]
pub fn is_internal(role: &Name) -> bool {
    role.as_str().starts_with("tenure.")
}

impl ClusterSnapshot {
    pub(super) async fn take(operator: &Operator) -> Result<Self, Error> {
        let Some(registers) = Registers::read(operator).await? else { return Ok(Self::default()) };
        let named = registers.named();
        let Operator { store, namespace, .. } = operator;
        let liveness =
            liveness::check_sessions(store, namespace, registers.epoch, &registers.sessions, &named).await?;
        Ok(registers.report(&liveness))
    }

    /// What is still known `age` after it was taken, if the store could not be read since: everything is that much older,
    /// and states that no lease vouches for any more are unknown. Call this before you show or count states.
    #[must_use]
    pub fn aged(&self, age: Duration) -> Self {
        let live = self.nodes.iter().filter(|node| node.state == NodeState::Live);
        let lease = live.filter_map(|node| node.ttl_ms).max().map(Duration::from_millis);
        let lease = lease.unwrap_or(Timing::DEFAULT_TTL);
        let role = |report: &RoleReport| report.aged(age, lease);
        Self {
            roles: self.roles.iter().map(role).collect(),
            internal: self.internal.iter().map(role).collect(),
            nodes: self.nodes.iter().map(|report| report.aged(age)).collect(),
            unreadable: self.unreadable.clone(),
            age: self.age + age,
            epoch: self.epoch,
            floor: self.floor,
            longest_lease: self.longest_lease,
        }
    }

    /// One role of it, also if it is internal.
    #[must_use]
    pub fn role(&self, role: &Name) -> Option<&RoleReport> {
        self.roles.iter().chain(&self.internal).find(|report| report.role == *role)
    }

    /// One node of it.
    #[must_use]
    pub fn node(&self, node: &Name) -> Option<&NodeReport> {
        self.nodes.iter().find(|report| report.node == *node)
    }
}

/// Whether a lease that was seen then still vouches for something, so much later.
fn vouched(last_beat_ms_ago: Option<u64>, ttl_ms: Option<u64>, age: Duration) -> Option<bool> {
    let (ago, ttl) = (Duration::from_millis(last_beat_ms_ago?), Duration::from_millis(ttl_ms?));
    Some(ago + age <= ttl)
}

fn older(last_beat_ms_ago: Option<u64>, age: Duration) -> Option<u64> {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    last_beat_ms_ago.map(|ago| ago.saturating_add(age))
}

impl RoleReport {
    /// A role without a leader, candidates and orders. For clients of an agent, which set the rest.
    #[must_use]
    pub fn new(role: Name, token: Token, state: RoleState) -> Self {
        Self {
            role,
            leader: None,
            last_leader: None,
            token,
            since: None,
            state,
            reason: None,
            last_beat_ms_ago: None,
            ttl_ms: None,
            address: None,
            candidates: Vec::new(),
            paused: None,
            pinned: None,
            transfer: None,
        }
    }

    /// See [`ClusterSnapshot::aged`]. A role without a leader may have got one a moment after the look: that is believed for
    /// as long as the longest lease.
    fn aged(&self, age: Duration, longest: Duration) -> Self {
        let known = vouched(self.last_beat_ms_ago, self.ttl_ms, age);
        // One that was silent was so for longer than its lease: that is as true as the look is new.
        let known = known.filter(|_| self.state == RoleState::Led).unwrap_or(age <= longest);
        let last_beat_ms_ago = older(self.last_beat_ms_ago, age);
        if known {
            return Self { last_beat_ms_ago, ..self.clone() };
        }
        let last_leader = self.leader.clone().or_else(|| self.last_leader.clone());
        let (leader, address) = (None, None);
        Self { state: RoleState::Unknown, leader, last_leader, address, last_beat_ms_ago, ..self.clone() }
    }
}

impl NodeReport {
    /// A node without roles, labels and orders. For clients of an agent, which set the rest.
    #[must_use]
    pub fn new(node: Name, session: SessionId, state: NodeState, since: Timestamp) -> Self {
        Self {
            node,
            session,
            state,
            roles: Vec::new(),
            candidacies: BTreeMap::new(),
            labels: BTreeMap::new(),
            host: None,
            version: None,
            address: None,
            since,
            last_beat_ms_ago: None,
            ttl_ms: None,
            drained: None,
        }
    }

    /// See [`ClusterSnapshot::aged`]. What is over stays over.
    fn aged(&self, age: Duration) -> Self {
        let known =
            self.state != NodeState::Live || vouched(self.last_beat_ms_ago, self.ttl_ms, age) != Some(false);
        let state = if known { self.state } else { NodeState::Unknown };
        let roles = if known { self.roles.clone() } else { Vec::new() };
        Self { state, roles, last_beat_ms_ago: older(self.last_beat_ms_ago, age), ..self.clone() }
    }
}

impl RoleState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Led, Self::Silent, Self::Vacant, Self::Paused, Self::Unknown];
}

impl NodeState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Live, Self::Silent, Self::Closed, Self::Expelled, Self::Unknown];

    /// Whether it will never beat again.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Expelled)
    }
}

impl std::fmt::Display for NodeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Live => "live",
            Self::Silent => "silent",
            Self::Closed => "closed",
            Self::Expelled => "expelled",
            Self::Unknown => "unknown",
        })
    }
}

impl std::fmt::Display for RoleState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Led => "led",
            Self::Silent => "silent",
            Self::Vacant => "vacant",
            Self::Paused => "paused",
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: u64 = 2000;

    fn seen(state: RoleState, node: NodeState) -> ClusterSnapshot {
        let leader = matches!(state, RoleState::Led | RoleState::Silent).then(|| Name::new("a").unwrap());
        let role = RoleReport {
            last_beat_ms_ago: leader.as_ref().map(|_| 400),
            ttl_ms: leader.as_ref().map(|_| TTL),
            address: leader.as_ref().map(|_| "10.0.0.1".to_owned()),
            leader,
            ..RoleReport::new(Name::new("job").unwrap(), Token::new(1), state)
        };
        let node = NodeReport {
            roles: vec![role.role.clone()],
            last_beat_ms_ago: Some(400),
            ttl_ms: Some(TTL),
            ..NodeReport::new(Name::new("a").unwrap(), SessionId::new(1), node, Timestamp::from_micros(0))
        };
        ClusterSnapshot { roles: vec![role], nodes: vec![node], ..ClusterSnapshot::default() }
    }

    /// The last beat was seen 400 ms before the look: 1600 ms after it no lease vouches for the leader any more.
    #[test]
    fn what_no_lease_vouches_for_any_more_is_unknown() {
        for (millis, role, node) in
            [(0, RoleState::Led, NodeState::Live), (1600, RoleState::Led, NodeState::Live)]
        {
            let aged = seen(RoleState::Led, NodeState::Live).aged(Duration::from_millis(millis));
            assert_eq!((aged.roles[0].state, aged.nodes[0].state), (role, node), "after {millis} ms");
            assert_eq!(aged.roles[0].last_beat_ms_ago, Some(400 + millis));
            assert_eq!(aged.age, Duration::from_millis(millis));
        }
        let late = seen(RoleState::Led, NodeState::Live).aged(Duration::from_millis(1601));
        assert_eq!((late.roles[0].state, late.nodes[0].state), (RoleState::Unknown, NodeState::Unknown));
        assert_eq!((&late.roles[0].leader, &late.roles[0].address), (&None, &None), "no leader is named");
        assert_eq!(late.roles[0].last_leader.as_ref().map(Name::as_str), Some("a"));
        assert!(late.nodes[0].roles.is_empty());
    }

    /// That a role has no leader is believed for a lease only too; that a session is over is believed for ever.
    #[test]
    fn what_was_seen_without_a_leader_is_unknown_after_a_lease_too() {
        for state in [RoleState::Vacant, RoleState::Paused, RoleState::Silent] {
            let seen = seen(state, NodeState::Live);
            assert_eq!(seen.aged(Duration::from_millis(TTL)).roles[0].state, state);
            assert_eq!(seen.aged(Duration::from_millis(TTL + 1)).roles[0].state, RoleState::Unknown);
        }
        for over in [NodeState::Closed, NodeState::Expelled] {
            let seen = seen(RoleState::Vacant, over);
            assert_eq!(seen.aged(Duration::from_secs(60)).nodes[0].state, over);
        }
    }
}
