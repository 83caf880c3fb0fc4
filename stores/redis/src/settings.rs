//! Which server a URL names, and how to reach it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use super::{STORE, sentinel};
use tenure_store::kit::{crypto, plaintext};
use tenure_store::{StoreError, trust};

/// How long an operation may take, unless the URL says otherwise.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A server, or the Sentinels that know it, with everything needed to reach it. Never shows a secret.
pub(super) struct RedisSettings {
    /// The server itself, or, with Sentinels, credentials and database of whatever they name.
    info: ConnectionInfo,
    tls: Option<TlsCertificates>,
    pub(super) sentinels: Option<sentinel::Sentinels>,
    pub(super) timeout: Duration,
    /// How many replicas must have a write before it counts.
    pub(super) wait: u32,
    shown: String,
}

/// The parameters that are ours and not of the client library.
#[derive(Default)]
struct Extras {
    timeout: Option<Duration>,
    wait: u32,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    rest: Vec<String>,
}

impl RedisSettings {
    /// Reads `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://` and `rediss+sentinel://`.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        if url.contains('#') {
            return Err(refuse("a Redis URL has nothing after a #: write %23 where a # is meant"));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let extras = Extras::parse(query)?;
        let (base, sentinels) = sentinel::split(base)?;
        let base = base.replacen("valkey", "redis", 1);
        let plain = match extras.rest.is_empty() {
            true => base,
            false => format!("{base}?{}", extras.rest.join("&")),
        };
        let info = plain.as_str().into_connection_info().map_err(|_| unreadable())?;
        let tls = extras.certificates(matches!(info.addr(), ConnectionAddr::TcpTls { .. }))?;
        let shown = match &sentinels {
            Some(sentinels) => format!("redis+sentinel://{sentinels}/{}", info.redis_settings().db()),
            None => shown(info.addr(), info.redis_settings().db()),
        };
        let timeout = extras.timeout.unwrap_or(TIMEOUT);
        let settings = Self { info, tls, sentinels, timeout, wait: extras.wait, shown };
        settings.client_for(None)?;
        Ok(settings)
    }

    /// What is doubtful about the way to the server.
    pub(super) fn warning(&self) -> Option<&'static str> {
        let ConnectionAddr::Tcp(host, _) = self.info.addr() else { return None };
        let local =
            self.sentinels.as_ref().map_or_else(|| plaintext::is_local(host), sentinel::Sentinels::are_local);
        (!local).then_some(tenure_store::plaintext_warning!("write rediss:// instead of redis://"))
    }

    /// A client of the server at that place, or of the one in the URL. Nothing is connected yet.
    pub(super) fn client_for(&self, place: Option<(String, u16)>) -> Result<Client, StoreError> {
        let info = match place {
            Some(place) => self.info.clone().set_addr(moved(self.info.addr(), place)),
            None => self.info.clone(),
        };
        self.build(info)
    }

    /// Where the primary is now, by the Sentinels; nothing if the URL names the server itself. Sentinels are spoken to
    /// with the same encryption as servers, and without credentials.
    pub(super) async fn primary(&self) -> Result<Option<(String, u16)>, StoreError> {
        let Some(sentinels) = &self.sentinels else { return Ok(None) };
        let client = |place| {
            let info = moved(self.info.addr(), place).into_connection_info().map_err(|_| unreadable())?;
            self.build(info)
        };
        sentinels.primary(client, self.timeout).await.map(Some)
    }

    fn build(&self, info: ConnectionInfo) -> Result<Client, StoreError> {
        let client = match (&self.tls, info.addr()) {
            (Some(tls), ConnectionAddr::TcpTls { .. }) => Client::build_with_tls(info, tls.clone()),
            _ => Client::open(info),
        };
        client.map_err(|error| refuse(&format!("the certificates cannot be used: {error}")))
    }
}

/// The same kind of connection to another place.
fn moved(from: &ConnectionAddr, (host, port): (String, u16)) -> ConnectionAddr {
    match from {
        ConnectionAddr::TcpTls { insecure, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

fn shown(address: &ConnectionAddr, db: i64) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}/{db}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}/{db}"),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}?db={db}", path.display()),
        _ => "redis".to_owned(),
    }
}

impl Extras {
    fn parse(query: &str) -> Result<Self, StoreError> {
        let mut extras = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "timeout" => extras.timeout = Some(span(value)?),
                "wait" => extras.wait = replicas(value)?,
                "ca" => extras.ca = Some(value.to_owned()),
                "cert" => extras.cert = Some(value.to_owned()),
                "key" => extras.key = Some(value.to_owned()),
                "db" | "user" | "pass" => extras.rest.push(pair.to_owned()),
                other => {
                    let known = "timeout, wait, ca, cert, key; for sockets db, user, pass";
                    return Err(refuse(&format!("{other:?} is not a parameter of a Redis URL: {known}")));
                }
            }
        }
        Ok(extras)
    }

    /// Half-configured security is an error, never plain text.
    fn certificates(&self, encrypted: bool) -> Result<Option<TlsCertificates>, StoreError> {
        let client_tls = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                let client_key = trust::read_secret(Path::new(key)).map_err(|why| refuse(&why))?;
                Some(ClientTlsConfig { client_cert: file("cert", cert)?, client_key })
            }
            _ => return Err(refuse("cert and key belong together: give both, or neither")),
        };
        let authority = |ca| trust::read(Path::new(ca)).map_err(|why| refuse(&why));
        let root_cert = self.ca.as_ref().map(authority).transpose()?.map(|(pem, _)| pem);
        if !encrypted && (client_tls.is_some() || root_cert.is_some()) {
            return Err(refuse(
                "certificates need an encrypted connection: write rediss:// instead of redis://",
            ));
        }
        if encrypted {
            crypto::provide();
        }
        let any = client_tls.is_some() || root_cert.is_some();
        Ok(any.then_some(TlsCertificates { client_tls, root_cert }))
    }
}

fn span(text: &str) -> Result<Duration, StoreError> {
    match humantime::parse_duration(text) {
        Ok(span) if span >= Duration::from_millis(10) && span <= Duration::from_secs(60) => Ok(span),
        _ => Err(refuse("timeout must be a span from 10ms to 60s, such as timeout=2s")),
    }
}

fn replicas(text: &str) -> Result<u32, StoreError> {
    text.parse().map_err(|_| refuse("wait must be a number of replicas, such as wait=1"))
}

fn file(what: &str, path: &str) -> Result<Vec<u8>, StoreError> {
    let why = |error| refuse(&format!("the file given as {what}= cannot be read: {path}: {error}"));
    std::fs::read(path).map_err(why)
}

fn unreadable() -> StoreError {
    refuse(
        "this is not a Redis URL: write redis://USER:PASSWORD@HOST:PORT/DB, rediss:// for TLS, redis+unix:///PATH, or \
         redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB; %-encode special characters in the password",
    )
}

pub(super) fn refuse(message: &str) -> StoreError {
    StoreError::not_applied(STORE, message).permanent()
}

impl fmt::Display for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").field("server", &self.shown).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_their_secrets() {
        for (url, expected) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://u:hunter2@h:7000/3?timeout=500ms&wait=1", "redis://h:7000/3"),
            ("valkey://:hunter2@h", "redis://h:6379/0"),
            ("rediss://:hunter2@h:7000", "rediss://h:7000/0"),
            ("redis+unix:///run/r.sock?db=2&pass=hunter2", "redis+unix:///run/r.sock?db=2"),
            ("redis+sentinel://:hunter2@a:1,b/main/3", "redis+sentinel://a:1,b:26379/main/3"),
        ] {
            let settings = RedisSettings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{settings:?}").contains("hunter2"));
        }
    }

    #[test]
    fn connections_to_other_hosts_in_clear_are_warned_of() {
        for (url, plain) in [
            ("redis://:p@cache.example", true),
            ("redis://:p@localhost", false),
            ("redis+sentinel://:p@127.0.0.1:1,10.0.0.1:1/main", true),
            ("redis+sentinel://127.0.0.1:1/main", false),
            ("rediss://:p@cache.example", false),
            ("redis+unix:///run/redis.sock", false),
        ] {
            assert_eq!(RedisSettings::parse(url).unwrap().warning().is_some(), plain, "{url}");
        }
    }

    #[test]
    fn certificates_that_others_can_change_and_keys_that_they_can_read_are_rejected() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, mode| {
            let file = dir.path().join(name);
            std::fs::write(&file, "x").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            file.display().to_string()
        };
        let (sound, exposed, open) = (at("sound", 0o600), at("exposed", 0o644), at("open", 0o666));
        for (query, part) in [
            (format!("ca={open}"), "every user"),
            (format!("cert={sound}&key={exposed}"), "chmod 600"),
            (format!("cert={sound}&key={open}"), "every user"),
        ] {
            let message = RedisSettings::parse(&format!("rediss://h?{query}")).expect_err(&query).to_string();
            assert!(message.contains(part), "{query}: {message}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("redis://:hunter2@h:x/0", "not a Redis URL"),
            ("redis://:hunter2@h/zero", "not a Redis URL"),
            ("redis://:hunter2@h?timeuot=1s", "timeuot"),
            ("redis://:hunter2@h?timeout=0", "10ms"),
            ("redis://:hunter2@h?wait=many", "number of replicas"),
            ("redis://:hunter2@h?ca=/etc/hostname", "rediss://"),
            ("rediss://:hunter2@h?ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("rediss://:hunter2@h?cert=/etc/hostname", "belong together"),
            ("rediss://:hunter2@h#insecure", "after a #"),
            ("redis+sentinel://:hunter2@h:1", "name of the primary"),
        ] {
            let message = RedisSettings::parse(url).expect_err(url).to_string();
            assert!(message.contains(part), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
