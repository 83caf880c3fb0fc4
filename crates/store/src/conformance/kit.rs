//! What the clauses are written with.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure_core::{Entropy, Token};

use crate::entropy::KernelEntropy;
use crate::{
    Entry, Epoch, Fate, Key, Kind, Name, Outcome, Query, SessionId, Signal, Store, Value, Version, Write,
};

/// The epoch of every register of the suite.
pub(super) const EPOCH: Epoch = Epoch::new(18_000_000_000_000_000_001);

/// Nothing here takes so long unless it is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A namespace that no test has used.
pub(super) fn fresh() -> Name {
    name(&format!("conformance-{:032x}", KernelEntropy.nonce()))
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

pub(super) fn nonce() -> Version {
    Version::new(KernelEntropy.nonce())
}

pub(super) fn session() -> SessionId {
    SessionId::new(KernelEntropy.nonce())
}

pub(super) fn key(kind: Kind, text: &str) -> Key {
    Key::Named(EPOCH, kind, name(text))
}

pub(super) fn node(text: &str) -> Key {
    key(Kind::Node, text)
}

pub(super) fn value(text: &str) -> Value {
    Value::of(&text, None)
}

pub(super) fn tokened(token: u64) -> Value {
    Value::of(&token, Some(Token::new(token)))
}

/// A write that notifies others, of a value, under a new version.
pub(super) fn put(key: &Key, expect: Option<Version>, value: Value) -> Write {
    Write { key: key.clone(), expect, put: Some((nonce(), value)), notify: true, requires_lock: false }
}

pub(super) fn create(key: &Key, text: &str) -> Write {
    put(key, None, value(text))
}

pub(super) fn delete(key: &Key, expect: Option<Version>) -> Write {
    Write { key: key.clone(), expect, put: None, notify: true, requires_lock: false }
}

/// The version that a write gives.
pub(super) fn version(write: &Write) -> Version {
    write.put.as_ref().expect("a write that puts").0
}

/// What a register holds after a write.
pub(super) fn entry(write: &Write) -> Entry {
    let (version, value) = write.put.clone().expect("a write that puts");
    Entry { key: write.key.clone(), version, value }
}

pub(super) async fn write_all(store: &dyn Store, space: &Name, writes: &[Write]) -> Vec<Outcome> {
    let outcomes = store.write(space, writes).await.expect("the store takes writes");
    assert_eq!(outcomes.len(), writes.len(), "one outcome for each item");
    outcomes
}

pub(super) async fn write_one(store: &dyn Store, space: &Name, write: &Write) -> Outcome {
    write_all(store, space, std::slice::from_ref(write)).await.remove(0)
}

/// Writes what must succeed, and gives it back.
pub(super) async fn must(store: &dyn Store, space: &Name, write: Write) -> Write {
    let outcome = write_one(store, space, &write).await;
    assert!(matches!(outcome, Outcome::Applied), "{:?} was not applied: {outcome:?}", write.key);
    write
}

/// Writes what must conflict with exactly that.
pub(super) async fn must_conflict(store: &dyn Store, space: &Name, write: &Write, with: Option<&Write>) {
    match write_one(store, space, write).await {
        Outcome::Conflict(found) => assert_eq!(found, with.map(entry), "a conflict shows what is there"),
        other => panic!("a write that expects {:?} must conflict, not {other:?}", write.expect),
    }
}

/// Writes what must be refused for good.
pub(super) async fn must_refuse(store: &dyn Store, space: &Name, write: &Write) {
    match write_one(store, space, write).await {
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::NotApplied, "{error}"),
        Outcome::Conflict(_) => {}
        Outcome::Applied => panic!("{:?} must be refused", write.key),
    }
}

/// The register itself, or nothing.
pub(super) async fn get(store: &dyn Store, space: &Name, key: &Key) -> Option<Entry> {
    let mut found = read(store, space, vec![key.clone()], Vec::new()).await;
    assert!(found.len() <= 1, "one register was asked for");
    found.pop()
}

/// Everything that a query finds, in the order of keys.
pub(super) async fn read(
    store: &dyn Store,
    space: &Name,
    keys: Vec<Key>,
    kinds: Vec<(Epoch, Kind)>,
) -> Vec<Entry> {
    let mut found = store.read(space, &Query { keys, kinds }).await.expect("the store can be read");
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found
}

/// The next signal; none if the watch has ended.
pub(super) async fn next(watch: &mut BoxStream<'static, Signal>) -> Option<Signal> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("a signal must come")
}

/// The signals up to the first that tells of that register.
pub(super) async fn until(watch: &mut BoxStream<'static, Signal>, key: &Key) -> Vec<Signal> {
    let mut seen = Vec::new();
    loop {
        let signal = next(watch).await.expect("the watch goes on");
        let found = matches!(&signal, Signal::Changed(changed) if changed == key);
        seen.push(signal);
        if found {
            return seen;
        }
    }
}
