//! One grammar for every name that people choose: roles, nodes, namespaces, tasks.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A name: `[A-Za-z0-9][A-Za-z0-9._-]{0,99}`, case-sensitive. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid name: {why}; names are 1 to 100 of A-Z a-z 0-9 . _ - and begin with a letter or digit"
)]
pub struct BadName {
    text: String,
    why: &'static str,
}

impl Name {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 100;

    /// Checks `text` against the grammar.
    pub fn new(text: impl AsRef<str>) -> Result<Self, BadName> {
        let text = text.as_ref();
        match fault(text) {
            Some(why) => Err(BadName { text: text.chars().take(120).collect(), why }),
            None => Ok(Self(text.into())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fault(text: &str) -> Option<&'static str> {
    let Some(first) = text.chars().next() else { return Some("it is empty") };
    if text.len() > Name::MAX_LEN {
        return Some("it is too long");
    }
    if !first.is_ascii_alphanumeric() {
        return Some("its first character is not allowed there");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (!text.chars().all(allowed)).then_some("it has a character that is not allowed")
}

impl FromStr for Name {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Name {
    type Error = BadName;
    fn try_from(text: &str) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar() {
        let longest = "x".repeat(100);
        for good in ["a", "0", "scheduler", "shard-17", "Node_A.eu", longest.as_str()] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        let too_long = "x".repeat(101);
        for bad in ["", "-a", ".a", "_a", "a b", "a/b", "é", "a\n", "a\0", too_long.as_str()] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn case_and_trailing_characters_make_different_names() {
        assert_ne!(Name::new("Node-A").unwrap(), Name::new("node-a").unwrap());
    }
}
