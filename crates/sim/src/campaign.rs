//! Many worlds: seed after seed, and the hunt for each mutant.

use std::time::{Duration, Instant};

use tenure_core::Mutant;

use crate::invariants::{Focus, Violation};
use crate::stats::Stats;
use crate::world::{self, Ticket};

/// How many times more worlds are wanted than an everyday run has: ten with `TENURE_LONG=1` in the environment.
#[must_use]
pub fn scale() -> u64 {
    if std::env::var_os("TENURE_LONG").is_some_and(|value| value == "1") { 10 } else { 1 }
}

/// A world in which something was wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What was wrong.
    pub violation: Violation,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { invariant, what } = &self.violation;
        writeln!(f, "seed {}: \"{invariant}\" is broken: {what}", self.seed)?;
        write!(f, "replay it with: cargo run -p tenure-sim --release -- --seed {} --trace", self.seed)
    }
}

/// What many worlds showed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The figures of all of them.
    pub stats: Stats,
    /// The worlds in which something was wrong.
    pub failures: Vec<Failure>,
}

/// Runs the worlds of these seeds, until the time is up if there is a limit.
pub fn simulate(seeds: impl IntoIterator<Item = u64>, limit: Option<Duration>) -> Tally {
    let began = Instant::now();
    let mut tally = Tally::default();
    for seed in seeds {
        let (stats, violation) = live_through(Ticket::new(seed));
        tally.stats.add(&stats);
        tally.failures.extend(violation.map(|violation| Failure { seed, violation }));
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
    }
    tally
}

/// How a mutant was caught.
#[derive(Debug, Clone)]
pub struct Catch {
    /// Which mistake.
    pub mutant: Mutant,
    /// In which world, and by which invariant; none: it survived.
    pub caught: Option<Failure>,
    /// How many worlds it took.
    pub worlds: u64,
}

impl std::fmt::Display for Catch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = format!("{:?}", self.mutant);
        match &self.caught {
            Some(Failure { seed, violation: Violation { invariant, what } }) => {
                write!(
                    f,
                    "{name:<26} caught in world {} (seed {seed}) by \"{invariant}\": {what}",
                    self.worlds
                )
            }
            None => write!(f, "{name:<26} SURVIVED {} worlds", self.worlds),
        }
    }
}

/// Looks for a world of these seeds that shows a mistake.
#[must_use]
pub fn hunt(mutant: Mutant, from: u64, most: u64, focus: Focus) -> Catch {
    for seed in from..from + most {
        if let (_, Some(violation)) = live_through(Ticket { focus, ..Ticket::hunt(seed, mutant) }) {
            return Catch { mutant, caught: Some(Failure { seed, violation }), worlds: seed - from + 1 };
        }
    }
    Catch { mutant, caught: None, worlds: most }
}

/// An engine that panics has broken an invariant of its own: the seed must be told all the same.
fn live_through(ticket: Ticket) -> (Stats, Option<Violation>) {
    match std::panic::catch_unwind(|| world::run(ticket)) {
        Ok(verdict) => (verdict.stats, verdict.violation),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let what = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let what = what.unwrap_or_else(|| "it panicked".to_owned());
            (
                Stats { worlds: 1, violations: 1, ..Stats::default() },
                Some(Violation { invariant: "no panic", what }),
            )
        }
    }
}
