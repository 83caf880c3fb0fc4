//! What a URL says: which servers to ask, as whom, which bucket, and how the connection is protected.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::STORE;
use super::credentials::{Signer, read_creds};
use tenure_store::kit::hosts::{self, UrlParts};
use tenure_store::kit::params::{Grammar, TIMEOUT, TlsFiles};
use tenure_store::{StoreError, trust};

const PORT: u16 = 4222;

/// The bucket, if the URL does not say.
pub(super) const BUCKET: &str = "tenure";

/// The servers, and everything needed to ask them. Never shows a secret.
pub(super) struct NatsSettings {
    /// Host and port of each server that the URL names.
    pub(super) servers: Vec<(String, u16)>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) login: Login,
    pub(super) bucket: String,
    /// How long an operation may take, connecting included.
    pub(super) timeout: Duration,
    /// How many copies a bucket gets that is made; as many as make sense if the URL does not say.
    pub(super) replicas: Option<u8>,
    /// Whether the operator says that every server writes to its disk before it acknowledges.
    pub(super) syncs: bool,
    /// Whether a bucket that is missing is made.
    pub(super) create: bool,
}

/// As whom the servers are asked.
pub(super) enum Login {
    None,
    Password { user: String, password: String },
    Token(String),
    Key(Signer),
    Credentials { jwt: String, signer: Signer },
}

/// The parameters of a URL.
#[derive(Default)]
struct Parameters {
    timeout: Option<Duration>,
    files: TlsFiles,
    creds: Option<String>,
    nkey: Option<String>,
    replicas: Option<u8>,
    syncs: bool,
    keep: bool,
}

impl NatsSettings {
    /// Reads `nats://`, `tls://` and `nats+tls://`. Nothing is connected.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let parts = UrlParts::of(url).ok_or_else(|| URL.unreadable())?;
        let login = parts.login.map_or(Ok(Login::None), Login::parse)?;
        let parameters = Parameters::parse(parts.query)?;
        Ok(Self {
            servers: hosts::parse(parts.hosts, PORT).ok_or_else(|| URL.unreadable())?,
            tls: parameters.files.client(URL, parts.scheme != "nats", "write tls:// instead of nats://")?,
            login: parameters.login(login)?,
            bucket: bucket(parts.path)?,
            timeout: parameters.timeout.unwrap_or(TIMEOUT),
            replicas: parameters.replicas,
            syncs: parameters.syncs,
            create: !parameters.keep,
        })
    }

    /// What is doubtful about the way to the servers.
    pub(super) fn warning(&self) -> Option<&'static str> {
        (self.tls.is_none() && !hosts::are_local(&self.servers))
            .then_some(tenure_store::plaintext_warning!("write tls:// instead of nats://"))
    }

    /// How long an answer is waited for before it is asked whether the server is there at all.
    pub(super) fn suspicion(&self) -> Duration {
        self.timeout / 4
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, StoreError> {
        match text.split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Ok(Self::Password { user: URL.unescape(user)?, password: URL.unescape(password)? })
            }
            None if !text.is_empty() => Ok(Self::Token(URL.unescape(text)?)),
            _ => Err(URL.refuse("a login is USER:PASSWORD@HOST, or TOKEN@HOST")),
        }
    }
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for (name, value) in hosts::parameters(query) {
            match (name, value) {
                ("timeout", _) => found.timeout = Some(URL.timeout(value)?),
                _ if found.files.take(URL, name, value)? => {}
                ("creds", _) => found.creds = Some(URL.unescape(value)?),
                ("nkey", _) => found.nkey = Some(URL.unescape(value)?),
                ("replicas", "1" | "3" | "5") => found.replicas = value.parse().ok(),
                ("replicas", _) => return Err(URL.refuse("replicas is 1, 3 or 5")),
                ("sync", "always") => found.syncs = true,
                ("sync", _) => {
                    return Err(URL.refuse("sync=always says that every server has `sync_interval: always`"));
                }
                ("create", "true" | "false") => found.keep = value == "false",
                ("create", _) => return Err(URL.refuse("create is true or false")),
                _ => return Err(URL.refuse(PARAMETERS)),
            }
        }
        Ok(found)
    }

    /// A file with a key, or with credentials, instead of what stands before the hosts.
    fn login(&self, named: Login) -> Result<Login, StoreError> {
        let read = |what: &str, path: &str| {
            let bytes = trust::read_secret(Path::new(path))
                .map_err(|why| URL.refuse(format!("cannot use the file given as {what}=: {why}")))?;
            String::from_utf8(bytes).map_err(|_| URL.refuse(format!("the file given as {what}= is no text")))
        };
        let bad = |what: &'static str| {
            move |why| URL.refuse(format!("the file given as {what}= cannot be used: {why}"))
        };
        match (&self.creds, &self.nkey, named) {
            (None, None, named) => Ok(named),
            (Some(path), None, Login::None) => {
                let (jwt, signer) = read_creds(&read("creds", path)?).map_err(bad("creds"))?;
                Ok(Login::Credentials { jwt, signer })
            }
            (None, Some(path), Login::None) => {
                Ok(Login::Key(Signer::from_seed(&read("nkey", path)?).map_err(bad("nkey"))?))
            }
            _ => Err(URL.refuse(
                "one login is enough: leave all but one out of creds=, nkey= and what stands before @",
            )),
        }
    }
}

fn bucket(path: &str) -> Result<String, StoreError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match path.trim_end_matches('/') {
        "" => Ok(BUCKET.to_owned()),
        name if name.chars().all(plain) => Ok(name.to_owned()),
        _ => Err(URL.refuse("the bucket, after the hosts, may have letters, digits, and _ -")),
    }
}

const URL: Grammar = Grammar { store: STORE, usage: USAGE, has_schema: false };

const USAGE: &str = "the URL cannot be read: write nats://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/BUCKET?timeout=2s, \
    tls:// for TLS, with %-escapes in names and passwords";

const PARAMETERS: &str =
    "the parameters of a NATS URL are timeout, creds, nkey, ca, cert, key, replicas, sync and create";

impl fmt::Display for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "tls" } else { "nats" };
        write!(f, "{scheme}://{}/{}", hosts::show(&self.servers), self.bucket)
    }
}

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSettings").field("servers", &self.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_their_secrets() {
        for (url, expected) in [
            ("nats://localhost", "nats://localhost:4222/tenure"),
            ("nats://u:hunter2@a:1,b,c:3/app?timeout=500ms", "nats://a:1,b:4222,c:3/app"),
            ("nats://hunter2@[::1]:7,[::1]/", "nats://[::1]:7,[::1]:4222/tenure"),
            ("nats://h/b?replicas=3&sync=always&create=false", "nats://h:4222/b"),
        ] {
            let settings = NatsSettings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{settings:?}").contains("hunter2"));
        }
        let login = NatsSettings::parse("nats://a%40b:p%3a%25@h").unwrap().login;
        assert!(matches!(login, Login::Password { user, password } if user == "a@b" && password == "p:%"));
        assert!(
            matches!(NatsSettings::parse("nats://t@h").unwrap().login, Login::Token(token) if token == "t")
        );
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("nats:hunter2", "cannot be read"),
            ("nats://u:hunter2@h:x", "cannot be read"),
            ("nats://u:hunter2@h,,g", "cannot be read"),
            ("nats://:hunter2@h", "TOKEN@HOST"),
            ("nats://u:hunter2@h/a.b", "bucket"),
            ("nats://u:hunter2@h?hunter2=1", "parameters of a NATS URL"),
            ("nats://u:hunter2@h?timeout=0", "50ms"),
            ("nats://u:hunter2@h?replicas=2", "1, 3 or 5"),
            ("nats://u:hunter2@h?sync=never", "sync_interval"),
            ("nats://u:hunter2@h?ca=/x", "tls://"),
            ("tls://u:hunter2@h?cert=/x", "belong together"),
            ("tls://u:hunter2@h?ca=/does/not/exist", "/does/not/exist"),
            ("nats://u:hunter2@h?creds=/x", "one login"),
            ("nats://h?nkey=/does/not/exist", "/does/not/exist"),
        ] {
            let error = NatsSettings::parse(url).map(drop).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_crosses_a_network_in_clear_is_told() {
        assert!(NatsSettings::parse("nats://localhost,127.0.0.1").unwrap().warning().is_none());
        assert!(NatsSettings::parse("nats://localhost,db.example").unwrap().warning().is_some());
    }
}
