//! Every key of the configuration, in one table: the parser, the environment, `--print-config` and the documentation
//! all read it.

use super::value::ValueKind;

#[derive(Debug)]
pub struct Key {
    /// Where it stands in the file; `[]` marks a list of tables.
    pub path: &'static str,
    /// What it holds.
    pub kind: ValueKind,
    /// What holds without it, as people read it.
    pub default: &'static str,
    /// Whether a reload (SIGHUP) applies a change.
    pub reload: bool,
    pub meaning: &'static str,
}

const fn key(path: &'static str, kind: ValueKind, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: false, meaning }
}

const fn live(path: &'static str, kind: ValueKind, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: true, meaning }
}

/// Every key.
pub const KEYS: &[Key] = &[
    key("store", ValueKind::Secret, "sqlite:", "URL of the store; see docs/stores"),
    key("namespace", ValueKind::Name, "default", "separates clusters that share a store"),
    key("node.name", ValueKind::Name, "HOST-PID", "name of this node; one live process may use it"),
    key(
        "node.address",
        ValueKind::Text,
        "none",
        "address of this node, shown to clients that look up the leader",
    ),
    key("node.labels", ValueKind::Labels, "none", "labels of this node; roles may require some"),
    key(
        "node.election-checks",
        ValueKind::Bool,
        "false",
        "send an `election-check` event for each role with every beat; for few roles",
    ),
    key(
        "timing.profile",
        ValueKind::Choice(&["default", "fast", "relaxed"]),
        "default",
        "a ttl of 5s, 2s or 15s, from which everything else follows; without a profile it is 20s on object storage",
    ),
    key(
        "timing.ttl",
        ValueKind::Span,
        "of the profile",
        "lease duration: a leader that stops renewing is replaced after this time",
    ),
    key(
        "timing.beat",
        ValueKind::Span,
        "ttl/4",
        "how often a leader renews its session; a standby may rest longer",
    ),
    key("timing.beat-at-most", ValueKind::Span, "none", "upper limit of the beat"),
    key("timing.op-timeout", ValueKind::Span, "ttl/5", "timeout of a store operation"),
    key("timing.op-timeout-at-most", ValueKind::Span, "none", "upper limit of op-timeout"),
    key("timing.stop-grace", ValueKind::Span, "ttl/5", "work is stopped this long before the lease ends"),
    key(
        "timing.kill-slack",
        ValueKind::Span,
        "ttl/50",
        "work that has not stopped is killed this long before the lease ends",
    ),
    key(
        "timing.takeover",
        ValueKind::Choice(&["strict", "on-disconnect"]),
        "strict",
        "what a dropped store connection means for this node's roles; see docs/stores",
    ),
    key(
        "timing.grace",
        ValueKind::Span,
        "ttl/2",
        "with on-disconnect: how long a connection may be down before the roles are free",
    ),
    key(
        "timing.clock-error-ppm",
        ValueKind::Int(0, 199_999),
        "10000",
        "bound on the rate error of this node's clock",
    ),
    key(
        "timing.drain",
        ValueKind::Span,
        "10s",
        "how long work may take to stop, if the lease does not end first",
    ),
    key(
        "timing.store-timeout",
        ValueKind::Span,
        "none",
        "the agent exits if the store has not answered within this time; without it the agent waits forever",
    ),
    live(
        "candidacy.eligible",
        ValueKind::Bool,
        "true",
        "whether this node claims roles; default for every role",
    ),
    live(
        "candidacy.priority",
        ValueKind::Int(-1_000_000, 1_000_000),
        "0",
        "candidates of higher priority claim first; default for every role",
    ),
    key(
        "candidacy.preempt",
        ValueKind::Bool,
        "false",
        "takes roles over from leaders of lower priority; default for every role",
    ),
    key(
        "candidacy.takeover-delay",
        ValueKind::Span,
        "0s",
        "waits this long before claiming a vacant role; default for every role",
    ),
    key(
        "candidacy.min-tenure",
        ValueKind::Span,
        "0s",
        "no hand-over to a higher priority before a tenure is this old",
    ),
    key(
        "candidacy.cool-down",
        ValueKind::Span,
        "ttl",
        "wait this long before campaigning again after the work failed; twice as long after each further failure, up to 1m",
    ),
    key(
        "candidacy.requires",
        ValueKind::Labels,
        "none",
        "campaigns only if the node has these labels; default for every role",
    ),
    live(
        "candidacy.migration",
        ValueKind::Choice(&["off", "on"]),
        "on",
        "off: this node is a candidate for no role that does not say otherwise",
    ),
    live(
        "role[].name",
        ValueKind::Name,
        "required",
        "a role to campaign for; a reload may add and remove roles",
    ),
    live("role[].eligible", ValueKind::Bool, "candidacy.eligible", "whether this node claims it"),
    live(
        "role[].priority",
        ValueKind::Int(-1_000_000, 1_000_000),
        "candidacy.priority",
        "higher claims first",
    ),
    key(
        "role[].preempt",
        ValueKind::Bool,
        "candidacy.preempt",
        "takes the role over from a leader of lower priority",
    ),
    key(
        "role[].takeover-delay",
        ValueKind::Span,
        "candidacy.takeover-delay",
        "waits this long before claiming the vacant role",
    ),
    key(
        "role[].min-tenure",
        ValueKind::Span,
        "candidacy.min-tenure",
        "no hand-over to a higher priority before a tenure is this old",
    ),
    key(
        "role[].cool-down",
        ValueKind::Span,
        "candidacy.cool-down",
        "wait this long before campaigning again after the work failed; twice as long after each further failure, up to 1m",
    ),
    key("role[].drain", ValueKind::Span, "timing.drain", "how long its work may take to stop"),
    key(
        "role[].requires",
        ValueKind::Labels,
        "candidacy.requires",
        "campaigns only if the node has these labels",
    ),
    key(
        "role[].mode",
        ValueKind::Choice(&["hold", "campaign"]),
        "hold",
        "hold: the agent leads it itself, for /leader; campaign: the agent is a candidate only while a client campaigns",
    ),
    key(
        "role[].guard",
        ValueKind::Secret,
        "none",
        "URL of a guard lock: a lock of another system to hold too while leading; see docs/guides/migrate.md",
    ),
    live(
        "role[].migration",
        ValueKind::Choice(&["off", "shadow", "on"]),
        "candidacy.migration",
        "off: this node is no candidate; shadow: it elects and records, and runs nothing; on: it runs its work and tasks",
    ),
    live(
        "role[].static-leader",
        ValueKind::Name,
        "none",
        "only this node may lead it, without an election among nodes; for single-node setups and migrations",
    ),
    live(
        "work[].name",
        ValueKind::Name,
        "required",
        "a command that runs while a role is led; see docs/guides/work.md",
    ),
    live("work[].role", ValueKind::Name, "the only role", "the role under which it runs"),
    live("work[].command", ValueKind::Command, "required", "the program and its arguments"),
    live("work[].order", ValueKind::Int(-1000, 1000), "0", "lower starts first, then the order in the file"),
    live(
        "work[].restart",
        ValueKind::Choice(&["always", "on-failure", "never"]),
        "always",
        "when it is restarted; a command that fails and is not restarted ends the tenure",
    ),
    live("work[].backoff", ValueKind::Span, "100ms", "delay before the first restart; it doubles each time"),
    live(
        "work[].max-restarts",
        ValueKind::Int(0, 1_000_000),
        "3",
        "restarts within the window; one more ends the tenure",
    ),
    live("work[].window", ValueKind::Span, "1m", "the window"),
    live(
        "work[].ready-within",
        ValueKind::Span,
        "none",
        "deadline for the first successful health check; later commands wait for it",
    ),
    live(
        "work[].drain",
        ValueKind::Span,
        "the role's",
        "time between SIGTERM and SIGKILL, if the lease does not end first",
    ),
    live("work[].health.command", ValueKind::Command, "none", "health check: a command that exits with 0"),
    live("work[].health.http", ValueKind::Secret, "none", "health check: a URL that answers a GET with 2xx"),
    live("work[].health.every", ValueKind::Span, "10s", "interval of the health check"),
    live("work[].health.within", ValueKind::Span, "health.every", "timeout of the health check"),
    live("work[].health.failures", ValueKind::Int(1, 1000), "3", "consecutive failures that end the tenure"),
    live(
        "task[].name",
        ValueKind::Name,
        "required",
        "name of a scheduled task, unique in the namespace; see docs/guides/schedules.md",
    ),
    live("task[].role", ValueKind::Name, "the only role", "whose leader runs it"),
    live(
        "task[].where",
        ValueKind::Choice(&["leader", "every-node"]),
        "leader",
        "every-node: each agent runs every tick, with a ledger of its own",
    ),
    live(
        "task[].cron",
        ValueKind::Text,
        "none",
        "when it runs: five fields, or six with seconds first, or @hourly and the like; this or every",
    ),
    live(
        "task[].every",
        ValueKind::Span,
        "none",
        "when it runs: an interval, counted from 1970 in UTC; this or cron",
    ),
    live("task[].zone", ValueKind::Text, "UTC", "the time zone of cron, such as Europe/Vienna"),
    live("task[].timeout", ValueKind::Span, "none", "how long a run may take"),
    live(
        "task[].overlap",
        ValueKind::Choice(&["skip", "queue", "allow"]),
        "skip",
        "what happens to a tick that comes while the previous run goes on",
    ),
    live(
        "task[].jitter",
        ValueKind::Span,
        "0s",
        "random delay of the start, different for each task and tick",
    ),
    live("task[].late", ValueKind::Span, "1s", "a tick that has not started after this time is missed"),
    live(
        "task[].catch-up",
        ValueKind::Int(0, 10_000),
        "1",
        "how many missed ticks are caught up, the newest",
    ),
    live(
        "task[].rerun",
        ValueKind::Bool,
        "false",
        "whether the next leader repeats a run that was interrupted by a crash",
    ),
    live("task[].retries", ValueKind::Int(0, 1000), "0", "retries of a failed run under the same tick"),
    live("task[].backoff", ValueKind::Span, "1s", "delay before the first retry; it doubles each time"),
    live(
        "task[].on-stop",
        ValueKind::Choice(&["finish", "cancel"]),
        "finish",
        "what happens to a run when its leader must stop: it may finish within the drain time, or is cancelled at once",
    ),
    live("task[].history", ValueKind::Int(1, 200), "20", "number of runs kept in the ledger"),
    live("task[].command", ValueKind::Command, "none", "the program and its arguments; this or http"),
    live("task[].http.url", ValueKind::Secret, "none", "the URL it calls; this or command"),
    live("task[].http.method", ValueKind::Text, "POST", "how"),
    live("task[].http.headers", ValueKind::Headers, "none", "additional headers; never printed"),
    live("task[].http.body", ValueKind::Hidden, "empty", "the body; never printed"),
    key(
        "http.socket",
        ValueKind::Text,
        "agent.sock in the runtime directory",
        "the Unix socket; `none` for none",
    ),
    key(
        "http.socket-mode",
        ValueKind::Choice(&["0600", "0660", "0666"]),
        "0600",
        "permissions of the socket",
    ),
    key(
        "http.operators",
        ValueKind::List,
        "root and the agent's own user",
        "user ids that may act through the socket",
    ),
    key(
        "http.listen",
        ValueKind::List,
        "none",
        "addresses such as 127.0.0.1:7654; other than loopback, TLS and tokens are required",
    ),
    key(
        "http.loopback",
        ValueKind::Choice(&["read", "operator"]),
        "read",
        "what clients on loopback addresses may do without tokens; every user of this host is such a client",
    ),
    key(
        "http.tls-cert",
        ValueKind::Text,
        "none",
        "certificates of the listener, PEM; a reload reads them again",
    ),
    key(
        "http.tls-key",
        ValueKind::Text,
        "none",
        "private key of the listener, PEM; a reload reads it again; readable by its owner only",
    ),
    key(
        "http.tokens",
        ValueKind::Text,
        "none",
        "file of lines `read NAME TOKEN` and `operator NAME TOKEN`; a reload reads it again; readable by its owner only",
    ),
    key(
        "http.hosts",
        ValueKind::List,
        "none",
        "host names of the agent, besides its addresses and localhost",
    ),
    key("http.max-body", ValueKind::Int(1, 16_777_216), "65536", "the largest request body, in bytes"),
    key(
        "http.rate",
        ValueKind::Int(1, 1_000_000),
        "20000",
        "requests per second of one client: a user of the socket, a token, or an address; probes are not counted",
    ),
    key(
        "http.request-timeout",
        ValueKind::Span,
        "60s",
        "timeout of a request; its headers have a sixth of it",
    ),
    key(
        "http.auth-failures",
        ValueKind::Int(1, 1_000_000),
        "10",
        "wrong tokens per minute of one address; further ones are answered with a delay",
    ),
    key(
        "http.connections",
        ValueKind::Int(1, 1_000_000),
        "8192",
        "open connections in total, or fewer if the system allows too few open files",
    ),
    key(
        "http.connections-per-client",
        ValueKind::Int(1, 1_000_000),
        "2560",
        "open connections of one client: a user of the socket, an address, or an IPv6 network (/64)",
    ),
    key("http.streams", ValueKind::Int(1, 1_000_000), "4096", "open event and campaign streams in total"),
    key(
        "http.streams-per-client",
        ValueKind::Int(1, 1_000_000),
        "2048",
        "open streams of one client: a user of the socket, a token, or an address",
    ),
    key("http.events-kept", ValueKind::Int(1, 1_000_000), "4096", "events kept for clients that reconnect"),
    key(
        "outbound.redirects",
        ValueKind::Choice(&["none", "same-origin"]),
        "none",
        "redirects that tasks, health checks and webhooks follow; never to another origin",
    ),
    key(
        "outbound.proxy",
        ValueKind::Secret,
        "none",
        "the proxy for calls to other hosts; HTTP_PROXY and the like are not read",
    ),
    key(
        "outbound.link-local",
        ValueKind::Bool,
        "false",
        "whether link-local addresses and those of cloud metadata may be called",
    ),
    live(
        "alerting.defaults",
        ValueKind::Bool,
        "true",
        "whether the shipped alerts are evaluated; docs/guides/alerts.md lists them",
    ),
    live("alerting.interval", ValueKind::Span, "5s", "how often conditions are evaluated"),
    live(
        "alerting.notify",
        ValueKind::List,
        "every [[notify]]",
        "recipients of alerts that name none, shipped ones included",
    ),
    live(
        "alerting.scrape",
        ValueKind::List,
        "none",
        "other agents to scrape, such as https://web-2:7654; at most 100",
    ),
    live(
        "alerting.scrape-token",
        ValueKind::Text,
        "none",
        "file with the token for them; readable by its owner only",
    ),
    live(
        "alert[].name",
        ValueKind::Name,
        "required",
        "name of an alert; the name of a shipped one replaces it",
    ),
    live(
        "alert[].condition",
        ValueKind::Text,
        "required",
        "a comparison as in PromQL; the alert fires for each matching series",
    ),
    live("alert[].for", ValueKind::Span, "0s", "how long the condition must hold"),
    live("alert[].severity", ValueKind::Choice(&["critical", "warning", "info"]), "warning", "how bad it is"),
    live(
        "alert[].notify",
        ValueKind::List,
        "alerting.notify",
        "recipients: names or kinds of [[notify]], such as pagerduty or slack:#ops",
    ),
    live("alert[].cool-down", ValueKind::Span, "5m", "shortest time between two notifications"),
    live(
        "alert[].repeat",
        ValueKind::Span,
        "4h",
        "the notification is repeated this often until it is acknowledged; 0s: never",
    ),
    live(
        "alert[].summary",
        ValueKind::Text,
        "the condition",
        "text for people, with {label} and {value} in it",
    ),
    live(
        "alert[].without-store",
        ValueKind::Bool,
        "false",
        "whether the last sender also sends it while the store is unreachable",
    ),
    live("notify[].name", ValueKind::Name, "required", "name of a notification target"),
    live(
        "notify[].kind",
        ValueKind::Choice(&["webhook", "slack", "pagerduty"]),
        "webhook",
        "kind of the target",
    ),
    live(
        "notify[].url",
        ValueKind::Hidden,
        "PagerDuty's own",
        "URL; https, or http on this host; never printed",
    ),
    live("notify[].url-file", ValueKind::Text, "none", "file with the url; readable by its owner only"),
    live("notify[].url-env", ValueKind::Text, "none", "environment variable with the url"),
    live(
        "notify[].key-file",
        ValueKind::Text,
        "none",
        "file with PagerDuty's routing key or a webhook's bearer token; readable by its owner only",
    ),
    live("notify[].key-env", ValueKind::Text, "none", "environment variable with it"),
    live("notify[].channel", ValueKind::Text, "the webhook's own", "Slack's channel"),
    live("notify[].timeout", ValueKind::Span, "10s", "timeout"),
    live(
        "children.pass-env",
        ValueKind::List,
        "none",
        "variables that commands inherit although they begin with TENURE_ or hold a secret of a [[notify]]",
    ),
    key("metrics.prefix", ValueKind::Text, "tenure", "prefix of metric names; `forge_leader` gives FORGE's"),
    key(
        "metrics.roles",
        ValueKind::Int(0, 1_000_000),
        "1000",
        "with more roles or tasks than this, metrics are aggregated",
    ),
];

/// The key of a concrete path: `role[3].name` is `role[].name`.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    let general = general(path);
    KEYS.iter().find(|key| key.path == general)
}

/// Whether there are keys below this path.
#[must_use]
pub(super) fn is_table(path: &str) -> bool {
    let below = format!("{}.", general(path));
    KEYS.iter().any(|key| key.path.starts_with(&below))
}

/// Whether this path is a list of tables.
#[must_use]
pub(super) fn is_list(path: &str) -> bool {
    let below = format!("{}[].", general(path));
    KEYS.iter().any(|key| key.path.starts_with(&below))
}

/// The names that may follow a path, which is empty at the top.
#[must_use]
pub(super) fn names_below(path: &str) -> Vec<&'static str> {
    let below = if path.is_empty() { String::new() } else { format!("{}.", general(path)) };
    let first = |key: &'static Key| {
        let rest = key.path.strip_prefix(below.as_str())?;
        rest.split(['.', '[']).next()
    };
    let mut names: Vec<_> = KEYS.iter().filter_map(first).collect();
    names.dedup();
    names
}

/// The lists of tables, in the order in which they are documented.
#[must_use]
pub(super) fn lists() -> Vec<&'static str> {
    let mut lists: Vec<_> = KEYS.iter().filter_map(|key| Some(key.path.split_once("[]")?.0)).collect();
    lists.dedup();
    lists
}

/// Without the numbers in its brackets.
fn general(path: &str) -> String {
    let mut inside = false;
    let keep = |c: &char| {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => return false,
            _ => {}
        }
        true
    };
    path.chars().filter(keep).collect()
}

impl Key {
    /// The environment variable that sets it, if one can.
    #[must_use]
    pub fn env(&self) -> Option<String> {
        if self.path.contains('[') {
            return None;
        }
        let path = self.path.strip_prefix("timing.").unwrap_or(self.path);
        Some(format!("TENURE_{}", path.to_ascii_uppercase().replace(['.', '-'], "_")))
    }
}

/// The table of `docs/reference/configuration.md`.
#[must_use]
pub fn table() -> String {
    let mut text = String::from(
        "| key | holds | default | environment | reload | meaning |\n|---|---|---|---|---|---|\n",
    );
    for key in KEYS {
        let env = key.env().map_or_else(String::new, |env| format!("`{env}`"));
        let reload = if key.reload { "yes" } else { "" };
        let line = format!(
            "| `{}` | {} | {} | {env} | {reload} | {} |\n",
            key.path, key.kind, key.default, key.meaning
        );
        text.push_str(&line);
    }
    text
}
