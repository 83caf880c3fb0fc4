//! MySQL and MariaDB: one table, one text of statements for each batch, and a bell made of sleepers that are woken.
//!
//! ```text
//!   read(), write() ──▶ link ═══▶ START TRANSACTION … COMMIT ─▶ bell ═══▶ KILL QUERY whoever sleeps ───┐
//!   watches ◀── hub ◀── ears ◀═══ what rang since ◀═══ SLEEP ◀────────────────────────────────────────┘
//! ```
//!
//! A handle has two connections and one thread, on which both live. See `docs/stores.md` for what it guarantees and how to
//! look into it, and `docs/adr/0012-mysql.md` for why it is so.

mod batch;
mod bell;
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
use mysql_async::Row;
use mysql_async::prelude::Queryable;
use tenure_core::record::{Record, SessionState};

use self::batch::Batch;
use self::bell::Bell;
use self::link::Link;
use self::settings::Settings;
use self::witness::{Lock, Witnesses};
use super::hearing::{Hearing, Listening};
use super::hub::Hub;
use super::room::Room;
use super::rules::check_batch;
use super::{
    Description, Entry, Kind, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Witness,
    Write,
};

const STORE: &str = "mysql";

/// A handle on the registers in a MySQL or MariaDB database.
pub struct Mysql {
    settings: Arc<Settings>,
    link: Link,
    bell: Arc<Bell>,
    ears: Arc<Listening>,
    witnesses: Arc<Witnesses>,
    hub: Arc<Hub>,
    room: Room,
}

impl Mysql {
    /// Reads the URL and begins to connect, in the background. The server may be down: operations say so.
    ///
    /// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters `timeout`, `ca` and `sslmode`.
    ///
    /// # Errors
    /// If the URL cannot be read or contradicts itself, or if there is no thread left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Arc::new(Settings::parse(url)?);
        let hub = Arc::new(Hub::default());
        let (link, keep) = Link::new(settings.clone(), hub.clone());
        let (bell, keep_ringing) = Bell::new(link.clone(), settings.timeout);
        let (ears, listen) = ears::listen(settings.clone(), hub.clone(), link.clone(), bell.clone());
        let witnesses = Arc::new(Witnesses::default());
        let room = Room::open(STORE)?;
        room.spawn(keep);
        room.spawn(keep_ringing);
        room.spawn(listen);
        room.spawn(witnesses.clone().look(link.clone(), hub.clone()));
        Ok(Self { settings, link, bell, ears: Arc::new(ears), witnesses, hub, room })
    }

    /// Reads a URL, and nothing more.
    pub(super) fn check(url: &str) -> Result<(), StoreError> {
        Settings::parse(url).map(drop)
    }

    /// The statements that make the tables, as the `mysql` client reads them, for whoever may run them when this user may
    /// not.
    #[must_use]
    pub fn ddl() -> &'static str {
        schema::DDL
    }

    /// The least that a user needs who takes part in elections and makes no tables; `DATABASE` and `USER` stand for yours.
    #[must_use]
    pub fn grants() -> &'static str {
        schema::GRANTS
    }
}

/// Carries a batch out, round by round. A failure of the only round, or of the first, is one of the whole. Tells also
/// whether something rings.
async fn write(link: &Link, mut batch: Batch) -> Result<(Vec<Outcome>, bool), StoreError> {
    let mut rung = false;
    for nth in 0..batch.rounds() {
        let round = batch.round(nth);
        match link.ask(|mut wire| async move { round.run(&mut wire).await }).await {
            Ok((outcomes, rings)) => {
                batch.note(nth, outcomes);
                rung |= rings;
            }
            Err(error) if nth == 0 => return Err(error),
            Err(error) => {
                batch.fail(nth, &error);
                break;
            }
        }
    }
    Ok((batch.outcomes(), rung))
}

/// Whether this write is the last of its session: nothing follows it, and the process may be gone in a moment.
fn is_farewell(write: &Write) -> bool {
    let rings = write.ring && write.key.kind() == Kind::Session;
    let value = write.put.as_ref().filter(|_| rings).map(|(_, value)| value.to_record(&write.key));
    matches!(value, Some(Record::Session(session)) if session.state == SessionState::Closed)
}

/// A watch that outlives its store would wait for ever.
impl Drop for Mysql {
    fn drop(&mut self) {
        self.hub.close();
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql")
            .field("place", &self.settings.place)
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mysql://{}", self.settings.place)
    }
}

#[async_trait]
impl Store for Mysql {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.room.check_open().map(|()| Vec::new());
        }
        let (link, text) = (self.link.clone(), rows::select(namespace, query));
        let work = async move {
            let found: Vec<Row> =
                link.ask(|mut wire| async move { Ok(wire.conn.query(text).await?) }).await?;
            Ok(found.iter().filter_map(rows::entry).collect())
        };
        self.room.run(work).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let batch = Batch::new(namespace, writes, |lock| self.witnesses.may_hold(lock));
        if batch.is_empty() {
            return self.room.check_open().map(|()| batch.outcomes());
        }
        // The answer does not wait for the bell, unless whoever waits for it may end right afterwards: an operator's command,
        // which listens to nothing, or a node that says goodbye.
        let waits = !self.ears.is_open() || writes.iter().any(is_farewell);
        let (link, bell) = (self.link.clone(), self.bell.clone());
        let work = async move {
            let (outcomes, rings) = write(&link, batch).await?;
            if rings {
                bell.ring();
            }
            if rings && waits {
                bell.silent().await;
            }
            Ok(outcomes)
        };
        self.room.run(work).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.hub.watch(namespace);
        self.ears.open();
        watch
    }

    async fn attest(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<Witness>, StoreError> {
        self.room.check_open()?;
        let lock = Lock::new(namespace, session);
        if takeover == Takeover::Strict || !self.witnesses.begin(&lock) {
            return Ok(None);
        }
        let link = self.link.clone();
        self.room.run(async move { witness::take(&link, lock).await }).await
    }

    fn release(&self, namespace: &Name, session: SessionId) {
        let lock = Lock::new(namespace, session);
        if self.witnesses.end(&lock) {
            let link = self.link.clone();
            self.room.spawn(async move { witness::let_go(&link, lock).await });
        }
    }

    fn attend(&self, namespace: &Name, session: SessionId, witness: &str, takeover: Takeover) {
        if takeover == Takeover::OnDisconnect {
            self.witnesses.attend(namespace, session, witness);
        }
    }

    fn ignore(&self, namespace: &Name, session: SessionId) {
        self.witnesses.ignore(namespace, session);
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let (settings, link, ears) = (self.settings.clone(), self.link.clone(), self.ears.clone());
        let work = async move {
            link.ask(|_| async { Ok(()) }).await?;
            let hearing = tokio::time::timeout(settings.timeout, ears.hearing()).await;
            let hearing = hearing.unwrap_or_else(|_| Hearing::Failed("it takes too long".to_owned()));
            inspect::describe(&settings, &link, &hearing).await
        };
        self.room.run(work).await
    }

    async fn close(&self) {
        self.hub.close();
        let bell = self.bell.clone();
        let ringing = async move {
            bell.silent().await;
            Ok(())
        };
        let _ = self.room.run(ringing).await;
        self.room.close().await;
    }
}
