//! Metrics of scheduled tasks: counted by the schedule itself, so that every task is there from the beginning.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tenure::Name;
use tenure::schedule::TaskCounts;

use super::{ALL, gauges, help_of};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: String,
}

type Durations = Family<TaskLabel, Histogram, fn() -> Histogram>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Tasks {
    limit: usize,
    took: Durations,
}

type Count = fn(&TaskCounts) -> u64;

/// What is counted of each task, and by what name.
const COUNTED: [(&str, Count); 6] = [
    ("task_runs", TaskCounts::runs),
    ("task_failures", TaskCounts::failures),
    ("task_cancelled", TaskCounts::cancelled),
    ("task_late", TaskCounts::late),
    ("task_missed", TaskCounts::missed),
    ("task_skipped", TaskCounts::skipped),
];

/// From 10 ms to about three hours.
fn spans() -> Histogram {
    Histogram::new((0..21).map(|step| 0.01 * 2_f64.powi(step)))
}

impl Tasks {
    /// Each task by its name, as long as there are no more than these.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, took: Family::new_with_constructor(spans) }
    }

    /// A run ended. What lies beyond the limit is counted as one.
    pub(super) fn ended(&self, task: &Name, took: Duration, known: usize) {
        let task = if known > self.limit { ALL.to_owned() } else { task.to_string() };
        self.took.get_or_create(&TaskLabel { task }).observe(took.as_secs_f64());
    }

    pub(super) fn encode(
        &self,
        to: &mut DescriptorEncoder<'_>,
        counted: &BTreeMap<Name, TaskCounts>,
    ) -> Result<(), fmt::Error> {
        for (name, count) in COUNTED {
            let help = help_of(&format!("{name}_total"));
            let mut encoder = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, value) in self.series(counted, count) {
                ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
            }
        }
        let running: Vec<_> = self.series(counted, TaskCounts::running);
        let running: Vec<_> = running.into_iter().map(|(labels, value)| (labels, value as f64)).collect();
        gauges(to, "task_running", &running)?;
        let help = help_of("task_seconds");
        self.took.encode(to.encode_descriptor("task_seconds", help, None, MetricType::Histogram)?)
    }

    /// One series for each task; one for all where there are too many.
    fn series(&self, counted: &BTreeMap<Name, TaskCounts>, count: Count) -> Vec<(TaskLabel, u64)> {
        if counted.len() > self.limit {
            return vec![(TaskLabel { task: ALL.to_owned() }, counted.values().map(count).sum())];
        }
        counted.iter().map(|(task, counts)| (TaskLabel { task: task.to_string() }, count(counts))).collect()
    }
}
