//! The checker: what the beats of all workers prove.

use std::collections::BTreeMap;
use std::fmt;

use crate::witness::Beat;

/// One worker's time at work, from its first to its last beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stint {
    /// For which role.
    pub role: String,
    /// On which node.
    pub node: String,
    /// Under which token.
    pub token: u64,
    /// The process.
    pub pid: u32,
    /// The first beat.
    pub from: u64,
    /// The last beat.
    pub to: u64,
}

/// Something that must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two workers of a role at once.
    Overlap(Box<Stint>, Box<Stint>),
    /// A later worker with a token that is not higher.
    Token(Box<Stint>, Box<Stint>),
}

/// What the beats prove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Every worker, in order of its first beat.
    pub stints: Vec<Stint>,
    /// What went wrong.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// Judges beats in any order.
    #[must_use]
    pub fn of(beats: &[Beat]) -> Self {
        let mut stints: BTreeMap<(&str, u64, u32, &str), Stint> = BTreeMap::new();
        for beat in beats {
            let key = (beat.role.as_str(), beat.token, beat.pid, beat.node.as_str());
            let stint = stints.entry(key).or_insert_with(|| Stint {
                role: beat.role.clone(),
                node: beat.node.clone(),
                token: beat.token,
                pid: beat.pid,
                from: beat.t,
                to: beat.t,
            });
            (stint.from, stint.to) = (stint.from.min(beat.t), stint.to.max(beat.t));
        }
        let mut stints: Vec<Stint> = stints.into_values().collect();
        stints.sort_by_key(|stint| stint.from);
        let violations = violations(&stints);
        Self { stints, violations }
    }

    /// How long nobody worked, between each worker and the next, in nanoseconds. Meant for one role.
    #[must_use]
    pub fn gaps(&self) -> Vec<u64> {
        self.stints.windows(2).map(|pair| pair[1].from.saturating_sub(pair[0].to)).collect()
    }

    /// # Panics
    /// If anything went wrong, with the two workers that prove it.
    pub fn assert_sound(&self) {
        assert!(self.violations.is_empty(), "{self}");
    }
}

/// Workers of a role in order of their first beat: each must begin after all before it have ended, with a higher token.
fn violations(stints: &[Stint]) -> Vec<Violation> {
    let mut last: BTreeMap<&str, (&Stint, &Stint)> = BTreeMap::new();
    let mut found = Vec::new();
    for stint in stints {
        let entry = last.entry(&stint.role).or_insert((stint, stint));
        let (latest, highest) = *entry;
        if std::ptr::eq(latest, stint) {
            continue;
        }
        if stint.from <= latest.to {
            found.push(Violation::Overlap(Box::new(latest.clone()), Box::new(stint.clone())));
        }
        if stint.token <= highest.token {
            found.push(Violation::Token(Box::new(highest.clone()), Box::new(stint.clone())));
        }
        *entry = (
            if stint.to > latest.to { stint } else { latest },
            if stint.token > highest.token { stint } else { highest },
        );
    }
    found
}

impl fmt::Display for Stint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, node, token, pid, from, to } = self;
        let (from, to) = (*from as f64 / 1e9, *to as f64 / 1e9);
        write!(f, "{role}: {node} (pid {pid}) with token {token} from {from:.6} s to {to:.6} s")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} workers, {} violations", self.stints.len(), self.violations.len())?;
        for violation in &self.violations {
            let (what, one, other) = match violation {
                Violation::Overlap(one, other) => ("two at once", one, other),
                Violation::Token(one, other) => ("the token did not rise", one, other),
            };
            writeln!(f, "{what}:\n  {one}\n  {other}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(t: u64, role: &str, node: &str, token: u64) -> Beat {
        Beat { t, role: role.into(), node: node.into(), token, pid: u32::try_from(token).unwrap() }
    }

    #[test]
    fn one_after_the_other_is_sound() {
        let beats = [beat(1, "s", "a", 1), beat(5, "s", "a", 1), beat(6, "s", "b", 2), beat(9, "s", "a", 3)];
        let verdict = Verdict::of(&beats);
        verdict.assert_sound();
        assert_eq!(verdict.gaps(), [1, 3]);
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
        let verdict = Verdict::of(&beats);
        assert_eq!(verdict.violations.len(), 2, "{verdict}");
        assert!(verdict.to_string().contains("two at once"));
    }

    #[test]
    fn beats_at_one_instant_are_two_at_once() {
        let verdict = Verdict::of(&[beat(3, "s", "a", 1), beat(3, "s", "b", 2)]);
        assert!(matches!(verdict.violations[0], Violation::Overlap(..)));
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let verdict = Verdict::of(&[beat(1, "s", "a", 5), beat(2, "s", "b", 7), beat(3, "s", "c", 6)]);
        assert!(matches!(verdict.violations[..], [Violation::Token(..)]));
    }

    #[test]
    fn roles_do_not_disturb_each_other() {
        Verdict::of(&[beat(1, "s", "a", 1), beat(3, "s", "a", 1), beat(2, "x", "b", 1)]).assert_sound();
    }
}
