//! Evaluates a [`Condition`] over kept samples, as Prometheus does, but for one thing: `sum` and `count` of nothing at
//! all are 0 where Prometheus gives nothing, so that `sum(…) == 0` is true when there is no series left.

use std::collections::BTreeMap;

use super::condition::{Aggregate, Comparison, Condition, Operator, Rise};
use super::samples::{Labels, Sample, SampleStore};

/// Series with their values.
pub type Series = BTreeMap<Labels, f64>;

/// The series for which a condition holds now, at the time of the last round.
#[must_use]
pub fn evaluate(condition: &Condition, samples: &SampleStore) -> Series {
    let mut found = Series::new();
    for comparison in &condition.any {
        for (labels, value) in series(comparison, samples) {
            if holds(comparison, value) {
                found.entry(labels).or_insert(value);
            }
        }
    }
    found
}

fn series(comparison: &Comparison, samples: &SampleStore) -> Series {
    let plain = match comparison.rise {
        None => samples.now(&comparison.selector),
        Some((rise, range)) => {
            let (to, span) = (samples.time(), range.as_secs_f64());
            let each = |(labels, samples): (Labels, Vec<Sample>)| {
                let rose = extrapolated(&samples, to - span, to)?;
                Some((labels, if rise == Rise::Rate { rose / span } else { rose }))
            };
            samples.since(&comparison.selector, to - span).into_iter().filter_map(each).collect()
        }
    };
    match &comparison.aggregate {
        None => plain,
        Some((how, by)) => aggregate(*how, plain, by),
    }
}

fn holds(comparison: &Comparison, value: f64) -> bool {
    match comparison.operator {
        Operator::Equal => value == comparison.limit,
        Operator::NotEqual => value != comparison.limit,
        Operator::Less => value < comparison.limit,
        Operator::LessEqual => value <= comparison.limit,
        Operator::Greater => value > comparison.limit,
        Operator::GreaterEqual => value >= comparison.limit,
    }
}

fn aggregate(how: Aggregate, series: Series, by: &[String]) -> Series {
    let mut groups: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
    if by.is_empty() && matches!(how, Aggregate::Sum | Aggregate::Count) {
        groups.insert(Labels::new(), Vec::new());
    }
    for (mut labels, value) in series {
        labels.retain(|label, _| by.contains(label));
        groups.entry(labels).or_default().push(value);
    }
    groups.into_iter().map(|(labels, values)| (labels, together(how, &values))).collect()
}

fn together(how: Aggregate, values: &[f64]) -> f64 {
    // NaN yields to any number, as in Prometheus. The sum of no numbers is -0.0 otherwise.
    match how {
        Aggregate::Sum => values.iter().fold(0.0, |sum, value| sum + value),
        Aggregate::Avg => values.iter().sum::<f64>() / values.len() as f64,
        Aggregate::Min => values.iter().copied().fold(f64::NAN, f64::min),
        Aggregate::Max => values.iter().copied().fold(f64::NAN, f64::max),
        Aggregate::Count => values.len() as f64,
    }
}

/// How much a counter rose, as Prometheus extrapolates it: the samples rarely lie on the ends of the range, so the change
/// between them is stretched towards the ends, but not by more than half a step where a series begins or ends, and not
/// below zero.
fn extrapolated(samples: &[Sample], from: f64, to: f64) -> Option<f64> {
    let [first, .., last] = samples else { return None };
    let anew = samples.windows(2).filter(|pair| pair[1].value < pair[0].value);
    let rose = last.value - first.value + anew.map(|pair| pair[0].value).sum::<f64>();
    let sampled = last.at - first.at;
    if sampled <= 0.0 {
        return None;
    }
    let step = sampled / (samples.len() - 1) as f64;
    let limit = |gap: f64| if gap >= step * 1.1 { step / 2.0 } else { gap };
    let (mut before, after) = (limit(first.at - from), limit(to - last.at));
    if rose > 0.0 && first.value >= 0.0 {
        before = before.min(sampled * (first.value / rose));
    }
    Some(rose * (sampled + before + after) / sampled)
}

#[cfg(test)]
mod tests;
