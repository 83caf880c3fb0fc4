//! The notifier: after a change that matters was committed, listeners that sleep inside the server are woken.
//!
//! A write is answered first and notified afterwards, by one notifier for each handle; what is written meanwhile is notified
//! together, once more. Its questions go one by one on the connection for operations, so that a beat waits for one of them
//! at most.
//!
//! Many notifiers would meet many sleepers when a fleet starts: fifty by fifty interruptions, for which the server stands
//! still. So one of them notifies for all, the one that holds the lock of the notifier. A node that finds it held has committed
//! before, and leaves it to the holder, who looks at the number of the notifier *after* letting go and begins again if it has
//! risen. No listener is woken twice by one notification, and one that was woken is left out of it until it has rested (`listener`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::{sets, text_of};
use super::error::{self, OperationError};
use super::operations::Operations;

/// Our connections, and whether each is asleep; the mark is put together here so that the question does not find itself.
const CENSUS: &str = "SELECT ID, INFO LIKE CONCAT('%/* tenure', ' listener */%') FROM information_schema.PROCESSLIST WHERE \
    DB = DATABASE() AND USER = SUBSTRING_INDEX(USER(), '@', 1)";

/// The lock of the notifier: one for all that can wake each other, however long their names are. Every login of the server can
/// take a lock whose name it knows, and the id of these tables is known only to those who may read the tables. (MySQL 9.6 and later
/// have no MD5 unless a component is installed.)
const NOTIFIER_LOCK: &str = "CONCAT('tenure-notifier-', LEFT(SHA2(CONCAT(SUBSTRING_INDEX(USER(), '@', 1), '@', DATABASE(), \
    '@', (SELECT id FROM tenure_schema)), 256), 32))";

/// So many are woken by one text, which a beat may have to wait for.
const AT_ONCE: usize = 16;

/// Listeners look no more often than so many times a second, all of them together, however often they are notified.
const LOOKS: u32 = 2000;
/// The longest rest: what happens meanwhile is read so much later.
const LONGEST: Duration = Duration::from_millis(50);

/// The notifier of a handle.
#[derive(Debug)]
pub(super) struct Notifier {
    asked: watch::Sender<u64>,
    notified: watch::Sender<u64>,
    /// How many of our connections there were at the last notification.
    crowd: AtomicU64,
}

impl Notifier {
    /// A notifier, and what drives it until dropped. No notification takes much longer than `patience`.
    pub(super) fn new(
        operations: Operations,
        patience: Duration,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let notifier =
            Self { asked: watch::Sender::new(0), notified: watch::Sender::new(0), crowd: AtomicU64::new(0) };
        let notifier = Arc::new(notifier);
        (notifier.clone(), notifier.keep_notifying(operations, patience))
    }

    /// Something was committed that others should know.
    pub(super) fn notify(&self) {
        self.asked.send_modify(|asked| *asked += 1);
    }

    /// Waits until everything that was asked for so far has been notified, or given up.
    pub(super) async fn silent(&self) {
        let asked = *self.asked.borrow();
        let _ = self.notified.subscribe().wait_for(|notified| *notified >= asked).await;
    }

    /// How long a listener that has just read something rests before it looks again.
    pub(super) fn rest(&self) -> Duration {
        // Each listener has another connection for its operations.
        let listeners = u32::try_from(self.crowd.load(Ordering::Relaxed) / 2).unwrap_or(u32::MAX);
        (Duration::from_secs(1) / LOOKS).saturating_mul(listeners.max(2)).min(LONGEST)
    }

    async fn keep_notifying(self: Arc<Self>, operations: Operations, patience: Duration) {
        let mut asked = self.asked.subscribe();
        while asked.changed().await.is_ok() {
            let notifying = *asked.borrow_and_update();
            self.notify_for_all(&operations, Instant::now() + patience).await;
            self.notified.send_replace(notifying);
        }
    }

    /// Notifies until it has been quiet, or leaves it to the handle that does so already. What cannot be notified is found at the next
    /// beat.
    async fn notify_for_all(&self, operations: &Operations, until: Instant) {
        while Instant::now() < until {
            let Ok(Some(notified)) =
                operations.ask(|mut wire| async move { begin(&mut wire.conn).await }).await
            else {
                return;
            };
            self.wake_all(operations, until).await;
            match operations.ask(|mut wire| async move { end(&mut wire.conn).await }).await {
                Ok(last) if last != Some(notified) => tokio::time::sleep(self.rest()).await,
                _ => return,
            }
        }
    }

    /// Wakes every listener that sleeps, some at a time.
    async fn wake_all(&self, operations: &Operations, until: Instant) {
        let mut woken = BTreeSet::new();
        while Instant::now() < until {
            let Ok(found) = operations.ask(|mut wire| async move { census(&mut wire.conn).await }).await
            else {
                return;
            };
            self.crowd.store(found.len() as u64, Ordering::Relaxed);
            let asleep = found.into_iter().filter(|(id, asleep)| *asleep && !woken.contains(id));
            let mut asleep: Vec<u64> = asleep.map(|(id, _)| id).collect();
            let last = asleep.len() <= AT_ONCE;
            asleep.truncate(AT_ONCE);
            let some = asleep.clone();
            match operations.ask(|mut wire| async move { wake(&mut wire.conn, &some).await }).await {
                Ok(true) if last => return,
                Ok(true) => woken.extend(asleep),
                // A listener went away just then; the rest is found again.
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }
}

/// The number of the notifier, if no other handle is notifying. A lock that could not be let go the last time is first.
async fn begin(conn: &mut Conn) -> Result<Option<u64>, OperationError> {
    let text = format!(
        "DO RELEASE_LOCK({NOTIFIER_LOCK}); SELECT GET_LOCK({NOTIFIER_LOCK}, 0), (SELECT seq FROM tenure_notifier)"
    );
    let sets = sets(conn, &text).await.map_err(|failed| failed.error)?;
    let number = |row: &Row| (text_of(row, 0)? == "1").then(|| text_of(row, 1)?.parse().ok())?;
    Ok(sets.iter().flatten().find_map(number))
}

/// Lets another handle notify, and tells the number of the notifier as it is then: a statement of its own, which sees what was committed
/// by the node that found the lock held.
async fn end(conn: &mut Conn) -> Result<Option<u64>, OperationError> {
    let text = format!("DO RELEASE_LOCK({NOTIFIER_LOCK}); SELECT seq FROM tenure_notifier");
    let sets = sets(conn, &text).await.map_err(|failed| failed.error)?;
    Ok(sets.iter().flatten().find_map(|row| text_of(row, 0)?.parse().ok()))
}

async fn census(conn: &mut Conn) -> Result<Vec<(u64, bool)>, OperationError> {
    let rows: Vec<Row> = conn.query(CENSUS).await?;
    let read = |row: &Row| Some((text_of(row, 0)?.parse().ok()?, text_of(row, 1).as_deref() == Some("1")));
    Ok(rows.iter().filter_map(read).collect())
}

/// Whether all of them were woken: one that is not there any more ends the text.
async fn wake(conn: &mut Conn, asleep: &[u64]) -> Result<bool, OperationError> {
    if asleep.is_empty() {
        return Ok(true);
    }
    let text: Vec<_> = asleep.iter().map(|id| format!("KILL QUERY {id}")).collect();
    match sets(conn, &text.join("; ")).await {
        Ok(_) => Ok(true),
        Err(failed) if error::code(&failed.error).is_some() => Ok(false),
        Err(failed) => Err(failed.error.into()),
    }
}
