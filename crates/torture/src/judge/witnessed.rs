//! What follows from acts alone: for those who know no more than who led when, and under which token.

use std::collections::BTreeMap;
use std::fmt;

use super::{Note, NoteKind, ObservedTenure, Violation, rules, tenures};
use crate::witness::Beat;

/// Whether two ever led a role at once, and whether tokens rose.
#[derive(Debug, Clone, Default)]
pub struct WitnessVerdict {
    /// Every tenure that left a trace, in order of time.
    pub tenures: Vec<ObservedTenure>,
    /// Overlaps, and tokens that did not rise.
    pub violations: Vec<Violation>,
}

impl WitnessVerdict {
    /// Judges notes in any order.
    #[must_use]
    pub fn of(notes: &[Note]) -> Self {
        let tenures = tenures(notes);
        let mut violations = rules::leaders(&tenures);
        violations.extend(rules::tokens(&tenures, |_, _, _| false));
        Self { tenures, violations }
    }

    /// Judges the beats of workers: each is an act of its tenure.
    #[must_use]
    pub fn of_beats(beats: &[Beat]) -> Self {
        let note = |beat: &Beat| {
            let (role, token) = (beat.role.clone(), beat.token);
            let what = NoteKind::Act { role, token, leads: true, until: 0 };
            Note { t: beat.t, node: beat.node.clone(), pid: beat.pid, what }
        };
        Self::of(&beats.iter().map(note).collect::<Vec<_>>())
    }

    /// The most that ever led one role at once.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        let mut roles: BTreeMap<&str, Vec<(u64, bool)>> = BTreeMap::new();
        for tenure in &self.tenures {
            if let Some((from, to)) = tenure.led {
                // At one instant beginnings come before ends: tenures that touch have met.
                roles.entry(&tenure.role).or_default().extend([(from, false), (to, true)]);
            }
        }
        roles.into_values().map(most_open).max().unwrap_or(0)
    }

    /// # Panics
    /// If anything was wrong, with the two tenures that prove it.
    pub fn assert_sound(&self) {
        assert!(self.violations.is_empty(), "{self}");
    }
}

/// Of beginnings (false) and ends (true), the most that are open at once.
fn most_open(mut turns: Vec<(u64, bool)>) -> usize {
    turns.sort_unstable();
    let (mut open, mut most) = (0_usize, 0);
    for (_, ends) in turns {
        open = if ends { open - 1 } else { open + 1 };
        most = most.max(open);
    }
    most
}

impl fmt::Display for WitnessVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} tenures, {} violations", self.tenures.len(), self.violations.len())?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ViolationKind;
    use super::*;

    fn beat(t: u64, role: &str, node: &str, token: u64) -> Beat {
        Beat { t, role: role.into(), node: node.into(), token, pid: u32::try_from(token).unwrap() }
    }

    fn kinds(verdict: &WitnessVerdict) -> Vec<ViolationKind> {
        verdict.violations.iter().map(|violation| violation.wrong).collect()
    }

    #[test]
    fn one_after_the_other_is_sound() {
        let beats = [beat(1, "s", "a", 1), beat(5, "s", "a", 1), beat(6, "s", "b", 2), beat(9, "s", "a", 3)];
        let verdict = WitnessVerdict::of_beats(&beats);
        verdict.assert_sound();
        assert_eq!((verdict.most_at_once(), verdict.tenures.len()), (1, 3));
    }

    #[test]
    fn two_at_once_are_found_even_if_the_longer_one_began_first() {
        let beats = [
            beat(1, "s", "a", 1),
            beat(9, "s", "a", 1),
            beat(3, "s", "b", 2),
            beat(4, "s", "b", 2),
            beat(7, "s", "c", 3),
        ];
        let verdict = WitnessVerdict::of_beats(&beats);
        assert_eq!(kinds(&verdict), [ViolationKind::TwoLeaders; 2], "{verdict}");
        assert_eq!(verdict.most_at_once(), 2);
        assert!(verdict.to_string().contains("two led at once (s, "), "{verdict}");
    }

    #[test]
    fn beats_at_one_instant_are_two_at_once() {
        let verdict = WitnessVerdict::of_beats(&[beat(3, "s", "a", 1), beat(3, "s", "b", 2)]);
        assert_eq!((kinds(&verdict), verdict.most_at_once()), (vec![ViolationKind::TwoLeaders], 2));
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let lower = [beat(1, "s", "a", 5), beat(2, "s", "b", 7), beat(3, "s", "c", 6)];
        let same = [beat(1, "s", "a", 7), Beat { pid: 8, ..beat(3, "s", "b", 7) }];
        for beats in [&lower[..], &same[..]] {
            let verdict = WitnessVerdict::of_beats(beats);
            assert_eq!((kinds(&verdict), verdict.most_at_once()), (vec![ViolationKind::Token], 1));
        }
    }

    #[test]
    fn roles_do_not_disturb_each_other() {
        let beats = [beat(1, "s", "a", 1), beat(3, "s", "a", 1), beat(2, "x", "b", 1)];
        WitnessVerdict::of_beats(&beats).assert_sound();
    }
}
