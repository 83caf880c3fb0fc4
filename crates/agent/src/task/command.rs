//! A command as a scheduled run: in a group of its own under a watchdog, told to end in time, ended before the lease is.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tenure::schedule::{RunContext, RunFailure, RunSuccess, TaskRunner};
use tenure::{Lead, Node};

use super::CapturedOutput;
use crate::time::Stamp;
use tenure_process::{Command, Ended, Exit, Guard, GuardError, GuardOptions};
use tenure_process::{Drains, Outcome, Signals, lease_deadline, supervise};

/// Runs a command for each tick. It gets `TENURE_TASK`, `TENURE_RUN`, `TENURE_TICK`, `TENURE_ATTEMPT` and `TENURE_TOKEN`,
/// beside `TENURE_NODE`, `TENURE_ROLE` and `TENURE_SESSION`, in its environment.
#[derive(Debug, Clone)]
pub struct CommandRunner {
    command: Vec<OsString>,
    binary: Option<PathBuf>,
}

impl CommandRunner {
    /// A program and its arguments; there must be a program.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { command: command.into_iter().map(Into::into).collect(), binary: None }
    }

    /// Another binary than this one becomes the watchdog.
    #[must_use]
    pub fn watchdog(mut self, binary: PathBuf) -> Self {
        self.binary = Some(binary);
        self
    }

    fn command(&self, run: &RunContext) -> Option<Command> {
        let (program, args) = self.command.split_first()?;
        let mut env = vec![
            variable("TENURE_TOKEN", &run.token()),
            variable("TENURE_TASK", run.task()),
            variable("TENURE_RUN", &run.id()),
            variable("TENURE_TICK", &Stamp(run.tick())),
            variable("TENURE_ATTEMPT", &run.attempt()),
        ];
        env.extend(led(run.node(), run.lead()));
        Some(Command { program: program.clone(), args: args.to_vec(), env, cwd: None })
    }
}

/// A watchdog for a command of this node, under a tenure or not; `binary` if another one than this is to be it.
pub(crate) async fn guard_for(
    node: &Node,
    lead: Option<&Lead>,
    binary: Option<&PathBuf>,
    stderr: OwnedFd,
) -> Result<Guard, GuardError> {
    let timing = node.timing();
    let mut options = GuardOptions::new(timing.stop_grace, timing.kill_slack);
    options.stderr = Some(Arc::new(stderr));
    if let Some(binary) = binary {
        options.binary.clone_from(binary);
    }
    let guard = Guard::launch(options).await?;
    // The lock of the session must not fall while the command runs, whatever happens to this process.
    let lock =
        lead.and_then(|lead| node.store().liveness()?.lock_descriptor(node.namespace(), lead.session()));
    if let Some(lock) = lock {
        guard.adopt_lock(lock).await?;
    }
    Ok(guard)
}

/// What every command of a tenure finds in its environment.
pub(crate) fn led(node: &Node, lead: Option<&Lead>) -> Vec<(OsString, OsString)> {
    let mut env = vec![variable("TENURE_NODE", node.name())];
    if let Some(lead) = lead {
        env.push(variable("TENURE_ROLE", lead.role()));
        env.push(variable("TENURE_SESSION", &lead.session()));
        env.push(variable("TENURE_TOKEN", &lead.token()));
    }
    env
}

fn variable(name: &str, value: &impl ToString) -> (OsString, OsString) {
    (name.into(), value.to_string().into())
}

impl TaskRunner for CommandRunner {
    fn run(&self, run: RunContext) -> BoxFuture<'static, Result<RunSuccess, RunFailure>> {
        let this = self.clone();
        async move {
            let Some(command) = this.command(&run) else {
                return Err(RunFailure::permanent("the command is empty"));
            };
            let (stderr, output) = CapturedOutput::start(format!("task {}", run.task()))?;
            let mut guard = guard_for(run.node(), run.lead(), this.binary.as_ref(), stderr).await?;
            if !run.check() {
                return Err(RunFailure::permanent("leadership was lost before the command could start"));
            }
            let deadline = run.lead().map_or(u64::MAX, lease_deadline);
            let child = guard.start(command, deadline).await?;
            let grace = run.node().timing().stop_grace;
            let outcome = match run.lead() {
                Some(lead) => under_lease(child, lead, &run, grace).await,
                None => unleased(child, &run, grace).await,
            };
            guard.close().await;
            match outcome {
                Err(mut failed) => {
                    failed.why = output.explain(failed.why).await;
                    Err(failed)
                }
                done => done,
            }
        }
        .boxed()
    }

    /// The role is not given up before the last of its processes is reaped.
    fn joins(&self) -> bool {
        true
    }
}

async fn under_lease(
    child: tenure_process::Child,
    lead: &Lead,
    run: &RunContext,
    grace: Duration,
) -> Result<RunSuccess, RunFailure> {
    let stopping = run.clone();
    let mut signals = Signals::when(async move { stopping.stopping().await });
    match supervise(child, lead, &mut signals, grace, Drains::Elsewhere).await {
        Outcome::Ended(ended) | Outcome::Stopped(ended) => verdict(&ended),
        Outcome::Lost(why) => Err(RunFailure::permanent(why)),
    }
}

async fn unleased(
    mut child: tenure_process::Child,
    run: &RunContext,
    grace: Duration,
) -> Result<RunSuccess, RunFailure> {
    let ended = tokio::select! {
        biased;
        ended = child.wait() => ended,
        () = run.stopping() => child.stop(grace).await,
    };
    verdict(&ended)
}

/// What the end of a command means.
pub(crate) fn verdict(ended: &Ended) -> Result<RunSuccess, RunFailure> {
    let failed = |why: String, exit| Err(RunFailure::from(why).with_exit(exit));
    match ended.exit {
        Exit::Code(0) => Ok(RunSuccess::with_exit(0)),
        Exit::Code(code) => failed(format!("it exited with code {code}"), code),
        Exit::Signal(signal) => failed(format!("signal {signal} ended it"), 128 + signal),
        Exit::WatchdogLost => Err("its watchdog was lost, and it was killed".into()),
    }
}
