//! Leader-only schedules that survive fail-over: cron and intervals, and a ledger of ticks in the store.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! use std::time::Duration;
//! use tenure::schedule::{Schedule, StopPolicy, Task, TaskSettings};
//!
//! let nightly = TaskSettings {
//!     zone: "Europe/Vienna".to_owned(),
//!     timeout: Some(Duration::from_secs(600)),
//!     rerun: true,
//!     ..TaskSettings::cron("nightly-report", "30 2 * * *")?
//! };
//! let often = TaskSettings { on_stop: StopPolicy::Cancel, ..TaskSettings::every("poll", Duration::from_millis(200))? };
//! let schedule = Schedule::new()
//!     .task(Task::new(nightly, |run| async move {
//!         println!("report for {:?}, under token {}", run.tick(), run.token());
//!         Ok::<(), std::io::Error>(())
//!     })?)?
//!     .task(Task::new(often, |_| async { Ok::<(), std::io::Error>(()) })?)?;
//!
//! let node = tenure::Node::builder("memory:schedule").name("web-1").start().await?;
//! let leading = schedule.lead(node.candidate("scheduler"));
//! # let stop = async { tokio::time::sleep(Duration::from_millis(500)).await; node.stop().await; Ok(()) };
//! # tokio::try_join!(leading, stop)?;
//! # let poll = tenure::Name::new("poll")?;
//! assert!(schedule.counters().of(&poll).unwrap().runs() > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! **What is promised.** Whatever crashes, freezes or fails over: each tick is *started at most once* on a store of class A
//! or B (class C can lose the entry of a start: let the resource refuse a [`RunContext::id`] that it has seen); a tick that was not
//! started is caught up, as far as the task's `catch-up` says, or recorded as missed; a run whose leader died midway is
//! recorded as interrupted and, with `rerun`, run again under the next token. Leadership is checked before every run: without
//! leadership, or without the store, nothing starts. While nothing is due, nothing is read or written.
//!
//! Ticks are wall-clock times: a node whose clock is wrong runs them at the wrong time, but never twice.

mod counters;
mod ledger;
mod plan;
mod recurrence;
mod run;
mod scheduler;
mod settings;
mod task;
mod task_state;

pub use counters::{TaskCounters, TaskCounts};
pub use recurrence::Recurrence;
pub use settings::{OverlapPolicy, StopPolicy, TaskPlacement, TaskSettings};
pub use task::{RunContext, RunFailure, RunSuccess, Task, TaskRunner};

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;

use crate::node::CandidateBuilder;
use crate::work::{RestartPolicy, WorkError, WorkMode, Worker, WorkerContext, WorkerGroup};
use crate::{BadName, Error, Name, Node};
use scheduler::Scheduler;

/// Why a task is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum TaskError {
    /// Its name is invalid.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The expression cannot be read.
    #[error("cron = {text:?} cannot be read: {why}; write it like \"30 2 * * mon-fri\" or \"@hourly\"")]
    Cron {
        /// The expression.
        text: String,
        /// The reason.
        why: String,
    },
    /// The time zone is unknown.
    #[error("zone = {0:?} is no time zone; write it like \"Europe/Vienna\" or \"UTC\"")]
    Zone(String),
    /// The interval is too short or too long.
    #[error("every = {0:?} is not possible: it must be between 100ms and a year")]
    Every(Duration),
    /// Two keys of which there must be one.
    #[error("task {task} needs exactly one of {keys}")]
    OneOf { task: Name, keys: &'static str },
    /// The ledger would be too long, or none.
    #[error("history = {0} is not possible: it must be between 1 and 200")]
    History(u32),
    /// Two tasks of one name.
    #[error("there are two tasks named {0}; give one of them another name")]
    Twice(Name),
}

/// Tasks that belong together. Clones share them.
#[derive(Debug, Clone)]
#[must_use = "a schedule runs with `lead(…)`"]
pub struct Schedule {
    tasks: watch::Sender<Tasks>,
    counters: TaskCounters,
}

/// The current tasks of a schedule, by name.
type Tasks = BTreeMap<Name, Arc<Task>>;

impl Default for Schedule {
    fn default() -> Self {
        Self::counting(TaskCounters::default())
    }
}

impl Schedule {
    /// A schedule without tasks: add some.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with counters that it shares with other schedules.
    pub fn counting(counters: TaskCounters) -> Self {
        Self { tasks: watch::Sender::new(Tasks::new()), counters }
    }

    /// Adds a task.
    ///
    /// # Errors
    /// If there is one of that name.
    pub fn task(self, task: Task) -> Result<Self, TaskError> {
        let mut added = Ok(());
        self.tasks.send_modify(|tasks| added = add(tasks, task, &self.counters));
        added.map(|()| self)
    }

    /// Takes these tasks instead of those it has, at once, also while they run: runs that go on end as they were begun,
    /// tasks that are gone begin no more, and a task whose time has changed counts its ticks from now.
    ///
    /// # Errors
    /// If there are two of one name; then nothing changes.
    pub fn replace(&self, tasks: impl IntoIterator<Item = Task>) -> Result<(), TaskError> {
        let mut new = Tasks::new();
        tasks.into_iter().try_for_each(|task| add(&mut new, task, &self.counters))?;
        self.tasks.send_replace(new);
        Ok(())
    }

    /// Campaigns, runs the leader's tasks while leading, gives up cleanly and campaigns again, until the node stops.
    pub async fn lead(&self, candidate: CandidateBuilder) -> Result<(), Error> {
        WorkerGroup::new().worker(self.worker()).lead(candidate).await
    }

    /// The leader's tasks as a worker, for a [`WorkerGroup`] that has others too.
    pub fn worker(&self) -> Worker {
        let (tasks, counters) = (self.tasks.clone(), self.counters.clone());
        let work = move |context: WorkerContext| {
            let (tasks, counters) = (tasks.subscribe(), counters.clone());
            async move {
                let shadow = context.mode() == WorkMode::Shadow;
                let scheduler = Scheduler::of_leader(&context, tasks, counters, shadow);
                scheduler.run(context.stopping(), context.killed()).await;
                Ok::<(), WorkError>(())
            }
        };
        Worker::new("schedule", work).restart(RestartPolicy::Never).joins().shadows()
    }

    /// Runs the tasks of every node on this one, until the node stops. Each node has a ledger of its own.
    pub async fn run_on_every_node(&self, node: &Node) {
        let mut events = node.events();
        let stopped = async move { while events.next().await.is_some() {} };
        self.run_on_every_node_until(node, stopped, Duration::ZERO).await;
    }

    /// Runs the tasks of every node on this one, until told to stop; what goes on then has so long to finish.
    pub async fn run_on_every_node_until(
        &self,
        node: &Node,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) {
        let stop = stop.shared();
        tokio::select! {
            () = stop.clone() => return,
            // Where there is nothing to run, nothing is kept.
            () = self.filled(TaskPlacement::EveryNode) => {}
        }
        let kill = stop.clone().then(|()| tokio::time::sleep(drain));
        Scheduler::of_node(node, self.tasks.subscribe(), self.counters.clone()).run(stop, kill).await;
    }

    /// The counters of this process.
    #[must_use]
    pub fn counters(&self) -> &TaskCounters {
        &self.counters
    }

    /// Its tasks, by name.
    #[must_use]
    pub fn tasks(&self) -> Vec<Arc<Task>> {
        self.tasks.borrow().values().cloned().collect()
    }

    /// Waits until it has a task for that placement.
    pub async fn filled(&self, place: TaskPlacement) {
        let some = |tasks: &Tasks| tasks.values().any(|task| task.settings.place == place);
        // It cannot fail: the sender is here.
        let _ = self.tasks.subscribe().wait_for(some).await;
    }
}

fn add(tasks: &mut Tasks, task: Task, counters: &TaskCounters) -> Result<(), TaskError> {
    let name = task.settings.name.clone();
    if tasks.contains_key(&name) {
        return Err(TaskError::Twice(name));
    }
    counters.know(&name);
    tasks.insert(name, Arc::new(task));
    Ok(())
}
