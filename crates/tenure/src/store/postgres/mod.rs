//! PostgreSQL: one logged table, one statement for each batch, `NOTIFY` in the same transaction.
//!
//! ```text
//!   read(), write() ──▶ link ═══▶ operations, pipelined ═══▶ tenure_write_v1(…) ─▶ COMMIT ─▶ NOTIFY ──┐
//!   watches ◀── hub ◀── ears ◀═══ LISTEN tenure ◀══════════════════════════════════════════════════════┘
//! ```
//!
//! A handle has two connections and one thread, on which both live: neither the caller's runtime nor a caller that
//! stopped waiting can harm them. See `docs/stores.md` for what it guarantees and how to look into it, and
//! `docs/adr/0011-postgres.md` for why it is so.

mod ears;
mod fault;
mod inspect;
mod link;
mod rows;
mod schema;
mod session;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use self::ears::{Ears, Hearing};
use self::link::Link;
use self::rows::{Batch, Question};
use self::session::Session;
use self::settings::Settings;
use super::hub::Hub;
use super::rules::check_batch;
use super::{Description, Entry, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Witness, Write};

const STORE: &str = "postgres";

/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(2);

/// A handle on the registers in a PostgreSQL database.
pub struct Postgres {
    settings: Arc<Settings>,
    link: Link,
    ears: Arc<Ears>,
    hub: Arc<Hub>,
    room: Handle,
    /// Ends the thread, and with it both connections.
    end: CancellationToken,
    closed: Arc<AtomicBool>,
    /// Held by everything under way, for reading.
    busy: Arc<RwLock<()>>,
}

impl Postgres {
    /// Reads the URL and begins to connect, in the background. The server may be down: operations say so.
    ///
    /// # Errors
    /// If the URL cannot be read or contradicts itself, or if there is no thread left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(Settings::parse(url)?);
        let hub = Arc::new(Hub::default());
        let (link, keep) = Link::new(settings.clone(), hub.clone());
        let (ears, listen) = Ears::new(settings.clone(), hub.clone(), link.clone());
        let end = CancellationToken::new();
        let room = start(end.clone())?;
        room.spawn(keep);
        room.spawn(listen);
        let (closed, busy) = (Arc::default(), Arc::default());
        Ok(Self { settings, link, ears: Arc::new(ears), hub, room, end, closed, busy })
    }

    /// The statements that make the tables, for whoever may run them when this user may not.
    #[must_use]
    pub fn ddl() -> &'static str {
        schema::DDL
    }

    /// Does something on the thread of this handle, whether or not anybody goes on waiting for it.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.check_open()?;
        let (busy, is_closed) = (self.busy.clone(), self.closed.clone());
        let work = async move {
            let _busy = busy.read_owned().await;
            if is_closed.load(Ordering::Acquire) { Err(closed()) } else { work.await }
        };
        match self.room.spawn(work).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::unknown(STORE, "the handle was closed amid this operation")),
        }
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }
}

/// The thread on which the connections live, until told to end.
fn start(end: CancellationToken) -> Result<Handle, StoreError> {
    let no_thread = |error: std::io::Error| {
        let message = format!("this process has no threads or descriptors left: {error}");
        StoreError::not_applied(STORE, message).caused_by(error)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("tenure-postgres".to_owned());
    thread.spawn(move || runtime.block_on(end.cancelled())).map_err(no_thread)?;
    Ok(handle)
}

fn closed() -> StoreError {
    StoreError::not_applied(STORE, "this handle was closed: open another one").permanent()
}

/// A stable number of some texts, for advisory locks: FNV-1a over their bytes, each text followed by a zero byte.
fn hash(texts: &[&str]) -> i64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.hub.close();
        self.end.cancel();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("place", &self.settings.place)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}", self.settings.place)
    }
}

#[async_trait]
impl Store for Postgres {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.check_open().map(|()| Vec::new());
        }
        let (link, question) = (self.link.clone(), Question::new(namespace, query));
        self.run(async move {
            let found = link.ask(|session| async move { session.read(&question.params()).await }).await?;
            Ok(found.iter().filter_map(rows::entry).collect())
        })
        .await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let batch = Batch::new(namespace, writes, self.settings.patience_ms());
        if batch.is_empty() {
            return self.check_open().map(|()| batch.outcomes(&[]));
        }
        let link = self.link.clone();
        self.run(async move {
            let ask =
                |session: Arc<Session>| async move { Ok((session.write(&batch.params()).await?, batch)) };
            let (answered, batch) = link.ask(ask).await?;
            Ok(batch.outcomes(&answered))
        })
        .await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.hub.watch(namespace);
        self.ears.open();
        watch
    }

    async fn attest(&self, _: &Name, _: SessionId) -> Result<Option<Witness>, StoreError> {
        self.check_open().map(|()| None)
    }

    fn release(&self, _: &Name, _: SessionId) {}

    fn attend(&self, _: &Name, _: SessionId, _: &str) {}

    fn ignore(&self, _: &Name, _: SessionId) {}

    async fn describe(&self) -> Result<Description, StoreError> {
        let (settings, link, ears) = (self.settings.clone(), self.link.clone(), self.ears.clone());
        self.run(async move {
            link.ask(|_| async { Ok(()) }).await?;
            let hearing = tokio::time::timeout(settings.timeout, ears.hearing()).await;
            let hearing = hearing.unwrap_or_else(|_| Hearing::Failed("it takes too long".to_owned()));
            inspect::describe(&settings, &link, &hearing).await
        })
        .await
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.hub.close();
        let (busy, end) = (self.busy.clone(), self.end.clone());
        let idle = async move {
            let _ = tokio::time::timeout(CLOSING, busy.write()).await;
            end.cancel();
        };
        let _ = self.room.spawn(idle).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of every version must agree on the numbers of their locks.
    #[test]
    fn hashes_never_change() {
        assert_eq!(hash(&[]).cast_unsigned(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(&["tenure schema"]).cast_unsigned(), 0x66b5_1047_2736_f6f3);
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }
}
