//! How registers are named: one key each, the value [packed](tenure_store::kit::packed).
//!
//! ```text
//! tenure/default/0/cluster/cluster       9b1d… ---------------- {"epoch":7342,…}
//! tenure/default/7342/role/scheduler     04aa… 0000000000000017 {"token":17,…}
//! tenure/_changed/000                    default/7342/role/scheduler
//! ```
//!
//! The last is what watches look at: a write that notifies others puts there, in the same transaction, which register it
//! changed. Beats do not, so that no watch is told of them. The number is the place of the write in its transaction, in which
//! etcd lets no key be put twice, so that there are never more of them than writes in a transaction; no name of a namespace
//! begins with an underscore.

use tenure_store::{Epoch, Key, Kind, Name};

/// The keys under one prefix.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// What every key begins with.
    pub(super) fn all(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// What the keys of all registers of a kind begin with.
    pub(super) fn kind(&self, namespace: &Name, epoch: Epoch, kind: Kind) -> String {
        format!("{}/{namespace}/{}/{}/", self.prefix, epoch.get(), kind.as_str())
    }

    /// The key of a register.
    pub(super) fn register(&self, namespace: &Name, key: &Key) -> String {
        format!("{}{}", self.kind(namespace, key.epoch(), key.kind()), key.name())
    }

    /// What all keys begin with that watches look at.
    pub(super) fn changes(&self) -> String {
        format!("{}/_changed/", self.prefix)
    }

    /// Where the write at that place of a transaction says what it changed.
    pub(super) fn change(&self, place: usize) -> String {
        format!("{}{place:03}", self.changes())
    }
}

/// A register, as a change names it.
pub(super) fn named(namespace: &Name, key: &Key) -> String {
    format!("{namespace}/{}/{}/{}", key.epoch().get(), key.kind().as_str(), key.name())
}

/// Undoes [`named`]; nothing if this version cannot have written it.
pub(super) fn read_change(text: &[u8]) -> Option<(Name, Key)> {
    let slash = text.iter().position(|byte| *byte == b'/')?;
    let namespace = Name::new(std::str::from_utf8(&text[..slash]).ok()?).ok()?;
    Some((namespace, read_name(&text[slash + 1..])?))
}

/// The register that the end of a key names; nothing if this version cannot have written it.
pub(super) fn read_name(text: &[u8]) -> Option<Key> {
    let (epoch, rest) = std::str::from_utf8(text).ok()?.split_once('/')?;
    let (kind, name) = rest.rsplit_once('/')?;
    Key::from_parts(Epoch::new(epoch.parse().ok()?), kind.parse().ok()?, name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pinned_because_other_versions_and_people_read_them() {
        let (keys, space) = (Keys::new("tenure"), Name::new("a.b").unwrap());
        let control = Key::Named(Epoch::new(7), Kind::RoleControl, Name::new("r").unwrap());
        assert_eq!(keys.register(&space, &control), "tenure/a.b/7/control/role/r");
        assert_eq!(keys.register(&space, &Key::Cluster), "tenure/a.b/0/cluster/cluster");
        assert_eq!(keys.kind(&space, Epoch::new(7), Kind::Role), "tenure/a.b/7/role/");
        assert_eq!(keys.change(7), "tenure/_changed/007");
        assert_eq!(named(&space, &control), "a.b/7/control/role/r");
    }

    #[test]
    fn changes_name_a_register_and_strange_ones_none() {
        for kind in Kind::ALL {
            let name = if kind == Kind::Session { "0".repeat(32) } else { "cluster".to_owned() };
            let epoch = if kind == Kind::Cluster { Epoch::new(0) } else { Epoch::new(7) };
            let key = Key::from_parts(epoch, kind, &name).unwrap();
            let space = Name::new("s").unwrap();
            assert_eq!(read_change(named(&space, &key).as_bytes()), Some((space, key)));
        }
        for strange in
            ["", "s", "s/7", "s/7/role", "s/7/what/r", "s/x/role/r", "s/7/role/r/", " s/7/role/r", "7/role/r"]
        {
            assert_eq!(read_change(strange.as_bytes()), None, "{strange}");
        }
    }
}
