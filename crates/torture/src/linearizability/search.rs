//! Whether a recorded history of compare-and-sets could have happened one after the other.
//!
//! Each operation has a beginning and an end on one clock. The history of a register is linearizable if every operation
//! can be given one moment between its beginning and its end such that, in the order of those moments, each one did what
//! it was seen to do. An operation whose outcome is unknown may have happened at any moment after its beginning, or
//! never. The search is that of Wing and Gong, with the states remembered that were found to lead nowhere (Lowe).

use std::collections::{BTreeMap, HashSet};

/// What was done to a register, and what was seen. A register is absent (`None`) or has a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterAction {
    /// It was read, and had this version.
    Read(Option<u64>),
    /// It was to go from `expect` to `put`; what came of it.
    Set {
        /// What it had to be.
        expect: Option<u64>,
        /// What it was to become.
        put: Option<u64>,
        /// What came of it.
        seen: SetOutcome,
    },
}

/// What came of a compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetOutcome {
    /// It was done.
    Applied,
    /// It was not, because the register had this version.
    Conflict(Option<u64>),
    /// Unknown.
    Unknown,
    /// It was not, and never will be.
    Never,
}

/// One operation of a history.
#[derive(Debug, Clone)]
pub struct RegisterOperation {
    /// Which register.
    pub key: String,
    /// What was done.
    pub act: RegisterAction,
    /// When it began.
    pub from: u64,
    /// When the answer came.
    pub to: u64,
}

/// Checks each register of a history by itself. An error is the history of a register that cannot have happened, in the
/// order of beginnings.
///
/// # Errors
/// If a register's history is not linearizable.
pub fn check(history: &[RegisterOperation]) -> Result<(), Vec<RegisterOperation>> {
    let mut registers: BTreeMap<&str, Vec<RegisterOperation>> = BTreeMap::new();
    for op in history {
        registers.entry(&op.key).or_default().push(op.clone());
    }
    for (_, mut ops) in registers {
        ops.sort_by_key(|op| (op.from, op.to));
        if !is_linearizable(&ops) {
            return Err(ops);
        }
    }
    Ok(())
}

fn is_linearizable(ops: &[RegisterOperation]) -> bool {
    // What never happened says nothing.
    let ops: Vec<&RegisterOperation> = ops
        .iter()
        .filter(|op| !matches!(&op.act, RegisterAction::Set { seen: SetOutcome::Never, .. }))
        .collect();
    Search { ops: &ops, done: Bits::new(ops.len()), dead_ends: HashSet::new() }.finds_an_order()
}

/// Which operations have been given a moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn flip(&mut self, at: usize) {
        self.0[at / 64] ^= 1 << (at % 64);
    }
}

struct Search<'a> {
    ops: &'a [&'a RegisterOperation],
    done: Bits,
    dead_ends: HashSet<(Bits, Option<u64>)>,
}

/// A point of the search: what the register holds, what may be next, and what of it is being tried.
struct Point {
    state: Option<u64>,
    /// The first operation that may not have been done.
    first: usize,
    left: Vec<usize>,
    tried: Option<usize>,
}

impl Search<'_> {
    fn finds_an_order(&mut self) -> bool {
        if self.is_finished(0) {
            return true;
        }
        let mut path = vec![Point { state: None, first: 0, left: self.candidates(0), tried: None }];
        while let Some(point) = path.last_mut() {
            if let Some(tried) = point.tried.take() {
                self.done.flip(tried);
            }
            let Some(next) = point.left.pop() else {
                path.pop();
                continue;
            };
            let Some(state) = step(&self.ops[next].act, point.state) else { continue };
            self.done.flip(next);
            point.tried = Some(next);
            let first =
                (point.first..self.ops.len()).find(|at| !self.done.has(*at)).unwrap_or(self.ops.len());
            if self.is_finished(first) {
                return true;
            }
            if self.dead_ends.insert((self.done.clone(), state)) {
                path.push(Point { state, first, left: self.candidates(first), tried: None });
            }
        }
        false
    }

    /// What is left, if anything, need not have happened.
    fn is_finished(&self, first: usize) -> bool {
        (first..self.ops.len()).all(|at| self.done.has(at) || is_unknown(&self.ops[at].act))
    }

    /// Those that may be next, the likeliest last: they began before any other that is left had ended.
    fn candidates(&self, first: usize) -> Vec<usize> {
        let left = (first..self.ops.len()).filter(|at| !self.done.has(*at));
        let known = left.clone().filter(|at| !is_unknown(&self.ops[*at].act));
        let end = known.map(|at| self.ops[at].to).min().unwrap_or(u64::MAX);
        let mut next: Vec<usize> = left.take_while(|at| self.ops[*at].from <= end).collect();
        next.sort_by_key(|at| std::cmp::Reverse((is_unknown(&self.ops[*at].act), self.ops[*at].to)));
        next
    }
}

fn is_unknown(act: &RegisterAction) -> bool {
    matches!(act, RegisterAction::Set { seen: SetOutcome::Unknown, .. })
}

/// What the register holds after an operation; none if it cannot have been seen to do what it did.
fn step(act: &RegisterAction, state: Option<u64>) -> Option<Option<u64>> {
    match act {
        RegisterAction::Read(seen) => (*seen == state).then_some(state),
        RegisterAction::Set { expect, put, seen: SetOutcome::Applied } => (*expect == state).then_some(*put),
        RegisterAction::Set { expect, seen: SetOutcome::Conflict(found), .. } => {
            (*found == state && *expect != state).then_some(state)
        }
        // Done where it does nothing, it is as good as never done.
        RegisterAction::Set { expect, put, seen: SetOutcome::Unknown } => (*expect == state).then_some(*put),
        RegisterAction::Set { seen: SetOutcome::Never, .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(from: u64, to: u64, act: RegisterAction) -> RegisterOperation {
        RegisterOperation { key: "k".to_owned(), act, from, to }
    }

    fn set(from: u64, to: u64, expect: Option<u64>, put: Option<u64>, seen: SetOutcome) -> RegisterOperation {
        op(from, to, RegisterAction::Set { expect, put, seen })
    }

    fn read(from: u64, to: u64, seen: Option<u64>) -> RegisterOperation {
        op(from, to, RegisterAction::Read(seen))
    }

    #[test]
    fn what_can_have_happened_passes() {
        use SetOutcome::{Applied, Conflict, Never, Unknown};
        for history in [
            vec![],
            vec![set(1, 2, None, Some(1), Applied), read(3, 4, Some(1))],
            // Two at once, of which one wins.
            vec![
                set(1, 9, None, Some(1), Applied),
                set(1, 9, None, Some(2), Conflict(Some(1))),
                read(5, 6, None),
            ],
            // Unknown, and seen much later; or never seen at all.
            vec![set(1, 2, None, Some(1), Unknown), read(3, 4, None), read(5, 6, Some(1))],
            vec![set(1, 2, None, Some(1), Unknown), read(3, 4, None), read(5, 6, None)],
            vec![set(1, 2, None, Some(1), Never), read(3, 4, None)],
            vec![
                set(1, 2, None, Some(1), Applied),
                set(3, 20, Some(1), None, Unknown),
                set(4, 9, None, Some(3), Applied),
                read(10, 11, Some(3)),
            ],
        ] {
            assert!(check(&history).is_ok(), "{history:?}");
        }
    }

    #[test]
    fn what_cannot_have_happened_is_found() {
        use SetOutcome::{Applied, Conflict, Never, Unknown};
        for (what, history) in [
            ("a stale read", vec![set(1, 2, None, Some(1), Applied), read(3, 4, None)]),
            ("two winners", vec![set(1, 9, None, Some(1), Applied), set(1, 9, None, Some(2), Applied)]),
            (
                "a write that came back",
                vec![
                    set(1, 2, None, Some(1), Applied),
                    set(3, 4, Some(1), Some(2), Applied),
                    read(5, 6, Some(2)),
                    read(7, 8, Some(1)),
                ],
            ),
            ("a lost write", vec![set(1, 2, None, Some(1), Applied), set(3, 4, None, Some(2), Applied)]),
            (
                "a conflict with what was never there",
                vec![set(1, 2, None, Some(1), Applied), set(3, 4, Some(9), Some(2), Conflict(Some(7)))],
            ),
            ("what was not to come", vec![set(1, 2, None, Some(1), Never), read(3, 4, Some(1))]),
            (
                "unknown, but seen before it began",
                vec![read(1, 2, Some(1)), set(3, 4, None, Some(1), Unknown)],
            ),
            (
                "seen, and then not",
                vec![set(1, 2, None, Some(1), Unknown), read(3, 4, Some(1)), read(5, 6, None)],
            ),
        ] {
            assert!(check(&history).is_err(), "{what}");
        }
    }

    #[test]
    fn registers_are_judged_one_by_one_and_long_histories_quickly() {
        let mut history = Vec::new();
        for nth in 0..2000 {
            let at = nth * 10;
            let expect = (nth > 0).then_some(nth);
            history.push(set(at, at + 15, expect, Some(nth + 1), SetOutcome::Applied));
            history.push(set(at, at + 15, Some(u64::MAX), Some(0), SetOutcome::Unknown));
        }
        assert!(check(&history).is_ok());
        let other = RegisterOperation { key: "other".to_owned(), ..read(1, 2, Some(5)) };
        history.push(other);
        assert_eq!(check(&history).unwrap_err().len(), 1);
    }
}
