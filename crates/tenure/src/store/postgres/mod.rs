//! PostgreSQL: one logged table, one statement for each batch, `NOTIFY` in the same transaction.
//!
//! ```text
//!   read(), write() ──▶ link ═══▶ operations, pipelined ═══▶ tenure_write_v2(…) ─▶ COMMIT ─▶ NOTIFY ──┐
//!   watches ◀── hub ◀── ears ◀═══ LISTEN tenure ◀══════════════════════════════════════════════════════┘
//! ```
//!
//! The connection that listens also holds the locks by which others see that an on-disconnect session has lost it.
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
mod witness;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::ears::Ears;
use self::link::Link;
use self::rows::{Batch, Question};
use self::session::Session;
use self::settings::Settings;
use self::witness::Locks;
use super::hearing::Hearing;
use super::hub::Hub;
use super::room::Room;
use super::rules::check_batch;
use super::{
    Description, Entry, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Witness, Write,
};

const STORE: &str = "postgres";

/// A handle on the registers in a PostgreSQL database.
pub struct Postgres {
    settings: Arc<Settings>,
    link: Link,
    ears: Arc<Ears>,
    hub: Arc<Hub>,
    locks: Arc<Locks>,
    room: Room,
}

impl Postgres {
    /// Reads the URL and begins to connect, in the background. The server may be down: operations say so.
    ///
    /// # Errors
    /// If the URL cannot be read or contradicts itself, or if there is no thread left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(Settings::parse(url)?);
        let hub = Arc::new(Hub::default());
        let (link, keep) = link::keep(settings.clone(), hub.clone());
        let (ears, listen) = Ears::new(settings.clone(), hub.clone(), link.clone());
        let room = Room::open(STORE)?;
        room.spawn(keep);
        room.spawn(listen);
        let locks = Arc::new(Locks::default());
        room.spawn(locks.clone().look(link.clone(), hub.clone()));
        Ok(Self { settings, link, ears: Arc::new(ears), hub, locks, room })
    }

    /// Reads a URL, and nothing more.
    pub(super) fn check(url: &str) -> Result<(), StoreError> {
        Settings::parse(url).map(drop)
    }

    /// The statements that make the tables, for whoever may run them when this user may not.
    #[must_use]
    pub fn ddl() -> &'static str {
        schema::DDL
    }

    /// The least that a user needs who takes part in elections and makes no tables; `USER` stands for yours.
    #[must_use]
    pub fn grants() -> &'static str {
        schema::GRANTS
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Postgres {
    fn drop(&mut self) {
        self.hub.close();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("place", &self.settings.place)
            .field("room", &self.room)
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
            return self.room.check_open().map(|()| Vec::new());
        }
        let (link, question) = (self.link.clone(), Question::new(namespace, query));
        self.room
            .run(async move {
                let found = link.ask(|session| async move { session.read(&question.params()).await }).await?;
                Ok(found.iter().filter_map(rows::entry).collect())
            })
            .await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let batch = Batch::new(namespace, writes, self.settings.patience_ms());
        if batch.is_empty() {
            return self.room.check_open().map(|()| batch.outcomes(&[]));
        }
        let link = self.link.clone();
        self.room
            .run(async move {
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

    /// To a strict session a dropped connection means nothing: it needs no witness.
    async fn attest(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<Witness>, StoreError> {
        if takeover == Takeover::Strict {
            return self.room.check_open().map(|()| None);
        }
        let (locks, link, ears) = (self.locks.clone(), self.link.clone(), self.ears.clone());
        let of = (namespace.clone(), session);
        self.room.run(async move { locks.attest(of, &link, &ears).await }).await
    }

    fn release(&self, namespace: &Name, session: SessionId) {
        self.locks.release(&(namespace.clone(), session), &self.room);
    }

    fn attend(&self, namespace: &Name, session: SessionId, witness: &str, takeover: Takeover) {
        if takeover == Takeover::OnDisconnect {
            self.locks.attend((namespace.clone(), session), witness);
        }
    }

    fn ignore(&self, namespace: &Name, session: SessionId) {
        self.locks.ignore(&(namespace.clone(), session));
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let (settings, link, ears) = (self.settings.clone(), self.link.clone(), self.ears.clone());
        self.room
            .run(async move {
                link.ask(|_| async { Ok(()) }).await?;
                let hearing = tokio::time::timeout(settings.timeout, ears.hearing()).await;
                let hearing = hearing.unwrap_or_else(|_| Hearing::Failed("it takes too long".to_owned()));
                inspect::describe(&settings, &link, &hearing).await
            })
            .await
    }

    async fn close(&self) {
        self.hub.close();
        self.room.close().await;
    }
}
