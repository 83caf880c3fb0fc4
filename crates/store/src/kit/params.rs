//! The parameters of a server's URL that are ours and not of the client library: how long to wait for it, and how the
//! connection is protected.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::{StoreError, trust};

/// How long an operation may take if the URL does not say.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// How long one renewal of a guard lock counts if the URL does not say: client-go's default.
const GUARD_TTL: Duration = Duration::from_secs(15);

/// Where systems keep the authorities that they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What a kind of store says when its URL cannot be read. Nothing that it says shows the URL.
#[derive(Debug, Clone, Copy)]
pub struct Grammar {
    /// For messages.
    pub store: &'static str,
    /// How a URL looks.
    pub usage: &'static str,
    /// Whether tables are in schemas.
    pub has_schema: bool,
}

/// The parameters that are ours.
#[derive(Debug)]
pub struct Params {
    grammar: Grammar,
    /// How long an operation may take.
    pub timeout: Duration,
    /// The schema of the tables.
    pub schema: Option<String>,
    /// Whether tables that are missing are made.
    pub create: bool,
    ca: Option<String>,
    mode: Option<String>,
}

/// The files that a URL names for an encrypted connection: `ca`, `cert` and `key`.
#[derive(Debug, Default)]
pub struct TlsFiles {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl TlsFiles {
    /// Takes a parameter of a URL, if it names one of the files.
    pub fn take(&mut self, grammar: Grammar, name: &str, value: &str) -> Result<bool, StoreError> {
        let file = match name {
            "ca" => &mut self.ca,
            "cert" => &mut self.cert,
            "key" => &mut self.key,
            _ => return Ok(false),
        };
        *file = Some(grammar.unescape(value)?);
        Ok(true)
    }

    /// How a client encrypts its connection, if it is to. Half-configured security is an error, never plain text: `instead` says
    /// what to write so that the connection is encrypted.
    pub fn client(
        &self,
        grammar: Grammar,
        encrypted: bool,
        instead: &str,
    ) -> Result<Option<Arc<ClientConfig>>, StoreError> {
        let identity = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.as_str(), key.as_str())),
            _ => return Err(grammar.refuse("cert and key belong together: give both, or neither")),
        };
        match encrypted {
            true => {
                let authorities = self.ca.as_deref().map(Path::new);
                grammar.client_tls(authorities, identity).map(|config| Some(Arc::new(config)))
            }
            false if self.ca.is_some() || identity.is_some() => {
                Err(grammar.refuse(format!("certificates need an encrypted connection: {instead}")))
            }
            false => Ok(None),
        }
    }
}

/// Certificates, or a key, in PEM form.
pub struct Pem {
    /// The text.
    pub bytes: Vec<u8>,
    /// Where it was read, for messages.
    pub shown: String,
}

/// It may hold a key.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Params {
    /// Takes ours out of a URL; gives the URL without them.
    pub fn split(grammar: Grammar, url: &str) -> Result<(String, Self), StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own = Self { grammar, timeout: TIMEOUT, create: true, schema: None, ca: None, mode: None };
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "timeout" => own.timeout = grammar.timeout(value)?,
                "create" => {
                    own.create = value.parse().map_err(|_| grammar.refuse("create is true or false"))?
                }
                "ca" | "sslrootcert" => own.ca = Some(grammar.unescape(value)?),
                "schema" if grammar.has_schema => own.schema = Some(grammar.unescape(value)?),
                "sslmode" => own.mode = Some(grammar.unescape(value)?),
                _ => rest.push(pair),
            }
        }
        let base = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        Ok((base, own))
    }

    /// The file with the authorities that vouch for the server: encrypted and verified, or not at all, never one that
    /// falls back to the other.
    pub fn authorities(&self) -> Result<Option<PathBuf>, StoreError> {
        let grammar = self.grammar;
        match (self.mode.as_deref(), &self.ca) {
            (None | Some("disable"), None) => Ok(None),
            (Some("disable"), Some(_)) => {
                Err(grammar.refuse("sslmode=disable and ca= contradict each other: leave one of them out"))
            }
            (None | Some("require" | "verify-ca" | "verify-full"), Some(ca)) => Ok(Some(ca.into())),
            (Some("require" | "verify-ca" | "verify-full"), None) => grammar.system_authorities().map(Some),
            (Some(_), _) => Err(grammar.refuse(
                "sslmode must be disable, or verify-full (require and verify-ca mean the same here): a connection that \
                 is only perhaps encrypted protects nothing",
            )),
        }
    }
}

impl Grammar {
    /// A URL that cannot be read.
    #[must_use]
    pub fn unreadable(self) -> StoreError {
        self.refuse(self.usage)
    }

    /// Something that a person has to change in the URL.
    pub fn refuse(self, message: impl Into<String>) -> StoreError {
        StoreError::not_applied(self.store, message).permanent()
    }

    /// The authorities in a file, which decides whom this process believes.
    pub fn roots(self, file: &Path) -> Result<RootCertStore, StoreError> {
        self.roots_of(&self.pem(file)?)
    }

    fn roots_of(self, pem: &Pem) -> Result<RootCertStore, StoreError> {
        let shown = &pem.shown;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem.bytes) {
            let certificate = certificate.map_err(|error| self.no_authorities(shown, &error))?;
            roots.add(certificate).map_err(|error| self.no_authorities(shown, &error))?;
        }
        if roots.is_empty() {
            return Err(self.refuse(format!("{shown} holds no certificate in PEM form")));
        }
        Ok(roots)
    }

    fn no_authorities(self, shown: impl std::fmt::Display, error: &dyn std::fmt::Display) -> StoreError {
        self.refuse(format!("cannot read the authorities in {shown}: {error}"))
    }

    /// Certificates in a file that no other user can change.
    pub fn pem(self, file: &Path) -> Result<Pem, StoreError> {
        let (bytes, _) = trust::read(file).map_err(|why| self.refuse(why))?;
        Ok(Pem { bytes, shown: file.display().to_string() })
    }

    /// A key in a file that no other user can read.
    pub fn secret_pem(self, file: &Path) -> Result<Pem, StoreError> {
        let bytes = trust::read_secret(file).map_err(|why| self.refuse(why))?;
        Ok(Pem { bytes, shown: file.display().to_string() })
    }

    /// The file with the authorities that this system trusts.
    pub fn system_authorities(self) -> Result<PathBuf, StoreError> {
        let system = SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.is_file());
        let none = "this system keeps no list of trusted authorities: name one with ca=/path/to/ca.pem";
        system.ok_or_else(|| self.refuse(none))
    }

    /// How a client encrypts: which authorities vouch for the server (the system's if none is named), and which certificate
    /// and key the client shows, if any.
    pub fn client_tls(
        self,
        authorities: Option<&Path>,
        identity: Option<(&str, &str)>,
    ) -> Result<ClientConfig, StoreError> {
        let identity = match identity {
            Some((cert, key)) => Some((self.pem(Path::new(cert))?, self.secret_pem(Path::new(key))?)),
            None => None,
        };
        let file = authorities.map_or_else(|| self.system_authorities(), |file| Ok(file.to_owned()))?;
        let authorities = self.pem(&file)?;
        self.client_tls_of(&authorities, identity.as_ref())
    }

    /// The same, of what was read already.
    pub fn client_tls_of(
        self,
        authorities: &Pem,
        identity: Option<&(Pem, Pem)>,
    ) -> Result<ClientConfig, StoreError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let versions = versions.map_err(|error| self.refuse(error.to_string()))?;
        let verified = versions.with_root_certificates(self.roots_of(authorities)?);
        let Some((cert, key)) = identity else { return Ok(verified.with_no_client_auth()) };
        let no_cert =
            |error: &dyn std::fmt::Display| self.unusable("the client's certificate", &cert.shown, error);
        let chain = CertificateDer::pem_slice_iter(&cert.bytes).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| no_cert(&error))?;
        let secret = PrivateKeyDer::from_pem_slice(&key.bytes)
            .map_err(|error| self.unusable("the client's key", &key.shown, &error))?;
        verified.with_client_auth_cert(chain, secret).map_err(|error| no_cert(&error))
    }

    fn unusable(self, what: &str, shown: &str, error: &dyn std::fmt::Display) -> StoreError {
        self.refuse(format!("{what} cannot be used: {shown}: {error}"))
    }

    /// How long an operation may take, as a URL says it.
    pub fn timeout(self, text: &str) -> Result<Duration, StoreError> {
        let parsed = humantime::parse_duration(&self.unescape(text)?).ok();
        parsed
            .filter(|timeout| (Duration::from_millis(50)..=Duration::from_secs(60)).contains(timeout))
            .ok_or_else(|| self.refuse("timeout must be a duration from 50ms to 60s, such as timeout=2s"))
    }

    /// Takes `ttl` out of the URL of a guard lock, which is a URL of the store otherwise: the URL without it, and how long one
    /// renewal counts.
    pub fn guard_ttl(self, url: &str) -> Result<(String, Duration), StoreError> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut rest, mut ttl) = (Vec::new(), GUARD_TTL);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some(text) = pair.strip_prefix("ttl=") else {
                rest.push(pair);
                continue;
            };
            let parsed = humantime::parse_duration(&self.unescape(text)?).ok();
            let allowed = |ttl: &Duration| (2..=3600).contains(&ttl.as_secs()) && ttl.subsec_nanos() == 0;
            let refused = || self.refuse("ttl must be whole seconds from 2s to 1h, such as ttl=15s");
            ttl = parsed.filter(allowed).ok_or_else(refused)?;
        }
        let url = if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
        Ok((url, ttl))
    }

    /// A part of a URL without its %-escapes.
    pub fn unescape(self, text: &str) -> Result<String, StoreError> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
            let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                return Err(self.unreadable());
            };
            bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
        }
        String::from_utf8(bytes).map_err(|_| self.unreadable())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn certificates_that_others_can_change_and_keys_that_they_can_read_are_rejected() {
        let url = Grammar { store: "test", usage: "", has_schema: false };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pem");
        write(&file, "no certificate, and no key").unwrap();
        let told = |mode: u32| {
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let key = url.secret_pem(&file).map_or_else(|error| error.to_string(), |_| "read".to_owned());
            [url.roots(&file).unwrap_err().to_string(), key]
        };
        let [authority, key] = told(0o600);
        assert!(authority.contains("no certificate") && key == "read", "both are read: {authority}, {key}");
        let [authority, key] = told(0o644);
        assert!(authority.contains("no certificate") && key.contains("chmod 600"), "{authority}, {key}");
        let [authority, key] = told(0o666);
        assert!(authority.contains("every user") && key.contains("every user"), "{authority}, {key}");
    }
}
