//! The history of a role: its last tenures with their reasons, written after the fact, never on the hot path.
//!
//! Every leader writes down its own tenures, and closes the books of a predecessor that could not.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::record::{Reason, Session, SessionState};
use tenure_core::{Event as Told, Key, Kind, Query, Version, Wall};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Setup;
use crate::history::{History, Past};
use crate::store::{Outcome, SharedStore, StoreError, Value, Write};
use crate::{Name, SessionId, Token};

/// So many tenures are kept of each role.
const KEPT: usize = 50;
/// So many roles are written down at once.
const BATCH: usize = 128;
/// Elections come in swarms when a node dies: they have precedence over their history.
const PAUSE: Duration = Duration::from_millis(200);

/// Takes notes for a task that writes them down.
pub(super) struct Historian {
    notes: Option<mpsc::UnboundedSender<Note>>,
    task: JoinHandle<()>,
    clock: std::sync::Arc<dyn crate::clock::Clock>,
    session: Option<SessionId>,
}

#[derive(Debug)]
struct Note {
    role: Name,
    token: Token,
    at: Wall,
    what: Noted,
}

#[derive(Debug)]
enum Noted {
    Began { session: SessionId },
    Ended { reason: Reason },
}

impl Historian {
    pub(super) fn start(setup: &Setup) -> Self {
        let (sender, notes) = mpsc::unbounded_channel();
        let scribe = Scribe {
            store: setup.store.clone(),
            namespace: setup.namespace.clone(),
            node: setup.node.clone(),
        };
        Self {
            notes: Some(sender),
            task: tokio::spawn(scribe.run(notes)),
            clock: setup.clock.clone(),
            session: None,
        }
    }

    pub(super) fn note(&mut self, event: &Told) {
        let (role, token, what) = match event {
            Told::SessionOpened { session } => return self.session = Some(*session),
            Told::Elected { role, token } => {
                let Some(session) = self.session else { return };
                (role, *token, Noted::Began { session })
            }
            Told::Lost { role, token, reason } => (role, *token, Noted::Ended { reason: *reason }),
            _ => return,
        };
        if let Some(notes) = &self.notes {
            let _ = notes.send(Note { role: role.clone(), token, at: self.clock.wall(), what });
        }
    }

    /// Writes down what is left, if that does not take too long.
    pub(super) async fn finish(&mut self) {
        self.notes = None;
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut self.task).await;
    }
}

impl Drop for Historian {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes notes into the history registers.
struct Scribe {
    store: SharedStore,
    namespace: Name,
    node: Name,
}

impl Scribe {
    async fn run(self, mut notes: mpsc::UnboundedReceiver<Note>) {
        let mut pending: BTreeMap<Name, Vec<Note>> = BTreeMap::new();
        while let Some(first) = notes.recv().await {
            pending.entry(first.role.clone()).or_default().push(first);
            if !notes.is_closed() {
                tokio::time::sleep(PAUSE).await;
            }
            while let Ok(note) = notes.try_recv() {
                pending.entry(note.role.clone()).or_default().push(note);
            }
            while !pending.is_empty() {
                let rest = pending.keys().nth(BATCH).cloned();
                let rest = rest.map_or_else(BTreeMap::new, |key| pending.split_off(&key));
                let batch = std::mem::replace(&mut pending, rest);
                if let Err(error) = self.write_down(&batch).await {
                    tracing::debug!(%error, "some history was not written down");
                }
            }
        }
    }

    async fn write_down(&self, batch: &BTreeMap<Name, Vec<Note>>) -> Result<(), StoreError> {
        // Only leaders write here, so that a conflict is rare; a few tries are enough for what is only for people.
        for _ in 0..5 {
            let Some(epoch) = crate::operator::epoch(&self.store, &self.namespace).await? else {
                return Ok(());
            };
            let key = |role: &Name| Key::Named(epoch, Kind::History, role.clone());
            let query = Query { keys: batch.keys().map(key).collect(), kinds: Vec::new() };
            let found = self.store.read(&self.namespace, &query).await?;
            let mut books: BTreeMap<Name, (Option<Version>, History)> =
                batch.keys().map(|role| (role.clone(), (None, History::default()))).collect();
            for entry in found {
                if let Key::Named(_, _, role) = &entry.key {
                    let history = entry.value.parse().unwrap_or_default();
                    books.insert(role.clone(), (Some(entry.version), history));
                }
            }
            let last_beats = self.last_beats(epoch, batch, &books).await?;
            let mut writes = Vec::new();
            for (role, (expect, mut history)) in books {
                let before = history.clone();
                batch[&role].iter().for_each(|note| self.enter(&mut history, note, &last_beats));
                if history != before {
                    let put = Some((Version(crate::clock::nonce()), Value::of(&history, None)));
                    writes.push(Write { key: key(&role), expect, put, ring: false, witnessed: false });
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
        batch: &BTreeMap<Name, Vec<Note>>,
        books: &BTreeMap<Name, (Option<Version>, History)>,
    ) -> Result<BTreeMap<SessionId, Session>, StoreError> {
        let begun = |role: &Name| batch[role].iter().any(|note| matches!(note.what, Noted::Began { .. }));
        let tenures =
            books.iter().filter(|(role, _)| begun(role)).flat_map(|(_, (_, history))| &history.tenures);
        crate::operator::sessions_of_open(&self.store, &self.namespace, epoch, tenures).await
    }

    fn enter(&self, history: &mut History, note: &Note, last_beats: &BTreeMap<SessionId, Session>) {
        match &note.what {
            Noted::Began { session } => {
                for past in
                    history.tenures.iter_mut().filter(|past| past.ended.is_none() && past.token < note.token)
                {
                    let last = last_beats.get(&past.session);
                    past.ended =
                        Some(last.map_or(note.at, |session| session.beat_at.max(past.began).min(note.at)));
                    past.reason = Some(match last.map(|session| session.state) {
                        Some(SessionState::Closed) => Reason::Shutdown,
                        _ => Reason::Expelled,
                    });
                }
                if history.tenures.iter().all(|past| past.token != note.token) {
                    let (node, session) = (self.node.clone(), *session);
                    history.tenures.push(Past {
                        token: note.token,
                        node,
                        session,
                        began: note.at,
                        ended: None,
                        reason: None,
                    });
                }
                // Nodes write after the fact, and not always in order.
                history.tenures.sort_by_key(|past| past.token);
                let excess = history.tenures.len().saturating_sub(KEPT);
                history.tenures.drain(..excess);
            }
            Noted::Ended { reason } => {
                if let Some(past) = history.tenures.iter_mut().find(|past| past.token == note.token) {
                    // Whoever was there knows best why; but one that was frozen noticed late, and its successor knows when.
                    past.ended = Some(past.ended.map_or(note.at, |known| known.min(note.at)));
                    past.reason = Some(*reason);
                }
            }
        }
    }
}
