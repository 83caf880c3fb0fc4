//! Stores: the contract of [`tenure_store`], and every store of this build by its URL.
//!
//! A line in `stores!` makes a store known to the library, the agent and the command line: it becomes one of [`BACKENDS`]. What
//! else a store needs, from its crate to its page, is in `docs/guides/adding-a-store.md`.

use std::time::Duration;

use tenure_core::Timing;
pub use tenure_store::*;

/// The registry: a line for each store names its feature, its crate with what users of the library see of it, and the
/// schemes of its URLs as far as their first `+`, for builds without it.
macro_rules! stores {
    ($(pub use $krate:ident::{$($public:ident),+}: feature $feature:literal, schemes $schemes:tt;)+) => {
        $(#[cfg(feature = $feature)] pub use $krate::{$($public),+};)+

        /// The kinds of store that this build has.
        pub const BACKENDS: &[Backend] = &[$(#[cfg(feature = $feature)] $krate::BACKEND,)+ Memory::BACKEND];

        /// Every feature that brings a store, with the schemes of its URLs.
        const FEATURES: &[(&str, &[&str])] = &[$(($feature, &$schemes)),+];
    };
}

stores! {
    pub use tenure_sqlite::{Access, Sqlite}: feature "sqlite", schemes ["sqlite"];
    pub use tenure_postgres::{Postgres}: feature "postgres", schemes ["postgres", "postgresql"];
    pub use tenure_mysql::{Mysql}: feature "mysql", schemes ["mysql", "mariadb"];
    pub use tenure_redis::{Redis}: feature "redis", schemes ["redis", "rediss", "valkey", "valkeys"];
    pub use tenure_etcd::{Etcd}: feature "etcd", schemes ["etcd", "etcds"];
    pub use tenure_kubernetes::{Kubernetes}: feature "kubernetes", schemes ["kubernetes"];
    pub use tenure_zookeeper::{ZooKeeper}: feature "zookeeper", schemes ["zookeeper", "zookeepers"];
    pub use tenure_nats::{Nats}: feature "nats", schemes ["nats", "tls"];
    pub use tenure_object::{Object}: feature "object", schemes ["s3", "gs", "az"];
    pub use tenure_peers::{Group, GroupMember, Peers}: feature "peers", schemes ["peers"];
}

const STORE: &str = "store";

/// Opens the store that a URL names.
///
/// | URL | store |
/// |---|---|
/// | `memory:`, `memory:NAME` | registers in this process; the same name gives the same registers |
/// | `sqlite:` | the embedded store, in the user's state directory |
/// | `sqlite:PATH`, `sqlite:///PATH` | the embedded store in that file, from here or from the root; `?access=group` or `?access=anyone` if several users share it |
/// | `postgres://user:password@host:port/database` | PostgreSQL; several hosts are tried for the primary |
/// | `mysql://user:password@host:port/database` | MySQL or MariaDB |
/// | `peers://HOST:PORT,…?secret-file=PATH` | the nodes themselves, by Raft; `me=HOST:PORT` makes this process a member |
/// | `etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX`, `etcds://` | an etcd cluster |
/// | `kubernetes:`, `kubernetes:NAMESPACE` | the Kubernetes API: in a pod its service account, elsewhere the kubeconfig |
/// | `zookeeper://HOST:PORT,HOST:PORT,HOST:PORT/PATH`, `zookeepers://` | a ZooKeeper ensemble |
/// | `nats://HOST:PORT,HOST:PORT,HOST:PORT/BUCKET`, `tls://` | a KV bucket of NATS JetStream |
/// | `s3://BUCKET/PREFIX?region=REGION`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX?account=ACCOUNT` | object storage; `endpoint=URL` for another server |
/// | `redis://HOST:PORT/DB`, `rediss://`, `redis+unix:///PATH`, `redis+sentinel://HOST:PORT,…/NAME` | a Redis or Valkey server |
///
/// # Errors
/// If the URL names no store that this build has, or if the store cannot be opened. Messages show the scheme only:
/// the rest may hold a secret.
pub fn open(url: &str) -> Result<SharedStore, StoreError> {
    let opening = read(url, OpenMode::Node)?;
    if let Some(warning) = opening.warning {
        tracing::warn!("{warning}");
    }
    (opening.open)()
}

/// Runs something on the thread of a store's connections, if it has one, where the nodes of that store are: what it hears from
/// them, and tells them, waits for no other thread. It must not block. None if it panicked.
pub async fn beside_connections<T: Send + 'static>(
    store: &SharedStore,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (said, hears) = tokio::sync::oneshot::channel();
    let work = async move { _ = said.send(work.await) };
    let not_hosted = match store.thread() {
        Some(thread) => thread.host(work).err(),
        None => Some(work),
    };
    if let Some(work) = not_hosted {
        work.await;
    }
    hears.await.ok()
}

/// A warning about a URL that can be used, with advice: a password that would cross a network unencrypted.
#[must_use]
pub fn url_warning(url: &str) -> Option<&'static str> {
    read(url, OpenMode::Node).ok()?.warning
}

/// The ttl of nodes on the store that a URL names, if they name none: longer where each request takes long, or has a price.
#[must_use]
pub fn default_ttl(url: &str) -> Duration {
    read(url, OpenMode::Node).ok().and_then(|opening| opening.ttl).unwrap_or(Timing::DEFAULT_TTL)
}

/// What the requests of a node with that beat cost on the store that a URL names, with the prices that are assumed; none if
/// they have no price.
#[must_use]
pub fn request_cost(url: &str, beat: Duration) -> Option<String> {
    Some(read(url, OpenMode::Node).ok()?.cost?(beat))
}

/// The variables of the environment from which the store that a URL names takes secrets, beside those of Tenure itself.
#[must_use]
pub fn secret_variables(url: &str) -> &'static [&'static str] {
    read(url, OpenMode::Node).map_or(&[], |opening| opening.secret_variables)
}

/// Whether a URL names a store that can be opened, as far as that can be told without opening it: it opens no connection
/// and makes no file. Files that the URL names, such as certificates, are read.
///
/// # Errors
/// What is wrong with it; the message shows the scheme only.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    read(url, OpenMode::Node).map(drop)
}

/// Opens the store that a URL names without becoming a part of it: a URL that makes this process a member of a group of
/// peers gives a client of that group. For read-only commands, and for tools that run beside a member.
///
/// # Errors
/// As [`open`].
pub fn open_as_client(url: &str) -> Result<SharedStore, StoreError> {
    (read(url, OpenMode::Client)?.open)()
}

/// Opens the store that a URL names as [`open_as_client`] does, and makes nothing: files and tables that are not there are told as
/// missing.
///
/// # Errors
/// As [`open`], and if no node has ever used the embedded store at that place. On a server that is told by the first
/// operation.
pub fn open_read_only(url: &str) -> Result<SharedStore, StoreError> {
    (read(url, OpenMode::ReadOnly)?.open)()
}

fn read(url: &str, mode: OpenMode) -> Result<Opening, StoreError> {
    backend_for_url(url).and_then(|backend| (backend.read)(url, mode)).map_err(StoreError::misnamed)
}

/// The kind of store that a URL names, by its scheme alone.
///
/// # Errors
/// If this build has none of that scheme.
pub fn backend_for_url(url: &str) -> Result<&'static Backend, StoreError> {
    let Some((scheme, _)) = url.split_once(':') else {
        let usage = "a file is named as sqlite:PATH";
        return Err(refuse(format!("a store is named by a URL, such as {}; {usage}", known())));
    };
    let named = |backend: &&Backend| backend.schemes.contains(&scheme);
    BACKENDS.iter().find(named).ok_or_else(|| match lacking(scheme) {
        Some(feature) => {
            refuse(format!("this build has no {scheme}: store (feature `{feature}`); it knows {}", known()))
        }
        None => {
            let shown: String = scheme.chars().take(20).collect();
            refuse(format!("{shown:?} is not a kind of store; this build knows {}", known()))
        }
    })
}

/// The name of the kind of store that a URL names, by its scheme alone; also of one that this build lacks.
#[must_use]
pub fn backend_name(url: &str) -> Option<&'static str> {
    let scheme = url.split_once(':')?.0;
    let here = BACKENDS.iter().find(|backend| backend.schemes.contains(&scheme)).map(|backend| backend.name);
    here.or_else(|| lacking(scheme))
}

/// The feature that brings a store of that scheme.
fn lacking(scheme: &str) -> Option<&'static str> {
    let family = scheme.split('+').next().unwrap_or_default();
    FEATURES.iter().find(|(_, schemes)| schemes.contains(&family)).map(|(feature, _)| *feature)
}

/// The stores of this build, for messages.
fn known() -> String {
    BACKENDS.iter().map(|backend| backend.usage).collect::<Vec<_>>().join(", ")
}

fn refuse(message: String) -> StoreError {
    StoreError::not_applied(STORE, message).permanent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_same_name_gives_the_same_memory() {
        let identity = |url| async move { open(url).unwrap().describe().await.unwrap().identity };
        assert_eq!(identity("memory:a").await, identity("memory:a").await);
        assert_ne!(identity("memory:a").await, identity("memory:").await);
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er.db");
        for url in [format!("sqlite:{}", path.display()), format!("sqlite://{}", path.display())] {
            let store = open(&url).unwrap();
            assert_eq!(store.to_string(), format!("sqlite:{}", path.canonicalize().unwrap().display()));
            drop(open_read_only(&url).unwrap());
        }
        let nowhere = dir.path().join("deeper/still.db");
        let error = open_read_only(&format!("sqlite:{}", nowhere.display())).unwrap_err();
        assert!(error.to_string().contains("there is no") && !error.is_misnamed(), "{error}");
        assert!(!nowhere.parent().unwrap().exists(), "looking makes no file");
    }

    #[test]
    fn the_scheme_alone_tells_the_kind() {
        for (feature, schemes) in FEATURES {
            for scheme in *schemes {
                assert_eq!(backend_name(&format!("{scheme}://u:hunter2@h")), Some(*feature), "{scheme}");
            }
        }
        for (url, named) in [
            ("redis+sentinel://h/n", Some("redis")),
            ("memory:", Some("memory")),
            ("hunter2", None),
            ("nope:hunter2", None),
        ] {
            assert_eq!(backend_name(url), named, "{url}");
        }
    }

    #[test]
    fn a_build_without_a_store_names_its_feature() {
        for backend in BACKENDS.iter().filter(|backend| !backend.in_process) {
            for scheme in backend.schemes {
                assert_eq!(lacking(scheme), Some(backend.name), "{scheme} is in the registry");
            }
        }
        let lacks = |feature: &&(&str, &[&str])| !BACKENDS.iter().any(|backend| backend.name == feature.0);
        for (feature, schemes) in FEATURES.iter().filter(lacks) {
            let message = refusal(&format!("{}://u:hunter2@h", schemes[0]));
            assert!(
                message.contains(&format!("no {}: store (feature `{feature}`)", schemes[0])),
                "{message}"
            );
        }
    }

    #[cfg(feature = "object")]
    #[test]
    fn secrets_of_a_store_in_the_environment_are_known() {
        let s3 = secret_variables("s3://bucket/tenure?region=r");
        assert!(s3.contains(&"AWS_SECRET_ACCESS_KEY") && s3.contains(&"AWS_SESSION_TOKEN"), "{s3:?}");
        assert!(secret_variables("az://c/t?account=a").contains(&"AZURE_STORAGE_ACCOUNT_KEY"));
        assert!(secret_variables("memory:").is_empty());
    }

    #[test]
    fn what_is_not_a_store_is_told_without_showing_secrets() {
        for (url, part) in [
            ("tenure.db", "sqlite:PATH"),
            ("hunter2", "URL"),
            ("nope://u:hunter2@h", "memory:NAME"),
            #[cfg(feature = "sqlite")]
            ("sqlite://relative.db", "sqlite:///PATH"),
            #[cfg(feature = "sqlite")]
            ("sqlite:a.db?access=hunter2", "access=group"),
            #[cfg(feature = "sqlite")]
            ("sqlite:a.db?mode=rw", "access=group"),
        ] {
            let message = refusal(url);
            assert!(message.contains(part), "{url}: {message}");
        }
        for backend in BACKENDS.iter().filter(|backend| !backend.in_process) {
            for scheme in backend.schemes {
                let _ = refusal(&format!("{scheme}://u:hunter2@h/d?nope=hunter2"));
            }
        }
    }

    /// Why a URL cannot be used; no secret is in it, and it is the same whether the store would be opened or not.
    fn refusal(url: &str) -> String {
        let error = open(url).expect_err(url);
        assert!(error.is_misnamed(), "{url}");
        let message = error.to_string();
        assert_eq!(check_url(url).expect_err(url).to_string(), message);
        assert!(!message.contains("hunter2"), "{message}");
        message
    }

    /// Which URLs are warned of is tested beside each store.
    #[cfg(feature = "postgres")]
    #[test]
    fn what_goes_over_a_network_in_clear_is_told() {
        let told = |url: &str| url_warning(url).is_some_and(|told| told.contains("not encrypted"));
        assert!(told("postgres://u:p@db.example/d") && !told("postgres://u:p@127.0.0.1/d"));
        assert!(!told("memory:") && !told("nope:"));
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn what_is_checked_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        check_url(&format!("sqlite:{}", dir.path().join("t.db").display())).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
