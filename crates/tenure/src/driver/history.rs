//! The history of a role: its last tenures with their reasons, written after the fact, never on the hot path.
//!
//! Every leader writes down its own tenures, and closes the tenure of a predecessor that could not. What cannot be written
//! because the store is gone is remembered until it can be: no other node knows when a lease ran out.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::record::{EndReason, Session};
use tenure_core::{Event as EngineEvent, Key, Kind, Query, Timestamp, Version};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::DriverConfig;
use crate::history::{EndSource, RoleHistory, TenureRecord};
use crate::store::{Outcome, Retry, SharedStore, StoreError, Value, Write};
use crate::{Name, SessionId, Token};

/// The number of tenures kept for each role.
const KEPT: usize = 50;
/// The number of roles written at once.
const BATCH: usize = 128;
/// Elections come in swarms when a node dies: they have precedence over their history.
const PAUSE: Duration = Duration::from_millis(200);
/// While the store is gone, so many notes of one role are remembered, the oldest of which go first.
const REMEMBERED: usize = 2 * KEPT;

/// Takes notes for a task that writes them down.
pub(super) struct HistoryRecorder {
    notes: Option<mpsc::UnboundedSender<HistoryNote>>,
    task: JoinHandle<()>,
    clock: std::sync::Arc<dyn crate::clock::Clock>,
    session: Option<SessionId>,
    beat: Duration,
    /// How long a node that stops waits for its last notes to be written.
    patience: Duration,
}

#[derive(Debug)]
struct HistoryNote {
    role: Name,
    token: Token,
    at: Timestamp,
    kind: NoteKind,
}

#[derive(Debug)]
enum NoteKind {
    Began { session: SessionId },
    Ended { reason: EndReason },
}

impl HistoryRecorder {
    pub(super) fn start(config: &DriverConfig) -> Self {
        let (sender, notes) = mpsc::unbounded_channel();
        let writer = HistoryWriter {
            store: config.store.clone(),
            namespace: config.namespace.clone(),
            node: config.node.clone(),
        };
        Self {
            notes: Some(sender),
            task: tokio::spawn(writer.run(notes)),
            clock: config.clock.clone(),
            session: None,
            beat: config.timing.beat,
            patience: (2 * config.timing.op_timeout).max(Duration::from_secs(1)),
        }
    }

    /// `idle` is how long the loop had not turned before this event. One that was frozen notices late that it does not
    /// lead any more: its work stood still since then.
    pub(super) fn record(&mut self, event: &EngineEvent, idle: Duration) {
        let (role, token, kind) = match event {
            EngineEvent::SessionOpened { session } => return self.session = Some(*session),
            EngineEvent::Elected { role, token } => {
                let Some(session) = self.session else { return };
                (role, *token, NoteKind::Began { session })
            }
            EngineEvent::Lost { role, token, reason } => (role, *token, NoteKind::Ended { reason: *reason }),
            _ => return,
        };
        let frozen = matches!(kind, NoteKind::Ended { .. }) && idle > 2 * self.beat;
        let late = if frozen { u64::try_from(idle.as_micros()).unwrap_or(u64::MAX) } else { 0 };
        let at = Timestamp::from_micros(self.clock.wall().as_micros().saturating_sub(late));
        if let Some(notes) = &self.notes {
            let _ = notes.send(HistoryNote { role: role.clone(), token, at, kind });
        }
    }

    /// Writes down what is left. A store that is only slow gets as long for it as for two beats: no other node knows this end.
    pub(super) async fn finish(&mut self) {
        self.notes = None;
        let _ = tokio::time::timeout(self.patience, &mut self.task).await;
    }
}

impl Drop for HistoryRecorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn remember(pending: &mut BTreeMap<Name, Vec<HistoryNote>>, note: HistoryNote) {
    let notes = pending.entry(note.role.clone()).or_default();
    notes.push(note);
    let excess = notes.len().saturating_sub(REMEMBERED);
    notes.drain(..excess);
}

/// Writes notes into the history registers.
struct HistoryWriter {
    store: SharedStore,
    namespace: Name,
    node: Name,
}

impl HistoryWriter {
    async fn run(self, mut notes: mpsc::UnboundedReceiver<HistoryNote>) {
        let mut pending: BTreeMap<Name, Vec<HistoryNote>> = BTreeMap::new();
        while let Some(first) = notes.recv().await {
            remember(&mut pending, first);
            let mut pause = if notes.is_closed() { Duration::ZERO } else { PAUSE };
            while !pending.is_empty() {
                tokio::time::sleep(pause).await;
                while let Ok(note) = notes.try_recv() {
                    remember(&mut pending, note);
                }
                match self.write_all(&mut pending).await {
                    Ok(()) => {}
                    Err(error) if error.retry() == Retry::Never => {
                        tracing::debug!(%error, "some history was not written down");
                        pending.clear();
                    }
                    Err(error) => tracing::debug!(%error, "history waits for the store"),
                }
                pause = PAUSE;
            }
        }
    }

    /// Writes all of it, a batch at a time; what was not written stays.
    async fn write_all(&self, pending: &mut BTreeMap<Name, Vec<HistoryNote>>) -> Result<(), StoreError> {
        while !pending.is_empty() {
            let rest = pending.keys().nth(BATCH).cloned();
            let rest = rest.map_or_else(BTreeMap::new, |key| pending.split_off(&key));
            let written = self.write_batch(pending).await;
            match written {
                Ok(()) => *pending = rest,
                Err(error) => {
                    pending.extend(rest);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn write_batch(&self, batch: &BTreeMap<Name, Vec<HistoryNote>>) -> Result<(), StoreError> {
        // Only leaders write here, so that a conflict is rare; a few tries are enough for what is only for people.
        for _ in 0..5 {
            let Some(epoch) = crate::operator::epoch(&self.store, &self.namespace).await? else {
                return Ok(());
            };
            let key = |role: &Name| Key::Named(epoch, Kind::History, role.clone());
            let query = Query { keys: batch.keys().map(key).collect(), kinds: Vec::new() };
            let found = self.store.read(&self.namespace, &query).await?;
            let mut histories: BTreeMap<Name, (Option<Version>, RoleHistory)> =
                batch.keys().map(|role| (role.clone(), (None, RoleHistory::default()))).collect();
            // Tokens do not belong here; but the store does not let a token that is here be lost.
            let mut tokens = BTreeMap::new();
            for entry in found {
                if let Key::Named(_, _, role) = &entry.key {
                    tokens.extend(entry.value.token.map(|token| (role.clone(), token)));
                    let history = entry.value.parse().unwrap_or_default();
                    histories.insert(role.clone(), (Some(entry.version), history));
                }
            }
            let last_beats = self.last_beats(epoch, batch, &histories).await?;
            let mut writes = Vec::new();
            for (role, (expect, mut history)) in histories {
                let before = history.clone();
                batch[&role].iter().for_each(|note| self.apply_note(&mut history, note, &last_beats));
                if history != before {
                    let put = Some((
                        Version::new(crate::store::entropy::nonce()),
                        Value::of(&history, tokens.get(&role).copied()),
                    ));
                    writes.push(Write { key: key(&role), expect, put, notify: false, requires_lock: false });
                }
            }
            if writes.is_empty() {
                return Ok(());
            }
            let outcomes = self.store.write(&self.namespace, &writes).await?;
            if outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The sessions of predecessors whose tenure has no end yet: their last beat was its last sign of life.
    async fn last_beats(
        &self,
        epoch: tenure_core::Epoch,
        batch: &BTreeMap<Name, Vec<HistoryNote>>,
        histories: &BTreeMap<Name, (Option<Version>, RoleHistory)>,
    ) -> Result<BTreeMap<SessionId, Session>, StoreError> {
        let begun = |role: &Name| batch[role].iter().any(|note| matches!(note.kind, NoteKind::Began { .. }));
        let tenures =
            histories.iter().filter(|(role, _)| begun(role)).flat_map(|(_, (_, history))| &history.tenures);
        crate::operator::sessions_of_unfinished(&self.store, &self.namespace, epoch, tenures).await
    }

    fn apply_note(
        &self,
        history: &mut RoleHistory,
        note: &HistoryNote,
        last_beats: &BTreeMap<SessionId, Session>,
    ) {
        match &note.kind {
            NoteKind::Began { session } => {
                for tenure in history
                    .tenures
                    .iter_mut()
                    .filter(|tenure| tenure.ended.is_none() && tenure.token < note.token)
                {
                    let last = last_beats.get(&tenure.session);
                    let beat = last.map(|session| session.beat_at.min(note.at));
                    tenure.close_unrecorded(last.map(|session| session.state), beat, Some(note.at));
                }
                if history.tenures.iter().all(|tenure| tenure.token != note.token) {
                    let tenure = TenureRecord::new(note.token, self.node.clone(), *session, note.at);
                    history.tenures.push(tenure);
                }
                // Nodes write after the fact, and not always in order.
                history.tenures.sort_by_key(|tenure| tenure.token);
                let excess = history.tenures.len().saturating_sub(KEPT);
                history.tenures.drain(..excess);
            }
            NoteKind::Ended { reason } => {
                if let Some(tenure) = history.tenures.iter_mut().find(|tenure| tenure.token == note.token) {
                    // The leader itself knows best when and why.
                    tenure.ended = Some(note.at.max(tenure.began));
                    (tenure.measured, tenure.reason) = (Some(EndSource::Leader), Some(*reason));
                }
            }
        }
    }
}
