//! The watch: one stream from the member that is asked, for all changes that notify, from now on.
//!
//! Every opening is followed by a resync, so that no revision has to be remembered: a compaction, a cancelled watch, a lost
//! stream and a lost member all mean the same. A member that loses its leader ends its streams; one that stops answering is
//! left by the operations, and the watch follows them.

use std::sync::Arc;

use tokio::time::timeout;

use super::connection::{Members, path};
use super::error::{self, Failure, Then};
use super::keys::Keys;
use super::messages::{Event, Range, Watch, WatchLine};
use tenure_store::kit::http::Lines;
use tenure_store::kit::listener::Listen;
use tenure_store::kit::paths::read_path;
use tenure_store::kit::servers::Choice;
use tenure_store::kit::watches::Watches;
use tenure_store::{Signal, StoreError};

pub(super) struct EtcdListener {
    pub(super) members: Arc<Members>,
    pub(super) keys: Keys,
    pub(super) watches: Arc<Watches>,
}

impl Listen for EtcdListener {
    type Listening = (Lines, Choice);

    async fn open(&mut self) -> Result<Option<Self::Listening>, StoreError> {
        let question = Watch { create_request: Range::below(&self.keys.changes()) };
        let (mut lines, choice) = self.members.open(path::WATCH, &question).await?;
        let created = self.created(&mut lines, choice).await;
        if created.as_ref().is_err_and(|failure| failure.then == Then::LogIn) {
            self.members.log_in_again().await;
        }
        created.map_err(|failure| self.members.no_stream(choice, failure))?;
        Ok(Some((lines, choice)))
    }

    async fn follow(&mut self, (mut lines, choice): Self::Listening) {
        let members = self.members.clone();
        tokio::select! {
            () = self.receive(&mut lines, choice) => {}
            () = members.left(choice) => {}
        }
    }
}

impl EtcdListener {
    /// Waits until the member says that the watch stands.
    async fn created(&self, lines: &mut Lines, choice: Choice) -> Result<(), Failure> {
        let patience = self.members.settings.timeout;
        let line = timeout(patience, self.line(lines, choice)).await;
        let line = line.map_err(|_| error::late(&self.members.place(choice), patience))??;
        match line.result.created {
            true => Ok(()),
            false => Err(error::strange(&self.members.place(choice))),
        }
    }

    async fn receive(&self, lines: &mut Lines, choice: Choice) {
        while let Ok(line) = self.line(lines, choice).await {
            line.result.events.iter().for_each(|event| self.tell(event));
        }
    }

    /// The next line; what ends the stream is a failure.
    async fn line(&self, lines: &mut Lines, choice: Choice) -> Result<WatchLine, Failure> {
        let place = self.members.place(choice);
        let line = lines.next().await.map_err(|error| error::unanswered(&place, &error))?;
        let line = line.ok_or_else(|| error::of_message(&place, "the stream ended"))?;
        let line: WatchLine = serde_json::from_slice(&line).map_err(|_| error::strange(&place))?;
        match (&line.error, line.result.canceled) {
            (Some(refusal), _) => Err(error::of_message(&place, &refusal.message)),
            (None, true) => {
                let (why, compacted) = (&line.result.cancel_reason, line.result.compact_revision);
                Err(error::of_message(&place, &format!("the watch was cancelled at {compacted}: {why}")))
            }
            (None, false) => Ok(line),
        }
    }

    /// What this version cannot have written is another program's, and means nothing.
    fn tell(&self, event: &Event) {
        let put = event.kind.as_deref().is_none_or(|kind| kind == "PUT");
        if let Some((namespace, key)) = read_path(&event.kv.value.0).filter(|_| put) {
            self.watches.send(&namespace, &Signal::Changed(key));
        }
    }
}
