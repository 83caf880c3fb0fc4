//! `tenure run`: a command that runs only while this node leads a role.
//!
//! ```text
//!   campaign ──elected──▶ start the command ──▶ supervise it ──ended──▶ resign ──▶ exit, or campaign again
//!      ▲                                            │ lease renewed → watchdog told
//!      └──────────────── lost ◀─────────────────────┘ asked to stop → TERM, drain, KILL
//! ```
//!
//! The command is a child of the watchdog ([`tenure_process`]), which ends it before the lease does whatever happens
//! to this process, and holds the session's file lock until the last descendant is reaped.

use std::ffi::OsString;
use std::time::Duration;

use tenure::guard::SharedGuardLock;
use tenure::store::SharedStore;
use tenure::{Candidate, Name, Node, Tenure, Timing};
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::{Common, Restart, RunArgs};
use crate::exit::Exit;
use tenure_process::{
    self as process, Child, Command, Drains, Ended, Guard, GuardError, GuardOptions, Outcome, ReceivedSignal,
    Signals, lease_deadline, supervise, terminal,
};

/// A node that gave its role up leaves the store to its successor for so long, before it closes its session: on a server that
/// does one thing at a time that write would come between the successor and its claim.
const AFTER_HAND_OVER: Duration = Duration::from_millis(20);

/// Runs the verb.
///
/// # Errors
/// How the process ends, if it does not end well.
pub async fn main(common: Common, args: RunArgs) -> Result<Exit, Exit> {
    Timing::new(&args.timing.settings(&common.store_url())).map_err(tenure::Error::from)?;
    if tenure::store::backend_for_url(&common.store_url()).is_ok_and(|backend| backend.in_process) {
        let why = "cannot use memory: it lives in one process, so every node would lead; name a store that all nodes reach";
        return Err(Exit::Usage(why.to_owned()));
    }
    let secrets = tenure::store::secret_variables(&common.store_url());
    process::environment::set(args.pass_env.clone(), secrets.iter().map(ToString::to_string).collect());
    let name = args.node.as_ref().map_or_else(tenure::default_node_name, ToString::to_string);
    let guard_lock = open_guard_lock(&args, &name)?;
    let signals = Signals::new().map_err(|error| Exit::Failed(format!("signals: {error}")))?;
    let store = tenure::store::open(&common.store_url())?;
    let elector = elect_and_run(common, args, name, store.clone(), guard_lock, signals);
    // Where its node is: the start of the command after an election waits for no other thread.
    let ended = tenure::store::beside_connections(&store, elector).await;
    ended.unwrap_or_else(|| Err(Exit::Failed("the election loop stopped".to_owned())))
}

/// From the first beat to the last.
async fn elect_and_run(
    common: Common,
    args: RunArgs,
    name: String,
    store: SharedStore,
    guard_lock: Option<SharedGuardLock>,
    mut signals: Signals,
) -> Result<Exit, Exit> {
    let settings = args.timing.settings(&common.store_url());
    let timing = Timing::new(&settings).map_err(tenure::Error::from)?;
    let guard = launch(&timing).await.map_err(|error| Exit::Failed(error.to_string()))?;
    guard.prepare();
    let mut node = Node::builder_with_store(store).namespace(common.namespace().as_str()).name(name);
    for (key, value) in &args.label {
        node = node.label(key, value);
    }
    if let Some(address) = &args.address {
        node = node.address(address);
    }
    let give_up = args.wait.map(|wait| Instant::now() + wait);
    let node = node.timing(settings).drain(args.drain).start_without_waiting()?;
    reach_store(&node, &args, &mut signals, give_up).await?;
    let candidate = stand(&node, &args, guard_lock).await?;
    let (prepare_at, close_from) = (None, Instant::now());
    let mut runner =
        Runner { args, timing, node, candidate, guard, signals, give_up, prepare_at, close_from };
    let exit = runner.campaign().await;
    runner.finish().await;
    Ok(exit)
}

/// Before a node is started: a URL that names no lock leaves no session behind.
fn open_guard_lock(args: &RunArgs, node: &str) -> Result<Option<SharedGuardLock>, tenure::Error> {
    let Some(url) = &args.guard else { return Ok(None) };
    Ok(Some(tenure::guard::open(url, &Name::new(node)?)?))
}

async fn launch(timing: &Timing) -> Result<Guard, GuardError> {
    Guard::launch(GuardOptions::new(timing.stop_grace, timing.kill_slack)).await
}

/// Waits until the store has answered for the first time: for ever, if nothing else was said.
async fn reach_store(
    node: &Node,
    args: &RunArgs,
    signals: &mut Signals,
    give_up: Option<Instant>,
) -> Result<(), Exit> {
    let why = || node.store_problem().unwrap_or_default();
    let store_by = args.store_timeout.map(|timeout| Instant::now() + timeout);
    loop {
        tokio::select! {
            biased;
            heard = signals.next() => if let Some(exit) = while_waiting(&heard) { return Err(exit) },
            reached = node.wait_for_store() => return Ok(reached?),
            () = until(store_by) => return Err(Exit::Store(why())),
            () = until(give_up) => return Err(not_elected(args, &why())),
        }
    }
}

/// For ever, if there is no such time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn not_elected(args: &RunArgs, why: &str) -> Exit {
    let waited = humantime::format_duration(args.wait.unwrap_or_default());
    Exit::NotElected(format!("not elected for {} within {waited}; {why}", args.role))
}

async fn stand(
    node: &Node,
    args: &RunArgs,
    guard_lock: Option<SharedGuardLock>,
) -> Result<Candidate, tenure::Error> {
    let mut candidacy = node
        .candidate(args.role.as_str())
        .priority(args.priority)
        .preempt(args.preempt)
        .takeover_delay(args.takeover_delay)
        .min_tenure(args.min_tenure)
        .drain(args.drain);
    if let Some(lock) = guard_lock {
        candidacy = candidacy.guard(lock);
    }
    match args.cool_down {
        Some(cool_down) => candidacy.cool_down(cool_down).await,
        None => candidacy.await,
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
    /// When the watchdog prepares for the next election, if it has not.
    prepare_at: Option<Instant>,
    /// The session is not closed before.
    close_from: Instant,
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
            let led = self.lead(tenure).await;
            self.close_from = Instant::now() + AFTER_HAND_OVER;
            // Not now: the next leader, if it is on this host, is starting its command.
            self.prepare_at = Some(Instant::now() + self.timing.beat);
            let exit = match led {
                Ok(Outcome::Stopped(ended)) => return code_of(&ended),
                Ok(Outcome::Lost(why)) if self.args.once => return Exit::Lost(why),
                Ok(Outcome::Lost(why)) => {
                    tracing::info!(role = %self.args.role, why, "campaigning again");
                    continue;
                }
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
            tokio::select! {
                biased;
                heard = self.signals.next() => if let Some(exit) = while_waiting(&heard) { return Err(exit) },
                tenure = self.candidate.elected() => {
                    return tenure.ok_or_else(|| Exit::Failed("the election loop stopped".to_owned()));
                }
                error = self.node.store_refused() => return Err(error.into()),
                () = until(self.give_up) => return Err(self.not_elected()),
                () = self.guard.lost() => self.replace_watchdog().await?,
                () = until(self.prepare_at) => {
                    self.prepare_at = None;
                    self.guard.prepare();
                }
            }
        }
    }

    /// Without a watchdog nothing could stop a command, so the node does not campaign until it has one.
    async fn replace_watchdog(&mut self) -> Result<(), Exit> {
        loop {
            match launch(&self.timing).await {
                Ok(guard) => {
                    tracing::warn!(role = %self.args.role, "watchdog lost and replaced");
                    self.guard = guard;
                    self.prepare_at = Some(Instant::now());
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(role = %self.args.role, %error, "watchdog lost; retrying");
                    self.stand_back().await?;
                }
            }
        }
    }

    fn not_elected(&self) -> Exit {
        let leader = match self.candidate.leader() {
            Some(leader) => format!("its leader is {}", leader.node),
            None => "it has no leader".to_owned(),
        };
        not_elected(&self.args, &leader)
    }

    /// One tenure: from the election to the resignation, with the command between.
    async fn lead(&mut self, tenure: Tenure) -> Result<Outcome, Exit> {
        let child = match self.start(&tenure).await {
            Ok(child) => child,
            Err(error) => {
                tenure.fail();
                return not_started(error).await;
            }
        };
        tracing::info!(role = %self.args.role, token = %tenure.token(), pid = child.pid(), "the command runs");
        let outcome =
            supervise(child, &tenure, &mut self.signals, self.args.drain, Drains::Here(suspending)).await;
        self.resign(tenure, &outcome);
        match outcome {
            Outcome::Ended(Ended { exit: process::Exit::WatchdogLost, .. }) => {
                not_started(GuardError::Lost).await
            }
            outcome => Ok(outcome),
        }
    }

    /// Starts the command under the lease. A standby's watchdog has nothing to do, so that one that is frozen is missed only
    /// here: it is replaced, once nothing is left of what it may have started.
    async fn start(&mut self, tenure: &Tenure) -> Result<Child, GuardError> {
        match self.start_under_guard(tenure).await {
            Err(GuardError::Lost) => {
                self.guard = launch(&self.timing).await?;
                self.start_under_guard(tenure).await
            }
            started => started,
        }
    }

    async fn start_under_guard(&mut self, tenure: &Tenure) -> Result<Child, GuardError> {
        let locks = self.node.store().liveness();
        let lock = locks.and_then(|locks| locks.lock_descriptor(self.node.namespace(), tenure.session()));
        let command = self.command(tenure);
        if !tenure.check() {
            return Err(GuardError::TooLate);
        }
        self.guard.start_under(lock, command, lease_deadline(tenure)).await
    }

    /// Every descendant is reaped: the role may be given up.
    fn resign(&self, tenure: Tenure, outcome: &Outcome) {
        match outcome {
            Outcome::Ended(ended) if self.args.restart == Restart::Never && was_interrupted(ended) => {
                tenure.shut_down();
            }
            Outcome::Ended(ended) if ended.exit != process::Exit::Code(0) => tenure.fail(),
            Outcome::Stopped(_) => tenure.shut_down(),
            _ => drop(tenure),
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
            sleep_until(self.close_from).await;
            self.node.stop().await;
            self.guard.close().await;
        };
        tokio::select! {
            () = stop => {}
            () = async { while !matches!(self.signals.next().await, ReceivedSignal::Stop(_)) {} } => {}
            () = sleep(Duration::from_secs(60)) => {}
        }
    }
}

/// What a signal means while nothing runs.
fn while_waiting(heard: &ReceivedSignal) -> Option<Exit> {
    match heard {
        ReceivedSignal::Stop(signal) | ReceivedSignal::ForwardOrExit(signal) => Some(Exit::Signal(*signal)),
        ReceivedSignal::Suspend => {
            if terminal::has_shell() {
                terminal::stop_own_group();
            }
            None
        }
        ReceivedSignal::Forward(_) | ReceivedSignal::Continue => None,
    }
}

/// Whether a person ended it at the terminal, which is the command's own: Ctrl-C (INT) or Ctrl-\ (QUIT).
fn was_interrupted(ended: &Ended) -> bool {
    const INT: i32 = 2;
    const QUIT: i32 = 3;
    matches!(ended.exit, process::Exit::Signal(INT | QUIT))
}

/// A command that cannot be executed is the user's to mend; anything else is a lost tenure, and the next one may go better.
async fn not_started(error: GuardError) -> Result<Outcome, Exit> {
    let GuardError::Start { code, .. } = error else { return Ok(Outcome::Lost(error.to_string())) };
    // Elsewhere: a reader of the errors that has stopped reading must not keep the node from giving its role up.
    let _ = tokio::task::spawn_blocking(move || anstream::eprintln!("tenure: {error}")).await;
    Err(Exit::Child(u8::try_from(code).unwrap_or(Exit::FAILED)))
}

fn code_of(ended: &Ended) -> Exit {
    match ended.exit {
        process::Exit::Code(code) => Exit::Child(u8::try_from(code & 0xff).unwrap_or(Exit::FAILED)),
        process::Exit::Signal(signal) => Exit::Signal(u8::try_from(signal).unwrap_or(0)),
        process::Exit::WatchdogLost => Exit::Failed(GuardError::Lost.to_string()),
    }
}

/// This process is about to stop together with its command.
fn suspending(lead: &tenure::Lead) {
    let left = lead.remaining().as_secs_f64();
    tracing::warn!(role = %lead.role(), lease_left = %format!("{left:.1}s"),
        "stopped with its command; the role is lost unless it continues (fg) before the lease ends");
    tenure_agent::log::flush();
}
