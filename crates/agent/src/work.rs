//! What this agent does while it leads a role: commands under supervision, and a schedule.
//!
//! ```text
//!   elected ──▶ commands, in their order ──▶ the schedule ──▶ told to stop ──▶ drained ──▶ given up
//!                    │ restarted, asked how they are            │ replaced by a reload
//! ```

use std::sync::Arc;
use std::time::Duration;

use tenure::schedule::{Schedule, TaskPlacement};
use tenure::work::{HealthCheck, WorkError, WorkMode, Worker, WorkerContext, WorkerGroup};
use tenure::{Candidate, Node, Tenure};
use tokio::sync::watch;

use super::config::RoleConfig;
use super::config::work::{Check, HealthConfig, WorkConfig};
use crate::outbound::Outbound;
use crate::task::{CapturedOutput, call, guard_for, led, refusal, verdict};
use tenure_process::{Command, Ended};
use tenure_process::{Drains, Outcome, Signals, lease_deadline, supervise};

/// How often a command that is to become ready is asked whether it is.
const READY_POLL: Duration = Duration::from_millis(200);
/// A command that may take as long as its role has is killed by the part that counts that time.
const UNTIL_KILLED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a role's leader does beside its schedule. Another plan means: give up, and stand again with that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkPlan {
    mode: WorkMode,
    work: Vec<WorkConfig>,
    outbound: Arc<Outbound>,
}

impl WorkPlan {
    pub(super) fn of(role: &RoleConfig, outbound: &Arc<Outbound>) -> Self {
        Self { mode: role.migration, work: role.work.clone(), outbound: outbound.clone() }
    }

    fn group(&self, schedule: &Schedule) -> WorkerGroup {
        let worker = |work: &WorkConfig| worker(work, &self.outbound);
        let commands = self.work.iter().fold(WorkerGroup::new(), |group, work| group.worker(worker(work)));
        commands.worker(schedule.worker()).mode(self.mode)
    }
}

/// Leads a role whenever elected, and does what is planned, until the plan is gone.
pub(super) struct RoleHolder {
    pub(super) node: Node,
    pub(super) candidate: Candidate,
    pub(super) plans: watch::Receiver<Arc<WorkPlan>>,
    pub(super) schedule: Schedule,
}

impl RoleHolder {
    pub(super) async fn hold(mut self) {
        loop {
            let plan = self.plans.borrow_and_update().clone();
            let elected = tokio::select! {
                biased;
                changed = self.plans.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                elected = self.candidate.elected() => elected,
            };
            let Some(tenure) = elected else { return };
            self.lead(&plan, tenure).await;
        }
    }

    /// One tenure.
    async fn lead(&mut self, plan: &WorkPlan, tenure: Tenure) {
        // With nothing to do it is led for those who ask who leads, at no cost.
        if plan.work.is_empty() {
            tenure.set_idle(true);
            tokio::select! {
                biased;
                _ = tenure.stop_requested() => return,
                _ = self.plans.changed() => return,
                () = self.schedule.filled(TaskPlacement::Leader) => {}
            }
            tenure.set_idle(false);
        }
        let group = plan.group(&self.schedule);
        let mut run = std::pin::pin!(group.run(&self.node, tenure));
        tokio::select! {
            biased;
            _ = &mut run => return,
            _ = self.plans.changed() => self.candidate.resign(),
        }
        // Drained, as for any other reason.
        run.await;
    }
}

/// A command as a worker.
fn worker(work: &WorkConfig, outbound: &Arc<Outbound>) -> Worker {
    let (config, ready) =
        (Arc::new(work.clone()), work.health.clone().filter(|_| work.ready_within.is_some()));
    let ready = ready.map(|health| (health, outbound.clone()));
    let mut worker = Worker::new(work.name.as_str(), move |scope| run(scope, config.clone(), ready.clone()))
        .restart(work.restart)
        .backoff(work.backoff)
        .limit(work.limit.0, work.limit.1)
        .joins();
    if let Some(within) = work.ready_within {
        worker = worker.ready_timeout(within);
    }
    if let Some(health) = &work.health {
        let (name, asked, outbound) = (work.name.to_string(), health.clone(), outbound.clone());
        let check = move |scope| ask(scope, name.clone(), asked.check.clone(), outbound.clone());
        worker = worker
            .health(HealthCheck::every(health.every, check).within(health.within).failures(health.failures));
    }
    worker
}

/// One life of a command: it is over when the last of its processes is reaped.
async fn run(
    scope: WorkerContext,
    work: Arc<WorkConfig>,
    ready: Option<(HealthConfig, Arc<Outbound>)>,
) -> Result<(), WorkError> {
    let (stop, kill) = (scope.clone(), scope.clone());
    let mut signals =
        Signals::when_and_when(async move { stop.stopping().await }, async move { kill.killed().await });
    let supervised = under_lease(&scope, work.name.as_str(), &work.command, &mut signals, work.drain);
    let ready = async {
        if let Some((health, outbound)) = ready {
            until_ready(&scope, work.name.as_str(), &health, &outbound).await;
        }
        std::future::pending::<()>().await
    };
    let (ended, output) = tokio::select! {
        ended = supervised => ended?,
        () = ready => return Ok(()),
    };
    if scope.is_stopping() && !ended.killed {
        return Ok(());
    }
    if ended.killed {
        return Err("it was killed".into());
    }
    match verdict(&ended) {
        Ok(_) => Ok(()),
        Err(failed) => Err(output.explain(failed.why).await.into()),
    }
}

/// Runs a command under the lease until nothing of it is left.
async fn under_lease(
    scope: &WorkerContext,
    name: &str,
    command: &[String],
    signals: &mut Signals,
    drain: Option<Duration>,
) -> Result<(Ended, CapturedOutput), WorkError> {
    let (node, lead) = (scope.node(), scope.lead());
    let (stderr, output) = CapturedOutput::start(format!("work {name}"))?;
    let mut guard = guard_for(node, Some(lead), None, stderr).await?;
    if !scope.check() {
        return Err("leadership was lost before it could start".into());
    }
    let (program, args) = command.split_first().ok_or("the command is empty")?;
    let mut env = led(node, Some(lead));
    env.push(("TENURE_WORK".into(), name.into()));
    let args = args.iter().map(Into::into).collect();
    let command = Command { program: program.into(), args, env, cwd: None };
    let child = guard.start(command, lease_deadline(lead)).await?;
    let outcome = supervise(child, lead, signals, drain.unwrap_or(UNTIL_KILLED), Drains::Elsewhere).await;
    guard.close().await;
    match outcome {
        Outcome::Ended(ended) | Outcome::Stopped(ended) => Ok((ended, output)),
        Outcome::Lost(why) => Err(why.into()),
    }
}

/// Asks until the answer is yes. How long that may take is counted elsewhere.
async fn until_ready(scope: &WorkerContext, name: &str, health: &HealthConfig, outbound: &Arc<Outbound>) {
    loop {
        let asked = ask(scope.clone(), name.to_owned(), health.check.clone(), outbound.clone());
        if let Ok(Ok(())) = tokio::time::timeout(health.within, asked).await {
            return scope.ready();
        }
        tokio::time::sleep(READY_POLL.min(health.every)).await;
    }
}

/// Whether a command is well.
async fn ask(
    scope: WorkerContext,
    name: String,
    check: Check,
    outbound: Arc<Outbound>,
) -> Result<(), WorkError> {
    match check {
        Check::Command(command) => {
            let mut never = Signals::when(std::future::pending());
            let (ended, _) = under_lease(&scope, &name, &command, &mut never, None).await?;
            verdict(&ended).map(drop).map_err(|failed| failed.why.into())
        }
        Check::Http(url) => {
            let answer = call(&outbound, &url, |client, url| client.get(url)).await;
            let status = answer.map_err(|failed| failed.why)?;
            if status.is_success() { Ok(()) } else { Err(refusal(status).into()) }
        }
    }
}
