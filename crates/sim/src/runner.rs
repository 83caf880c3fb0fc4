//! Runs many worlds, seed after seed, and hunts each mutant.

use std::time::{Duration, Instant};

use tenure_core::Mutant;

use crate::invariants::{Focus, Violation};
use crate::stats::Stats;
use crate::swarm::Family;
use crate::world::{self, WorldSpec};

/// How many times more worlds are wanted than an everyday run has: ten with `TENURE_LONG=1` in the environment.
#[must_use]
pub fn scale() -> u64 {
    if std::env::var_os("TENURE_LONG").is_some_and(|value| value == "1") { 10 } else { 1 }
}

/// A world that violated an invariant.
#[derive(Debug, Clone)]
pub struct Failure {
    pub seed: u64,
    pub family: Family,
    pub violation: Violation,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { invariant, what } = &self.violation;
        writeln!(f, "seed {}: \"{invariant}\" is broken: {what}", self.seed)?;
        let family = format!("{:?}", self.family).to_lowercase();
        write!(
            f,
            "replay it with: cargo run -p tenure-sim --release -- --seed {} --family {family} --trace",
            self.seed
        )
    }
}

/// The result of many worlds.
#[derive(Debug, Clone, Default)]
pub struct RunSummary {
    pub stats: Stats,
    /// The worlds that violated an invariant.
    pub failures: Vec<Failure>,
}

/// Runs the worlds of this family and these seeds, until the time is up if there is a limit.
pub fn simulate(family: Family, seeds: impl IntoIterator<Item = u64>, limit: Option<Duration>) -> RunSummary {
    let began = Instant::now();
    let mut summary = RunSummary::default();
    for seed in seeds {
        let (stats, violation) = run_world(WorldSpec { family, ..WorldSpec::new(seed) });
        summary.stats.add(&stats);
        summary.failures.extend(violation.map(|violation| Failure { seed, family, violation }));
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
    }
    summary
}

/// How a mutant was caught.
#[derive(Debug, Clone)]
pub struct HuntResult {
    pub mutant: Mutant,
    /// In which world, and by which invariant; none: it survived.
    pub caught: Option<Failure>,
    /// How many worlds it took.
    pub worlds: u64,
}

impl std::fmt::Display for HuntResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = format!("{:?}", self.mutant);
        match &self.caught {
            Some(Failure { seed, violation: Violation { invariant, what }, .. }) => {
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

/// Looks for a world of these seeds that catches the mutant.
#[must_use]
pub fn hunt(mutant: Mutant, from: u64, most: u64, focus: Focus) -> HuntResult {
    for seed in from..from + most {
        if let (_, Some(violation)) = run_world(WorldSpec { focus, ..WorldSpec::hunt(seed, mutant) }) {
            let caught = Some(Failure { seed, family: Family::Any, violation });
            return HuntResult { mutant, caught, worlds: seed - from + 1 };
        }
    }
    HuntResult { mutant, caught: None, worlds: most }
}

/// Runs one world. An engine that panics violates an invariant of its own, and the seed must be reported all the same.
fn run_world(spec: WorldSpec) -> (Stats, Option<Violation>) {
    match std::panic::catch_unwind(|| world::run(spec)) {
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
