//! Numbers that name things, each a type of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($name:ident) => {
        impl $name {
            /// That number, as its type.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// As a plain number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}

/// The fencing token: one number per tenure, strictly rising per role, for ever. From 1 to 2⁵³ − 1, so that it
/// survives signed 64-bit SQL, JSON and Lua alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Token(u64);

number!(Token);

impl Token {
    /// The largest token that every store and language can carry.
    pub const MAX: Self = Self((1 << 53) - 1);
    /// No tenure gets here before the year 2112, even where the wall clock is a floor: a token beyond was written by
    /// hand, or by a clock that was wrong by generations.
    pub const IMPLAUSIBLE: Self = Self(1 << 52);

    /// The token of the next tenure.
    ///
    /// # Panics
    /// When the tokens are used up, which at one tenure a microsecond takes 285 years.
    #[must_use]
    pub fn next(self) -> Self {
        assert!(self < Self::MAX, "the tokens of this role are used up");
        Self(self.0 + 1)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Which life of the store a key belongs to: drawn when the `cluster` register is created, so that a store that
/// lost everything is never mistaken for the one it was. Zero for the `cluster` register itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Epoch(u64);

number!(Epoch);

/// Names one operation between the engine and its caller; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OpId(u64);

number!(OpId);

/// A nonce in hexadecimal that was not 32 digits long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id of 32 hexadecimal digits")]
pub struct BadId(String);

macro_rules! nonce {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(u128);

        impl $name {
            /// The id of that number, which has to be a nonce: no other may have it.
            #[must_use]
            pub const fn new(nonce: u128) -> Self {
                Self(nonce)
            }

            /// As a number.
            #[must_use]
            pub const fn get(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
                match u128::from_str_radix(text, 16) {
                    Ok(number) if hex => Ok(Self(number)),
                    _ => Err(BadId(text.chars().take(64).collect())),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

nonce! {
    /// The identity of one opening of a session; drawn anew each time, never reused.
    SessionId
}

nonce! {
    /// The identity of one value of one register: a nonce drawn by the writer. A version identifies its bytes for
    /// ever, on every primary, and is never reused after deletion.
    Version
}

impl Version {
    /// A version that no register ever had.
    #[must_use]
    pub const fn from_nonce(nonce: u128) -> Self {
        Self(nonce << 1)
    }

    /// The version under which the tenure that wrote this one gives its role up, if any candidate may claim it then. Every
    /// standby knows it beforehand: a claim that replaces it replaces that resignation and nothing else. None for a version
    /// that was not made by [`Version::from_nonce`].
    #[must_use]
    pub const fn of_resignation(self) -> Option<Self> {
        if self.0 & 1 == 0 { Some(Self(self.0 | 1)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_refuse_what_is_not_theirs() {
        let id = SessionId(0xfeed);
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "feed", "+000000000000000000000000000feed", "0000000000000000000000000000feedz"] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_resignation_has_a_version_of_its_own() {
        let (one, other) = (Version::from_nonce(1), Version::from_nonce(2));
        assert_ne!(one.of_resignation(), other.of_resignation());
        assert!(![Some(one), Some(other)].contains(&one.of_resignation()));
        assert_eq!(one.of_resignation().and_then(Version::of_resignation), None, "it is given up once");
    }

    #[test]
    #[should_panic(expected = "used up")]
    fn tokens_end_rather_than_wrap() {
        let _ = Token::MAX.next();
    }
}
