//! The connection that listens, on a server that has nothing to listen to.
//!
//! It sleeps inside the server, in a statement that people can tell by its comment. A node that has committed something that
//! notifies looks up the sleepers and interrupts them (`notifier`); they read what changed by the number of the notifier, rest, look
//! once more, and sleep again.
//!
//! A notification that falls between reading and falling asleep wakes no listener. So a listener that was woken sleeps shortly at first, then
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
use tenure_core::Entropy as _;

use super::connection::{connect, text_of};
use super::error;
use super::notifier::Notifier;
use super::operations::Operations;
use super::rows;
use super::settings::MysqlSettings;
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::listener::{Listen, ListenerHandle};
use tenure_store::kit::watches::Watches;
use tenure_store::{Key, Name, Signal, StoreError};

/// How long the first sleep lasts, and the longest. The server looks every few seconds whether the sleeper's client is
/// still there.
const NAP: Duration = Duration::from_millis(20);
const SLEEP: Duration = Duration::from_secs(3600);

/// So many changes at once are told one by one.
const BACKLOG: usize = 1024;

/// The connection that listens, and what keeps it open until dropped.
pub(super) fn listen(
    settings: Arc<MysqlSettings>,
    watches: Arc<Watches>,
    operations: Operations,
    notifier: Arc<Notifier>,
) -> (ListenerHandle, impl Future<Output = ()> + Send) {
    let secret = KernelEntropy.nonce() as u64;
    let task = ListenerTask { settings, watches: watches.clone(), operations, notifier, secret, seen: None };
    ListenerHandle::new(watches, task)
}

struct ListenerTask {
    settings: Arc<MysqlSettings>,
    watches: Arc<Watches>,
    operations: Operations,
    notifier: Arc<Notifier>,
    /// Part of the name of a lock, which every login of the server could take if it could guess it.
    secret: u64,
    /// The number of the last notification that was read.
    seen: Option<u64>,
}

impl Listen for ListenerTask {
    type Listening = SleepingConnection;

    async fn open(&mut self) -> Result<Option<Self::Listening>, StoreError> {
        let Some((sleeper, notified)) = self.connect().await? else { return Ok(None) };
        // The server may have been started anew while this one was not connected, and the other one not asked: an idle handle
        // would not notice that an older state was restored.
        self.operations.suspect();
        if self.seen.replace(notified).is_some_and(|seen| notified < seen) {
            // An older state was restored.
            self.watches.send_all(&Signal::Forgot);
        }
        Ok(Some(sleeper))
    }

    async fn follow(&mut self, sleeper: Self::Listening) {
        let mut seen = self.seen.unwrap_or_default();
        tokio::select! {
            _ = self.read_on(sleeper, &mut seen) => {}
            () = self.operations.lost() => {}
        }
        self.seen = Some(seen);
    }

    /// The connection for operations may be lost too.
    fn lost(&mut self) {
        self.operations.suspect();
    }
}

impl ListenerTask {
    /// The connection, and the number of the last notification; none if something stands between.
    async fn connect(&self) -> Result<Option<(SleepingConnection, u64)>, StoreError> {
        let server = self.operations.server();
        let connection = server.connecting(self.operations.connection()).await?;
        if !connection.direct {
            return Ok(None);
        }
        let sleep_lock = if connection.is_mariadb { Some(self.take_sleep_lock().await?) } else { None };
        let connect = async {
            let (mut conn, found) = connect(&self.settings, None).await?;
            let failed = |error| error::connecting(&self.settings.place, &error);
            let notified = conn.query_first("SELECT seq FROM tenure_notifier").await.map_err(failed)?;
            Ok(found
                .direct
                .then_some((SleepingConnection { conn, sleep_lock }, notified.unwrap_or_default())))
        };
        server.connecting(connect).await
    }

    /// Has the connection for operations hold the lock that the listener waits for.
    async fn take_sleep_lock(&self) -> Result<String, StoreError> {
        let secret = self.secret;
        let sleep_lock = self.operations.ask(|mut wire| async move {
            let sleep_lock = format!("tenure-listener-{}-{secret:016x}", wire.conn.id());
            // Held often is held: it ends with that connection.
            wire.conn.query_drop(format!("DO GET_LOCK('{sleep_lock}', 0)")).await?;
            Ok(sleep_lock)
        });
        sleep_lock.await
    }

    /// Tells what changes, until the connection ends.
    async fn read_on(&self, mut sleeper: SleepingConnection, seen: &mut u64) -> Result<(), Error> {
        let mut nap = NAP;
        loop {
            match self.look(&mut sleeper.conn, *seen).await {
                Ok(notified) if notified == *seen => match sleeper.sleep(nap).await? {
                    Slept::Through => nap = SLEEP.min(2 * nap),
                    Slept::Woken => nap = NAP,
                    Slept::Alone => return Ok(()),
                },
                Ok(notified) => {
                    *seen = notified;
                    // Where one thing happens, more do: among many, each reads them together.
                    tokio::time::sleep(self.notifier.rest()).await;
                }
                // Woken although awake.
                Err(error) if is_wake(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells what changed since, and gives the number of the last notification.
    async fn look(&self, conn: &mut Conn, seen: u64) -> Result<u64, Error> {
        let rows: Vec<Row> = conn.query(changes(seen)).await?;
        let mut changes: Vec<_> = rows.iter().filter_map(Change::read).collect();
        changes.sort_by_key(|change: &Change| change.seq);
        let notified =
            changes.iter().find(|change| matches!(change.what, What::Notifier)).map(|notifier| notifier.seq);
        let Some(notified) = notified.filter(|notified| *notified >= seen) else {
            // It was set back: an older state was restored.
            self.watches.send_all(&Signal::Forgot);
            return Ok(notified.unwrap_or_default());
        };
        self.tell(changes);
        Ok(notified)
    }

    fn tell(&self, changes: Vec<Change>) {
        if changes.len() > BACKLOG {
            return self.watches.send_all(&Signal::Resync);
        }
        for change in changes {
            match change.what {
                What::Notifier => {}
                What::Deleted(namespace) => self.watches.send(&namespace, &Signal::Resync),
                What::Changed(namespace, key) => self.watches.send(&namespace, &Signal::Changed(key)),
            }
        }
    }
}

/// The connection that listens.
struct SleepingConnection {
    conn: Conn,
    /// What it waits for in order to sleep, where sleeping itself is no good.
    sleep_lock: Option<String>,
}

/// How a sleep ended.
enum Slept {
    Through,
    Woken,
    /// The connection for operations is gone.
    Alone,
}

impl SleepingConnection {
    /// Sleeps inside the server, reading no table, so that neither a snapshot nor a lock of one is held.
    async fn sleep(&mut self, nap: Duration) -> Result<Slept, Error> {
        let nap = nap.as_secs_f64();
        let statement = match &self.sleep_lock {
            Some(lock) => format!("SELECT /* tenure listener */ GET_LOCK('{lock}', {nap})"),
            None => format!("SELECT /* tenure listener */ SLEEP({nap})"),
        };
        let slept = self.conn.query_first::<Option<u8>, _>(statement).await;
        match (slept.map(Option::flatten), &self.sleep_lock) {
            (Ok(Some(0)), _) => Ok(Slept::Through),
            (Ok(Some(_)), Some(_)) => Ok(Slept::Alone),
            (Ok(_), _) => Ok(Slept::Woken),
            (Err(error), _) if is_wake(&error) => Ok(Slept::Woken),
            (Err(error), _) => Err(error),
        }
    }
}

fn is_wake(error: &Error) -> bool {
    error::code(error) == Some(error::INTERRUPTED)
}

/// What changed after that number, and the number of the last notification, in one statement and so of one moment.
fn changes(seen: u64) -> String {
    format!(
        "(SELECT seq, NULL AS namespace, NULL AS epoch, NULL AS kind, NULL AS name FROM tenure_notifier) UNION ALL \
         (SELECT seq, namespace, NULL, NULL, NULL FROM tenure_deletions WHERE seq > {seen}) UNION ALL \
         (SELECT seq, namespace, epoch, kind, name FROM tenure_registers WHERE seq > {seen} \
            ORDER BY seq LIMIT {})",
        BACKLOG + 1
    )
}

struct Change {
    seq: u64,
    what: What,
}

enum What {
    Notifier,
    Deleted(Name),
    Changed(Name, Key),
}

impl Change {
    fn read(row: &Row) -> Option<Self> {
        let seq = text_of(row, 0)?.parse().ok()?;
        let what = match text_of(row, 1) {
            None => What::Notifier,
            Some(namespace) => {
                let namespace = Name::new(namespace).ok()?;
                match rows::key_at(row, 2) {
                    Some(key) => What::Changed(namespace, key),
                    None => What::Deleted(namespace),
                }
            }
        };
        Some(Self { seq, what })
    }
}
