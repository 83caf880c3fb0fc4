//! What operators do: look at everything, and ask for changes, with who and why on record.
//!
//! An [`Operator`] has no session and stands for nothing. It reads the registers, and writes only under `control/`,
//! where leaders look.

mod alerts;
mod audit;
mod history;
mod liveness;
mod registers;
mod repair;
mod requests;
mod snapshot;
mod tasks;
mod update;
mod watch;

pub use audit::{AuditEntry, OperatorAction};
pub use repair::{DamagedRegister, Remedy};
pub use snapshot::{ClusterSnapshot, NodeReport, NodeState, RoleReport, RoleState, is_internal};
pub use tenure_core::record::Order;
pub use watch::{ClusterChange, ClusterWatch};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure_core::bounds::truncate;
use tenure_core::record::{Cluster, PROTOCOL, Session};
use tenure_core::{Epoch, Key, Kind, Query, Version};

use crate::clock::wall_now;
use crate::history::TenureRecord;
use crate::store::{Entry, SharedStore, Signal, StoreError, Value};
use crate::{Error, Name, SessionId};

/// Reads the state of a namespace and requests changes.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let node = tenure::testing::node("web-1").await;
/// # let tenure = node.candidate("scheduler").await?.elected().await.unwrap();
/// use tenure::{Name, Operator};
///
/// let operator = Operator::new(node.store().clone(), node.namespace().clone(), "ada");
/// let snapshot = operator.snapshot().await?;
/// let report = snapshot.role(&Name::new("scheduler")?).expect("the role is there");
/// println!("{:?} leads under token {}", report.leader, report.token);
/// # Ok::<(), tenure::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Operator {
    store: SharedStore,
    namespace: Name,
    by: String,
    /// The epoch at the last look: what it names is read together with the register that tells whether it still counts.
    epoch: Arc<Mutex<Option<Epoch>>>,
}

impl Operator {
    /// An operator of that name, on that namespace of that store.
    pub fn new(store: SharedStore, namespace: Name, by: impl Into<String>) -> Self {
        Self { store, namespace, by: by.into(), epoch: Arc::default() }
    }

    /// The same operator, acting under another name.
    #[must_use]
    pub fn acting_for(&self, by: impl Into<String>) -> Self {
        Self { by: by.into(), ..self.clone() }
    }

    /// The name that its actions are recorded under.
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
    pub async fn snapshot(&self) -> Result<ClusterSnapshot, Error> {
        ClusterSnapshot::take(self).await
    }

    /// Comes whenever something may have changed, and at least this often.
    #[must_use]
    pub(crate) fn changes(&self, at_least: Duration) -> BoxStream<'static, ()> {
        let signals = self
            .store
            .watch(&self.namespace)
            .filter_map(|signal| async move { (!matches!(signal, Signal::Evidence(_))).then_some(()) });
        let ticks = futures_util::stream::unfold((), move |()| async move {
            tokio::time::sleep(at_least).await;
            Some(((), ()))
        });
        futures_util::stream::select(signals, ticks).boxed()
    }

    fn order(&self, why: &str) -> Order {
        Order { by: truncate(&self.by), why: truncate(why), at: wall_now() }
    }

    /// The `cluster` register, and all registers of these kinds; none if no node was ever there. That is one read, unless the
    /// namespace began a new life since the last look.
    async fn read_kinds(&self, kinds: &[Kind]) -> Result<Option<(Entry, Vec<Entry>)>, StoreError> {
        let known = *self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |epoch: Epoch| kinds.iter().map(move |kind| (epoch, *kind)).collect::<Vec<_>>();
        let query = Query { keys: vec![Key::Cluster], kinds: known.map(of).unwrap_or_default() };
        let mut found = self.store.read(&self.namespace, &query).await?;
        let Some(cluster) = found.iter().position(|entry| entry.key == Key::Cluster) else { return Ok(None) };
        let cluster = found.swap_remove(cluster);
        refuse_newer(&cluster)?;
        let epoch = cluster.value.parse::<Cluster>().ok().map(|cluster| cluster.epoch);
        if epoch != known {
            *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = epoch;
            found = match epoch {
                Some(epoch) => {
                    self.store.read(&self.namespace, &Query { keys: Vec::new(), kinds: of(epoch) }).await?
                }
                None => Vec::new(),
            };
        }
        Ok(Some((cluster, found)))
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
    let Some(entry) = found.first() else { return Ok(None) };
    refuse_newer(entry)?;
    Ok(entry.value.parse::<Cluster>().ok().map(|cluster| cluster.epoch))
}

/// A namespace whose nodes speak a newer protocol than this version is left alone.
pub(crate) fn refuse_newer(cluster: &Entry) -> Result<(), StoreError> {
    let Some(theirs) = cluster.value.newer_protocol(&cluster.key) else { return Ok(()) };
    let what =
        format!("the nodes of this namespace speak protocol {theirs}, and this version speaks {PROTOCOL}");
    Err(StoreError::not_applied("cluster", format!("{what}: upgrade tenure here")).permanent())
}

/// The sessions of those tenures that have no end yet: their last beat was their last sign of life.
pub(crate) async fn sessions_of_unfinished<'a>(
    store: &SharedStore,
    namespace: &Name,
    epoch: Epoch,
    tenures: impl Iterator<Item = &'a TenureRecord>,
) -> Result<BTreeMap<SessionId, Session>, StoreError> {
    let mut keys: Vec<Key> = tenures
        .filter(|tenure| tenure.ended.is_none())
        .map(|tenure| Key::Session(epoch, tenure.session))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let found = store.read(namespace, &Query { keys, kinds: Vec::new() }).await?;
    let session = |entry: Entry| match (&entry.key, entry.value.parse::<Session>()) {
        (Key::Session(_, id), Ok(session)) => Some((*id, session)),
        _ => None,
    };
    Ok(found.into_iter().filter_map(session).collect())
}

fn with_new_version(value: Value) -> (Version, Value) {
    (Version::new(crate::store::entropy::nonce()), value)
}
