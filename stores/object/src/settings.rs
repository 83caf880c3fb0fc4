//! What a URL says: which bucket of which provider, under which prefix, and where the credentials are.

use std::fmt;
use std::time::Duration;

use super::STORE;
use tenure_store::StoreError;
use tenure_store::kit::hosts::{UrlParts, parameters};
use tenure_store::kit::params::Grammar;
use tenure_store::kit::plaintext;

/// What the name of every object begins with, if the URL does not say.
pub(super) const PREFIX: &str = "tenure";

/// How long a request may take if the URL does not say: as long as an operation may with the default ttl of this store.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Whose interface is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    S3,
    Google,
    Azure,
}

impl Provider {
    pub(super) const ALL: [Self; 3] = [Self::S3, Self::Google, Self::Azure];

    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    pub(super) fn service(self) -> &'static str {
        match self {
            Self::S3 => "Amazon S3",
            Self::Google => "Google Cloud Storage",
            Self::Azure => "Azure Blob Storage",
        }
    }
}

/// The bucket, and everything needed to ask for it. Never shows a secret.
pub(super) struct ObjectSettings {
    pub(super) provider: Provider,
    pub(super) bucket: String,
    /// Without a slash at either end.
    pub(super) prefix: String,
    /// Where requests go, if not to the provider itself.
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    /// The account that a container of Azure is in.
    pub(super) account: Option<String>,
    /// An access key with its secret (S3), or an account with its key (Azure).
    pub(super) login: Option<(String, String)>,
    /// Whether the machine's own identity is asked for, at an address of its network.
    pub(super) from_instance: bool,
    /// PEM file with the authorities that vouch for the endpoint.
    pub(super) ca: Option<String>,
    /// How long a request may take.
    pub(super) timeout: Duration,
}

impl ObjectSettings {
    /// Reads `s3://`, `gs://` and `az://`. Neither a connection nor the environment is looked at.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let parts = UrlParts::of(url).ok_or_else(|| URL.unreadable())?;
        let provider = Provider::ALL.into_iter().find(|provider| provider.scheme() == parts.scheme);
        let provider = provider.ok_or_else(|| URL.unreadable())?;
        let login = parts.login.map(|login| read_login(provider, login)).transpose()?;
        let mut settings = Self {
            provider,
            bucket: bucket_name(parts.hosts)?,
            prefix: prefix(parts.path)?,
            endpoint: None,
            region: None,
            account: login
                .as_ref()
                .filter(|_| provider == Provider::Azure)
                .map(|(account, _)| account.clone()),
            login,
            from_instance: false,
            ca: None,
            timeout: TIMEOUT,
        };
        for (name, value) in parameters(parts.query) {
            settings.parameter(name, value)?;
        }
        if settings.from_instance && settings.login.is_some() {
            return Err(URL.refuse("credentials in the URL and credentials=instance contradict each other"));
        }
        Ok(settings)
    }

    fn parameter(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let value = URL.unescape(value)?;
        match name {
            "endpoint" => self.endpoint = Some(endpoint(&value)?),
            "region" if self.provider == Provider::S3 => self.region = Some(value),
            "account" if self.provider == Provider::Azure => self.account = Some(value),
            "timeout" => self.timeout = URL.timeout(&value)?,
            "ca" => self.ca = Some(value),
            "credentials" if value == "instance" => self.from_instance = true,
            "credentials" if value == "environment" => self.from_instance = false,
            "credentials" => {
                return Err(URL.refuse(
                    "credentials is environment (the default) or instance (the identity of this machine)",
                ));
            }
            _ => {
                return Err(URL.refuse(
                    "the parameters of a URL of object storage are endpoint, credentials, ca and timeout; region for s3, \
                     account for az",
                ));
            }
        }
        Ok(())
    }

    /// Whether requests go to the provider itself, and not to a server that speaks the same interface.
    pub(super) fn is_provider_itself(&self) -> bool {
        let amazon = |endpoint: &String| host(endpoint).ends_with(".amazonaws.com");
        self.endpoint.as_ref().is_none_or(|endpoint| self.provider == Provider::S3 && amazon(endpoint))
    }

    /// What is doubtful about the way to the endpoint.
    pub(super) fn warning(&self) -> Option<&'static str> {
        let plain =
            |endpoint: &String| endpoint.starts_with("http://") && !plaintext::is_local(host(endpoint));
        self.endpoint.as_ref().is_some_and(plain).then_some(tenure_store::plaintext_warning!(
            "endpoint",
            "what is there",
            "write endpoint=https://, and ca=/path/to/ca.pem if the authority is yours"
        ))
    }
}

/// The host in an endpoint.
fn host(endpoint: &str) -> &str {
    let place = endpoint.split_once("://").map_or(endpoint, |(_, place)| place);
    let place = place.split('/').next().unwrap_or_default();
    match place.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => place,
    }
}

fn endpoint(text: &str) -> Result<String, StoreError> {
    let known = text.starts_with("https://") || text.starts_with("http://");
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['@', '?', '#']);
    match known && plain && !host(text).is_empty() {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(URL.refuse("endpoint is where the service answers, such as endpoint=https://HOST:PORT")),
    }
}

fn read_login(provider: Provider, text: &str) -> Result<(String, String), StoreError> {
    let (name, secret) = text.split_once(':').unwrap_or((text, ""));
    let (name, secret) = (URL.unescape(name)?, URL.unescape(secret)?);
    match provider {
        Provider::Google => Err(URL.refuse(
            "gs:// takes no credentials in the URL: name a file with GOOGLE_APPLICATION_CREDENTIALS in the environment",
        )),
        _ if name.is_empty() || secret.is_empty() => Err(URL.refuse(
            "credentials in the URL are an access key and its secret (s3), or an account and its key (az): NAME:SECRET@",
        )),
        _ => Ok((name, secret)),
    }
}

fn bucket_name(text: &str) -> Result<String, StoreError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
    match !text.is_empty() && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(URL.unreadable()),
    }
}

/// Objects are for people too: what needs quoting in a shell is refused.
fn prefix(path: &str) -> Result<String, StoreError> {
    let path = path.trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.chars().all(plain);
    match path {
        "" => Ok(PREFIX.to_owned()),
        _ if path.split('/').all(part) => Ok(path.to_owned()),
        _ => Err(URL.refuse(
            "the prefix of the objects, after the bucket, may have letters, digits, and . _ - with / between",
        )),
    }
}

pub(super) const URL: Grammar = Grammar { store: STORE, usage: USAGE, has_schema: false };

const USAGE: &str = "the URL cannot be read: write s3://BUCKET/PREFIX?region=REGION, gs://BUCKET/PREFIX or \
    az://CONTAINER/PREFIX?account=ACCOUNT; endpoint=https://HOST:PORT for another server, with %-escapes in secrets";

impl fmt::Display for ObjectSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.provider.scheme(), self.bucket, self.prefix)?;
        match &self.endpoint {
            Some(endpoint) => write!(f, "?endpoint={endpoint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ObjectSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectSettings").field("place", &self.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_their_secrets() {
        for (url, expected) in [
            ("s3://bucket", "s3://bucket/tenure"),
            ("s3://b/app/x/?region=eu-west-1", "s3://b/app/x"),
            (
                "s3://KEY:hunter2@b/x?endpoint=http://127.0.0.1:9000/",
                "s3://b/x?endpoint=http://127.0.0.1:9000",
            ),
            ("gs://b/x?credentials=instance", "gs://b/x"),
            ("az://me:hunter2@container", "az://container/tenure"),
            ("az://container/x?account=me&timeout=500ms", "az://container/x"),
        ] {
            let settings = ObjectSettings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{settings:?}").contains("hunter2"));
        }
        let settings = ObjectSettings::parse("s3://a%40b:p%3a%25@h").unwrap();
        assert_eq!(settings.login, Some(("a@b".to_owned(), "p:%".to_owned())));
        let azure = ObjectSettings::parse("az://me:hunter2@container").unwrap();
        assert_eq!(azure.account.as_deref(), Some("me"));
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("s3:hunter2", "cannot be read"),
            ("s3://", "cannot be read"),
            ("s3://k:hunter2@b c", "cannot be read"),
            ("s3://hunter2@b", "access key and its secret"),
            ("gs://k:hunter2@b", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("s3://k:hunter2@b/a b", "prefix"),
            ("s3://k:hunter2@b/a/../c", "prefix"),
            ("s3://k:hunter2@b?hunter2=1", "region for s3"),
            ("gs://b?region=hunter2", "region for s3"),
            ("s3://k:hunter2@b?timeout=0", "50ms"),
            ("s3://k:hunter2@b?endpoint=hunter2", "endpoint=https://"),
            ("s3://b?endpoint=https://u:hunter2@h", "endpoint=https://"),
            ("s3://b?credentials=hunter2", "environment (the default)"),
            ("s3://k:hunter2@b?credentials=instance", "contradict"),
        ] {
            let error = ObjectSettings::parse(url).expect_err(url).to_string();
            assert!(error.contains(part) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn only_a_provider_itself_is_taken_for_one() {
        for (url, itself) in [
            ("s3://b", true),
            ("s3://b?endpoint=https://s3.eu-west-1.amazonaws.com", true),
            ("s3://b?endpoint=https://s3.eu-west-1.amazonaws.com.example", false),
            ("s3://b?endpoint=https://minio.example:9000", false),
            ("gs://b", true),
            ("gs://b?endpoint=https://x.amazonaws.com", false),
        ] {
            assert_eq!(ObjectSettings::parse(url).unwrap().is_provider_itself(), itself, "{url}");
        }
    }

    #[test]
    fn a_way_in_clear_is_told() {
        for (url, plain) in [
            ("s3://b", false),
            ("s3://b?endpoint=http://localhost:9000", false),
            ("s3://b?endpoint=http://[::1]:9000", false),
            ("s3://b?endpoint=http://minio.example", true),
            ("s3://b?endpoint=https://minio.example", false),
        ] {
            assert_eq!(ObjectSettings::parse(url).unwrap().warning().is_some(), plain, "{url}");
        }
    }
}
