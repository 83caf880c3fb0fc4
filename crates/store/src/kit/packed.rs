//! A register as one text, for stores that keep a key and a value: version, token, JSON.
//!
//! ```text
//! 9b1d0c5e… ---------------- {"epoch":7342,…}
//! 04aa17f0… 0000000000000017 {"token":17,…}
//! ```
//!
//! The version has the first 32 characters, the token the next 16, with leading zeros so that a server that can only compare
//! texts compares tokens, and then comes the JSON. A register without a token has dashes, which sort before every digit.

use tenure_core::Token;

use crate::{Key, Value, Version};

/// What is written where a register has no token.
pub const NO_TOKEN: &str = "----------------";
const VERSION_LEN: usize = 32;
const TOKEN_LEN: usize = 16;
const HEADER_LEN: usize = VERSION_LEN + 1 + TOKEN_LEN + 1;

/// A value as it is kept.
#[must_use]
pub fn pack(version: Version, value: &Value) -> String {
    match value.token {
        Some(token) => format!("{version} {token:0TOKEN_LEN$} {}", value.json),
        None => format!("{version} {NO_TOKEN} {}", value.json),
    }
}

/// Undoes [`pack`]; nothing if another program wrote it.
#[must_use]
pub fn unpack(packed: &[u8]) -> Option<(Version, Value)> {
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

/// The register that a packed value is the content of; unreadable if another program wrote it.
#[must_use]
pub fn entry(key: &Key, packed: &[u8]) -> crate::Entry {
    let (version, value) = unpack(packed).unwrap_or_else(Value::unreadable);
    crate::Entry { key: key.clone(), version, value }
}

/// Between which two texts, both excluded, every packed value lies that has this version and no higher token than this one:
/// what may be replaced by a value with that token. Needs a server that compares texts byte by byte.
#[must_use]
pub fn replaceable(version: Version, token: Option<Token>) -> (String, String) {
    let above = match token {
        Some(token) => format!("{version} {:0TOKEN_LEN$}", token.get() + 1),
        None => format!("{version} 0"),
    };
    (format!("{version} "), above)
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
    fn what_may_be_replaced_has_this_version_and_no_higher_token() {
        let tokens = [None, Some(Token::new(1)), Some(Token::new(9)), Some(Token::new(10)), Some(Token::MAX)];
        for version in [6, 7, 8] {
            for old in tokens {
                for new in tokens {
                    let packed = pack(Version::new(version), &Value { token: old, json: "{}".into() });
                    let (above, below) = replaceable(Version::new(7), new);
                    let fits = packed > above && packed < below;
                    assert_eq!(fits, version == 7 && (old <= new), "{version} {old:?} {new:?}");
                }
            }
        }
    }
}
