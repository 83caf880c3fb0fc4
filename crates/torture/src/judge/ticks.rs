//! The rules of ticks: none is run twice, and none is lost.

use std::collections::BTreeMap;

use super::violation::{Violation, ViolationKind, show};
use super::{Note, NoteKind};

/// No tick is run twice.
pub(super) fn twice(notes: &[Note]) -> Vec<Violation> {
    let mut runs: BTreeMap<(&str, u64), &Note> = BTreeMap::new();
    let mut found = Vec::new();
    for note in notes {
        let NoteKind::Ticked { task, tick, .. } = &note.what else { continue };
        if let Some(before) = runs.insert((task, *tick), note) {
            let who = |note: &Note| format!("{} (process {})", note.node, note.pid);
            let span = (before.t, note.t);
            let text = format!("{tick} by {} and by {}, {}", who(before), who(note), show(span));
            found.push(Violation::of(ViolationKind::TickTwice, task, span, text));
        }
    }
    found
}

/// The ledger accounts for each tick that it has passed. What was read may be older than what was read before, where reads
/// lag: a ledger only goes on.
pub(super) fn lost(notes: &[Note]) -> Vec<Violation> {
    let mut ledgers: BTreeMap<&str, (&Note, u64, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for note in notes {
        let NoteKind::Ledger { task, tick, every, accounted } = &note.what else { continue };
        let Some((before, from, known)) = ledgers.get(task.as_str()).copied() else {
            ledgers.insert(task, (note, *tick, *accounted));
            continue;
        };
        // A ledger begins between two ticks.
        let every = (*every).max(1);
        let passed = (tick / every).saturating_sub(from / every);
        let gained = accounted.saturating_sub(known);
        if *tick < from || (passed == gained && *accounted >= known) {
            // One that went back for good is found when it has come as far again.
            if *tick >= from {
                ledgers.insert(task, (note, *tick, *accounted));
            }
            continue;
        }
        let span = (before.t, note.t);
        let text = format!("{passed} ticks passed, and the ledger has {gained} more, {}", show(span));
        found.push(Violation::of(ViolationKind::TickLost, task, span, text));
        ledgers.insert(task, (note, *tick, *accounted));
    }
    found
}

/// How many ticks were run.
pub(super) fn count(notes: &[Note]) -> u64 {
    notes.iter().filter(|note| matches!(note.what, NoteKind::Ticked { .. })).count() as u64
}
