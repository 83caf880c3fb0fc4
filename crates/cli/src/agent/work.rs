//! What this agent does while it leads a role: commands under supervision, and a schedule.
//!
//! ```text
//!   elected ──▶ commands, in their order ──▶ the schedule ──▶ told to stop ──▶ drained ──▶ given up
//!                    │ restarted, asked how they are            │ replaced by a reload
//! ```

use std::sync::Arc;
use std::time::Duration;

use tenure::schedule::{Place, Schedule};
use tenure::work::{Group, Health, Mode, Scope, WorkError, Worker};
use tenure::{Candidate, Node, Tenure};
use tokio::sync::watch;

use super::config::RoleConfig;
use super::config::work::{Check, HealthConfig, WorkConfig};
use crate::process::{Command, Ended};
use crate::run::{Drains, Outcome, Signals, lease_deadline, supervise};
use crate::task::{call, client, guard_for, led, verdict};

/// How often a command that is to become ready is asked whether it is.
const READY: Duration = Duration::from_millis(200);
/// A command that may take as long as its role has is killed by whoever counts that.
const UNTIL_KILLED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a role's leader does beside its schedule. Another plan means: give up, and stand again with that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    mode: Mode,
    work: Vec<WorkConfig>,
}

impl Plan {
    pub(super) fn of(role: &RoleConfig) -> Self {
        Self { mode: role.migration, work: role.work.clone() }
    }

    fn group(&self, schedule: &Schedule) -> Group {
        let commands = self.work.iter().fold(Group::new(), |group, work| group.worker(worker(work)));
        commands.worker(schedule.worker()).mode(self.mode)
    }
}

/// Leads a role whenever elected, and does what is planned, until the plan is gone.
pub(super) struct Holder {
    pub(super) node: Node,
    pub(super) candidate: Candidate,
    pub(super) plans: watch::Receiver<Arc<Plan>>,
    pub(super) schedule: Schedule,
}

impl Holder {
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
    async fn lead(&mut self, plan: &Plan, tenure: Tenure) {
        // With nothing to do it is led for those who ask who leads, at no cost.
        if plan.work.is_empty() {
            tokio::select! {
                biased;
                _ = tenure.ended() => return,
                _ = self.plans.changed() => return,
                () = self.schedule.filled(Place::Leader) => {}
            }
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
fn worker(work: &WorkConfig) -> Worker {
    let (config, ready) =
        (Arc::new(work.clone()), work.health.clone().filter(|_| work.ready_within.is_some()));
    let mut worker = Worker::new(work.name.as_str(), move |scope| run(scope, config.clone(), ready.clone()))
        .restart(work.restart)
        .backoff(work.backoff)
        .limit(work.limit.0, work.limit.1)
        .joins();
    if let Some(within) = work.ready_within {
        worker = worker.ready_within(within);
    }
    if let Some(health) = &work.health {
        let (name, asked) = (work.name.to_string(), health.clone());
        let check = move |scope| ask(scope, name.clone(), asked.check.clone());
        worker =
            worker.health(Health::every(health.every, check).within(health.within).failures(health.failures));
    }
    worker
}

/// One life of a command: it is over when the last of its processes is reaped.
async fn run(scope: Scope, work: Arc<WorkConfig>, ready: Option<HealthConfig>) -> Result<(), WorkError> {
    let (stop, kill) = (scope.clone(), scope.clone());
    let mut signals =
        Signals::when_and_when(async move { stop.stopping().await }, async move { kill.killed().await });
    let supervised = under_lease(&scope, work.name.as_str(), &work.command, &mut signals, work.drain);
    let ready = async {
        if let Some(health) = ready {
            until_ready(&scope, work.name.as_str(), &health).await;
        }
        std::future::pending::<()>().await
    };
    let ended = tokio::select! {
        ended = supervised => ended?,
        () = ready => return Ok(()),
    };
    if scope.is_stopping() && !ended.killed {
        return Ok(());
    }
    if ended.killed {
        return Err("it had to be killed".into());
    }
    verdict(&ended).map(drop).map_err(|failed| failed.why.into())
}

/// Runs a command under the lease until nothing of it is left.
async fn under_lease(
    scope: &Scope,
    name: &str,
    command: &[String],
    signals: &mut Signals,
    drain: Option<Duration>,
) -> Result<Ended, WorkError> {
    let (node, lead) = (scope.node(), scope.lead());
    let mut guard = guard_for(node, Some(lead), None).await?;
    if !scope.check() {
        return Err("leadership was lost before it could start".into());
    }
    let (program, args) = command.split_first().ok_or("there is no command")?;
    let mut env = led(node, Some(lead));
    env.push(("TENURE_WORK".into(), name.into()));
    let args = args.iter().map(Into::into).collect();
    let command = Command { program: program.into(), args, env, cwd: None };
    let child = guard.start(command, lease_deadline(lead)).await?;
    let outcome = supervise(child, lead, signals, drain.unwrap_or(UNTIL_KILLED), Drains::Elsewhere).await;
    guard.close().await;
    match outcome {
        Outcome::Ended(ended) | Outcome::Stopped(ended) => Ok(ended),
        Outcome::Lost(why) => Err(why.into()),
    }
}

/// Asks until the answer is yes. How long that may take is counted elsewhere.
async fn until_ready(scope: &Scope, name: &str, health: &HealthConfig) {
    loop {
        let asked = ask(scope.clone(), name.to_owned(), health.check.clone());
        if let Ok(Ok(())) = tokio::time::timeout(health.within, asked).await {
            return scope.ready();
        }
        tokio::time::sleep(READY.min(health.every)).await;
    }
}

/// Whether a command is well.
async fn ask(scope: Scope, name: String, check: Check) -> Result<(), WorkError> {
    match check {
        Check::Command(command) => {
            let mut never = Signals::when(std::future::pending());
            let ended = under_lease(&scope, &name, &command, &mut never, None).await?;
            verdict(&ended).map(drop).map_err(|failed| failed.why.into())
        }
        Check::Http(url) => {
            let status = call(client()?.get(url)).await?;
            if status.is_success() { Ok(()) } else { Err(format!("the answer was {status}").into()) }
        }
    }
}
