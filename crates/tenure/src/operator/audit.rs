//! The audit trail: who did what, to what, when and why. A bounded list in a register of its own.

use serde::{Deserialize, Serialize};
use tenure_core::{Key, Kind, Timestamp};

use super::Operator;
use super::update::Update;
use crate::clock::wall_now;
use crate::store::{Entry, Value};
use crate::{Error, Name};

/// The number of entries kept; the oldest go first.
const KEPT: usize = 200;
/// Words longer than this are cut, so that the register stays small.
const WORDS: usize = 300;

/// One action of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The time, by the operator's wall clock.
    pub at: Timestamp,
    /// The operator.
    pub by: String,
    /// The action.
    #[serde(rename = "act")]
    pub action: OperatorAction,
    /// The role, node or task.
    pub subject: Name,
    /// The node that is to lead, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// The reason given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The actions of operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OperatorAction {
    /// A role is handed to a node.
    Transfer,
    /// A leader is made to give a role up.
    StepDown,
    /// A role is to have no leader.
    Pause,
    /// A role may be led again.
    Resume,
    /// A role without candidates is hidden.
    Forget,
    /// A damaged register was repaired.
    Repair,
    /// A role is tied to a node.
    Pin,
    /// A role is not tied any more.
    Unpin,
    /// A node is to lead nothing.
    Drain,
    /// A node may lead again.
    Undrain,
    /// A node is to claim a role.
    Eligible,
    /// A node is not to claim a role.
    Ineligible,
    /// A task is to run at once.
    TriggerTask,
    /// The ticks of a task are to pass.
    PauseTask,
    /// A task may run again.
    ResumeTask,
    /// Something is to be done later.
    Scheduled,
    /// What was to be done later is not.
    Cancelled,
    /// An operator looks after an alert.
    Acknowledge,
    /// An alert is over, because a person says so.
    Resolve,
    /// An alert notifies no target for a while.
    Silence,
    /// An alert notifies again.
    Unsilence,
}

impl OperatorAction {
    /// Whether its subject is a task; otherwise it is a role or a node.
    #[must_use]
    pub fn is_of_task(self) -> bool {
        matches!(self, Self::TriggerTask | Self::PauseTask | Self::ResumeTask)
    }
}

impl Operator {
    /// The actions of operators, the newest last.
    pub async fn audit(&self) -> Result<Vec<AuditEntry>, Error> {
        let Some(epoch) = super::epoch(&self.store, &self.namespace).await? else { return Ok(Vec::new()) };
        let found = self.read_one(Key::Named(epoch, Kind::Audit, trail())).await?;
        Ok(found.and_then(|entry| entry.value.parse().ok()).unwrap_or_default())
    }

    /// Records an action before it is carried out, so that it is on record whatever becomes of it.
    pub async fn record_action(
        &self,
        action: OperatorAction,
        subject: &Name,
        node: Option<&Name>,
        why: &str,
    ) -> Result<(), Error> {
        let cut = |text: &str| text.chars().take(WORDS).collect::<String>();
        let (by, why) = (cut(&self.by), cut(why));
        let entry =
            AuditEntry { at: wall_now(), by, action, subject: subject.clone(), node: node.cloned(), why };
        let key = Key::Named(self.epoch_of(subject).await?, Kind::Audit, trail());
        let append = |found: Option<&Entry>| {
            // A token does not belong here; but the store does not let a token that is here be lost.
            let token = found.and_then(|found| found.value.token);
            let mut entries: Vec<AuditEntry> =
                found.and_then(|found| found.value.parse().ok()).unwrap_or_default();
            entries.push(entry.clone());
            let old = entries.len().saturating_sub(KEPT);
            entries.drain(..old);
            Update::Put(Some(Value::of(&entries, token)), ())
        };
        self.update(key, append).await
    }
}

fn trail() -> Name {
    Name::new("operators").expect("a fixed name is a name")
}
