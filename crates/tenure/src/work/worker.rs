//! A worker: a name, what it does, and what to do when it stops doing it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::WorkerContext;

/// The error of a worker.
pub type WorkError = Box<dyn std::error::Error + Send + Sync>;

type Check = dyn Fn(WorkerContext) -> BoxFuture<'static, Result<(), WorkError>> + Send + Sync;
type Routine = dyn Fn(&WorkerContext) -> Result<(), WorkError> + Send + Sync;

/// The code of a worker.
#[derive(Clone)]
pub(super) enum WorkerBody {
    Async(Arc<Check>),
    /// On a thread for blocking code: it cannot be dropped, only joined.
    Blocking(Arc<Routine>),
}

/// When a worker that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RestartPolicy {
    /// Whenever it ends.
    Always,
    /// When it fails.
    #[default]
    OnFailure,
    /// Never: if it fails, the tenure ends.
    Never,
}

/// A check from outside that a worker is well.
#[derive(Clone)]
pub struct HealthCheck {
    pub(super) every: Duration,
    pub(super) within: Duration,
    pub(super) failures: u32,
    pub(super) check: Arc<Check>,
}

impl HealthCheck {
    /// Asks `check` this often. The first failure, or a check that takes longer than `every`, means that the worker is
    /// not well; see [`HealthCheck::within`] and [`HealthCheck::failures`].
    pub fn every<F, Fut>(every: Duration, check: F) -> Self
    where
        F: Fn(WorkerContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
    {
        let check: Arc<Check> = Arc::new(move |context| check(context).boxed());
        Self { every, within: every, failures: 1, check }
    }

    /// How long a check may take.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// How many checks must fail in a row.
    #[must_use]
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures.max(1);
        self
    }
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("every", &self.every)
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

/// A named piece of work that runs while a role is led.
#[derive(Clone)]
#[must_use = "a worker belongs into a `Group`"]
pub struct Worker {
    pub(super) name: String,
    pub(super) body: WorkerBody,
    pub(super) restart: RestartPolicy,
    pub(super) backoff: Duration,
    pub(super) limit: (u32, Duration),
    pub(super) ready_within: Option<Duration>,
    pub(super) hangs_after: Option<Duration>,
    pub(super) health: Option<HealthCheck>,
    /// Runs in the shadow too, where it knows by itself not to do anything.
    pub(super) shadows: bool,
    /// Stops by itself when it is told that its time is over, and must be waited for.
    pub(super) joins: bool,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.name)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// An asynchronous worker. It is dropped when its drain time is over.
    pub fn new<F, Fut>(name: impl Into<String>, work: F) -> Self
    where
        F: Fn(WorkerContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
    {
        let body = WorkerBody::Async(Arc::new(move |context| work(context).boxed()));
        Self::with(name.into(), body, false)
    }

    /// A worker that blocks its thread. It cannot be ended from outside: it has to check [`WorkerContext::is_stopping`] and
    /// [`WorkerContext::check`], and the role is not given up before it has returned.
    pub fn blocking(
        name: impl Into<String>,
        work: impl Fn(&WorkerContext) -> Result<(), WorkError> + Send + Sync + 'static,
    ) -> Self {
        Self::with(name.into(), WorkerBody::Blocking(Arc::new(work)), true)
    }

    fn with(name: String, body: WorkerBody, joins: bool) -> Self {
        Self {
            name,
            body,
            restart: RestartPolicy::default(),
            backoff: Duration::from_millis(100),
            limit: (3, Duration::from_secs(60)),
            ready_within: None,
            hangs_after: None,
            health: None,
            shadows: false,
            joins,
        }
    }

    /// When it is started again; on failure by default.
    pub fn restart(mut self, restart: RestartPolicy) -> Self {
        self.restart = restart;
        self
    }

    /// How long to wait before the first restart; each further one within the window waits twice as long. 100 ms.
    pub fn backoff(mut self, backoff: Duration) -> Self {
        self.backoff = backoff;
        self
    }

    /// At most `restarts` restarts within `window`; one more ends the tenure. 3 within a minute by default.
    pub fn limit(mut self, restarts: u32, window: Duration) -> Self {
        self.limit = (restarts, window);
        self
    }

    /// The worker calls [`WorkerContext::ready`] within `limit` of its start, or it fails. The workers after it wait for that.
    pub fn ready_timeout(mut self, limit: Duration) -> Self {
        self.ready_within = Some(limit);
        self
    }

    /// The worker calls [`WorkerContext::heartbeat`] more often than this, or it hangs and fails.
    pub fn hang_timeout(mut self, limit: Duration) -> Self {
        self.hangs_after = Some(limit);
        self
    }

    /// A health check from outside.
    pub fn health(mut self, health: HealthCheck) -> Self {
        self.health = Some(health);
        self
    }

    /// Waits for the worker to end by itself when its time is over ([`WorkerContext::killed`]), because what it started outside
    /// this process has to be gone before the role is. Otherwise an asynchronous worker is dropped.
    pub fn joins(mut self) -> Self {
        self.joins = true;
        self
    }

    /// Runs in the shadow too, where it knows by itself not to do anything.
    #[cfg(feature = "schedule")]
    pub(crate) fn shadows(mut self) -> Self {
        self.shadows = true;
        self
    }
}
