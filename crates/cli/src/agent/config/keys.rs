//! Every key of the configuration, in one table: the parser, the environment, `--print-config` and the documentation
//! all read it.

use super::value::Kind;

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Where it stands in the file; `[]` marks a list of tables.
    pub path: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds without it, as people read it.
    pub default: &'static str,
    /// Whether a reload (SIGHUP) applies a change.
    pub reload: bool,
    /// What it means.
    pub meaning: &'static str,
}

const fn key(path: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: false, meaning }
}

const fn live(path: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: true, meaning }
}

/// Every key.
pub const KEYS: &[Key] = &[
    key("store", Kind::Secret, "sqlite:", "where the registers are; see stores.md"),
    key("namespace", Kind::Name, "default", "which cluster: two namespaces in one store never touch"),
    key(
        "node.name",
        Kind::Name,
        "HOST-PID",
        "this node's name, of which there is one live process at a time",
    ),
    key("node.address", Kind::Text, "none", "where others reach this node; shown to whoever asks who leads"),
    key("node.labels", Kind::Labels, "none", "what people say about this node; roles may require some"),
    key(
        "timing.profile",
        Kind::Choice(&["default", "fast", "relaxed"]),
        "default",
        "a ttl of 5s, 2s or 15s, from which everything else follows",
    ),
    key("timing.ttl", Kind::Span, "of the profile", "how long a leader that falls silent keeps its roles"),
    key("timing.beat", Kind::Span, "ttl/5", "how often the session is renewed and looked at"),
    key("timing.beat-at-most", Kind::Span, "none", "the beat is the shorter of this and ttl/5"),
    key("timing.op-timeout", Kind::Span, "ttl/5", "how long the store may take to answer"),
    key("timing.op-timeout-at-most", Kind::Span, "none", "the timeout is the shorter of this and ttl/5"),
    key("timing.stop-grace", Kind::Span, "ttl/5", "how long before its deadline work is told to stop"),
    key(
        "timing.kill-slack",
        Kind::Span,
        "ttl/50",
        "how long before its deadline what has not stopped is cut off",
    ),
    key(
        "timing.takeover",
        Kind::Choice(&["strict", "on-disconnect"]),
        "strict",
        "what a dropped connection of the store means; see stores.md",
    ),
    key("timing.grace", Kind::Span, "ttl/2", "how long a dropped connection is forgiven, on disconnect"),
    key(
        "timing.clock-error-ppm",
        Kind::Int(0, 199_999),
        "10000",
        "what this node allows for its own clock's rate",
    ),
    key(
        "timing.drain",
        Kind::Span,
        "10s",
        "how long work may take to wind down when the lease does not run out",
    ),
    live(
        "candidacy.eligible",
        Kind::Bool,
        "true",
        "whether this node claims roles; a default for every role",
    ),
    live(
        "candidacy.priority",
        Kind::Int(-1_000_000, 1_000_000),
        "0",
        "higher claims first; a default for every role",
    ),
    key(
        "candidacy.preempt",
        Kind::Bool,
        "false",
        "asks a leader of lower priority to hand over; a default for every role",
    ),
    key(
        "candidacy.takeover-delay",
        Kind::Span,
        "0s",
        "leaves a free role to others for so long; a default for every role",
    ),
    key(
        "candidacy.min-tenure",
        Kind::Span,
        "0s",
        "a younger tenure is not handed over for the sake of priority",
    ),
    key("candidacy.cool-down", Kind::Span, "ttl", "how long to stand back after the work failed"),
    key(
        "candidacy.requires",
        Kind::Labels,
        "none",
        "stands only if the node has these labels; a default for every role",
    ),
    live(
        "role[].name",
        Kind::Name,
        "required",
        "a role to stand for; roles may be added and removed by a reload",
    ),
    live("role[].eligible", Kind::Bool, "candidacy.eligible", "whether this node claims it"),
    live("role[].priority", Kind::Int(-1_000_000, 1_000_000), "candidacy.priority", "higher claims first"),
    key("role[].preempt", Kind::Bool, "candidacy.preempt", "asks a leader of lower priority to hand over"),
    key(
        "role[].takeover-delay",
        Kind::Span,
        "candidacy.takeover-delay",
        "leaves it to others for so long when it is free",
    ),
    key(
        "role[].min-tenure",
        Kind::Span,
        "candidacy.min-tenure",
        "a younger tenure is not handed over for the sake of priority",
    ),
    key(
        "role[].cool-down",
        Kind::Span,
        "candidacy.cool-down",
        "how long to stand back after the work failed",
    ),
    key("role[].drain", Kind::Span, "timing.drain", "how long its work may take to wind down"),
    key("role[].requires", Kind::Labels, "candidacy.requires", "stands only if the node has these labels"),
    key(
        "role[].mode",
        Kind::Choice(&["hold", "campaign"]),
        "hold",
        "hold: the agent itself leads it, for /leader; campaign: it stands only while a client campaigns",
    ),
    live(
        "role[].migration",
        Kind::Choice(&["off", "shadow", "on"]),
        "on",
        "off: this node does not stand; shadow: elects and records, and runs nothing; on: runs its work and tasks",
    ),
    live(
        "role[].static-leader",
        Kind::Name,
        "none",
        "only this node leads it, by decree; the others follow: for one node, and for the day before the election",
    ),
    live("work[].name", Kind::Name, "required", "a command that runs while a role is led; see work.md"),
    live("work[].role", Kind::Name, "the only role", "the role that has to be led for it"),
    live("work[].command", Kind::Command, "required", "the program and its arguments"),
    live(
        "work[].order",
        Kind::Int(-1000, 1000),
        "0",
        "lower starts first, then those that stand first in the file",
    ),
    live(
        "work[].restart",
        Kind::Choice(&["always", "on-failure", "never"]),
        "always",
        "when it is started again; one that is never started again and fails ends the tenure",
    ),
    live(
        "work[].backoff",
        Kind::Span,
        "100ms",
        "how long before the first restart; each further one waits twice as long",
    ),
    live(
        "work[].max-restarts",
        Kind::Int(0, 1_000_000),
        "3",
        "one restart more than these within the window ends the tenure",
    ),
    live("work[].window", Kind::Span, "1m", "for how long a restart counts"),
    live(
        "work[].ready-within",
        Kind::Span,
        "none",
        "how long until its health check first succeeds; what comes after it waits for that",
    ),
    live(
        "work[].drain",
        Kind::Span,
        "the role's",
        "how long between being told to end (SIGTERM) and being killed, when the lease does not run out",
    ),
    live("work[].health.command", Kind::Command, "none", "well is what exits with 0"),
    live("work[].health.http", Kind::Secret, "none", "well is what answers a GET with 2xx"),
    live("work[].health.every", Kind::Span, "10s", "how often it is asked"),
    live("work[].health.within", Kind::Span, "health.every", "how long an answer may take"),
    live("work[].health.failures", Kind::Int(1, 1000), "3", "so many in a row end the tenure"),
    live(
        "task[].name",
        Kind::Name,
        "required",
        "a scheduled task, of which there is one in a namespace; see work.md",
    ),
    live("task[].role", Kind::Name, "the only role", "whose leader runs it"),
    live(
        "task[].where",
        Kind::Choice(&["leader", "every-node"]),
        "leader",
        "every-node: each agent runs every tick, with a ledger of its own",
    ),
    live(
        "task[].cron",
        Kind::Text,
        "none",
        "when it runs: five fields, or six with seconds first, or @hourly and the like; this or every",
    ),
    live(
        "task[].every",
        Kind::Span,
        "none",
        "when it runs: every so often, counted from 1970 in UTC; this or cron",
    ),
    live("task[].zone", Kind::Text, "UTC", "the time zone of cron, such as Europe/Vienna"),
    live("task[].timeout", Kind::Span, "none", "how long a run may take"),
    live(
        "task[].overlap",
        Kind::Choice(&["skip", "queue", "allow"]),
        "skip",
        "what becomes of a tick that comes while the run before it goes on",
    ),
    live("task[].jitter", Kind::Span, "0s", "starts up to so much later, differently for each task and tick"),
    live("task[].late", Kind::Span, "1s", "a tick not started so long after its time is missed"),
    live("task[].catch-up", Kind::Int(0, 10_000), "1", "so many missed ticks are run after all, the newest"),
    live(
        "task[].rerun",
        Kind::Bool,
        "false",
        "whether a run whose leader died midway is run again by the next",
    ),
    live(
        "task[].retries",
        Kind::Int(0, 1000),
        "0",
        "how often a failed run is tried again under the same tick",
    ),
    live(
        "task[].backoff",
        Kind::Span,
        "1s",
        "how long before the first retry; each further one waits twice as long",
    ),
    live(
        "task[].on-stop",
        Kind::Choice(&["finish", "cancel"]),
        "finish",
        "what becomes of a run when its leader has to stop: it may finish within the drain time, or is cancelled at once",
    ),
    live("task[].history", Kind::Int(1, 200), "20", "so many runs are kept in the ledger"),
    live("task[].command", Kind::Command, "none", "what it runs: a program and its arguments; this or http"),
    live("task[].http.url", Kind::Secret, "none", "what it calls; this or command"),
    live("task[].http.method", Kind::Text, "POST", "how"),
    live(
        "task[].http.headers",
        Kind::Headers,
        "none",
        "headers beside those that carry the token; never printed",
    ),
    live("task[].http.body", Kind::Text, "empty", "what is sent"),
    key("http.socket", Kind::Text, "agent.sock in the runtime directory", "the Unix socket; `none` for none"),
    key("http.socket-mode", Kind::Choice(&["0600", "0660", "0666"]), "0600", "who may connect to the socket"),
    key(
        "http.operators",
        Kind::List,
        "root and the agent's own user",
        "who may act through the socket, by user id",
    ),
    key(
        "http.listen",
        Kind::List,
        "none",
        "addresses such as 127.0.0.1:7654; beyond loopback TLS and tokens are needed",
    ),
    key(
        "http.loopback",
        Kind::Choice(&["read", "operator"]),
        "read",
        "what clients on loopback addresses may do where there are no tokens; any user of this host is one",
    ),
    key("http.tls-cert", Kind::Text, "none", "certificates of the listener, PEM"),
    key(
        "http.tls-key",
        Kind::Text,
        "none",
        "the private key of the listener, PEM; readable by its owner only",
    ),
    key(
        "http.tokens",
        Kind::Text,
        "none",
        "a file of lines `read TOKEN` and `operator TOKEN`; readable by its owner only",
    ),
    key(
        "http.hosts",
        Kind::List,
        "none",
        "names under which the agent is reached, besides its addresses and localhost",
    ),
    key("http.max-body", Kind::Int(1, 16_777_216), "65536", "the largest request body, in bytes"),
    key("http.rate", Kind::Int(1, 1_000_000), "20000", "requests a second, for each client"),
    key(
        "http.request-timeout",
        Kind::Span,
        "60s",
        "how long a request may take, and its headers a sixth of that",
    ),
    key("http.connections", Kind::Int(1, 1_000_000), "8192", "open connections in all"),
    key("http.streams", Kind::Int(1, 1_000_000), "4096", "open event and campaign streams in all"),
    key(
        "http.streams-per-client",
        Kind::Int(1, 1_000_000),
        "2048",
        "open streams of one client: an address, a user or a token",
    ),
    key("http.events-kept", Kind::Int(1, 1_000_000), "4096", "events kept for streams that come back"),
    live(
        "alerting.defaults",
        Kind::Bool,
        "true",
        "whether the alerts that come with Tenure are evaluated; alerts.md lists them",
    ),
    live("alerting.interval", Kind::Span, "5s", "how often conditions are evaluated"),
    live(
        "alerting.notify",
        Kind::List,
        "every [[notify]]",
        "whom alerts tell that name nobody, shipped ones included",
    ),
    live(
        "alerting.scrape",
        Kind::List,
        "none",
        "other agents whose metrics count too, such as https://web-2:7654; 100 at most",
    ),
    live(
        "alerting.scrape-token",
        Kind::Text,
        "none",
        "a file with the token for them; readable by its owner only",
    ),
    live(
        "alert[].name",
        Kind::Name,
        "required",
        "an alert; one that has the name of a shipped one takes its place",
    ),
    live("alert[].condition", Kind::Text, "required", "PromQL; it fires for each series that is left"),
    live("alert[].for", Kind::Span, "0s", "for how long the condition must hold"),
    live("alert[].severity", Kind::Choice(&["critical", "warning", "info"]), "warning", "how bad it is"),
    live(
        "alert[].notify",
        Kind::List,
        "alerting.notify",
        "who is told: names or kinds of [[notify]], such as pagerduty or slack:#ops",
    ),
    live("alert[].cool-down", Kind::Span, "5m", "news of it come no faster than this"),
    live(
        "alert[].repeat",
        Kind::Span,
        "4h",
        "it is told again this often while nobody acknowledges it; 0s: never",
    ),
    live("alert[].summary", Kind::Text, "the condition", "what it means, with {label} and {value} in it"),
    live(
        "alert[].without-store",
        Kind::Bool,
        "false",
        "whether whoever told people last tells it also while it cannot see the store",
    ),
    live("notify[].name", Kind::Name, "required", "one who can be told"),
    live(
        "notify[].kind",
        Kind::Choice(&["webhook", "slack", "pagerduty"]),
        "webhook",
        "how it wants to be told",
    ),
    live(
        "notify[].url",
        Kind::Hidden,
        "PagerDuty's own",
        "where; https, or http on this very host; never printed",
    ),
    live("notify[].url-file", Kind::Text, "none", "a file with the url; readable by its owner only"),
    live("notify[].url-env", Kind::Text, "none", "a variable of the environment with the url"),
    live(
        "notify[].key-file",
        Kind::Text,
        "none",
        "a file with PagerDuty's routing key or a webhook's bearer token; readable by its owner only",
    ),
    live("notify[].key-env", Kind::Text, "none", "a variable of the environment with it"),
    live("notify[].channel", Kind::Text, "the webhook's own", "Slack's channel"),
    live("notify[].timeout", Kind::Span, "10s", "how long it may take to answer"),
    key(
        "metrics.prefix",
        Kind::Text,
        "tenure",
        "what the names of the metrics begin with; `forge_leader` gives FORGE's",
    ),
    key(
        "metrics.roles",
        Kind::Int(0, 1_000_000),
        "1000",
        "with more roles or tasks than this, metrics are not told for each",
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

/// The table of `docs/agent.md`.
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
