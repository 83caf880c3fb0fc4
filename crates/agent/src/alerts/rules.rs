//! Rules: when people are told, and whom. Some are shipped; a rule of the same name takes the place of a shipped one.

use std::time::Duration;

use tenure::Name;

use super::condition::Condition;
use super::record::NotifyPolicy;
use super::samples::Labels;
use super::target::Target;

/// Everything that is configured about alerts.
#[derive(Debug, Clone, Default)]
pub struct Alerting {
    /// How often conditions are evaluated.
    pub interval: Duration,
    /// Other agents whose metrics count too.
    pub scrape: Vec<String>,
    /// The token for them.
    pub scrape_token: Option<super::target::Hidden>,
    pub rules: Vec<Rule>,
    /// Who can be told.
    pub targets: Vec<Target>,
}

/// When people are told of something, and who.
#[derive(Debug, Clone)]
pub struct Rule {
    pub name: Name,
    /// When it holds.
    pub condition: Condition,
    /// For how long it must hold.
    pub hold: Duration,
    /// How bad it is.
    pub severity: Severity,
    /// What it means, with `{label}` and `{value}` in it.
    pub summary: String,
    /// Who is told.
    pub notify: Vec<Recipient>,
    /// How often.
    pub patience: NotifyPolicy,
    /// Whether it is told also while the store cannot be seen, by the node that told people last.
    pub without_store: bool,
    /// Whether it came with Tenure.
    pub shipped: bool,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Info,
    /// An operator should look, by day.
    Warning,
    /// An operator should look now.
    Critical,
}

impl Severity {
    /// As people and payloads spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// One who is told: a target, perhaps with a channel of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// As the rule has it, such as `slack:#ops`.
    pub text: String,
    pub target: Name,
    /// A channel other than the target's own.
    pub channel: Option<String>,
}

impl Recipient {
    /// Finds out who is meant: the name of a target, or its kind, and perhaps a channel.
    ///
    /// # Errors
    /// If none is.
    pub fn find(text: &str, targets: &[Target]) -> Result<Self, String> {
        let (wanted, channel) = match text.split_once(':') {
            Some((wanted, channel)) => (wanted, Some(channel.to_owned())),
            None => (text, None),
        };
        let named = targets.iter().find(|target| target.name.as_str() == wanted);
        let of_kind = || targets.iter().find(|target| target.kind.as_str() == wanted);
        match named.or_else(of_kind) {
            Some(target) => Ok(Self { text: text.to_owned(), target: target.name.clone(), channel }),
            None => {
                Err(format!("no [[notify]] has the name or kind {wanted:?}; add one, with its url or key"))
            }
        }
    }
}

impl Rule {
    /// What a series that fires means, for people.
    #[must_use]
    pub fn say(&self, labels: &Labels, value: f64) -> String {
        let mut text = self.summary.clone();
        for (label, meaning) in labels {
            text = text.replace(&format!("{{{label}}}"), meaning);
        }
        text.replace("{value}", &shown(value))
    }

    /// How far back its condition looks.
    #[must_use]
    pub fn range(&self) -> Duration {
        self.condition.wanted().into_iter().map(|(_, range)| range).max().unwrap_or_default()
    }
}

/// A value as people read it: an extrapolated count of 16.313 is 16.
#[must_use]
pub fn shown(value: f64) -> String {
    let scale = match value.abs() {
        ..1.0 => 1000.0,
        ..10.0 => 10.0,
        _ => 1.0,
    };
    format!("{}", (value * scale).round() / scale)
}

/// A rule that comes with Tenure; `P_` stands for the prefix of the metrics.
struct Shipped {
    name: &'static str,
    condition: &'static str,
    hold: u64,
    severity: Severity,
    summary: &'static str,
    without_store: bool,
}

const SHIPPED: &[Shipped] = &[
    Shipped {
        name: "no-leader",
        condition: "max by (role) (P_led) == 0",
        hold: 30,
        severity: Severity::Critical,
        summary: "{role} has no known leader",
        without_store: true,
    },
    Shipped {
        name: "two-leaders",
        condition: "sum by (role) (P_is_leader) > 1",
        hold: 15,
        severity: Severity::Critical,
        summary: "{value} nodes report that they lead {role}",
        without_store: false,
    },
    Shipped {
        name: "frequent-failovers",
        condition: "sum by (role) (increase(P_failovers_total[15m])) > 5",
        hold: 0,
        severity: Severity::Warning,
        summary: "{role} failed over {value} times in 15 minutes",
        without_store: false,
    },
    Shipped {
        name: "lease-running-out",
        condition: "P_in_doubt == 1 or P_silence_ratio > 0.5",
        hold: 10,
        severity: Severity::Warning,
        summary: "{node} does not renew its lease in time",
        without_store: false,
    },
    Shipped {
        name: "store-errors",
        condition: "sum by (node) (increase(P_store_errors_total[5m])) > 5",
        hold: 0,
        severity: Severity::Warning,
        summary: "{node} got {value} errors from the store in 5 minutes",
        without_store: false,
    },
    Shipped {
        name: "store-unseen",
        condition: "P_cluster_view_age_seconds > 30",
        hold: 0,
        severity: Severity::Critical,
        summary: "{node} has not reached the store for {value} seconds",
        without_store: true,
    },
    Shipped {
        name: "store-forgot",
        condition: "increase(P_store_forgot_total[15m]) > 0",
        hold: 0,
        severity: Severity::Critical,
        summary: "the store lost acknowledged writes, as seen by {node}",
        without_store: false,
    },
    Shipped {
        name: "store-weakened",
        condition: "P_store_weakened == 1",
        hold: 0,
        severity: Severity::Warning,
        summary: "the store can now lose acknowledged writes, as seen by {node}: run `tenure doctor`",
        without_store: false,
    },
    Shipped {
        name: "loop-hangs",
        condition: "P_loop_turned_seconds > 30",
        hold: 0,
        severity: Severity::Critical,
        summary: "the election loop of {node} has stalled for {value} seconds",
        without_store: true,
    },
    Shipped {
        name: "work-failing",
        condition: "sum by (role) (increase(P_work_failures_total[15m])) > 2",
        hold: 0,
        severity: Severity::Warning,
        summary: "the work of {role} failed {value} times in 15 minutes",
        without_store: false,
    },
    Shipped {
        name: "tasks-missed",
        condition: "increase(P_ledger_missed_total[15m]) > 0",
        hold: 0,
        severity: Severity::Warning,
        summary: "{task} missed ticks",
        without_store: false,
    },
    Shipped {
        name: "tasks-failed",
        condition: "increase(P_ledger_failures_total[15m]) > 0",
        hold: 0,
        severity: Severity::Warning,
        summary: "runs of {task} failed",
        without_store: false,
    },
];

/// Default of `cool-down`: the shortest time between two notifications of an alert.
pub const COOL_DOWN: Duration = Duration::from_secs(5 * 60);
/// It is told again this often, if nothing else is said.
pub const REPEAT: Duration = Duration::from_secs(4 * 3600);

/// The rules that come with Tenure. A fail-over takes up to a ttl and a bit: no target is told of a role without a leader
/// before three have passed.
#[must_use]
pub fn shipped(prefix: &str, ttl: Duration, notify: &[Recipient]) -> Vec<Rule> {
    let rule = |shipped: &Shipped| {
        let condition = Condition::read(&shipped.condition.replace("P_", &format!("{prefix}_")), prefix);
        let least = if shipped.name == "no-leader" { 3 * ttl } else { Duration::ZERO };
        Some(Rule {
            name: Name::new(shipped.name).ok()?,
            condition: condition.ok()?,
            hold: Duration::from_secs(shipped.hold).max(least),
            severity: shipped.severity,
            summary: shipped.summary.to_owned(),
            notify: notify.to_vec(),
            patience: NotifyPolicy { cool_down: COOL_DOWN, repeat: REPEAT },
            without_store: shipped.without_store,
            shipped: true,
        })
    };
    SHIPPED.iter().filter_map(rule).collect()
}

/// The table of `docs/guides/alerts.md`.
#[must_use]
pub fn table() -> String {
    let mut text = String::from("| alert | condition | for | severity | summary |\n|---|---|---|---|---|\n");
    for rule in SHIPPED {
        let condition = rule.condition.replace("P_", "tenure_");
        let (name, severity, summary) = (rule.name, rule.severity.as_str(), rule.summary);
        text.push_str(&format!("| `{name}` | `{condition}` | {}s | {severity} | {summary} |\n", rule.hold));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_rule_can_be_read_and_is_documented() {
        for prefix in ["tenure", "forge_leader", "x"] {
            let rules = shipped(prefix, Duration::from_secs(15), &[]);
            assert_eq!(rules.len(), SHIPPED.len());
            assert!(rules.iter().all(|rule| rule.condition.notices.is_empty()), "{rules:?}");
            assert_eq!(rules[0].hold, Duration::from_secs(45));
        }
        let page = include_str!("../../../../docs/guides/alerts.md");
        assert!(page.contains(&table()), "put this into docs/guides/alerts.md:\n{}", table());
    }

    /// Series with which each shipped rule fires, in two rounds ten seconds apart.
    const FIRES: &[(&str, &str, &str, [f64; 2])] = &[
        ("no-leader", "led", "role", [1.0, 0.0]),
        ("two-leaders", "is_leader", "role", [1.0, 2.0]),
        ("frequent-failovers", "failovers_total", "role", [1.0, 9.0]),
        ("lease-running-out", "in_doubt", "node", [0.0, 1.0]),
        ("lease-running-out", "silence_ratio", "node", [0.2, 0.6]),
        ("store-errors", "store_errors_total", "node", [0.0, 9.0]),
        ("store-unseen", "cluster_view_age_seconds", "node", [29.0, 31.0]),
        ("store-forgot", "store_forgot_total", "node", [0.0, 1.0]),
        ("store-weakened", "store_weakened", "node", [0.0, 1.0]),
        ("loop-hangs", "loop_turned_seconds", "node", [1.0, 31.0]),
        ("work-failing", "work_failures_total", "role", [2.0, 5.0]),
        ("tasks-missed", "ledger_missed_total", "task", [3.0, 4.0]),
        ("tasks-failed", "ledger_failures_total", "task", [3.0, 4.0]),
    ];

    #[test]
    fn every_shipped_rule_fires_when_it_must_and_not_before() {
        use super::super::samples::{SampleStore, SeriesValue};
        let rules = shipped("tenure", Duration::ZERO, &[]);
        for rule in &rules {
            assert!(FIRES.iter().any(|(name, ..)| rule.name.as_str() == *name), "{}", rule.name);
        }
        for (name, metric, label, values) in FIRES {
            let rule = rules.iter().find(|rule| rule.name.as_str() == *name).unwrap();
            let mut samples = SampleStore::default();
            samples.want(rule.condition.wanted().into_iter());
            for (round, value) in values.iter().enumerate() {
                samples.begin(10.0 * round as f64);
                let labels = [((*label).to_owned(), "x".to_owned())].into();
                samples.take("a", [SeriesValue { metric: (*metric).to_owned(), labels, value: *value }]);
                let found = super::super::eval::evaluate(&rule.condition, &samples);
                assert_eq!(found.len(), round, "{name}: {found:?}");
            }
        }
    }

    #[test]
    fn what_a_series_means_is_said_with_its_labels_and_its_value() {
        let rules = shipped("tenure", Duration::ZERO, &[]);
        let labels = [("role".to_owned(), "job".to_owned())].into();
        assert_eq!(rules[1].say(&labels, 2.0), "2 nodes report that they lead job");
        assert_eq!((shown(2.000_400_1), shown(16.313)), ("2".to_owned(), "16".to_owned()));
        assert_eq!(shown(0.1234), "0.123");
    }
}
