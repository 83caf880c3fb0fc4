//! A store that writes down every operation on the register of a role or of a task, before it is sent and when it is answered; and that can
//! drop hints: then its notifications vanish, and only they.

use std::fmt;
use std::path::PathBuf;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use tenure::SharedStore;
use tenure::clock::lease_nanos;
use tenure::store::{
    Entry, Exchanged, Fate, Key, Kind, Layer, Name, Outcome, Query, Signal, Store, StoreError, Version, Write,
};

use crate::judge::{NoteKind, NoteWriter};

/// See the [module](self).
#[derive(Debug)]
pub struct Recorder {
    inner: SharedStore,
    pen: NoteWriter,
    hints_off: Option<PathBuf>,
}

impl Recorder {
    /// Writes down what goes to `inner`; drops hints as long as that file exists.
    #[must_use]
    pub fn new(inner: SharedStore, pen: NoteWriter, hints_off: Option<PathBuf>) -> Self {
        Self { inner, pen, hints_off }
    }

    fn wrote(&self, write: &Write, called: u64, applied: Option<bool>) {
        if is_recorded(&write.key) {
            let (expect, put) = (
                write.expect.map(version_text),
                write.put.as_ref().map(|(version, _)| version_text(*version)),
            );
            self.pen.note(NoteKind::Wrote { register: key_text(&write.key), expect, put, called, applied });
        }
    }

    fn read(&self, key: &Key, found: Option<&Entry>, called: u64) {
        if is_recorded(key) {
            let version = found.map(|entry| version_text(entry.version));
            self.pen.note(NoteKind::Read { register: key_text(key), version, called });
        }
    }

    fn read_answered(&self, query: &Query, answer: &Result<Vec<Entry>, StoreError>, called: u64) {
        let Ok(found) = answer else { return };
        for key in &query.keys {
            self.read(key, found.iter().find(|entry| entry.key == *key), called);
        }
    }

    fn write_answered(&self, writes: &[Write], answer: &Result<Vec<Outcome>, StoreError>, called: u64) {
        let outcomes = match answer {
            Ok(outcomes) => outcomes,
            Err(error) => {
                if error.fate() == Fate::NotApplied {
                    writes.iter().for_each(|write| self.wrote(write, called, Some(false)));
                }
                return;
            }
        };
        for (write, outcome) in writes.iter().zip(outcomes) {
            match outcome {
                Outcome::Applied => self.wrote(write, called, Some(true)),
                Outcome::Conflict(found) => {
                    self.wrote(write, called, Some(false));
                    self.read(&write.key, found.as_ref(), called);
                }
                Outcome::Failed(error) if error.fate() == Fate::Unknown => {}
                Outcome::Failed(_) => self.wrote(write, called, Some(false)),
            }
        }
    }

    /// Records writes and a read that are one operation.
    async fn both(
        &self,
        writes: &[Write],
        query: &Query,
        asked: impl Future<Output = Exchanged>,
    ) -> Exchanged {
        let called = lease_nanos();
        writes.iter().for_each(|write| self.wrote(write, called, None));
        let exchanged = asked.await;
        self.write_answered(writes, &exchanged.written, called);
        self.read_answered(query, &exchanged.read, called);
        exchanged
    }
}

fn is_recorded(key: &Key) -> bool {
    matches!(key.kind(), Kind::Role | Kind::Task)
}

/// A register of another life of the store is another register.
pub(crate) fn key_text(key: &Key) -> String {
    format!("{key} of {:x}", key.epoch().get())
}

/// Half of a version tells it from others. The last bit counts: a claim and the resignation that follows differ in nothing else.
pub(crate) fn version_text(version: Version) -> String {
    format!("{:016x}", version.get() as u64)
}

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Recorder {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let called = lease_nanos();
        let found = self.inner.read(namespace, query).await;
        self.read_answered(query, &found, called);
        found
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both(writes, query, self.inner.exchange(namespace, writes, query)).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both(writes, query, self.inner.write_then_read(namespace, writes, query)).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let called = lease_nanos();
        writes.iter().for_each(|write| self.wrote(write, called, None));
        let outcomes = self.inner.write(namespace, writes).await;
        self.write_answered(writes, &outcomes, called);
        outcomes
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let Some(hints_off) = self.hints_off.clone() else { return self.inner.watch(namespace) };
        let is_hint = |signal: &Signal| matches!(signal, Signal::Changed(_) | Signal::Resync);
        let heard = move |signal: &Signal| std::future::ready(!(is_hint(signal) && hints_off.exists()));
        self.inner.watch(namespace).filter(heard).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_and_its_resignation_are_two_versions() {
        let claim = Version::from_nonce(u128::MAX / 3);
        assert_ne!(version_text(claim), version_text(claim.of_resignation().unwrap()));
    }
}
