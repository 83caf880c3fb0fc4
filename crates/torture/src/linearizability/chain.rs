//! Whether what was seen of a compare-and-set register can have been one register.
//!
//! Every version is written once, by one write, however often it is tried, and names the version that it replaced. That fixes
//! the order of the writes: they are a chain. What is left to see is whether each write of the chain can have happened between its call
//! and its answer, in that order, with every read between the write of what it saw and the next: which one pass along
//! the chain tells, always as early as possible.

use std::collections::{BTreeMap, BTreeSet};

use crate::judge::{Note, NoteKind};

/// One operation on a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Put this version where that one was expected.
    Write {
        /// Which version it was to replace; none: absence.
        expect: Option<String>,
        /// Its own version; none: a deletion, which is not followed.
        put: String,
        /// When it was sent.
        called: u64,
        /// When it was answered; never, if its outcome is unknown.
        returned: u64,
        /// Whether it was applied, if known.
        applied: Option<bool>,
    },
    /// Saw this version, or absence.
    Read {
        version: Option<String>,
        /// When it was asked.
        called: u64,
        /// When it was answered.
        returned: u64,
    },
}

/// Why a history cannot be that of one register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFault {
    /// Where it shows.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// The evidence.
    pub text: String,
}

/// The history of every register in these notes. A write is noted before it is sent, and once more with its answer.
#[must_use]
pub fn histories(notes: &[Note]) -> BTreeMap<String, Vec<Operation>> {
    let mut writes: BTreeMap<(&str, &str), BTreeMap<u64, Operation>> = BTreeMap::new();
    let mut found: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
    for note in notes {
        match &note.what {
            NoteKind::Wrote { register, expect, put: Some(put), called, applied } => {
                let operation = Operation::Write {
                    expect: expect.clone(),
                    put: put.clone(),
                    called: *called,
                    returned: if applied.is_some() { note.t } else { u64::MAX },
                    applied: *applied,
                };
                let tries = writes.entry((register, put)).or_default();
                let known = tries.entry(*called).or_insert_with(|| operation.clone());
                if applied.is_some() {
                    *known = operation;
                }
            }
            NoteKind::Read { register, version, called } => {
                let read = Operation::Read { version: version.clone(), called: *called, returned: note.t };
                found.entry(register.clone()).or_default().push(read);
            }
            _ => {}
        }
    }
    for ((register, _), tries) in writes {
        found.entry(register.to_owned()).or_default().extend(as_one(tries.into_values()));
    }
    found
}

/// A resignation is tried again under the same version: at most one of the tries is applied, and a try is refused because an earlier
/// one was. The one that was applied counts; if none is known to be, the first whose outcome is unknown.
fn as_one(tries: impl Iterator<Item = Operation>) -> Option<Operation> {
    let rank = |operation: &Operation| match operation {
        Operation::Write { applied: Some(true), .. } => 0,
        Operation::Write { applied: None, .. } => 1,
        _ => 2,
    };
    tries.min_by_key(rank)
}

/// A write on the chain.
#[derive(Clone, Copy)]
struct ChainLink<'a> {
    put: &'a str,
    called: u64,
    returned: u64,
}

/// Whether one register can have had this history.
///
/// # Errors
/// With the two operations that cannot both be.
pub fn check(history: &[Operation]) -> Result<(), ChainFault> {
    let seen = ObservedVersions::of(history);
    let mut next: BTreeMap<Option<&str>, ChainLink<'_>> = BTreeMap::new();
    for operation in history {
        let Operation::Write { expect, put, called, returned, applied } = operation else { continue };
        let was_seen = seen.has(put);
        if *applied == Some(false) && was_seen {
            return Err(chain_fault(*called, *returned, format!("{put} was refused, and yet it was seen")));
        }
        if *applied != Some(true) && !was_seen {
            continue;
        }
        let link = ChainLink { put, called: *called, returned: *returned };
        if let Some(other) = next.insert(expect.as_deref(), link) {
            let expect = expect.as_deref().unwrap_or("nothing");
            let text = format!("{} and {put} both replaced {expect}", other.put);
            return Err(chain_fault(other.called.min(*called), (*called).max(other.called), text));
        }
    }
    along_the_chain(&next, &seen)
}

/// What was seen of a version.
#[derive(Clone, Copy)]
struct VersionReads {
    /// When the last of those who saw it asked, and when that one was answered.
    asked: u64,
    told: u64,
    /// When the first of them was answered.
    first: u64,
}

/// What was seen of every version.
struct ObservedVersions<'a>(BTreeMap<Option<&'a str>, VersionReads>);

impl<'a> ObservedVersions<'a> {
    fn of(history: &'a [Operation]) -> Self {
        let mut seen = Self(BTreeMap::new());
        let mut open: BTreeMap<&str, &Option<String>> = BTreeMap::new();
        for operation in history {
            match operation {
                Operation::Read { version, called, returned } => {
                    seen.add(version.as_deref(), *called, *returned);
                }
                // A write that replaced a version has seen it.
                Operation::Write { expect, applied: Some(true), returned, .. } => {
                    seen.add(expect.as_deref(), 0, *returned);
                }
                Operation::Write { expect, put, applied: None, .. } => drop(open.insert(put, expect)),
                Operation::Write { .. } => {}
            }
        }
        // So has a write of unknown outcome, as soon as a read saw what it wrote.
        let mut found: Vec<&str> = open.keys().copied().filter(|put| seen.has(put)).collect();
        while let Some(put) = found.pop() {
            let Some(expect) = open.remove(put) else { continue };
            seen.add(expect.as_deref(), 0, u64::MAX);
            found.extend(expect.as_deref());
        }
        seen
    }

    fn add(&mut self, version: Option<&'a str>, called: u64, returned: u64) {
        let known = self.0.entry(version).or_insert(VersionReads { asked: 0, told: 0, first: u64::MAX });
        if called > known.asked {
            (known.asked, known.told) = (called, returned);
        }
        known.first = known.first.min(returned);
    }

    fn has(&self, version: &str) -> bool {
        self.0.contains_key(&Some(version))
    }

    /// When the last asked who saw it, and when that one was answered.
    fn last(&self, version: Option<&str>) -> (u64, u64) {
        self.0.get(&version).map_or((0, 0), |sight| (sight.asked, sight.told))
    }

    /// When the first who saw it was answered.
    fn first(&self, version: &str) -> u64 {
        self.0.get(&Some(version)).map_or(u64::MAX, |sight| sight.first)
    }
}

/// Lets each write happen as early as it can; one that would have to happen after its answer, or after a read had
/// seen it, cannot be.
fn along_the_chain(
    next: &BTreeMap<Option<&str>, ChainLink<'_>>,
    seen: &ObservedVersions<'_>,
) -> Result<(), ChainFault> {
    let (mut now, mut at, mut steps) = (0, None, 0);
    while let Some(link) = next.get(&at) {
        let (asked, told) = seen.last(at);
        now = now.max(link.called).max(asked);
        let done_by = link.returned.min(seen.first(link.put));
        if now > done_by {
            let before = at.unwrap_or("nothing");
            let text =
                format!("{before} was still seen, or not yet there, after {} had replaced it", link.put);
            // What was seen may have become so as late as the read that saw it was answered.
            return Err(chain_fault(done_by, now.max(told), text));
        }
        (at, steps) = (Some(link.put), steps + 1);
        if steps > next.len() {
            return Err(chain_fault(0, now, format!("{} comes after itself", link.put)));
        }
    }
    if steps == next.len() {
        return Ok(());
    }
    let written: BTreeSet<&str> = next.values().map(|link| link.put).collect();
    let hanging = |expect: &Option<&str>| expect.is_some_and(|expect| !written.contains(expect));
    match next.iter().find(|(expect, _)| hanging(expect)) {
        Some((expect, link)) => {
            let text =
                format!("{} replaced {}, which no node ever wrote", link.put, expect.unwrap_or_default());
            Err(chain_fault(link.called, link.called, text))
        }
        None => Err(chain_fault(0, now, "some versions come after themselves".to_owned())),
    }
}

fn chain_fault(from: u64, to: u64, text: String) -> ChainFault {
    ChainFault { from: from.min(to), to, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(expect: &str, put: &str, called: u64, returned: u64, applied: Option<bool>) -> Operation {
        let expect = (!expect.is_empty()).then(|| expect.to_owned());
        let returned = if applied.is_some() { returned } else { u64::MAX };
        Operation::Write { expect, put: put.to_owned(), called, returned, applied }
    }

    fn read(version: &str, called: u64, returned: u64) -> Operation {
        let version = (!version.is_empty()).then(|| version.to_owned());
        Operation::Read { version, called, returned }
    }

    fn fault(history: &[Operation]) -> String {
        check(history).expect_err("it must be refused").text
    }

    #[test]
    fn what_one_register_can_do_is_accepted() {
        let yes = Some(true);
        check(&[]).unwrap();
        check(&[write("", "a", 1, 9, yes), read("a", 2, 3), read("", 1, 9), write("a", "b", 3, 20, yes)])
            .unwrap();
        // The outcome of `b` is unknown until a read sees it, long after.
        check(&[write("", "a", 1, 2, yes), write("a", "b", 3, 4, None), read("a", 9, 10), read("b", 11, 12)])
            .unwrap();
        check(&[write("", "a", 1, 2, yes), write("a", "b", 3, 4, None), write("a", "c", 5, 6, yes)]).unwrap();
        check(&[write("", "a", 1, 2, yes), write("x", "b", 3, 4, Some(false)), read("a", 5, 6)]).unwrap();
        // The outcomes of `b` and `c` are unknown; a read that saw `c` tells both.
        let both = [write("a", "b", 3, 4, None), write("b", "c", 5, 6, None), read("c", 7, 8)];
        check(&[&[write("", "a", 1, 2, yes)], &both[..]].concat()).unwrap();
    }

    /// A resignation whose answer is late is tried again, and refused then.
    #[test]
    fn tries_of_one_write_are_one_write() {
        let wrote = |t: u64, called: u64, applied| {
            let (register, expect, put) = ("r".to_owned(), Some("a".to_owned()), Some("b".to_owned()));
            let what = NoteKind::Wrote { register, expect, put, called, applied };
            Note { t, node: "n".to_owned(), pid: 1, what }
        };
        let of = |notes: &[Note]| histories(notes).remove("r").unwrap();
        let (first, second) = ([wrote(10, 10, None), wrote(40, 10, Some(true))], [wrote(20, 20, None)]);
        let refused = [wrote(30, 20, Some(false))];
        let done = vec![write("a", "b", 10, 40, Some(true))];
        assert_eq!(of(&[&first[..], &second, &refused].concat()), done);
        let unknown = [&first[..1], &second, &refused].concat();
        assert_eq!(of(&unknown), [write("a", "b", 10, 0, None)]);
        assert_eq!(of(&[&second[..], &refused].concat()), [write("a", "b", 20, 30, Some(false))]);
    }

    #[test]
    fn two_that_replaced_the_same_are_refused() {
        let yes = Some(true);
        let history = [write("", "a", 1, 2, yes), write("a", "b", 3, 4, yes), write("a", "c", 5, 6, yes)];
        assert!(fault(&history).contains("both replaced a"));
        assert!(
            fault(&[write("", "a", 1, 2, yes), write("", "b", 5, 6, yes)]).contains("both replaced nothing")
        );
    }

    #[test]
    fn a_stale_read_is_refused() {
        let yes = Some(true);
        let history = [write("", "a", 1, 2, yes), write("a", "b", 3, 4, yes), read("a", 5, 6)];
        assert!(fault(&history).contains("a was still seen"));
        assert!(fault(&[write("", "a", 1, 2, yes), read("", 3, 4)]).contains("nothing was still seen"));
    }

    /// Whatever made it so may have come as late as that.
    #[test]
    fn a_stale_read_reaches_until_it_was_answered() {
        let history = [write("", "a", 1, 2, Some(true)), read("", 3, 9)];
        let why = check(&history).expect_err("it must be refused");
        assert_eq!((why.from, why.to), (2, 9));
    }

    #[test]
    fn a_read_from_the_future_is_refused() {
        fault(&[write("", "a", 5, 6, Some(true)), read("a", 1, 2)]);
    }

    #[test]
    fn a_write_that_was_refused_and_is_seen_is_refused() {
        let history = [write("", "a", 1, 2, Some(true)), write("a", "b", 3, 4, Some(false)), read("b", 5, 6)];
        assert!(fault(&history).contains("refused, and yet"));
    }

    #[test]
    fn what_replaces_what_was_never_there_is_refused() {
        let history = [write("", "a", 1, 2, Some(true)), write("z", "b", 3, 4, Some(true))];
        assert!(fault(&history).contains("no node ever wrote"));
    }
}
