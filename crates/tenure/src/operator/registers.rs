//! The registers of a namespace, by kind, and what they say together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::record::{
    Cluster, EndReason, Holder, Node, NodeControl, Reason, Role, RoleControl, Session,
};
use tenure_core::{Epoch, Key, Kind, Record, Timestamp};

use super::liveness::{LivenessBySession, SessionLiveness};
use super::{ClusterSnapshot, NodeReport, NodeState, Operator, RoleReport, RoleState, is_internal};
use crate::origin::split_origin;
use crate::store::Entry;
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
    longest_lease: Option<Duration>,
    floor: Token,
}

impl Registers {
    /// All registers of a namespace; none if no node was ever there.
    pub(super) async fn read(operator: &Operator) -> Result<Option<Self>, Error> {
        let kinds = [Kind::Session, Kind::Node, Kind::Role, Kind::RoleControl, Kind::NodeControl];
        let Some((cluster, found)) = operator.read_kinds(&kinds).await? else { return Ok(None) };
        let Record::Cluster(Cluster { epoch, max_ttl, floor, .. }) = cluster.value.to_record(&Key::Cluster)
        else {
            return Ok(Some(Self { unreadable: vec![cluster.key.to_string()], ..Self::default() }));
        };
        let mut registers = Self { epoch, longest_lease: Some(max_ttl), floor, ..Self::default() };
        found.iter().for_each(|entry| registers.put(entry));
        Ok(Some(registers))
    }

    fn put(&mut self, entry: &Entry) {
        match (&entry.key, entry.value.to_record(&entry.key)) {
            (Key::Session(_, id), Record::Session(session)) => _ = self.sessions.insert(*id, session),
            (Key::Named(_, _, name), Record::Node(node)) => _ = self.nodes.insert(name.clone(), node),
            (Key::Named(_, _, name), Record::Role(role)) => _ = self.roles.insert(name.clone(), role),
            (Key::Named(_, _, name), Record::RoleControl(control)) => {
                self.controls.insert(name.clone(), control);
            }
            (Key::Named(_, _, name), Record::NodeControl(control)) => {
                self.node_controls.insert(name.clone(), control);
            }
            _ => self.unreadable.push(entry.key.to_string()),
        }
    }

    /// Takes in a newer record of a session that is known. False if it tells of more than a beat, or of a session that is not known:
    /// other registers may have changed with it.
    pub(super) fn refresh(&mut self, entry: &Entry) -> bool {
        let (Key::Session(epoch, id), Record::Session(session)) =
            (&entry.key, entry.value.to_record(&entry.key))
        else {
            return true;
        };
        let Some(known) = self.sessions.get_mut(id).filter(|_| *epoch == self.epoch) else { return false };
        if session.beat < known.beat {
            return true;
        }
        let telling = |session: &Session| (session.freed, session.node_writes, session.state);
        let same = telling(&session) == telling(known);
        *known = session;
        same
    }

    /// The sessions that a role or a node names.
    pub(super) fn named(&self) -> BTreeSet<SessionId> {
        let holders = self.roles.values().filter_map(|role| role.holder.as_ref());
        let nodes = self.nodes.values().map(|node| node.session);
        holders.map(|holder| holder.session).chain(nodes).collect()
    }

    /// All of it, for people.
    pub(super) fn report(&self, liveness: &LivenessBySession) -> ClusterSnapshot {
        let (all, nodes) = (self.role_reports(liveness), self.node_reports(liveness));
        let (internal, roles) = all.into_iter().partition(|report: &RoleReport| is_internal(&report.role));
        let (age, epoch, longest_lease) = (Duration::ZERO, Some(self.epoch), self.longest_lease);
        let (unreadable, floor) = (self.unreadable.clone(), self.floor);
        ClusterSnapshot { roles, internal, nodes, unreadable, age, epoch, floor, longest_lease }
    }

    fn role_reports(&self, liveness: &LivenessBySession) -> Vec<RoleReport> {
        let standing = self.standing(liveness);
        let ordered =
            self.controls.iter().filter(|(_, control)| control.pause.is_some() || control.pin.is_some());
        let names: BTreeSet<&Name> =
            self.roles.keys().chain(standing.keys().copied()).chain(ordered.map(|(name, _)| name)).collect();
        let forgotten = |name: &&Name| self.is_forgotten(name, liveness) && !standing.contains_key(*name);
        let names = names.into_iter().filter(|name| !forgotten(name));
        let none = Vec::new();
        let report = |name| self.role_report(name, standing.get(name).unwrap_or(&none), liveness);
        names.map(report).collect()
    }

    /// Whether an operator hid the role, and it has had no leader since.
    fn is_forgotten(&self, name: &Name, liveness: &LivenessBySession) -> bool {
        let Some(forgotten) = self.controls.get(name).and_then(|control| control.forgotten.as_ref()) else {
            return false;
        };
        let Some(role) = self.roles.get(name) else { return true };
        let live =
            |holder: &Holder| liveness.get(&holder.session).is_some_and(|status| !status.state.is_over());
        role.token <= forgotten.token && !role.holder.as_ref().is_some_and(live)
    }

    /// For each role the live nodes that may lead it, with their priorities.
    fn standing(&self, liveness: &LivenessBySession) -> BTreeMap<&Name, Vec<(&Name, i32)>> {
        let mut standing: BTreeMap<&Name, Vec<(&Name, i32)>> = BTreeMap::new();
        for (name, node) in &self.nodes {
            let live = liveness.get(&node.session).is_some_and(|status| status.state == NodeState::Live);
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

    fn role_report(
        &self,
        name: &Name,
        standing: &[(&Name, i32)],
        liveness: &LivenessBySession,
    ) -> RoleReport {
        let record = self.roles.get(name);
        let holder = record.and_then(|record| record.holder.as_ref());
        let status = holder.and_then(|holder| liveness.get(&holder.session)).copied();
        let control = self.controls.get(name).cloned().unwrap_or_default();
        let leader = holder.filter(|_| status.is_some_and(|status| !status.state.is_over()));
        let state = match (leader, status.map(|status| status.state)) {
            (Some(_), Some(NodeState::Live)) => RoleState::Led,
            (Some(_), _) => RoleState::Silent,
            (None, _) if control.pause.is_some() => RoleState::Paused,
            (None, _) => RoleState::Vacant,
        };
        let line = standing.iter().map(|(node, priority)| ((*node).clone(), *priority));
        let next = tenure_core::engine::claim_order(name, record, line).into_iter();
        let (reason, fallen) = fallen(record, leader.is_some(), status);
        let paused_at = control.pause.as_ref().filter(|_| state == RoleState::Paused).map(|order| order.at);
        let token = record.map_or(Token::new(0), |record| record.token);
        RoleReport {
            leader: leader.map(|holder| holder.node.clone()),
            since: fallen.max(paused_at),
            reason,
            last_beat_ms_ago: leader.and(status).map(|status| millis(status.ago)),
            ttl_ms: leader.and(status).map(|status| millis(status.ttl)),
            address: leader.and_then(|holder| self.nodes.get(&holder.node)?.address.clone()),
            candidates: next.filter(|node| leader.is_none_or(|holder| holder.node != *node)).collect(),
            paused: control.pause,
            pinned: control.pin.map(|pin| pin.node),
            transfer: control
                .request
                .filter(|request| record.is_none_or(|r| r.token <= request.token))
                .and_then(|r| r.to),
            ..RoleReport::new(name.clone(), token, state)
        }
    }

    fn node_reports(&self, liveness: &LivenessBySession) -> Vec<NodeReport> {
        let mut led: BTreeMap<SessionId, Vec<Name>> = BTreeMap::new();
        for (name, role) in self.roles.iter().filter(|(name, _)| !is_internal(name)) {
            if let Some(holder) = &role.holder {
                led.entry(holder.session).or_default().push(name.clone());
            }
        }
        let report = |(name, node): (&Name, &Node)| {
            let status = liveness.get(&node.session);
            let state = status.map_or(NodeState::Expelled, |status| status.state);
            let roles = led.remove(&node.session).filter(|_| !state.is_over());
            let (labels, host, version) = split_origin(&node.labels);
            NodeReport {
                roles: roles.unwrap_or_default(),
                candidacies: shown(&node.candidacies),
                labels,
                host,
                version,
                address: node.address.clone(),
                last_beat_ms_ago: status.map(|status| millis(status.ago)),
                ttl_ms: status.map(|status| millis(status.ttl)),
                drained: self.node_controls.get(name).and_then(|control| control.drain.clone()),
                ..NodeReport::new(name.clone(), node.session, state, node.since)
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
fn fallen(
    record: Option<&Role>,
    led: bool,
    status: Option<SessionLiveness>,
) -> (Option<Reason>, Option<Timestamp>) {
    let Some(record) = record else { return (None, None) };
    if led || record.holder.is_none() {
        return (Some(record.reason), Some(record.since));
    }
    match status {
        Some(status) if status.state == NodeState::Closed => {
            (Some(EndReason::Shutdown.into()), Some(status.at))
        }
        status => (Some(EndReason::Expelled.into()), status.map(|status| status.at)),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
