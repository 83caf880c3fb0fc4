//! The audit trail: who did what, to what, when and why. A small ring in a register of its own.

use serde::{Deserialize, Serialize};
use tenure_core::{Key, Kind, Wall};

use super::ask::TRIES;
use super::{Operator, wall};
use crate::store::Value;
use crate::{Error, Name};

/// So many deeds are kept; the oldest go first.
const KEPT: usize = 200;
/// Words longer than this are cut, so that the register stays small.
const WORDS: usize = 300;

/// Something that an operator did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// When, by the asker's wall clock.
    pub at: Wall,
    /// Who.
    pub by: String,
    /// What.
    pub act: Act,
    /// To which role, node or task.
    pub subject: Name,
    /// The node that is to lead, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// A role is handed to a node.
    Transfer,
    /// A leader is made to give a role up.
    StepDown,
    /// Nobody is to lead a role.
    Pause,
    /// A role may be led again.
    Resume,
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
    /// Somebody looks after an alert.
    Acknowledge,
    /// An alert is over, because a person says so.
    Resolve,
    /// Nobody is told of an alert for a while.
    Silence,
    /// An alert is told of again.
    Unsilence,
}

impl Act {
    /// Whether it is done to a task; otherwise to a role or a node.
    #[must_use]
    pub fn is_of_task(self) -> bool {
        matches!(self, Self::TriggerTask | Self::PauseTask | Self::ResumeTask)
    }
}

impl Operator {
    /// What operators did, the newest last.
    pub async fn audit(&self) -> Result<Vec<Deed>, Error> {
        let Some(epoch) = super::epoch(&self.store, &self.namespace).await? else { return Ok(Vec::new()) };
        let found = self.read_one(Key::Named(epoch, Kind::Audit, trail())).await?;
        Ok(found.and_then(|entry| entry.value.parse().ok()).unwrap_or_default())
    }

    /// Writes a deed down, before it is done: what was asked for is on record whatever becomes of it.
    pub async fn note(&self, act: Act, subject: &Name, node: Option<&Name>, why: &str) -> Result<(), Error> {
        let cut = |text: &str| text.chars().take(WORDS).collect::<String>();
        let (by, why) = (cut(&self.by), cut(why));
        let deed = Deed { at: wall(), by, act, subject: subject.clone(), node: node.cloned(), why };
        let key = Key::Named(self.epoch_of(subject).await?, Kind::Audit, trail());
        for _ in 0..TRIES {
            let found = self.read_one(key.clone()).await?;
            let version = found.as_ref().map(|entry| entry.version);
            let mut deeds: Vec<Deed> = found.and_then(|entry| entry.value.parse().ok()).unwrap_or_default();
            deeds.push(deed.clone());
            let old = deeds.len().saturating_sub(KEPT);
            deeds.drain(..old);
            if self.put(key.clone(), version, Some(Value::of(&deeds, None))).await? {
                return Ok(());
            }
        }
        Err(Error::Contended(key.to_string()))
    }
}

fn trail() -> Name {
    Name::new("operators").expect("a fixed name is a name")
}
