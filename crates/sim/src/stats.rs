//! Counters of one world, and of many.

use std::fmt;
use std::time::Duration;

use crate::clock::Instant;
use crate::faults::{Fault, MessageFault};

/// Counters of one world or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub worlds: u64,
    /// True time that passed in all worlds, in nanoseconds.
    pub simulated: Instant,
    pub steps: u64,
    pub messages: u64,
    pub tenures: u64,
    pub sessions: u64,
    /// Sessions that another node expelled.
    pub expulsions: u64,
    /// Expulsions that rested on evidence alone.
    pub by_evidence: u64,
    pub faults: [u64; Fault::ALL.len()],
    pub message_faults: [u64; MessageFault::ALL.len()],
    /// The longest that a healed world took to lead every role, as a part of its bound, in thousandths.
    pub slowest_recovery: u64,
    /// Worlds that violated an invariant.
    pub violations: u64,
}

impl Stats {
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
        for (sum, more) in self.message_faults.iter_mut().zip(other.message_faults) {
            *sum += more;
        }
    }

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
        write!(f, "\nmessage faults:")?;
        for (message_fault, count) in MessageFault::ALL.iter().zip(self.message_faults) {
            write!(f, " {message_fault:?} {count}")?;
        }
        Ok(())
    }
}
