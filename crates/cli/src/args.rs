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
    /// Where the registers are: `sqlite:` (a file in your state directory), `sqlite:PATH`, `redis://HOST`,
    /// `redis+sentinel://HOST,HOST/NAME`, `postgres://HOST/DATABASE`, `mysql://HOST/DATABASE`, or `peers://HOST:PORT,…` (no
    /// server at all) [env: TENURE_STORE=]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// The agent to ask instead of a store: a socket, or http://ADDRESS:PORT [env: TENURE_AGENT=]
    #[arg(long, global = true, value_name = "WHERE", conflicts_with = "store")]
    pub agent: Option<String>,
    /// Which cluster: two namespaces in one store never touch [default: default]
    #[arg(long, global = true, env = "TENURE_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<Name>,
    /// What to print
    #[arg(long, global = true, value_enum, default_value_t = Format::Pretty)]
    pub format: Format,
}

impl Common {
    /// What was said on the command line, as keys of the configuration.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, String)> {
        let environment = std::env::var("TENURE_NAMESPACE").ok();
        let namespace = self.namespace.as_ref().map(ToString::to_string);
        let namespace = namespace.filter(|name| Some(name) != environment.as_ref());
        let named = [("store", self.store.clone()), ("namespace", namespace)];
        named.into_iter().filter_map(|(path, value)| Some((path.to_owned(), value?))).collect()
    }

    /// The store: `--store`, else `TENURE_STORE`, else the embedded one.
    #[must_use]
    pub fn store_url(&self) -> String {
        let named = self.store.clone().or_else(|| std::env::var("TENURE_STORE").ok());
        named.unwrap_or_else(|| "sqlite:".to_owned())
    }

    /// Whether an agent was named, and no store.
    #[must_use]
    pub fn names_only_an_agent(&self) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let by_environment = is_set("TENURE_AGENT") && self.store.is_none() && !is_set("TENURE_STORE");
        self.agent.is_some() || by_environment
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> Name {
        let default = || Name::new(tenure::DEFAULT_NAMESPACE).expect("the default is a name");
        self.namespace.clone().unwrap_or_else(default)
    }
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
    /// Be a node for everything on this host: roles, HTTP, metrics
    Agent(Box<AgentArgs>),
    /// Show who leads which role, and who would be next
    Status(StatusArgs),
    /// Show who takes part
    Nodes,
    /// Show past tenures: when they began and ended, and why
    History(HistoryArgs),
    /// Print a line whenever something changes
    Watch(WatchArgs),
    /// Show roles, nodes, a timeline and what happens, on one screen that stays current
    Top(TopArgs),
    /// Hand a role to a node, and wait until it leads
    Transfer(TransferArgs),
    /// Make the leader of a role give it up
    StepDown(AskArgs),
    /// Let nobody lead a role until it is resumed
    Pause(AskArgs),
    /// Let a paused role be led again
    Resume(AskArgs),
    /// Look at scheduled tasks, and ask for a run, a pause, an end of it
    Task(TaskArgs),
    /// Tie a role to a node, or untie it
    Pin(PinArgs),
    /// Make a node give up its roles and stand for none
    Drain(DrainArgs),
    /// Make an agent's node claim a role, or only follow
    Eligible(EligibleArgs),
    /// Show alerts; acknowledge, resolve or silence one
    Alerts(AlertsArgs),
    /// Show what operators did, and why
    Audit,
    /// Ask an agent whether it is alive, is ready, or leads a role; exits with 0 or 1
    #[command(subcommand)]
    Probe(ProbeVerb),
    /// Check settings or a whole configuration, and print what follows from them
    Check(CheckArgs),
    /// Tell what the store can promise, and what is wrong with it
    Doctor,
    /// Print the tables and the least rights that a store or a fence needs, without asking any server
    Schema(SchemaArgs),
    /// The members of a group of peers: who they are, one more, one fewer
    #[command(subcommand)]
    Peers(PeersVerb),
    /// Watch three nodes elect, fail and recover, right here
    Demo(DemoArgs),
    /// Measure hand-over, fail-over and cost on this machine
    Bench(BenchArgs),
    /// Attack Tenure on a store, for as long as you like, and read a verdict
    Torture(TortureArgs),
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
    /// What it means that this node's connection to the store drops [default: strict]
    #[arg(long, value_enum, env = "TENURE_TAKEOVER")]
    pub takeover: Option<Takeover>,
    /// How long a dropped connection is forgiven, on disconnect [default: ttl/2]
    #[arg(long, value_parser = duration, value_name = "TIME", env = "TENURE_GRACE")]
    pub grace: Option<Duration>,
    /// How often the session is renewed and looked at [default: ttl/5; on disconnect grace/10]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub beat: Option<Duration>,
    /// How long the store may take to answer [default: ttl/5; on disconnect grace/6]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub op_timeout: Option<Duration>,
    /// How long before its deadline work is told to stop [default: ttl/5]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub stop_grace: Option<Duration>,
    /// How long before its deadline what has not stopped is killed [default: ttl/50]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub kill_slack: Option<Duration>,
}

/// What a dropped connection means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Takeover {
    /// Nothing: only the lease counts.
    #[default]
    Strict,
    /// The roles are free a grace later, on a store that can tell (PostgreSQL, MySQL).
    OnDisconnect,
}

impl From<Takeover> for tenure::Takeover {
    fn from(takeover: Takeover) -> Self {
        match takeover {
            Takeover::Strict => Self::Strict,
            Takeover::OnDisconnect => Self::OnDisconnect,
        }
    }
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
            takeover: self.takeover.unwrap_or_default().into(),
            grace: self.grace,
            ..tenure::Settings::default()
        }
    }

    /// What was said, as keys of the configuration.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, String)> {
        let spans = [
            ("ttl", self.ttl),
            ("grace", self.grace),
            ("beat", self.beat),
            ("op-timeout", self.op_timeout),
            ("stop-grace", self.stop_grace),
            ("kill-slack", self.kill_slack),
        ];
        let text = |span: Duration| humantime::format_duration(span).to_string();
        let spans = spans.into_iter().filter_map(|(key, span)| Some((key, text(span?))));
        let takeover = self.takeover.and_then(|takeover| takeover.to_possible_value());
        let takeover = takeover.map(|word| ("takeover", word.get_name().to_owned()));
        spans.chain(takeover).map(|(key, value)| (format!("timing.{key}"), value)).collect()
    }
}

/// `tenure check`
#[derive(Debug, Clone, Args)]
#[command(after_help = CHECK_HELP)]
pub struct CheckArgs {
    /// The configuration of an agent; it is read as the agent would read it, and nothing is started
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Set any key of the configuration, as KEY=VALUE; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, requires = "config")]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    /// How long things take.
    pub timing: TimingArgs,
}

const CHECK_HELP: &str = "\
With --config everything in the file is checked: keys, times, store, roles, commands, schedules, conditions of alerts,
certificates. Nothing is connected to and nothing is made; `tenure doctor` looks at the store itself. What is wrong is told
with its line, all at once, and the exit code is 2.

Example:
  tenure check --config /etc/tenure/tenure.toml && systemctl reload tenure-agent";

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

/// `tenure agent`
#[derive(Debug, Clone, Args)]
#[command(after_help = AGENT_HELP)]
pub struct AgentArgs {
    /// The configuration [default: tenure.toml here, or /etc/tenure/tenure.toml, if there is one]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Print the configuration that counts, each value with where it came from, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Set any key of the configuration, as KEY=VALUE; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub set: Vec<(String, String)>,
    /// This node's name
    #[arg(long, short, value_name = "NAME")]
    pub node: Option<Name>,
    /// A role to stand for, besides those of the file; may be given several times
    #[arg(long, short, value_name = "NAME")]
    pub role: Vec<Name>,
    /// An address to listen on, such as 127.0.0.1:7654
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// The Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
}

impl AgentArgs {
    /// What the flags say, by key.
    #[must_use]
    pub fn settings(&self, common: &Common) -> Vec<(String, String)> {
        let named = [
            ("node.name", self.node.as_ref().map(ToString::to_string)),
            ("http.listen", self.listen.clone()),
            ("http.socket", self.socket.clone()),
        ];
        let flags = named.into_iter().filter_map(|(path, value)| Some((path.to_owned(), value?)));
        // Numbered after any that a file can have.
        let role =
            |(index, name): (usize, &Name)| (format!("role[{}].name", 1_000_000 + index), name.to_string());
        let said = common.keys().into_iter().chain(flags);
        said.chain(self.role.iter().enumerate().map(role)).chain(self.set.iter().cloned()).collect()
    }
}

const AGENT_HELP: &str = "\
The file, then the environment, then the flags: the later wins. docs/agent.md lists every key. SIGHUP reads it again and
applies what can change while it runs; SIGTERM gives everything up and exits.

Example:
  tenure agent --role scheduler --listen 127.0.0.1:7654";

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

/// `tenure top`
#[derive(Debug, Clone, Copy, Args)]
pub struct TopArgs {
    /// Print one screen and exit; so does whatever is not a terminal
    #[arg(long)]
    pub once: bool,
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
    /// When, such as 2030-01-31T12:00:00Z; an agent keeps it in mind [default: at once]
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
}

/// `tenure pin`
#[derive(Debug, Clone, Args)]
pub struct PinArgs {
    /// The role
    pub role: Name,
    /// The node that alone may lead it; untied if not given
    #[arg(long, value_name = "NODE")]
    pub to: Option<Name>,
    /// Why; kept on record
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// `tenure alerts`
#[derive(Debug, Clone, Args)]
pub struct AlertsArgs {
    /// What to do about one; without it they are listed
    #[command(subcommand)]
    pub verb: Option<AlertsVerb>,
}

/// What to do about an alert.
#[derive(Debug, Clone, Subcommand)]
pub enum AlertsVerb {
    /// Somebody looks after it: it is not told again while it goes on
    Acknowledge(AlertArgs),
    /// It is over: those who were told hear that
    Resolve(AlertArgs),
    /// Let nobody be told of it for a while
    Silence(SilenceArgs),
    /// Let people be told of it again
    Unsilence(AlertArgs),
}

/// `tenure probe`
#[derive(Debug, Clone, Subcommand)]
pub enum ProbeVerb {
    /// Its election loop turns
    Live,
    /// It sees the store; never tied to leading
    Ready,
    /// Its node leads the role at this very moment
    Leader {
        /// The role
        role: Name,
    },
}

/// An alert.
#[derive(Debug, Clone, Args)]
pub struct AlertArgs {
    /// The alert
    pub alert: Name,
    /// Why; kept on record
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// `tenure alerts silence`
#[derive(Debug, Clone, Args)]
pub struct SilenceArgs {
    #[command(flatten)]
    /// Which, and why.
    pub alert: AlertArgs,
    /// For how long
    #[arg(long = "for", value_parser = duration, value_name = "TIME", default_value = "1h")]
    pub span: Duration,
}

/// `tenure drain`
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The node
    pub node: Name,
    /// Let it stand again
    #[arg(long)]
    pub undo: bool,
    /// Why; kept on record
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// `tenure eligible`
#[derive(Debug, Clone, Args)]
pub struct EligibleArgs {
    /// The role
    pub role: Name,
    /// Whether the node of the agent claims it
    #[arg(value_enum)]
    pub eligible: Switch,
    /// Why; kept on record
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It does.
    On,
    /// It does not.
    Off,
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

/// `tenure schema`
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// For which kind of store [default: that of --store, by its scheme]
    #[arg(long = "for", value_enum, value_name = "KIND")]
    pub kind: Option<StoreKind>,
    /// Print what fences need, for the database that the work writes to
    #[arg(long)]
    pub fence: bool,
    /// Who is to get the rights
    #[arg(long, default_value = "app", value_name = "NAME")]
    pub user: Name,
}

/// Kinds of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// SQLite, the embedded store.
    Sqlite,
    /// Redis and Valkey.
    Redis,
}

/// `tenure task`
#[derive(Debug, Clone, Args)]
pub struct TaskArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: TaskVerb,
}

/// What to do with tasks.
#[derive(Debug, Clone, Subcommand)]
pub enum TaskVerb {
    /// Show tasks: when they run, how they last went, and how often
    List(TaskListArgs),
    /// Show runs, and what was missed or skipped, with the reason
    History(TaskHistoryArgs),
    /// Run a task now, and wait until that run has ended
    Trigger(TaskAskArgs),
    /// Let the ticks of a task pass until it is resumed
    Pause(TaskAskArgs),
    /// Let a paused task run again
    Resume(TaskAskArgs),
}

/// `tenure task list`
#[derive(Debug, Clone, Args)]
pub struct TaskListArgs {
    /// Only these tasks
    pub tasks: Vec<Name>,
}

/// `tenure task history`
#[derive(Debug, Clone, Args)]
pub struct TaskHistoryArgs {
    /// Only this task
    pub task: Option<Name>,
    /// Show at most so many runs of each task
    #[arg(long, short = 'n', default_value = "20")]
    pub limit: std::num::NonZeroUsize,
}

/// `tenure task trigger`, `pause`, `resume`
#[derive(Debug, Clone, Args)]
pub struct TaskAskArgs {
    /// The task
    pub task: Name,
    /// Why; kept with the request
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
    /// How long to wait for it
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "30s")]
    pub wait: Duration,
}

/// `tenure peers`
#[derive(Debug, Clone, Subcommand)]
pub enum PeersVerb {
    /// Show the members of the group
    List,
    /// Make an address a member: it votes when it has caught up
    Add(PeerArgs),
    /// Make an address no member any more, whether it can be reached or not
    Remove(PeerArgs),
    /// Be the member that me=HOST:PORT names, and only store: it leads no role
    Serve,
}

/// `tenure peers add`, `remove`
#[derive(Debug, Clone, Args)]
pub struct PeerArgs {
    /// The member, as the URLs name it
    #[arg(value_name = "HOST:PORT")]
    pub address: String,
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
    /// Start a private server of this kind, and measure there; otherwise --store is used
    #[arg(long, value_enum)]
    pub private: Option<Private>,
    /// Plays the node that is killed
    #[arg(long, hide = true)]
    pub victim: bool,
}

/// `tenure torture`
#[derive(Debug, Clone, Args)]
#[command(after_help = TORTURE_HELP)]
pub struct TortureArgs {
    /// How many nodes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=20))]
    pub nodes: u8,
    /// For how long
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    pub minutes: f64,
    /// What to do to them: groups or single faults, separated by commas; `all` adds what destroys data
    #[arg(long, value_delimiter = ',', value_name = "FAULTS")]
    pub faults: Vec<String>,
    /// Do the same as another time [default: another one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Start a private server of this kind, and attack it too; otherwise --store is used and left alone
    #[arg(long, value_enum)]
    pub private: Option<Private>,
    /// How long a leader that falls silent keeps its role
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "2s")]
    pub ttl: Duration,
    /// What a leaderless time may last longer than the bound; what was measured to stand still is taken off anyway
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "1s")]
    pub allowance: Duration,
    /// Where to write the page [default: tenure-torture-SEED.html]
    #[arg(long, value_name = "FILE")]
    pub page: Option<std::path::PathBuf>,
    /// Append a row for docs/evidence.md to this file
    #[arg(long, value_name = "FILE")]
    pub evidence: Option<std::path::PathBuf>,
    /// Only show what would be done
    #[arg(long)]
    pub plan: bool,
    /// Print lines instead of a board
    #[arg(long)]
    pub no_tty: bool,
    /// Be one of the nodes; how, as JSON
    #[arg(long, hide = true)]
    pub member: Option<String>,
}

/// A server that is started for one torture or bench, and gone after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Private {
    /// The embedded store.
    Sqlite,
    /// Redis, durable.
    Redis,
    /// Redis with a replica and Sentinels: class C.
    RedisFailover,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mysql,
    /// Three members of a group of peers.
    Peers,
}

const TORTURE_HELP: &str = "\
Groups of faults: process, link, store, operator, clock, config (all of them by default), and destroy.
Ends with 1 if anything happened that must never happen. Nodes use a namespace of their own, `torture-SEED`.

Examples:
  tenure torture --private redis --minutes 2
  tenure torture --store postgres://app@db/app --faults process,link --minutes 60";

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
