//! Everything that the registers say, put together for people.

use std::collections::BTreeMap;

use serde::Serialize;
use tenure_core::Wall;
use tenure_core::record::{Order, Reason};

use super::pulse;
use super::registers::Registers;
use crate::store::SharedStore;
use crate::{Error, Name, SessionId, Token};

/// A namespace as it was found.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Every role that anybody ever led, stands for, or that an operator gave orders about.
    pub roles: Vec<RoleReport>,
    /// Roles that serve Tenure itself: see [`is_internal`].
    pub internal: Vec<RoleReport>,
    /// Every node that is registered.
    pub nodes: Vec<NodeReport>,
    /// Registers that hold what this version cannot read; they are left out above.
    pub unreadable: Vec<String>,
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
    /// Why the tenure began, or why the last one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
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

/// Whether a role serves Tenure itself, such as the one whose leader tells people of alerts. Lists leave them out.
#[must_use]
pub fn is_internal(role: &Name) -> bool {
    role.as_str().starts_with("tenure.")
}

impl Snapshot {
    pub(super) async fn take(store: &SharedStore, namespace: &Name) -> Result<Self, Error> {
        let Some(registers) = Registers::read(store, namespace).await? else { return Ok(Self::default()) };
        let named = registers.named();
        let pulses = pulse::feel(store, namespace, registers.epoch, &registers.sessions, &named).await?;
        Ok(registers.report(&pulses))
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

impl NodeState {
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
        })
    }
}
