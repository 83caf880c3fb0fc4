//! The figures of one world, and of many.

use std::fmt;
use std::time::Duration;

use crate::clock::Instant;
use crate::faults::{Fault, Mishap};

/// What happened, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Worlds.
    pub worlds: u64,
    /// True time that passed in them.
    pub simulated: Instant,
    /// Steps of engines.
    pub steps: u64,
    /// Messages to and from the store.
    pub messages: u64,
    /// Tenures that began.
    pub tenures: u64,
    /// Sessions that were opened.
    pub sessions: u64,
    /// Sessions that somebody else proved over.
    pub expulsions: u64,
    /// Expulsions that were due to evidence.
    pub by_evidence: u64,
    /// Faults by kind.
    pub faults: [u64; Fault::ALL.len()],
    /// Mishaps of messages by kind.
    pub mishaps: [u64; Mishap::ALL.len()],
    /// The longest that a healed world took to lead every role, as a part of its bound, in thousandths.
    pub slowest_recovery: u64,
    /// Worlds in which something was wrong.
    pub violations: u64,
}

impl Stats {
    /// Adds the figures of another run.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.simulated += other.simulated;
        self.steps += other.steps;
        self.messages += other.messages;
        self.tenures += other.tenures;
        self.sessions += other.sessions;
        self.expulsions += other.expulsions;
        self.by_evidence += other.by_evidence;
        self.slowest_recovery = self.slowest_recovery.max(other.slowest_recovery);
        self.violations += other.violations;
        for (sum, more) in self.faults.iter_mut().zip(other.faults) {
            *sum += more;
        }
        for (sum, more) in self.mishaps.iter_mut().zip(other.mishaps) {
            *sum += more;
        }
    }

    /// Simulated time in hours.
    #[must_use]
    pub fn hours(&self) -> f64 {
        self.simulated as f64 / 3.6e12
    }

    /// The figures as text, with how long it took to get them.
    #[must_use]
    pub fn report(&self, took: Duration) -> String {
        let minutes = took.as_secs_f64() / 60.0;
        format!("{self}\n{:.1} simulated hours per minute of one core", self.hours() / minutes.max(1e-9))
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} worlds, {:.1} simulated hours, {} violations",
            self.worlds,
            self.hours(),
            self.violations
        )?;
        writeln!(f, "{} engine steps, {} messages", self.steps, self.messages)?;
        write!(f, "{} tenures, {} sessions, ", self.tenures, self.sessions)?;
        writeln!(f, "{} expulsions ({} by evidence)", self.expulsions, self.by_evidence)?;
        writeln!(
            f,
            "slowest recovery after healing: {:.1} % of its bound",
            self.slowest_recovery as f64 / 10.0
        )?;
        write!(f, "faults:")?;
        for (fault, count) in Fault::ALL.iter().zip(self.faults) {
            write!(f, " {fault:?} {count}")?;
        }
        write!(f, "\nmishaps:")?;
        for (mishap, count) in Mishap::ALL.iter().zip(self.mishaps) {
            write!(f, " {mishap:?} {count}")?;
        }
        Ok(())
    }
}
