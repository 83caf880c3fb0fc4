//! What a node tells must be a story that can be: numbered without gaps, elected before lost, one tenure at a time.

use std::collections::BTreeMap;

use super::violation::{Violation, ViolationKind};
use super::{Note, NoteKind};

/// What a listener of one process has heard.
#[derive(Default)]
struct Story<'a> {
    last: Option<u64>,
    held: BTreeMap<&'a str, u64>,
    highest: BTreeMap<&'a str, u64>,
}

/// Every violation of the order of events.
pub(super) fn legal(notes: &[Note]) -> Vec<Violation> {
    let mut stories: BTreeMap<(&str, u32), Story<'_>> = BTreeMap::new();
    let mut found = Vec::new();
    let mut told: Vec<(&Note, u64)> = notes.iter().filter_map(|note| Some((note, sequence(note)?))).collect();
    told.sort_by_key(|(note, sequence)| (&note.node, note.pid, *sequence));
    for (note, _) in told {
        let story = stories.entry((&note.node, note.pid)).or_default();
        if let Some(why) = story.hear(note) {
            found.push(Violation::of(ViolationKind::Events, &note.node, (note.t, note.t), why));
        }
    }
    found
}

fn sequence(note: &Note) -> Option<u64> {
    match note.what {
        NoteKind::Told { sequence, .. } => Some(sequence),
        _ => None,
    }
}

impl<'a> Story<'a> {
    /// What is wrong with what comes next.
    fn hear(&mut self, note: &'a Note) -> Option<String> {
        let NoteKind::Told { sequence, event, role, token, .. } = &note.what else { return None };
        if event == "missed" {
            // A listener that was too slow has lost the thread; tokens must rise all the same.
            *self = Self { highest: std::mem::take(&mut self.highest), ..Self::default() };
            return None;
        }
        let before = self.last.replace(*sequence);
        if let Some(before) = before.filter(|before| before + 1 != *sequence) {
            return Some(format!("event {sequence} ({event}) came after event {before}"));
        }
        let (role, token) = (role.as_deref()?, (*token)?);
        match (event.as_str(), self.held.get(role).copied()) {
            ("elected", Some(held)) => {
                Some(format!("elected under {token} while it held {role} under {held}"))
            }
            ("elected", None) => {
                self.held.insert(role, token);
                let highest = self.highest.insert(role, token).filter(|highest| *highest >= token)?;
                Some(format!("elected {role} under {token} after {highest}"))
            }
            ("lost", Some(held)) if held == token => {
                self.held.remove(role);
                None
            }
            ("lost" | "draining", held) if held != Some(token) => {
                Some(format!("{event} {role} under {token}, which it did not hold"))
            }
            _ => None,
        }
    }
}
