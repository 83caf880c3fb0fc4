//! How registers are named: one znode each, the data [packed](tenure_store::kit::packed), with one empty child named after the
//! version.
//!
//! ```text
//! /tenure/default/0/cluster/cluster                   9b1d… ---------------- {"epoch":7342,…}
//! /tenure/default/7342/role/scheduler                 04aa… 0000000000000017 {"token":17,…}
//! /tenure/default/7342/role/scheduler/04aa…
//! /tenure/_changed/default:7342:role:scheduler        made and deleted in one transaction
//! ```
//!
//! The child is what a write compares: it deletes the one named after the version that it expects. The last line is what watches
//! look at: a write that notifies others makes and deletes it, so that nothing is left, and the event names the register. Beats do
//! not, so that no watch is told of them. No namespace begins with an underscore.

use tenure_store::{Epoch, Key, Kind, Name, Version};

/// The znodes under one path.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// Without a slash at its end.
    pub(super) root: String,
}

impl Keys {
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    /// The znode whose children are all registers of a kind.
    pub(super) fn kind(&self, namespace: &Name, epoch: Epoch, kind: Kind) -> String {
        format!("{}/{namespace}/{}/{}", self.root, epoch.get(), kind.as_str())
    }

    /// The znode of a register.
    pub(super) fn register(&self, namespace: &Name, key: &Key) -> String {
        format!("{}/{}", self.kind(namespace, key.epoch(), key.kind()), key.name())
    }

    /// The znode under which watches look.
    pub(super) fn changes(&self) -> String {
        format!("{}/_changed", self.root)
    }

    /// What a write that notifies others makes there.
    pub(super) fn change(&self, namespace: &Name, key: &Key) -> String {
        let kind = key.kind().as_str().replace('/', "+");
        format!("{}/{namespace}:{}:{kind}:{}", self.changes(), key.epoch().get(), key.name())
    }

    /// Undoes [`change`](Self::change); nothing if this version cannot have written it.
    pub(super) fn read_change(&self, path: &str) -> Option<(Name, Key)> {
        let rest = path.strip_prefix(&self.changes())?.strip_prefix('/')?;
        let parts: Vec<_> = rest.split(':').collect();
        let [namespace, epoch, kind, name] = parts[..] else { return None };
        let epoch = Epoch::new(epoch.parse().ok()?);
        let key = Key::from_parts(epoch, kind.replace('+', "/").parse().ok()?, name).ok()?;
        Some((Name::new(namespace).ok()?, key))
    }
}

/// The child of a register that is named after its version.
pub(super) fn marker(register: &str, version: Version) -> String {
    format!("{register}/{version}")
}

/// The znode that another one is in.
pub(super) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pinned_because_other_versions_and_people_read_them() {
        let (keys, space) = (Keys::new("/a/b"), Name::new("s.").unwrap());
        let control = Key::Named(Epoch::new(7), Kind::RoleControl, Name::new("r.").unwrap());
        assert_eq!(keys.register(&space, &control), "/a/b/s./7/control/role/r.");
        assert_eq!(keys.register(&space, &Key::Cluster), "/a/b/s./0/cluster/cluster");
        assert_eq!(keys.change(&space, &control), "/a/b/_changed/s.:7:control+role:r.");
        assert_eq!(marker("/a", Version::new(7)), "/a/00000000000000000000000000000007");
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/a"), None);
    }

    #[test]
    fn changes_name_a_register_and_strange_ones_none() {
        let (keys, space) = (Keys::new("/t"), Name::new("s").unwrap());
        for kind in Kind::ALL {
            let name = if kind == Kind::Session { "0".repeat(32) } else { "cluster".to_owned() };
            let epoch = if kind == Kind::Cluster { Epoch::new(0) } else { Epoch::new(7) };
            let key = Key::from_parts(epoch, kind, &name).unwrap();
            assert_eq!(keys.read_change(&keys.change(&space, &key)), Some((space.clone(), key)));
        }
        for strange in
            ["", "/t", "/t/_changed", "/t/_changed/x", "/t/_changed/s:7:what:r", "/u/_changed/s:7:role:r"]
        {
            assert_eq!(keys.read_change(strange), None, "{strange}");
        }
    }
}
