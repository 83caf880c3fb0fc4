//! Counters of this process, for metrics: what was run, failed, late, missed, and how long it took.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::Name;
use crate::ledger::RunState;

/// The counters of this process, by task. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TaskCounters {
    tasks: Arc<Mutex<BTreeMap<Name, TaskCounts>>>,
}

/// The counts of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TaskCounts {
    pub(super) runs: u64,
    pub(super) succeeded: u64,
    pub(super) failures: u64,
    pub(super) cancelled: u64,
    pub(super) late: u64,
    pub(super) missed: u64,
    pub(super) skipped: u64,
    pub(super) running: u64,
    pub(super) took: Duration,
}

impl TaskCounts {
    /// Runs started here.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Runs that succeeded.
    #[must_use]
    pub fn succeeded(&self) -> u64 {
        self.succeeded
    }

    /// Runs that failed or took too long.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Runs that were cancelled because the leader had to stop.
    #[must_use]
    pub fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// Runs started later than they should have been.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Ticks that this node found missed.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Ticks that this node skipped.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Runs that go on.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.running
    }

    /// How long all runs that ended took together.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl TaskCounters {
    /// The counts of a task, if it is in the schedule.
    #[must_use]
    pub fn of(&self, task: &Name) -> Option<TaskCounts> {
        self.lock().get(task).copied()
    }

    /// The counts of every task of the schedule, from the beginning.
    #[must_use]
    pub fn all(&self) -> BTreeMap<Name, TaskCounts> {
        self.lock().clone()
    }

    /// The number of tasks that have counts.
    #[must_use]
    pub fn known(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn know(&self, task: &Name) {
        self.lock().entry(task.clone()).or_default();
    }

    pub(super) fn started(&self, task: &Name, late: bool) {
        self.change(task, |counts| {
            counts.runs += 1;
            counts.running += 1;
            counts.late += u64::from(late);
        });
    }

    pub(super) fn ended(&self, task: &Name, state: RunState, took: Duration) {
        self.change(task, |counts| {
            counts.running = counts.running.saturating_sub(1);
            counts.took += took;
            match state {
                RunState::Succeeded => counts.succeeded += 1,
                RunState::Failed | RunState::TimedOut => counts.failures += 1,
                _ => counts.cancelled += 1,
            }
        });
    }

    pub(super) fn passed(&self, task: &Name, state: RunState, count: u64) {
        self.change(task, |counts| match state {
            RunState::Missed => counts.missed += count,
            _ => counts.skipped += count,
        });
    }

    fn change(&self, task: &Name, change: impl FnOnce(&mut TaskCounts)) {
        if let Some(counts) = self.lock().get_mut(task) {
            change(counts);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Name, TaskCounts>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
