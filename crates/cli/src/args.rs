//! The arguments of every command.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use tenure::Name;
use tenure_torture::attacked::{PRIVATE_SERVERS, PrivateServer};

/// Exactly one leader per role, on the store you already run.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 100, propagate_version = true, after_help = HELP)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
}

const HELP: &str = "\
Exit codes (those of `tenure run` are in its own help):
  0    success                             122  the store cannot be used
  1    the answer is no; stderr says why   123  any other failure
  2    usage error";

/// The help of `--store`, with the stores of this build.
fn store_help() -> String {
    let shared = tenure::store::BACKENDS.iter().filter(|backend| !backend.in_process);
    let urls: Vec<&str> = shared.map(|backend| backend.usage).collect();
    format!("URL of the store: {} [env: TENURE_STORE=] [default: sqlite:]", urls.join(", "))
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Common {
    #[arg(long, global = true, value_name = "URL", help = store_help())]
    pub store: Option<String>,
    /// The agent to query instead of a store: the path of a socket, or http://ADDRESS:PORT [env: TENURE_AGENT=]
    #[arg(long, global = true, value_name = "ADDRESS", conflicts_with = "store")]
    pub agent: Option<String>,
    /// Send `TENURE_AGENT_TOKEN` in clear text to an http:// agent on another host; the network can read it
    #[arg(long, global = true)]
    pub allow_plaintext_token: bool,
    /// Namespace: separates clusters that share a store [default: default]
    #[arg(long, global = true, env = "TENURE_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<Name>,
    /// Output format
    #[arg(long, global = true, value_enum, default_value_t = Format::Pretty)]
    pub format: Format,
}

impl Common {
    /// The given options, as keys of the configuration.
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

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Pretty,
    /// For programs; a stable interface.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command only while leading a role
    Run(RunArgs),
    /// Run the agent: one node for all programs of this host, with HTTP API, metrics and dashboard
    Agent(Box<AgentArgs>),
    /// Show the leader of each role, and the next candidates
    Status(StatusArgs),
    /// Show the nodes
    Nodes,
    /// Show past tenures: when they began and ended, and why
    History(HistoryArgs),
    /// Print a line whenever something changes
    Watch(WatchArgs),
    /// Show roles, nodes, a timeline and events on one live screen
    Top(TopArgs),
    /// Transfer a role to a node, and wait until that node leads
    Transfer(TransferArgs),
    /// Make the leader of a role give it up
    StepDown(AskArgs),
    /// Pause a role: no node leads it until it is resumed
    Pause(AskArgs),
    /// Resume a paused role
    Resume(AskArgs),
    /// Show scheduled tasks; trigger, pause or resume one
    Task(TaskArgs),
    /// Hide a role without candidates from status, metrics and alerts
    Forget(ForgetArgs),
    /// Pin a role to a node, or unpin it
    Pin(PinArgs),
    /// Drain a node: it gives up its roles and claims none
    Drain(DrainArgs),
    /// Set whether the node of an agent claims a role
    Eligible(EligibleArgs),
    /// Show alerts; acknowledge, resolve or silence one
    Alerts(AlertsArgs),
    /// Show the audit trail: what operators did, and why
    Audit,
    /// Probe an agent: alive, ready, or leading a role; exit code 0 or 1
    #[command(subcommand)]
    Probe(ProbeVerb),
    /// Validate settings or a configuration file, and print the bounds that follow
    Check(CheckArgs),
    /// Examine the store: which guarantee it gives, and what is wrong with it
    Doctor,
    /// List unreadable registers; repair them with --yes
    Repair(crate::verbs::repair::RepairArgs),
    /// Print the tables and the minimal grants of a store or a fence; no server is contacted
    Schema(SchemaArgs),
    /// List, add or remove members of a group of peers
    #[command(subcommand)]
    Peers(crate::verbs::peers::PeersVerb),
    /// Watch three nodes elect, fail and recover, on this machine
    Demo(DemoArgs),
    /// Measure hand-over, fail-over and cost on this machine
    Bench(crate::bench::BenchArgs),
    /// Attack nodes and their store, and check every guarantee
    Torture(TortureArgs),
    /// Print shell completions
    Completions(CompletionArgs),
    /// Print the manual page
    Man,
    /// Print names of roles, nodes or tasks, for shell completions
    #[command(hide = true)]
    Names {
        /// Which names
        #[arg(value_enum)]
        of: Names,
    },
}

/// Kinds of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Names {
    /// Roles.
    Roles,
    /// Nodes.
    Nodes,
    /// Tasks.
    Tasks,
}

/// Timing options.
#[derive(Debug, Clone, Default, Args)]
pub struct TimingArgs {
    /// Lease duration: a leader that stops renewing is replaced after this time [default: 5s; object storage 20s]
    #[arg(long, value_parser = duration, value_name = "TIME", env = "TENURE_TTL")]
    pub ttl: Option<Duration>,
    /// When others may take over after this node's store connection drops [default: strict]
    #[arg(long, value_enum, env = "TENURE_TAKEOVER")]
    pub takeover: Option<Takeover>,
    /// With on-disconnect: how long a connection may be down before the roles are free [default: ttl/2]
    #[arg(long, value_parser = duration, value_name = "TIME", env = "TENURE_GRACE")]
    pub grace: Option<Duration>,
    /// How often a leader renews its session [default: ttl/4; on disconnect grace/10]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub beat: Option<Duration>,
    /// Timeout of a store operation [default: ttl/5; on disconnect grace/6]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub op_timeout: Option<Duration>,
    /// Stop the work this long before the lease ends [default: ttl/5]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub stop_grace: Option<Duration>,
    /// Kill work that has not stopped this long before the lease ends [default: ttl/50]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub kill_slack: Option<Duration>,
}

/// What a dropped store connection means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Takeover {
    /// When the lease ends: a dropped connection changes nothing
    #[default]
    Strict,
    /// The roles are free after the grace period; PostgreSQL and MySQL only
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
    /// As the library takes it, for nodes on the store that a URL names.
    #[must_use]
    pub fn settings(&self, store: &str) -> tenure::TimingSettings {
        tenure::TimingSettings {
            ttl: self.ttl.or_else(|| Some(tenure::store::default_ttl(store))),
            beat: self.beat,
            op_timeout: self.op_timeout,
            stop_grace: self.stop_grace,
            kill_slack: self.kill_slack,
            takeover: self.takeover.unwrap_or_default().into(),
            grace: self.grace,
            ..tenure::TimingSettings::default()
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
    /// Configuration file of an agent; it is read as the agent reads it, and nothing is started
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Set a key of the configuration; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, requires = "config")]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    /// Timing options.
    pub timing: TimingArgs,
}

const CHECK_HELP: &str = "\
With --config everything in the file is checked: keys, times, store, roles, commands, schedules, alert conditions, \
certificates. No connection is opened and no file is created; `tenure doctor` examines the store itself. All errors are \
printed at once, each with its line, and the exit code is 2.

Example:
  tenure check --config /etc/tenure/tenure.toml && systemctl reload tenure-agent";

/// `tenure run`
#[derive(Debug, Clone, Args)]
#[command(after_help = RUN_HELP)]
pub struct RunArgs {
    /// The role to lead
    #[arg(long, short, value_name = "NAME")]
    pub role: Name,
    /// Name of this node; one live process may use it [default: HOST-PID]
    #[arg(long, short, value_name = "NAME")]
    pub node: Option<Name>,
    /// Address of this node, shown to clients that look up the leader
    #[arg(long, value_name = "TEXT")]
    pub address: Option<String>,
    /// A label of this node; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Candidates of higher priority claim first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Take the role over from a leader of lower priority
    #[arg(long)]
    pub preempt: bool,
    /// Wait this long before claiming a vacant role
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "0s")]
    pub takeover_delay: Duration,
    /// Do not hand over to a higher priority before a tenure is this old
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "0s")]
    pub min_tenure: Duration,
    /// Hold this lock of another system too while the command runs: kubernetes:NAMESPACE/LEASE or etcd://HOST/ELECTION
    #[arg(long, value_name = "URL")]
    pub guard: Option<String>,
    #[command(flatten)]
    /// Timing options.
    pub timing: TimingArgs,
    /// How long the command may take to end after SIGTERM, if the lease does not end first
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "10s")]
    pub drain: Duration,
    /// What to do when the command ends by itself
    #[arg(long, value_enum, default_value_t = Restart::Never)]
    pub restart: Restart,
    /// Wait this long before campaigning again after the command ended; twice as long after each further failure, up to 1m [default: ttl]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub cool_down: Option<Duration>,
    /// Exit if not elected within this time
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub wait: Option<Duration>,
    /// Exit if the store has not answered within this time [default: wait forever]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub store_timeout: Option<Duration>,
    /// Exit after leadership was lost, instead of campaigning again
    #[arg(long)]
    pub once: bool,
    /// A TENURE_ variable that the command inherits too; repeatable
    #[arg(long, value_name = "NAME")]
    pub pass_env: Vec<String>,
    /// Print nothing about the election on stderr
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
    /// Configuration file [default: /etc/tenure/tenure.toml, if it exists]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Print the effective configuration, each value with its source, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Set a key of the configuration; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub set: Vec<(String, String)>,
    /// Name of this node
    #[arg(long, short, value_name = "NAME")]
    pub node: Option<Name>,
    /// A role to campaign for, besides those of the file; repeatable
    #[arg(long, short, value_name = "NAME")]
    pub role: Vec<Name>,
    /// Address to listen on, such as 127.0.0.1:7654
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub socket: Option<String>,
}

impl AgentArgs {
    /// The given options, by key.
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
The file, then the environment, then the flags: the later wins. docs/reference/configuration.md lists every key. SIGHUP \
reloads the configuration and applies what can change at run time; SIGTERM resigns every role and exits.

Example:
  tenure agent --role scheduler --listen 127.0.0.1:7654";

/// When to run the command again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Restart {
    /// Resign and exit with its code
    Never,
    /// Campaign again if it failed
    OnFailure,
    /// Campaign again
    Always,
}

const RUN_HELP: &str = "\
The command gets its own process group, this terminal, every signal, and TENURE_ROLE, \
TENURE_NODE, TENURE_TOKEN and TENURE_SESSION in its environment, and no other TENURE_ variable \
unless --pass-env names it. It never outlives the lease: a second process, its watchdog, kills it \
in time even if tenure itself is killed or frozen.

Exit codes: the command's own, or 128 + the signal that ended it
  2    usage error                     120  not elected within --wait
  126  the command cannot be executed  121  leadership was lost, and --once was given
  127  command not found               122  the store cannot be used
                                       123  any other failure

Example:
  tenure run --role scheduler -- python3 worker.py";

/// `tenure status`
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Only these roles
    pub roles: Vec<Name>,
    /// Exit with 1 unless every role shown has a live leader
    #[arg(long)]
    pub require_leader: bool,
}

/// `tenure history`
#[derive(Debug, Clone, Args)]
pub struct HistoryArgs {
    /// Only this role
    pub role: Option<Name>,
    /// Show at most this many tenures of each role
    #[arg(long, short = 'n', default_value = "20", value_parser = at_least_one)]
    pub limit: std::num::NonZeroUsize,
}

/// `tenure watch`
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// Only these roles
    pub roles: Vec<Name>,
    /// Stop after this many lines
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// `tenure top`
#[derive(Debug, Clone, Copy, Args)]
pub struct TopArgs {
    /// Print one screen and exit; the default without a terminal
    #[arg(long)]
    pub once: bool,
}

/// `tenure transfer`
#[derive(Debug, Clone, Args)]
pub struct TransferArgs {
    /// The role
    pub role: Name,
    /// The node to transfer the role to
    #[arg(long, value_name = "NODE")]
    pub to: Name,
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
    /// How long to wait for the outcome
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "30s")]
    pub wait: Duration,
    /// Transfer at this time, such as 2030-01-31T12:00:00Z; needs an agent [default: at once]
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
}

/// `tenure pin`
#[derive(Debug, Clone, Args)]
pub struct PinArgs {
    /// The role
    pub role: Name,
    /// The only node that may lead the role; without it the role is unpinned
    #[arg(long, value_name = "NODE")]
    pub to: Option<Name>,
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// `tenure alerts`
#[derive(Debug, Clone, Args)]
pub struct AlertsArgs {
    /// What to do with an alert; without it all are listed
    #[command(subcommand)]
    pub verb: Option<AlertsVerb>,
}

/// What to do with an alert.
#[derive(Debug, Clone, Subcommand)]
pub enum AlertsVerb {
    /// Acknowledge an alert: no further notifications while it fires
    Acknowledge(AlertArgs),
    /// Resolve an alert by hand: its recipients are notified
    Resolve(AlertArgs),
    /// Silence an alert: no notifications for a time
    Silence(SilenceArgs),
    /// End the silence of an alert
    Unsilence(AlertArgs),
}

/// `tenure probe`
#[derive(Debug, Clone, Subcommand)]
pub enum ProbeVerb {
    /// The agent works: its election loop runs
    Live,
    /// The agent reaches its store; independent of leadership
    Ready,
    /// The node of the agent leads the role now
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
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// `tenure alerts silence`
#[derive(Debug, Clone, Args)]
pub struct SilenceArgs {
    #[command(flatten)]
    /// The alert, and the reason.
    pub alert: AlertArgs,
    /// Duration of the silence
    #[arg(long = "for", value_parser = duration, value_name = "TIME", default_value = "1h")]
    pub span: Duration,
}

/// `tenure drain`
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The node
    pub node: Name,
    /// End the drain: the node claims roles again
    #[arg(long)]
    pub undo: bool,
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// `tenure eligible`
#[derive(Debug, Clone, Args)]
pub struct EligibleArgs {
    /// The role
    pub role: Name,
    /// Whether the node claims the role
    #[arg(value_enum)]
    pub eligible: Switch,
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// The node claims the role
    On,
    /// The node does not claim the role
    Off,
}

/// `tenure step-down`, `pause`, `resume`
#[derive(Debug, Clone, Args)]
pub struct AskArgs {
    /// The role
    pub role: Name,
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
    /// How long to wait for the outcome
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "30s")]
    pub wait: Duration,
}

/// `tenure forget`
#[derive(Debug, Clone, Args)]
pub struct ForgetArgs {
    /// The role
    pub role: Name,
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
}

/// `tenure schema`
#[derive(Debug, Clone, Args)]
pub struct SchemaArgs {
    /// Kind of store [default: by the scheme of --store]
    #[arg(long = "for", value_parser = stores_to_set_up(), value_name = "KIND")]
    pub kind: Option<String>,
    /// Print the tables of fences, for the database that the work writes to
    #[arg(long)]
    pub fence: bool,
    /// The user to grant the rights to
    #[arg(long, default_value = "app", value_name = "NAME")]
    pub user: Name,
}

/// The kinds of store that the registry of this build knows something to set up for.
fn stores_to_set_up() -> PossibleValuesParser {
    let product = |name: &str| tenure::store::BACKENDS.iter().find(|backend| backend.name == name);
    PossibleValuesParser::new(tenure::schema::stores().into_iter().map(move |name| {
        let value = PossibleValue::new(name);
        product(name).map_or(value.clone(), |backend| value.help(backend.product))
    }))
}

/// `tenure task`
#[derive(Debug, Clone, Args)]
pub struct TaskArgs {
    /// The command.
    #[command(subcommand)]
    pub verb: TaskVerb,
}

/// What to do with tasks.
#[derive(Debug, Clone, Subcommand)]
pub enum TaskVerb {
    /// Show tasks: schedule, last run, totals
    List(TaskListArgs),
    /// Show runs, and missed or skipped ticks, with the reason
    History(TaskHistoryArgs),
    /// Run a task now, and wait for the end of the run
    Trigger(TaskAskArgs),
    /// Pause a task: its ticks are skipped until it is resumed
    Pause(TaskAskArgs),
    /// Resume a paused task
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
    /// Show at most this many runs of each task
    #[arg(long, short = 'n', default_value = "20", value_parser = at_least_one)]
    pub limit: std::num::NonZeroUsize,
}

/// `tenure task trigger`, `pause`, `resume`
#[derive(Debug, Clone, Args)]
pub struct TaskAskArgs {
    /// The task
    pub task: Name,
    /// Reason, kept in the audit trail
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub why: String,
    /// How long to wait for the outcome
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "30s")]
    pub wait: Duration,
}

/// `tenure demo`
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Stop after this many seconds [default: 20 without a terminal, when you press q on one]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Run until interrupted, also without a terminal
    #[arg(long, conflicts_with = "seconds")]
    pub forever: bool,
    /// Print lines instead of a board
    #[arg(long)]
    pub no_tty: bool,
    /// Number of nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    pub nodes: u8,
    /// Run one of the demo's nodes, under this name
    #[arg(long, hide = true, requires = "dir")]
    pub member: Option<Name>,
    /// Directory of the demo
    #[arg(long, hide = true, requires = "member")]
    pub dir: Option<std::path::PathBuf>,
}

/// `tenure torture`
#[derive(Debug, Clone, Args)]
#[command(after_help = TORTURE_HELP)]
pub struct TortureArgs {
    /// Number of nodes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=20))]
    pub nodes: u8,
    /// Duration in minutes
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    pub minutes: f64,
    /// Faults or groups of faults, separated by commas; `all` adds those that destroy data
    #[arg(long, value_delimiter = ',', value_name = "FAULTS")]
    pub faults: Vec<String>,
    /// Repeat the plan of an earlier run [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Start a private server of this kind, and attack it too; otherwise --store is used and left alone
    #[arg(long, value_name = "KIND", value_parser = private_server())]
    pub private: Option<&'static PrivateServer>,
    /// Lease duration of the nodes
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "2s")]
    pub ttl: Duration,
    /// How much longer than the fail-over bound a role may be without a leader, on a busy machine
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "1s")]
    pub allowance: Duration,
    /// File for the HTML report [default: tenure-torture-SEED.html]
    #[arg(long, value_name = "FILE")]
    pub page: Option<std::path::PathBuf>,
    /// Append a row for docs/evidence.md to this file
    #[arg(long, value_name = "FILE")]
    pub evidence: Option<std::path::PathBuf>,
    /// Print the plan and exit
    #[arg(long)]
    pub plan: bool,
    /// Print lines instead of a board
    #[arg(long)]
    pub no_tty: bool,
    /// Run one of the nodes, with these options as JSON
    #[arg(long, hide = true)]
    pub member: Option<String>,
}

/// The kinds of private servers whose store this binary has.
pub(crate) fn private_server() -> impl TypedValueParser<Value = &'static PrivateServer> {
    let kinds = PRIVATE_SERVERS.iter().filter(|server| server.is_in_this_build());
    let kinds = kinds.map(|server| PossibleValue::new(server.name).help(server.about));
    PossibleValuesParser::new(kinds)
        .map(|name| PrivateServer::find(&name).expect("a possible value is in the table"))
}

const TORTURE_HELP: &str = "\
Groups of faults: process, link, store, operator, clock, config, neighbour (all of them by default), and destroy. \
Exit code 1 if a guarantee was violated. The nodes use a namespace of their own, `torture-SEED`.

Examples:
  tenure torture --private redis --minutes 2
  tenure torture --store postgres://app@db/app --faults process,link --minutes 60";

/// `tenure completions`
#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// A number of things to show.
fn at_least_one(text: &str) -> Result<std::num::NonZeroUsize, String> {
    text.parse().map_err(|_| "give a number of at least 1".to_owned())
}

/// `5s`, `500ms`, `1m 30s`; a number without a unit is refused.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; use a time such as 500ms, 5s or 1m"))
}

fn label(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(key, _)| !key.is_empty());
    split.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or("use KEY=VALUE".to_owned())
}
