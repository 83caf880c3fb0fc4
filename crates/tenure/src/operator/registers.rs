//! The registers of a namespace, by kind, and what they say together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::record::{Node, NodeControl, Reason, Role, RoleControl, Session};
use tenure_core::{Epoch, Key, Kind, Query, Wall};

use super::pulse::{Pulse, Pulses};
use super::{NodeReport, NodeState, RoleReport, RoleState, Snapshot, is_internal};
use crate::store::{Entry, SharedStore};
use crate::{Error, Name, SessionId, Token};

/// The registers, by kind.
#[derive(Debug, Default)]
pub(super) struct Registers {
    pub(super) epoch: Epoch,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    nodes: BTreeMap<Name, Node>,
    roles: BTreeMap<Name, Role>,
    controls: BTreeMap<Name, RoleControl>,
    node_controls: BTreeMap<Name, NodeControl>,
    unreadable: Vec<String>,
}

impl Registers {
    /// All of a namespace; none if nobody was ever there.
    pub(super) async fn read(store: &SharedStore, namespace: &Name) -> Result<Option<Self>, Error> {
        let Some(epoch) = super::epoch(store, namespace).await? else { return Ok(None) };
        let kinds = [Kind::Session, Kind::Node, Kind::Role, Kind::RoleControl, Kind::NodeControl];
        let query = Query { keys: Vec::new(), kinds: kinds.map(|kind| (epoch, kind)).into() };
        let mut registers = Self { epoch, ..Self::default() };
        for entry in store.read(namespace, &query).await? {
            if registers.put(&entry).is_err() {
                registers.unreadable.push(entry.key.to_string());
            }
        }
        Ok(Some(registers))
    }

    fn put(&mut self, entry: &Entry) -> Result<(), serde_json::Error> {
        let value = &entry.value;
        match &entry.key {
            Key::Session(_, id) => _ = self.sessions.insert(*id, value.parse()?),
            Key::Named(_, Kind::Node, name) => _ = self.nodes.insert(name.clone(), value.parse()?),
            Key::Named(_, Kind::Role, name) => _ = self.roles.insert(name.clone(), value.parse()?),
            Key::Named(_, Kind::RoleControl, name) => {
                self.controls.insert(name.clone(), value.parse()?);
            }
            Key::Named(_, Kind::NodeControl, name) => {
                self.node_controls.insert(name.clone(), value.parse()?);
            }
            Key::Named(..) | Key::Cluster => {}
        }
        Ok(())
    }

    /// The sessions that a role or a node names.
    pub(super) fn named(&self) -> BTreeSet<SessionId> {
        let holders = self.roles.values().filter_map(|role| role.holder.as_ref());
        let nodes = self.nodes.values().map(|node| node.session);
        holders.map(|holder| holder.session).chain(nodes).collect()
    }

    /// All of it, for people.
    pub(super) fn report(self, pulses: &Pulses) -> Snapshot {
        let (all, nodes) = (self.role_reports(pulses), self.node_reports(pulses));
        let (internal, roles) = all.into_iter().partition(|report: &RoleReport| is_internal(&report.role));
        Snapshot { roles, internal, nodes, unreadable: self.unreadable }
    }

    fn role_reports(&self, pulses: &Pulses) -> Vec<RoleReport> {
        let standing = self.standing(pulses);
        let ordered =
            self.controls.iter().filter(|(_, control)| control.pause.is_some() || control.pin.is_some());
        let names: BTreeSet<&Name> =
            self.roles.keys().chain(standing.keys().copied()).chain(ordered.map(|(name, _)| name)).collect();
        let nobody = Vec::new();
        let report = |name| self.role_report(name, standing.get(name).unwrap_or(&nobody), pulses);
        names.into_iter().map(report).collect()
    }

    /// For each role the live nodes that may lead it, with their priorities.
    fn standing(&self, pulses: &Pulses) -> BTreeMap<&Name, Vec<(&Name, i32)>> {
        let mut standing: BTreeMap<&Name, Vec<(&Name, i32)>> = BTreeMap::new();
        for (name, node) in &self.nodes {
            let live = pulses.get(&node.session).is_some_and(|pulse| pulse.state == NodeState::Live);
            let drained = self.node_controls.get(name).is_some_and(|control| control.drain.is_some());
            for (role, priority) in node.candidacies.iter().filter(|_| live) {
                let line = standing.entry(role).or_default();
                if !drained {
                    line.push((name, *priority));
                }
            }
        }
        standing
    }

    fn role_report(&self, name: &Name, standing: &[(&Name, i32)], pulses: &Pulses) -> RoleReport {
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
        let line = standing.iter().map(|(node, priority)| ((*node).clone(), *priority));
        let next = tenure_core::engine::in_order(name, record, line).into_iter();
        let (reason, fallen) = fallen(record, leader.is_some(), pulse);
        let paused_at = control.pause.as_ref().filter(|_| state == RoleState::Paused).map(|order| order.at);
        RoleReport {
            role: name.clone(),
            leader: leader.map(|holder| holder.node.clone()),
            token: record.map_or(Token(0), |record| record.token),
            since: fallen.max(paused_at),
            state,
            reason,
            last_beat_ms_ago: leader.and(pulse).map(|pulse| millis(pulse.ago)),
            address: leader.and_then(|holder| self.nodes.get(&holder.node)?.address.clone()),
            candidates: next.filter(|node| leader.is_none_or(|holder| holder.node != *node)).collect(),
            paused: control.pause,
            pinned: control.pin.map(|pin| pin.node),
            transfer: control.request.and_then(|request| request.to),
        }
    }

    fn node_reports(&self, pulses: &Pulses) -> Vec<NodeReport> {
        let mut led: BTreeMap<SessionId, Vec<Name>> = BTreeMap::new();
        for (name, role) in self.roles.iter().filter(|(name, _)| !is_internal(name)) {
            if let Some(holder) = &role.holder {
                led.entry(holder.session).or_default().push(name.clone());
            }
        }
        let report = |(name, node): (&Name, &Node)| {
            let pulse = pulses.get(&node.session);
            let state = pulse.map_or(NodeState::Expelled, |pulse| pulse.state);
            let roles = led.remove(&node.session).filter(|_| !state.is_over());
            NodeReport {
                node: name.clone(),
                session: node.session,
                state,
                roles: roles.unwrap_or_default(),
                candidacies: shown(&node.candidacies),
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

fn shown(candidacies: &BTreeMap<Name, i32>) -> BTreeMap<Name, i32> {
    candidacies
        .iter()
        .filter(|(role, _)| !is_internal(role))
        .map(|(role, rank)| (role.clone(), *rank))
        .collect()
}

/// Why a role is as it is, and since when. A leader that died wrote neither: its last beat has to do.
fn fallen(record: Option<&Role>, led: bool, pulse: Option<Pulse>) -> (Option<Reason>, Option<Wall>) {
    let Some(record) = record else { return (None, None) };
    if led || record.holder.is_none() {
        return (Some(record.reason), Some(record.since));
    }
    match pulse {
        Some(pulse) if pulse.state == NodeState::Closed => (Some(Reason::Shutdown), Some(pulse.at)),
        pulse => (Some(Reason::Expelled), pulse.map(|pulse| pulse.at)),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
