//! Evaluates a [`Plan`] over kept samples, as Prometheus does, but for one thing: `sum` and `count` of nothing at all are
//! 0 where Prometheus gives nothing, so that `sum(…) == 0` is true when there is no series left. Inside `absent` it is as
//! in Prometheus.

use std::collections::BTreeMap;

use super::keep::{Keep, Labels, Sample};
use super::promql::{Each, Gather, Grouping, Op, Over, Plan, Two};

/// What a plan gives: series with their values.
pub type Series = Vec<(Labels, f64)>;

/// What a part of a plan gives.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Number(f64),
    Series(Series),
}

/// Evaluates a plan now: the time of the last round.
///
/// # Errors
/// If series cannot be told apart.
pub fn evaluate(plan: &Plan, keep: &Keep) -> Result<Series, String> {
    let part = Look { keep, strict: false }.part(plan)?;
    Ok(match part {
        Part::Number(value) => vec![(Labels::new(), value)],
        Part::Series(series) => series,
    })
}

#[derive(Clone, Copy)]
struct Look<'a> {
    keep: &'a Keep,
    /// The sum of nothing is nothing.
    strict: bool,
}

impl Look<'_> {
    fn part(self, plan: &Plan) -> Result<Part, String> {
        Ok(match plan {
            Plan::Number(number) => Part::Number(*number),
            Plan::Time => Part::Number(self.keep.wall()),
            Plan::Select(selector) => Part::Series(self.keep.now(selector)),
            Plan::Over(over, selector, range) => {
                let (to, span) = (self.keep.time(), range.as_secs_f64());
                let each = |(labels, samples): (Labels, Vec<Sample>)| {
                    Some((labels, over_time(*over, &samples, to - span, to)?))
                };
                Part::Series(self.keep.since(selector, to - span).into_iter().filter_map(each).collect())
            }
            Plan::Each(each, inner, bounds) => map(self.part(inner)?, |value| one(*each, value, bounds)),
            Plan::Negative(inner) => map(self.part(inner)?, |value| -value),
            Plan::Gather(how, inner, by) => Part::Series(gather(*how, self.series(inner)?, by, self.strict)),
            Plan::Two(two) => self.two(two)?,
            Plan::Absent(inner, labels) => {
                let found = Self { strict: true, ..self }.series(inner)?;
                Part::Series(if found.is_empty() { vec![(labels.clone(), 1.0)] } else { Vec::new() })
            }
            Plan::Scalar(inner) => match self.series(inner)?[..] {
                [(_, value)] => Part::Number(value),
                _ => Part::Number(f64::NAN),
            },
            Plan::Vector(inner) => match self.part(inner)? {
                Part::Number(value) => Part::Series(vec![(Labels::new(), value)]),
                series @ Part::Series(_) => series,
            },
        })
    }

    fn series(self, plan: &Plan) -> Result<Series, String> {
        match self.part(plan)? {
            Part::Series(series) => Ok(series),
            Part::Number(value) => Ok(vec![(Labels::new(), value)]),
        }
    }

    fn two(self, two: &Two) -> Result<Part, String> {
        match (self.part(&two.left)?, self.part(&two.right)?) {
            (Part::Number(left), Part::Number(right)) => Ok(Part::Number(calculate(two.op, left, right))),
            (Part::Series(left), Part::Number(right)) => {
                Ok(Part::Series(beside(two, left, |value| (value, right))))
            }
            (Part::Number(left), Part::Series(right)) => {
                Ok(Part::Series(beside(two, right, |value| (left, value))))
            }
            (Part::Series(left), Part::Series(right)) => {
                Ok(Part::Series(if matches!(two.op, Op::And | Op::Or | Op::Unless) {
                    sets(two, left, right)
                } else {
                    pairs(two, left, right)?
                }))
            }
        }
    }
}

fn map(part: Part, change: impl Fn(f64) -> f64) -> Part {
    match part {
        Part::Number(value) => Part::Number(change(value)),
        Part::Series(series) => {
            Part::Series(series.into_iter().map(|(labels, value)| (labels, change(value))).collect())
        }
    }
}

/// Each value beside a number: a comparison keeps the series that fit, or tells 0 and 1.
fn beside(two: &Two, series: Series, sides: impl Fn(f64) -> (f64, f64)) -> Series {
    let each = |(labels, value): (Labels, f64)| {
        let (left, right) = sides(value);
        let result = calculate(two.op, left, right);
        match (two.op.compares(), two.truth) {
            (true, false) => (result != 0.0).then_some((labels, value)),
            _ => Some((labels, result)),
        }
    };
    series.into_iter().filter_map(each).collect()
}

/// The labels that tell whether two series belong together.
fn signature(labels: &Labels, matching: &Grouping) -> Labels {
    let keeps = |name: &String| match matching {
        Grouping::All => false,
        Grouping::By(names) => names.contains(name),
        Grouping::Without(names) => !names.contains(name),
    };
    labels.iter().filter(|(name, _)| keeps(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn sets(two: &Two, left: Series, right: Series) -> Series {
    let of = |series: &Series| -> std::collections::BTreeSet<Labels> {
        series.iter().map(|(labels, _)| signature(labels, &two.matching)).collect()
    };
    let (lefts, rights) = (of(&left), of(&right));
    let has = |labels: &Labels| rights.contains(&signature(labels, &two.matching));
    match two.op {
        Op::And => left.into_iter().filter(|(labels, _)| has(labels)).collect(),
        Op::Unless => left.into_iter().filter(|(labels, _)| !has(labels)).collect(),
        _ => {
            let new = |(labels, _): &(Labels, f64)| !lefts.contains(&signature(labels, &two.matching));
            let more: Series = right.into_iter().filter(new).collect();
            left.into_iter().chain(more).collect()
        }
    }
}

/// One series of each side with one of the other.
fn pairs(two: &Two, left: Series, right: Series) -> Result<Series, String> {
    let mut rights: BTreeMap<Labels, f64> = BTreeMap::new();
    for (labels, value) in right {
        let signature = signature(&labels, &two.matching);
        if rights.insert(signature, value).is_some() {
            return Err(several("right"));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut results = Series::new();
    for (labels, value) in left {
        let signature = signature(&labels, &two.matching);
        let Some(other) = rights.get(&signature).copied() else { continue };
        if !seen.insert(signature.clone()) {
            return Err(several("left"));
        }
        let result = calculate(two.op, value, other);
        match (two.op.compares(), two.truth) {
            (true, false) if result == 0.0 => {}
            (true, false) => results.push((labels, value)),
            _ => results.push((signature, result)),
        }
    }
    Ok(results)
}

fn several(side: &str) -> String {
    format!(
        "several series on the {side} belong to one on the other side; name the labels with on(…) or gather them"
    )
}

fn calculate(op: Op, left: f64, right: f64) -> f64 {
    let truth = |yes: bool| f64::from(u8::from(yes));
    match op {
        Op::Add => left + right,
        Op::Sub => left - right,
        Op::Mul => left * right,
        Op::Div => left / right,
        Op::Mod => left % right,
        Op::Pow => left.powf(right),
        Op::Equal => truth(left == right),
        Op::NotEqual => truth(left != right),
        Op::Less => truth(left < right),
        Op::LessEqual => truth(left <= right),
        Op::Greater => truth(left > right),
        Op::GreaterEqual => truth(left >= right),
        // Only between series.
        Op::And | Op::Or | Op::Unless => f64::NAN,
    }
}

fn one(each: Each, value: f64, bounds: &[f64]) -> f64 {
    let bound = |index: usize, default: f64| bounds.get(index).copied().unwrap_or(default);
    match each {
        Each::Abs => value.abs(),
        Each::Ceil => value.ceil(),
        Each::Floor => value.floor(),
        Each::Round => {
            let unit = bound(0, 1.0);
            (value / unit + 0.5).floor() * unit
        }
        Each::Clamp => value.max(bound(0, f64::NEG_INFINITY)).min(bound(1, f64::INFINITY)),
        Each::ClampMin => value.max(bound(0, f64::NEG_INFINITY)),
        Each::ClampMax => value.min(bound(0, f64::INFINITY)),
    }
}

fn gather(how: Gather, series: Series, by: &Grouping, strict: bool) -> Series {
    let mut groups: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
    for (labels, value) in series {
        groups.entry(signature(&labels, by)).or_default().push(value);
    }
    let of_nothing = *by == Grouping::All && matches!(how, Gather::Sum | Gather::Count) && !strict;
    if groups.is_empty() && of_nothing {
        return vec![(Labels::new(), 0.0)];
    }
    groups.into_iter().map(|(labels, values)| (labels, together(how, &values))).collect()
}

fn together(how: Gather, values: &[f64]) -> f64 {
    // NaN yields to any number, as in Prometheus.
    match how {
        Gather::Sum => values.iter().sum(),
        Gather::Avg => values.iter().sum::<f64>() / values.len() as f64,
        Gather::Min => values.iter().copied().fold(f64::NAN, f64::min),
        Gather::Max => values.iter().copied().fold(f64::NAN, f64::max),
        Gather::Count => values.len() as f64,
        Gather::Group => 1.0,
    }
}

/// A function of the samples after `from` up to `to`.
fn over_time(over: Over, samples: &[Sample], from: f64, to: f64) -> Option<f64> {
    let values = || samples.iter().map(|sample| sample.value);
    let steps = || samples.windows(2).map(|pair| (pair[0].value, pair[1].value));
    if samples.is_empty() {
        return None;
    }
    Some(match over {
        Over::Rate => extrapolated(samples, from, to, true)? / (to - from),
        Over::Increase => extrapolated(samples, from, to, true)?,
        Over::Delta => extrapolated(samples, from, to, false)?,
        Over::Irate => {
            let [.., before, last] = samples else { return None };
            let rose = if last.value < before.value { last.value } else { last.value - before.value };
            rose / (last.at - before.at)
        }
        Over::Changes => steps().filter(|(a, b)| a != b && !(a.is_nan() && b.is_nan())).count() as f64,
        Over::Resets => steps().filter(|(a, b)| b < a).count() as f64,
        Over::Min => values().fold(f64::NAN, f64::min),
        Over::Max => values().fold(f64::NAN, f64::max),
        Over::Avg => values().sum::<f64>() / samples.len() as f64,
        Over::Sum => values().sum(),
        Over::Count => samples.len() as f64,
        Over::Last => samples.last()?.value,
        Over::Present => 1.0,
    })
}

/// What Prometheus calls the extrapolated change: the samples rarely lie on the ends of the range, so the change between
/// them is stretched towards the ends, but not by more than half a step where a series begins or ends, and a counter not
/// below zero.
fn extrapolated(samples: &[Sample], from: f64, to: f64, counter: bool) -> Option<f64> {
    let [first, .., last] = samples else { return None };
    let mut rose = last.value - first.value;
    if counter {
        rose += samples
            .windows(2)
            .filter(|pair| pair[1].value < pair[0].value)
            .map(|pair| pair[0].value)
            .sum::<f64>();
    }
    let sampled = last.at - first.at;
    if sampled <= 0.0 {
        return None;
    }
    let step = sampled / (samples.len() - 1) as f64;
    let limit = |gap: f64| if gap >= step * 1.1 { step / 2.0 } else { gap };
    let (mut before, after) = (limit(first.at - from), limit(to - last.at));
    if counter && rose > 0.0 && first.value >= 0.0 {
        before = before.min(sampled * (first.value / rose));
    }
    Some(rose * (sampled + before + after) / sampled)
}

#[cfg(test)]
mod tests;
