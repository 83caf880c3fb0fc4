//! Tokens of those who reach the agent over TCP: a file of its own, readable by its owner only.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tenure::Name;

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
    known: Vec<Arc<Token>>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Its name, for the audit trail and the log.
    pub name: String,
    /// What a client that shows it may do.
    pub scope: Scope,
    secret: Vec<u8>,
}

/// A shorter token could be guessed.
const SHORTEST: usize = 16;

impl Tokens {
    /// Reads a file of lines `read NAME TOKEN` and `operator NAME TOKEN`.
    ///
    /// # Errors
    /// If another user owns it or can read it, or a line is something else. No error shows a token.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = crate::secret_file::read_text(path)?;
        Self::parse(&text).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
    }

    /// Reads such lines.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut known: Vec<Arc<Token>> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why: &str| (index + 1, why.to_owned());
            let words: Vec<&str> = line.split_whitespace().collect();
            let (scope, name, token) = match words[..] {
                [] => continue,
                [word, ..] if word.starts_with('#') => continue,
                [scope, token] => (scope, format!("line-{}", index + 1), token),
                [scope, name, token] => (scope, name.to_owned(), token),
                _ => return Err(wrong(LINE)),
            };
            let scope = match scope {
                "read" => Scope::Read,
                "operator" => Scope::Operator,
                _ => return Err(wrong(LINE)),
            };
            if Name::new(&name).is_err() || known.iter().any(|token| token.name == name) {
                return Err(wrong(
                    "the name of a token is unique, and has letters, digits, `.`, `_` and `-` only",
                ));
            }
            if token.len() < SHORTEST {
                return Err(wrong(
                    "a token has at least 16 characters; create one with `openssl rand -hex 32`",
                ));
            }
            let secret = token.as_bytes().to_vec();
            if known.iter().any(|token| token.secret == secret) {
                return Err(wrong("duplicate token; use one token per client"));
            }
            known.push(Arc::new(Token { name, scope, secret }));
        }
        if known.is_empty() {
            return Err((1, "the file has no token".to_owned()));
        }
        Ok(Self { known })
    }

    /// The token that was shown, if it is one of these. Every token is compared, and every byte, so that the time it takes
    /// tells nothing about any of them.
    #[must_use]
    pub fn find(&self, shown: &str) -> Option<Arc<Token>> {
        let mut found = None;
        for token in &self.known {
            if same(&token.secret, shown.as_bytes()) {
                found = Some(token.clone());
            }
        }
        found
    }

    /// Whether that very token still counts, under its name and for what it was for.
    #[must_use]
    pub fn has(&self, token: &Token) -> bool {
        self.known.iter().any(|known| **known == *token)
    }
}

/// What a line of the file looks like.
const LINE: &str = "a line is `read NAME TOKEN` or `operator NAME TOKEN`";

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.name)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.known.len())
    }
}

/// Compares in a time that depends on the length of what was shown only.
pub(crate) fn same(known: &[u8], shown: &[u8]) -> bool {
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
        let tokens = Tokens::parse(&format!("# people\nread {READ}\n\noperator ci {ACT}\n")).unwrap();
        let found = |shown: &str| tokens.find(shown).map(|token| (token.name.clone(), token.scope));
        assert_eq!(found(READ), Some(("line-2".to_owned(), Scope::Read)), "a name is a good thing to have");
        assert_eq!(found(ACT), Some(("ci".to_owned(), Scope::Operator)));
        for wrong in ["", "0", "0123456789abcde", "0123456789abcdef0", &READ.repeat(2)] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
        assert!(!format!("{tokens:?} {:?}", tokens.find(READ)).contains(READ));
        let other = Tokens::parse(&format!("read ci {ACT}\n")).unwrap();
        assert!(tokens.has(&tokens.find(ACT).unwrap()) && !other.has(&tokens.find(ACT).unwrap()));
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
        for (text, part) in [
            ("", "no token"),
            ("read short", "16 characters"),
            ("admin 0123456789abcdef", "operator"),
            ("read a 0123456789abcdef\nread a 1123456789abcdef", "name"),
            ("read a/b 0123456789abcdef", "name"),
            ("read a 0123456789abcdef\nread b 0123456789abcdef", "duplicate token"),
        ] {
            let (_, why) = Tokens::parse(text).unwrap_err();
            assert!(why.contains(part) && !why.contains("0123456789abcdef"), "{why}");
        }
    }
}
