//! What can be typed.

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tenure::Name;

/// Exactly one leader per role, on the store you already run.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 100, propagate_version = true, after_help = HELP)]
pub struct Cli {
    /// What every verb understands.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

const HELP: &str = "\
Exit codes (those of `tenure run` are in its own help):
  0    done, or all is well                122  the store cannot be used
  1    the answer is no; stderr says why   123  something else failed
  2    what was typed cannot be";

/// What every verb understands.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Where the registers are: `sqlite:` (a file in your state directory), `sqlite:PATH`
    #[arg(
        long,
        global = true,
        env = "TENURE_STORE",
        default_value = "sqlite:",
        value_name = "URL",
        hide_env_values = true
    )]
    pub store: String,
    /// Which cluster: two namespaces in one store never touch
    #[arg(long, global = true, env = "TENURE_NAMESPACE", default_value = "default", value_name = "NAME")]
    pub namespace: Name,
    /// What to print
    #[arg(long, global = true, value_enum, default_value_t = Format::Pretty)]
    pub format: Format,
}

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Pretty,
    /// For programs: a stable interface.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command only while leading a role
    Run(RunArgs),
    /// Show who leads which role, and who would be next
    Status(StatusArgs),
    /// Show who takes part
    Nodes,
    /// Show past tenures: when they began and ended, and why
    History(HistoryArgs),
    /// Print a line whenever something changes
    Watch(WatchArgs),
    /// Hand a role to a node, and wait until it leads
    Transfer(TransferArgs),
    /// Make the leader of a role give it up
    StepDown(AskArgs),
    /// Let nobody lead a role until it is resumed
    Pause(AskArgs),
    /// Let a paused role be led again
    Resume(AskArgs),
    /// Check settings, and print the bounds that follow from them
    Check(TimingArgs),
    /// Tell what the store can promise, and what is wrong with it
    Doctor,
    /// Watch three nodes elect, fail and recover, right here
    Demo(DemoArgs),
    /// Measure hand-over, fail-over and cost on this machine
    Bench(BenchArgs),
    /// Print shell completions
    Completions(CompletionArgs),
    /// Print the manual page
    Man,
}

/// How long things take.
#[derive(Debug, Clone, Default, Args)]
pub struct TimingArgs {
    /// How long a leader that falls silent keeps its role [default: 5s]
    #[arg(long, value_parser = duration, value_name = "TIME", env = "TENURE_TTL")]
    pub ttl: Option<Duration>,
    /// How often the session is renewed and looked at [default: ttl/5]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub beat: Option<Duration>,
    /// How long the store may take to answer [default: ttl/5]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub op_timeout: Option<Duration>,
    /// How long before its deadline work is told to stop [default: ttl/5]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub stop_grace: Option<Duration>,
    /// How long before its deadline what has not stopped is killed [default: ttl/50]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub kill_slack: Option<Duration>,
}

impl TimingArgs {
    /// As the library takes it.
    #[must_use]
    pub fn settings(&self) -> tenure::Settings {
        tenure::Settings {
            ttl: self.ttl,
            beat: self.beat,
            op_timeout: self.op_timeout,
            stop_grace: self.stop_grace,
            kill_slack: self.kill_slack,
            ..tenure::Settings::default()
        }
    }
}

/// `tenure run`
#[derive(Debug, Clone, Args)]
#[command(after_help = RUN_HELP)]
pub struct RunArgs {
    /// The role to lead
    #[arg(long, short, value_name = "NAME")]
    pub role: Name,
    /// This node's name, of which there is one live process at a time [default: HOST-PID]
    #[arg(long, short, value_name = "NAME")]
    pub node: Option<Name>,
    /// Where others reach this node; shown to whoever asks who leads
    #[arg(long, value_name = "TEXT")]
    pub address: Option<String>,
    /// Something to say about this node, as KEY=VALUE; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Higher claims first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Ask a leader of lower priority to hand over
    #[arg(long)]
    pub preempt: bool,
    /// Leave a free role to others for so long
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "0s")]
    pub takeover_delay: Duration,
    /// Do not hand a younger tenure over for the sake of priority
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "0s")]
    pub min_tenure: Duration,
    #[command(flatten)]
    /// How long things take.
    pub timing: TimingArgs,
    /// How long the command may take to end after SIGTERM when it is not the lease that runs out
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "10s")]
    pub drain: Duration,
    /// What to do when the command has ended by itself
    #[arg(long, value_enum, default_value_t = Restart::Never)]
    pub restart: Restart,
    /// How long to stand back before campaigning again after the command ended [default: ttl]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub cool_down: Option<Duration>,
    /// Give up if not elected by then
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub wait: Option<Duration>,
    /// Do not campaign again after leadership was lost
    #[arg(long)]
    pub once: bool,
    /// Say nothing about the election on stderr
    #[arg(long, short)]
    pub quiet: bool,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// When to run the command again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Restart {
    /// Resign and exit with its code.
    Never,
    /// Campaign again if it failed.
    OnFailure,
    /// Campaign again.
    Always,
}

const RUN_HELP: &str = "\
The command gets its own process group, this terminal, every signal, and TENURE_ROLE, TENURE_NODE, TENURE_TOKEN and
TENURE_SESSION in its environment. It never outlives the lease, whatever happens to tenure: a second process, its watchdog, sees to that.

Exit codes: the command's own, or 128 + the signal that ended it
  2    what was typed cannot be        120  not elected within --wait
  126  the command cannot be executed  121  leadership was lost, and --once was given
  127  there is no such command        122  the store cannot be used
                                       123  something else failed

Example:
  tenure run --role scheduler -- python3 worker.py";

/// `tenure status`
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Only these roles
    pub roles: Vec<Name>,
    /// Fail (exit code 1) unless every role shown has a leader that beats
    #[arg(long)]
    pub require_leader: bool,
}

/// `tenure history`
#[derive(Debug, Clone, Args)]
pub struct HistoryArgs {
    /// Only this role
    pub role: Option<Name>,
    /// Show at most so many tenures of each role
    #[arg(long, short = 'n', default_value = "20")]
    pub limit: std::num::NonZeroUsize,
}

/// `tenure watch`
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// Only these roles
    pub roles: Vec<Name>,
    /// Stop after so many lines
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// `tenure transfer`
#[derive(Debug, Clone, Args)]
pub struct TransferArgs {
    /// The role
    pub role: Name,
    /// The node that is to lead
    #[arg(long, value_name = "NODE")]
    pub to: Name,
    /// Why; kept with the request
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
    /// How long to wait for it
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "30s")]
    pub wait: Duration,
}

/// `tenure step-down`, `pause`, `resume`
#[derive(Debug, Clone, Args)]
pub struct AskArgs {
    /// The role
    pub role: Name,
    /// Why; kept with the request
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
    /// How long to wait for it
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "30s")]
    pub wait: Duration,
}

/// `tenure demo`
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Stop after so many seconds [default: when you press q]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Print lines instead of a board
    #[arg(long)]
    pub no_tty: bool,
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    pub nodes: u8,
    /// Be one of the demo's nodes, of this name
    #[arg(long, hide = true, requires = "dir")]
    pub member: Option<Name>,
    /// Where that node finds the others
    #[arg(long, hide = true, requires = "member")]
    pub dir: Option<std::path::PathBuf>,
}

/// `tenure bench`
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// How many times each thing is measured
    #[arg(long, default_value_t = 100)]
    pub rounds: u32,
    /// With how many roles on one node
    #[arg(long, default_value_t = 10_000)]
    pub roles: u32,
    /// Plays the node that is killed
    #[arg(long, hide = true)]
    pub victim: bool,
}

/// `tenure completions`
#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// For which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `5s`, `500ms`, `1m 30s`; a bare number has no unit and is refused.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it like 500ms, 5s or 1m"))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is written KEY=VALUE")?;
    if key.is_empty() {
        return Err("a label needs a key before the =".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}
