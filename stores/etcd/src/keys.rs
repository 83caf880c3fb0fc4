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

use tenure_store::kit::paths::{kind_path, register_path};
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
        self.all() + &kind_path(namespace, epoch, kind)
    }

    /// The key of a register.
    pub(super) fn register(&self, namespace: &Name, key: &Key) -> String {
        self.all() + &register_path(namespace, key)
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
    }
}
