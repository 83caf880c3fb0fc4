//! The API model: one set of types for the answers of the agent, its client, `--format json` and the dashboard. Times are
//! RFC 3339 in UTC.

mod alerts;
mod tasks;

pub use alerts::{AlertDelivery, AlertInstance, AlertStatus, AlertsPage};
pub use tasks::{TaskRun, TaskStatus, TaskTotals, TaskTriggered, TasksPage};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure::history::{RoleHistory, TenureRecord};
use tenure::operator::{AuditEntry, NodeReport, NodeState, Order, RoleReport, RoleState};
use tenure::{Leader, Name, Timestamp, Token};
use utoipa::ToSchema;

use crate::cluster_view::Health;
use crate::time::Stamp;

/// The cluster, and this agent in it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterStatus {
    /// healthy, degraded or unhealthy.
    pub health: Health,
    /// What is wrong, the worst first.
    pub why: Vec<String>,
    /// The namespace.
    pub namespace: String,
    /// The store, without its secrets.
    pub store: String,
    /// This agent's node.
    pub node: String,
    /// This agent's version.
    pub version: &'static str,
    /// Lease duration: a leader that stops renewing is replaced after this time.
    pub ttl_ms: u64,
    /// How many roles there are, by state.
    pub roles: BTreeMap<String, usize>,
    /// How many nodes there are, by state.
    pub nodes: BTreeMap<String, usize>,
    /// Time since the agent last read the store; null before the first read.
    pub seen_ms_ago: Option<u64>,
    /// The error of the store since then.
    pub store_error: Option<String>,
    /// Why this client may not act; null if it may.
    pub may_not_act: Option<String>,
    /// Limits of this agent.
    pub limits: AgentLimits,
}

/// Limits of an agent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentLimits {
    /// Open files that the system allows it.
    pub open_files: u64,
    /// Open connections in all: `http.connections`, or fewer if the system allows too few open files.
    pub connections: usize,
    /// Open connections of one client.
    pub connections_per_client: usize,
    /// Open streams in all.
    pub streams: usize,
    /// Open streams of one client.
    pub streams_per_client: usize,
}

/// A page of roles.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RolesPage {
    /// The roles, by name.
    pub roles: Vec<RoleStatus>,
    /// Pass it as `after` to get the next page; null on the last.
    pub next: Option<String>,
    /// Number of matches on all pages.
    pub total: usize,
    /// Time since the agent last read the store; null before the first read.
    pub seen_ms_ago: Option<u64>,
    /// The error of the store since then.
    pub store_error: Option<String>,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleStatus {
    /// Its name.
    pub role: String,
    /// The leader.
    pub leader: Option<String>,
    /// The leader when the store was last reached, if the leader is unknown now.
    pub last_leader: Option<String>,
    /// Token of the current tenure, or of the last one; null if the role has had no leader yet.
    pub token: Option<u64>,
    /// Begin of the current tenure, or end of the last one.
    pub since: Option<String>,
    /// led, silent, vacant, paused; unknown if the store was not reached for longer than a lease.
    pub state: String,
    /// Why the current tenure began, or why the last one ended.
    pub reason: Option<String>,
    /// Time since the last beat of its leader.
    pub last_beat_ms_ago: Option<u64>,
    /// Lease duration of its leader.
    pub ttl_ms: Option<u64>,
    /// Time since the agent last read the store.
    pub seen_ms_ago: Option<u64>,
    /// Address of its leader.
    pub address: Option<String>,
    /// Candidates, in the order in which they would claim.
    pub candidates: Vec<String>,
    /// Who paused it, and why.
    pub paused: Option<OperatorNote>,
    /// The node it is pinned to.
    pub pinned: Option<String>,
    /// The node it is being transferred to.
    pub transfer: Option<String>,
}

/// Who did something, why and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorNote {
    /// Who.
    pub by: String,
    /// Why.
    pub why: String,
    /// When.
    pub at: String,
}

/// A page of nodes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NodesPage {
    /// The nodes, by name.
    pub nodes: Vec<NodeStatus>,
    /// Pass it as `after` to get the next page; null on the last.
    pub next: Option<String>,
    /// Number of matches on all pages.
    pub total: usize,
    /// Time since the agent last read the store; null before the first read.
    pub seen_ms_ago: Option<u64>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// The session of its process.
    pub session: String,
    /// live, silent, closed, expelled; unknown if the store was not reached for longer than its lease.
    pub state: String,
    /// Number of roles it leads.
    pub leads: usize,
    /// Roles it leads; at most 1000 of them.
    pub roles: Vec<String>,
    /// Roles it is a candidate for, with its priority; at most 1000 of them.
    pub candidacies: BTreeMap<String, i32>,
    /// Number of roles it is a candidate for.
    pub candidate_for: usize,
    /// Labels from its configuration.
    pub labels: BTreeMap<String, String>,
    /// The host it runs on, as its kernel names it.
    #[serde(default)]
    pub host: Option<String>,
    /// The version of Tenure in it.
    #[serde(default)]
    pub version: Option<String>,
    /// Its address, from its configuration.
    pub address: Option<String>,
    /// When it joined.
    pub joined: String,
    /// Time since its last beat.
    pub last_beat_ms_ago: Option<u64>,
    /// Its lease duration.
    pub ttl_ms: Option<u64>,
    /// Who drains it, and why.
    pub drained: Option<OperatorNote>,
}

/// Past tenures of some roles, and what operators did about them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryPage {
    /// Tenures, the newest of each role last.
    pub tenures: Vec<TenureEntry>,
    /// What operators did about these roles, the newest last.
    pub audit: Vec<AuditItem>,
    /// Pass it as `after` for the next page of roles; none on the last.
    pub next: Option<String>,
}

/// A tenure.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TenureEntry {
    /// The role.
    pub role: String,
    /// Its token.
    pub token: u64,
    /// The node that led.
    pub node: String,
    /// The session that led.
    pub session: String,
    /// When it began.
    pub began: String,
    /// When it ended; none while it goes on.
    pub ended: Option<String>,
    /// Who measured that: leader, last-beat (the leader is gone, and may have led for up to its lease longer), successor.
    pub measured: Option<String>,
    /// Why it ended.
    pub reason: Option<String>,
    /// Its length, up to now if it goes on.
    pub held_ms: u64,
    /// Time without a leader before it; null if unknown.
    pub gap_ms: Option<u64>,
}

/// What operators did.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// The newest last.
    pub entries: Vec<AuditItem>,
}

/// An action of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditItem {
    /// When.
    pub at: String,
    /// Who.
    pub by: String,
    /// What: transfer, step-down, pause, resume, forget, repair, pin, unpin, drain, undrain, eligible, ineligible, trigger-task,
    /// pause-task, resume-task, scheduled, cancelled, acknowledge, resolve, silence, unsilence.
    pub act: String,
    /// To which role, node or task.
    pub subject: String,
    /// The node that was named.
    pub node: Option<String>,
    /// Why.
    pub why: String,
}

/// Whether this node leads a role.
#[derive(Debug, Serialize, ToSchema)]
pub struct LeaderStatus {
    /// The role.
    pub role: String,
    /// Whether this node leads it now, and works: false in shadow mode.
    pub here: bool,
    /// Whether this node leads it in shadow mode: it runs no work.
    pub shadow: bool,
    /// The leader, as far as this agent knows.
    pub leader: Option<String>,
    /// Address of the leader.
    pub address: Option<String>,
    /// The token.
    pub token: Option<u64>,
    /// Remaining lease, if this node leads.
    pub remaining_ms: Option<u64>,
    /// Time since the agent last read the store; null before the first read.
    pub seen_ms_ago: Option<u64>,
    /// Why the leader is unknown, or why this node leads and does not work, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A probe.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProbeStatus {
    /// Whether the probe succeeded.
    pub ok: bool,
    /// If not, why.
    pub why: Option<String>,
}

/// The outcome of an action of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActionOutcome {
    /// The action: transfer, schedule-transfer, cancel-transfer, step-down, pause, resume, forget, pin, unpin, drain, undrain,
    /// eligible, ineligible, ready, acknowledge, resolve, silence, unsilence.
    pub action: String,
    /// The role, node, task or alert.
    pub subject: String,
    /// Whether it changed anything; false if it was so already.
    pub changed: bool,
    /// The node that the action names.
    pub node: Option<String>,
    /// The leader after the action, where that matters.
    pub leader: Option<String>,
    /// The token of that leader.
    pub token: Option<u64>,
    /// The address of that leader.
    pub address: Option<String>,
    /// The leader before a transfer, a step-down or a pause.
    pub former: Option<String>,
    /// How long it took, as the command line measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The outcome in words, for people.
    pub message: String,
}

impl ActionOutcome {
    /// An action that changed something and names no node.
    pub fn new(action: &str, subject: &Name, message: impl Into<String>) -> Self {
        Self {
            action: action.to_owned(),
            subject: subject.to_string(),
            changed: true,
            node: None,
            leader: None,
            token: None,
            address: None,
            former: None,
            took_ms: None,
            message: message.into(),
        }
    }

    /// The action names this node.
    #[must_use]
    pub fn node(self, node: &Name) -> Self {
        Self { node: Some(node.to_string()), ..self }
    }

    /// The leader after the action, as the role shows it.
    #[must_use]
    pub fn led_as(self, role: &RoleReport) -> Self {
        let Some(node) = role.leader.clone() else { return self };
        self.leader(&Leader::new(node, role.token, role.address.clone()), None)
    }

    /// The leader after the action, and the one before.
    #[must_use]
    pub fn leader(self, leader: &Leader, former: Option<&Name>) -> Self {
        let Leader { node, token, address, .. } = leader;
        let former = former.map(ToString::to_string);
        Self {
            leader: Some(node.to_string()),
            token: Some(token.get()),
            address: address.clone(),
            former,
            ..self
        }
    }
}

fn texts(names: &[Name]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

pub(crate) fn stamp(wall: Timestamp) -> String {
    Stamp(wall).to_string()
}

impl From<&Order> for OperatorNote {
    fn from(order: &Order) -> Self {
        Self { by: order.by.clone(), why: order.why.clone(), at: stamp(order.at) }
    }
}

impl From<&RoleReport> for RoleStatus {
    fn from(report: &RoleReport) -> Self {
        let text = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
        Self {
            role: report.role.to_string(),
            leader: text(&report.leader),
            last_leader: text(&report.last_leader),
            token: (report.token != Token::new(0)).then_some(report.token.get()),
            since: report.since.map(stamp),
            state: report.state.to_string(),
            reason: report.reason.map(|reason| reason.to_string()),
            last_beat_ms_ago: report.last_beat_ms_ago,
            ttl_ms: report.ttl_ms,
            seen_ms_ago: None,
            address: report.address.clone(),
            candidates: texts(&report.candidates),
            paused: report.paused.as_ref().map(OperatorNote::from),
            pinned: text(&report.pinned),
            transfer: text(&report.transfer),
        }
    }
}

/// So many of a node's roles are named, if not fewer are asked for.
pub const NAMED: usize = 1000;

impl NodeStatus {
    /// With so many names of roles at most.
    #[must_use]
    pub fn naming(report: &NodeReport, named: usize) -> Self {
        Self {
            node: report.node.to_string(),
            session: report.session.to_string(),
            state: report.state.to_string(),
            leads: report.roles.len(),
            roles: report.roles.iter().take(named).map(ToString::to_string).collect(),
            candidacies: report
                .candidacies
                .iter()
                .take(named)
                .map(|(role, priority)| (role.to_string(), *priority))
                .collect(),
            candidate_for: report.candidacies.len(),
            labels: report.labels.clone(),
            host: report.host.clone(),
            version: report.version.clone(),
            address: report.address.clone(),
            joined: stamp(report.since),
            last_beat_ms_ago: report.last_beat_ms_ago,
            ttl_ms: report.ttl_ms,
            drained: report.drained.as_ref().map(OperatorNote::from),
        }
    }
}

impl TenureEntry {
    /// The tenures of a role, the newest last, with the time without a leader before each.
    #[must_use]
    pub fn of_role(role: &Name, history: &RoleHistory) -> Vec<Self> {
        let now = Stamp::now().0;
        let before = std::iter::once(None).chain(history.tenures.iter().map(Some));
        let entry = |(past, before): (&TenureRecord, Option<&TenureRecord>)| Self {
            role: role.to_string(),
            token: past.token.get(),
            node: past.node.to_string(),
            session: past.session.to_string(),
            began: stamp(past.began),
            ended: past.ended.map(stamp),
            measured: past.measured.map(|measured| measured.as_str().to_owned()),
            reason: past.reason.map(|reason| reason.to_string()),
            held_ms: millis_between(past.began, past.ended.unwrap_or(now)),
            gap_ms: before.and_then(|before| before.ended).map(|ended| millis_between(ended, past.began)),
        };
        history.tenures.iter().zip(before).map(entry).collect()
    }
}

/// The wall clocks of two nodes may disagree: less than nothing is nothing.
fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    to.as_micros().saturating_sub(from.as_micros()) / 1000
}

impl From<&AuditEntry> for AuditItem {
    fn from(entry: &AuditEntry) -> Self {
        let act = serde_json::to_value(entry.action).ok();
        Self {
            at: stamp(entry.at),
            by: entry.by.clone(),
            act: act.as_ref().and_then(|act| act.as_str()).unwrap_or_default().to_owned(),
            subject: entry.subject.to_string(),
            node: entry.node.as_ref().map(ToString::to_string),
            why: entry.why.clone(),
        }
    }
}

/// Conversion back to the library's types, for commands that query an agent instead of a store.
impl RoleStatus {
    /// As the library reports it.
    ///
    /// # Errors
    /// If it is not what an agent sends.
    pub fn report(&self) -> Result<RoleReport, String> {
        let name = |text: &String| Name::new(text).map_err(|error| error.to_string());
        let state = RoleState::ALL.into_iter().find(|state| state.to_string() == self.state);
        let reason = self.reason.clone().and_then(|reason| serde_json::from_value(reason.into()).ok());
        let token = Token::new(self.token.unwrap_or_default());
        let mut report = RoleReport::new(name(&self.role)?, token, state.unwrap_or(RoleState::Unknown));
        report.leader = self.leader.as_ref().map(name).transpose()?;
        report.last_leader = self.last_leader.as_ref().map(name).transpose()?;
        report.since = self.since.as_deref().and_then(wall);
        report.reason = reason;
        report.last_beat_ms_ago = self.last_beat_ms_ago;
        report.ttl_ms = self.ttl_ms;
        report.address = self.address.clone();
        report.candidates = self.candidates.iter().map(name).collect::<Result<_, _>>()?;
        report.paused = self.paused.as_ref().map(OperatorNote::order);
        report.pinned = self.pinned.as_ref().map(name).transpose()?;
        report.transfer = self.transfer.as_ref().map(name).transpose()?;
        Ok(report)
    }
}

impl TenureEntry {
    /// As the library tells it.
    ///
    /// # Errors
    /// If it is not what an agent sends.
    pub fn past(&self) -> Result<TenureRecord, String> {
        let node = Name::new(&self.node).map_err(|error| error.to_string())?;
        let session = self.session.parse().map_err(|_| "a session has an invalid id".to_owned())?;
        let began = wall(&self.began).unwrap_or_default();
        let mut record = TenureRecord::new(Token::new(self.token), node, session, began);
        record.ended = self.ended.as_deref().and_then(wall);
        record.measured =
            self.measured.clone().and_then(|measured| serde_json::from_value(measured.into()).ok());
        record.reason = self.reason.clone().and_then(|reason| serde_json::from_value(reason.into()).ok());
        Ok(record)
    }
}

impl OperatorNote {
    fn order(&self) -> Order {
        Order { by: self.by.clone(), why: self.why.clone(), at: wall(&self.at).unwrap_or_default() }
    }
}

impl NodeStatus {
    /// As the library reports it.
    ///
    /// # Errors
    /// If it is not what an agent sends.
    pub fn report(&self) -> Result<NodeReport, String> {
        let name = |text: &String| Name::new(text).map_err(|error| error.to_string());
        let state = NodeState::ALL.into_iter().find(|state| state.to_string() == self.state);
        let session = self.session.parse().map_err(|_| "a session has an invalid id".to_owned())?;
        let since = wall(&self.joined).unwrap_or_default();
        let mut report =
            NodeReport::new(name(&self.node)?, session, state.unwrap_or(NodeState::Unknown), since);
        report.roles = self.roles.iter().map(name).collect::<Result<_, _>>()?;
        let candidacies = self.candidacies.iter().map(|(role, priority)| Ok((name(role)?, *priority)));
        report.candidacies = candidacies.collect::<Result<_, String>>()?;
        report.labels = self.labels.clone();
        report.host = self.host.clone();
        report.version = self.version.clone();
        report.address = self.address.clone();
        report.last_beat_ms_ago = self.last_beat_ms_ago;
        report.ttl_ms = self.ttl_ms;
        report.drained = self.drained.as_ref().map(OperatorNote::order);
        Ok(report)
    }
}

fn wall(text: &str) -> Option<Timestamp> {
    let micros = text.parse::<jiff::Timestamp>().ok()?.as_microsecond();
    u64::try_from(micros).ok().map(Timestamp::from_micros)
}
