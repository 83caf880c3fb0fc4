//! What the registers hold. JSON in every store, typed here.
//!
//! Unknown fields are ignored, so that a newer version may add some; a record that does not parse, or is out of
//! [bounds], is [`Record::Foreign`], which no node ever overwrites.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::{Epoch, Kind, Name, SessionId, Takeover, Timestamp, Token, bounds};

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
    /// `cluster`, written by nodes that speak this newer protocol. Nothing else in it is read.
    Newer(u32),
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
            Self::Newer(_) => Some(Kind::Cluster),
            Self::Foreign => None,
        }
    }
}

/// Says that the namespace exists, and how long the longest lease in it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cluster {
    /// Drawn when the register was created: another epoch is another life of the store.
    pub epoch: Epoch,
    /// No session here has a longer ttl.
    #[serde(serialize_with = "millis", deserialize_with = "bounds::lease")]
    pub max_ttl: Duration,
    /// Announced: to this it falls, unless a session turns up that needs more.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "some_millis",
        deserialize_with = "bounds::some_lease"
    )]
    pub falling: Option<Duration>,
    /// The protocol that every node here speaks. Every version reads this field, whatever else becomes of the record; a node
    /// that finds a newer protocol than [`PROTOCOL`] stays out.
    pub protocol: u32,
    /// Every token given here is above this one: those of former epochs were not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub floor: Token,
    /// It replaced another epoch: leases of that one may still be running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renewed: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(token: &Token) -> bool {
    *token == Token::new(0)
}

/// The protocol version that this engine speaks.
pub const PROTOCOL: u32 = 1;

/// A node's proof of life. Its ttl, grace and takeover are written at opening and never change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Session {
    /// The node that opened it.
    pub node: Name,
    /// Counts the beats, for people and for those who watch.
    #[serde(deserialize_with = "bounds::count")]
    pub beat: u64,
    /// Counts the resigned roles: a change means "read them again", hint or no hint.
    #[serde(deserialize_with = "bounds::count")]
    pub freed: u64,
    /// The roles resigned last, the latest last; at most [`MAX_FREED_LATELY`].
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "bounds::few")]
    pub freed_lately: Vec<Name>,
    /// Counts the writes of the node's own register: a change means "read it again", hint or no hint.
    #[serde(default, deserialize_with = "bounds::count")]
    pub node_writes: u64,
    /// True while the node may not claim the roles it campaigns for: it has not watched a store that can forget for long enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds_back: bool,
    /// How long a version of this record counts.
    #[serde(serialize_with = "millis", deserialize_with = "bounds::lease")]
    pub ttl: Duration,
    /// How long after this beat its owner means to send the next one; zero if it does not say. Only the moment at which others
    /// read follows from it.
    #[serde(
        default,
        skip_serializing_if = "Duration::is_zero",
        serialize_with = "millis",
        deserialize_with = "bounds::span"
    )]
    pub every: Duration,
    /// What a dropped connection means.
    pub takeover: Takeover,
    /// How long a dropped connection is forgiven, if it means anything.
    #[serde(serialize_with = "millis", deserialize_with = "bounds::span")]
    pub grace: Duration,
    /// Its liveness lock, if the store has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_lock: Option<LivenessLock>,
    /// Alive, or over for good.
    pub state: SessionState,
    /// When this beat was sent, by the owner's wall clock. For people only.
    pub beat_at: Timestamp,
}

/// So many resigned roles are named in a session; after more than that all its roles are read.
pub const MAX_FREED_LATELY: usize = 8;

/// Whether a session is over. Over is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// It may be valid.
    Live,
    /// Its owner gave it up.
    Closed,
    /// Another node proved it over.
    Expelled,
}

/// A liveness lock: a lock outside the registers that the owner of a session holds for as long as it lives, as named in the record at
/// opening. That it is free proves that the owner is gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LivenessLock {
    /// Which lock, as its store names it: for a file lock the device and inode, say.
    #[serde(deserialize_with = "bounds::id")]
    pub id: String,
    /// True if the lock is held until all the work has ended: in-process work, or a watchdog that holds it
    /// until the last child is reaped. Otherwise that it is free is only a hint.
    pub covers_work: bool,
    /// True if a connection holds it, whose end the server sees; false if a process does, whose end the kernel sees.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connection: bool,
}

/// Which process runs under a node name: claimed like a role, so that one live process has the name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The session of that process.
    pub session: SessionId,
    /// Labels that people gave the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where to reach it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "bounds::some_text")]
    pub address: Option<String>,
    /// The roles that it campaigns for, with its priority for each. There may be thousands, and copies share them.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub candidacies: Arc<BTreeMap<Name, i32>>,
    /// When the process joined, by its own wall clock.
    pub since: Timestamp,
}

fn is_empty(candidacies: &Arc<BTreeMap<Name, i32>>) -> bool {
    candidacies.is_empty()
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
    pub since: Timestamp,
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
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Holder {
    pub session: SessionId,
    pub node: Name,
}

/// Why a tenure began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StartReason {
    /// No node had led before.
    First,
    /// The former leader had resigned.
    Vacant,
    /// The former leader's session was over.
    Takeover,
    /// The leader found the role in its own name, without leading it, and claimed it anew.
    Reclaimed,
    /// An operator wrote the damaged register anew, with the leader that it named.
    Repaired,
}

impl StartReason {
    /// As records and people spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Vacant => "vacant",
            Self::Takeover => "takeover",
            Self::Reclaimed => "reclaimed",
            Self::Repaired => "repaired",
        }
    }
}

impl std::fmt::Display for StartReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EndReason {
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
    /// The node is no longer eligible, or has withdrawn.
    Ineligible,
    /// An operator drains the node.
    Drained,
    /// The lease could not be renewed in time.
    LeaseExpired,
    /// Another node proved the session over.
    Expelled,
    /// The session register is gone: the store forgot it.
    Forgotten,
    /// A twin of this process uses the same session.
    Cloned,
    /// The connection by which the store knew this process dropped.
    Disconnected,
    /// The guard lock, in the protocol of another system, could not be renewed in time, or another program holds it.
    GuardLost,
    /// The lease clock cannot be trusted.
    ClockFault,
    /// The other nodes speak a newer protocol than this one.
    NewerProtocol,
    /// The driver failed.
    Fault,
}

impl EndReason {
    /// As records and people spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
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
            Self::GuardLost => "guard-lost",
            Self::ClockFault => "clock-fault",
            Self::NewerProtocol => "newer-protocol",
            Self::Fault => "fault",
        }
    }
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why the register of a role was written last: a tenure began, or the last one ended. The two have no word in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the types say it")]
pub enum Reason {
    Start(StartReason),
    End(EndReason),
}

impl Reason {
    /// Why the tenure began, if the role is led.
    #[must_use]
    pub fn start(self) -> Option<StartReason> {
        match self {
            Self::Start(reason) => Some(reason),
            Self::End(_) => None,
        }
    }

    /// Why the last tenure ended, if the role is vacant.
    #[must_use]
    pub fn end(self) -> Option<EndReason> {
        match self {
            Self::Start(_) => None,
            Self::End(reason) => Some(reason),
        }
    }
}

impl From<StartReason> for Reason {
    fn from(reason: StartReason) -> Self {
        Self::Start(reason)
    }
}

impl From<EndReason> for Reason {
    fn from(reason: EndReason) -> Self {
        Self::End(reason)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start(reason) => reason.fmt(f),
            Self::End(reason) => reason.fmt(f),
        }
    }
}

/// Who asked for something, and why. For people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Order {
    #[serde(deserialize_with = "bounds::text")]
    pub by: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "bounds::text")]
    pub why: String,
    /// When, by the asker's wall clock.
    pub at: Timestamp,
}

/// What operators ask of a role. Absent when nothing is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct RoleControl {
    /// While set, no node leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Order>,
    /// While set, only this node leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// Something to be done once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// No node campaigns for the role, and an operator hid it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<Forgotten>,
}

/// A role that an operator took out of sight, until it is led again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forgotten {
    /// The token of its last tenure: under a later one it is in sight again.
    pub token: Token,
    /// Who asked, and why.
    #[serde(flatten)]
    pub order: Order,
}

/// Ties a role to a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub struct Pin {
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
    #[serde(serialize_with = "millis", deserialize_with = "bounds::span")]
    pub patience: Duration,
    /// Who asked, and why.
    #[serde(flatten)]
    pub order: Order,
    /// What the leader answered.
    pub answer: Answer,
}

impl Request {
    /// Whether it is an operator's transfer that made this node lead, or is about to.
    #[must_use]
    pub fn transferred_to(&self, node: &Name) -> bool {
        !self.preemption && self.answer == Answer::Accepted && self.to.as_ref() == Some(node)
    }
}

/// What became of a [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Nothing yet.
    Open,
    /// The leader is resigning because of it.
    Accepted,
    /// The target is unknown, not alive, or does not campaign for the role.
    NoTarget,
    /// The tenure is too young to be handed over for the sake of priority.
    TooYoung,
}

/// What operators ask of a node. Absent when nothing is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct NodeControl {
    /// While set, the node resigns its roles and claims none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Order>,
}

#[allow(clippy::ref_option, reason = "serde asks so")]
fn some_millis<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    span.map_or_else(|| Err(serde::ser::Error::custom("left out")), |span| millis(&span, to))
}

/// Durations are whole milliseconds in records.
fn millis<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_word_that_tells_a_beginning_from_an_end() {
        let spelled = |reason: Reason| serde_json::to_value(reason).unwrap();
        for (reason, word) in [
            (Reason::from(StartReason::First), "first"),
            (StartReason::Repaired.into(), "repaired"),
            (EndReason::LeaseExpired.into(), "lease-expired"),
            (EndReason::Shutdown.into(), "shutdown"),
        ] {
            assert_eq!((spelled(reason), reason.to_string().as_str()), (word.into(), word));
            assert_eq!(serde_json::from_value::<Reason>(word.into()).unwrap(), reason);
            assert_eq!(reason.start().is_some(), reason.end().is_none());
        }
        assert!(serde_json::from_value::<Reason>("holiday".into()).is_err());
    }
}
