//! A store that counts what it is asked.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure::store::{
    Description, Entry, Name, Outcome, Query, SessionId, SharedStore, Signal, Store, StoreError, Takeover,
    Witness, Write,
};

/// How much was asked.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) operations: AtomicU64,
    pub(crate) rows: AtomicU64,
}

impl Meter {
    fn count(&self, rows: usize) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
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
#[deny(clippy::missing_trait_methods)]
impl Store for Metered {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let found = self.inner.read(namespace, query).await?;
        self.meter.count(found.len());
        Ok(found)
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.meter.count(writes.len());
        self.inner.write(namespace, writes).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.inner.watch(namespace)
    }

    async fn attest(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<Witness>, StoreError> {
        self.inner.attest(namespace, session, takeover).await
    }

    fn release(&self, namespace: &Name, session: SessionId) {
        self.inner.release(namespace, session);
    }

    fn attend(&self, namespace: &Name, session: SessionId, witness: &str, takeover: Takeover) {
        self.inner.attend(namespace, session, witness, takeover);
    }

    fn ignore(&self, namespace: &Name, session: SessionId) {
        self.inner.ignore(namespace, session);
    }

    fn witness_fd(&self, namespace: &Name, session: SessionId) -> Option<OwnedFd> {
        self.inner.witness_fd(namespace, session)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        self.inner.describe().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
