//! The samples that conditions look at: what this agent exposes, what other agents expose where they are scraped, and
//! what the store tells of the whole cluster. Only metrics that a rule asks for are kept, and only as long as it asks.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::condition::{Selector, bare};
use crate::metrics::METRICS;

/// What tells a series from others of the same metric.
pub type Labels = BTreeMap<String, String>;

/// Series that only conditions know, from what the store tells: name, labels, meaning.
pub const STORE_SERIES: &[(&str, &str, &str)] = &[
    ("led", "role", "1 if the role has a live leader, 0 if not; absent while the role is paused"),
    (
        "silence_ratio",
        "node",
        "share of a node's ttl that has passed since its last beat; at 1 its lease is over",
    ),
    ("ledger_failures_total", "task", "failed or timed-out runs of a task, from its ledger"),
    ("ledger_missed_total", "task", "missed ticks of a task, from its ledger"),
    ("is_leader", "role, node", "of other nodes, from the store: 1 for the leader, 0 for candidates"),
    ("elections_total", "role, node", "of other nodes, as far as this agent has seen them"),
    ("failovers_total", "role, node", "of other nodes, as far as this agent has seen them"),
    (
        "work_failures_total",
        "role, node",
        "of other nodes, as far as this agent has seen them: tenures that ended because the work failed",
    ),
];

/// Every metric that a condition may name, without a prefix.
pub(super) fn known() -> impl Iterator<Item = String> {
    let exposed = METRICS.iter().flat_map(|(name, kind, _)| {
        let parts: &[&str] = if *kind == "histogram" { &["_bucket", "_count", "_sum"] } else { &[""] };
        parts.iter().map(move |part| format!("{name}{part}"))
    });
    exposed.chain(STORE_SERIES.iter().map(|(name, ..)| (*name).to_owned()))
}

pub(super) fn is_known(metric: &str) -> bool {
    known().any(|known| known == metric)
}

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When, in seconds.
    pub at: f64,
    pub value: f64,
}

/// One value of one series, as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesValue {
    /// The metric, without a prefix.
    pub metric: String,
    /// The rest of its name.
    pub labels: Labels,
    pub value: f64,
}

/// The samples.
#[derive(Debug, Default)]
pub struct SampleStore {
    /// How far back each metric is wanted.
    wanted: BTreeMap<String, Duration>,
    metrics: BTreeMap<String, HashMap<Labels, VecDeque<Sample>>>,
    /// When each source was looked at last.
    sources: BTreeMap<String, f64>,
    time: f64,
}

impl SampleStore {
    /// From now on these are wanted; what is kept of others goes.
    pub fn want(&mut self, wanted: impl Iterator<Item = (String, Duration)>) {
        self.wanted.clear();
        for (metric, range) in wanted {
            let kept = self.wanted.entry(metric).or_default();
            *kept = range.max(*kept);
        }
        self.metrics.retain(|metric, _| self.wanted.contains_key(metric));
    }

    /// Whether a rule asks for a metric.
    #[must_use]
    pub fn wants(&self, metric: &str) -> bool {
        self.wanted.contains_key(metric)
    }

    /// Begins a round at this time, which must not be before that of the last one.
    pub fn begin(&mut self, time: f64) {
        self.time = time;
        for (metric, series) in &mut self.metrics {
            let oldest = time - self.wanted.get(metric).copied().unwrap_or_default().as_secs_f64();
            series.retain(|_, samples| {
                while samples.front().is_some_and(|sample| sample.at <= oldest) {
                    samples.pop_front();
                }
                !samples.is_empty()
            });
        }
    }

    /// Takes in what a source says in this round. A counter that appears in a source which was looked at before has
    /// begun at nought since then: its first events count.
    pub fn take(&mut self, source: &str, found: impl IntoIterator<Item = SeriesValue>) {
        let before = self.sources.insert(source.to_owned(), self.time).filter(|before| *before < self.time);
        for SeriesValue { metric, labels, value } in found {
            let Some(range) = self.wanted.get(&metric) else { continue };
            let counts = ["_total", "_count", "_bucket", "_sum"].iter().any(|end| metric.ends_with(end));
            let (ranged, time) = (!range.is_zero(), self.time);
            let samples = self.metrics.entry(metric).or_default().entry(labels).or_default();
            if let (true, true, true, Some(before)) = (counts, ranged, samples.is_empty(), before) {
                samples.push_back(Sample { at: before, value: 0.0 });
            }
            if samples.back().is_some_and(|last| last.at >= time) {
                samples.pop_back();
            }
            samples.push_back(Sample { at: time, value });
        }
    }

    /// The time of the last round, in seconds.
    #[must_use]
    pub fn time(&self) -> f64 {
        self.time
    }

    /// The series that there are now.
    #[must_use]
    pub fn now(&self, selector: &Selector) -> BTreeMap<Labels, f64> {
        let newest = |(labels, samples): (&Labels, &VecDeque<Sample>)| {
            let last = samples.back().filter(|sample| sample.at >= self.time)?;
            Some((labels.clone(), last.value))
        };
        self.matching(selector).filter_map(newest).collect()
    }

    /// The samples of each series after a time.
    #[must_use]
    pub fn since(&self, selector: &Selector, from: f64) -> Vec<(Labels, Vec<Sample>)> {
        let later = |(labels, samples): (&Labels, &VecDeque<Sample>)| {
            let later: Vec<Sample> = samples.iter().filter(|sample| sample.at > from).copied().collect();
            (!later.is_empty()).then(|| (labels.clone(), later))
        };
        self.matching(selector).filter_map(later).collect()
    }

    fn matching<'a>(
        &'a self,
        selector: &'a Selector,
    ) -> impl Iterator<Item = (&'a Labels, &'a VecDeque<Sample>)> {
        let series = self.metrics.get(&selector.metric).into_iter().flatten();
        series.filter(|(labels, _)| selector.fits(labels))
    }
}

/// What an exposition says, each series with the node that it is of.
#[must_use]
pub fn read_exposition(text: &str, prefixes: &[&str], node: &str) -> Vec<SeriesValue> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let found = lines.filter_map(|line| {
        let (name, mut labels, value) = read_line(line)?;
        labels.entry("node".to_owned()).or_insert_with(|| node.to_owned());
        Some(SeriesValue { metric: bare(name, prefixes)?.to_owned(), labels, value })
    });
    found.collect()
}

/// One line: its name, its labels and its value.
fn read_line(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = read_labels(inside, &mut labels)?;
    }
    let value = match rest.split_whitespace().next()? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        text => text.parse().ok()?,
    };
    Some((name, labels, value))
}

/// Reads up to the closing brace; returns what comes after it.
fn read_labels<'a>(mut rest: &'a str, labels: &mut Labels) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = quoted.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.trim().to_owned(), value);
        rest = quoted.get(end + 1..)?;
    }
}
