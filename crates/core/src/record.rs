//! What the registers hold. JSON in every store, typed here.
//!
//! Unknown fields are ignored, so that a newer version may add some; a record that does not parse at all is
//! [`Record::Foreign`], which nobody ever overwrites.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Epoch, Kind, Name, SessionId, Takeover, Token, Wall};

/// The content of a register.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Record {
    /// `cluster`
    Cluster(Cluster),
    /// `session/<id>`
    Session(Session),
    /// `node/<name>`
    Node(Node),
    /// `role/<name>`
    Role(Role),
    /// `control/role/<name>`
    RoleControl(RoleControl),
    /// `control/node/<name>`
    NodeControl(NodeControl),
    /// Something that this version cannot read, or that the engine has no business with (ledgers, history).
    Foreign,
}

impl Record {
    /// The token in it: the one field that stores know, so that guards and triggers can use it.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Role(role) => Some(role.token),
            _ => None,
        }
    }

    /// The kind of register that it belongs into; none for [`Record::Foreign`].
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Cluster(_) => Some(Kind::Cluster),
            Self::Session(_) => Some(Kind::Session),
            Self::Node(_) => Some(Kind::Node),
            Self::Role(_) => Some(Kind::Role),
            Self::RoleControl(_) => Some(Kind::RoleControl),
            Self::NodeControl(_) => Some(Kind::NodeControl),
            Self::Foreign => None,
        }
    }
}

/// Says that the namespace exists, and how long the longest lease in it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cluster {
    /// Which life of the store this is.
    pub epoch: Epoch,
    /// No session here has a longer ttl.
    #[serde(with = "millis")]
    pub max_ttl: Duration,
    /// The protocol that everybody here speaks.
    pub protocol: u32,
}

/// The protocol version that this engine speaks.
pub const PROTOCOL: u32 = 1;

/// A node's proof of life. Its ttl, grace and takeover are written at opening and never change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Session {
    /// The node that opened it.
    pub node: Name,
    /// Counts the beats, for people and for those who watch.
    pub beat: u64,
    /// Counts the roles given up: a change means "look at them again", hint or no hint.
    pub freed: u64,
    /// The roles given up last, the latest last; at most [`RECENTLY`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed_lately: Vec<Name>,
    /// Counts the writes of the node's own register: a change means "read it again", hint or no hint.
    #[serde(default)]
    pub card: u64,
    /// How long a version of this record counts.
    #[serde(with = "millis")]
    pub ttl: Duration,
    /// What a dropped connection means.
    pub takeover: Takeover,
    /// How long a dropped connection is forgiven, if it means anything.
    #[serde(with = "millis")]
    pub grace: Duration,
    /// Who outside the store can tell that it died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
    /// Alive, or over for good.
    pub state: SessionState,
    /// When this beat was sent, by the owner's wall clock. For people only.
    pub beat_at: Wall,
}

/// So many roles given up are named in a session; after more than that all its roles are looked at.
pub const RECENTLY: usize = 8;

/// Whether a session is over. Over is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// It may be valid.
    Live,
    /// Its owner gave it up.
    Closed,
    /// Somebody else proved it over.
    Expelled,
}

/// A witness outside the store, as named in the record at opening.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Witness {
    /// Which witness, as its store names it: for a file lock the device and inode, say.
    pub id: String,
    /// True if the witness is held until all the work has ended: in-process work, or a watchdog that holds it
    /// until the last child is reaped. Otherwise its word is only a hint.
    pub covers_work: bool,
    /// True if it is a connection, whose end the server sees; false if it is a process, whose end the kernel sees.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connection: bool,
}

/// Who runs under a node name: claimed like a role, so that one live process has the name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The session of that process.
    pub session: SessionId,
    /// What people said about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where to reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The roles that it stands for, with its priority for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub candidacies: BTreeMap<Name, i32>,
    /// When the process joined, by its own wall clock.
    pub since: Wall,
}

/// Who leads a role. Written only by claim and resign; never deleted, so that the token never goes back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Role {
    /// The token of the current tenure, or of the last one.
    pub token: Token,
    /// Who leads; none after a resignation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// When this was written, by the writer's wall clock.
    pub since: Wall,
    /// Why it was written.
    pub reason: Reason,
    /// The node that led before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Name>,
    /// The node that is asked to lead next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<Name>,
}

/// The session that leads, and the node that opened it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// Its session.
    pub session: SessionId,
    /// Its name.
    pub node: Name,
}

/// Why a tenure began or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Nobody had led before.
    First,
    /// The former leader had given the role up.
    Vacant,
    /// The former leader's session was over.
    Takeover,
    /// The leader found the role in its own name, without leading it, and claimed it anew.
    Reclaimed,
    /// The program asked for it.
    Resigned,
    /// The work was done.
    Finished,
    /// The work failed, died or would not start.
    WorkFailed,
    /// The process is stopping.
    Shutdown,
    /// An operator asked the leader to step down.
    StepDown,
    /// An operator, or a node of higher priority, asked for the role.
    Transfer,
    /// An operator paused the role.
    Paused,
    /// An operator pinned the role to another node.
    Pinned,
    /// The node is no longer eligible, or no longer stands.
    Ineligible,
    /// An operator drains the node.
    Drained,
    /// The lease could not be renewed in time.
    LeaseExpired,
    /// Somebody else proved the session over.
    Expelled,
    /// The session register is gone: the store forgot it.
    Forgotten,
    /// A twin of this process uses the same session.
    Cloned,
    /// The connection by which the store knew this process dropped.
    Disconnected,
    /// The lease clock cannot be trusted.
    ClockFault,
    /// The driver failed.
    Fault,
}

impl Reason {
    /// As records and people spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Vacant => "vacant",
            Self::Takeover => "takeover",
            Self::Reclaimed => "reclaimed",
            Self::Resigned => "resigned",
            Self::Finished => "finished",
            Self::WorkFailed => "work-failed",
            Self::Shutdown => "shutdown",
            Self::StepDown => "step-down",
            Self::Transfer => "transfer",
            Self::Paused => "paused",
            Self::Pinned => "pinned",
            Self::Ineligible => "ineligible",
            Self::Drained => "drained",
            Self::LeaseExpired => "lease-expired",
            Self::Expelled => "expelled",
            Self::Forgotten => "forgotten",
            Self::Cloned => "cloned",
            Self::Disconnected => "disconnected",
            Self::ClockFault => "clock-fault",
            Self::Fault => "fault",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who asked for something, and why. For people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Order {
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// When, by the asker's wall clock.
    pub at: Wall,
}

/// What operators ask of a role. Absent when nothing is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct RoleControl {
    /// While set, nobody leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Order>,
    /// While set, only this node leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// Something to be done once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
}

/// Ties a role to a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pin {
    /// The node.
    pub node: Name,
    /// Who asked, and why.
    #[serde(flatten)]
    pub order: Order,
}

/// Something asked of one tenure, once. It names the token it addresses, so that it cannot fell the next leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Drawn by the asker, to recognise the answer.
    pub id: SessionId,
    /// The tenure that it addresses.
    pub token: Token,
    /// The node that is to lead next; none for a plain step-down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Name>,
    /// True if a node of higher priority asks for itself: refused while the tenure is too young.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preemption: bool,
    /// How long the leader may wait for the target to be ready, counted from when the leader sees this.
    #[serde(with = "millis")]
    pub patience: Duration,
    /// Who asked, and why.
    #[serde(flatten)]
    pub order: Order,
    /// What the leader answered.
    pub answer: Answer,
}

/// What became of a [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Nothing yet.
    Open,
    /// The leader is giving up the role because of it.
    Accepted,
    /// The target is not there, not alive, or does not stand for the role.
    NoTarget,
    /// The tenure is too young to be handed over for the sake of priority.
    TooYoung,
}

/// What operators ask of a node. Absent when nothing is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct NodeControl {
    /// While set, the node gives up its roles and stands for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Order>,
}

/// Durations are whole milliseconds in records.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
