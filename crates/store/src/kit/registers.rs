//! Registers in memory: what the in-process store and the peers' state machine have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{WriteDecision, decide};
use crate::{Entry, Epoch, Key, Kind, Outcome, Query, Value, Version, Write};

/// The registers of one namespace.
pub type Registers = BTreeMap<Key, (Version, Value)>;

/// Carries out one compare-and-set, as the rules decide.
pub fn apply(store: &'static str, registers: &mut Registers, write: &Write) -> Outcome {
    let current = registers.get(&write.key);
    match decide(store, write, current.map(|(version, value)| (*version, value.token))) {
        WriteDecision::Conflict => Outcome::Conflict(current.map(|found| entry(&write.key, found))),
        WriteDecision::Refuse(why) => Outcome::Failed(why),
        WriteDecision::Apply => {
            match &write.put {
                Some(put) => registers.insert(write.key.clone(), put.clone()),
                None => registers.remove(&write.key),
            };
            Outcome::Applied
        }
    }
}

/// Everything that a query asks for and that exists.
#[must_use]
pub fn select(registers: &Registers, query: &Query) -> Vec<Entry> {
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

/// The kinds of which a query asks for all registers, and the registers beside these that it asks for by name.
#[must_use]
pub fn split(query: &Query) -> (BTreeSet<(Epoch, Kind)>, BTreeSet<&Key>) {
    let whole: BTreeSet<_> = query.kinds.iter().copied().collect();
    let named = query.keys.iter().filter(|key| !whole.contains(&(key.epoch(), key.kind()))).collect();
    (whole, named)
}

fn entry(key: &Key, (version, value): &(Version, Value)) -> Entry {
    Entry { key: key.clone(), version: *version, value: value.clone() }
}
