//! What operators do: look at everything, and ask for changes, with who and why on record.
//!
//! An [`Operator`] has no session and stands for nothing. It reads the registers, and writes only under `control/`,
//! where leaders look.

mod alerts;
mod ask;
mod audit;
mod past;
mod pulse;
mod registers;
mod snapshot;
mod tasks;
mod watch;

pub use audit::{Act, Deed};
pub use snapshot::{NodeReport, NodeState, RoleReport, RoleState, Snapshot, is_internal};
pub use tenure_core::record::Order;
pub use watch::{Change, Watch};

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure_core::record::{Cluster, Session};
use tenure_core::{Epoch, Key, Query, Version, Wall};

use crate::history::Past;
use crate::store::{Entry, SharedStore, Signal, StoreError, Value};
use crate::{Error, Name, SessionId};

/// Looks at a namespace and asks for changes.
#[derive(Debug, Clone)]
pub struct Operator {
    store: SharedStore,
    namespace: Name,
    by: String,
}

impl Operator {
    /// An operator of that name, on that namespace of that store.
    pub fn new(store: SharedStore, namespace: Name, by: impl Into<String>) -> Self {
        Self { store, namespace, by: by.into() }
    }

    /// The same operator, acting for somebody else.
    #[must_use]
    pub fn acting_for(&self, by: impl Into<String>) -> Self {
        Self { by: by.into(), ..self.clone() }
    }

    /// Who acts.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.by
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Name {
        &self.namespace
    }

    /// Everything, as it is now.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::take(&self.store, &self.namespace).await
    }

    /// Comes whenever something may have changed, and at least this often.
    #[must_use]
    pub fn changes(&self, at_least: Duration) -> BoxStream<'static, ()> {
        let signals = self
            .store
            .watch(&self.namespace)
            .filter_map(|signal| async move { (!matches!(signal, Signal::Witnessed(_))).then_some(()) });
        let ticks = futures_util::stream::unfold((), move |()| async move {
            tokio::time::sleep(at_least).await;
            Some(((), ()))
        });
        futures_util::stream::select(signals, ticks).boxed()
    }

    fn order(&self, why: &str) -> Order {
        Order { by: self.by.clone(), why: why.to_owned(), at: wall() }
    }

    async fn read_one(&self, key: Key) -> Result<Option<Entry>, StoreError> {
        let query = Query { keys: vec![key], kinds: Vec::new() };
        Ok(self.store.read(&self.namespace, &query).await?.into_iter().next())
    }
}

/// The life of the store in which a namespace lives, if there is one yet.
pub(crate) async fn epoch(store: &SharedStore, namespace: &Name) -> Result<Option<Epoch>, StoreError> {
    let query = Query { keys: vec![Key::Cluster], kinds: Vec::new() };
    let found = store.read(namespace, &query).await?;
    Ok(found.first().and_then(|entry| entry.value.parse::<Cluster>().ok()).map(|cluster| cluster.epoch))
}

/// The sessions of those tenures that have no end yet: their last beat was their last sign of life.
pub(crate) async fn sessions_of_open<'a>(
    store: &SharedStore,
    namespace: &Name,
    epoch: Epoch,
    tenures: impl Iterator<Item = &'a Past>,
) -> Result<BTreeMap<SessionId, Session>, StoreError> {
    let mut keys: Vec<Key> =
        tenures.filter(|past| past.ended.is_none()).map(|past| Key::Session(epoch, past.session)).collect();
    keys.sort_unstable();
    keys.dedup();
    let found = store.read(namespace, &Query { keys, kinds: Vec::new() }).await?;
    let session = |entry: Entry| match (&entry.key, entry.value.parse::<Session>()) {
        (Key::Session(_, id), Ok(session)) => Some((*id, session)),
        _ => None,
    };
    Ok(found.into_iter().filter_map(session).collect())
}

fn wall() -> Wall {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX))
}

fn fresh(value: Value) -> (Version, Value) {
    (Version(crate::clock::nonce()), value)
}
