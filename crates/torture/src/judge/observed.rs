//! Reigns: what notes tell of one tenure.

use std::collections::BTreeMap;
use std::fmt;

use super::{Note, NoteKind, Span};

/// One tenure of one process, as far as it left traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedTenure {
    /// Of which role.
    pub role: String,
    /// On which node.
    pub node: String,
    /// In which process.
    pub pid: u32,
    /// Under which token.
    pub token: u64,
    /// From the first to the last instant at which `check()` is known to have been true.
    pub led: Option<Span>,
    /// When its work began, and when it ended, or was last known to run.
    pub worked: Option<Span>,
    /// The latest deadline of its lease that was known to it.
    pub until: u64,
    /// The first instant at which its work found that it leads no more, and the last at which it acted after that.
    pub after: Option<Span>,
    /// An instant at which it led again after that.
    pub relapse: Option<u64>,
    /// An instant at which it led although its deadline, told right after, had passed.
    pub beyond: Option<(u64, u64)>,
    /// How many instants it led at were written down.
    pub acts: u64,
}

impl ObservedTenure {
    /// When its work ran under its lease: work that outlived its deadline, because its process was frozen, did so with
    /// nothing but its token to protect it. Work that never found itself leading was frozen before it began.
    #[must_use]
    pub fn covered(&self) -> Option<Span> {
        let ((from, to), (_, led)) = (self.worked?, self.led?);
        Some((from, to.min(self.until.max(led))))
    }

    fn act(&mut self, t: u64, leads: bool, until: u64) {
        if leads {
            self.acts += 1;
            self.relapse = self.relapse.or(self.after.map(|_| t));
            self.until = self.until.max(until);
            if until != 0 && until < t {
                self.beyond = self.beyond.or(Some((t, until)));
            }
            extend(&mut self.led, t);
        } else {
            extend(&mut self.after, t);
        }
        extend(&mut self.worked, t);
    }
}

fn extend(span: &mut Option<Span>, t: u64) {
    let (from, to) = span.unwrap_or((t, t));
    *span = Some((from.min(t), to.max(t)));
}

/// Every tenure, in order of its first trace.
#[must_use]
pub fn tenures(notes: &[Note]) -> Vec<ObservedTenure> {
    let mut found: BTreeMap<(&str, u64, &str, u32), ObservedTenure> = BTreeMap::new();
    for note in notes {
        let (role, token) = match &note.what {
            NoteKind::Act { role, token, .. } | NoteKind::Work { role, token, .. } => (role, *token),
            _ => continue,
        };
        let tenure = found.entry((role, token, &note.node, note.pid)).or_insert_with(|| ObservedTenure {
            role: role.clone(),
            node: note.node.clone(),
            pid: note.pid,
            token,
            led: None,
            worked: None,
            until: 0,
            after: None,
            relapse: None,
            beyond: None,
            acts: 0,
        });
        match note.what {
            NoteKind::Act { leads, until, .. } => tenure.act(note.t, leads, until),
            _ => extend(&mut tenure.worked, note.t),
        }
    }
    let mut tenures: Vec<ObservedTenure> = found.into_values().collect();
    tenures.sort_by_key(|tenure| (tenure.worked, tenure.token));
    tenures
}

impl fmt::Display for ObservedTenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, pid, token, .. } = self;
        write!(f, "{node} (process {pid}) under token {token}")
    }
}
