//! One run of a task: its attempts, its timeout, and how it is stopped.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::ledger::{RunCause, RunEnd};
use super::task::{RunContext, RunFailure, RunSuccess, Task};
use crate::driver::panic_text;
use crate::ledger::RunState;
use crate::{Lead, Token};

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The reason recorded for a run that had to stop.
const HAD_TO_STOP: &str = "the leader had to stop";

/// The permission to run.
#[derive(Debug, Clone)]
pub(super) enum RunGate {
    /// Leadership; runs stop so long before its deadline.
    Lead(Lead, Duration),
    /// A task of every node: this life of the process, numbered like a tenure.
    Node(Token),
}

impl RunGate {
    /// Checked before every run.
    pub(super) fn check(&self) -> bool {
        match self {
            Self::Lead(lead, _) => lead.check(),
            Self::Node(_) => true,
        }
    }

    pub(super) fn token(&self) -> Token {
        match self {
            Self::Lead(lead, _) => lead.token(),
            Self::Node(life) => *life,
        }
    }

    pub(super) fn lead(&self) -> Option<&Lead> {
        match self {
            Self::Lead(lead, _) => Some(lead),
            Self::Node(_) => None,
        }
    }

    async fn deadline_near(&self) {
        match self {
            Self::Lead(lead, slack) => lead.deadline_near(*slack).await,
            Self::Node(_) => std::future::pending().await,
        }
    }
}

/// A run that ended.
pub(super) struct FinishedRun {
    pub(super) nth: usize,
    pub(super) cause: RunCause,
    pub(super) ending: RunEnd,
}

/// Runs a task until it has ended, whatever that takes. It has stopped when this returns.
pub(super) async fn run(nth: usize, task: Arc<Task>, context: RunContext, gate: RunGate) -> FinishedRun {
    let begun = Instant::now();
    let cause = context.cause;
    let mut tries = RunAttempts { attempts: 0, last: None };
    let (stopped, told) = {
        let mut work = pin!(tries.go(&task, context.clone()));
        let stopped = tokio::select! {
            biased;
            () = &mut work => None,
            () = context.stop.cancelled() => Some((RunState::Cancelled, HAD_TO_STOP.to_owned())),
            () = gate.deadline_near() => Some((RunState::Cancelled, "the lease ran out".to_owned())),
            limit = over(task.settings.timeout) => {
                Some((RunState::TimedOut, format!("it took longer than {}", humantime::format_duration(limit))))
            }
        };
        // Work that is told to stop may have ended before we hear of it ourselves.
        let told = context.stop.is_cancelled();
        context.stop.cancel();
        if stopped.is_some() && task.runner.joins() {
            work.await;
        }
        (stopped, told)
    };
    let failed_because_told = told && stopped.is_none() && matches!(tries.last, Some(Err(_)));
    let stopped = stopped.or(failed_because_told.then(|| (RunState::Cancelled, HAD_TO_STOP.to_owned())));
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (state, exit, why) = tries.result(stopped);
    FinishedRun { nth, cause, ending: RunEnd { state, took_ms, attempts: tries.attempts.max(1), exit, why } }
}

async fn over(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
    limit.unwrap_or_default()
}

struct RunAttempts {
    attempts: u32,
    last: Option<Result<RunSuccess, RunFailure>>,
}

impl RunAttempts {
    async fn go(&mut self, task: &Task, mut context: RunContext) {
        loop {
            self.attempts += 1;
            context.attempt = self.attempts;
            let attempt = AssertUnwindSafe(async { task.runner.run(context.clone()).await }).catch_unwind();
            let outcome = attempt.await.unwrap_or_else(|panic| {
                Err(RunFailure::from(format!("it panicked: {}", panic_text(&*panic))))
            });
            let again = outcome.as_ref().is_err_and(|failed| !failed.permanent)
                && self.attempts <= task.settings.retries
                && context.check();
            self.last = Some(outcome);
            if !again {
                return;
            }
            let pause =
                task.settings.backoff.saturating_mul(1 << (self.attempts - 1).min(16)).min(LONGEST_PAUSE);
            tokio::select! {
                () = sleep(pause) => {}
                () = context.stop.cancelled() => return,
            }
        }
    }

    fn result(&self, stopped: Option<(RunState, String)>) -> (RunState, Option<i32>, String) {
        let exit = match &self.last {
            Some(Ok(done)) => done.exit,
            Some(Err(failed)) => failed.exit,
            None => None,
        };
        match (stopped, &self.last) {
            (Some((state, why)), _) => (state, exit, why),
            (None, Some(Err(failed))) => (RunState::Failed, exit, failed.why.clone()),
            (None, _) => (RunState::Succeeded, exit, String::new()),
        }
    }
}
