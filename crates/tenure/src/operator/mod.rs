//! What operators do: look at everything, and ask for changes, with who and why on record.
//!
//! An [`Operator`] has no session and stands for nothing. It reads the registers, and writes only under `control/`,
//! where leaders look.

mod ask;
mod snapshot;

pub use snapshot::{NodeReport, NodeState, RoleReport, RoleState, Snapshot};

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure_core::record::{Cluster, Order};
use tenure_core::{Epoch, Key, Kind, Query, Version, Wall};

use crate::history::History;
use crate::store::{Entry, SharedStore, Signal, StoreError, Value};
use crate::{Error, Name};

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

    /// Past tenures, of one role or of all.
    pub async fn history(&self, role: Option<&Name>) -> Result<BTreeMap<Name, History>, Error> {
        let Some(epoch) = epoch(&self.store, &self.namespace).await? else { return Ok(BTreeMap::new()) };
        let query = match role {
            Some(role) => {
                Query { keys: vec![Key::Named(epoch, Kind::History, role.clone())], kinds: Vec::new() }
            }
            None => Query { keys: Vec::new(), kinds: vec![(epoch, Kind::History)] },
        };
        let found = self.store.read(&self.namespace, &query).await?;
        let book = |entry: Entry| match entry.key {
            Key::Named(_, _, role) => Some((role, entry.value.parse().unwrap_or_default())),
            _ => None,
        };
        Ok(found.into_iter().filter_map(book).collect())
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

fn wall() -> Wall {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX))
}

fn fresh(value: Value) -> (Version, Value) {
    (Version(crate::clock::nonce()), value)
}
