//! The rules of safety, each over everything that is known.

use std::collections::BTreeMap;

use super::violation::{Violation, ViolationKind, millis, show};
use super::{JudgeCase, NeighbourActivity, Note, NoteKind, ObservedTenure, Span, Spans};

/// No two lead a role at once.
pub(super) fn leaders(tenures: &[ObservedTenure]) -> Vec<Violation> {
    non_overlapping(ViolationKind::TwoLeaders, tenures, |tenure| tenure.led)
}

/// No two work for a role at once, as long as a lease covers them.
pub(super) fn workers(tenures: &[ObservedTenure]) -> Vec<Violation> {
    non_overlapping(ViolationKind::TwoWorkers, tenures, ObservedTenure::covered)
}

/// In order of their beginning, each must begin after all before it have ended.
fn non_overlapping(
    wrong: ViolationKind,
    tenures: &[ObservedTenure],
    of: impl Fn(&ObservedTenure) -> Option<Span>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for spans in by_role(tenures, of).values() {
        let mut longest: Option<(&ObservedTenure, Span)> = None;
        for &(tenure, span) in spans {
            if let Some(before) = longest.filter(|(_, before)| span.0 <= before.1) {
                found.push(Violation::of_two(wrong, before, (tenure, span)));
            }
            longest = longest.filter(|(_, before)| before.1 >= span.1).or(Some((tenure, span)));
        }
    }
    found
}

/// Tokens strictly rise. After a loss of data one may be low; those after it are held to that one, so that one loss does not
/// excuse all that comes later. `lost`: whether the register of a role was lost between two instants.
pub(super) fn tokens(tenures: &[ObservedTenure], lost: impl Fn(&str, u64, u64) -> bool) -> Vec<Violation> {
    let mut found = Vec::new();
    for spans in by_role(tenures, |tenure| tenure.led).values() {
        let mut highest: Option<(&ObservedTenure, Span)> = None;
        for &(tenure, span) in spans {
            if let Some(before) = highest.filter(|(before, _)| tenure.token <= before.token) {
                found.push(Violation::of_two(ViolationKind::Token, before, (tenure, span)));
                highest = highest.filter(|_| !lost(&tenure.role, before.1.0, span.0));
            }
            highest = highest.filter(|(before, _)| before.token >= tenure.token).or(Some((tenure, span)));
        }
    }
    found
}

type Listed<'a> = BTreeMap<&'a str, Vec<(&'a ObservedTenure, Span)>>;

fn by_role(tenures: &[ObservedTenure], of: impl Fn(&ObservedTenure) -> Option<Span>) -> Listed<'_> {
    let mut roles = Listed::new();
    for tenure in tenures {
        if let Some(span) = of(tenure) {
            roles.entry(&tenure.role).or_default().push((tenure, span));
        }
    }
    roles.values_mut().for_each(|spans| spans.sort_by_key(|(tenure, span)| (span.0, tenure.token)));
    roles
}

/// Over is final.
pub(super) fn resumed_tenures(tenures: &[ObservedTenure]) -> Vec<Violation> {
    let relapse = |tenure: &ObservedTenure| {
        let (over, again) = (tenure.after?.0, tenure.relapse?);
        (again > over)
            .then(|| Violation::of(ViolationKind::Relapse, &tenure.role, (over, again), tenure.to_string()))
    };
    tenures.iter().filter_map(relapse).collect()
}

/// No leader relies on a lease that has run out.
pub(super) fn beyond_deadline(tenures: &[ObservedTenure]) -> Vec<Violation> {
    let beyond = |tenure: &ObservedTenure| {
        let (at, until) = tenure.beyond?;
        Some(Violation::of(ViolationKind::BeyondDeadline, &tenure.role, (until, at), tenure.to_string()))
    };
    tenures.iter().filter_map(beyond).collect()
}

/// Work that found its tenure over ends soon, measured where it runs.
pub(super) fn work_ends(case: &JudgeCase, tenures: &[ObservedTenure]) -> Vec<Violation> {
    let limit = u64::try_from(case.terms.wind_down.as_nanos()).unwrap_or(u64::MAX);
    let late = |tenure: &ObservedTenure| {
        let span = tenure.after?;
        let waited = stalls_of(&case.notes, |note| note.pid == tenure.pid).within(span);
        let long = (span.1 - span.0).saturating_sub(waited);
        (long > limit).then(|| {
            let text = format!("{tenure} worked on for {} after its tenure", millis(long));
            Violation::of(ViolationKind::WorkGoesOn, &tenure.role, span, text)
        })
    };
    tenures.iter().filter_map(late).collect()
}

/// When the threads of those notes were kept waiting.
pub(super) fn stalls_of(notes: &[Note], whose: impl Fn(&Note) -> bool) -> Spans {
    Spans::of(notes.iter().filter(|note| whose(note)).filter_map(|note| match note.what {
        NoteKind::Stalled { from } => Some((from, note.t)),
        _ => None,
    }))
}

/// The fenced register of a role never goes back, and no two tenures write to it under one token.
pub(super) fn fences(notes: &[Note]) -> Vec<Violation> {
    let mut highest: BTreeMap<&str, (u64, &Note)> = BTreeMap::new();
    let mut found = Vec::new();
    for (note, role, token) in notes.iter().filter_map(taken) {
        let Some((before, by)) = highest.insert(role, (token, note)) else { continue };
        let same = (&by.node, by.pid) == (&note.node, note.pid);
        if token < before || (token == before && !same) {
            let wrong = if token < before { ViolationKind::Fence } else { ViolationKind::SharedToken };
            let who =
                |note: &Note, token| format!("{} (process {}) under token {token}", note.node, note.pid);
            let text = format!("{} was taken after {}", who(note, token), who(by, before));
            let text = format!("{text}, {}", show((by.t, note.t)));
            found.push(Violation::of(wrong, role, (by.t, note.t), text));
        }
    }
    found
}

/// A neighbour without rights is refused everything, and hears nothing that is not for it.
pub(super) fn trespasses(notes: &[Note]) -> Vec<Violation> {
    let trespass = |note: &Note| match &note.what {
        NoteKind::Trespass { how } => {
            Some(Violation::of(ViolationKind::Trespass, &note.node, (note.t, note.t), how.clone()))
        }
        _ => None,
    };
    notes.iter().filter_map(trespass).collect()
}

/// How much a neighbour did in all.
pub(super) fn nuisance(notes: &[Note]) -> NeighbourActivity {
    let mut sum = NeighbourActivity::default();
    for note in notes {
        if let NoteKind::Neighbour(some) = note.what {
            sum += some;
        }
    }
    sum
}

/// Writes that the fence took, and that it refused.
pub(super) fn fenced(notes: &[Note]) -> (u64, u64) {
    let (mut took, mut refused) = (0, 0);
    for note in notes {
        match note.what {
            NoteKind::Fenced { taken: true, .. } => took += 1,
            NoteKind::Fenced { taken: false, .. } => refused += 1,
            _ => {}
        }
    }
    (took, refused)
}

fn taken(note: &Note) -> Option<(&Note, &str, u64)> {
    match &note.what {
        NoteKind::Fenced { role, token, taken: true } => Some((note, role, *token)),
        _ => None,
    }
}
