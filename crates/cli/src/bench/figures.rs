//! Figures, for people and for programs.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::output::table::{Cell, Column, Table, Tone};

/// What was measured, in order.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    figures: Vec<Figure>,
}

#[derive(Debug, Serialize)]
struct Figure {
    what: String,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// How long something took, many times, in microseconds.
#[derive(Debug)]
pub(crate) struct Spread {
    histogram: Histogram<u64>,
}

impl Spread {
    pub(crate) fn new() -> Self {
        Self { histogram: Histogram::new(3).expect("three digits are possible") }
    }

    pub(crate) fn add(&mut self, micros: u64) {
        // It grows as needed: `saturating_record` would not.
        self.histogram.record(micros.max(1)).expect("any duration can be recorded");
    }

    pub(crate) fn median(&self) -> u64 {
        self.histogram.value_at_quantile(0.5)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |quantile: f64| show(self.histogram.value_at_quantile(quantile));
        write!(f, "{} / {} / {}", at(0.5), at(0.99), show(self.histogram.max()))
    }
}

/// Microseconds, as people say it.
pub(crate) fn show(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

impl Figures {
    /// A figure next to its floor.
    pub(crate) fn against(&mut self, what: &str, value: &Spread, floor: &Spread, target: &str) {
        let ratio = value.median() as f64 / floor.median() as f64;
        self.push(what, value.to_string(), Some(floor.to_string()), Some(ratio), target);
    }

    /// A figure with a ratio of its own.
    pub(crate) fn ratio(&mut self, what: &str, value: String, floor: String, ratio: f64, target: &str) {
        self.push(what, value, Some(floor), Some(ratio), target);
    }

    /// A figure by itself.
    pub(crate) fn plain(&mut self, what: &str, value: String, target: &str) {
        self.push(what, value, None, None, target);
    }

    fn push(&mut self, what: &str, value: String, floor: Option<String>, ratio: Option<f64>, target: &str) {
        let ratio = ratio.map(|ratio| (ratio * 100.0).round() / 100.0);
        let target = (!target.is_empty()).then(|| target.to_owned());
        self.figures.push(Figure { what: what.to_owned(), value, floor, ratio, target });
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = ["FIGURE", "MEASURED", "FLOOR", "RATIO", "TARGET"].map(Column::new);
        let mut table = Table::new(columns);
        for figure in &self.figures {
            let ratio = figure.ratio.map(|ratio| format!("{ratio:.2} ×"));
            table.row([
                Cell::new(&figure.what, Tone::Strong),
                Cell::new(&figure.value, Tone::Plain),
                Cell::or_none(figure.floor.as_ref(), Tone::Faint),
                Cell::or_none(ratio, Tone::Plain),
                Cell::or_none(figure.target.as_ref(), Tone::Faint),
            ]);
        }
        writeln!(f, "{}", table.render(None).trim_end())?;
        write!(f, "times are median / 99th percentile / worst")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_keeps_what_it_was_given() {
        let mut spread = Spread::new();
        [10, 20_000, 5_000_000].into_iter().for_each(|micros| spread.add(micros));
        assert_eq!(spread.to_string(), "20.0 ms / 5.00 s / 5.00 s");
    }
}
