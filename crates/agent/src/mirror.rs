//! What the node reads anyway, kept for those who look: at rest the agent asks the store for nothing of its own.
//!
//! ```text
//!   node ──▶ agent's store ──▶ store        sessions and the cluster register that pass are kept: sightings
//!   view ──▶ mirror ──▶ agent's store       an answer is given again until a notification came, it is too old, or
//!                                           a session in it was not sighted for more than half of its lease
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure::store::{Entry, Key, Layer, Name, Query, SharedStore, Signal, Store, StoreError};
use tenure_core::record::{Record, SessionState};

/// An answer is given again for so long at most: a notification may be lost.
const KEPT: Duration = Duration::from_secs(30);

/// Of more sessions than this nothing is remembered.
const MOST: usize = 4096;

/// The sessions, and the cluster register, as they last passed; and how often something else may have changed.
#[derive(Debug, Default)]
pub struct Sightings {
    seen: Mutex<BTreeMap<Key, (Entry, Instant)>>,
    changes: AtomicU64,
}

impl Sightings {
    /// What a read that was asked for then has shown.
    pub fn note(&self, found: &[Entry], asked: Instant) {
        let mut seen = lock(&self.seen);
        for entry in found.iter().filter(|entry| matches!(entry.key, Key::Session(..) | Key::Cluster)) {
            seen.insert(entry.key.clone(), (entry.clone(), asked));
        }
        if seen.len() > MOST {
            seen.clear();
        }
    }

    /// A write of this agent, or a notification: what was read before may be so no longer.
    pub fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the [module](self).
#[derive(Debug)]
pub struct Mirror {
    inner: SharedStore,
    sightings: Arc<Sightings>,
    /// For so long a sighting counts where a record does not say.
    fresh_for: Duration,
    kept: Mutex<HashMap<Query, KeptAnswer>>,
}

#[derive(Debug)]
struct KeptAnswer {
    found: Vec<Entry>,
    asked: Instant,
    changes: u64,
}

impl Mirror {
    /// In front of a store whose reads are noted in `sightings`.
    #[must_use]
    pub fn new(inner: SharedStore, sightings: Arc<Sightings>, ttl: Duration) -> Self {
        Self { inner, sightings, fresh_for: fresh_for(ttl), kept: Mutex::default() }
    }

    /// The answer to a query, if it can be told without asking.
    fn recall(&self, query: &Query) -> Option<Vec<Entry>> {
        let kept = lock(&self.kept);
        let answer = kept.get(query)?;
        let valid = answer.asked.elapsed() < KEPT && answer.changes == self.sightings.changes();
        let seen = lock(&self.sightings.seen);
        let latest = |entry: &Entry| self.latest(entry, seen.get(&entry.key));
        if valid { answer.found.iter().map(latest).collect() } else { None }
    }

    /// What a register that was read holds, as far as it was sighted since; none if that is too long ago.
    fn latest(&self, kept: &Entry, sighted: Option<&(Entry, Instant)>) -> Option<Entry> {
        let fresh_for = match (&kept.key, kept.value.to_record(&kept.key)) {
            (Key::Session(..), Record::Session(session)) if session.state == SessionState::Live => {
                fresh_for(session.ttl)
            }
            (Key::Cluster, _) => self.fresh_for,
            _ => return Some(kept.clone()),
        };
        let (latest, asked) = sighted?;
        (asked.elapsed() < fresh_for).then(|| latest.clone())
    }
}

/// A standby reads at half of its lease.
fn fresh_for(ttl: Duration) -> Duration {
    ttl * 7 / 10
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Mirror {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if let Some(found) = self.recall(query) {
            return Ok(found);
        }
        let (asked, changes) = (Instant::now(), self.sightings.changes());
        let found = self.inner.read(namespace, query).await?;
        let mut kept = lock(&self.kept);
        kept.retain(|_, answer| answer.asked.elapsed() < KEPT);
        kept.insert(query.clone(), KeptAnswer { found: found.clone(), asked, changes });
        Ok(found)
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let sightings = self.sightings.clone();
        let note = move |signal: &Signal| {
            if !matches!(signal, Signal::Evidence(_)) {
                sightings.note_change();
            }
        };
        self.inner.watch(namespace).inspect(note).boxed()
    }
}

#[cfg(test)]
mod tests {
    use tenure::Timestamp;
    use tenure::store::{Epoch, Memory, SessionId, Takeover, Value, Version};
    use tenure_core::record::Session;

    use super::*;

    /// A store that counts what it is asked to read.
    #[derive(Debug, Default)]
    struct Counting(Memory, AtomicU64);

    impl fmt::Display for Counting {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    #[async_trait]
    impl Layer for Counting {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read(namespace, query).await
        }
    }

    fn session(beat: u64, state: SessionState) -> Entry {
        let record = Session {
            node: Name::new("a").unwrap(),
            beat,
            freed: 0,
            freed_lately: Vec::new(),
            node_writes: 0,
            holds_back: false,
            ttl: Duration::from_secs(60),
            every: Duration::from_secs(15),
            takeover: Takeover::Strict,
            grace: Duration::from_secs(30),
            liveness_lock: None,
            state,
            beat_at: Timestamp::from_micros(0),
        };
        let (key, value) =
            (Key::Session(Epoch::new(1), SessionId::new(7)), Value::of_record(&Record::Session(record)));
        Entry { key, version: Version::new(u128::from(beat)), value }
    }

    #[tokio::test]
    async fn what_the_node_has_read_is_not_read_again() {
        let (store, sightings) = (Arc::new(Counting::default()), Arc::<Sightings>::default());
        let (space, first) = (Name::new("default").unwrap(), session(1, SessionState::Live));
        let put = Some((first.version, first.value.clone()));
        let write = tenure::store::Write {
            key: first.key.clone(),
            expect: None,
            put,
            notify: false,
            requires_lock: false,
        };
        store.0.write(&space, &[write]).await.unwrap();
        let mirror = Mirror::new(store.clone(), sightings.clone(), Duration::from_secs(60));
        let query = Query { keys: vec![first.key.clone()], kinds: Vec::new() };
        let asked = || store.1.load(Ordering::Relaxed);
        let read = || async { Layer::read(&mirror, &space, &query).await.unwrap() };

        assert_eq!((read().await, asked()), (vec![first.clone()], 1));
        assert_eq!((read().await, asked()), (vec![first.clone()], 2), "nobody has sighted it");
        let second = session(2, SessionState::Live);
        sightings.note(std::slice::from_ref(&second), Instant::now());
        assert_eq!((read().await, asked()), (vec![second], 2), "the node has read it since");
        sightings.note_change();
        assert_eq!((read().await, asked()), (vec![first.clone()], 3), "something else may have changed");
        let long_ago =
            Instant::now().checked_sub(Duration::from_secs(50)).expect("the machine runs for longer");
        sightings.note(std::slice::from_ref(&first), long_ago);
        assert_eq!((read().await, asked()), (vec![first], 4), "it was sighted too long ago");
    }
}
