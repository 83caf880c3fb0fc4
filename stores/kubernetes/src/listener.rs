//! The watch: one stream from the server that is asked, for all Leases of this store.
//!
//! It begins at the revision of a list, and goes on from the last revision it came to, bookmarks included, when the server ends
//! it as servers do from time to time. Whatever else ends it, 410 above all, means looking again. A server whose watch lags
//! behind, while it takes writes, is found out by our own writes: the watch has to come to each of them.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval};

use super::connection::{Cluster, Question};
use super::error::Status;
use super::keys::Keys;
use super::leases::{Lease, LeaseList, STORE_LABEL};
use super::rows::escaped;
use tenure_store::kit::http::Lines;
use tenure_store::kit::listener::Listen;
use tenure_store::kit::servers::Choice;
use tenure_store::kit::watches::Watches;
use tenure_store::{Signal, StoreError};

/// How long one stream may last: not for ever, so that streams spread over servers that come back.
const LASTS: Duration = Duration::from_secs(600);

pub(super) struct KubernetesListener {
    pub(super) cluster: Arc<Cluster>,
    pub(super) keys: Keys,
    pub(super) watches: Arc<Watches>,
}

/// A stream, from which server it comes, and how far it has come.
pub(super) struct Stream {
    lines: Lines,
    choice: Choice,
    revision: u64,
}

/// One line of it.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

/// Why a stream is over.
enum End {
    /// The server ended it, and another goes on where it ended.
    Ended,
    /// Something may have been missed.
    Lost,
}

impl Listen for KubernetesListener {
    type Listening = Stream;

    async fn open(&mut self) -> Result<Option<Stream>, StoreError> {
        let path = format!("{}?limit=1&labelSelector={}", self.cluster.settings.leases(), self.selector());
        let list: LeaseList = self.cluster.read(&Question::get(path)).await?;
        let revision = list.metadata.resource_version.parse().map_err(|_| self.cluster.strange())?;
        self.watch_from(revision).await.map(Some)
    }

    async fn follow(&mut self, mut stream: Stream) {
        let cluster = self.cluster.clone();
        loop {
            let choice = stream.choice;
            let end = tokio::select! {
                end = self.receive(&mut stream) => end,
                () = cluster.servers.left(choice) => End::Lost,
            };
            match end {
                End::Lost => return,
                End::Ended => match self.watch_from(stream.revision).await {
                    Ok(next) => stream = next,
                    Err(_) => return,
                },
            }
        }
    }
}

impl KubernetesListener {
    fn selector(&self) -> String {
        escaped(&format!("{STORE_LABEL}={}", self.keys.prefix()))
    }

    async fn watch_from(&self, revision: u64) -> Result<Stream, StoreError> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={revision}&labelSelector={}",
            self.cluster.settings.leases(),
            LASTS.as_secs(),
            self.selector(),
        );
        let (lines, choice) = self.cluster.open(path).await?;
        Ok(Stream { lines, choice, revision })
    }

    /// Passes on what comes, and sees whether our own writes do.
    async fn receive(&self, stream: &mut Stream) -> End {
        let mut ticks = interval(self.cluster.settings.timeout);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = 0;
        loop {
            let line = tokio::select! {
                line = stream.lines.next() => line,
                _ = ticks.tick() => {
                    if due > stream.revision {
                        self.cluster.servers.leave(stream.choice);
                        return End::Lost;
                    }
                    due = self.cluster.written();
                    continue;
                }
            };
            let Ok(line) = line else { return End::Lost };
            let Some(line) = line else { return End::Ended };
            match serde_json::from_slice(&line).ok().and_then(|event| self.tell(event)) {
                Some(revision) => stream.revision = stream.revision.max(revision),
                None => return End::Lost,
            }
        }
    }

    /// Tells of one event, unless it is of a write that was not to notify; gives its revision. None if it says that the
    /// stream is worth nothing any more.
    fn tell(&self, event: Event) -> Option<u64> {
        if event.kind == "ERROR" || Status::deserialize(&event.object).is_ok_and(|status| status.code != 0) {
            return None;
        }
        let lease = Lease::deserialize(event.object).ok()?;
        let revision = lease.revision()?;
        if event.kind == "BOOKMARK" || !lease.notifies() {
            return Some(revision);
        }
        // What this version cannot have written is another program's, and means nothing.
        if let Some((namespace, key)) = lease.register(&self.keys) {
            self.watches.send(&namespace, &Signal::Changed(key));
        }
        Some(revision)
    }
}
