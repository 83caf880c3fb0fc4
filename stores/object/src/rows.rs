//! Questions about registers: one request for each object, or a list and requests for what has changed since the last one.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;

use super::bucket::{Bucket, SeenObject};
use super::keys::read_name;
use tenure_store::{Entry, Epoch, Key, Kind, Name, Query, StoreError};

/// Requests at once.
pub(super) const AT_ONCE: usize = 32;

/// Of a kind of which more registers are asked for by name than this, all are listed: a list costs what twelve reads cost,
/// and shows which registers have to be read.
const SINGLE: usize = 12;

/// One register that was asked for.
struct Wanted {
    key: Key,
    path: Path,
    /// What a list just showed it to be still.
    known: Option<SeenObject>,
}

/// What a query comes to.
struct Plan {
    /// Kinds that are listed.
    listed: Vec<(Epoch, Kind)>,
    /// Registers that are read by name.
    single: Vec<Wanted>,
    /// Of what is listed, all of these kinds and these registers were asked for.
    whole: BTreeSet<(Epoch, Kind)>,
    named: BTreeSet<Key>,
}

/// Reads registers; each that was asked for twice, by name and by kind, once.
pub(super) async fn read(bucket: &Bucket, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
    let Plan { listed, single, whole, named } = plan(bucket, namespace, query);
    let lists = async {
        let lists: Vec<Vec<Wanted>> =
            try_join_all(listed.iter().map(|place| list(bucket, namespace, *place))).await?;
        Ok(lists.into_iter().flatten().collect::<Vec<Wanted>>())
    };
    let (mut found, mut entries) = tokio::try_join!(lists, fetch(bucket, single))?;
    found.retain(|wanted| {
        whole.contains(&(wanted.key.epoch(), wanted.key.kind())) || named.contains(&wanted.key)
    });
    entries.extend(fetch(bucket, found).await?);
    Ok(entries)
}

fn plan(bucket: &Bucket, namespace: &Name, query: &Query) -> Plan {
    let whole: BTreeSet<_> = query.kinds.iter().copied().collect();
    let mut kinds: BTreeMap<(Epoch, Kind), BTreeSet<Key>> = BTreeMap::new();
    for key in query.keys.iter().filter(|key| !whole.contains(&(key.epoch(), key.kind()))) {
        kinds.entry((key.epoch(), key.kind())).or_default().insert(key.clone());
    }
    let mut plan =
        Plan { listed: whole.iter().copied().collect(), single: Vec::new(), whole, named: BTreeSet::new() };
    for (place, keys) in kinds {
        if keys.len() > SINGLE {
            plan.listed.push(place);
            plan.named.extend(keys);
        } else {
            let wanted = |key: Key| Wanted { path: bucket.keys.register(namespace, &key), key, known: None };
            plan.single.extend(keys.into_iter().map(wanted));
        }
    }
    plan
}

/// The registers of a kind. What was deleted shows by its length, and what another program put there is no register.
async fn list(
    bucket: &Bucket,
    namespace: &Name,
    (epoch, kind): (Epoch, Kind),
) -> Result<Vec<Wanted>, StoreError> {
    let listed = bucket.list(&bucket.keys.kind(namespace, epoch, kind)).await?;
    let there = listed.into_iter().filter(|(meta, _)| meta.size > 0);
    let wanted = there.filter_map(|(meta, known)| {
        let key = read_name(epoch, kind, &meta.location)?;
        (bucket.keys.register(namespace, &key) == meta.location).then_some(Wanted {
            key,
            path: meta.location,
            known,
        })
    });
    Ok(wanted.collect())
}

async fn fetch(bucket: &Bucket, wanted: Vec<Wanted>) -> Result<Vec<Entry>, StoreError> {
    let one = |wanted: Wanted| async move {
        let found = match wanted.known {
            Some(known) => Some(known),
            None => bucket.get(&wanted.path).await?,
        };
        let held = found.and_then(|found| found.held);
        Ok(held.map(|(version, value)| Entry { key: wanted.key, version, value }))
    };
    let found: Vec<Option<Entry>> =
        stream::iter(wanted).map(one).buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}
