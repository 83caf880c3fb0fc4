//! A store that counts what it is asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure::store::{
    Entry, Exchanged, Kind, Layer, Name, Outcome, Query, SharedStore, Store, StoreError, Write,
};

/// How much was asked since it was last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) operations: u64,
    /// Registers that were written, or that reads gave.
    pub(crate) rows: u64,
    /// The records in them.
    pub(crate) bytes: u64,
}

impl Count {
    /// What it comes to in a minute, if it was counted for so long.
    pub(crate) fn per_minute(self, took: Duration) -> Self {
        let minute = |count: u64| (count as f64 * 60.0 / took.as_secs_f64()).round() as u64;
        Self { operations: minute(self.operations), rows: minute(self.rows), bytes: minute(self.bytes) }
    }
}

/// How much was asked.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    operations: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    /// Of these rows, the entries of histories, which are written after the fact.
    histories: AtomicU64,
}

impl Meter {
    /// One operation, with what it wrote and what it read.
    fn count(&self, writes: &[Write], found: &[Entry]) {
        let written = writes.iter().filter_map(|write| write.put.as_ref()).map(|(_, value)| value.json.len());
        let bytes: usize = written.chain(found.iter().map(|entry| entry.value.json.len())).sum();
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add((writes.len() + found.len()) as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How many entries of histories were written so far.
    pub(crate) fn histories(&self) -> u64 {
        self.histories.load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self) -> Count {
        let [operations, rows, bytes] =
            [&self.operations, &self.rows, &self.bytes].map(|counter| counter.swap(0, Ordering::Relaxed));
        Count { operations, rows, bytes }
    }
}

/// Another store, with a meter on it.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) inner: SharedStore,
    pub(crate) meter: Arc<Meter>,
    /// While it is true, nothing is answered.
    pub(crate) cut: Arc<AtomicBool>,
}

impl Metered {
    /// What is asked while it is cut off is never answered, as after a `kill -9` of the node.
    async fn hang_if_cut(&self) {
        if self.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// One operation that writes and reads.
    async fn both(&self, writes: &[Write], asked: impl Future<Output = Exchanged>) -> Exchanged {
        self.hang_if_cut().await;
        let exchanged = asked.await;
        self.meter.count(writes, exchanged.read.as_deref().unwrap_or_default());
        exchanged
    }
}

impl fmt::Display for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Metered {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.hang_if_cut().await;
        let found = self.inner.read(namespace, query).await?;
        self.meter.count(&[], &found);
        Ok(found)
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.hang_if_cut().await;
        self.meter.count(writes, &[]);
        let histories = writes.iter().filter(|write| write.key.kind() == Kind::History).count();
        self.meter.histories.fetch_add(histories as u64, Ordering::Relaxed);
        self.inner.write(namespace, writes).await
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both(writes, self.inner.exchange(namespace, writes, query)).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both(writes, self.inner.write_then_read(namespace, writes, query)).await
    }
}
