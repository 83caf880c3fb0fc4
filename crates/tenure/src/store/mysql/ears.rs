//! The connection that listens, on a server that has nothing to listen to.
//!
//! It sleeps inside the server, in a statement that anybody can tell by its comment. Whoever has committed something that
//! rings looks up the sleepers and interrupts them (`bell`); they read what changed by the number of the bell, rest, look
//! once more, and sleep again.
//!
//! A ring that falls between reading and falling asleep wakes nobody. So whoever was woken sleeps shortly at first, then
//! twice as long each time: there is such a gap only soon after a change, and what is lost in it is found at the end of a
//! short sleep. (Reading and sleeping in one statement would leave no gap, and a snapshot open; in one text of two, an
//! interruption between them makes the server keep the second answer for ever.)
//!
//! On MariaDB it sleeps by waiting for a lock that our own connection for operations holds: in `SLEEP` all sleepers of a
//! server share one mutex there, and fifty that are woken by fifty stand still for many seconds.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row};
use tokio::sync::watch;

use super::super::hearing::{Hearing, Listening};
use super::super::hub::Hub;
use super::super::room::Backoff;
use super::super::{Entry, Name, Signal, StoreError};
use super::bell::Bell;
use super::fault;
use super::link::Link;
use super::rows;
use super::session::{connect, text_of};
use super::settings::Settings;

/// How long the first sleep lasts, and the longest. The server looks every few seconds whether the sleeper's client is
/// still there.
const NAP: Duration = Duration::from_millis(20);
const SLEEP: Duration = Duration::from_secs(3600);

/// So many changes at once are told one by one.
const BACKLOG: usize = 1024;

/// The connection that listens, and what keeps it open until dropped.
pub(super) fn listen(
    settings: Arc<Settings>,
    hub: Arc<Hub>,
    link: Link,
    bell: Arc<Bell>,
) -> (Listening, impl Future<Output = ()> + Send) {
    Listening::new(|hearing| Listener { settings, hub, link, bell, hearing }.listen())
}

struct Listener {
    settings: Arc<Settings>,
    hub: Arc<Hub>,
    link: Link,
    bell: Arc<Bell>,
    hearing: watch::Sender<Hearing>,
}

impl Listener {
    async fn listen(self) {
        let (mut backoff, mut seen) = (Backoff::default(), None);
        loop {
            match self.open().await {
                Ok(Some((ear, rung))) => {
                    backoff = Backoff::default();
                    if seen.is_some_and(|seen| rung < seen) {
                        // An older state was restored.
                        self.hub.send_all(&Signal::Forgot);
                    }
                    let seen = seen.insert(rung);
                    self.hearing.send_replace(Hearing::Works);
                    // Whatever happened before is not known.
                    self.hub.send_all(&Signal::Resync);
                    tokio::select! {
                        _ = self.hear(ear, seen) => {}
                        () = self.link.lost() => {}
                    }
                    self.hearing.send_replace(Hearing::Trying);
                }
                Ok(None) => drop(self.hearing.send_replace(Hearing::Pooled)),
                Err(error) => drop(self.hearing.send_replace(Hearing::Failed(error.to_string()))),
            }
            self.link.suspect();
            backoff.wait().await;
        }
    }

    /// The connection, and the number of the last ring; none if something stands between.
    async fn open(&self) -> Result<Option<(Ear, u64)>, StoreError> {
        let place = self.link.place();
        let session = place.connecting(self.link.session()).await?;
        if !session.direct {
            return Ok(None);
        }
        let bed = if session.is_mariadb { Some(self.make_bed().await?) } else { None };
        let connect = async {
            let (mut conn, server) = connect(&self.settings, None).await?;
            let failed = |error| fault::connecting(&self.settings.place, &error);
            let rung = conn.query_first("SELECT seq FROM tenure_bell").await.map_err(failed)?;
            Ok(server.direct.then_some((Ear { conn, bed }, rung.unwrap_or_default())))
        };
        place.connecting(connect).await
    }

    /// Has the connection for operations hold the lock that the ear waits for.
    async fn make_bed(&self) -> Result<String, StoreError> {
        let id = self.link.ask(|mut wire| async move {
            let id = wire.conn.id();
            // Held often is held: it ends with that connection.
            wire.conn.query_drop(format!("DO GET_LOCK('tenure-ear-{id}', 0)")).await?;
            Ok(id)
        });
        Ok(format!("tenure-ear-{}", id.await?))
    }

    /// Tells what changes, until the connection ends.
    async fn hear(&self, mut ear: Ear, seen: &mut u64) -> Result<(), Error> {
        let mut nap = NAP;
        loop {
            match self.look(&mut ear.conn, *seen).await {
                Ok(rung) if rung == *seen => match ear.sleep(nap).await? {
                    Slept::Through => nap = SLEEP.min(2 * nap),
                    Slept::Woken => nap = NAP,
                    Slept::Alone => return Ok(()),
                },
                Ok(rung) => {
                    *seen = rung;
                    // Where one thing happens, more do: among many, each hears of them together.
                    tokio::time::sleep(self.bell.rest()).await;
                }
                // Woken although awake.
                Err(error) if is_wake(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells what changed since, and gives the number of the last ring.
    async fn look(&self, conn: &mut Conn, seen: u64) -> Result<u64, Error> {
        let rows: Vec<Row> = conn.query(changes(seen)).await?;
        let mut changes: Vec<_> = rows.iter().filter_map(Change::read).collect();
        changes.sort_by_key(|change: &Change| change.seq);
        let rung = changes.iter().find(|change| matches!(change.what, What::Bell)).map(|bell| bell.seq);
        let Some(rung) = rung.filter(|rung| *rung >= seen) else {
            // It was set back: an older state was restored.
            self.hub.send_all(&Signal::Forgot);
            return Ok(rung.unwrap_or_default());
        };
        self.tell(changes);
        Ok(rung)
    }

    fn tell(&self, changes: Vec<Change>) {
        if changes.len() > BACKLOG {
            return self.hub.send_all(&Signal::Resync);
        }
        for change in changes {
            match change.what {
                What::Bell => {}
                What::Deleted(namespace) => self.hub.send(&namespace, &Signal::Resync),
                What::Changed(namespace, entry) => self.hub.send(&namespace, &Signal::Changed(entry)),
            }
        }
    }
}

/// The connection that listens.
struct Ear {
    conn: Conn,
    /// What it waits for in order to sleep, where sleeping itself is no good.
    bed: Option<String>,
}

/// How a sleep ended.
enum Slept {
    Through,
    Woken,
    /// The connection for operations is gone.
    Alone,
}

impl Ear {
    /// Sleeps inside the server, reading no table, so that neither a snapshot nor a lock of one is held.
    async fn sleep(&mut self, nap: Duration) -> Result<Slept, Error> {
        let nap = nap.as_secs_f64();
        let statement = match &self.bed {
            Some(lock) => format!("SELECT /* tenure ear */ GET_LOCK('{lock}', {nap})"),
            None => format!("SELECT /* tenure ear */ SLEEP({nap})"),
        };
        let slept = self.conn.query_first::<Option<u8>, _>(statement).await;
        match (slept.map(Option::flatten), &self.bed) {
            (Ok(Some(0)), _) => Ok(Slept::Through),
            (Ok(Some(_)), Some(_)) => Ok(Slept::Alone),
            (Ok(_), _) => Ok(Slept::Woken),
            (Err(error), _) if is_wake(&error) => Ok(Slept::Woken),
            (Err(error), _) => Err(error),
        }
    }
}

fn is_wake(error: &Error) -> bool {
    fault::code(error) == Some(fault::INTERRUPTED)
}

/// What rang after that number, and the number of the last ring, in one statement and so of one moment.
fn changes(seen: u64) -> String {
    format!(
        "(SELECT seq, NULL AS namespace, NULL AS epoch, NULL AS kind, NULL AS name, NULL AS version, NULL AS token, \
            NULL AS value FROM tenure_bell) UNION ALL \
         (SELECT seq, namespace, NULL, NULL, NULL, NULL, NULL, NULL FROM tenure_deletions WHERE seq > {seen}) UNION ALL \
         (SELECT seq, namespace, epoch, kind, name, version, token, value FROM tenure_registers WHERE seq > {seen} \
            ORDER BY seq LIMIT {})",
        BACKLOG + 1
    )
}

struct Change {
    seq: u64,
    what: What,
}

enum What {
    Bell,
    Deleted(Name),
    Changed(Name, Entry),
}

impl Change {
    fn read(row: &Row) -> Option<Self> {
        let seq = text_of(row, 0)?.parse().ok()?;
        let what = match text_of(row, 1) {
            None => What::Bell,
            Some(namespace) => {
                let namespace = Name::new(namespace).ok()?;
                match rows::entry_at(row, 2) {
                    Some(entry) => What::Changed(namespace, entry),
                    None => What::Deleted(namespace),
                }
            }
        };
        Some(Self { seq, what })
    }
}
