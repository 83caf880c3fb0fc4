//! The store of an agent: measured, and with liveness locks that do not vouch for clients.
//!
//! On the embedded store the kernel tells at once when a process has died. For an agent that proves nothing: the clients
//! that campaign through it live on, and may rely on the last deadline that they were told. So the agent's sessions say
//! that their liveness lock does not cover the work, and a dead agent is replaced after its lease.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tenure::store::{
    Entry, Exchanged, Key, Layer, LivenessLock, LivenessLocks, Name, Outcome, Query, SessionId, SharedStore,
    Store, StoreError, Takeover, Write,
};

use super::metrics::StoreMeter;

/// See the [module](self).
#[derive(Debug)]
pub struct AgentStore {
    inner: SharedStore,
    meter: Arc<StoreMeter>,
}

impl AgentStore {
    /// On top of another store.
    #[must_use]
    pub fn new(inner: SharedStore, meter: Arc<StoreMeter>) -> Self {
        Self { inner, meter }
    }

    fn read_answered(&self, read: Result<Vec<Entry>, StoreError>) -> Result<Vec<Entry>, StoreError> {
        self.meter.outcome("read", read.as_ref().err());
        read
    }

    fn write_answered(
        &self,
        writes: &[Write],
        began: Instant,
        written: Result<Vec<Outcome>, StoreError>,
    ) -> Result<Vec<Outcome>, StoreError> {
        let failed = written.iter().flatten().find_map(|outcome| match outcome {
            Outcome::Failed(error) => Some(error),
            _ => None,
        });
        self.meter.outcome("write", written.as_ref().err().or(failed));
        if writes.iter().any(|write| matches!(write.key, Key::Session(..)) && write.expect.is_some()) {
            self.meter.beat(began.elapsed(), written.is_ok() && failed.is_none());
        }
        written
    }
}

impl fmt::Display for AgentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for AgentStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.read_answered(self.inner.read(namespace, query).await)
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let began = Instant::now();
        let Exchanged { written, read } = self.inner.exchange(namespace, writes, query).await;
        Exchanged { written: self.write_answered(writes, began, written), read: self.read_answered(read) }
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let began = Instant::now();
        self.write_answered(writes, began, self.inner.write(namespace, writes).await)
    }

    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        let lock = self.inner.liveness().acquire_lock(namespace, session, takeover).await?;
        Ok(lock.map(|lock| LivenessLock { covers_work: false, ..lock }))
    }
}
