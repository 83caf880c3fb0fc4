//! `tenure run`: a command that runs only while this node leads a role.
//!
//! ```text
//!   campaign ──elected──▶ start the command ──▶ supervise it ──ended──▶ resign ──▶ exit, or campaign again
//!      ▲                                            │ lease renewed → watchdog told
//!      └──────────────── lost ◀─────────────────────┘ asked to stop → TERM, drain, KILL
//! ```
//!
//! The command is a child of the watchdog ([`crate::process`]), which ends it before the lease does whatever happens
//! to this process, and holds the session's file lock until the last descendant is reaped.

mod signals;
mod supervise;

use std::ffi::OsString;
use std::time::Duration;

use tenure::{Candidate, Node, Tenure, Timing};
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::{Common, Restart, RunArgs};
use crate::exit::Exit;
use crate::process::{self, Command, Ended, Guard, GuardError, GuardOptions};
use signals::Heard;
pub(crate) use signals::Signals;
pub(crate) use supervise::{Drains, Outcome, lease_deadline, supervise};

/// Runs the verb.
///
/// # Errors
/// How the process ends, if it does not end well.
pub async fn main(common: Common, args: RunArgs) -> Result<Exit, Exit> {
    let timing = Timing::new(&args.timing.settings()).map_err(tenure::Error::from)?;
    let signals = Signals::new().map_err(|error| Exit::Failed(format!("signals: {error}")))?;
    if common.store_url().starts_with("memory:") {
        let why = "memory: lives within one process, so that every copy would lead; name a store that all can reach";
        return Err(Exit::Usage(why.to_owned()));
    }
    let store = tenure::store::open(&common.store_url())?;
    let guard = launch(&timing).await?;
    let name = args.node.as_ref().map_or_else(tenure::default_name, ToString::to_string);
    let mut node = Node::with_store(store).namespace(common.namespace().as_str()).name(name);
    for (key, value) in &args.label {
        node = node.label(key, value);
    }
    if let Some(address) = &args.address {
        node = node.address(address);
    }
    let node = node.timing(args.timing.settings()).drain(args.drain).start().await?;
    let candidate = stand(&node, &args).await?;
    let give_up = args.wait.map(|wait| Instant::now() + wait);
    let mut runner = Runner { args, timing, node, candidate, guard, signals, give_up };
    let exit = runner.campaign().await;
    runner.finish().await;
    Ok(exit)
}

async fn launch(timing: &Timing) -> Result<Guard, Exit> {
    let options = GuardOptions::new(timing.stop_grace, timing.kill_slack);
    Guard::launch(options).await.map_err(|error| Exit::Failed(error.to_string()))
}

async fn stand(node: &Node, args: &RunArgs) -> Result<Candidate, tenure::Error> {
    let candidacy = node
        .stand(args.role.as_str())
        .priority(args.priority)
        .preempt(args.preempt)
        .takeover_delay(args.takeover_delay)
        .min_tenure(args.min_tenure)
        .drain(args.drain);
    match args.cool_down {
        Some(cool_down) => candidacy.cool_down(cool_down).start().await,
        None => candidacy.start().await,
    }
}

struct Runner {
    args: RunArgs,
    timing: Timing,
    node: Node,
    candidate: Candidate,
    guard: Guard,
    signals: Signals,
    /// Until when the first election must have come.
    give_up: Option<Instant>,
}

impl Runner {
    /// Campaigns, runs the command, campaigns again, until there is a reason to exit.
    async fn campaign(&mut self) -> Exit {
        loop {
            let tenure = match self.wait_for_election().await {
                Ok(tenure) => tenure,
                Err(exit) => return exit,
            };
            self.give_up = None;
            let exit = match self.lead(tenure).await {
                Ok(Outcome::Stopped(ended)) => return code_of(&ended),
                Ok(Outcome::Lost(why)) if self.args.once => return Exit::Lost(why),
                Ok(Outcome::Lost(_)) => continue,
                Ok(Outcome::Ended(ended)) => code_of(&ended),
                Err(exit) => exit,
            };
            let again = match self.args.restart {
                Restart::Never => false,
                Restart::OnFailure => exit.code() != 0,
                Restart::Always => true,
            };
            if !again {
                return exit;
            }
            if let Err(exit) = self.stand_back().await {
                return exit;
            }
        }
    }

    async fn wait_for_election(&mut self) -> Result<Tenure, Exit> {
        loop {
            let give_up = self.give_up;
            let too_late = async {
                match give_up {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                heard = self.signals.next() => if let Some(exit) = while_waiting(&heard) { return Err(exit) },
                tenure = self.candidate.elected() => {
                    return tenure.ok_or_else(|| Exit::Failed("the election loop has stopped".to_owned()));
                }
                () = too_late => return Err(self.not_elected()),
            }
        }
    }

    fn not_elected(&self) -> Exit {
        let waited = humantime::format_duration(self.args.wait.unwrap_or_default());
        let leader = match self.candidate.leader() {
            Some(leader) => format!("{} leads it", leader.node),
            None => "nobody leads it".to_owned(),
        };
        Exit::NotElected(format!("not elected for {} within {waited}; {leader}", self.args.role))
    }

    /// One tenure: from the election to the resignation, with the command between.
    async fn lead(&mut self, tenure: Tenure) -> Result<Outcome, Exit> {
        let lock = self.node.store().witness_fd(self.node.namespace(), tenure.session());
        if let Some(lock) = lock
            && self.guard.adopt_lock(lock).await.is_err()
        {
            self.guard = launch(&self.timing).await?;
            tenure.fail();
            return Err(Exit::Failed(GuardError::Lost.to_string()));
        }
        if !tenure.check() {
            return Ok(Outcome::Lost("leadership was lost before the command could start".to_owned()));
        }
        let command = self.command(&tenure);
        let child = match self.guard.start(command, lease_deadline(&tenure)).await {
            Ok(child) => child,
            Err(error) => {
                tenure.fail();
                return Err(self.not_started(error).await);
            }
        };
        tracing::info!(role = %self.args.role, token = %tenure.token(), pid = child.pid(), "the command runs");
        let outcome = supervise(child, &tenure, &mut self.signals, self.args.drain, Drains::Here).await;
        self.resign(tenure, &outcome);
        if let Outcome::Ended(Ended { exit: process::Exit::WatchdogLost, .. }) = outcome {
            self.guard = launch(&self.timing).await?;
        }
        Ok(outcome)
    }

    /// Every descendant is reaped: the role may be given up.
    fn resign(&self, tenure: Tenure, outcome: &Outcome) {
        match outcome {
            Outcome::Ended(ended) if ended.exit != process::Exit::Code(0) => tenure.fail(),
            Outcome::Stopped(_) => tenure.shut_down(),
            _ => drop(tenure),
        }
    }

    async fn not_started(&mut self, error: GuardError) -> Exit {
        match error {
            GuardError::Start { code, .. } => {
                anstream::eprintln!("tenure: {error}");
                Exit::Child(u8::try_from(code).unwrap_or(Exit::FAILED))
            }
            error => {
                if let Ok(guard) = launch(&self.timing).await {
                    self.guard = guard;
                }
                Exit::Failed(error.to_string())
            }
        }
    }

    fn command(&self, tenure: &Tenure) -> Command {
        let (program, args) = self.args.command.split_first().expect("clap wants a command");
        let variable = |name: &str, value: String| (OsString::from(name), OsString::from(value));
        let env = vec![
            variable("TENURE_ROLE", self.args.role.to_string()),
            variable("TENURE_NODE", self.node.name().to_string()),
            variable("TENURE_TOKEN", tenure.token().to_string()),
            variable("TENURE_SESSION", tenure.session().to_string()),
        ];
        Command { program: program.clone(), args: args.to_vec(), env, cwd: None }
    }

    /// Lets others have a turn before campaigning again.
    async fn stand_back(&mut self) -> Result<(), Exit> {
        let pause = self.args.cool_down.unwrap_or(self.timing.ttl);
        self.candidate.set_eligible(false);
        let over = Instant::now() + pause;
        loop {
            tokio::select! {
                biased;
                heard = self.signals.next() => if let Some(exit) = while_waiting(&heard) { return Err(exit) },
                () = sleep_until(over) => break,
            }
        }
        self.candidate.set_eligible(true);
        Ok(())
    }

    /// Gives everything up; a signal cuts it short.
    async fn finish(mut self) {
        let stop = async {
            self.node.stop().await;
            self.guard.close().await;
        };
        tokio::select! {
            () = stop => {}
            () = async { while !matches!(self.signals.next().await, Heard::Stop(_)) {} } => {}
            () = sleep(Duration::from_secs(60)) => {}
        }
    }
}

/// What a signal means while nothing runs.
fn while_waiting(heard: &Heard) -> Option<Exit> {
    match heard {
        Heard::Stop(signal) => Some(Exit::Signal(*signal)),
        Heard::Forward(_) => None,
    }
}

fn code_of(ended: &Ended) -> Exit {
    match ended.exit {
        process::Exit::Code(code) => Exit::Child(u8::try_from(code & 0xff).unwrap_or(Exit::FAILED)),
        process::Exit::Signal(signal) => Exit::Signal(u8::try_from(signal).unwrap_or(0)),
        process::Exit::WatchdogLost => Exit::Failed(GuardError::Lost.to_string()),
    }
}
