//! Stores: the contract of [`tenure_store`], and every store of this build by its URL.
//!
//! A store is added in one place: its [`Backend`] is a line in [`BACKENDS`].

use std::time::Duration;

use tenure_core::Timing;
pub use tenure_store::*;

#[cfg(feature = "etcd")]
pub use tenure_etcd::Etcd;
#[cfg(feature = "kubernetes")]
pub use tenure_kubernetes::Kubernetes;
#[cfg(feature = "mysql")]
pub use tenure_mysql::Mysql;
#[cfg(feature = "nats")]
pub use tenure_nats::Nats;
#[cfg(feature = "object")]
pub use tenure_object::Object;
#[cfg(feature = "peers")]
pub use tenure_peers::{Group, GroupMember, Peers};
#[cfg(feature = "postgres")]
pub use tenure_postgres::Postgres;
#[cfg(feature = "redis")]
pub use tenure_redis::Redis;
#[cfg(feature = "sqlite")]
pub use tenure_sqlite::{Access, Sqlite};

const STORE: &str = "store";

/// The kinds of store that this build has.
pub const BACKENDS: &[Backend] = &[
    #[cfg(feature = "sqlite")]
    tenure_sqlite::BACKEND,
    #[cfg(feature = "postgres")]
    tenure_postgres::BACKEND,
    #[cfg(feature = "mysql")]
    tenure_mysql::BACKEND,
    #[cfg(feature = "redis")]
    tenure_redis::BACKEND,
    #[cfg(feature = "etcd")]
    tenure_etcd::BACKEND,
    #[cfg(feature = "kubernetes")]
    tenure_kubernetes::BACKEND,
    #[cfg(feature = "nats")]
    tenure_nats::BACKEND,
    #[cfg(feature = "object")]
    tenure_object::BACKEND,
    #[cfg(feature = "peers")]
    tenure_peers::BACKEND,
    Memory::BACKEND,
];

/// The features that bring a store, and the beginnings of its schemes: for those who lack it.
const FEATURES: &[(&str, &[&str])] = &[
    ("sqlite", &["sqlite"]),
    ("postgres", &["postgres", "postgresql"]),
    ("mysql", &["mysql", "mariadb"]),
    ("redis", &["redis", "rediss", "valkey", "valkeys"]),
    ("etcd", &["etcd", "etcds"]),
    ("kubernetes", &["kubernetes"]),
    ("nats", &["nats", "tls"]),
    ("object", &["s3", "gs", "az"]),
    ("peers", &["peers"]),
];

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
/// | `nats://HOST:PORT,HOST:PORT,HOST:PORT/BUCKET`, `tls://` | a KV bucket of NATS JetStream |
/// | `s3://BUCKET/PREFIX?region=REGION`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX?account=ACCOUNT` | object storage; `endpoint=URL` for another server |
/// | `redis://HOST:PORT/DB`, `rediss://`, `redis+unix:///PATH`, `redis+sentinel://HOST:PORT,…/NAME` | a Redis or Valkey server |
///
/// # Errors
/// If the URL names no store that this build has, or if the store cannot be opened. Messages show the scheme only:
/// the rest may hold a secret.
pub fn open(url: &str) -> Result<SharedStore, StoreError> {
    let opening = read(url, Mode::Join)?;
    if let Some(warning) = opening.warning {
        tracing::warn!("{warning}");
    }
    (opening.open)()
}

/// A warning about a URL that can be used, with advice: a password that would cross a network unencrypted.
#[must_use]
pub fn url_warning(url: &str) -> Option<&'static str> {
    read(url, Mode::Join).ok()?.warning
}

/// The ttl of nodes on the store that a URL names, if they name none: longer where each request takes long, or has a price.
#[must_use]
pub fn default_ttl(url: &str) -> Duration {
    read(url, Mode::Join).ok().and_then(|opening| opening.ttl).unwrap_or(Timing::DEFAULT_TTL)
}

/// What the requests of a node with that beat cost on the store that a URL names, with the prices that are assumed; none if
/// they have no price.
#[must_use]
pub fn request_cost(url: &str, beat: Duration) -> Option<String> {
    Some(read(url, Mode::Join).ok()?.cost?(beat))
}

/// Whether a URL names a store that can be opened, as far as that can be told without opening it: it opens no connection
/// and makes no file. Files that the URL names, such as certificates, are read.
///
/// # Errors
/// What is wrong with it; the message shows the scheme only.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    read(url, Mode::Join).map(drop)
}

/// Opens the store that a URL names without becoming a part of it: a URL that makes this process a member of a group of
/// peers gives a client of that group. For read-only commands, and for tools that run beside a member.
///
/// # Errors
/// As [`open`].
pub fn open_as_client(url: &str) -> Result<SharedStore, StoreError> {
    (read(url, Mode::Visit)?.open)()
}

/// Opens the store that a URL names as [`open_as_client`] does, and makes nothing: files and tables that are not there are told as
/// missing.
///
/// # Errors
/// As [`open`], and if no node has ever used the embedded store at that place. On a server that is told by the first
/// operation.
pub fn open_read_only(url: &str) -> Result<SharedStore, StoreError> {
    (read(url, Mode::Look)?.open)()
}

fn read(url: &str, mode: Mode) -> Result<Opening, StoreError> {
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
pub fn kind(url: &str) -> Option<&'static str> {
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
        assert!(!nowhere.parent().unwrap().exists(), "whoever looks makes nothing");
    }

    #[test]
    fn the_scheme_alone_tells_the_kind() {
        for (url, named) in [
            ("postgres://u:hunter2@h/d", Some("postgres")),
            ("mariadb://h", Some("mysql")),
            ("sqlite:", Some("sqlite")),
            ("redis+sentinel://h/n", Some("redis")),
            ("etcds://a,b,c/x", Some("etcd")),
            ("kubernetes:team", Some("kubernetes")),
            ("nats+tls://a,b,c/x", Some("nats")),
            ("s3://b/p?region=r", Some("object")),
            ("memory:", Some("memory")),
            ("hunter2", None),
            ("nope:hunter2", None),
        ] {
            assert_eq!(kind(url), named, "{url}");
        }
    }

    #[test]
    fn what_is_not_a_store_is_told_without_showing_secrets() {
        for (url, part) in [
            ("tenure.db", "sqlite:PATH"),
            #[cfg(not(feature = "redis"))]
            ("redis://:hunter2@host/0", "no redis: store"),
            #[cfg(feature = "redis")]
            ("redis://:hunter2@host/zero", "not a Redis URL"),
            #[cfg(not(feature = "postgres"))]
            ("postgres://u:hunter2@h/d", "no postgres: store"),
            #[cfg(feature = "postgres")]
            ("postgres://u:hunter2@h/d?hunter2", "cannot be read"),
            #[cfg(not(feature = "mysql"))]
            ("mysql://u:hunter2@h/d", "no mysql: store"),
            #[cfg(feature = "mysql")]
            ("mysql://u:hunter2@h/d?hunter2", "cannot be read"),
            #[cfg(not(feature = "etcd"))]
            ("etcd://u:hunter2@h", "no etcd: store (feature `etcd`)"),
            #[cfg(feature = "etcd")]
            ("etcd://u:hunter2@h?hunter2", "parameters of an etcd URL"),
            #[cfg(not(feature = "kubernetes"))]
            ("kubernetes:hunter2", "no kubernetes: store (feature `kubernetes`)"),
            #[cfg(feature = "kubernetes")]
            ("kubernetes:x?hunter2", "parameters of a Kubernetes URL"),
            #[cfg(not(feature = "nats"))]
            ("nats://u:hunter2@h", "no nats: store (feature `nats`)"),
            #[cfg(feature = "nats")]
            ("nats://u:hunter2@h?hunter2", "parameters of a NATS URL"),
            #[cfg(not(feature = "object"))]
            ("s3://k:hunter2@b", "no s3: store (feature `object`)"),
            #[cfg(feature = "object")]
            ("s3://k:hunter2@b?hunter2", "parameters of a URL of object storage"),
            #[cfg(not(feature = "peers"))]
            ("peers:hunter2", "no peers: store"),
            #[cfg(feature = "peers")]
            ("peers:hunter2", "not a URL of peers"),
            ("hunter2", "URL"),
            ("nope://u:hunter2@h", "memory:NAME"),
            ("sqlite://relative.db", "sqlite:///PATH"),
            ("sqlite:a.db?access=hunter2", "access=group"),
            ("sqlite:a.db?mode=rw", "access=group"),
        ] {
            let error = open(url).expect_err(url);
            assert!(error.is_misnamed(), "{url}");
            let message = error.to_string();
            assert_eq!(check_url(url).expect_err(url).to_string(), message);
            assert!(message.contains(part), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn what_goes_over_a_network_in_clear_is_told() {
        for (url, plain) in [
            ("memory:", false),
            #[cfg(feature = "postgres")]
            ("postgres://u:p@db.example/d", true),
            #[cfg(feature = "postgres")]
            ("postgres://u:p@127.0.0.1,db.example/d", true),
            #[cfg(feature = "postgres")]
            ("postgres://u:p@127.0.0.1/d", false),
            #[cfg(feature = "mysql")]
            ("mysql://u:p@10.0.0.1/d", true),
            #[cfg(feature = "mysql")]
            ("mysql://u:p@localhost/d", false),
            #[cfg(feature = "etcd")]
            ("etcd://u:p@localhost,db.example", true),
            #[cfg(feature = "nats")]
            ("nats://u:p@localhost,db.example", true),
            #[cfg(feature = "object")]
            ("s3://k:p@b?endpoint=http://minio.example:9000", true),
            #[cfg(feature = "redis")]
            ("redis://:p@cache.example", true),
            #[cfg(feature = "redis")]
            ("redis+sentinel://:p@127.0.0.1:1,10.0.0.1:1/main", true),
            #[cfg(feature = "redis")]
            ("redis+sentinel://127.0.0.1:1/main", false),
            #[cfg(feature = "redis")]
            ("rediss://:p@cache.example", false),
            #[cfg(feature = "redis")]
            ("redis+unix:///run/redis.sock", false),
            ("nope:", false),
        ] {
            assert_eq!(url_warning(url).is_some_and(|told| told.contains("not encrypted")), plain, "{url}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn what_is_checked_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        check_url(&format!("sqlite:{}", dir.path().join("t.db").display())).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
