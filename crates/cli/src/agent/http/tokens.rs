//! Tokens of those who reach the agent over TCP: a file of its own, readable by its owner only.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Look.
    Read,
    /// Look, act and campaign.
    Operator,
}

/// The tokens. They cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    known: Vec<(Scope, Vec<u8>)>,
}

/// A shorter token could be guessed.
const SHORTEST: usize = 16;

impl Tokens {
    /// Reads a file of lines `read TOKEN` and `operator TOKEN`.
    ///
    /// # Errors
    /// If others than its owner can read it, or a line is something else. No error shows a token.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let about = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o777;
            return Err(format!("{shown} has mode {mode:04o}: others can read it; `chmod 600 {shown}`"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        Self::parse(&text).map_err(|(line, why)| format!("{shown}:{line}: {why}"))
    }

    /// Reads such lines.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut known = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why: &str| (index + 1, why.to_owned());
            let words: Vec<&str> = line.split_whitespace().collect();
            let (scope, token) = match words[..] {
                [] => continue,
                [word, ..] if word.starts_with('#') => continue,
                ["read", token] => (Scope::Read, token),
                ["operator", token] => (Scope::Operator, token),
                _ => return Err(wrong("a line is `read TOKEN` or `operator TOKEN`")),
            };
            if token.len() < SHORTEST {
                return Err(wrong("a token has at least 16 characters; `openssl rand -hex 32` makes one"));
            }
            known.push((scope, token.as_bytes().to_vec()));
        }
        if known.is_empty() {
            return Err((1, "there is no token in it".to_owned()));
        }
        Ok(Self { known })
    }

    /// What whoever shows this token may do. Every token is compared, and every byte, so that the time it takes tells
    /// nothing about any of them.
    #[must_use]
    pub fn scope(&self, shown: &str) -> Option<Scope> {
        let mut found = None;
        for (scope, token) in &self.known {
            if same(token, shown.as_bytes()) {
                found = found.max(Some(*scope));
            }
        }
        found
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.known.len())
    }
}

/// Compares in a time that depends on the length of what was shown only.
fn same(known: &[u8], shown: &[u8]) -> bool {
    let mut differ = known.len() ^ shown.len();
    for (index, byte) in shown.iter().enumerate() {
        let other = known.get(index % known.len().max(1)).copied().unwrap_or(0);
        differ |= usize::from(std::hint::black_box(byte ^ other));
    }
    differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &str = "0123456789abcdef";
    const ACT: &str = "fedcba9876543210";

    #[test]
    fn a_token_opens_what_its_line_says() {
        let tokens = Tokens::parse(&format!("# people\nread {READ}\n\noperator {ACT}\n")).unwrap();
        assert_eq!(tokens.scope(READ), Some(Scope::Read));
        assert_eq!(tokens.scope(ACT), Some(Scope::Operator));
        for wrong in ["", "0", "0123456789abcde", "0123456789abcdef0", &READ.repeat(2)] {
            assert_eq!(tokens.scope(wrong), None, "{wrong}");
        }
        assert!(!format!("{tokens:?}").contains(READ));
    }

    #[test]
    fn a_file_that_others_can_read_or_that_says_something_else_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        std::fs::write(&path, format!("read {READ}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Tokens::read(&path).unwrap_err().contains("0640"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Tokens::read(&path).is_ok());
        for (text, part) in
            [("", "no token"), ("read short", "16 characters"), ("admin 0123456789abcdef", "operator")]
        {
            let (_, why) = Tokens::parse(text).unwrap_err();
            assert!(why.contains(part) && !why.contains("0123456789abcdef"), "{why}");
        }
    }
}
