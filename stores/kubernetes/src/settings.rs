//! What a URL says: which API server, as whom, in which namespace of Kubernetes, under which prefix.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::STORE;
use super::kubeconfig::{self, Access, Credential};
use tenure_store::kit::hosts;
use tenure_store::kit::http::Endpoint;
use tenure_store::kit::params::{Grammar, TIMEOUT};
use tenure_store::{Class, StoreError};

/// What every Lease's name begins with, if the URL does not say.
pub(super) const PREFIX: &str = "tenure";

/// Where the API is: several hosts that answer alike, and what their paths begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) encrypted: bool,
    /// Without a slash at its end.
    pub(super) base: String,
}

/// The API servers, and everything needed to ask them. Never shows a secret.
pub(super) struct KubernetesSettings {
    address: Address,
    tls: Option<Arc<ClientConfig>>,
    certified_as: Option<String>,
    pub(super) credential: Credential,
    /// The namespace of Kubernetes in which the Leases are.
    pub(super) namespace: String,
    /// What names of Leases begin with.
    pub(super) prefix: String,
    /// How long an operation may take, connecting included.
    pub(super) timeout: Duration,
    /// What the operator says of the etcd behind the API servers, which does not show.
    pub(super) class: Class,
}

/// The parameters of a URL.
#[derive(Default)]
struct Parameters {
    timeout: Option<Duration>,
    kubeconfig: Option<String>,
    context: Option<String>,
    service_account: Option<String>,
    server: Option<String>,
    prefix: Option<String>,
    class: Option<Class>,
}

impl KubernetesSettings {
    /// Reads `kubernetes:` and the kubeconfig, or what a pod is given. Nothing is connected.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let named = place.strip_prefix("kubernetes:").ok_or_else(|| URL.unreadable())?;
        if !(named.is_empty() || is_label(named, 63)) {
            return Err(URL.unreadable());
        }
        let parameters = Parameters::parse(query)?;
        let access = parameters.access()?;
        let tls = match access.address.encrypted {
            true => Some(Arc::new(encryption(&access)?)),
            false => None,
        };
        let found = access.namespace.filter(|_| named.is_empty());
        let namespace = found.unwrap_or_else(|| if named.is_empty() { "default" } else { named }.to_owned());
        let settings = Self {
            address: access.address,
            tls,
            certified_as: access.certified_as,
            credential: access.credential,
            namespace,
            prefix: parameters.prefix.unwrap_or_else(|| PREFIX.to_owned()),
            timeout: parameters.timeout.unwrap_or(TIMEOUT),
            class: parameters.class.unwrap_or(Class::B),
        };
        settings.endpoints()?;
        Ok(settings)
    }

    /// The API servers, to be asked.
    pub(super) fn endpoints(&self) -> Result<Vec<Endpoint>, StoreError> {
        let endpoint = |(host, port): &(String, u16)| {
            let endpoint = Endpoint::new(host, *port, self.tls.clone());
            let endpoint = match &self.certified_as {
                Some(name) => endpoint.and_then(|endpoint| endpoint.certified_as(name)),
                None => endpoint,
            };
            endpoint.ok_or_else(|| URL.refuse(format!("no certificate can name the host {host:?}")))
        };
        self.address.hosts.iter().map(endpoint).collect()
    }

    /// Where the Leases are.
    pub(super) fn leases(&self) -> String {
        format!("{}/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.address.base, self.namespace)
    }

    /// Another part of the API.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.address.base)
    }

    /// What is doubtful about the way to the API servers.
    pub(super) fn warning(&self) -> Option<&'static str> {
        let local = hosts::are_local(&self.address.hosts);
        (self.tls.is_none() && !local).then_some(tenure_store::plaintext_warning!(
            "API server",
            "the token",
            "write https:// in the kubeconfig"
        ))
    }

    /// How long a server is waited for before the others are asked first.
    pub(super) fn suspicion(&self) -> Duration {
        self.timeout / 4
    }
}

/// Certificates on the way to a server that speaks in clear would protect nothing; the other way round there is always one.
fn encryption(access: &Access) -> Result<ClientConfig, StoreError> {
    match &access.authorities {
        Some(authorities) => URL.client_tls_of(authorities, access.identity.as_ref()),
        None => URL.client_tls_of(&URL.pem(&URL.system_authorities()?)?, access.identity.as_ref()),
    }
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for (name, value) in hosts::parameters(query) {
            match name {
                "timeout" => found.timeout = Some(URL.timeout(value)?),
                "kubeconfig" => found.kubeconfig = Some(URL.unescape(value)?),
                "context" => found.context = Some(URL.unescape(value)?),
                "serviceaccount" => found.service_account = Some(URL.unescape(value)?),
                "server" => found.server = Some(URL.unescape(value)?),
                "prefix" if is_label(value, 30) => found.prefix = Some(value.to_owned()),
                "prefix" => {
                    return Err(URL.refuse(
                        "the prefix of names may have small letters, digits and inner dashes, 30 at most",
                    ));
                }
                "class" => found.class = Some(class(value)?),
                _ => return Err(URL.refuse(PARAMETERS)),
            }
        }
        Ok(found)
    }

    /// A kubeconfig if the URL names one or a context of it; otherwise what a pod is given, in a pod.
    fn access(&self) -> Result<Access, StoreError> {
        let in_pod = || Path::new(kubeconfig::SERVICE_ACCOUNT).join("token").exists();
        let of_person = self.kubeconfig.is_some() || self.context.is_some();
        let mut access = match &self.service_account {
            Some(_) if of_person => {
                return Err(
                    URL.refuse("serviceaccount= and a kubeconfig exclude each other: leave one of them out")
                );
            }
            Some(dir) => kubeconfig::service_account(Path::new(dir), self.servers()?)?,
            None if !of_person && Address::of_environment().is_some() && in_pod() => {
                kubeconfig::service_account(Path::new(kubeconfig::SERVICE_ACCOUNT), self.servers()?)?
            }
            None => {
                let named = self.kubeconfig.as_ref().map(std::path::PathBuf::from);
                let path = named.map_or_else(kubeconfig::default_file, Ok)?;
                kubeconfig::read(&path, self.context.as_deref())?
            }
        };
        if let Some(servers) = self.servers()? {
            access.address.hosts = servers.hosts;
        }
        Ok(access)
    }

    fn servers(&self) -> Result<Option<Address>, StoreError> {
        let Some(text) = &self.server else { return Ok(None) };
        let hosts = hosts::parse(text, 6443)
            .ok_or_else(|| URL.refuse("server= is HOST:PORT, or several with commas between them"))?;
        Ok(Some(Address { hosts, encrypted: true, base: String::new() }))
    }
}

impl Address {
    /// Of a URL, such as `https://HOST:6443`.
    pub(super) fn of_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (encrypted, port) = match scheme {
            "https" => (true, 443),
            "http" => (false, 80),
            _ => return None,
        };
        let (host, base) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        let base = base.trim_end_matches('/').to_owned();
        base.bytes().all(plain).then_some(())?;
        Some(Self { hosts: vec![hosts::parse_one(host, port)?], encrypted, base })
    }

    /// Of the environment of a pod.
    pub(super) fn of_environment() -> Option<Self> {
        let host = std::env::var("KUBERNETES_SERVICE_HOST").ok().filter(|host| !host.is_empty())?;
        let port = std::env::var("KUBERNETES_SERVICE_PORT").ok().and_then(|port| port.parse().ok());
        Some(Self { hosts: vec![(host, port.unwrap_or(443))], encrypted: true, base: String::new() })
    }
}

/// Whether Kubernetes takes it as a name of one part.
fn is_label(text: &str, longest: usize) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=longest).contains(&text.len()) && text.bytes().all(letter) && text.trim_matches('-') == text
}

fn class(text: &str) -> Result<Class, StoreError> {
    match text {
        "a" => Ok(Class::A),
        "b" => Ok(Class::B),
        _ => {
            Err(URL.refuse("class is a, if the etcd behind the API servers has three members or more, or b"))
        }
    }
}

pub(super) const URL: Grammar = Grammar { store: STORE, usage: USAGE, has_schema: false };

const USAGE: &str = "the URL cannot be read: write kubernetes: or kubernetes:NAMESPACE, with small letters, digits and dashes";

const PARAMETERS: &str = "the parameters of a Kubernetes URL are kubeconfig, context, serviceaccount, server, prefix, class \
    and timeout";

impl fmt::Display for KubernetesSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |(host, port): &(String, u16)| match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let servers: Vec<_> = self.address.hosts.iter().map(show).collect();
        write!(f, "kubernetes:{}?server={}", self.namespace, servers.join(","))?;
        if self.prefix == PREFIX { Ok(()) } else { write!(f, "&prefix={}", self.prefix) }
    }
}

impl fmt::Debug for KubernetesSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesSettings").field("url", &self.to_string()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(server: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u, namespace: team}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: hunter2}}}}]\n"
        );
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn urls_are_read_and_shown_without_their_secrets() {
        let file = kubeconfig("http://127.0.0.1:8001/base/");
        for (url, expected) in [
            ("kubernetes:?", "kubernetes:team?server=127.0.0.1:8001"),
            ("kubernetes:other?", "kubernetes:other?server=127.0.0.1:8001"),
            ("kubernetes:?prefix=app-1&", "kubernetes:team?server=127.0.0.1:8001&prefix=app-1"),
            ("kubernetes:?server=a:1,[::1],10.0.0.1&", "kubernetes:team?server=a:1,[::1]:6443,10.0.0.1:6443"),
        ] {
            let url = format!("{url}kubeconfig={}", file.path().display());
            let settings = KubernetesSettings::parse(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{settings:?}").contains("hunter2"));
            assert!(settings.leases().starts_with("/base/apis/coordination.k8s.io/v1/namespaces/"));
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (url, part) in [
            ("kubernetes://hunter2", "cannot be read"),
            ("kubernetes:Hunter2", "cannot be read"),
            ("kubernetes:?hunter2=1", "parameters of a Kubernetes URL"),
            ("kubernetes:?prefix=Hunter2", "prefix"),
            ("kubernetes:?class=hunter2", "class is a"),
            ("kubernetes:?timeout=hunter2", "50ms"),
            ("kubernetes:?kubeconfig=/nowhere/config", "/nowhere/config"),
            ("kubernetes:?serviceaccount=/x&context=y", "exclude each other"),
            ("kubernetes:?serviceaccount=/nowhere&server=h", "/nowhere/ca.crt"),
            ("kubernetes:?serviceaccount=/x&server=u:hunter2@h:1", "HOST:PORT"),
        ] {
            let message = KubernetesSettings::parse(url).expect_err(url).to_string();
            assert!(message.contains(part), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn what_goes_over_a_network_in_clear_is_told() {
        for (server, plain) in [("http://127.0.0.1:8001", false), ("http://api.example:8001", true)] {
            let file = kubeconfig(server);
            let url = format!("kubernetes:?kubeconfig={}", file.path().display());
            assert_eq!(KubernetesSettings::parse(&url).unwrap().warning().is_some(), plain, "{server}");
        }
    }
}
