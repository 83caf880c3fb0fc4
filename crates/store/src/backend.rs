//! Stores by name: what a registry has to know of a kind of store.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::{Name, SharedStore, Store, StoreError};

/// A kind of store, as people name it in URLs. Everything that differs between kinds and can be told without connecting
/// is here, so that tools ask the registry and name no store.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Backend {
    /// What it is called in messages and on the command line.
    pub name: &'static str,
    /// The products that it is for, for people.
    pub product: &'static str,
    /// The schemes of its URLs.
    pub schemes: &'static [&'static str],
    /// How its URLs look, for messages.
    pub usage: &'static str,
    /// Whether its registers are those of one process, so that no other process can take part.
    pub in_process: bool,
    /// Whether the product itself tells others of changes; otherwise the store has to wake them, which takes longer.
    pub native_notifications: bool,
    /// What has to be set up, or can be looked at, before nodes with few rights take part; none if there is nothing.
    pub setup: Option<fn(request: &SetupRequest<'_>) -> String>,
    /// Where its URLs name the servers; none where no proxy can stand before them.
    pub servers: Option<ServersInUrl>,
    /// Reads a URL with one of its schemes, without connecting to anything and without making a file. No message may show
    /// more of the URL than its scheme: the rest may hold a secret.
    pub read: ReadUrl,
}

/// How a store reads its URLs: see [`Backend::read`].
pub type ReadUrl = fn(url: &str, mode: OpenMode) -> Result<Opening, StoreError>;

/// Where URLs name the servers whose connections are not encrypted, for tools that put a proxy before each server.
#[derive(Debug, Clone, Copy)]
pub struct ServersInUrl {
    schemes: &'static [&'static str],
    after: Option<&'static str>,
    port: u16,
    several: bool,
}

impl ServersInUrl {
    /// One server, named as in `SCHEME://USER@HOST:PORT/…`. The port is that of a server which is named without one.
    #[must_use]
    pub const fn one(schemes: &'static [&'static str], port: u16) -> Self {
        Self { schemes, after: None, port, several: false }
    }

    /// Several servers between commas, of which none tells clients the addresses of others.
    #[must_use]
    pub const fn several(schemes: &'static [&'static str], port: u16) -> Self {
        Self { several: true, ..Self::one(schemes, port) }
    }

    /// Several servers in a parameter, of which these are the words before the first server.
    #[must_use]
    pub const fn after(self, words: &'static str) -> Self {
        Self { after: Some(words), ..self }
    }

    /// The port of a server that is named without one.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The part of a URL that names the servers; none if it names none, or if its connections are encrypted.
    #[must_use]
    pub fn find(&self, url: &str) -> Option<Range<usize>> {
        let (scheme, rest) = url.split_once(':').filter(|(scheme, _)| self.schemes.contains(scheme))?;
        if let Some(words) = self.after {
            let begin = url.find(words)? + words.len();
            let length = url[begin..].find(['/', '&']).unwrap_or(url.len() - begin);
            return Some(begin..begin + length);
        }
        let rest = rest.strip_prefix("//")?;
        let encrypts = ["sslmode=require", "sslmode=verify", "ssl-mode=", "tls=", "ca="];
        let authority = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
        if encrypts.iter().any(|word| rest.contains(word)) || (!self.several && authority.contains(',')) {
            return None;
        }
        let host = authority.rfind('@').map_or(0, |at| at + 1);
        let begin = scheme.len() + "://".len();
        (host < authority.len()).then(|| begin + host..begin + authority.len())
    }
}

/// For whom [`Backend::setup`] is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SetupRequest<'a> {
    /// The login of the nodes, which gets the least rights.
    pub user: &'a Name,
    /// The namespace in examples of how to look into the store.
    pub namespace: &'a Name,
}

impl<'a> SetupRequest<'a> {
    /// For a login, with examples for a namespace.
    #[must_use]
    pub const fn new(user: &'a Name, namespace: &'a Name) -> Self {
        Self { user, namespace }
    }
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenMode {
    /// By a node, which may become a part of the store.
    Node,
    /// By a client that reads and writes, and never becomes a part of the store; what is missing is made.
    Client,
    /// By a client that creates nothing: a store that no node has used yet is an error.
    ReadOnly,
}

/// A URL that was read and found well.
#[non_exhaustive]
#[expect(missing_debug_implementations, reason = "a closure has none")]
pub struct Opening {
    /// Opens the store.
    pub open: Box<dyn FnOnce() -> Result<SharedStore, StoreError> + Send>,
    /// What is doubtful about the URL all the same, with what to do.
    pub warning: Option<&'static str>,
    /// The ttl of nodes that name none, if it is not the usual one.
    pub ttl: Option<Duration>,
    /// What the requests of a node with that beat cost, for stores whose requests have a price.
    pub cost: Option<fn(beat: Duration) -> String>,
    /// Variables of the environment from which the store takes secrets: commands that a node runs do not inherit them.
    pub secret_variables: &'static [&'static str],
}

impl Opening {
    /// One without a doubt.
    pub fn new(open: impl FnOnce() -> Result<SharedStore, StoreError> + Send + 'static) -> Self {
        Self { open: Box::new(open), warning: None, ttl: None, cost: None, secret_variables: &[] }
    }

    /// The same, where nodes that name no ttl get that one.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// The same, where requests have a price.
    #[must_use]
    pub fn with_cost(self, cost: fn(beat: Duration) -> String) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// The same, where the store takes secrets from these variables of the environment.
    #[must_use]
    pub fn with_secret_variables(self, secret_variables: &'static [&'static str]) -> Self {
        Self { secret_variables, ..self }
    }

    /// A URL that `check` finds well, for a store that `open` opens.
    ///
    /// # Errors
    /// What `check` says.
    pub fn checked<S: Store>(
        url: &str,
        check: fn(url: &str) -> Result<Option<&'static str>, StoreError>,
        open: fn(url: &str) -> Result<S, StoreError>,
    ) -> Result<Self, StoreError> {
        let (warning, url) = (check(url)?, url.to_owned());
        Ok(Self { warning, ..Self::new(move || Ok(Arc::new(open(&url)?))) })
    }

    /// The same for a server on which tables are made when they are missing, unless the store is only looked at.
    ///
    /// # Errors
    /// What `check` says.
    pub fn with_tables<S: Store>(
        url: &str,
        mode: OpenMode,
        check: fn(url: &str) -> Result<Option<&'static str>, StoreError>,
        open: fn(url: &str) -> Result<S, StoreError>,
    ) -> Result<Self, StoreError> {
        match mode {
            OpenMode::ReadOnly => Self::checked(&Backend::add_parameter(url, "create=false"), check, open),
            OpenMode::Node | OpenMode::Client => Self::checked(url, check, open),
        }
    }
}

impl Backend {
    /// A kind of store on servers of a product that notifies by itself. What differs is said by the methods below.
    #[must_use]
    pub const fn new(
        name: &'static str,
        product: &'static str,
        schemes: &'static [&'static str],
        usage: &'static str,
        read: ReadUrl,
    ) -> Self {
        let (in_process, native_notifications) = (false, true);
        Self {
            name,
            product,
            schemes,
            usage,
            in_process,
            native_notifications,
            setup: None,
            servers: None,
            read,
        }
    }

    /// The same, with registers of one process.
    #[must_use]
    pub const fn in_process(self) -> Self {
        Self { in_process: true, ..self }
    }

    /// The same, of a product that does not tell others of changes.
    #[must_use]
    pub const fn without_native_notifications(self) -> Self {
        Self { native_notifications: false, ..self }
    }

    /// The same, with something to set up.
    #[must_use]
    pub const fn with_setup(self, setup: fn(request: &SetupRequest<'_>) -> String) -> Self {
        Self { setup: Some(setup), ..self }
    }

    /// The same, with servers before which a proxy can stand.
    #[must_use]
    pub const fn with_servers(self, servers: ServersInUrl) -> Self {
        Self { servers: Some(servers), ..self }
    }

    /// The URL with one more parameter. Of a parameter that is named twice, the last counts.
    #[must_use]
    pub fn add_parameter(url: &str, parameter: &str) -> String {
        let joint = if url.contains('?') { '&' } else { '?' };
        format!("{url}{joint}{parameter}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_where_a_proxy_can_stand_before_them() {
        let one = ServersInUrl::one(&["one", "uno"], 7);
        let several = ServersInUrl::several(&["many"], 8);
        let named = ServersInUrl::several(&["named"], 9).after("endpoint=http://");
        for (servers, url, found) in [
            (one, "one://127.0.0.1:7000/0", Some("127.0.0.1:7000")),
            (one, "uno://user:p@ss@db:5432/app?x=1", Some("db:5432")),
            (one, "one://[::1]:7000", Some("[::1]:7000")),
            (one, "one://root@localhost/app", Some("localhost")),
            (one, "one://a:1,b:2/x", None),
            (one, "one://db/x?sslmode=verify-full", None),
            (one, "one:///x", None),
            (one, "ones://db:1", None),
            (one, "one+sentinel://a:1/main", None),
            (several, "many://u:p@a:1,b:2,c:3/x", Some("a:1,b:2,c:3")),
            (several, "many://a:1?ca=/x", None),
            (named, "named:x?endpoint=http://a:1,b:2&y=z", Some("a:1,b:2")),
            (named, "named://k:s@b/x?endpoint=http://a:1/y", Some("a:1")),
            (named, "named://k:s@b/x?endpoint=https://a:1", None),
            (named, "named:x", None),
        ] {
            assert_eq!(servers.find(url).map(|place| &url[place]), found, "{url}");
        }
    }
}
