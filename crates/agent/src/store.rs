//! The store of an agent: measured, and with liveness locks that do not vouch for clients.
//!
//! On the embedded store the kernel tells at once when a process has died. For an agent that proves nothing: the clients
//! that campaign through it live on, and may rely on the last deadline that they were told. So the agent's sessions say
//! that their liveness lock does not cover the work, and a dead agent is replaced after its lease.
//!
//! What the node reads of sessions is kept for the agent's view of the cluster, which then need not read beats itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use tenure::store::{
    Entry, Exchanged, Key, Layer, LivenessLock, LivenessLocks, Name, Outcome, Query, SessionId, SharedStore,
    Store, StoreError, Takeover, Write,
};

use tokio::sync::Notify;

use super::metrics::StoreMeter;

/// Sessions that the node has read or written since they were last taken.
#[derive(Debug, Default)]
pub struct SessionsRead {
    /// With the moment at which the oldest of them was asked for.
    found: Mutex<Option<(Instant, BTreeMap<Key, Entry>)>>,
    read: Notify,
}

impl SessionsRead {
    fn keep(&self, asked: Instant, entries: impl IntoIterator<Item = Entry>) {
        let sessions = entries.into_iter().filter(|entry| matches!(entry.key, Key::Session(..)));
        let mut sessions = sessions.map(|entry| (entry.key.clone(), entry)).peekable();
        // Without any there is nothing that the store is known to hold.
        if sessions.peek().is_none() {
            return;
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, kept) = found.get_or_insert_with(|| (asked, BTreeMap::new()));
        kept.extend(sessions);
        self.read.notify_one();
    }

    /// Waits until some were read. It loses none if it is dropped while it waits.
    pub async fn next(&self) -> (Instant, Vec<Entry>) {
        loop {
            let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((asked, found)) = found {
                return (asked, found.into_values().collect());
            }
            self.read.notified().await;
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct AgentStore {
    inner: SharedStore,
    meter: Arc<StoreMeter>,
    sessions: Arc<SessionsRead>,
}

impl AgentStore {
    /// On top of another store.
    #[must_use]
    pub fn new(inner: SharedStore, meter: Arc<StoreMeter>, sessions: Arc<SessionsRead>) -> Self {
        Self { inner, meter, sessions }
    }

    fn read_answered(
        &self,
        asked: Instant,
        read: Result<Vec<Entry>, StoreError>,
    ) -> Result<Vec<Entry>, StoreError> {
        self.meter.outcome("read", read.as_ref().err());
        if let Ok(entries) = &read {
            self.sessions.keep(asked, entries.iter().cloned());
        }
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
        // A node does not read its own session.
        let outcomes = written.iter().flatten();
        let applied = writes.iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Applied));
        self.sessions.keep(began, applied.filter_map(|(write, _)| entry(write)));
        written
    }

    async fn both_answered(&self, writes: &[Write], asked: impl Future<Output = Exchanged>) -> Exchanged {
        let began = Instant::now();
        let Exchanged { written, read } = asked.await;
        Exchanged {
            written: self.write_answered(writes, began, written),
            read: self.read_answered(began, read),
        }
    }
}

/// What a register holds after that write.
fn entry(write: &Write) -> Option<Entry> {
    let (version, value) = write.put.clone()?;
    Some(Entry { key: write.key.clone(), version, value })
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
        let began = Instant::now();
        self.read_answered(began, self.inner.read(namespace, query).await)
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both_answered(writes, self.inner.exchange(namespace, writes, query)).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both_answered(writes, self.inner.write_then_read(namespace, writes, query)).await
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
