//! The judge: what nodes wrote down on one host clock, and what it proves.
//!
//! ```text
//!   node processes ── notes, one file each ──┐
//!   the fence ─────── notes ─────────────────┼─▶ Case ─▶ judge ─▶ Verdict
//!   the injector ──── what was injected ─────┘
//! ```
//!
//! Every rule counts only what is proven: an instant is read *before* leadership is asked, so that a process that is
//! frozen in between claims too little, never too much. A rule that speaks of time takes off what the witness's own
//! threads were kept waiting for.

mod events;
mod gaps;
mod losses;
mod note;
mod observed;
#[cfg(test)]
mod planted;
mod rules;
mod spans;
#[cfg(test)]
mod tests;
mod ticks;
mod violation;
mod witnessed;

pub use gaps::Gap;
pub use losses::DataLoss;
pub use note::{NeighbourActivity, Note, NoteBuffer, NoteKind, NoteReader, NoteWriter, StallMeter, read_dir};
pub use observed::{ObservedTenure, tenures};
pub use spans::{Span, Spans};
pub use violation::{Violation, ViolationKind};
pub use witnessed::WitnessVerdict;

use std::time::Duration;

use crate::linearizability::chain;

/// On what a fault lies: what cannot be expected meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultScope {
    /// This node cannot be expected to lead.
    Node(String),
    /// No node can be expected to lead this role.
    Role(String),
    /// No node can be expected to lead any role.
    Store,
    /// No node can be expected to lead any role, nor for as long after as nodes wait that came to another server.
    Servers,
    /// Everything is expected as ever.
    Nothing,
}

impl FaultScope {
    /// Whether it is the store that suffers.
    fn is_store(&self) -> bool {
        matches!(self, Self::Store | Self::Servers)
    }
}

/// Something that was done to the nodes, to the links or to the store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InjectedFault {
    /// Of which kind, such as `kill`.
    pub kind: String,
    /// What, for people.
    pub what: String,
    /// From when, in nanoseconds of the lease clock.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// On what it lies.
    pub on: FaultScope,
    /// What the store may have lost of what it had acknowledged.
    pub loses: DataLoss,
}

/// What was promised.
#[derive(Debug, Clone)]
pub struct JudgeTerms {
    /// Who leads no more is replaced within this.
    pub bound: Duration,
    /// The same where more than one node was in trouble: the standby that watched the leader may have been among them.
    pub bound_of_two: Duration,
    /// What is allowed on top: for what no thread of the witness could measure.
    pub allowance: Duration,
    /// A leader that the store forgot leads no longer than this after the last beat that was acknowledged.
    pub lease: Duration,
    /// How long after data was lost, and after a node was in trouble, everything can be expected again: a lease that was
    /// known has to run out, and a quarantine.
    pub recovery: Duration,
    /// How long after any other trouble of the store connections are back.
    pub reconnect: Duration,
    /// How long work may go on after its tenure ended, measured where it runs.
    pub wind_down: Duration,
    /// When the fault injector began, and when it had healed everything: the time in which leaders are expected.
    pub expected: (u64, u64),
    /// Whether tokens rise whatever the store lost.
    pub tokens_rise: bool,
    /// The roles that must be led, whether a leader of them was ever seen or not; without names, all that were seen. Of others
    /// only safety is judged.
    pub roles: Vec<String>,
}

/// Everything that is known of one torture.
#[derive(Debug, Clone)]
pub struct JudgeCase {
    /// What the nodes, the fence and the fault injector's own meter wrote down.
    pub notes: Vec<Note>,
    /// What was injected.
    pub injected: Vec<InjectedFault>,
    /// What was promised.
    pub terms: JudgeTerms,
}

/// What it comes to.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Everything that must never be, and was.
    pub violations: Vec<Violation>,
    /// Writes that the store lost after it had acknowledged them, and the overlaps, tokens that did not rise and ticks that came of
    /// it: no promise covers them, and only the token protects.
    pub losses: Vec<Violation>,
    /// Every tenure that left a trace, in order of time.
    pub tenures: Vec<ObservedTenure>,
    /// Every time in which no node led a role.
    pub gaps: Vec<Gap>,
    /// How many instants at which a node led were judged.
    pub acts: u64,
    /// Writes that the fence took, and stale ones that it refused.
    pub fenced: (u64, u64),
    /// Ticks that were run.
    pub ticks: u64,
    /// Operations on registers that were found to be linearizable.
    pub operations: usize,
    /// What a neighbour did.
    pub nuisance: NeighbourActivity,
}

/// Judges a case.
#[must_use]
pub fn judge(case: &JudgeCase) -> Verdict {
    let tenures = tenures(&case.notes);
    let gaps = gaps::gaps(case, &tenures);
    let registers = chain::histories(&case.notes);
    let operations = registers.values().map(Vec::len).sum();
    let known = losses::find(case, &registers);
    let mut found = rules::leaders(&tenures);
    found.extend(rules::workers(&tenures));
    found.extend(rules::tokens(&tenures, |role, since, until| {
        known.losses.iter().any(|loss| loss.lies_between(&format!("role/{role}"), since, until, &case.terms))
    }));
    found.extend(rules::resumed_tenures(&tenures));
    found.extend(rules::beyond_deadline(&tenures));
    found.extend(rules::work_ends(case, &tenures));
    found.extend(rules::fences(&case.notes));
    found.extend(rules::trespasses(&case.notes));
    found.extend(ticks::twice(&case.notes));
    found.extend(ticks::lost(&case.notes));
    found.extend(events::legal(&case.notes));
    found.extend(gaps::too_long(case, &gaps));
    found.extend(known.violations);
    let found = found.into_iter().map(|violation| violation.blame(&case.injected));
    let (mut losses, violations): (Vec<_>, Vec<_>) =
        found.partition(|violation| losses::excuse(&known.losses, violation, &case.terms));
    losses.extend(known.taken.into_iter().map(|loss| loss.blame(&case.injected)));
    let acts = tenures.iter().map(|tenure| tenure.acts).sum();
    let fenced = rules::fenced(&case.notes);
    let nuisance = rules::nuisance(&case.notes);
    let ticks = ticks::count(&case.notes);
    Verdict { violations, losses, tenures, gaps, acts, fenced, ticks, operations, nuisance }
}

impl Verdict {
    /// The longest gap less what excuses it, and the longest as it was.
    #[must_use]
    pub fn longest_gap(&self) -> (Duration, Duration) {
        let longest = |of: fn(&Gap) -> u64| Duration::from_nanos(self.gaps.iter().map(of).max().unwrap_or(0));
        (longest(|gap| gap.unexcused), longest(|gap| gap.to - gap.from))
    }

    /// # Panics
    /// If anything was wrong, with the shortest explanation of each.
    pub fn assert_sound(&self) {
        let told: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "{} violations:\n{}", told.len(), told.join("\n"));
    }
}
