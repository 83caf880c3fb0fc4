//! Stores by name: what people write on command lines and in configuration.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::hub::lock;
use super::{Memory, SharedStore, StoreError};

const STORE: &str = "store";

/// Opens the store that a URL names.
///
/// | URL | store |
/// |---|---|
/// | `memory:`, `memory:NAME` | registers in this process; the same name gives the same registers |
/// | `sqlite:` | the embedded store, in the user's state directory |
/// | `sqlite:PATH`, `sqlite:///PATH` | the embedded store in that file, from here or from the root |
/// | `postgres://user:password@host:port/database` | PostgreSQL; several hosts are tried for the primary |
/// | `mysql://user:password@host:port/database` | MySQL or MariaDB |
/// | `peers://HOST:PORT,…?secret-file=PATH` | the nodes themselves, by Raft; `me=HOST:PORT` makes this process a member |
/// | `redis://HOST:PORT/DB`, `rediss://`, `redis+unix:///PATH`, `redis+sentinel://HOST:PORT,…/NAME` | a Redis or Valkey server |
///
/// # Errors
/// If the URL names no store that this build has, or if the store cannot be opened. Messages show the scheme only:
/// the rest may hold a secret.
pub fn open(url: &str) -> Result<SharedStore, StoreError> {
    opener(url)?()
}

/// Whether a URL names a store that can be opened, as far as that can be told without opening it: nobody is connected to,
/// and no file is made. Files that the URL names, such as certificates, are read.
///
/// # Errors
/// What is wrong with it; the message shows the scheme only.
pub fn check(url: &str) -> Result<(), StoreError> {
    opener(url).map(drop)
}

/// What opens a store whose URL was read and found well.
type Opener = Box<dyn FnOnce() -> Result<SharedStore, StoreError>>;

fn opener(url: &str) -> Result<Opener, StoreError> {
    read(url).map_err(StoreError::misnamed)
}

fn read(url: &str) -> Result<Opener, StoreError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(refuse(format!(
            "a store is named by a URL, such as {}; a file is named as sqlite:PATH",
            known()
        )));
    };
    match scheme {
        "memory" => {
            let name = rest.to_owned();
            Ok(Box::new(move || Ok(Arc::new(memory(&name)))))
        }
        "sqlite" => sqlite(rest),
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" => {
            redis(scheme, url)
        }
        "postgres" | "postgresql" => postgres(url),
        "mysql" | "mariadb" => mysql(scheme, url),
        "peers" => peers(url),
        other => {
            let shown: String = other.chars().take(20).collect();
            Err(refuse(format!("{shown:?} is not a kind of store; this build knows {}", known())))
        }
    }
}

/// Opens the store that a URL names without becoming a part of it: a URL that makes this process a member of a group of
/// peers gives a client of that group. For those who only look, and for tools that run beside a member.
///
/// # Errors
/// As [`open`].
pub fn visit(url: &str) -> Result<SharedStore, StoreError> {
    if !url.starts_with("peers://") {
        return open(url);
    }
    // Of a parameter that is named twice, the last counts.
    let joint = if url.contains('?') { '&' } else { '?' };
    open(&format!("{url}{joint}member=false"))
}

/// Opens the store that a URL names as [`visit`] does, and makes nothing: a file that is not there is told as missing.
///
/// # Errors
/// As [`open`], and if nobody has ever used the embedded store at that place.
pub fn look(url: &str) -> Result<SharedStore, StoreError> {
    #[cfg(feature = "sqlite")]
    if let Some(rest) = url.strip_prefix("sqlite:") {
        let path = sqlite_path(rest).map_err(StoreError::misnamed)?;
        if matches!(path.try_exists(), Ok(false)) {
            let shown = path.display();
            return Err(StoreError::not_applied(
                "sqlite",
                format!("there is no {shown}: no node has run on it yet; start one, as with `tenure run --role NAME -- COMMAND`, or name another store"),
            )
            .permanent());
        }
    }
    visit(url)
}

/// What this build knows, for messages.
fn known() -> String {
    let kinds = [
        (cfg!(feature = "sqlite"), "sqlite:, sqlite:PATH"),
        (cfg!(feature = "postgres"), "postgres://HOST/DATABASE"),
        (cfg!(feature = "mysql"), "mysql://HOST/DATABASE"),
        (cfg!(feature = "redis"), "redis://HOST"),
        (cfg!(feature = "peers"), "peers://HOST:PORT,…"),
        (true, "memory: and memory:NAME"),
    ];
    let known: Vec<_> = kinds.into_iter().filter(|(built, _)| *built).map(|(_, kind)| kind).collect();
    known.join(", ")
}

/// The registers of that name, which last as long as the process.
fn memory(name: &str) -> Memory {
    static NAMED: Mutex<BTreeMap<String, Memory>> = Mutex::new(BTreeMap::new());
    lock(&NAMED).entry(name.to_owned()).or_default().clone()
}

#[cfg(feature = "sqlite")]
fn sqlite(rest: &str) -> Result<Opener, StoreError> {
    let path = sqlite_path(rest)?;
    Ok(Box::new(move || Ok(Arc::new(super::Sqlite::open(path)?))))
}

/// The file that what follows `sqlite:` names.
#[cfg(feature = "sqlite")]
fn sqlite_path(rest: &str) -> Result<std::path::PathBuf, StoreError> {
    match rest.strip_prefix("//") {
        None if rest.is_empty() => super::Sqlite::default_path(),
        None => Ok(rest.into()),
        Some(absolute) if absolute.starts_with('/') => Ok(absolute.into()),
        Some(_) => Err(refuse(
            "sqlite://PATH names no file: write sqlite:PATH, or sqlite:///PATH from the root".into(),
        )),
    }
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_: &str) -> Result<Opener, StoreError> {
    Err(lacking("sqlite", "sqlite"))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Opener, StoreError> {
    super::Postgres::check(url)?;
    let url = url.to_owned();
    Ok(Box::new(move || Ok(Arc::new(super::Postgres::open(&url)?))))
}

#[cfg(not(feature = "postgres"))]
fn postgres(url: &str) -> Result<Opener, StoreError> {
    Err(lacking(url.split(':').next().unwrap_or_default(), "postgres"))
}

#[cfg(feature = "mysql")]
fn mysql(_: &str, url: &str) -> Result<Opener, StoreError> {
    super::Mysql::check(url)?;
    let url = url.to_owned();
    Ok(Box::new(move || Ok(Arc::new(super::Mysql::open(&url)?))))
}

#[cfg(not(feature = "mysql"))]
fn mysql(scheme: &str, _: &str) -> Result<Opener, StoreError> {
    Err(lacking(scheme, "mysql"))
}

#[cfg(feature = "redis")]
fn redis(_: &str, url: &str) -> Result<Opener, StoreError> {
    super::Redis::check(url)?;
    let url = url.to_owned();
    Ok(Box::new(move || Ok(Arc::new(super::Redis::open(&url)?))))
}

#[cfg(not(feature = "redis"))]
fn redis(scheme: &str, _: &str) -> Result<Opener, StoreError> {
    Err(lacking(scheme, "redis"))
}

#[cfg(feature = "peers")]
fn peers(url: &str) -> Result<Opener, StoreError> {
    super::Peers::check(url)?;
    let url = url.to_owned();
    Ok(Box::new(move || Ok(Arc::new(super::Peers::open(&url)?))))
}

#[cfg(not(feature = "peers"))]
fn peers(_: &str) -> Result<Opener, StoreError> {
    Err(lacking("peers", "peers"))
}

#[allow(dead_code, reason = "a build with every store lacks none")]
fn lacking(scheme: &str, feature: &str) -> StoreError {
    refuse(format!("this build has no {scheme}: store (feature `{feature}`); it knows {}", known()))
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
            drop(look(&url).unwrap());
        }
        let nowhere = dir.path().join("deeper/still.db");
        let error = look(&format!("sqlite:{}", nowhere.display())).unwrap_err();
        assert!(error.to_string().contains("there is no") && !error.is_misnamed(), "{error}");
        assert!(!nowhere.parent().unwrap().exists(), "whoever looks makes nothing");
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
            #[cfg(not(feature = "peers"))]
            ("peers:hunter2", "no peers: store"),
            #[cfg(feature = "peers")]
            ("peers:hunter2", "not a URL of peers"),
            ("hunter2", "URL"),
            ("nope://u:hunter2@h", "memory:NAME"),
            ("sqlite://relative.db", "sqlite:///PATH"),
        ] {
            let error = open(url).expect_err(url);
            assert!(error.is_misnamed(), "{url}");
            let message = error.to_string();
            assert_eq!(check(url).expect_err(url).to_string(), message);
            assert!(message.contains(part), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn what_is_checked_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        check(&format!("sqlite:{}", dir.path().join("t.db").display())).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
