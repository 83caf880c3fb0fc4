//! What answers look like. Times are RFC 3339 in UTC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure::history::Past;
use tenure::operator::{Deed, NodeReport, NodeState, Order, RoleReport, RoleState};
use tenure::{Name, Token, Wall};
use utoipa::ToSchema;

use crate::agent::sight::Health;
use crate::output::time::Stamp;

/// The cluster, and this agent in it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterView {
    /// How it fares.
    pub health: Health,
    /// Why, the worst first.
    pub why: Vec<String>,
    /// The namespace.
    pub namespace: String,
    /// The store, without its secrets.
    pub store: String,
    /// This agent's node.
    pub node: String,
    /// This agent's version.
    pub version: &'static str,
    /// How long a leader that falls silent keeps its roles.
    pub ttl_ms: u64,
    /// How many roles there are, by state.
    pub roles: BTreeMap<String, usize>,
    /// How many nodes there are, by state.
    pub nodes: BTreeMap<String, usize>,
    /// How long ago the store was looked at; none before the first look.
    pub seen_ms_ago: Option<u64>,
    /// What the store says instead, since then.
    pub store_error: Option<String>,
}

/// Some roles.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RolesPage {
    /// The roles, by name.
    pub roles: Vec<RoleView>,
    /// Pass it as `after` for the next page; none on the last.
    pub next: Option<String>,
    /// How many match in all.
    pub total: usize,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleView {
    /// Its name.
    pub role: String,
    /// Who leads.
    pub leader: Option<String>,
    /// The token of the current tenure, or of the last one.
    pub token: u64,
    /// Since when it is as it is.
    pub since: Option<String>,
    /// led, silent, vacant, paused.
    pub state: String,
    /// Why the tenure began, or why the last one ended.
    pub reason: Option<String>,
    /// How long ago its leader beat.
    pub last_beat_ms_ago: Option<u64>,
    /// Where its leader is reached.
    pub address: Option<String>,
    /// Who would lead next, in order.
    pub candidates: Vec<String>,
    /// Who paused it, and why.
    pub paused: Option<OrderView>,
    /// The node it is pinned to.
    pub pinned: Option<String>,
    /// The node it is being handed to.
    pub transfer: Option<String>,
}

/// Who asked for something, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrderView {
    /// Who.
    pub by: String,
    /// Why.
    pub why: String,
    /// When.
    pub at: String,
}

/// Some nodes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NodesPage {
    /// The nodes, by name.
    pub nodes: Vec<NodeView>,
    /// Pass it as `after` for the next page; none on the last.
    pub next: Option<String>,
    /// How many match in all.
    pub total: usize,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub node: String,
    /// The session of its process.
    pub session: String,
    /// live, silent, closed, expelled.
    pub state: String,
    /// How many roles it leads.
    pub leads: usize,
    /// The first thousand of the roles it leads.
    pub roles: Vec<String>,
    /// The first thousand of the roles it stands for, with its priority for each.
    pub candidacies: BTreeMap<String, i32>,
    /// How many roles it stands for.
    pub stands_for: usize,
    /// What people said about it.
    pub labels: BTreeMap<String, String>,
    /// Where to reach it.
    pub address: Option<String>,
    /// When it joined.
    pub since: String,
    /// How long ago it beat.
    pub last_beat_ms_ago: Option<u64>,
    /// How long it may fall silent.
    pub ttl_ms: Option<u64>,
    /// Who drains it, and why.
    pub drained: Option<OrderView>,
}

/// Past tenures of some roles, and what operators did about them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryView {
    /// By role.
    pub roles: BTreeMap<String, Vec<PastView>>,
    /// What operators did about these roles, the newest last.
    pub deeds: Vec<DeedView>,
    /// Pass it as `after` for the next page of roles; none on the last.
    pub next: Option<String>,
}

/// A tenure.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PastView {
    /// Its token.
    pub token: u64,
    /// Who led.
    pub node: String,
    /// Under which session.
    pub session: String,
    /// When it began.
    pub began: String,
    /// When it ended; none while it goes on.
    pub ended: Option<String>,
    /// Why it ended.
    pub reason: Option<String>,
}

/// What operators did.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// The newest last.
    pub deeds: Vec<DeedView>,
}

/// Something that an operator did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeedView {
    /// When.
    pub at: String,
    /// Who.
    pub by: String,
    /// What: transfer, step-down, pause, resume, pin, unpin, drain, undrain, eligible, ineligible, trigger-task,
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
pub struct LeaderView {
    /// The role.
    pub role: String,
    /// Whether this node leads it at this very moment.
    pub here: bool,
    /// Who leads, as far as this agent has seen.
    pub leader: Option<String>,
    /// Where it is reached.
    pub address: Option<String>,
    /// The token.
    pub token: Option<u64>,
    /// How long this may be relied on, if it is here.
    pub remaining_ms: Option<u64>,
}

/// A probe.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProbeView {
    /// Whether all is well.
    pub ok: bool,
    /// If not, why.
    pub why: Option<String>,
}

/// What came of an action.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// What was done.
    pub done: String,
    /// Who leads now, if somebody does and it matters.
    pub leader: Option<String>,
    /// The token of that leader.
    pub token: Option<u64>,
    /// Where it is reached.
    pub address: Option<String>,
}

fn texts(names: &[Name]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

pub(super) fn stamp(wall: Wall) -> String {
    Stamp(wall).to_string()
}

impl From<&Order> for OrderView {
    fn from(order: &Order) -> Self {
        Self { by: order.by.clone(), why: order.why.clone(), at: stamp(order.at) }
    }
}

impl From<&RoleReport> for RoleView {
    fn from(report: &RoleReport) -> Self {
        let text = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
        Self {
            role: report.role.to_string(),
            leader: text(&report.leader),
            token: report.token.0,
            since: report.since.map(stamp),
            state: report.state.to_string(),
            reason: report.reason.map(|reason| reason.to_string()),
            last_beat_ms_ago: report.last_beat_ms_ago,
            address: report.address.clone(),
            candidates: texts(&report.candidates),
            paused: report.paused.as_ref().map(OrderView::from),
            pinned: text(&report.pinned),
            transfer: text(&report.transfer),
        }
    }
}

/// So many of a node's roles are named, if not fewer are asked for.
pub const NAMED: usize = 1000;

impl NodeView {
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
            stands_for: report.candidacies.len(),
            labels: report.labels.clone(),
            address: report.address.clone(),
            since: stamp(report.since),
            last_beat_ms_ago: report.last_beat_ms_ago,
            ttl_ms: report.ttl_ms,
            drained: report.drained.as_ref().map(OrderView::from),
        }
    }
}

impl From<&Past> for PastView {
    fn from(past: &Past) -> Self {
        Self {
            token: past.token.0,
            node: past.node.to_string(),
            session: past.session.to_string(),
            began: stamp(past.began),
            ended: past.ended.map(stamp),
            reason: past.reason.map(|reason| reason.to_string()),
        }
    }
}

impl From<&Deed> for DeedView {
    fn from(deed: &Deed) -> Self {
        let act = serde_json::to_value(deed.act).ok();
        Self {
            at: stamp(deed.at),
            by: deed.by.clone(),
            act: act.as_ref().and_then(|act| act.as_str()).unwrap_or_default().to_owned(),
            subject: deed.subject.to_string(),
            node: deed.node.as_ref().map(ToString::to_string),
            why: deed.why.clone(),
        }
    }
}

/// Back again, for commands that ask an agent what they would ask a store.
impl RoleView {
    /// As the library reports it.
    ///
    /// # Errors
    /// If it is not what an agent sends.
    pub fn report(&self) -> Result<RoleReport, String> {
        let name = |text: &String| Name::new(text).map_err(|error| error.to_string());
        let state = [RoleState::Led, RoleState::Silent, RoleState::Vacant, RoleState::Paused];
        let state =
            state.into_iter().find(|state| state.to_string() == self.state).unwrap_or(RoleState::Silent);
        let reason = self.reason.clone().and_then(|reason| serde_json::from_value(reason.into()).ok());
        Ok(RoleReport {
            role: name(&self.role)?,
            leader: self.leader.as_ref().map(name).transpose()?,
            token: Token(self.token),
            since: self.since.as_deref().and_then(wall),
            state,
            reason,
            last_beat_ms_ago: self.last_beat_ms_ago,
            address: self.address.clone(),
            candidates: self.candidates.iter().map(name).collect::<Result<_, _>>()?,
            paused: self.paused.as_ref().map(OrderView::order),
            pinned: self.pinned.as_ref().map(name).transpose()?,
            transfer: self.transfer.as_ref().map(name).transpose()?,
        })
    }
}

impl PastView {
    /// As the library tells it.
    ///
    /// # Errors
    /// If it is not what an agent sends.
    pub fn past(&self) -> Result<Past, String> {
        Ok(Past {
            token: Token(self.token),
            node: Name::new(&self.node).map_err(|error| error.to_string())?,
            session: self.session.parse().map_err(|_| "a session has an odd id".to_owned())?,
            began: wall(&self.began).unwrap_or_default(),
            ended: self.ended.as_deref().and_then(wall),
            reason: self.reason.clone().and_then(|reason| serde_json::from_value(reason.into()).ok()),
        })
    }
}

impl OrderView {
    fn order(&self) -> Order {
        Order { by: self.by.clone(), why: self.why.clone(), at: wall(&self.at).unwrap_or_default() }
    }
}

impl NodeView {
    /// As the library reports it.
    ///
    /// # Errors
    /// If it is not what an agent sends.
    pub fn report(&self) -> Result<NodeReport, String> {
        let name = |text: &String| Name::new(text).map_err(|error| error.to_string());
        let state = [NodeState::Live, NodeState::Silent, NodeState::Closed, NodeState::Expelled];
        let state =
            state.into_iter().find(|state| state.to_string() == self.state).unwrap_or(NodeState::Silent);
        Ok(NodeReport {
            node: name(&self.node)?,
            session: self.session.parse().map_err(|_| "a session has an odd id".to_owned())?,
            state,
            roles: self.roles.iter().map(name).collect::<Result<_, _>>()?,
            candidacies: self
                .candidacies
                .iter()
                .map(|(role, priority)| Ok((name(role)?, *priority)))
                .collect::<Result<_, String>>()?,
            labels: self.labels.clone(),
            address: self.address.clone(),
            since: wall(&self.since).unwrap_or_default(),
            last_beat_ms_ago: self.last_beat_ms_ago,
            ttl_ms: self.ttl_ms,
            drained: self.drained.as_ref().map(OrderView::order),
        })
    }
}

fn wall(text: &str) -> Option<Wall> {
    let micros = text.parse::<jiff::Timestamp>().ok()?.as_microsecond();
    u64::try_from(micros).ok().map(Wall)
}
