//! How registers are named: one Lease each.
//!
//! ```text
//! tenure.default.role.scheduler.k3vq2m7w5trd4xyz
//! ```
//!
//! People read the first parts. The last part is a digest of namespace, epoch, kind and name: names of Leases have small
//! letters only, ours differ by every byte. A Lease also says in an annotation which register it is, and one that says
//! otherwise is none. Labels carry digests too, so that one list has all registers of a kind, or just some.

use ring::digest::{SHA256, digest};
use tenure_store::{Epoch, Key, Kind, Name};

/// The alphabet of digests, in lower case as names of Leases are.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// What names of Leases and labels begin with, for one store in a namespace of Kubernetes.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of the Lease of a register.
    pub(super) fn lease(&self, namespace: &Name, key: &Key) -> String {
        let (namespace_part, name) = (readable(namespace.as_str(), 40), readable(key.name().as_ref(), 100));
        let kind = readable(key.kind().as_str(), 20);
        format!("{}.{namespace_part}.{kind}.{name}.{}", self.prefix, of_key(namespace, key))
    }
}

/// The digest that finds all registers of a kind.
pub(super) fn of_kind(namespace: &Name, epoch: Epoch, kind: Kind) -> String {
    digest_of(&[namespace.as_str(), &epoch.get().to_string(), kind.as_str()])
}

/// The digest that finds one register.
fn of_key(namespace: &Name, key: &Key) -> String {
    digest_of(&[namespace.as_str(), &key.epoch().get().to_string(), key.kind().as_str(), key.name().as_ref()])
}

/// By what a register is found that is asked for by its name. Every poll reads most registers of the small kinds: these are
/// found together, so that one list finds them all.
pub(super) fn of_register(namespace: &Name, key: &Key) -> String {
    match is_found_whole(key.kind()) {
        true => of_kind(namespace, key.epoch(), key.kind()),
        false => of_key(namespace, key),
    }
}

/// Whether a register of this kind is found together with all others of its kind.
pub(super) fn is_found_whole(kind: Kind) -> bool {
    matches!(kind, Kind::Cluster | Kind::Session | Kind::RoleControl | Kind::NodeControl)
}

/// What names of Leases and values of labels may hold of a text, for people.
pub(super) fn readable(text: &str, longest: usize) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let letters: String = text.chars().take(longest).map(letter).collect();
    letters.trim_matches('-').to_owned()
}

fn digest_of(parts: &[&str]) -> String {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes().chain([0])).collect();
    let digest = digest(&SHA256, &bytes);
    let mut bits = digest.as_ref()[..10].iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let mut letters = [0_u8; 16];
    for letter in letters.iter_mut().rev() {
        *letter = ALPHABET[usize::try_from(bits % 32).unwrap_or(0)];
        bits /= 32;
    }
    letters.iter().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str) -> Key {
        Key::Named(Epoch::new(7), Kind::Role, Name::new(name).unwrap())
    }

    #[test]
    fn names_are_pinned_because_other_versions_and_people_read_them() {
        let (keys, space) = (Keys::new("tenure"), Name::new("a.b").unwrap());
        let control = Key::Named(Epoch::new(7), Kind::RoleControl, Name::new("r").unwrap());
        assert_eq!(keys.lease(&space, &control), "tenure.a-b.control-role.r.dyvu5rcsd3747gwj");
        assert_eq!(keys.lease(&space, &Key::Cluster), "tenure.a-b.cluster.cluster.p534x4hqomlrsykh");
        assert_eq!(of_register(&space, &role("r")), "dvurysqtz2chfqbm");
        assert_eq!(of_kind(&space, Epoch::new(7), Kind::Role), "euzp4yzuh4l45agd");
    }

    #[test]
    fn every_byte_of_a_name_counts_and_every_lease_has_a_name_that_is_allowed() {
        let (keys, space) = (Keys::new("tenure"), Name::new("s").unwrap());
        let long = "X".repeat(Name::MAX_LEN);
        let names = ["node-a", "Node-A", "node-a.", "node_a", "node.a", "n", "9", "a--", &long];
        let leases: std::collections::BTreeSet<_> =
            names.iter().map(|name| keys.lease(&space, &role(name))).collect();
        assert_eq!(leases.len(), names.len());
        for lease in leases {
            let label = |label: &str| {
                let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                !label.is_empty() && label.chars().all(inner) && label.trim_matches('-') == label
            };
            assert!(lease.len() <= 253 && lease.split('.').all(label), "{lease}");
        }
    }
}
