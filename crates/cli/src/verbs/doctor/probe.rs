//! Tries the store out, in a namespace of its own, and clears it away.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tenure::store::{
    Epoch, Key, LivenessLocks as _, Outcome, Query, SharedStore, Signal, StoreError, Value, Version, Write,
};
use tenure::{Name, SessionId};

use crate::exit::Exit;
use crate::output::time::Stamp;

/// So many operations of each kind are measured.
const ROUNDS: usize = 200;
/// So long a change may take to be heard.
const HEARD: Duration = Duration::from_secs(2);
/// So long all the rounds of one kind may take together: a slow store is told from fewer.
const LIMIT: Duration = Duration::from_secs(10);

/// What was measured.
pub(super) struct StoreFigures {
    pub(super) write: Quantiles,
    pub(super) read: Quantiles,
    /// How long a change took to be heard by another handle; none if it was not heard.
    pub(super) notify: Option<Duration>,
    /// Whether a liveness lock could be acquired.
    pub(super) acquires_locks: bool,
}

/// How long operations took.
pub(super) struct Quantiles {
    pub(super) count: usize,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// A register of our own.
struct Scratch<'a> {
    store: &'a SharedStore,
    namespace: Name,
    key: Key,
    session: SessionId,
    version: Option<Version>,
}

/// Measures; whatever happens, what was written is cleared away.
pub(super) async fn probe(store: &SharedStore, url: &str) -> Result<StoreFigures, Exit> {
    let mut scratch = Scratch::new(store);
    let figures = scratch.measure(url).await;
    scratch.clear().await?;
    Ok(figures?)
}

impl<'a> Scratch<'a> {
    fn new(store: &'a SharedStore) -> Self {
        let nonce = u128::from(std::process::id()) << 64 | u128::from(Stamp::now().0.as_micros());
        let session = SessionId::new(nonce);
        let namespace =
            Name::new(format!("tenure-doctor-{nonce:x}")).expect("hexadecimal digits make a name");
        Self { store, namespace, key: Key::Session(Epoch::new(1), session), session, version: None }
    }

    async fn measure(&mut self, url: &str) -> Result<StoreFigures, StoreError> {
        self.write(false).await?;
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        let begun = Instant::now();
        while writes.len() < ROUNDS && begun.elapsed() < LIMIT {
            let started = Instant::now();
            self.write(false).await?;
            writes.push(started.elapsed());
        }
        let query = Query { keys: vec![self.key.clone()], kinds: Vec::new() };
        let begun = Instant::now();
        while reads.len() < ROUNDS && begun.elapsed() < LIMIT {
            let started = Instant::now();
            self.store.read(&self.namespace, &query).await?;
            reads.push(started.elapsed());
        }
        let notify = self.notify(url).await?;
        let acquires_locks = self
            .store
            .liveness()
            .acquire_lock(&self.namespace, self.session, tenure::Takeover::OnDisconnect)
            .await?
            .is_some();
        self.store.liveness().release_lock(&self.namespace, self.session);
        Ok(StoreFigures { write: quantiles(writes), read: quantiles(reads), notify, acquires_locks })
    }

    /// One compare-and-set.
    async fn write(&mut self, notify: bool) -> Result<(), StoreError> {
        let next = Version::new(self.version.map_or(self.session.get(), |version| version.get() + 1));
        let value = Value::of(&serde_json::json!({ "doctor": next.to_string() }), None);
        let write = Write {
            key: self.key.clone(),
            expect: self.version,
            put: Some((next, value)),
            notify,
            requires_lock: false,
        };
        match self.store.write(&self.namespace, &[write]).await?.pop() {
            Some(Outcome::Applied) => self.version = Some(next),
            Some(Outcome::Failed(error)) => return Err(error),
            Some(Outcome::Conflict(_)) | None => {
                let message = "another client changed a scratch register of doctor: try again";
                return Err(StoreError::unknown("store", message));
            }
        }
        Ok(())
    }

    /// How long a change takes to be heard by another handle, as another process would have one.
    async fn notify(&mut self, url: &str) -> Result<Option<Duration>, StoreError> {
        let other = tenure::store::open_as_client(url)?;
        let mut signals = other.watch(&self.namespace);
        // A store that can describe itself has begun to listen.
        other.describe().await?;
        let key = self.key.clone();
        let started = Instant::now();
        self.write(true).await?;
        let ours = |signal: &Signal| matches!(signal, Signal::Changed(changed) if *changed == key);
        let heard = async {
            while let Some(signal) = signals.next().await {
                if ours(&signal) {
                    return Some(started.elapsed());
                }
            }
            None
        };
        let heard = tokio::time::timeout(HEARD, heard).await.ok().flatten();
        other.close().await;
        Ok(heard)
    }

    async fn clear(&mut self) -> Result<(), StoreError> {
        if self.version.is_none() {
            return Ok(());
        }
        let write = Write {
            key: self.key.clone(),
            expect: self.version,
            put: None,
            notify: false,
            requires_lock: false,
        };
        self.store.write(&self.namespace, &[write]).await.map(|_| ())
    }
}

fn quantiles(mut spans: Vec<Duration>) -> Quantiles {
    spans.sort_unstable();
    let at = |percent: usize| {
        spans.get((spans.len() * percent / 100).min(spans.len() - 1)).copied().unwrap_or_default()
    };
    Quantiles { count: spans.len(), p50: at(50), p99: at(99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_is_cleared_away() {
        let store = tenure::store::open("memory:doctor").unwrap();
        let mut scratch = Scratch::new(&store);
        let figures = scratch.measure("memory:doctor").await.unwrap();
        assert_eq!((figures.write.count, figures.read.count, figures.acquires_locks), (ROUNDS, ROUNDS, true));
        assert!(figures.notify.is_some());
        let query = Query { keys: vec![scratch.key.clone()], kinds: Vec::new() };
        assert_eq!(store.read(&scratch.namespace, &query).await.unwrap().len(), 1);
        scratch.clear().await.unwrap();
        assert_eq!(store.read(&scratch.namespace, &query).await.unwrap().len(), 0);
    }
}
