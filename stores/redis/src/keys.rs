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
//! the list of its kind are one thing and cannot disagree. A packed value has its version in the first 32
//! characters, its token in the next 16, with leading zeros so that a script compares it as text, and then its JSON.

use tenure_core::Token;

use tenure_store::{Epoch, Key, Kind, Name, Value, Version};

/// What is written where a register has no token.
pub(super) const NO_TOKEN: &str = "----------------";
const VERSION_LEN: usize = 32;
const TOKEN_LEN: usize = 16;
const HEADER_LEN: usize = VERSION_LEN + 1 + TOKEN_LEN + 1;

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

/// A value as it is kept.
pub(super) fn pack(version: Version, value: &Value) -> String {
    match value.token {
        Some(token) => format!("{version} {token:0TOKEN_LEN$} {}", value.json),
        None => format!("{version} {NO_TOKEN} {}", value.json),
    }
}

/// Undoes [`pack`]; nothing if somebody else wrote it.
pub(super) fn unpack(packed: &[u8]) -> Option<(Version, Value)> {
    let text = std::str::from_utf8(packed).ok()?;
    let (header, json) = text.split_at_checked(HEADER_LEN)?;
    let mut parts = header.split(' ');
    let version = parts.next()?.parse().ok()?;
    let token = match parts.next()? {
        NO_TOKEN => None,
        digits => Some(Token::new(digits.parse().ok()?)),
    };
    Some((version, Value { token, json: json.into() }))
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
    fn values_survive_packing() {
        for token in [None, Some(Token::new(1)), Some(Token::new(1_763_230_000_123_457)), Some(Token::MAX)] {
            let value = Value { token, json: "{\"a b\":\"é\"}".into() };
            let packed = pack(Version::new(7), &value);
            assert_eq!(unpack(packed.as_bytes()), Some((Version::new(7), value)), "{packed}");
        }
        for foreign in ["", "hello", "00000000000000000000000000000007 xxxxxxxxxxxxxxxx {}", "é"] {
            assert_eq!(unpack(foreign.as_bytes()), None);
        }
    }

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
