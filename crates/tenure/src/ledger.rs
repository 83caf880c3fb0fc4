//! The ledger of schedules: one register for each task, written under the leader's token.
//!
//! A tick is *started at most once* (on class C: unless the store loses the entry): the write that moves [`TaskRecord::tick`] past it, or takes it out of
//! [`TaskRecord::owed`], is a compare-and-set, and only the node that made that write starts the run. What was not started is
//! in the ledger too, as missed or skipped, with the reason.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};
use tenure_core::record::Order;
use tenure_core::{Timestamp, bounds};

use crate::{Name, SessionId, Token};

/// What a `task` register holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskRecord {
    /// The form of this record.
    pub form: u32,
    /// The token of the last writer: the store itself refuses a former leader's write.
    pub token: Token,
    /// The task.
    pub task: Name,
    /// The role whose leader runs it; none: every node runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Name>,
    /// The node that this ledger belongs to, if every node runs the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// When it runs, as it was written.
    pub when: String,
    /// In which time zone.
    pub zone: String,
    /// Every tick up to this one is accounted for.
    #[serde(deserialize_with = "plausible")]
    pub tick: Timestamp,
    /// Ticks up to that one which are still to be run: caught up, queued, or interrupted and allowed another time.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub owed: BTreeSet<Timestamp>,
    /// The next tick, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// While set, ticks are skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Order>,
    /// A run that an operator asked for, until it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TaskTrigger>,
    /// Everything that ever happened, in numbers.
    #[serde(default)]
    pub totals: TaskTotals,
    /// The last runs, and what was passed over, the newest last.
    #[serde(default)]
    pub runs: Vec<RunRecord>,
}

/// A run that an operator asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskTrigger {
    /// Drawn by the asker, to recognise the run.
    pub id: SessionId,
    /// Who asked, and why.
    #[serde(flatten)]
    pub order: Order,
}

/// One run of a task; or a row of ticks that were passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// The tick that it is for; the first of them, if several were passed over.
    pub tick: Timestamp,
    /// The last of several ticks that were passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// How many ticks.
    #[serde(default = "one", skip_serializing_if = "is_one", deserialize_with = "bounds::count")]
    pub count: u64,
    /// Its state.
    pub state: RunState,
    /// The token of the tenure.
    pub token: Token,
    /// The node.
    pub node: Name,
    /// When it was started, by that node's wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// How often it was tried: retries within a run, and runs after an interruption.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The exit code, or the HTTP status, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Why it did not succeed, or why it was passed over.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The request of an operator that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<SessionId>,
}

/// The state of a run, or of ticks that were passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RunState {
    /// It goes on, or the node that ran it is gone and the next leader has not noticed yet.
    Running,
    /// It did what it should.
    Succeeded,
    /// It failed.
    Failed,
    /// It took too long and was stopped.
    TimedOut,
    /// It was stopped because its leader had to stop.
    Cancelled,
    /// Its leader was gone before it could write down how it went.
    Interrupted,
    /// The role had no leader, or none that could start it, when its time came.
    Missed,
    /// It was passed over on purpose.
    Skipped,
}

impl RunState {
    /// As records and people spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Missed => "missed",
            Self::Skipped => "skipped",
        }
    }

    /// Whether a run was started for it.
    #[must_use]
    pub fn was_started(self) -> bool {
        !matches!(self, Self::Missed | Self::Skipped)
    }
}

impl std::fmt::Display for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Everything that ever happened to a task, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TaskTotals {
    /// Runs started.
    #[serde(deserialize_with = "bounds::count")]
    pub runs: u64,
    /// Runs that failed or timed out.
    #[serde(deserialize_with = "bounds::count")]
    pub failures: u64,
    /// Runs that were cancelled or interrupted.
    #[serde(deserialize_with = "bounds::count")]
    pub interrupted: u64,
    /// Runs started later than they should have been.
    #[serde(deserialize_with = "bounds::count")]
    pub late: u64,
    /// Ticks missed and not caught up.
    #[serde(deserialize_with = "bounds::count")]
    pub missed: u64,
    /// Ticks skipped.
    #[serde(deserialize_with = "bounds::count")]
    pub skipped: u64,
    /// How long all runs took together, in milliseconds.
    #[serde(deserialize_with = "bounds::count")]
    pub took_ms: u64,
}

/// A tick that a schedule can have come to: one in centuries would keep a task from ever running again.
fn plausible<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let tick = Timestamp::deserialize(from)?;
    if tick.as_micros() > Token::IMPLAUSIBLE.get() {
        return Err(serde::de::Error::custom("its tick lies generations ahead"));
    }
    Ok(tick)
}

fn one() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
