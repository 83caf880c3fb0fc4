//! Registers in memory: what the in-process store and the peers' state machine have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Verdict, judge};
use super::{Entry, Key, Outcome, Query, Signal, Value, Version, Write};

/// The registers of one namespace.
pub(super) type Registers = BTreeMap<Key, (Version, Value)>;

/// Carries out one compare-and-set, as the rules decide.
pub(super) fn apply(store: &'static str, registers: &mut Registers, write: &Write) -> Outcome {
    let current = registers.get(&write.key);
    match judge(store, write, current.map(|(version, value)| (*version, value.token))) {
        Verdict::Conflict => Outcome::Conflict(current.map(|found| entry(&write.key, found))),
        Verdict::Refuse(why) => Outcome::Failed(why),
        Verdict::Apply => {
            match &write.put {
                Some(put) => registers.insert(write.key.clone(), put.clone()),
                None => registers.remove(&write.key),
            };
            Outcome::Applied
        }
    }
}

/// Everything that a query asks for and that exists.
pub(super) fn select(registers: &Registers, query: &Query) -> Vec<Entry> {
    let wanted: BTreeSet<&Key> = query.keys.iter().collect();
    if query.kinds.is_empty() {
        return wanted
            .into_iter()
            .filter_map(|key| registers.get(key).map(|found| entry(key, found)))
            .collect();
    }
    let listed = |key: &Key| query.kinds.contains(&(key.epoch(), key.kind()));
    let found = registers.iter().filter(|(key, _)| wanted.contains(key) || listed(key));
    found.map(|(key, found)| entry(key, found)).collect()
}

/// What is told of a write that rings. A deletion has no content to show: look again.
pub(super) fn signal_of(write: &Write) -> Signal {
    match &write.put {
        Some(put) => Signal::Changed(entry(&write.key, put)),
        None => Signal::Resync,
    }
}

fn entry(key: &Key, (version, value): &(Version, Value)) -> Entry {
    Entry { key: key.clone(), version: *version, value: value.clone() }
}
