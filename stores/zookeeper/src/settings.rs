//! What a URL says: which servers to ask, as whom, under which path, and how the connection is protected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::STORE;
use tenure_store::StoreError;
use tenure_store::kit::hosts::{self, UrlParts};
use tenure_store::kit::params::{Grammar, TIMEOUT, TlsFiles};

const PORT: u16 = 2181;
const ENCRYPTED_PORT: u16 = 2281;

/// The znode at the top, if the URL does not say.
pub(super) const ROOT: &str = "/tenure";

/// The servers, and everything needed to ask them. Never shows a secret.
pub(super) struct ZooKeeperSettings {
    /// Host and port of each server that the URL names.
    pub(super) servers: Vec<(String, u16)>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Name and password, with a colon between.
    pub(super) login: Option<String>,
    /// The znode at the top.
    pub(super) root: String,
    /// How long an operation may take, connecting included.
    pub(super) timeout: Duration,
    /// How long the servers are asked to keep a session of which they hear nothing.
    pub(super) session: Duration,
    /// Whether the znode at the top is made if it is missing.
    pub(super) create: bool,
}

/// The parameters of a URL.
#[derive(Default)]
struct Parameters {
    timeout: Option<Duration>,
    files: TlsFiles,
    keep: bool,
}

impl ZooKeeperSettings {
    /// Reads `zookeeper://` and `zookeepers://`. Nothing is connected.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let parts = UrlParts::of(url).ok_or_else(|| URL.unreadable())?;
        let login = parts.login.map(read_login).transpose()?;
        let encrypted = parts.scheme == "zookeepers";
        let port = if encrypted { ENCRYPTED_PORT } else { PORT };
        let parameters = Parameters::parse(parts.query)?;
        let timeout = parameters.timeout.unwrap_or(TIMEOUT);
        Ok(Self {
            servers: hosts::parse(parts.hosts, port).ok_or_else(|| URL.unreadable())?,
            tls: parameters.files.client(URL, encrypted, "write zookeepers:// instead of zookeeper://")?,
            login,
            root: root(parts.path)?,
            timeout,
            session: timeout * 2,
            create: !parameters.keep,
        })
    }

    /// What is doubtful about the way to the servers.
    pub(super) fn warning(&self) -> Option<&'static str> {
        (self.tls.is_none() && !hosts::are_local(&self.servers))
            .then_some(tenure_store::plaintext_warning!("write zookeepers:// instead of zookeeper://"))
    }

    /// How long an answer is waited for before it is asked whether the server is there at all.
    pub(super) fn suspicion(&self) -> Duration {
        self.timeout / 4
    }
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for (name, value) in hosts::parameters(query) {
            match (name, value) {
                ("timeout", _) => found.timeout = Some(URL.timeout(value)?),
                _ if found.files.take(URL, name, value)? => {}
                ("create", "true" | "false") => found.keep = value == "false",
                ("create", _) => return Err(URL.refuse("create is true or false")),
                _ => return Err(URL.refuse(PARAMETERS)),
            }
        }
        Ok(found)
    }
}

fn read_login(text: &str) -> Result<String, StoreError> {
    match text.split_once(':') {
        Some((user, password)) if !user.is_empty() && !password.is_empty() && !user.contains("%3") => {
            Ok(format!("{}:{}", URL.unescape(user)?, URL.unescape(password)?))
        }
        _ => Err(URL.refuse("a login is USER:PASSWORD@HOST, and a user has no colon")),
    }
}

fn root(path: &str) -> Result<String, StoreError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let part = |part: &str| !["", ".", ".."].contains(&part) && part.chars().all(plain);
    match path.trim_end_matches('/') {
        "" => Ok(ROOT.to_owned()),
        path if path.split('/').all(part) && path != "zookeeper" && !path.starts_with("zookeeper/") => {
            Ok(format!("/{path}"))
        }
        _ => Err(URL.refuse(
            "the path, after the hosts, may have letters, digits, _ - . and slashes, and is not ZooKeeper's own",
        )),
    }
}

const URL: Grammar = Grammar { store: STORE, usage: USAGE, has_schema: false };

const USAGE: &str = "the URL cannot be read: write zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/PATH?timeout=2s, \
    zookeepers:// for TLS, with %-escapes in names and passwords";

const PARAMETERS: &str = "the parameters of a ZooKeeper URL are timeout, ca, cert, key and create";

impl fmt::Display for ZooKeeperSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "zookeepers" } else { "zookeeper" };
        write!(f, "{scheme}://{}{}", hosts::show(&self.servers), self.root)
    }
}

impl fmt::Debug for ZooKeeperSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperSettings").field("servers", &self.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_their_secrets() {
        for (url, expected) in [
            ("zookeeper://localhost", "zookeeper://localhost:2181/tenure"),
            ("zookeeper://u:hunter2@a:1,b,c:3/app/x?timeout=500ms", "zookeeper://a:1,b:2181,c:3/app/x"),
            ("zookeeper://[::1]:7,[::1]/", "zookeeper://[::1]:7,[::1]:2181/tenure"),
            ("zookeeper://h/b?create=false", "zookeeper://h:2181/b"),
        ] {
            let settings = ZooKeeperSettings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{settings:?}").contains("hunter2"));
        }
        let login = ZooKeeperSettings::parse("zookeeper://a%40b:p%3a%25@h").unwrap().login;
        assert_eq!(login.as_deref(), Some("a@b:p:%"));
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("zookeeper:hunter2", "cannot be read"),
            ("zookeeper://u:hunter2@h:x", "cannot be read"),
            ("zookeeper://u:hunter2@h,,g", "cannot be read"),
            ("zookeeper://:hunter2@h", "USER:PASSWORD"),
            ("zookeeper://hunter2@h", "USER:PASSWORD"),
            ("zookeeper://u:hunter2@h/a//b", "path"),
            ("zookeeper://u:hunter2@h/../b", "path"),
            ("zookeeper://u:hunter2@h/zookeeper/x", "path"),
            ("zookeeper://u:hunter2@h?hunter2=1", "parameters of a ZooKeeper URL"),
            ("zookeeper://u:hunter2@h?timeout=0", "50ms"),
            ("zookeeper://u:hunter2@h?ca=/x", "zookeepers://"),
            ("zookeepers://u:hunter2@h?cert=/x", "belong together"),
            ("zookeepers://u:hunter2@h?ca=/does/not/exist", "/does/not/exist"),
        ] {
            let error = ZooKeeperSettings::parse(url).map(drop).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_crosses_a_network_in_clear_is_told() {
        assert!(ZooKeeperSettings::parse("zookeeper://localhost,127.0.0.1").unwrap().warning().is_none());
        assert!(ZooKeeperSettings::parse("zookeeper://localhost,db.example").unwrap().warning().is_some());
    }
}
