//! The store of an agent: measured, and with a witness that does not vouch for clients.
//!
//! On the embedded store the kernel tells at once when a process has died. For an agent that proves nothing: the clients
//! that campaign through it live on, and may rely on the last deadline that they were told. So the agent's sessions say
//! that their witness does not cover the work, and a dead agent is replaced after its lease.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tenure::store::{
    Entry, Key, Layer, Name, Outcome, Query, SessionId, SharedStore, Store, StoreError, Takeover, Witness,
    Write,
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
        let read = self.inner.read(namespace, query).await;
        self.meter.outcome("read", read.as_ref().err());
        read
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let began = Instant::now();
        let written = self.inner.write(namespace, writes).await;
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

    async fn attest(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<Witness>, StoreError> {
        let witness = self.inner.attest(namespace, session, takeover).await?;
        Ok(witness.map(|witness| Witness { covers_work: false, ..witness }))
    }
}
