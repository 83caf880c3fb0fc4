//! The ground on which nodes stand: a private server that is attacked too, or a user's own store that is left alone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::Class;
use tenure_testkit::judge::Injected;
use tenure_testkit::judge::On;

use super::fault::{Group, Kind};
use super::{links, servers};
use crate::args::Private;
use crate::exit::Exit;
use crate::process::clock::lease_now;

/// A server that can be attacked. What goes wrong in it is a panic that says what.
pub(super) trait Attacked: Send {
    /// Where nodes find it.
    fn url(&self) -> String;
    /// What can be done to it.
    fn able(&self) -> &'static [Kind];
    /// Does it. What lasts by itself takes as long as `lasts`.
    fn strike(&mut self, kind: Kind, lasts: Duration);
    /// Undoes it.
    fn heal(&mut self, kind: Kind);
}

/// See the [module](self).
pub(crate) struct Ground {
    pub(crate) url: String,
    pub(super) about: String,
    pub(super) class: Class,
    pub(super) private: Option<Private>,
    server: Option<Arc<Mutex<Box<dyn Attacked>>>>,
    able: &'static [Kind],
}

impl Ground {
    /// Starts a private server, or looks at the store of that URL.
    pub(crate) async fn open(private: Option<Private>, url: &str) -> Result<Self, Exit> {
        let server = match private {
            Some(private) => Some(in_background(move || servers::start(private)).await?),
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
        let server = server.map(|server| Arc::new(Mutex::new(server)));
        Ok(Self { url, about: description.about, class: description.class, private, server, able })
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
            _ => None,
        }
    }

    /// Attacks the server, for so long; tells when that was.
    pub(super) async fn attack(
        server: Arc<Mutex<Box<dyn Attacked>>>,
        kind: Kind,
        lasts: Duration,
    ) -> Result<Injected, Exit> {
        in_background(move || {
            let mut server = server.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let from = lease_now();
            server.strike(kind, lasts);
            if !matches!(kind, Kind::Slow | Kind::Flush | Kind::DeleteRows | Kind::Failover) {
                std::thread::sleep(lasts);
            }
            server.heal(kind);
            let destroys = kind == Kind::Failover || kind.group() == Group::Destroy;
            let what = format!("{} of the store", kind.name());
            Injected { kind: kind.name().into(), what, from, to: lease_now(), on: On::Store, destroys }
        })
        .await
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
            None => "own store",
        }
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
