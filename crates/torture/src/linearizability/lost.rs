//! What a store that can forget took back of a register.
//!
//! Versions are unique and each write names the one that it replaced, so that all writes are a tree. What leads to the version that was
//! seen last has survived; an acknowledged write on any other branch was forgotten. It is taken out of the history if the store may
//! have forgotten it, and what is left must be the history of one register like any other.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::{ChainFault, Operation};

/// A write that was acknowledged, or seen, and then forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostWrite {
    /// Its version.
    pub put: String,
    /// When it was sent.
    pub called: u64,
    /// By when it was gone: when something older was seen, or when the store was well again.
    pub gone: u64,
}

/// Takes out what the store forgot in one of these spans, and those who saw it before it was gone.
///
/// # Errors
/// If something was still seen after the store had forgotten it.
pub fn without_lost(
    history: &[Operation],
    spans: &[(u64, u64)],
) -> Result<(Vec<Operation>, Vec<LostWrite>), ChainFault> {
    let survived = survived(history);
    let mut lost: BTreeMap<&str, (LostWrite, u64)> = BTreeMap::new();
    for operation in history {
        let Operation::Write { put, called, .. } = operation else { continue };
        let Some(acknowledged) = acknowledged(history, operation) else { continue };
        if survived.contains(put.as_str()) {
            continue;
        }
        let in_time = |span: &&(u64, u64)| span.0 <= acknowledged && *called <= span.1;
        if let Some(limit) = spans.iter().filter(in_time).map(|span| span.1).max() {
            let gone = limit.min(seen_again(history, &survived, acknowledged));
            lost.insert(put, (LostWrite { put: put.clone(), called: *called, gone }, limit));
        }
    }
    let mut left = Vec::new();
    for operation in history {
        let forgotten = version(operation).and_then(|version| lost.get(version));
        match (forgotten, operation) {
            (None, _) => left.push(operation.clone()),
            (Some((write, limit)), Operation::Read { called, returned, .. }) if called > limit => {
                let text = format!("{} was seen after the store had forgotten it", write.put);
                return Err(ChainFault { from: *limit, to: *returned, text });
            }
            (Some(_), _) => {}
        }
    }
    Ok((left, lost.into_values().map(|(write, _)| write).collect()))
}

/// The version that an operation put or saw.
fn version(operation: &Operation) -> Option<&str> {
    match operation {
        Operation::Write { put, .. } => Some(put),
        Operation::Read { version, .. } => version.as_deref(),
    }
}

/// When it was known that a write had been applied, if it ever was.
fn acknowledged(history: &[Operation], write: &Operation) -> Option<u64> {
    if let Operation::Write { applied: Some(true), returned, .. } = write {
        return Some(*returned);
    }
    let sight = |operation: &Operation| match operation {
        Operation::Read { returned, .. } if version(operation) == version(write) => Some(*returned),
        _ => None,
    };
    history.iter().filter_map(sight).min()
}

/// All that leads to the version that was seen last.
fn survived(history: &[Operation]) -> BTreeSet<&str> {
    let mut replaced: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let mut last: (u64, Option<&str>) = (0, None);
    for operation in history {
        let seen = match operation {
            Operation::Write { expect, put, called, applied, .. } => {
                replaced.insert(put, expect.as_deref());
                (*applied == Some(true)).then_some(*called)
            }
            Operation::Read { called, .. } => Some(*called),
        };
        if let Some(called) = seen.filter(|called| *called >= last.0) {
            last = (called, version(operation));
        }
    }
    let mut survived = BTreeSet::new();
    let mut at = last.1;
    while let Some(version) = at.filter(|version| survived.insert(*version)) {
        at = replaced.get(version).copied().flatten();
    }
    survived
}

/// When something that survived, or nothing at all, was first the answer to a read that began after that.
fn seen_again(history: &[Operation], survived: &BTreeSet<&str>, after: u64) -> u64 {
    let sight = |operation: &Operation| match operation {
        Operation::Read { version, called, returned } if *called > after => {
            version.as_deref().is_none_or(|version| survived.contains(version)).then_some(*returned)
        }
        Operation::Write { put, called, returned, applied: Some(true), .. } if *called > after => {
            survived.contains(put.as_str()).then_some(*returned)
        }
        _ => None,
    };
    history.iter().filter_map(sight).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::chain::check;
    use super::*;

    fn write(expect: &str, put: &str, called: u64) -> Operation {
        let expect = (!expect.is_empty()).then(|| expect.to_owned());
        Operation::Write { expect, put: put.into(), called, returned: called + 1, applied: Some(true) }
    }

    fn read(version: &str, called: u64) -> Operation {
        let version = (!version.is_empty()).then(|| version.to_owned());
        Operation::Read { version, called, returned: called + 1 }
    }

    fn lost(history: &[Operation], spans: &[(u64, u64)]) -> Vec<(String, u64, u64)> {
        let (left, lost) = without_lost(history, spans).unwrap();
        check(&left).unwrap();
        lost.into_iter().map(|write| (write.put, write.called, write.gone)).collect()
    }

    #[test]
    fn what_a_loss_took_is_told_and_the_rest_is_one_register() {
        let history = [
            write("", "a", 10),
            write("a", "b", 20),
            read("b", 22),
            write("b", "c", 24),
            read("a", 40),
            write("a", "d", 50),
        ];
        let both = [("b".into(), 20, 41), ("c".into(), 24, 41)];
        assert_eq!(lost(&history, &[(15, 30)]), [("b".into(), 20, 30), ("c".into(), 24, 30)]);
        assert_eq!(lost(&history, &[(0, u64::MAX)]), both);
        assert!(check(&history).is_err());
    }

    #[test]
    fn what_was_only_seen_to_be_gone_is_told_too() {
        assert_eq!(lost(&[write("", "a", 10), read("", 40)], &[(5, 30)]), [("a".into(), 10, 30)]);
        assert_eq!(lost(&[write("", "a", 10), read("a", 40)], &[(5, 30)]), []);
    }

    /// Of a second fork, outside of every loss, and of what comes back after it was forgotten.
    #[test]
    fn a_loss_excuses_what_it_took_and_nothing_after_it() {
        let early = [write("", "a", 10), write("a", "b", 20), write("a", "c", 50)];
        let (left, taken) = without_lost(&early, &[(30, 40)]).unwrap();
        assert_eq!(taken, []);
        assert!(check(&left).unwrap_err().text.contains("both replaced a"));
        let again = [early.to_vec(), vec![write("c", "d", 60), write("c", "e", 70)]].concat();
        let (left, taken) = without_lost(&again, &[(15, 40)]).unwrap();
        assert_eq!(taken.len(), 1);
        assert!(check(&left).unwrap_err().text.contains("both replaced c"));
        let risen = [early.to_vec(), vec![read("b", 60), read("c", 70)]].concat();
        assert!(without_lost(&risen, &[(15, 40)]).unwrap_err().text.contains("b was seen after the store"));
    }
}
