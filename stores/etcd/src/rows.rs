//! Questions about registers: ranges of keys, in as few transactions as etcd allows.

use std::collections::{BTreeMap, BTreeSet};

use super::STORE;
use super::connection::{Effect, Members, path};
use super::keys::Keys;
use super::messages::{KeyValue, Op, OpAnswer, Range, Txn, TxnAnswer};
use tenure_store::kit::packed::entry;
use tenure_store::kit::paths::read_path;
use tenure_store::kit::registers::split;
use tenure_store::{Entry, Epoch, Key, Kind, Name, Query, StoreError};

/// Ranges in one transaction, of the 128 that etcd takes (`--max-txn-ops`).
const RANGES: usize = 100;

/// Of a kind of which more registers are asked for by name than this, all are read from the first to the last.
const SINGLE: usize = 32;

/// Reads registers; each that was asked for twice, by name and by kind, once.
pub(super) async fn read(
    members: &Members,
    keys: &Keys,
    namespace: &Name,
    query: &Query,
) -> Result<Vec<Entry>, StoreError> {
    let look = Look::new(keys, namespace, query);
    let mut entries = Vec::new();
    for part in look.ranges.chunks(RANGES) {
        let question = Txn { success: part.iter().cloned().map(Op::Range).collect(), ..Txn::default() };
        let answer: TxnAnswer = members
            .ask_latest(Effect::Reads, path::TXN, &question, |answer: &TxnAnswer| answer.header)
            .await?;
        if answer.responses.len() != part.len() {
            return Err(StoreError::not_applied(STORE, "the server left parts of a question unanswered"));
        }
        entries.extend(look.found(answer.responses));
    }
    Ok(entries)
}

/// What a query asks, as ranges of keys.
pub(super) struct Look<'a> {
    namespace: &'a Name,
    whole: BTreeSet<(Epoch, Kind)>,
    wanted: BTreeSet<&'a Key>,
    prefix: String,
    pub(super) ranges: Vec<Range>,
}

impl<'a> Look<'a> {
    pub(super) fn new(keys: &Keys, namespace: &'a Name, query: &'a Query) -> Self {
        let (whole, wanted) = split(query);
        let ranges = ranges(keys, namespace, &whole, &wanted);
        Self { namespace, whole, wanted, prefix: keys.all(), ranges }
    }

    /// The registers that the answers to ranges hold.
    pub(super) fn found(&self, answers: Vec<OpAnswer>) -> Vec<Entry> {
        let is_wanted = |space: &Name, key: &Key| {
            space == self.namespace
                && (self.whole.contains(&(key.epoch(), key.kind())) || self.wanted.contains(key))
        };
        let ranges = answers.into_iter().filter_map(|answer| answer.response_range);
        ranges
            .flat_map(|range| range.kvs)
            .filter_map(|pair| register(&self.prefix, &pair, is_wanted))
            .collect()
    }
}

fn ranges(
    keys: &Keys,
    namespace: &Name,
    whole: &BTreeSet<(Epoch, Kind)>,
    wanted: &BTreeSet<&Key>,
) -> Vec<Range> {
    let mut ranges: Vec<Range> =
        whole.iter().map(|(epoch, kind)| Range::below(&keys.kind(namespace, *epoch, *kind))).collect();
    let mut single: BTreeMap<(Epoch, Kind), BTreeSet<String>> = BTreeMap::new();
    for key in wanted {
        let place = (key.epoch(), key.kind());
        single.entry(place).or_default().insert(keys.register(namespace, key));
    }
    for names in single.into_values() {
        match (names.first(), names.last()) {
            (Some(first), Some(last)) if names.len() > SINGLE => ranges.push(Range {
                key: first.as_str().into(),
                range_end: Some(format!("{last}\0").into()),
                ..Range::default()
            }),
            _ => ranges.extend(names.iter().map(|name| Range::one(name))),
        }
    }
    ranges
}

/// A register that was found; none if this version cannot name it, or if it only lies between others.
fn register(prefix: &str, pair: &KeyValue, is_wanted: impl Fn(&Name, &Key) -> bool) -> Option<Entry> {
    let (namespace, key) = read_path(pair.key.0.strip_prefix(prefix.as_bytes())?)?;
    is_wanted(&namespace, &key).then(|| entry(&key, &pair.value.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_registers_of_a_kind_are_one_range() {
        let (keys, space) = (Keys::new("t"), Name::new("s").unwrap());
        let key =
            |nth: usize| Key::Named(Epoch::new(1), Kind::Role, Name::new(format!("r{nth:05}")).unwrap());
        let many: Vec<_> = (0..10_000).map(key).collect();
        let few = ranges(&keys, &space, &BTreeSet::new(), &many[..SINGLE].iter().collect());
        assert_eq!(few.len(), SINGLE);
        let all =
            ranges(&keys, &space, &BTreeSet::from([(Epoch::new(1), Kind::Node)]), &many.iter().collect());
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].key, "t/s/1/role/r00000".into());
        assert_eq!(all[1].range_end, Some("t/s/1/role/r09999\0".into()));
    }
}
