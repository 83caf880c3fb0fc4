//! What a URL says: where the server is, how long to wait for it, and how the connection is protected.

use std::fmt;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};

use super::STORE;
use tenure_store::StoreError;
use tenure_store::kit::params::{Grammar, Params};
use tenure_store::kit::{crypto, plaintext};

const URL: Grammar = Grammar { store: STORE, usage: USAGE, has_schema: false };

const USAGE: &str = "the URL cannot be read: write mysql://user:password@host:port/database?timeout=2s, with %-escapes in \
    names and passwords; known parameters are timeout, create, ca, sslmode, socket and client_found_rows";

/// The parameters of the client library that make sense here. Those about encryption do not: ours rule.
const FOREIGN: [&str; 2] = ["socket", "client_found_rows"];

/// Where the server is and how to talk to it.
pub(super) struct MysqlSettings {
    opts: Opts,
    pub(super) encrypted: bool,
    /// How long an operation may take, connecting included.
    pub(super) timeout: Duration,
    /// Whether tables that are missing are made.
    pub(super) create: bool,
    /// Host and database, for people.
    pub(super) place: String,
    /// Whether the host is this machine.
    pub(super) local: bool,
}

impl MysqlSettings {
    /// Reads a URL. Nothing is connected.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (rest, own) = Params::split(URL, url)?;
        let opts = Opts::from_url(&readable(&rest)?).map_err(|_| URL.unreadable())?;
        let Some(database) = opts.db_name().map(str::to_owned).filter(|name| !name.is_empty()) else {
            return Err(URL.refuse("the URL names no database: write mysql://user@host/database"));
        };
        let authorities = own.authorities()?;
        if let Some(file) = &authorities {
            URL.roots(file)?;
            crypto::provide();
        }
        let (encrypted, local) =
            (authorities.is_some(), opts.socket().is_some() || plaintext::is_local(opts.ip_or_hostname()));
        let place = match opts.socket() {
            Some(socket) => format!("{socket}/{database}"),
            None => format!("{}:{}/{database}", opts.ip_or_hostname(), opts.tcp_port()),
        };
        let tls = authorities.map(|file| {
            SslOpts::default().with_root_certs(vec![file.into()]).with_disable_built_in_roots(true)
        });
        let keepalive = Some(Duration::from_secs(5));
        let opts = OptsBuilder::from_opts(opts).ssl_opts(tls).prefer_socket(false).tcp_keepalive(keepalive);
        Ok(Self { opts: opts.into(), encrypted, timeout: own.timeout, create: own.create, place, local })
    }

    /// What is doubtful about the way to the server.
    pub(super) fn warning(&self) -> Option<&'static str> {
        (!self.encrypted && !self.local)
            .then_some(tenure_store::plaintext_warning!("add sslmode=verify-full to the URL"))
    }

    /// What a connection is opened with.
    pub(super) fn opts(&self) -> Opts {
        self.opts.clone()
    }

    /// How long the server may work on one statement: it gives up before we do, so that nothing which we stopped
    /// waiting for happens later.
    pub(super) fn patience(&self) -> Duration {
        self.timeout * 3 / 4
    }
}

/// A URL of the client library, with nothing in it that it would take for its own.
fn readable(url: &str) -> Result<String, StoreError> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| URL.unreadable())?;
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let known = |pair: &str| FOREIGN.contains(&pair.split('=').next().unwrap_or_default());
    let fits = matches!(scheme, "mysql" | "mariadb") && query.split('&').all(|p| p.is_empty() || known(p));
    if fits { Ok(format!("mysql://{rest}")) } else { Err(URL.unreadable()) }
}

impl fmt::Debug for MysqlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlSettings").field("place", &self.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how_long_and_shows_no_secret() {
        let settings =
            MysqlSettings::parse("mariadb://ann:hunter2@db.example:3307/app?timeout=400ms").unwrap();
        assert_eq!(settings.place, "db.example:3307/app");
        assert_eq!(settings.timeout, Duration::from_millis(400));
        assert_eq!(settings.patience(), Duration::from_millis(300));
        assert!(!settings.local && !settings.encrypted);
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert!(MysqlSettings::parse("mysql://ann@127.0.0.1/app").unwrap().local);
    }

    #[test]
    fn connections_to_other_hosts_in_clear_are_warned_of() {
        for (url, plain) in [("mysql://u:p@10.0.0.1/d", true), ("mysql://u:p@localhost/d", false)] {
            assert_eq!(MysqlSettings::parse(url).unwrap().warning().is_some(), plain, "{url}");
        }
    }

    #[test]
    fn what_contradicts_itself_or_cannot_be_read_is_refused_without_showing_it() {
        for (rest, part) in [
            ("/app?timeout=never", "timeout=2s"),
            ("/app?sslmode=prefer", "perhaps encrypted"),
            ("/app?sslmode=disable&ca=/x", "contradict"),
            ("/app?ca=/no/such/file", "/no/such/file"),
            ("/app?require_ssl=true", "cannot be read"),
            ("/app?hunter2=1", "cannot be read"),
            ("/", "names no database"),
            ("", "names no database"),
        ] {
            let Err(error) = MysqlSettings::parse(&format!("mysql://ann:hunter2@h{rest}")) else {
                panic!("{rest} must be refused")
            };
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(part) && !shown.contains("hunter2"), "{rest}: {shown}");
        }
    }
}
