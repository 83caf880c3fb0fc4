//! A command as a scheduled run: in a group of its own under a watchdog, told to end in time, ended before the lease is.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tenure::Lead;
use tenure::schedule::{Done, Failed, RunContext, Runner};

use crate::output::time::Stamp;
use crate::process::{Command, Ended, Exit, Guard, GuardOptions};
use crate::run::{Drains, Outcome, Signals, lease_deadline, supervise};

/// Runs a command for each tick. It gets `TENURE_TASK`, `TENURE_TICK`, `TENURE_ATTEMPT` and `TENURE_TOKEN`, beside
/// `TENURE_NODE`, `TENURE_ROLE` and `TENURE_SESSION`, in its environment.
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
        let variable = |name: &str, value: String| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            variable("TENURE_TASK", run.task().to_string()),
            variable("TENURE_TICK", Stamp(run.tick()).to_string()),
            variable("TENURE_ATTEMPT", run.attempt().to_string()),
            variable("TENURE_TOKEN", run.token().to_string()),
            variable("TENURE_NODE", run.node().name().to_string()),
        ];
        if let Some(lead) = run.lead() {
            env.push(variable("TENURE_ROLE", lead.role().to_string()));
            env.push(variable("TENURE_SESSION", lead.session().to_string()));
        }
        Some(Command { program: program.clone(), args: args.to_vec(), env, cwd: None })
    }

    async fn guard(&self, run: &RunContext) -> Result<Guard, Failed> {
        let timing = run.node().timing();
        let mut options = GuardOptions::new(timing.stop_grace, timing.kill_slack);
        if let Some(binary) = &self.binary {
            options.binary.clone_from(binary);
        }
        let guard = Guard::launch(options).await?;
        // The lock of the session must not fall while the command runs, whatever happens to this process.
        let lock =
            run.lead().and_then(|lead| run.node().store().witness_fd(run.node().namespace(), lead.session()));
        if let Some(lock) = lock {
            guard.adopt_lock(lock).await?;
        }
        Ok(guard)
    }
}

impl Runner for CommandRunner {
    fn run(&self, run: RunContext) -> BoxFuture<'static, Result<Done, Failed>> {
        let this = self.clone();
        async move {
            let Some(command) = this.command(&run) else {
                return Err(hopeless("there is no command".into()));
            };
            let mut guard = this.guard(&run).await?;
            if !run.check() {
                return Err(hopeless("leadership was lost before the command could start".into()));
            }
            let deadline = run.lead().map_or(u64::MAX, lease_deadline);
            let child = guard.start(command, deadline).await?;
            let grace = run.node().timing().stop_grace;
            let outcome = match run.lead() {
                Some(lead) => under_lease(child, lead, &run, grace).await,
                None => unleased(child, &run, grace).await,
            };
            guard.close().await;
            outcome
        }
        .boxed()
    }

    /// The role is not given up before the last of its processes is reaped.
    fn joins(&self) -> bool {
        true
    }
}

async fn under_lease(
    child: crate::process::Child,
    lead: &Lead,
    run: &RunContext,
    grace: Duration,
) -> Result<Done, Failed> {
    let stopping = run.clone();
    let mut signals = Signals::when(async move { stopping.stopping().await });
    match supervise(child, lead, &mut signals, grace, Drains::Elsewhere).await {
        Outcome::Ended(ended) | Outcome::Stopped(ended) => verdict(&ended),
        Outcome::Lost(why) => Err(hopeless(why)),
    }
}

async fn unleased(
    mut child: crate::process::Child,
    run: &RunContext,
    grace: Duration,
) -> Result<Done, Failed> {
    let ended = tokio::select! {
        biased;
        ended = child.wait() => ended,
        () = run.stopping() => child.stop(grace).await,
    };
    verdict(&ended)
}

fn verdict(ended: &Ended) -> Result<Done, Failed> {
    let failed = |why: String, exit| Err(Failed { why, exit, hopeless: false });
    match ended.exit {
        Exit::Code(0) => Ok(Done { exit: Some(0) }),
        Exit::Code(code) => failed(format!("it exited with code {code}"), Some(code)),
        Exit::Signal(signal) => failed(format!("it was ended by signal {signal}"), Some(128 + signal)),
        Exit::WatchdogLost => failed("its watchdog was lost, and it was killed".to_owned(), None),
    }
}

fn hopeless(why: String) -> Failed {
    Failed { why, exit: None, hopeless: true }
}
