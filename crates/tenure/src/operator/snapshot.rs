//! Everything that the registers say, put together for people.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use tenure_core::record::{Node, NodeControl, Order, Role, RoleControl, Session, SessionState};
use tenure_core::{Key, Kind, Query, Wall};

use super::wall;
use crate::store::{Entry, SharedStore};
use crate::{Error, Name, SessionId, Token};

/// A namespace as it was found.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Every role that anybody ever led or stands for.
    pub roles: Vec<RoleReport>,
    /// Every node that is registered.
    pub nodes: Vec<NodeReport>,
}

/// How a role fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleState {
    /// Its leader beats.
    Led,
    /// Its leader has not beaten for a ttl: never to be taken for healthy.
    Silent,
    /// Nobody leads.
    Vacant,
    /// Nobody leads, because an operator said so.
    Paused,
}

/// How a node fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It beats.
    Live,
    /// It has not beaten for a ttl.
    Silent,
    /// It stopped.
    Closed,
    /// Others proved it gone.
    Expelled,
}

/// A role, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoleReport {
    /// Its name.
    pub role: Name,
    /// Who leads.
    pub leader: Option<Name>,
    /// The token of the current tenure, or of the last one.
    pub token: Token,
    /// Since when it is as it is, in microseconds since 1970.
    pub since: Option<Wall>,
    /// How it fares.
    pub state: RoleState,
    /// How long ago its leader beat.
    pub last_beat_ms_ago: Option<u64>,
    /// Where its leader is reached.
    pub address: Option<String>,
    /// Who would lead next, in order.
    pub candidates: Vec<Name>,
    /// Who paused it, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Order>,
    /// The node it is pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Name>,
    /// The node it is being handed to, or asked to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Name>,
}

/// A node, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Its name.
    pub node: Name,
    /// Its session.
    pub session: SessionId,
    /// How it fares.
    pub state: NodeState,
    /// The roles it leads.
    pub roles: Vec<Name>,
    /// The roles it stands for, with its priority for each.
    pub candidacies: BTreeMap<Name, i32>,
    /// What people said about it.
    pub labels: BTreeMap<String, String>,
    /// Where to reach it.
    pub address: Option<String>,
    /// When it joined, in microseconds since 1970.
    pub since: Wall,
    /// How long ago it beat.
    pub last_beat_ms_ago: Option<u64>,
    /// How long it may fall silent.
    pub ttl_ms: Option<u64>,
    /// Who drains it, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<Order>,
}

/// What is known of a session.
#[derive(Debug, Clone, Copy)]
struct Pulse {
    state: NodeState,
    ago: Duration,
    ttl: Duration,
}

/// The registers, by kind.
#[derive(Default)]
struct Registers {
    sessions: BTreeMap<SessionId, Session>,
    nodes: BTreeMap<Name, Node>,
    roles: BTreeMap<Name, Role>,
    controls: BTreeMap<Name, RoleControl>,
    node_controls: BTreeMap<Name, NodeControl>,
}

impl Snapshot {
    pub(super) async fn take(store: &SharedStore, namespace: &Name) -> Result<Self, Error> {
        let Some(epoch) = super::epoch(store, namespace).await? else { return Ok(Self::default()) };
        let kinds = [Kind::Session, Kind::Node, Kind::Role, Kind::RoleControl, Kind::NodeControl];
        let query = Query { keys: Vec::new(), kinds: kinds.map(|kind| (epoch, kind)).into() };
        let mut registers = Registers::default();
        for entry in store.read(namespace, &query).await? {
            registers.put(&entry);
        }
        let pulses = pulses(store, namespace, epoch, &registers.sessions).await?;
        Ok(Self { roles: registers.roles(&pulses), nodes: registers.nodes(&pulses) })
    }

    /// One role of it.
    #[must_use]
    pub fn role(&self, role: &Name) -> Option<&RoleReport> {
        self.roles.iter().find(|report| report.role == *role)
    }
}

/// Feels every pulse. Wall clocks of different hosts may differ, so that a beat which seems old, or from the future, is
/// not believed: whoever seems silent is looked at once more, a beat later, and lives if its beat has moved.
async fn pulses(
    store: &SharedStore,
    namespace: &Name,
    epoch: tenure_core::Epoch,
    sessions: &BTreeMap<SessionId, Session>,
) -> Result<BTreeMap<SessionId, Pulse>, Error> {
    let now = wall();
    let mut pulses: BTreeMap<SessionId, Pulse> =
        sessions.iter().map(|(id, session)| (*id, first_pulse(session, now))).collect();
    let doubtful: Vec<(SessionId, &Session)> = sessions
        .iter()
        .filter(|(id, _)| pulses[id].state == NodeState::Silent)
        .map(|(id, s)| (*id, s))
        .collect();
    // A leader beats five times in a ttl, or more often.
    let Some(wait) = doubtful.iter().map(|(_, session)| session.ttl / 4).max() else { return Ok(pulses) };
    tokio::time::sleep(wait.min(Duration::from_secs(5))).await;
    let keys = doubtful.iter().map(|(id, _)| Key::Session(epoch, *id)).collect();
    for entry in store.read(namespace, &Query { keys, kinds: Vec::new() }).await? {
        let (Key::Session(_, id), Ok(session)) = (&entry.key, entry.value.parse::<Session>()) else {
            continue;
        };
        if session.beat > sessions[id].beat {
            pulses.insert(*id, Pulse { state: NodeState::Live, ago: Duration::ZERO, ttl: session.ttl });
        }
    }
    Ok(pulses)
}

fn first_pulse(session: &Session, now: Wall) -> Pulse {
    let ago = Duration::from_micros(now.0.saturating_sub(session.beat_at.0));
    let ahead = Duration::from_micros(session.beat_at.0.saturating_sub(now.0));
    let doubtful = ago > session.ttl || ahead > Duration::from_secs(1);
    let state = match session.state {
        SessionState::Closed => NodeState::Closed,
        SessionState::Expelled => NodeState::Expelled,
        SessionState::Live if doubtful => NodeState::Silent,
        SessionState::Live => NodeState::Live,
    };
    Pulse { state, ago, ttl: session.ttl }
}

impl Registers {
    /// What cannot be read is left out.
    fn put(&mut self, entry: &Entry) {
        match &entry.key {
            Key::Session(_, id) => _ = entry.value.parse().map(|session| self.sessions.insert(*id, session)),
            Key::Named(_, kind, name) => {
                let name = name.clone();
                match kind {
                    Kind::Node => _ = entry.value.parse().map(|node| self.nodes.insert(name, node)),
                    Kind::Role => _ = entry.value.parse().map(|role| self.roles.insert(name, role)),
                    Kind::RoleControl => _ = entry.value.parse().map(|c| self.controls.insert(name, c)),
                    Kind::NodeControl => _ = entry.value.parse().map(|c| self.node_controls.insert(name, c)),
                    _ => {}
                }
            }
            Key::Cluster => {}
        }
    }

    fn roles(&self, pulses: &BTreeMap<SessionId, Pulse>) -> Vec<RoleReport> {
        let live: Vec<(&Name, &Node)> = self
            .nodes
            .iter()
            .filter(|(_, node)| pulses.get(&node.session).is_some_and(|pulse| pulse.state == NodeState::Live))
            .collect();
        let stood_for = live.iter().flat_map(|(_, node)| node.candidacies.keys());
        let names: BTreeSet<&Name> = self.roles.keys().chain(stood_for).collect();
        names.into_iter().map(|name| self.role(name, &live, pulses)).collect()
    }

    fn role(&self, name: &Name, live: &[(&Name, &Node)], pulses: &BTreeMap<SessionId, Pulse>) -> RoleReport {
        let record = self.roles.get(name);
        let holder = record.and_then(|record| record.holder.as_ref());
        let pulse = holder.and_then(|holder| pulses.get(&holder.session)).copied();
        let control = self.controls.get(name).cloned().unwrap_or_default();
        let leader = holder.filter(|_| pulse.is_some_and(|pulse| !pulse.state.is_over()));
        let state = match (leader, pulse.map(|pulse| pulse.state)) {
            (Some(_), Some(NodeState::Live)) => RoleState::Led,
            (Some(_), _) => RoleState::Silent,
            (None, _) if control.pause.is_some() => RoleState::Paused,
            (None, _) => RoleState::Vacant,
        };
        let standing =
            live.iter().filter(|(node, _)| self.node_controls.get(node).is_none_or(|c| c.drain.is_none()));
        let standing =
            standing.filter_map(|(node, record)| Some(((*node).clone(), *record.candidacies.get(name)?)));
        let candidates = tenure_core::engine::in_order(name, record, standing);
        RoleReport {
            role: name.clone(),
            leader: leader.map(|holder| holder.node.clone()),
            token: record.map_or(Token(0), |record| record.token),
            since: record.map(|record| record.since),
            state,
            last_beat_ms_ago: leader.and(pulse).map(|pulse| millis(pulse.ago)),
            address: leader
                .and_then(|holder| self.nodes.get(&holder.node))
                .and_then(|node| node.address.clone()),
            candidates: candidates
                .into_iter()
                .filter(|node| leader.is_none_or(|l| l.node != *node))
                .collect(),
            paused: control.pause,
            pinned: control.pin.map(|pin| pin.node),
            transfer: control.request.and_then(|request| request.to),
        }
    }

    fn nodes(&self, pulses: &BTreeMap<SessionId, Pulse>) -> Vec<NodeReport> {
        let mut led: BTreeMap<SessionId, Vec<Name>> = BTreeMap::new();
        for (name, role) in &self.roles {
            if let Some(holder) = &role.holder {
                led.entry(holder.session).or_default().push(name.clone());
            }
        }
        let report = |(name, node): (&Name, &Node)| {
            let pulse = pulses.get(&node.session);
            let state = pulse.map_or(NodeState::Expelled, |pulse| pulse.state);
            NodeReport {
                node: name.clone(),
                session: node.session,
                state,
                roles: if state.is_over() {
                    Vec::new()
                } else {
                    led.remove(&node.session).unwrap_or_default()
                },
                candidacies: node.candidacies.clone(),
                labels: node.labels.clone(),
                address: node.address.clone(),
                since: node.since,
                last_beat_ms_ago: pulse.map(|pulse| millis(pulse.ago)),
                ttl_ms: pulse.map(|pulse| millis(pulse.ttl)),
                drained: self.node_controls.get(name).and_then(|control| control.drain.clone()),
            }
        };
        self.nodes.iter().map(report).collect()
    }
}

impl NodeState {
    fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Expelled)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
