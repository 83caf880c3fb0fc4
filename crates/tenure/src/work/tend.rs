//! One worker from its first start to its end, with its restarts, its signs of life and its health.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout};

use super::worker::{Body, Health};
use super::{Restart, Scope, WorkError, Worker};
use crate::driver::panic_text;

/// The longest pause between two starts of a worker.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How a worker ended the tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
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

impl fmt::Display for Failure {
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

/// What became of a worker. It is joined.
pub(super) struct Ended {
    pub(super) worker: String,
    pub(super) starts: u32,
    pub(super) how: Result<(), Failure>,
}

/// Stays with a worker until it is joined for good. `before` says when the worker before it is ready.
pub(super) async fn tend(worker: &Worker, scope: Scope, before: Option<watch::Receiver<bool>>) -> Ended {
    let mut nurse = Nurse { worker, scope, starts: 0, restarts: VecDeque::new() };
    let how = match nurse.turn(before).await {
        true => nurse.live().await,
        false => Ok(()),
    };
    // Whoever waits for it has waited long enough.
    nurse.scope.ready();
    Ended { worker: worker.name.clone(), starts: nurse.starts, how }
}

struct Nurse<'a> {
    worker: &'a Worker,
    scope: Scope,
    starts: u32,
    /// When it was started again, within the window.
    restarts: VecDeque<Instant>,
}

impl Nurse<'_> {
    /// Waits for the worker before it; false if there is no point in starting any more.
    async fn turn(&self, before: Option<watch::Receiver<bool>>) -> bool {
        let Some(mut before) = before else { return !self.scope.is_stopping() };
        tokio::select! {
            biased;
            () = self.scope.stopping() => false,
            _ = before.wait_for(|ready| *ready) => true,
        }
    }

    /// Life after life.
    async fn live(&mut self) -> Result<(), Failure> {
        loop {
            self.starts += 1;
            let outcome = self.one_life().await?;
            if self.scope.is_stopping() {
                return outcome.map_err(|_| Failure::Cancelled);
            }
            if self.worker.ready_within.is_some() && !*self.scope.readiness().borrow() {
                let why = outcome.err().unwrap_or_else(|| "it ended before it was ready".to_owned());
                return Err(Failure::NotStarted(why));
            }
            match (self.worker.restart, outcome) {
                (Restart::Always, Ok(())) => self.again("it ended too often".to_owned()).await?,
                (Restart::Always | Restart::OnFailure, Err(why)) => self.again(why).await?,
                (Restart::OnFailure | Restart::Never, Ok(())) => return Ok(()),
                (Restart::Never, Err(why)) => return Err(Failure::Died(why)),
            }
            if self.scope.is_stopping() {
                return Ok(());
            }
        }
    }

    /// From one start to its end: what it returned, or why it had to be ended.
    async fn one_life(&self) -> Result<Result<(), String>, Failure> {
        self.scope.born();
        let mut handle = self.spawn();
        let failure = tokio::select! {
            biased;
            joined = &mut handle => return outcome(joined),
            failure = self.watch_over() => failure,
            () = self.scope.killed() => Failure::Cancelled,
        };
        // Blocking work, and what knows how to stop by itself, can only be told and waited for.
        self.scope.give_up_on();
        if !self.worker.joins {
            handle.abort();
        }
        match handle.await {
            Ok(Ok(())) if failure == Failure::Cancelled && self.worker.joins => Ok(Ok(())),
            Err(error) if error.is_panic() => outcome(Err(error)),
            _ => Err(failure),
        }
    }

    fn spawn(&self) -> JoinHandle<Result<(), WorkError>> {
        let scope = self.scope.clone();
        // The first worker after one that never says that it is ready waits for its start only.
        if self.worker.ready_within.is_none() {
            self.scope.ready();
        }
        match &self.worker.body {
            Body::Async(work) => tokio::spawn(work(scope)),
            Body::Blocking(work) => {
                let work = work.clone();
                tokio::task::spawn_blocking(move || work(&scope))
            }
        }
    }

    /// Waits until there is a reason to end it.
    async fn watch_over(&self) -> Failure {
        let Worker { ready_within, hangs_after, health, .. } = self.worker;
        tokio::select! {
            failure = not_ready(&self.scope, *ready_within) => failure,
            failure = hung(&self.scope, *hangs_after) => failure,
            failure = sick(&self.scope, health.as_ref()) => failure,
        }
    }

    /// Waits before the next start, or gives up.
    async fn again(&mut self, why: String) -> Result<(), Failure> {
        let (most, window) = self.worker.limit;
        let now = Instant::now();
        while self.restarts.front().is_some_and(|at| now.duration_since(*at) > window) {
            self.restarts.pop_front();
        }
        let lately = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        if lately >= most {
            let text = format!("{why} (started again {lately} times within {window:?})");
            return Err(Failure::Died(text));
        }
        self.restarts.push_back(now);
        let pause = self.worker.backoff.saturating_mul(1 << lately.min(16)).min(LONGEST_PAUSE);
        tokio::select! {
            () = self.scope.stopping() => {}
            () = sleep(pause) => {}
        }
        Ok(())
    }
}

fn outcome(joined: Result<Result<(), WorkError>, JoinError>) -> Result<Result<(), String>, Failure> {
    match joined {
        Ok(outcome) => Ok(outcome.map_err(|error| error.to_string())),
        Err(error) if error.is_panic() => Err(Failure::Panicked(panic_text(&*error.into_panic()))),
        Err(error) => Err(Failure::Died(error.to_string())),
    }
}

async fn not_ready(scope: &Scope, limit: Option<Duration>) -> Failure {
    if let Some(limit) = limit {
        let mut ready = scope.readiness();
        if timeout(limit, ready.wait_for(|ready| *ready)).await.is_err() {
            return Failure::NotStarted(format!("it was not ready within {limit:?}"));
        }
    }
    std::future::pending().await
}

async fn hung(scope: &Scope, limit: Option<Duration>) -> Failure {
    let Some(limit) = limit else { return std::future::pending().await };
    scope.silent_for(limit).await;
    Failure::Hung(limit)
}

async fn sick(scope: &Scope, health: Option<&Health>) -> Failure {
    let Some(health) = health else { return std::future::pending().await };
    // Before it is ready it is not expected to be well.
    let _ = scope.readiness().wait_for(|ready| *ready).await;
    let mut failures = 0;
    loop {
        sleep(health.every).await;
        let why = match timeout(health.within, (health.check)(scope.clone())).await {
            Ok(Ok(())) => {
                failures = 0;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", health.within),
        };
        failures += 1;
        if failures >= health.failures {
            return Failure::Unhealthy(why);
        }
    }
}
