//! A register's name as one text: `NAMESPACE/EPOCH/KIND/NAME`, for stores that name registers by paths.

use crate::{Epoch, Key, Kind, Name};

/// The path of a register.
#[must_use]
pub fn register_path(namespace: &Name, key: &Key) -> String {
    format!("{}{}", kind_path(namespace, key.epoch(), key.kind()), key.name())
}

/// What the paths of all registers of a kind begin with.
#[must_use]
pub fn kind_path(namespace: &Name, epoch: Epoch, kind: Kind) -> String {
    format!("{namespace}/{}/{}/", epoch.get(), kind.as_str())
}

/// Undoes [`register_path`]; nothing if this version cannot have written it.
#[must_use]
pub fn read_path(text: &[u8]) -> Option<(Name, Key)> {
    let text = std::str::from_utf8(text).ok()?;
    let (namespace, rest) = text.split_once('/')?;
    let (epoch, rest) = rest.split_once('/')?;
    let (kind, name) = rest.rsplit_once('/')?;
    let key = Key::from_parts(Epoch::new(epoch.parse().ok()?), kind.parse().ok()?, name).ok()?;
    let namespace = Name::new(namespace).ok()?;
    // `007` is no epoch that this version writes, and a cluster register has one name only.
    (register_path(&namespace, &key) == text).then_some((namespace, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_pinned_because_other_versions_and_people_read_them() {
        let space = Name::new("a.b").unwrap();
        let control = Key::Named(Epoch::new(7), Kind::RoleControl, Name::new("r").unwrap());
        assert_eq!(register_path(&space, &control), "a.b/7/control/role/r");
        assert_eq!(register_path(&space, &Key::Cluster), "a.b/0/cluster/cluster");
        assert_eq!(kind_path(&space, Epoch::new(7), Kind::Role), "a.b/7/role/");
    }

    #[test]
    fn paths_name_a_register_and_strange_ones_none() {
        for kind in Kind::ALL {
            let name = if kind == Kind::Session { "0".repeat(32) } else { "cluster".to_owned() };
            let epoch = if kind == Kind::Cluster { Epoch::new(0) } else { Epoch::new(7) };
            let (key, space) = (Key::from_parts(epoch, kind, &name).unwrap(), Name::new("s").unwrap());
            assert_eq!(read_path(register_path(&space, &key).as_bytes()), Some((space, key)));
        }
        let strange = "|s|s/7|s/7/role|s/7/what/r|s/x/role/r|s/007/role/r|s/0/cluster/x|s/7/role/r/| s/7/role/r|7/role/r";
        for strange in strange.split('|') {
            assert_eq!(read_path(strange.as_bytes()), None, "{strange}");
        }
    }
}
