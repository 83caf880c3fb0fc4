//! Scheduled tasks and their runs.

use serde::{Deserialize, Serialize};
use tenure::ledger::{RunRecord, RunState, TaskRecord, TaskTotals as LedgerTotals};
use utoipa::ToSchema;

use super::{OperatorNote, stamp};

/// A page of tasks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TasksPage {
    /// The tasks, by id.
    pub tasks: Vec<TaskStatus>,
    /// Pass it as `after` to get the next page; null on the last.
    pub next: Option<String>,
    /// Number of matches on all pages.
    pub total: usize,
}

/// A task; one for each node, if every node runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskStatus {
    /// The name of its ledger: the task's, or the task's and the node's.
    pub id: String,
    /// Its name.
    pub task: String,
    /// The role whose leader runs it; none: every node runs it.
    pub role: Option<String>,
    /// The node of this ledger, if every node runs the task.
    pub node: Option<String>,
    /// When it runs, as it was written.
    pub when: String,
    /// The time zone of the schedule.
    pub zone: String,
    /// waiting, running, paused; retired if it is in no schedule any more.
    pub state: String,
    /// The next tick.
    pub next: Option<String>,
    /// How many ticks are still to be run: caught up, queued, or interrupted and allowed another time.
    pub owed: usize,
    /// Who paused it, and why.
    pub paused: Option<OperatorNote>,
    /// Totals since the first tick.
    pub totals: TaskTotals,
    /// The last run, or the last range of missed or skipped ticks.
    pub last: Option<TaskRun>,
    /// The last runs and ranges, the newest last.
    pub runs: Vec<TaskRun>,
}

/// Totals of a task since its first tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskTotals {
    /// Runs started.
    pub runs: u64,
    /// Runs that failed or timed out.
    pub failures: u64,
    /// Runs that were cancelled or interrupted.
    pub interrupted: u64,
    /// Runs started later than they should have been.
    pub late: u64,
    /// Ticks missed and not caught up.
    pub missed: u64,
    /// Ticks skipped.
    pub skipped: u64,
    /// Total duration of all runs.
    pub took_ms: u64,
}

/// A run, or a range of ticks that were missed or skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskRun {
    /// The task.
    pub task: String,
    /// The tick of the run, or the first tick of the range.
    pub tick: String,
    /// The last tick of the range.
    pub to: Option<String>,
    /// How many ticks.
    pub count: u64,
    /// running, succeeded, failed, timed-out, cancelled, interrupted, missed, skipped.
    pub state: String,
    /// Token of the leader that ran it.
    pub token: u64,
    /// The node that ran it.
    pub node: String,
    /// When it was started.
    pub started: Option<String>,
    /// How long it took.
    pub took_ms: Option<u64>,
    /// Number of attempts.
    pub attempts: u32,
    /// The exit code, or the HTTP status.
    pub exit: Option<i32>,
    /// Why it did not succeed, or why the ticks were missed or skipped.
    pub why: String,
    /// The request of an operator that it answers.
    pub trigger: Option<String>,
}

/// A run was triggered.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskTriggered {
    /// The task.
    pub task: String,
    /// Id of the request; the run that answers it carries the same id.
    pub trigger: String,
    /// The outcome in words, for people.
    pub message: String,
}

impl TaskStatus {
    /// With at most this many of its last runs.
    #[must_use]
    pub fn of(record: &TaskRecord, runs: usize) -> Self {
        let text = |name: &Option<tenure::Name>| name.as_ref().map(ToString::to_string);
        let view = |run| TaskRun::of(record.task.as_str(), run);
        let skipped = record.runs.len().saturating_sub(runs);
        Self {
            id: id_of(record),
            task: record.task.to_string(),
            role: text(&record.role),
            node: text(&record.node),
            when: record.when.clone(),
            zone: record.zone.clone(),
            state: state_of(record).to_owned(),
            next: record.next.map(stamp),
            owed: record.owed.len(),
            paused: record.paused.as_ref().map(OperatorNote::from),
            totals: TaskTotals::from(record.totals),
            last: record.runs.last().map(view),
            runs: record.runs.iter().skip(skipped).map(view).collect(),
        }
    }
}

impl From<LedgerTotals> for TaskTotals {
    fn from(totals: LedgerTotals) -> Self {
        let LedgerTotals { runs, failures, interrupted, late, missed, skipped, took_ms, .. } = totals;
        Self { runs, failures, interrupted, late, missed, skipped, took_ms }
    }
}

impl TaskRun {
    fn of(task: &str, run: &RunRecord) -> Self {
        Self {
            task: task.to_owned(),
            tick: stamp(run.tick),
            to: run.to.map(stamp),
            count: run.count,
            state: run.state.to_string(),
            token: run.token.get(),
            node: run.node.to_string(),
            started: run.started.map(stamp),
            took_ms: run.took_ms,
            attempts: run.attempts,
            exit: run.exit,
            why: run.why.clone(),
            trigger: run.trigger.map(|id| id.to_string()),
        }
    }
}

fn id_of(record: &TaskRecord) -> String {
    match &record.node {
        Some(node) => format!("{}.{node}", record.task),
        None => record.task.to_string(),
    }
}

fn state_of(record: &TaskRecord) -> &'static str {
    let running = record.runs.iter().any(|run| run.state == RunState::Running);
    match (&record.paused, running, record.next) {
        (Some(_), ..) => "paused",
        (None, true, _) => "running",
        (None, false, None) => "retired",
        (None, false, Some(_)) => "waiting",
    }
}
