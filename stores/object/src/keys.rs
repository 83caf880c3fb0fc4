//! How registers are named: one object each, its content [packed](tenure_store::kit::packed).
//!
//! ```text
//! tenure/default/0/cluster/cluster       9b1d… ---------------- {"epoch":7342,…}
//! tenure/default/7342/role/scheduler     04aa… 0000000000000017 {"token":17,…}
//! tenure/default/7342/session/41d0…      (empty)
//! ```
//!
//! An object without content is a register that was deleted: removing an object cannot be made conditional everywhere, but
//! replacing one can. A list shows the length of each object, so that such a register costs no read.

use object_store::path::Path;
use tenure_store::{Epoch, Key, Kind, Name};

/// The objects under one prefix.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Where all registers of a kind are.
    pub(super) fn kind(&self, namespace: &Name, epoch: Epoch, kind: Kind) -> Path {
        Path::from(format!("{}/{namespace}/{}/{}", self.prefix, epoch.get(), kind.as_str()))
    }

    /// Where a register is.
    pub(super) fn register(&self, namespace: &Name, key: &Key) -> Path {
        self.kind(namespace, key.epoch(), key.kind()).join(key.name().to_string())
    }

    /// Where an examination of the endpoint writes; no name of a namespace begins with an underscore.
    pub(super) fn examination(&self, nonce: u128) -> Path {
        Path::from(format!("{}/_examined/{nonce:032x}", self.prefix))
    }
}

/// The register of a kind that an object is; nothing if this version cannot have written it.
pub(super) fn read_name(epoch: Epoch, kind: Kind, object: &Path) -> Option<Key> {
    Key::from_parts(epoch, kind, object.filename()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pinned_because_other_versions_and_people_read_them() {
        let (keys, space) = (Keys::new("app/x"), Name::new("a.b").unwrap());
        let control = Key::Named(Epoch::new(7), Kind::RoleControl, Name::new("r_1-2.").unwrap());
        assert_eq!(keys.register(&space, &control).as_ref(), "app/x/a.b/7/control/role/r_1-2.");
        assert_eq!(keys.register(&space, &Key::Cluster).as_ref(), "app/x/a.b/0/cluster/cluster");
        assert_eq!(keys.kind(&space, Epoch::new(7), Kind::Role).as_ref(), "app/x/a.b/7/role");
    }

    #[test]
    fn names_are_read_back_and_strange_ones_are_nobodys() {
        let (keys, space, epoch) = (Keys::new("t"), Name::new("s").unwrap(), Epoch::new(7));
        let key = Key::Named(epoch, Kind::Role, Name::new("r").unwrap());
        assert_eq!(read_name(epoch, Kind::Role, &keys.register(&space, &key)), Some(key));
        for strange in ["t/s/7/role/a b", "t/s/7/role/_x", "t/s/7/role/é"] {
            assert_eq!(read_name(epoch, Kind::Role, &Path::parse(strange).unwrap()), None, "{strange}");
        }
        assert_eq!(read_name(epoch, Kind::Session, &Path::from("t/s/7/session/short")), None);
    }
}
