//! What a URL says: where the server is, how long to wait for it, and how the connection is protected.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::STORE;
use tenure_store::StoreError;
use tenure_store::kit::params::{Grammar, Params};

/// Where the server is and how to talk to it.
pub(super) struct PostgresSettings {
    config: Config,
    /// None: the connection is not encrypted.
    pub(super) tls: Option<MakeRustlsConnect>,
    /// How long an operation may take, connecting included.
    pub(super) timeout: Duration,
    /// Whether tables that are missing are made.
    pub(super) create: bool,
    /// Hosts and database, for people.
    pub(super) place: String,
    /// Whether every host is this machine.
    pub(super) local: bool,
    /// Where the tables are; if none is named, where the search path of this login leads.
    pub(super) schema: Option<String>,
}

impl PostgresSettings {
    /// Reads a URL. Nothing is connected.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (rest, own) = Params::split(URL, url)?;
        let mut config = Config::from_str(&rest).map_err(|_| URL.unreadable())?;
        if config.get_hosts().is_empty() {
            return Err(URL.refuse("the URL names no host: write postgres://user@host/database"));
        }
        if own.schema.as_ref().is_some_and(|name| name.is_empty() || name.contains('\0')) {
            return Err(URL.refuse("schema= is the name of a schema: write schema=NAME"));
        }
        let tls = own.authorities()?.as_deref().map(verified_by).transpose()?;
        let timeout = own.timeout;
        config
            .ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable })
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(timeout)
            .tcp_user_timeout(2 * timeout)
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(1))
            .keepalives_interval(Duration::from_secs(1))
            .keepalives_retries(3);
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        let place = place(&config);
        // What a connection goes to, if both are given, is the address.
        let local = match config.get_hostaddrs() {
            [] => config.get_hosts().iter().all(is_local),
            addresses => addresses.iter().all(std::net::IpAddr::is_loopback),
        };
        Ok(Self { config, tls, timeout, create: own.create, place, local, schema: own.schema })
    }

    /// What is doubtful about the way to the server.
    pub(super) fn warning(&self) -> Option<&'static str> {
        (self.tls.is_none() && !self.local)
            .then_some(tenure_store::plaintext_warning!("add sslmode=verify-full to the URL"))
    }

    /// How long the server may work on one statement: it gives up before we do, so that nothing which we stopped
    /// waiting for happens later.
    pub(super) fn patience_ms(&self) -> i32 {
        i32::try_from(self.timeout.as_millis() * 3 / 4).unwrap_or(i32::MAX).max(1)
    }

    /// What a connection is opened with. Options are settings of the session that a pooler cannot give.
    pub(super) fn config(&self, with_options: bool) -> Config {
        let mut config = self.config.clone();
        if with_options {
            let given = self.config.get_options().unwrap_or_default();
            config.options(format!("{given} {}", self.options()));
        }
        config
    }

    /// Plans are made once, and never by statistics of a table that changes by the second; the server notices a client
    /// that was silently cut off within seconds.
    fn options(&self) -> String {
        let patience = self.patience_ms();
        format!(
            "-c statement_timeout={patience} -c lock_timeout={patience} -c jit=off -c enable_seqscan=off \
             -c enable_hashjoin=off -c enable_mergejoin=off -c plan_cache_mode=force_generic_plan \
             -c default_transaction_isolation=read\\ committed -c tcp_keepalives_idle=1 \
             -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3"
        )
    }
}

/// Only what is no secret.
impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("place", &self.place)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

const URL: Grammar = Grammar { store: STORE, usage: USAGE, has_schema: true };

const USAGE: &str = "the URL cannot be read: write postgres://user:password@host:port/database?timeout=2s, with \
    %-escapes in names and passwords; known parameters are timeout, create, ca, sslmode, schema, application_name, options and those of \
    the connection itself";

fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(nth, host): (usize, &Host)| {
        let port = ports.get(nth).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    };
    let hosts: Vec<_> = config.get_hosts().iter().enumerate().map(host).collect();
    format!("{}/{}", hosts.join(","), config.get_dbname().or(config.get_user()).unwrap_or_default())
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => tenure_store::kit::plaintext::is_local(name),
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn verified_by(authorities: &Path) -> Result<MakeRustlsConnect, StoreError> {
    Ok(MakeRustlsConnect::new(URL.client_tls(Some(authorities), None)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how_long_and_shows_no_secret() {
        let url =
            "postgres://ann:hunter2@one.example:5433,two.example:5434/app?timeout=500ms&application_name=x";
        let settings = PostgresSettings::parse(url).unwrap();
        assert_eq!(settings.place, "one.example:5433,two.example:5434/app");
        assert_eq!((settings.timeout, settings.patience_ms()), (Duration::from_millis(500), 375));
        assert!(!settings.local && settings.tls.is_none());
        assert!(PostgresSettings::parse("postgresql://ann@127.0.0.1/app").unwrap().local);
        let elsewhere = PostgresSettings::parse("postgres://ann@localhost/app?hostaddr=10.0.0.7").unwrap();
        assert!(elsewhere.warning().is_some(), "what is connected to is the address");
        let config = settings.config(true);
        let probes = "tcp_keepalives_idle=1 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3";
        assert!(config.get_options().is_some_and(|options| options.contains(probes)), "{config:?}");
    }

    #[test]
    fn connections_to_other_hosts_in_clear_are_warned_of() {
        for (url, plain) in [
            ("postgres://u:p@db.example/d", true),
            ("postgres://u:p@127.0.0.1,db.example/d", true),
            ("postgres://u:p@127.0.0.1/d", false),
        ] {
            assert_eq!(PostgresSettings::parse(url).unwrap().warning().is_some(), plain, "{url}");
        }
    }

    #[test]
    fn what_contradicts_itself_or_cannot_be_read_is_refused_without_showing_it() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        for (rest, part) in [
            ("?timeout=never", "timeout=2s"),
            ("?timeout=1h", "timeout=2s"),
            ("?sslmode=prefer", "perhaps encrypted"),
            ("?sslmode=disable&ca=/x", "contradict"),
            ("?ca=/no/such/file", "/no/such/file"),
            (&format!("?ca={}", empty.display()), "no certificate"),
            ("?hunter2=1", "cannot be read"),
            ("?timeout=%zz", "cannot be read"),
        ] {
            let Err(error) = PostgresSettings::parse(&format!("postgres://ann:hunter2@h/app{rest}")) else {
                panic!("{rest} must be refused")
            };
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(part) && !shown.contains("hunter2"), "{rest}: {shown}");
        }
        assert!(PostgresSettings::parse("postgres:///app").is_err(), "no host");
    }
}
