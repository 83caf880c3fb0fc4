//! A task: its settings, and what it runs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tenure_core::hash::{START, fnv1a};
use tokio_util::sync::CancellationToken;

use super::ledger::RunCause;
use super::{Recurrence, TaskError, TaskSettings};
use crate::{Lead, Name, Node, Timestamp, Token};

/// The context of a run.
#[derive(Debug, Clone)]
pub struct RunContext {
    pub(super) task: Name,
    pub(super) cause: RunCause,
    pub(super) attempt: u32,
    pub(super) token: Token,
    pub(super) node: Node,
    pub(super) lead: Option<Lead>,
    pub(super) stop: CancellationToken,
}

impl RunContext {
    /// The task.
    #[must_use]
    pub fn task(&self) -> &Name {
        &self.task
    }

    /// The tick that this run is for, or when an operator asked for it.
    #[must_use]
    pub fn tick(&self) -> Timestamp {
        self.cause.tick()
    }

    /// One id for each tick, or for each time that an operator asked: the same if the tick is ever started again, by a retry, by
    /// `rerun`, or because the store lost the entry (class C). A resource that keeps the ids it has seen can refuse the second
    /// start; one for each node if the task runs on every node.
    #[must_use]
    pub fn id(&self) -> String {
        let of = match self.cause {
            RunCause::Tick(tick) => format!("{}@{}", self.task, tick.as_micros()),
            RunCause::Trigger(id, _) => format!("{}#{id}", self.task),
        };
        if self.lead.is_some() { of } else { format!("{of}.{}", self.node.name()) }
    }

    /// How often this run was tried, this time included.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The fencing token: let what you write carry it.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Proof of leadership; none if the task runs on every node.
    #[must_use]
    pub fn lead(&self) -> Option<&Lead> {
        self.lead.as_ref()
    }

    /// The node that runs it.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Whether this run may still act; see [`Lead::check`].
    #[must_use]
    pub fn check(&self) -> bool {
        !self.stop.is_cancelled() && self.lead.as_ref().is_none_or(Lead::check)
    }

    /// Waits until the run has to stop.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }
}

/// The result of a run that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunSuccess {
    /// The exit code or HTTP status, for the ledger.
    pub exit: Option<i32>,
}

impl RunSuccess {
    /// A success with an exit code or HTTP status.
    #[must_use]
    pub fn with_exit(exit: i32) -> Self {
        Self { exit: Some(exit) }
    }
}

/// The error of a run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunFailure {
    /// The reason, for the ledger.
    pub why: String,
    /// The exit code or HTTP status.
    pub exit: Option<i32>,
    /// Whether a retry cannot help.
    pub permanent: bool,
}

impl RunFailure {
    /// A failure that a retry cannot help.
    #[must_use]
    pub fn permanent(why: impl Into<String>) -> Self {
        Self { why: why.into(), exit: None, permanent: true }
    }

    /// The same, with an exit code or HTTP status.
    #[must_use]
    pub fn with_exit(self, exit: i32) -> Self {
        Self { exit: Some(exit), ..self }
    }

    /// The same; whether a retry cannot help.
    #[must_use]
    pub fn permanent_if(self, permanent: bool) -> Self {
        Self { permanent, ..self }
    }
}

impl<E: fmt::Display> From<E> for RunFailure {
    fn from(error: E) -> Self {
        Self { why: error.to_string(), ..Self::default() }
    }
}

/// The code of a task.
pub trait TaskRunner: Send + Sync + 'static {
    /// One attempt.
    fn run(&self, run: RunContext) -> BoxFuture<'static, Result<RunSuccess, RunFailure>>;

    /// Whether a run must be waited for when it has to stop: it hears of that by [`RunContext::stopping`]. Otherwise it
    /// is dropped.
    fn joins(&self) -> bool {
        false
    }
}

struct AsyncRunner<F>(F);

impl<F, Fut, E> TaskRunner for AsyncRunner<F>
where
    F: Fn(RunContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: fmt::Display,
{
    fn run(&self, run: RunContext) -> BoxFuture<'static, Result<RunSuccess, RunFailure>> {
        let work = (self.0)(run);
        async move { work.await.map(|()| RunSuccess::default()).map_err(RunFailure::from) }.boxed()
    }
}

struct BlockingRunner<F>(Arc<F>);

impl<F, E> TaskRunner for BlockingRunner<F>
where
    F: Fn(&RunContext) -> Result<(), E> + Send + Sync + 'static,
    E: fmt::Display,
{
    fn run(&self, run: RunContext) -> BoxFuture<'static, Result<RunSuccess, RunFailure>> {
        let work = self.0.clone();
        let done = move || work(&run).map(|()| RunSuccess::default()).map_err(RunFailure::from);
        async move { tokio::task::spawn_blocking(done).await.unwrap_or_else(|error| Err(error.into())) }
            .boxed()
    }

    fn joins(&self) -> bool {
        true
    }
}

/// A task of a schedule.
#[derive(Clone)]
pub struct Task {
    pub(super) settings: TaskSettings,
    pub(super) when: Recurrence,
    pub(super) runner: Arc<dyn TaskRunner>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.settings.name)
            .field("when", &self.when)
            .finish_non_exhaustive()
    }
}

impl Task {
    /// A task that runs a future. It is dropped when its time is over.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn new<F, Fut, E>(settings: TaskSettings, work: F) -> Result<Self, TaskError>
    where
        F: Fn(RunContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + 'static,
    {
        Self::with_runner(settings, Arc::new(AsyncRunner(work)))
    }

    /// A task that blocks its thread. It has to look at [`RunContext::check`]: it cannot be ended from outside, and the
    /// role is not given up before it has returned.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn blocking<F, E>(settings: TaskSettings, work: F) -> Result<Self, TaskError>
    where
        F: Fn(&RunContext) -> Result<(), E> + Send + Sync + 'static,
        E: fmt::Display + 'static,
    {
        Self::with_runner(settings, Arc::new(BlockingRunner(Arc::new(work))))
    }

    /// A task with a runner of your own.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn with_runner(settings: TaskSettings, runner: Arc<dyn TaskRunner>) -> Result<Self, TaskError> {
        settings.check()?;
        let when = settings.when()?;
        Ok(Self { settings, when, runner })
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &TaskSettings {
        &self.settings
    }

    /// When it runs.
    #[must_use]
    pub fn when(&self) -> &Recurrence {
        &self.when
    }

    /// How much later than its time a tick is started: the same on every node, different for each task and tick.
    pub(super) fn delay(&self, tick: Timestamp) -> u64 {
        let jitter = micros(self.settings.jitter);
        if jitter == 0 {
            return 0;
        }
        let bytes = self.settings.name.as_str().bytes().chain(tick.as_micros().to_le_bytes());
        (fnv1a(START, bytes) >> 11) % jitter
    }
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
