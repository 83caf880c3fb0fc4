//! How registers are named and kept: one hash for each kind of one epoch, one field for each register.
//!
//! ```text
//! tenure:{default}:store              1:5f0c…          the marker: the format, and which data this is
//! tenure:{default}:0:cluster          cluster          → 9b1d… ---------------- {"epoch":7342,…}
//! tenure:{default}:7342:role          scheduler        → 04aa… 0000000000000017 {"token":17,…}
//! tenure:{default}                    (a channel)      tenure:{default}:7342:role scheduler
//! ```
//!
//! The namespace is the hash tag, so that a namespace lies in one slot of a Redis Cluster. A register and its place in
//! the list of its kind are one thing and cannot disagree. Values are [packed](tenure_store::kit::packed).

use tenure_store::{Epoch, Key, Kind, Name};

/// The hash that holds all registers of a kind.
pub(super) fn hash(namespace: &Name, epoch: Epoch, kind: Kind) -> String {
    format!("tenure:{{{namespace}}}:{}:{}", epoch.get(), kind.as_str())
}

/// The key that says which data this is.
pub(super) fn marker(namespace: &Name) -> String {
    format!("tenure:{{{namespace}}}:store")
}

/// The channel on which changes are told.
pub(super) fn channel(namespace: &Name) -> String {
    format!("tenure:{{{namespace}}}")
}

/// The namespace that a channel tells of.
pub(super) fn namespace_of(channel: &str) -> Option<Name> {
    Name::new(channel.strip_prefix("tenure:{")?.strip_suffix('}')?).ok()
}

/// Which register a message on the channel names; nothing if we cannot have written it.
pub(super) fn named(namespace: &Name, message: &[u8]) -> Option<Key> {
    let text = std::str::from_utf8(message).ok()?;
    let (hash, field) = text.split_once(' ')?;
    let place = hash.strip_prefix(&channel(namespace))?.strip_prefix(':')?;
    let (epoch, kind) = place.split_once(':')?;
    Key::from_parts(Epoch::new(epoch.parse().ok()?), kind.parse().ok()?, field).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pinned_because_other_versions_and_people_read_them() {
        let space = Name::new("a.b").unwrap();
        assert_eq!(hash(&space, Epoch::new(7), Kind::RoleControl), "tenure:{a.b}:7:control/role");
        assert_eq!(marker(&space), "tenure:{a.b}:store");
        assert_eq!(channel(&space), "tenure:{a.b}");
        assert_eq!(namespace_of("tenure:{a.b}"), Some(space));
        assert_eq!(namespace_of("other"), None);
    }

    #[test]
    fn messages_name_a_register_and_strange_ones_none() {
        let space = Name::new("s").unwrap();
        let key = named(&space, b"tenure:{s}:7:role r").unwrap();
        assert_eq!((key.to_string(), key.epoch()), ("role/r".into(), Epoch::new(7)));
        for strange in ["", "x", "tenure:{s}:7:role r {}", "tenure:{other}:7:role r", "tenure:{s}:7:what r"] {
            assert_eq!(named(&space, strange.as_bytes()), None, "{strange}");
        }
    }
}
