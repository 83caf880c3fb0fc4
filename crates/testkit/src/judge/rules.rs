//! The rules of safety, each over everything that is known.

use std::collections::BTreeMap;

use super::explain::{Violation, Wrong, millis, show};
use super::{Case, Note, Reign, Span, Spans, What};

/// No two lead a role at once.
pub(super) fn leaders(reigns: &[Reign]) -> Vec<Violation> {
    apart(Wrong::TwoLeaders, reigns, |reign| reign.led)
}

/// No two work for a role at once, as long as a lease covers them.
pub(super) fn workers(reigns: &[Reign]) -> Vec<Violation> {
    apart(Wrong::TwoWorkers, reigns, Reign::covered)
}

/// In order of their beginning, each must begin after all before it have ended.
fn apart(wrong: Wrong, reigns: &[Reign], of: impl Fn(&Reign) -> Option<Span>) -> Vec<Violation> {
    let mut found = Vec::new();
    for spans in by_role(reigns, of).values() {
        let mut longest: Option<(&Reign, Span)> = None;
        for &(reign, span) in spans {
            if let Some(before) = longest.filter(|(_, before)| span.0 <= before.1) {
                found.push(Violation::of_two(wrong, before, (reign, span)));
            }
            longest = longest.filter(|(_, before)| before.1 >= span.1).or(Some((reign, span)));
        }
    }
    found
}

/// Tokens strictly rise.
pub(super) fn tokens(reigns: &[Reign]) -> Vec<Violation> {
    let mut found = Vec::new();
    for spans in by_role(reigns, |reign| reign.led).values() {
        let mut highest: Option<(&Reign, Span)> = None;
        for &(reign, span) in spans {
            if let Some(before) = highest.filter(|(before, _)| reign.token <= before.token) {
                found.push(Violation::of_two(Wrong::Token, before, (reign, span)));
            }
            highest = highest.filter(|(before, _)| before.token >= reign.token).or(Some((reign, span)));
        }
    }
    found
}

type Listed<'a> = BTreeMap<&'a str, Vec<(&'a Reign, Span)>>;

fn by_role(reigns: &[Reign], of: impl Fn(&Reign) -> Option<Span>) -> Listed<'_> {
    let mut roles = Listed::new();
    for reign in reigns {
        if let Some(span) = of(reign) {
            roles.entry(&reign.role).or_default().push((reign, span));
        }
    }
    roles.values_mut().for_each(|spans| spans.sort_by_key(|(reign, span)| (span.0, reign.token)));
    roles
}

/// Over is final.
pub(super) fn relapses(reigns: &[Reign]) -> Vec<Violation> {
    let relapse = |reign: &Reign| {
        let (over, again) = (reign.after?.0, reign.relapse?);
        (again > over).then(|| Violation::of(Wrong::Relapse, &reign.role, (over, again), reign.to_string()))
    };
    reigns.iter().filter_map(relapse).collect()
}

/// Nobody relies on a lease that has run out.
pub(super) fn beyond_deadline(reigns: &[Reign]) -> Vec<Violation> {
    let beyond = |reign: &Reign| {
        let (at, until) = reign.beyond?;
        Some(Violation::of(Wrong::BeyondDeadline, &reign.role, (until, at), reign.to_string()))
    };
    reigns.iter().filter_map(beyond).collect()
}

/// Work that found its tenure over ends soon, measured where it runs.
pub(super) fn work_ends(case: &Case, reigns: &[Reign]) -> Vec<Violation> {
    let limit = u64::try_from(case.terms.wind_down.as_nanos()).unwrap_or(u64::MAX);
    let late = |reign: &Reign| {
        let span = reign.after?;
        let waited = stalls_of(&case.notes, |note| note.pid == reign.pid).within(span);
        let long = (span.1 - span.0).saturating_sub(waited);
        (long > limit).then(|| {
            let text = format!("{reign} worked on for {} after its tenure", millis(long));
            Violation::of(Wrong::WorkGoesOn, &reign.role, span, text)
        })
    };
    reigns.iter().filter_map(late).collect()
}

/// When the threads of those notes were kept waiting.
pub(super) fn stalls_of(notes: &[Note], whose: impl Fn(&Note) -> bool) -> Spans {
    Spans::of(notes.iter().filter(|note| whose(note)).filter_map(|note| match note.what {
        What::Stalled { from } => Some((from, note.t)),
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
            let wrong = if token < before { Wrong::Fence } else { Wrong::SharedToken };
            let who =
                |note: &Note, token| format!("{} (process {}) under token {token}", note.node, note.pid);
            let text = format!("{} was taken after {}", who(note, token), who(by, before));
            let text = format!("{text}, {}", show((by.t, note.t)));
            found.push(Violation::of(wrong, role, (by.t, note.t), text));
        }
    }
    found
}

/// Writes that the fence took, and that it refused.
pub(super) fn fenced(notes: &[Note]) -> (u64, u64) {
    let (mut took, mut refused) = (0, 0);
    for note in notes {
        match note.what {
            What::Fenced { taken: true, .. } => took += 1,
            What::Fenced { taken: false, .. } => refused += 1,
            _ => {}
        }
    }
    (took, refused)
}

fn taken(note: &Note) -> Option<(&Note, &str, u64)> {
    match &note.what {
        What::Fenced { role, token, taken: true } => Some((note, role, *token)),
        _ => None,
    }
}
