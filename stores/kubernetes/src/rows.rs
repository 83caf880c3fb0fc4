//! Questions about registers: one Lease by its name, or lists of those that a label finds.
//!
//! Without a resourceVersion in the question, both are read from a quorum of the etcd behind the API server.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;

use super::connection::{Cluster, Effect, Question, Reply};
use super::keys::{self, Keys};
use super::leases::{KIND_LABEL, Lease, LeaseList, REGISTER_LABEL, STORE_LABEL};
use tenure_store::kit::registers::split;
use tenure_store::{Entry, Epoch, Key, Kind, Name, Query, StoreError};

/// So many registers may be named in one question; of more, all of their kinds are listed.
const NAMED: usize = 100;

/// Leases in one part of a list.
const PART: usize = 500;

/// How often a list may be begun anew because the rest of it was forgotten meanwhile.
const ATTEMPTS: usize = 5;

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// One register, by its name.
    single: Option<Key>,
    /// The registers that these values of a label find.
    lists: Vec<(&'static str, BTreeSet<String>)>,
}

/// Reads registers; each that was asked for twice, by name and by kind, once.
pub(super) async fn read(
    cluster: &Cluster,
    keys: &Keys,
    namespace: &Name,
    query: &Query,
) -> Result<Vec<Entry>, StoreError> {
    let (whole, wanted) = split(query);
    let plan = Plan::new(namespace, &whole, &wanted);
    if let Some(key) = &plan.single {
        return Ok(read_one(cluster, keys, namespace, key)
            .await?
            .map(|(_, entry)| entry)
            .into_iter()
            .collect());
    }
    let lists = plan.lists.iter().map(|(label, values)| list(cluster, keys, label, values));
    let by_name: BTreeMap<_, _> = wanted.iter().map(|key| (keys.lease(namespace, key), *key)).collect();
    let mut found = BTreeMap::new();
    for lease in try_join_all(lists).await?.into_iter().flatten() {
        let key = by_name.get(&lease.metadata.name).map(|key| (*key).clone()).or_else(|| {
            let (space, key) = lease.register(keys)?;
            (space == *namespace && whole.contains(&(key.epoch(), key.kind()))).then_some(key)
        });
        let Some(key) = key else { continue };
        let entry = lease.entry(namespace, &key);
        if let Some(held) = lease.held(&entry) {
            cluster.remember(&lease.metadata.name, held);
        }
        found.insert(key, entry);
    }
    Ok(found.into_values().collect())
}

/// Reads one register by the name of its Lease.
pub(super) async fn read_one(
    cluster: &Cluster,
    keys: &Keys,
    namespace: &Name,
    key: &Key,
) -> Result<Option<(Lease, Entry)>, StoreError> {
    let name = keys.lease(namespace, key);
    let question = Question::get(format!("{}/{name}", cluster.settings.leases()));
    let body = match cluster.ask(Effect::Reads, &question).await? {
        Reply::Done(body) => body,
        Reply::Absent => {
            cluster.forget(&name);
            return Ok(None);
        }
        Reply::Conflict | Reply::Gone => return Err(cluster.strange()),
    };
    let lease: Lease = serde_json::from_slice(&body).map_err(|_| cluster.strange())?;
    let entry = lease.entry(namespace, key);
    let held = lease.held(&entry).ok_or_else(|| cluster.strange())?;
    cluster.remember(&name, held);
    Ok(Some((lease, entry)))
}

impl Plan {
    fn new(namespace: &Name, whole: &BTreeSet<(Epoch, Kind)>, wanted: &BTreeSet<&Key>) -> Self {
        if let (true, [key]) = (whole.is_empty(), &wanted.iter().collect::<Vec<_>>()[..]) {
            return Self { single: Some((**key).clone()), lists: Vec::new() };
        }
        let (mut kinds, mut registers) = (BTreeSet::new(), BTreeSet::new());
        for (epoch, kind) in whole {
            let digest = keys::of_kind(namespace, *epoch, *kind);
            if keys::is_found_whole(*kind) {
                registers.insert(digest)
            } else {
                kinds.insert(digest)
            };
        }
        let named: BTreeSet<_> = wanted.iter().map(|key| keys::of_register(namespace, key)).collect();
        if named.len() + registers.len() <= NAMED {
            registers.extend(named);
        } else {
            kinds.extend(wanted.iter().map(|key| keys::of_kind(namespace, key.epoch(), key.kind())));
        }
        let lists = [(KIND_LABEL, kinds), (REGISTER_LABEL, registers)];
        Self { single: None, lists: lists.into_iter().filter(|(_, values)| !values.is_empty()).collect() }
    }
}

/// Every Lease that has one of these values of a label, part by part, as they were at one moment.
async fn list(
    cluster: &Cluster,
    keys: &Keys,
    label: &str,
    values: &BTreeSet<String>,
) -> Result<Vec<Lease>, StoreError> {
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let selector = format!("{STORE_LABEL}={},{label} in ({})", keys.prefix(), values.join(","));
    let mut attempts = 0;
    loop {
        if let Some(leases) = list_once(cluster, &selector).await? {
            return Ok(leases);
        }
        attempts += 1;
        if attempts == ATTEMPTS {
            let message =
                "a list is never finished before the server forgets where it began: see how busy it is";
            return Err(StoreError::not_applied(super::STORE, message));
        }
    }
}

/// None if the server forgot the rest of the list before it was asked for.
async fn list_once(cluster: &Cluster, selector: &str) -> Result<Option<Vec<Lease>>, StoreError> {
    let (mut leases, mut more) = (Vec::new(), String::new());
    let before = cluster.revision();
    loop {
        let question = Question::get(format!(
            "{}?limit={PART}&labelSelector={}{}",
            cluster.settings.leases(),
            escaped(selector),
            if more.is_empty() { String::new() } else { format!("&continue={}", escaped(&more)) },
        ));
        let part: LeaseList = match cluster.ask(Effect::Reads, &question).await? {
            Reply::Done(body) => serde_json::from_slice(&body).map_err(|_| cluster.strange())?,
            Reply::Gone => return Ok(None),
            Reply::Absent | Reply::Conflict => return Err(cluster.strange()),
        };
        if more.is_empty() {
            let revision = part.metadata.resource_version.parse().map_err(|_| cluster.strange())?;
            cluster.compare(before, revision);
        }
        leases.extend(part.items);
        more = part.metadata.more;
        if more.is_empty() {
            return Ok(Some(leases));
        }
    }
}

/// A text as a part of a URL.
pub(super) fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch::new(7);

    fn role(nth: usize) -> Key {
        Key::Named(EPOCH, Kind::Role, Name::new(format!("r{nth}")).unwrap())
    }

    fn plan(kinds: &[Kind], keys: &[Key]) -> Plan {
        let whole = kinds.iter().map(|kind| (EPOCH, *kind)).collect();
        Plan::new(&Name::new("s").unwrap(), &whole, &keys.iter().collect())
    }

    #[test]
    fn a_poll_is_one_question() {
        let session = Key::from_parts(EPOCH, Kind::Session, &"0".repeat(32)).unwrap();
        for kinds in [&[Kind::RoleControl][..], &[Kind::RoleControl, Kind::Session]] {
            let plan = plan(kinds, &[Key::Cluster, session.clone(), role(1)]);
            let [(REGISTER_LABEL, values)] = &plan.lists[..] else { panic!("{plan:?}") };
            assert_eq!(values.len(), 4, "cluster, controls, sessions, and the role");
        }
    }

    #[test]
    fn one_register_is_asked_for_by_its_name_and_very_many_by_their_kind() {
        assert_eq!(plan(&[], &[role(1)]).single, Some(role(1)));
        let many: Vec<_> = (0..NAMED + 1).map(role).collect();
        let [(KIND_LABEL, values)] = &plan(&[], &many).lists[..] else { panic!("one list of a kind") };
        assert_eq!(values.len(), 1);
        let [(KIND_LABEL, _), (REGISTER_LABEL, _)] = &plan(&[Kind::Role, Kind::Session], &[]).lists[..]
        else {
            panic!("two lists")
        };
    }

    #[test]
    fn what_has_a_meaning_in_urls_is_escaped() {
        assert_eq!(escaped("tenure/store=a,b in (c)"), "tenure%2Fstore%3Da%2Cb%20in%20%28c%29");
    }
}
