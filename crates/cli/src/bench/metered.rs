//! A store that counts what it is asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tenure::store::{
    Entry, Exchanged, Kind, Layer, Name, Outcome, Query, SharedStore, Store, StoreError, Write,
};

/// How much was asked.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) operations: AtomicU64,
    pub(crate) rows: AtomicU64,
    /// Of these rows, the entries of histories, which are written after the fact.
    histories: AtomicU64,
}

impl Meter {
    fn count(&self, rows: usize) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// How many entries of histories were written so far.
    pub(crate) fn histories(&self) -> u64 {
        self.histories.load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self) -> (u64, u64) {
        (self.operations.swap(0, Ordering::Relaxed), self.rows.swap(0, Ordering::Relaxed))
    }
}

/// Another store, with a meter on it.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) inner: SharedStore,
    pub(crate) meter: Arc<Meter>,
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
        let found = self.inner.read(namespace, query).await?;
        self.meter.count(found.len());
        Ok(found)
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.meter.count(writes.len());
        let histories = writes.iter().filter(|write| write.key.kind() == Kind::History).count();
        self.meter.histories.fetch_add(histories as u64, Ordering::Relaxed);
        self.inner.write(namespace, writes).await
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let exchanged = self.inner.exchange(namespace, writes, query).await;
        self.meter.count(writes.len() + exchanged.read.as_ref().map_or(0, Vec::len));
        exchanged
    }
}
