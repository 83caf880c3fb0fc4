//! Redis and Valkey: registers in hashes, one script for each batch of compare-and-sets.
//!
//! ```text
//!   write() ──▶ link ──▶ EVALSHA change.lua ─▶ HGET, compare, HSET, PUBLISH ──┐  (one atomic step)
//!   read()  ──▶ link ──▶ GET, HGETALL …, HMGET …  (one round trip)            │
//!   watches ◀── hub ◀── ear ◀──────────────────────────── SUBSCRIBE ◀─────────┘
//! ```
//!
//! A handle has two connections at most, on a thread of its own with a runtime of its own, so that neither blocking work
//! nor the end of the caller's runtime can hurt them. No key ever expires, nothing is scanned, and no clock of the server
//! is asked.

mod ear;
mod fault;
mod keys;
mod link;
mod script;
mod sentinel;
mod server;
mod target;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use self::ear::{Ear, Hearing};
use self::link::Link;
use self::target::Target;
use super::hub::{Hub, lock};
use super::rules::check_batch;
use super::{
    Class, Description, Entry, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Witness, Write,
};

const STORE: &str = "redis";

/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(2);

/// How long opening a watch waits at most for the server to confirm it.
const CONFIRMATION: Duration = Duration::from_secs(1);

/// More operations at once than anybody has.
const OPERATIONS: u32 = 1 << 20;

/// A handle on the registers of a Redis server. See `docs/stores.md` for what it guarantees in which configuration.
pub struct Redis {
    target: Arc<Target>,
    link: Arc<Link>,
    ear: Ear,
    hub: Arc<Hub>,
    runtime: Handle,
    /// Dropped, it ends the thread.
    life: Mutex<Option<oneshot::Sender<()>>>,
    busy: Arc<Semaphore>,
    closed: AtomicBool,
}

impl Redis {
    /// Prepares a handle on the server that a URL names; nothing is connected before the first operation.
    ///
    /// `redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://` for TLS, `redis+unix:///PATH`, or
    /// `redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB`; with the parameters `timeout`, `wait`, `ca`, `cert`, `key`.
    ///
    /// # Errors
    /// If the URL cannot be read, a certificate neither, or the process has no threads left.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let target = Arc::new(Target::parse(url)?);
        let hub = Arc::new(Hub::default());
        let (ear, listener) = ear::pair(&target, &hub);
        let link = Arc::new(Link::new(target.clone(), hub.clone(), ear.clone()));
        let (runtime, life) = start_thread()?;
        runtime.spawn(listener.run(Arc::downgrade(&link)));
        let busy = Arc::new(Semaphore::new(OPERATIONS as usize));
        let (life, closed) = (Mutex::new(Some(life)), AtomicBool::new(false));
        Ok(Self { target, link, ear, hub, runtime, life, busy, closed })
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Has the thread do something. Whoever does not wait for the end of it leaves it to itself.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.check_open()?;
        let permit = self.busy.clone().try_acquire_owned().map_err(|_| closed())?;
        let work = async move {
            let _permit = permit;
            work.await
        };
        let lost = |_| {
            Err(StoreError::unknown(STORE, "this handle was closed meanwhile: look whether it was written"))
        };
        self.runtime.spawn(work).await.unwrap_or_else(lost)
    }
}

/// A thread with a runtime, until the sender is dropped.
fn start_thread() -> Result<(Handle, oneshot::Sender<()>), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_resources)?;
    let handle = runtime.handle().clone();
    let (life, end) = oneshot::channel();
    let work = move || {
        let _ = runtime.block_on(end);
    };
    std::thread::Builder::new().name("tenure-redis".to_owned()).spawn(work).map_err(no_resources)?;
    Ok((handle, life))
}

/// How long to wait after so many failures in a row: longer each time, and never in step with others.
fn backoff(failures: u32, nonce: u128) -> Duration {
    let base = Duration::from_millis(25 << failures.min(6));
    let jitter = u32::try_from(nonce % 1000).unwrap_or(0);
    base + base * jitter / 1000
}

fn no_resources(error: std::io::Error) -> StoreError {
    StoreError::not_applied(STORE, format!("this process has no threads or descriptors left: {error}"))
        .caused_by(error)
}

fn closed() -> StoreError {
    StoreError::not_applied(STORE, "this handle was closed: open another one").permanent()
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("target", &self.target)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.target, f)
    }
}

#[async_trait]
impl Store for Redis {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.check_open().map(|()| Vec::new());
        }
        let (link, namespace, query) = (self.link.clone(), namespace.clone(), query.clone());
        self.run(async move { link.read(&namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let (link, namespace, writes) = (self.link.clone(), namespace.clone(), writes.to_vec());
        self.run(async move { link.write(&namespace, &writes).await }).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.hub.watch(namespace);
        self.ear.watch(namespace, CONFIRMATION);
        watch
    }

    /// A Redis server has no lock that ends with a connection: it has no witnesses.
    async fn attest(&self, _: &Name, _: SessionId) -> Result<Option<Witness>, StoreError> {
        self.check_open().map(|()| None)
    }

    fn release(&self, _: &Name, _: SessionId) {}

    fn attend(&self, _: &Name, _: SessionId, _: &str) {}

    fn ignore(&self, _: &Name, _: SessionId) {}

    async fn describe(&self) -> Result<Description, StoreError> {
        let (link, ear, patience) = (self.link.clone(), self.ear.clone(), self.target.timeout);
        let (server, hearing) = self
            .run(async move {
                let server = link.describe().await?;
                Ok((server, ear.settled(patience).await))
            })
            .await?;
        let mut remarks = server.remarks;
        if let Hearing::Deaf(why) = &hearing {
            remarks.push(ear::remark(why));
        }
        let identity = match (server.class, server.run) {
            (Class::C, Some(run)) => format!("{}#{run}", self.target),
            _ => self.target.to_string(),
        };
        Ok(Description {
            class: server.class,
            identity,
            about: server.about,
            rings: hearing == Hearing::Works,
            witnesses_death: false,
            witnesses_disconnect: false,
            remarks,
        })
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.hub.close();
        let _ = tokio::time::timeout(CLOSING, self.busy.acquire_many(OPERATIONS)).await;
        lock(&self.life).take();
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Redis {
    fn drop(&mut self) {
        self.hub.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_grows_to_a_limit_and_is_never_in_step() {
        assert!(backoff(0, 0) >= Duration::from_millis(25) && backoff(0, 999) < Duration::from_millis(50));
        assert!(backoff(3, 0) > backoff(2, 0));
        assert!(backoff(99, 999) < Duration::from_secs(4));
        assert_ne!(backoff(5, 1), backoff(5, 500));
    }

    #[tokio::test]
    async fn without_a_server_everything_fails_at_once_and_is_proven() {
        let store = Redis::open("redis://:hunter2@127.0.0.1:1/0").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), super::super::Fate::NotApplied);
        assert!(error.to_string().contains("redis://127.0.0.1:1/0 cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?}").contains("hunter2"));
        store.close().await;
    }
}
