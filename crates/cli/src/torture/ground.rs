//! The ground on which nodes stand: a private server that is attacked too, or a user's own store that is left alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure::store::Class;
use tenure_testkit::judge::Injected;
use tenure_testkit::judge::On;

use super::fault::{Group, Kind, NOT_DONE};
use super::servers::Done;
use super::{links, servers};
use crate::args::Private;
use crate::exit::Exit;
use crate::process::clock::lease_now;

/// A server that can be attacked. One that does not come back is a panic that says what.
pub(super) trait Attacked: Send {
    /// Where nodes find it.
    fn url(&self) -> String;
    /// What can be done to it.
    fn able(&self) -> &'static [Kind];
    /// Whether its data is on a disk that can be full.
    fn has_disk(&self) -> bool {
        false
    }
    /// Does it; or as much of it as can be done, and says why it was not all. What lasts by itself takes as long as
    /// `lasts`.
    fn strike(&mut self, kind: Kind, lasts: Duration) -> Done;
    /// Undoes it, however much of it was done. May be asked again if it could not.
    fn heal(&mut self, kind: Kind) -> Done;
    /// Whether it has come to rest: what it acknowledges now it does not forget by itself.
    fn is_settled(&self) -> bool {
        true
    }
}

/// What became of an attack.
#[derive(Debug)]
pub(super) struct Attack {
    pub(super) injected: Injected,
    /// What it was to be and why it could not be, if it could not.
    pub(super) failed: Option<(Kind, String)>,
}

/// For how long a healing that failed is tried again.
const PATIENCE: Duration = Duration::from_secs(180);

/// See the [module](self).
pub(crate) struct Ground {
    pub(crate) url: String,
    pub(super) about: String,
    pub(super) class: Class,
    pub(super) private: Option<Private>,
    server: Option<Arc<Mutex<Box<dyn Attacked>>>>,
    able: &'static [Kind],
    has_disk: bool,
}

impl Ground {
    /// Starts a private server, or looks at the store of that URL.
    pub(crate) async fn open(private: Option<Private>, url: &str, kinds: &[Kind]) -> Result<Self, Exit> {
        let small_disk = kinds.contains(&Kind::DiskFull);
        let server = match private {
            Some(private) => Some(in_background(move || servers::start(private, small_disk)).await?),
            None => None,
        };
        let (url, able) =
            server.as_ref().map_or((url.to_owned(), &[] as &[Kind]), |server| (server.url(), server.able()));
        if url.starts_with("memory:") {
            let why = "memory: is the memory of one process, and nodes are several: name another store";
            return Err(Exit::Usage(why.to_owned()));
        }
        let store = tenure::store::open(&url)?;
        let description = store.describe().await?;
        store.close().await;
        let has_disk = server.as_ref().is_some_and(|server| server.has_disk());
        let server = server.map(|server| Arc::new(Mutex::new(server)));
        let (about, class) = (description.about, description.class);
        Ok(Self { url, about, class, private, server, able, has_disk })
    }

    /// What of this can be done here, and what cannot, with the reason.
    pub(super) fn able(&self, kinds: &[Kind]) -> (Vec<Kind>, Vec<(Kind, &'static str)>) {
        let (mut able, mut unable) = (Vec::new(), Vec::new());
        for kind in kinds {
            match self.why_not(*kind) {
                None => able.push(*kind),
                Some(why) => unable.push((*kind, why)),
            }
        }
        (able, unable)
    }

    fn why_not(&self, kind: Kind) -> Option<&'static str> {
        match kind.group() {
            Group::Link if kind != Kind::DropHints && !links::can_be_led(&self.url) => {
                Some("no proxy fits between: a file, TLS, or several servers")
            }
            Group::Store | Group::Destroy if self.server.is_none() => {
                Some("the store is yours, and is left alone")
            }
            Group::Store | Group::Destroy if !self.able.contains(&kind) => {
                Some("this store has no such fault")
            }
            Group::Store if kind == Kind::DiskFull && !self.has_disk => {
                Some("no disk of its own could be mounted for the store: that is for root")
            }
            _ => None,
        }
    }

    /// Attacks the server, for so long; tells when that was. What could not be done has troubled the store all the same.
    pub(super) async fn attack(
        server: Arc<Mutex<Box<dyn Attacked>>>,
        kind: Kind,
        lasts: Duration,
    ) -> Result<Attack, Exit> {
        in_background(move || {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let from = lease_now();
            let struck = server.strike(kind, lasts);
            if struck.is_ok() && !kind.lasts_by_itself() {
                std::thread::sleep(lasts);
            }
            heal(&mut **server, kind);
            let destroys = kind == Kind::Failover || kind.group() == Group::Destroy;
            let (name, what) = match &struck {
                Ok(()) => (kind.name(), format!("{} of the store", kind.name())),
                Err(_) => (NOT_DONE, format!("{} of the store, which could not be done", kind.name())),
            };
            let injected =
                Injected { kind: name.into(), what, from, to: lease_now(), on: On::Store, destroys };
            Attack { injected, failed: struck.err().map(|why| (kind, why)) }
        })
        .await
    }

    /// Whether it has come to rest after an attack.
    pub(super) async fn is_settled(server: Arc<Mutex<Box<dyn Attacked>>>) -> Result<bool, Exit> {
        in_background(move || server.lock().unwrap_or_else(PoisonError::into_inner).is_settled()).await
    }

    pub(super) fn server(&self) -> Option<Arc<Mutex<Box<dyn Attacked>>>> {
        self.server.clone()
    }

    /// How it is called in the evidence.
    pub(super) fn name(&self) -> &'static str {
        match self.private {
            Some(Private::Sqlite) => "SQLite",
            Some(Private::Redis) => "Redis",
            Some(Private::RedisFailover) => "Redis, Sentinel",
            Some(Private::Postgres) => "PostgreSQL",
            Some(Private::Mysql) => "MariaDB",
            Some(Private::Peers) => "Peers",
            None => "own store",
        }
    }
}

/// Heals until it is healed.
fn heal(server: &mut dyn Attacked, kind: Kind) {
    let began = Instant::now();
    while let Err(why) = server.heal(kind) {
        assert!(began.elapsed() < PATIENCE, "{} could not be undone: {why}", kind.name());
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Runs what blocks; its panic becomes an error that says the same.
async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Exit> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let panic = error.into_panic();
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Exit::Failed(text.unwrap_or_else(|| "a private server failed".to_owned()))
    })
}
