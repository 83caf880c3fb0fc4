//! The judge: what nodes wrote down on one host clock, and what it proves.
//!
//! ```text
//!   node processes ── notes, one file each ──┐
//!   the fence ─────── notes ─────────────────┼─▶ Case ─▶ judge ─▶ Verdict
//!   the nemesis ───── what was injected ─────┘
//! ```
//!
//! Every rule counts only what is proven: an instant is read *before* leadership is asked, so that a process that is
//! frozen in between claims too little, never too much. A rule that speaks of time takes off what the witness's own
//! threads were kept waiting for.

mod events;
mod explain;
mod gaps;
mod note;
mod reign;
mod rules;
mod spans;
#[cfg(test)]
mod tests;

pub use explain::{Violation, Wrong};
pub use gaps::Gap;
pub use note::{Meter, Note, Pen, Pile, Tail, What, read_dir};
pub use reign::{Reign, reigns};
pub use spans::{Span, Spans};

use std::time::Duration;

use crate::chain;

/// On what a fault lies: what cannot be expected meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// This node cannot be expected to lead.
    Node(String),
    /// Nobody can be expected to lead this role.
    Role(String),
    /// Nobody can be expected to lead anything.
    Store,
    /// Everything is expected as ever.
    Nothing,
}

/// Something that was done to the nodes, to the links or to the store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Injected {
    /// Of which kind, such as `kill`.
    pub kind: String,
    /// What, for people.
    pub what: String,
    /// From when, in nanoseconds of the lease clock.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// On what it lies.
    pub on: On,
    /// Whether the store may have lost what it had acknowledged.
    pub destroys: bool,
}

/// What was promised.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Who leads no more is replaced within this.
    pub bound: Duration,
    /// What is allowed on top: for what no thread of the witness could measure.
    pub allowance: Duration,
    /// How long after a fault everything can be expected again.
    pub recovery: Duration,
    /// How long work may go on after its tenure ended, measured where it runs.
    pub wind_down: Duration,
    /// When the nemesis began, and when it had healed everything: the time in which leaders are expected.
    pub expected: (u64, u64),
}

/// Everything that is known of one torture.
#[derive(Debug, Clone)]
pub struct Case {
    /// What the nodes, the fence and the nemesis's own meter wrote down.
    pub notes: Vec<Note>,
    /// What was injected.
    pub injected: Vec<Injected>,
    /// What was promised.
    pub terms: Terms,
}

/// What it comes to.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Everything that must never be, and was.
    pub violations: Vec<Violation>,
    /// Overlaps and tokens that did not rise where the store had lost what it had acknowledged: no promise covers
    /// them, and only the token protects.
    pub losses: Vec<Violation>,
    /// Every tenure that left a trace, in order of time.
    pub reigns: Vec<Reign>,
    /// Every time in which nobody led a role.
    pub gaps: Vec<Gap>,
    /// How many instants at which somebody led were judged.
    pub acts: u64,
    /// Writes that the fence took, and stale ones that it refused.
    pub fenced: (u64, u64),
    /// Operations on registers that were found to be linearizable.
    pub operations: usize,
}

/// Judges a case.
#[must_use]
pub fn judge(case: &Case) -> Verdict {
    let reigns = reigns(&case.notes);
    let gaps = gaps::gaps(case, &reigns);
    let mut found = rules::leaders(&reigns);
    found.extend(rules::workers(&reigns));
    found.extend(rules::tokens(&reigns));
    found.extend(rules::relapses(&reigns));
    found.extend(rules::beyond_deadline(&reigns));
    found.extend(rules::work_ends(case, &reigns));
    found.extend(rules::fences(&case.notes));
    found.extend(events::legal(&case.notes));
    found.extend(gaps::too_long(case, &gaps));
    let registers = chain::histories(&case.notes);
    let operations = registers.values().map(Vec::len).sum();
    found.extend(registers.iter().filter_map(|(name, history)| {
        chain::check(history)
            .err()
            .map(|why| Violation::of(Wrong::Register, name, (why.from, why.to), why.text))
    }));
    let (losses, violations) = found
        .into_iter()
        .map(|violation| violation.blame(&case.injected))
        .partition(|violation| violation.is_loss(&case.injected, case.terms.recovery));
    let acts = reigns.iter().map(|reign| reign.acts).sum();
    let fenced = rules::fenced(&case.notes);
    Verdict { violations, losses, reigns, gaps, acts, fenced, operations }
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
