//! Leases: how a register looks as one, and how it is read again.
//!
//! The register is in annotations. The spec is for people and for `kubectl get leases` alone: who holds, since when, how often
//! it changed hands. Nothing here reads it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tenure_core::{Record, Timestamp, Token};
use tenure_store::kit::paths::{read_path, register_path};
use tenure_store::{Entry, Key, Name, Value, Version, Write};

use super::keys::{self, Keys};

const API: &str = "coordination.k8s.io/v1";

/// The label by which a watch finds all Leases of a store.
pub(super) const STORE_LABEL: &str = "tenure/store";
/// The label by which all registers of a kind are found.
pub(super) const KIND_LABEL: &str = "tenure/of-kind";
/// The label by which single registers are found.
pub(super) const REGISTER_LABEL: &str = "tenure/register";

const REGISTER: &str = "tenure/register";
const VERSION: &str = "tenure/version";
const TOKEN: &str = "tenure/token";
const RECORD: &str = "tenure/record";
/// On a register whose last write was to notify no other node.
const QUIET: &str = "tenure/quiet";

/// The longest value. An object's annotations have 256 KiB at most, ours beside the value far less than 1 KiB.
pub(super) const LONGEST: usize = 255 << 10;

/// One Lease, as it is sent and as it is received.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Lease {
    api_version: String,
    kind: String,
    pub(super) metadata: Metadata,
    #[serde(skip_deserializing)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// For people.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_duration_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_transitions: Option<i32>,
}

/// All Leases that a list found, or a part of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseList {
    pub(super) metadata: ListMetadata,
    pub(super) items: Vec<Lease>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMetadata {
    pub(super) resource_version: String,
    /// Not empty: there are more.
    #[serde(rename = "continue")]
    pub(super) more: String,
}

/// The state of a Lease: which version of the register it holds, and what a write has to show that it replaces just that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) version: Version,
    pub(super) token: Option<Token>,
    pub(super) revision: u64,
    pub(super) uid: String,
}

impl Lease {
    /// The Lease that a write makes; none if it deletes.
    pub(super) fn of_write(keys: &Keys, namespace: &Name, write: &Write) -> Option<Self> {
        let (version, value) = write.put.as_ref()?;
        let key = &write.key;
        let labels = [
            ("app.kubernetes.io/managed-by", "tenure".to_owned()),
            (STORE_LABEL, keys.prefix().to_owned()),
            ("tenure/namespace", keys::readable(namespace.as_str(), 63)),
            ("tenure/kind", keys::readable(key.kind().as_str(), 63)),
            (KIND_LABEL, keys::of_kind(namespace, key.epoch(), key.kind())),
            (REGISTER_LABEL, keys::of_register(namespace, key)),
        ];
        let annotations = [
            (REGISTER, register_path(namespace, key)),
            (VERSION, version.to_string()),
            (RECORD, value.json.to_string()),
        ];
        let token = value.token.map(|token| (TOKEN, token.to_string()));
        let quiet = (!write.notify).then(|| (QUIET, "true".to_owned()));
        let owned = |(name, text): (&str, String)| (name.to_owned(), text);
        Some(Self {
            api_version: API.to_owned(),
            kind: "Lease".to_owned(),
            metadata: Metadata {
                name: keys.lease(namespace, key),
                labels: labels.into_iter().map(owned).collect(),
                annotations: annotations.into_iter().chain(token).chain(quiet).map(owned).collect(),
                ..Metadata::default()
            },
            spec: Spec::of(&value.to_record(key)),
        })
    }

    /// The same, to replace that state and no other. The API server makes a Lease that is not there, whatever revision it was
    /// to have; none has the uid.
    pub(super) fn replacing(mut self, held: &Held) -> Self {
        self.metadata.resource_version = held.revision.to_string();
        self.metadata.uid.clone_from(&held.uid);
        self
    }

    /// The same register, whose deletion is to notify others, or not to.
    pub(super) fn with_notify(mut self, notify: bool) -> Self {
        match notify {
            true => self.metadata.annotations.remove(QUIET),
            false => self.metadata.annotations.insert(QUIET.to_owned(), "true".to_owned()),
        };
        API.clone_into(&mut self.api_version);
        "Lease".clone_into(&mut self.kind);
        self
    }

    /// Whether the last write on it was to notify others.
    pub(super) fn notifies(&self) -> bool {
        !self.metadata.annotations.contains_key(QUIET)
    }

    /// The register that it says to be; none if its name is not the one that this register has.
    pub(super) fn register(&self, keys: &Keys) -> Option<(Name, Key)> {
        let (namespace, key) = read_path(self.metadata.annotations.get(REGISTER)?.as_bytes())?;
        (keys.lease(&namespace, &key) == self.metadata.name).then_some((namespace, key))
    }

    /// The register of that key, whose name it has; unreadable if another program wrote it.
    pub(super) fn entry(&self, namespace: &Name, key: &Key) -> Entry {
        let (version, value) = self.content(namespace, key).unwrap_or_else(Value::unreadable);
        Entry { key: key.clone(), version, value }
    }

    /// What a write has to show; none if the API server did not say.
    pub(super) fn held(&self, entry: &Entry) -> Option<Held> {
        let (version, token) = (entry.version, entry.value.token);
        Some(Held { version, token, revision: self.revision()?, uid: self.metadata.uid.clone() })
    }

    pub(super) fn revision(&self) -> Option<u64> {
        self.metadata.resource_version.parse().ok()
    }

    fn content(&self, namespace: &Name, key: &Key) -> Option<(Version, Value)> {
        let annotation = |name| self.metadata.annotations.get(name);
        if *annotation(REGISTER)? != register_path(namespace, key) {
            return None;
        }
        let token = match annotation(TOKEN) {
            Some(digits) => Some(Token::new(digits.parse().ok()?)),
            None => None,
        };
        Some((annotation(VERSION)?.parse().ok()?, Value { token, json: annotation(RECORD)?.as_str().into() }))
    }
}

impl Spec {
    fn of(record: &Record) -> Self {
        match record {
            Record::Role(role) => Self {
                holder_identity: role.holder.as_ref().map(|holder| holder.node.to_string()),
                acquire_time: Some(micro_time(role.since)),
                renew_time: Some(micro_time(role.since)),
                lease_transitions: i32::try_from(role.token.get()).ok(),
                ..Self::default()
            },
            Record::Session(session) => Self {
                holder_identity: Some(session.node.to_string()),
                lease_duration_seconds: Some(session.ttl.as_secs().clamp(1, i32::MAX as u64)),
                renew_time: Some(micro_time(session.beat_at)),
                ..Self::default()
            },
            _ => Self::default(),
        }
    }
}

/// A wall-clock time as the API writes it.
fn micro_time(at: Timestamp) -> String {
    // Later than the year 9999 is no time that can be written.
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(at.as_micros().min(253_402_300_799_000_000));
    humantime::format_rfc3339_micros(at).to_string()
}

#[cfg(test)]
mod tests {
    use tenure_store::{Epoch, Kind};

    use super::*;

    fn write(json: &str, notify: bool) -> Write {
        let value = Value { token: Some(Token::new(17)), json: json.into() };
        let key = Key::Named(Epoch::new(7), Kind::Role, Name::new("R").unwrap());
        Write { key, expect: None, put: Some((Version::new(9), value)), notify, requires_lock: false }
    }

    #[test]
    fn registers_survive_being_leases() {
        let (keys, space) = (Keys::new("tenure"), Name::new("s").unwrap());
        for notify in [true, false] {
            let write = write("{\"a b\":\"é\"}", notify);
            let sent = serde_json::to_vec(&Lease::of_write(&keys, &space, &write)).unwrap();
            let lease: Lease = serde_json::from_slice(&sent).unwrap();
            let entry = lease.entry(&space, &write.key);
            assert_eq!(Some((entry.version, entry.value)), write.put);
            assert_eq!(lease.register(&keys), Some((space.clone(), write.key)));
            assert_eq!(lease.notifies(), notify);
        }
    }

    #[test]
    fn a_lease_that_is_no_register_is_unreadable_and_a_copy_is_no_register() {
        let (keys, space) = (Keys::new("tenure"), Name::new("s").unwrap());
        let write = write("{}", true);
        let lease = Lease::of_write(&keys, &space, &write).unwrap();
        for spoil in [REGISTER, VERSION, RECORD] {
            let mut spoilt = lease.clone();
            spoilt.metadata.annotations.remove(spoil);
            assert_eq!(spoilt.entry(&space, &write.key).value, Value::unreadable().1, "{spoil}");
        }
        let mut copy = lease;
        "tenure.s.role.r.copy".clone_into(&mut copy.metadata.name);
        assert_eq!(copy.register(&keys), None);
    }

    #[test]
    fn people_see_who_leads() {
        let role = "{\"token\":17,\"holder\":{\"session\":\"00000000000000000000000000000001\",\"node\":\"web-1\"},\
                    \"since\":1763406000000001,\"reason\":\"first\"}";
        let lease = Lease::of_write(&Keys::new("t"), &Name::new("s").unwrap(), &write(role, true)).unwrap();
        let spec = serde_json::to_value(&lease.spec).unwrap();
        assert_eq!(spec["holderIdentity"], "web-1", "{spec}");
        assert_eq!(spec["acquireTime"], "2025-11-17T19:00:00.000001Z");
        assert_eq!(spec["leaseTransitions"], 17);
    }
}
