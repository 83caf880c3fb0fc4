//! What a URL says: which members to ask, as whom, under which prefix, and how the connection is protected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::STORE;
use tenure_store::StoreError;
use tenure_store::kit::hosts::{self, UrlParts};
use tenure_store::kit::http::Endpoint;
use tenure_store::kit::params::{Grammar, TIMEOUT, TlsFiles};

const PORT: u16 = 2379;

/// What every key begins with, if the URL does not say.
pub(super) const PREFIX: &str = "tenure";

/// The members, and everything needed to ask them. Never shows a secret.
pub(super) struct EtcdSettings {
    /// Host and port of each member that the URL names.
    members: Vec<(String, u16)>,
    tls: Option<Arc<ClientConfig>>,
    pub(super) login: Option<Login>,
    /// What every key begins with, without a slash at its end.
    pub(super) prefix: String,
    /// How long an operation may take, connecting included.
    pub(super) timeout: Duration,
}

/// As whom the members are asked.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

/// The parameters of a URL.
#[derive(Default)]
struct Parameters {
    timeout: Option<Duration>,
    files: TlsFiles,
}

impl EtcdSettings {
    /// Reads `etcd://` and `etcds://`. Nothing is connected.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let parts = UrlParts::of(url).ok_or_else(|| URL.unreadable())?;
        let login = parts.login.map(Login::parse).transpose()?;
        let parameters = Parameters::parse(parts.query)?;
        let tls =
            parameters.files.client(URL, parts.scheme == "etcds", "write etcds:// instead of etcd://")?;
        let members = hosts::parse(parts.hosts, PORT).ok_or_else(|| URL.unreadable())?;
        let timeout = parameters.timeout.unwrap_or(TIMEOUT);
        let settings = Self { members, tls, login, prefix: prefix(parts.path)?, timeout };
        settings.endpoints()?;
        Ok(settings)
    }

    /// The members, to be asked.
    pub(super) fn endpoints(&self) -> Result<Vec<Endpoint>, StoreError> {
        let endpoint = |(host, port): &(String, u16)| {
            let cannot = || URL.refuse(format!("no certificate can name the host {host:?}"));
            Endpoint::new(host, *port, self.tls.clone()).ok_or_else(cannot)
        };
        self.members.iter().map(endpoint).collect()
    }

    /// What is doubtful about the way to the members.
    pub(super) fn warning(&self) -> Option<&'static str> {
        (self.tls.is_none() && !hosts::are_local(&self.members))
            .then_some(tenure_store::plaintext_warning!("write etcds:// instead of etcd://"))
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// How long a member is waited for before the others are asked first.
    pub(super) fn suspicion(&self) -> Duration {
        self.timeout / 4
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, StoreError> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let (user, password) = (URL.unescape(user)?, URL.unescape(password)?);
        if user.is_empty() || password.is_empty() {
            return Err(
                URL.refuse("a user of etcd has a name and a password: write etcd://USER:PASSWORD@HOST")
            );
        }
        Ok(Self { user, password })
    }
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for (name, value) in hosts::parameters(query) {
            match name {
                "timeout" => found.timeout = Some(URL.timeout(value)?),
                _ if found.files.take(URL, name, value)? => {}
                _ => {
                    return Err(URL.refuse("the parameters of an etcd URL are timeout, ca, cert and key"));
                }
            }
        }
        Ok(found)
    }
}

/// Keys are for people too: what needs quoting in a shell is refused.
fn prefix(path: &str) -> Result<String, StoreError> {
    let path = path.trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    match path {
        "" => Ok(PREFIX.to_owned()),
        _ if path.chars().all(plain) => Ok(path.to_owned()),
        _ => {
            Err(URL.refuse("the prefix of the keys, after the hosts, may have letters, digits, and . _ - /"))
        }
    }
}

pub(super) const URL: Grammar = Grammar { store: STORE, usage: USAGE, has_schema: false };

const USAGE: &str = "the URL cannot be read: write etcd://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/PREFIX?timeout=2s, \
    etcds:// for TLS, with %-escapes in names and passwords";

impl fmt::Display for EtcdSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", hosts::show(&self.members), self.prefix)
    }
}

impl fmt::Debug for EtcdSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSettings").field("members", &self.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_their_secrets() {
        for (url, expected) in [
            ("etcd://localhost", "etcd://localhost:2379/tenure"),
            ("etcd://u:hunter2@a:1,b,c:3/app/x?timeout=500ms", "etcd://a:1,b:2379,c:3/app/x"),
            ("etcd://[::1]:7,[::1]/", "etcd://[::1]:7,[::1]:2379/tenure"),
            ("etcd://h//registry/tenure/", "etcd://h:2379//registry/tenure"),
        ] {
            let settings = EtcdSettings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{settings:?}").contains("hunter2"));
        }
        let login = EtcdSettings::parse("etcd://a%40b:p%3a%25@h").unwrap().login.unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("a@b", "p:%"));
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("etcd:hunter2", "cannot be read"),
            ("etcd://u:hunter2@h:x", "cannot be read"),
            ("etcd://u:hunter2@h,,g", "cannot be read"),
            ("etcd://hunter2@h", "USER:PASSWORD"),
            ("etcd://u:hunter2@h/a b", "prefix"),
            ("etcd://u:hunter2@h?hunter2=1", "timeout, ca, cert and key"),
            ("etcd://u:hunter2@h?timeout=0", "50ms"),
            ("etcd://u:hunter2@h?ca=/etc/hostname", "etcds://"),
            ("etcds://u:hunter2@h?ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("etcds://u:hunter2@h?cert=/etc/hostname", "belong together"),
        ] {
            let message = EtcdSettings::parse(url).expect_err(url).to_string();
            assert!(message.contains(part), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn what_goes_over_a_network_in_clear_is_told() {
        for (url, plain) in
            [("etcd://localhost,127.0.0.1:1,[::1]:2", false), ("etcd://127.0.0.1,db.example", true)]
        {
            assert_eq!(EtcdSettings::parse(url).unwrap().warning().is_some(), plain, "{url}");
        }
    }
}
