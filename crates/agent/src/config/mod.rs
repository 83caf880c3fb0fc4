//! The configuration: TOML, then the environment, then flags; checked as a whole before anything starts.
//!
//! [`keys`] is the one table of keys; [`layers`] puts together what was said where; this file turns it into what the
//! agent runs on, and checks every relation. [`alias`] knows the settings of the designs that people come from.

mod alerts;
pub mod alias;
pub mod keys;
pub mod layers;
pub mod value;
pub mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::work::WorkMode as Migration;
use tenure::{Name, Takeover, Timing, TimingSettings};

use crate::Error;
use crate::alerts::rules::Alerting;
use crate::http::tokens::{Scope, Tokens};
use crate::outbound::{self, Outbound, Plain};
use crate::task::TaskConfig;
use layers::{GivenValue, Layers, Origin};
use value::Value;
use work::WorkConfig;

/// What the agent runs on.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store's URL. May hold a secret: never printed.
    pub store: String,
    /// Which cluster.
    pub namespace: Name,
    pub node: NodeConfig,
    /// Times, checked.
    pub settings: TimingSettings,
    /// What follows from them.
    pub timing: Timing,
    /// How long work may take to wind down.
    pub drain: Duration,
    /// How long a store that is not up yet is waited for; for ever if none is said.
    pub store_timeout: Option<Duration>,
    /// How a role is stood for when nothing else is said of it.
    pub candidacy: CandidacyConfig,
    /// How far leading goes when nothing else is said of a role.
    pub migration: Migration,
    pub roles: Vec<RoleConfig>,
    /// The tasks that every node runs.
    pub everywhere: Vec<TaskConfig>,
    pub http: HttpConfig,
    /// How others are called.
    pub outbound: Outbound,
    pub metrics: MetricsConfig,
    pub alerting: Alerting,
    /// Variables of ours that commands inherit all the same.
    pub pass_env: Vec<String>,
    /// What was translated from other designs.
    pub notices: Vec<String>,
    /// Every value that was given, by path.
    pub given: BTreeMap<String, GivenValue>,
}

#[derive(Debug, Clone)]
pub struct NodeConfig {
    pub name: Name,
    /// Where others reach it.
    pub address: Option<String>,
    /// What people say about it.
    pub labels: BTreeMap<String, String>,
    /// Whether each look at a role is told.
    pub election_checks: bool,
}

/// How a role is stood for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidacyConfig {
    /// Whether it is claimed.
    pub eligible: bool,
    /// Higher claims first.
    pub priority: i32,
    /// Whether a leader of lower priority is asked to hand over.
    pub preempt: bool,
    /// How long a free role is left to others.
    pub takeover_delay: Duration,
    /// How old a tenure must be to be handed over for the sake of priority.
    pub min_tenure: Duration,
    /// How long to stand back after the work failed; a ttl if none is said.
    pub cool_down: Option<Duration>,
    /// How long its work may take to wind down.
    pub drain: Duration,
    /// The labels that the node must have.
    pub requires: BTreeMap<String, String>,
}

/// A role that was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleConfig {
    pub name: Name,
    /// Who works.
    pub mode: Mode,
    /// How it is stood for.
    pub candidacy: CandidacyConfig,
    /// How far leading goes.
    pub migration: Migration,
    /// Only this node leads it.
    pub static_leader: Option<Name>,
    /// The URL of its guard lock. May hold a secret: never printed.
    pub guard: Option<String>,
    /// The commands that run while it is led, in the order in which they start.
    pub work: Vec<WorkConfig>,
    /// What its leader runs by the clock.
    pub tasks: Vec<TaskConfig>,
}

impl RoleConfig {
    /// A role about which nothing more is said.
    #[must_use]
    pub fn new(name: Name, mode: Mode, candidacy: CandidacyConfig) -> Self {
        let (work, tasks) = (Vec::new(), Vec::new());
        let (static_leader, guard) = (None, None);
        Self { name, mode, candidacy, migration: Migration::On, static_leader, guard, work, tasks }
    }

    /// Whether another form of it needs no other candidacy.
    #[must_use]
    pub fn stands_like(&self, other: &Self) -> bool {
        let off = |role: &Self| role.migration == Migration::Off;
        self.mode == other.mode && off(self) == off(other) && self.guard == other.guard
    }
}

/// Who works under a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The agent itself leads, for those who ask `/leader`.
    Hold,
    /// Clients campaign.
    Campaign,
}

#[derive(Debug, Clone)]
pub struct HttpConfig {
    pub socket: Option<PathBuf>,
    pub socket_mode: u32,
    /// Who may act through it, by user id.
    pub operators: Vec<u32>,
    pub listen: Vec<SocketAddr>,
    /// What clients on loopback addresses may do without tokens.
    pub loopback: Scope,
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Tokens, if any are needed.
    pub tokens: Option<Tokens>,
    /// The file they are in.
    pub token_file: Option<PathBuf>,
    /// Names of this agent.
    pub hosts: Vec<String>,
    /// The largest body.
    pub max_body: usize,
    /// Requests a second for each client.
    pub rate: u32,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// Wrong tokens a minute for each client, before it has to wait for each answer.
    pub auth_failures: u32,
    /// Open connections in all.
    pub connections: usize,
    /// Open connections of one client.
    pub connections_per_client: usize,
    /// Open streams in all.
    pub streams: usize,
    /// Open streams of one client.
    pub streams_per_client: usize,
    pub events_kept: usize,
}

#[derive(Debug, Clone)]
pub struct MetricsConfig {
    /// What names begin with.
    pub prefix: String,
    /// With more roles or tasks than this, metrics are not told for each.
    pub roles: usize,
}

impl Config {
    /// Reads the file, the environment and the flags.
    ///
    /// # Errors
    /// Everything that is wrong, one per line.
    pub fn load(sources: &Sources) -> Result<Self, Error> {
        let (file, here) = (sources.config_file(), Path::new("tenure.toml"));
        let mut config = Self::read(file.as_deref(), &sources.flags)?;
        if sources.file.is_none() && here.exists() {
            config
                .notices
                .push("tenure.toml in this directory is not read; name it with --config".to_owned());
        }
        Ok(config)
    }

    /// Reads this file, the environment and these flags.
    ///
    /// # Errors
    /// Everything that is wrong, one per line.
    pub fn read(file: Option<&Path>, flags: &[(String, String)]) -> Result<Self, Error> {
        let mut layers = Layers::default();
        if let Some(path) = file {
            let (bytes, found) = tenure::trust::read(path).map_err(Error::Invalid)?;
            layers.file(path, &String::from_utf8_lossy(&bytes));
            if tenure::trust::is_exposed(&found) {
                layers.refuse_secrets(path);
            }
        }
        layers.environment(|name| std::env::var(name).ok());
        for (path, text) in flags {
            layers.flag(path, text);
        }
        Self::of(layers).map_err(|errors| Error::Invalid(errors.join("\n  ")))
    }

    /// Checks what was said as a whole.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn of(layers: Layers) -> Result<Self, Vec<String>> {
        let mut reader =
            Reader { values: layers.values, errors: layers.errors, outbound: Outbound::default() };
        reader.outbound();
        let node = reader.node();
        let settings = reader.settings();
        let timing = reader.or_fault("timing", Timing::new(&settings));
        let drain = reader.span("timing.drain").unwrap_or(tenure::NodeBuilder::DEFAULT_DRAIN);
        let store_timeout = reader.span("timing.store-timeout");
        let candidacy =
            reader.candidacy("candidacy", &CandidacyConfig { drain, ..CandidacyConfig::default() });
        let migration = reader.migration("candidacy", Mode::Hold);
        let mut roles = reader.roles(&candidacy);
        let everywhere = reader.duties(&mut roles);
        let http = reader.http();
        let metrics = reader.metrics();
        let mut notices = layers.notices;
        let ttl = timing.as_ref().map_or(Timing::DEFAULT_TTL, |timing| timing.ttl);
        let alerting = reader.alerting(&metrics.prefix, ttl, &mut notices);
        let store = reader.store();
        let pass_env = reader.list("children.pass-env");
        let namespace = reader.name("namespace").unwrap_or_else(|| fixed(tenure::DEFAULT_NAMESPACE));
        match timing {
            Some(timing) if reader.errors.is_empty() => Ok(Self {
                store,
                namespace,
                node,
                settings,
                timing,
                drain,
                store_timeout,
                candidacy,
                migration,
                roles,
                everywhere,
                http,
                outbound: reader.outbound,
                metrics,
                alerting,
                pass_env,
                notices,
                given: reader.values,
            }),
            _ => Err(reader.errors),
        }
    }

    /// The configuration that counts, each key with where it came from.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut text = String::new();
        for notice in &self.notices {
            text.push_str(&format!("# {notice}\n"));
        }
        for key in keys::KEYS.iter().filter(|key| !key.path.contains('[')) {
            text.push_str(&self.shown(key.path, key.default));
        }
        for list in keys::lists() {
            let below = format!("{list}[].");
            for index in indices(self.given.keys(), list) {
                for key in keys::KEYS.iter().filter(|key| key.path.starts_with(&below)) {
                    let path = key.path.replacen("[]", &format!("[{index}]"), 1);
                    text.push_str(&self.shown(&path, key.default));
                }
            }
        }
        text
    }

    /// The store, without secrets.
    #[must_use]
    pub fn shown_store(&self) -> String {
        value::masked(&self.store)
    }

    fn shown(&self, path: &str, default: &str) -> String {
        match self.given.get(path) {
            Some(given) => format!("{path} = {}  # {}\n", given.value, given.origin),
            None => format!("# {path}: {default}  # {}\n", Origin::Default),
        }
    }

    /// What a reload from `self` to `new` cannot change, for people.
    #[must_use]
    pub fn fixed_differences(&self, new: &Self) -> Vec<String> {
        let paths = self.given.keys().chain(new.given.keys()).collect::<BTreeSet<_>>();
        let stays = |path: &&&String| {
            let reload = keys::find(path).is_some_and(|key| key.reload);
            let value = |config: &Self| config.given.get(**path).map(|given| given.value.clone());
            // What is said of a role that comes or goes comes and goes with it.
            let moved = path.starts_with("role[") && self.names() != new.names();
            !reload && !moved && value(self) != value(new)
        };
        paths.iter().filter(stays).map(|path| format!("{path} needs a restart to change")).collect()
    }

    /// The variables of the environment that hold secrets and are not ours by name.
    #[must_use]
    pub fn secret_variables(&self) -> Vec<String> {
        let named =
            self.given.iter().filter(|(path, _)| path.starts_with("notify[") && path.ends_with("-env"));
        let name = |(_, given): (&String, &GivenValue)| match &given.value {
            Value::Text(name) => Some(name.clone()),
            _ => None,
        };
        let of_store = tenure::store::secret_variables(&self.store).iter().map(ToString::to_string);
        named.filter_map(name).chain(of_store).collect()
    }

    fn names(&self) -> Vec<&Name> {
        self.roles.iter().map(|role| &role.name).collect()
    }
}

impl Default for CandidacyConfig {
    fn default() -> Self {
        Self {
            eligible: true,
            priority: 0,
            preempt: false,
            takeover_delay: Duration::ZERO,
            min_tenure: Duration::ZERO,
            cool_down: None,
            drain: tenure::NodeBuilder::DEFAULT_DRAIN,
            requires: BTreeMap::new(),
        }
    }
}

/// Where the configuration comes from, beside the environment.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file, if one was named.
    pub file: Option<PathBuf>,
    /// Keys and values from the command line, which win.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// The file that was named, or the one under /etc if there is one: a file that happens to lie in the working directory
    /// may be another user's.
    fn config_file(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from("/etc/tenure/tenure.toml")).filter(|path| path.exists());
        self.file.clone().or_else(usual)
    }
}

/// The numbers of those in a list that anything is said of.
fn indices<'a>(paths: impl Iterator<Item = &'a String>, list: &str) -> BTreeSet<usize> {
    let number = |path: &String| path.strip_prefix(list)?.strip_prefix('[')?.split(']').next()?.parse().ok();
    paths.filter_map(number).collect()
}

fn fixed(name: &str) -> Name {
    Name::new(name).expect("a fixed name is a name")
}

/// Reads values that fit their kinds, and gathers what does not fit together.
struct Reader {
    values: BTreeMap<String, GivenValue>,
    errors: Vec<String>,
    outbound: Outbound,
}

impl Reader {
    fn value(&self, path: &str) -> Option<&Value> {
        self.values.get(path).map(|given| &given.value)
    }

    fn text(&self, path: &str) -> Option<String> {
        match self.value(path)? {
            Value::Text(text) | Value::Secret(text) | Value::Hidden(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn name(&self, path: &str) -> Option<Name> {
        if let Value::Name(name) = self.value(path)? { Some(name.clone()) } else { None }
    }

    fn span(&self, path: &str) -> Option<Duration> {
        if let Value::Span(span) = self.value(path)? { Some(*span) } else { None }
    }

    fn truth(&self, path: &str) -> Option<bool> {
        if let Value::Bool(value) = self.value(path)? { Some(*value) } else { None }
    }

    fn number<T: TryFrom<i64>>(&self, path: &str, default: T) -> T {
        match self.value(path) {
            Some(Value::Int(number)) => T::try_from(*number).unwrap_or(default),
            _ => default,
        }
    }

    fn list(&self, path: &str) -> Vec<String> {
        if let Some(Value::List(items)) = self.value(path) { items.clone() } else { Vec::new() }
    }

    fn labels(&self, path: &str) -> Option<BTreeMap<String, String>> {
        if let Value::Labels(labels) = self.value(path)? { Some(labels.clone()) } else { None }
    }

    fn or_fault<T, E: std::fmt::Display>(&mut self, path: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.fault(path, &error.to_string())).ok()
    }

    /// Names what is wrong, and where it was written: at that very key, or where anything below it was first said.
    fn fault(&mut self, path: &str, why: &str) {
        let below = format!("{path}.");
        let first_below = || {
            let said = self.values.iter().filter(|(key, _)| key.starts_with(&below));
            said.map(|(_, given)| given).min_by_key(|given| given.origin.line())
        };
        let given = self.values.get(path).or_else(first_below);
        let origin = given.map_or(&Origin::Default, |given| &given.origin);
        self.errors.push(format!("{origin}: {path}: {why}"));
    }

    /// Where the registers are, as far as the URL tells: no server is asked, and no file is made.
    fn store(&mut self) -> String {
        let url = self.text("store").unwrap_or_else(|| "sqlite:".to_owned());
        if tenure::store::backend_for_url(&url).is_ok_and(|backend| backend.in_process) {
            let why = "cannot use memory: it lives in one process, so every agent would lead; name a store that all nodes reach";
            self.fault("store", why);
        } else if let Err(error) = tenure::store::check_url(&url) {
            let why = error.to_string();
            self.fault("store", why.strip_prefix("store: ").unwrap_or(&why));
        }
        url
    }

    fn node(&self) -> NodeConfig {
        let name = self.name("node.name").unwrap_or_else(|| fixed(&tenure::default_node_name()));
        let labels = self.labels("node.labels").unwrap_or_default();
        let election_checks = self.truth("node.election-checks").unwrap_or(false);
        NodeConfig { name, address: self.text("node.address"), labels, election_checks }
    }

    fn settings(&self) -> TimingSettings {
        let profile = match self.text("timing.profile").as_deref() {
            Some("fast") => Timing::FAST_TTL,
            Some("relaxed") => Timing::RELAXED_TTL,
            Some(_) => Timing::DEFAULT_TTL,
            None => tenure::store::default_ttl(self.text("store").as_deref().unwrap_or("sqlite:")),
        };
        let ttl = self.span("timing.ttl").unwrap_or(profile);
        let takeover = match self.text("timing.takeover").as_deref() {
            Some("on-disconnect") => Takeover::OnDisconnect,
            _ => Takeover::Strict,
        };
        let settings = TimingSettings {
            ttl: Some(ttl),
            beat: None,
            op_timeout: None,
            stop_grace: self.span("timing.stop-grace"),
            kill_slack: self.span("timing.kill-slack"),
            takeover,
            grace: self.span("timing.grace"),
            rate_error_ppm: self
                .value("timing.clock-error-ppm")
                .map(|_| self.number("timing.clock-error-ppm", 0)),
        };
        // An upper limit never makes longer what would have been shorter without it, as on disconnect.
        let usual = Timing::new(&settings).ok();
        let at_most = |path: &str, usual: Option<Duration>| {
            self.span(path).map(|limit| usual.map_or(limit, |usual| limit.min(usual)))
        };
        let beat = at_most("timing.beat-at-most", usual.as_ref().map(|timing| timing.beat));
        let op_timeout = at_most("timing.op-timeout-at-most", usual.as_ref().map(|timing| timing.op_timeout));
        TimingSettings {
            beat: self.span("timing.beat").or(beat),
            op_timeout: self.span("timing.op-timeout").or(op_timeout),
            ..settings
        }
    }

    fn candidacy(&self, at: &str, default: &CandidacyConfig) -> CandidacyConfig {
        let path = |key: &str| format!("{at}.{key}");
        CandidacyConfig {
            eligible: self.truth(&path("eligible")).unwrap_or(default.eligible),
            priority: self.number(&path("priority"), default.priority),
            preempt: self.truth(&path("preempt")).unwrap_or(default.preempt),
            takeover_delay: self.span(&path("takeover-delay")).unwrap_or(default.takeover_delay),
            min_tenure: self.span(&path("min-tenure")).unwrap_or(default.min_tenure),
            cool_down: self.span(&path("cool-down")).or(default.cool_down),
            drain: self.span(&path("drain")).unwrap_or(default.drain),
            requires: self.labels(&path("requires")).unwrap_or_else(|| default.requires.clone()),
        }
    }

    fn roles(&mut self, default: &CandidacyConfig) -> Vec<RoleConfig> {
        let (mut roles, mut known): (Vec<RoleConfig>, BTreeSet<Name>) = Default::default();
        for index in indices(self.values.keys(), "role") {
            let at = format!("role[{index}]");
            let Some(name) = self.name(&format!("{at}.name")) else {
                self.fault(&at, "every [[role]] needs a name");
                continue;
            };
            if tenure::operator::is_internal(&name) {
                self.fault(
                    &format!("{at}.name"),
                    "names that begin with `tenure.` are reserved for the agent",
                );
            }
            if !known.insert(name.clone()) {
                self.fault(&format!("{at}.name"), &format!("duplicate role {name}; list each role once"));
            }
            let mode = match self.text(&format!("{at}.mode")).as_deref() {
                Some("campaign") => Mode::Campaign,
                _ => Mode::Hold,
            };
            let role = RoleConfig::new(name, mode, self.candidacy(&at, default));
            let migration = self.migration(&at, mode);
            let static_leader = self.name(&format!("{at}.static-leader"));
            let guard = self.guard(&format!("{at}.guard"), migration);
            roles.push(RoleConfig { migration, static_leader, guard, ..role });
        }
        roles
    }

    /// The URL of a guard lock, which a shadow must not take: the programs that it would keep from working are at work.
    fn guard(&mut self, path: &str, migration: Migration) -> Option<String> {
        let url = self.text(path)?;
        let node = self.node().name;
        if migration == Migration::Shadow {
            self.fault(path, "a shadow takes no guard lock: remove this key, or set migration = \"on\"");
        } else if let Err(error) = tenure::guard::open(&url, &node) {
            let why = error.to_string();
            self.fault(path, why.strip_prefix("guard: ").unwrap_or(&why));
        }
        Some(url)
    }

    fn migration(&mut self, at: &str, mode: Mode) -> Migration {
        let path = format!("{at}.migration");
        match self.text(&path).or_else(|| self.text("candidacy.migration")).as_deref() {
            Some("off") => Migration::Off,
            Some("shadow") => {
                if mode == Mode::Campaign {
                    self.fault(
                        &path,
                        "shadow needs mode = \"hold\": clients would work as soon as they lead",
                    );
                }
                Migration::Shadow
            }
            _ => Migration::On,
        }
    }

    fn http(&mut self) -> HttpConfig {
        let mut listen = Vec::new();
        for text in self.list("http.listen") {
            match text.parse::<SocketAddr>() {
                Ok(address) => listen.push(address),
                Err(_) => self
                    .fault("http.listen", &format!("{text:?} is not ADDRESS:PORT, such as 127.0.0.1:7654")),
            }
        }
        let socket = match self.text("http.socket").as_deref() {
            Some("none") => None,
            Some(path) => Some(PathBuf::from(path)),
            None => Some(default_socket()),
        };
        let mode = self.text("http.socket-mode").unwrap_or_else(|| "0600".to_owned());
        let http = HttpConfig {
            socket,
            socket_mode: u32::from_str_radix(&mode, 8).unwrap_or(0o600),
            operators: self.operators(),
            loopback: match self.text("http.loopback").as_deref() {
                Some("operator") => Scope::Operator,
                _ => Scope::Read,
            },
            tls: self.tls(),
            tokens: self.tokens(),
            token_file: self.text("http.tokens").map(PathBuf::from),
            listen,
            hosts: self.list("http.hosts"),
            max_body: self.number("http.max-body", 65_536),
            rate: self.number("http.rate", 20_000),
            request_timeout: self.span("http.request-timeout").unwrap_or(Duration::from_secs(60)),
            auth_failures: self.number("http.auth-failures", 10),
            connections: self.number("http.connections", 8192),
            connections_per_client: self.number("http.connections-per-client", 2560),
            streams: self.number("http.streams", 4096),
            streams_per_client: self.number("http.streams-per-client", 2048),
            events_kept: self.number("http.events-kept", 4096),
        };
        self.check_exposure(&http);
        http
    }

    fn outbound(&mut self) {
        self.outbound = Outbound {
            same_origin: self.text("outbound.redirects").as_deref() == Some("same-origin"),
            proxy: self.text("outbound.proxy"),
            link_local: self.truth("outbound.link-local").unwrap_or(false),
        };
        let usable = self.outbound.check_proxy();
        self.or_fault("outbound.proxy", usable);
    }

    /// Whether this URL may be called; if not, it is a fault.
    fn callable(&mut self, path: &str, url: &str, plain: Plain) -> bool {
        let fits = outbound::parse(url).and_then(|url| self.outbound.check(&url, plain));
        self.or_fault(path, fits).is_some()
    }

    fn operators(&mut self) -> Vec<u32> {
        let named = self.list("http.operators");
        let ids: Vec<u32> = named.iter().filter_map(|id| id.parse().ok()).collect();
        if ids.len() < named.len() {
            self.fault("http.operators", "operators are user ids, as `id -u` prints them");
        }
        ids.into_iter().chain([0, rustix::process::getuid().as_raw()]).collect()
    }

    /// Half of it is an error: never fall back to plaintext.
    fn tls(&mut self) -> Option<(PathBuf, PathBuf)> {
        match (self.text("http.tls-cert"), self.text("http.tls-key")) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                let files = (PathBuf::from(cert), PathBuf::from(key));
                let well = crate::http::serve::acceptor(&files.0, &files.1);
                self.or_fault("http.tls-cert", well).map(|_| files)
            }
            (cert, _) => {
                let there = if cert.is_some() { "http.tls-cert" } else { "http.tls-key" };
                self.fault(there, "http.tls-cert and http.tls-key must be set together");
                None
            }
        }
    }

    fn tokens(&mut self) -> Option<Tokens> {
        let path = self.text("http.tokens")?;
        let read = Tokens::read(Path::new(&path));
        self.or_fault("http.tokens", read)
    }

    /// Beyond this host, no client talks to the agent in clear or without a token.
    fn check_exposure(&mut self, http: &HttpConfig) {
        let Some(open) = http.listen.iter().find(|address| !address.ip().is_loopback()) else { return };
        if http.tls.is_none() {
            self.fault(
                "http.listen",
                &format!("{open} is reachable from other hosts: set http.tls-cert and http.tls-key"),
            );
        }
        if http.tokens.is_none() {
            self.fault("http.listen", &format!("{open} is reachable from other hosts: set http.tokens"));
        }
    }

    fn metrics(&mut self) -> MetricsConfig {
        let prefix = self.text("metrics.prefix").unwrap_or_else(|| "tenure".to_owned());
        let fits =
            |(at, c): (usize, char)| c.is_ascii_alphabetic() || c == '_' || (at > 0 && c.is_ascii_digit());
        if prefix.is_empty() || !prefix.chars().enumerate().all(fits) {
            self.fault("metrics.prefix", "use letters, digits and _ only, and no digit first");
        }
        MetricsConfig { prefix, roles: self.number("metrics.roles", 1000) }
    }
}

/// Where an agent of this user listens, and where commands look for it.
#[must_use]
pub fn default_socket() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("RUNTIME_DIRECTORY")
        .or_else(|| variable("XDG_RUNTIME_DIR").map(|dir| dir.join("tenure")))
        .unwrap_or_else(|| match rustix::process::getuid().as_raw() {
            0 => PathBuf::from("/run/tenure"),
            // Not under /tmp, where any user could have put a socket of that name.
            _ => {
                variable("HOME").map_or_else(|| "/run/tenure".into(), |home| home.join(".local/state/tenure"))
            }
        });
    folder.join("agent.sock")
}

#[cfg(test)]
mod tests;
