//! Supervises one worker from its first start to its end: restarts, heartbeats and health checks.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout};

use super::worker::{HealthCheck, WorkerBody};
use super::{RestartPolicy, WorkError, Worker, WorkerContext};
use crate::driver::panic_text;
use crate::event::EventKind;

/// The longest pause between two starts of a worker.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How a worker failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerFailure {
    /// It was not ready in time, or ended before it was.
    NotStarted(String),
    /// It failed, and was not to be started again, or too often.
    Died(String),
    /// It panicked. That is never forgiven: what it left behind may be half done.
    Panicked(String),
    /// It gave no sign of life.
    Hung(Duration),
    /// Its health check failed.
    Unhealthy(String),
    /// It did not finish after it was told to stop: not in time, or not well. Only this is no failure of the tenure.
    Cancelled,
}

impl fmt::Display for WorkerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(why) => write!(f, "it did not start: {why}"),
            Self::Died(why) => write!(f, "it died: {why}"),
            Self::Panicked(why) => write!(f, "it panicked: {why}"),
            Self::Hung(limit) => write!(f, "it hangs: no sign of life for {limit:?}"),
            Self::Unhealthy(why) => write!(f, "its health check failed: {why}"),
            Self::Cancelled => f.write_str("it did not finish after it was told to stop"),
        }
    }
}

/// How a worker ended. It is joined.
pub(super) struct WorkerExit {
    pub(super) worker: String,
    pub(super) starts: u32,
    pub(super) how: Result<(), WorkerFailure>,
}

/// Stays with a worker until it is joined for good. `before` says when the worker before it is ready.
pub(super) async fn supervise(
    worker: &Worker,
    context: WorkerContext,
    before: Option<watch::Receiver<bool>>,
) -> WorkerExit {
    let mut supervisor = WorkerSupervisor { worker, context, starts: 0, restarts: VecDeque::new() };
    let how = match supervisor.wait_for_turn(before).await {
        true => supervisor.run().await,
        false => Ok(()),
    };
    // The workers after it have waited long enough.
    supervisor.context.ready();
    WorkerExit { worker: worker.name.clone(), starts: supervisor.starts, how }
}

struct WorkerSupervisor<'a> {
    worker: &'a Worker,
    context: WorkerContext,
    starts: u32,
    /// When it was started again, within the window.
    restarts: VecDeque<Instant>,
}

impl WorkerSupervisor<'_> {
    /// Waits for the worker before it; false if there is no point in starting any more.
    async fn wait_for_turn(&self, before: Option<watch::Receiver<bool>>) -> bool {
        let Some(mut before) = before else { return !self.context.is_stopping() };
        tokio::select! {
            biased;
            () = self.context.stopping() => false,
            _ = before.wait_for(|ready| *ready) => true,
        }
    }

    /// Life after life.
    async fn run(&mut self) -> Result<(), WorkerFailure> {
        loop {
            self.starts += 1;
            let outcome = self.run_once().await?;
            if self.context.is_stopping() {
                return outcome.map_err(|_| WorkerFailure::Cancelled);
            }
            if self.worker.ready_within.is_some() && !*self.context.readiness().borrow() {
                let why = outcome.err().unwrap_or_else(|| "it ended before it was ready".to_owned());
                return Err(WorkerFailure::NotStarted(why));
            }
            match (self.worker.restart, outcome) {
                (RestartPolicy::Always, Ok(())) => {
                    let pause = self.restart_pause("it ended too often")?;
                    self.wait(pause).await;
                }
                (RestartPolicy::Always | RestartPolicy::OnFailure, Err(why)) => {
                    let pause = self.restart_pause(&why)?;
                    self.publish_restart(why);
                    self.wait(pause).await;
                }
                (RestartPolicy::OnFailure | RestartPolicy::Never, Ok(())) => return Ok(()),
                (RestartPolicy::Never, Err(why)) => return Err(WorkerFailure::Died(why)),
            }
            if self.context.is_stopping() {
                return Ok(());
            }
        }
    }

    /// From one start to its end: what it returned, or why it had to be ended.
    async fn run_once(&self) -> Result<Result<(), String>, WorkerFailure> {
        self.context.reset_heartbeat();
        let mut handle = self.spawn();
        let failure = tokio::select! {
            biased;
            joined = &mut handle => return outcome(joined),
            failure = self.watch_over() => failure,
            () = self.context.killed() => WorkerFailure::Cancelled,
        };
        // Blocking work, and what knows how to stop by itself, can only be told and waited for.
        self.context.kill();
        if !self.worker.joins {
            handle.abort();
        }
        match handle.await {
            Ok(Ok(())) if failure == WorkerFailure::Cancelled && self.worker.joins => Ok(Ok(())),
            Err(error) if error.is_panic() => outcome(Err(error)),
            _ => Err(failure),
        }
    }

    fn spawn(&self) -> JoinHandle<Result<(), WorkError>> {
        let context = self.context.clone();
        // The first worker after one that never says that it is ready waits for its start only.
        if self.worker.ready_within.is_none() {
            self.context.ready();
        }
        match &self.worker.body {
            WorkerBody::Async(work) => tokio::spawn(work(context)),
            WorkerBody::Blocking(work) => {
                let work = work.clone();
                tokio::task::spawn_blocking(move || work(&context))
            }
        }
    }

    /// Waits until there is a reason to end it.
    async fn watch_over(&self) -> WorkerFailure {
        let Worker { ready_within, hangs_after, health, .. } = self.worker;
        tokio::select! {
            failure = not_ready(&self.context, *ready_within) => failure,
            failure = hung(&self.context, *hangs_after) => failure,
            failure = unhealthy(&self.context, health.as_ref()) => failure,
        }
    }

    /// How long to wait before the next start; an error if it was started too often.
    fn restart_pause(&mut self, why: &str) -> Result<Duration, WorkerFailure> {
        let (most, window) = self.worker.limit;
        let now = Instant::now();
        while self.restarts.front().is_some_and(|at| now.duration_since(*at) > window) {
            self.restarts.pop_front();
        }
        let lately = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        if lately >= most {
            let text = format!("{why} (started again {lately} times within {window:?})");
            return Err(WorkerFailure::Died(text));
        }
        self.restarts.push_back(now);
        Ok(self.worker.backoff.saturating_mul(1 << lately.min(16)).min(LONGEST_PAUSE))
    }

    async fn wait(&self, pause: Duration) {
        tokio::select! {
            () = self.context.stopping() => {}
            () = sleep(pause) => {}
        }
    }

    /// Told before the pause, which may be long.
    fn publish_restart(&self, why: String) {
        let (role, token) = (self.context.lead().role().clone(), self.context.token());
        let worker = self.worker.name.clone();
        self.context.node().publish_in_order(EventKind::WorkRestarted { role, token, worker, why });
    }
}

fn outcome(joined: Result<Result<(), WorkError>, JoinError>) -> Result<Result<(), String>, WorkerFailure> {
    match joined {
        Ok(outcome) => Ok(outcome.map_err(|error| error.to_string())),
        Err(error) if error.is_panic() => Err(WorkerFailure::Panicked(panic_text(&*error.into_panic()))),
        Err(error) => Err(WorkerFailure::Died(error.to_string())),
    }
}

async fn not_ready(context: &WorkerContext, limit: Option<Duration>) -> WorkerFailure {
    if let Some(limit) = limit {
        let mut ready = context.readiness();
        if timeout(limit, ready.wait_for(|ready| *ready)).await.is_err() {
            return WorkerFailure::NotStarted(format!("it was not ready within {limit:?}"));
        }
    }
    std::future::pending().await
}

async fn hung(context: &WorkerContext, limit: Option<Duration>) -> WorkerFailure {
    let Some(limit) = limit else { return std::future::pending().await };
    context.silent_for(limit).await;
    WorkerFailure::Hung(limit)
}

async fn unhealthy(context: &WorkerContext, health: Option<&HealthCheck>) -> WorkerFailure {
    let Some(health) = health else { return std::future::pending().await };
    // Before it is ready it is not expected to be well.
    let _ = context.readiness().wait_for(|ready| *ready).await;
    let mut failures = 0;
    loop {
        sleep(health.every).await;
        let why = match timeout(health.within, (health.check)(context.clone())).await {
            Ok(Ok(())) => {
                failures = 0;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", health.within),
        };
        failures += 1;
        if failures >= health.failures {
            return WorkerFailure::Unhealthy(why);
        }
    }
}
