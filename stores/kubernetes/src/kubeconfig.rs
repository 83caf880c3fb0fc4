//! How the API server is reached: what a pod is given, or what the kubeconfig of a person says.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use saphyr::{LoadableYamlNode as _, Yaml};
use tenure_store::StoreError;
use tenure_store::kit::params::{Grammar, Pem};

use super::settings::{Address, URL};

/// Where a pod finds the token of its service account.
pub(super) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const CLIENT_KEY: &str = "client-key";

/// How the API server is reached, and as whom.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) address: Address,
    /// The system's, if there are none.
    pub(super) authorities: Option<Pem>,
    /// A certificate of the client's own, and its key.
    pub(super) identity: Option<(Pem, Pem)>,
    /// The host that the server's certificate names, if it is not the one in the address.
    pub(super) certified_as: Option<String>,
    pub(super) credential: Credential,
    pub(super) namespace: Option<String>,
}

/// What shows who asks, beside a certificate.
#[derive(Clone)]
pub(super) enum Credential {
    None,
    Token(String),
    /// Its content is replaced from time to time.
    TokenFile(PathBuf),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token"),
            Self::TokenFile(path) => write!(f, "TokenFile({})", path.display()),
        }
    }
}

/// What a pod is given in that directory; the address comes from its environment, unless the URL has one.
pub(super) fn service_account(dir: &Path, address: Option<Address>) -> Result<Access, StoreError> {
    let Some(address) = address.or_else(Address::of_environment) else {
        return Err(URL.refuse(
                "a service account needs the address of the API server: KUBERNETES_SERVICE_HOST is not set, and the URL \
                 has no server=HOST:PORT",
            ));
    };
    let namespace = std::fs::read_to_string(dir.join("namespace")).ok();
    Ok(Access {
        address,
        authorities: Some(URL.pem(&dir.join("ca.crt"))?),
        identity: None,
        certified_as: None,
        credential: Credential::TokenFile(dir.join("token")),
        namespace: namespace.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
    })
}

/// The kubeconfig that `kubectl` would read: `$KUBECONFIG`, or the one in the home directory.
pub(super) fn default_file() -> Result<PathBuf, StoreError> {
    if let Some(named) = std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty()) {
        let mut files = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty());
        return match (files.next(), files.next()) {
            (Some(one), None) => Ok(one),
            _ => Err(URL.refuse("KUBECONFIG names several files: name one with kubeconfig=PATH")),
        };
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).map(|home| home.join(".kube/config"));
    home.filter(|path| path.is_file()).ok_or_else(|| {
        URL.refuse(
            "this is no pod (KUBERNETES_SERVICE_HOST is not set), and there is no kubeconfig: name one with kubeconfig=PATH",
        )
    })
}

/// Reads a kubeconfig: one of its contexts, or the current one.
pub(super) fn read(path: &Path, context: Option<&str>) -> Result<Access, StoreError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| URL.refuse(format!("cannot read the kubeconfig {}: {error}", path.display())))?;
    Kubeconfig::parse(path, &text)?.access(context)
}

/// A kubeconfig, and where relative paths in it begin.
struct Kubeconfig<'a> {
    path: &'a Path,
    root: Yaml<'a>,
}

/// What Tenure cannot do, and what to do instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "exec",
        "its user logs in by running a program, which Tenure does not do: use a service account's token, or tokenFile",
    ),
    (
        "auth-provider",
        "its user logs in by an auth-provider, which Kubernetes has given up: use a token, or tokenFile",
    ),
    (
        "username",
        "its user logs in with a password, which Kubernetes has given up: use a token, or tokenFile",
    ),
    ("as", "its user acts as another (impersonation): give Tenure a user of its own"),
];

impl<'a> Kubeconfig<'a> {
    fn parse(path: &'a Path, text: &'a str) -> Result<Self, StoreError> {
        // What the parser says may show what stands there, which may be a token.
        let unreadable = || URL.refuse(format!("the kubeconfig {} is no YAML", path.display()));
        let mut documents = Yaml::load_from_str(text).map_err(|_| unreadable())?;
        let root = documents.drain(..).next().ok_or_else(unreadable)?;
        Ok(Self { path, root })
    }

    fn access(&self, context: Option<&str>) -> Result<Access, StoreError> {
        let current = self.root.as_mapping_get("current-context").and_then(Yaml::as_str);
        let Some(context) = context.or(current).filter(|name| !name.is_empty()) else {
            return Err(self.refuse("names no current context: name one with context=NAME"));
        };
        let context = self.named("contexts", "context", context)?;
        let part = |of: &str| text(context, of).unwrap_or_default();
        let cluster = self.named("clusters", "cluster", part("cluster"))?;
        let user = self.named("users", "user", part("user"))?;
        for (field, why) in UNSUPPORTED {
            if user.as_mapping_get(field).is_some_and(|value| !value.is_null()) {
                return Err(self.refuse(why));
            }
        }
        if cluster.as_mapping_get("insecure-skip-tls-verify").and_then(Yaml::as_bool) == Some(true) {
            return Err(self.refuse(
                "does not verify the API server (insecure-skip-tls-verify): put its authority in \
                 certificate-authority-data; a server that nothing vouches for can make two leaders",
            ));
        }
        if text(cluster, "proxy-url").is_some() {
            return Err(
                self.refuse("reaches the API server through a proxy (proxy-url), which Tenure does not do")
            );
        }
        let server = text(cluster, "server").and_then(Address::of_url);
        Ok(Access {
            address: server.ok_or_else(|| self.refuse("names no server, such as https://HOST:6443"))?,
            authorities: self.pem(cluster, "certificate-authority")?,
            identity: self.identity(user)?,
            certified_as: text(cluster, "tls-server-name").map(str::to_owned),
            credential: self.credential(user),
            namespace: text(context, "namespace").map(str::to_owned),
        })
    }

    /// The entry of that name in a list of named ones.
    fn named(&self, list: &str, item: &str, name: &str) -> Result<&Yaml<'a>, StoreError> {
        let entries = self.root.as_mapping_get(list).and_then(Yaml::as_sequence);
        let entry = entries.into_iter().flatten().find(|entry| text(entry, "name") == Some(name));
        let found = entry.and_then(|entry| entry.as_mapping_get(item));
        found.ok_or_else(|| self.refuse(&format!("has no {item} {name:?} among its {list}")))
    }

    fn identity(&self, user: &Yaml<'a>) -> Result<Option<(Pem, Pem)>, StoreError> {
        match (self.pem(user, "client-certificate")?, self.pem(user, CLIENT_KEY)?) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            _ => {
                Err(self.refuse("gives its user a certificate without a key, or a key without a certificate"))
            }
        }
    }

    /// As `kubectl` does: a file goes before what is written here.
    fn credential(&self, user: &Yaml<'a>) -> Credential {
        match (text(user, "tokenFile"), text(user, "token")) {
            (Some(file), _) => Credential::TokenFile(self.beside(file)),
            (None, Some(token)) => Credential::Token(token.to_owned()),
            (None, None) => Credential::None,
        }
    }

    /// A field in PEM form: in a file, or in base64 in the field of the same name with `-data`, which goes first.
    fn pem(&self, of: &Yaml<'a>, field: &str) -> Result<Option<Pem>, StoreError> {
        if let Some(data) = text(of, &format!("{field}-data")) {
            let letters: String = data.split_ascii_whitespace().collect();
            let bytes = BASE64_STANDARD.decode(letters);
            let bytes = bytes.map_err(|_| self.refuse(&format!("has a {field}-data that is no base64")))?;
            let shown = format!("{field}-data in {}", self.path.display());
            return Ok(Some(Pem { bytes, shown }));
        }
        let read = if field == CLIENT_KEY { Grammar::secret_pem } else { Grammar::pem };
        text(of, field).map(|path| read(URL, &self.beside(path))).transpose()
    }

    /// Paths begin at the directory of the kubeconfig.
    fn beside(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    fn refuse(&self, why: &str) -> StoreError {
        URL.refuse(format!("the kubeconfig {}: {why}", self.path.display()))
    }
}

fn text<'y>(of: &'y Yaml<'_>, field: &str) -> Option<&'y str> {
    of.as_mapping_get(field).and_then(Yaml::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: v1
current-context: main
clusters:
- name: one
  cluster: {server: 'https://api.example:6443/k8s/c-1', certificate-authority: ca.pem, tls-server-name: kubernetes}
- name: bare
  cluster: {server: http://127.0.0.1:8001}
- name: insecure
  cluster: {server: 'https://h', insecure-skip-tls-verify: true}
contexts:
- name: main
  context: {cluster: one, user: person, namespace: team}
- name: local
  context: {cluster: bare, user: nobody}
- name: wild
  context: {cluster: insecure, user: nobody}
- name: plugin
  context: {cluster: bare, user: plugin}
- name: half
  context: {cluster: bare, user: half}
users:
- name: person
  user: {tokenFile: secrets/token, token: hunter2, client-certificate-data: aHVudGVyMg==, client-key-data: aHVudGVyMg==}
- name: nobody
  user: {}
- name: plugin
  user:
    exec: {command: aws}
- name: half
  user: {client-key-data: aHVudGVyMg==}
";

    fn read_in(dir: &Path, context: Option<&str>) -> Result<Access, StoreError> {
        std::fs::write(dir.join("config"), TEXT).unwrap();
        std::fs::write(dir.join("ca.pem"), "ca").unwrap();
        read(&dir.join("config"), context)
    }

    #[test]
    fn a_kubeconfig_says_where_and_as_whom_and_paths_begin_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let access = read_in(dir.path(), None).unwrap();
        assert_eq!(access.address, Address::of_url("https://api.example:6443/k8s/c-1").unwrap());
        assert_eq!(access.authorities.as_ref().unwrap().bytes, b"ca");
        assert_eq!(access.identity.as_ref().unwrap().1.bytes, b"hunter2");
        assert_eq!(
            (access.certified_as.as_deref(), access.namespace.as_deref()),
            (Some("kubernetes"), Some("team"))
        );
        let Credential::TokenFile(file) = &access.credential else { panic!("{access:?}") };
        assert_eq!(*file, dir.path().join("secrets/token"));
        assert!(!format!("{access:?}").contains("hunter2"));
        let local = read_in(dir.path(), Some("local")).unwrap();
        assert!(matches!(local.credential, Credential::None) && local.authorities.is_none());
    }

    #[test]
    fn what_cannot_be_used_is_told_with_what_to_do_and_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        for (context, part) in [
            ("wild", "certificate-authority-data"),
            ("plugin", "by running a program"),
            ("half", "without a certificate"),
            ("none", "has no context \"none\""),
        ] {
            let message = read_in(dir.path(), Some(context)).unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains("hunter2"), "{message}");
        }
        std::fs::write(dir.path().join("bad"), "a: [hunter2").unwrap();
        let message = read(&dir.path().join("bad"), None).unwrap_err().to_string();
        assert!(message.contains("no YAML") && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn a_pod_finds_its_account() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("ca.crt", "ca"), ("namespace", "team\n"), ("token", "hunter2")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let access = service_account(dir.path(), Address::of_url("https://10.0.0.1")).unwrap();
        assert_eq!(access.namespace.as_deref(), Some("team"));
        assert!(matches!(access.credential, Credential::TokenFile(_)));
    }
}
