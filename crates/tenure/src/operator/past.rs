//! Past tenures as people want them: with an end, also where nobody was left to write it down.

use std::collections::BTreeMap;

use tenure_core::record::{Reason, Role, Session, SessionState};
use tenure_core::{Epoch, Key, Kind, Query};

use super::Operator;
use crate::history::{History, Past};
use crate::{Error, Name, SessionId};

impl Operator {
    /// Past tenures, of one role or of all, the newest last, and the one that goes on.
    ///
    /// History is written after the fact. What it lacks yet is taken from the registers: the newest tenure, and the end
    /// of one whose leader died.
    pub async fn history(&self, role: Option<&Name>) -> Result<BTreeMap<Name, History>, Error> {
        let Some(epoch) = super::epoch(&self.store, &self.namespace).await? else {
            return Ok(BTreeMap::new());
        };
        let kinds = [Kind::History, Kind::Role];
        let query = match role {
            Some(role) => Query {
                keys: kinds.map(|kind| Key::Named(epoch, kind, role.clone())).into(),
                kinds: Vec::new(),
            },
            None => Query { keys: Vec::new(), kinds: kinds.map(|kind| (epoch, kind)).into() },
        };
        let (mut books, mut roles) = (BTreeMap::<Name, History>::new(), BTreeMap::<Name, Role>::new());
        for entry in self.store.read(&self.namespace, &query).await? {
            match entry.key {
                Key::Named(_, Kind::History, role) => {
                    books.insert(role, entry.value.parse().unwrap_or_default());
                }
                Key::Named(_, _, role) => _ = entry.value.parse().map(|record| roles.insert(role, record)),
                _ => {}
            }
        }
        for (role, record) in &roles {
            begin(books.entry(role.clone()).or_default(), record);
        }
        let sessions = self.open_sessions(epoch, &books).await?;
        for (role, book) in &mut books {
            end(book, roles.get(role), &sessions);
        }
        Ok(books)
    }

    async fn open_sessions(
        &self,
        epoch: Epoch,
        books: &BTreeMap<Name, History>,
    ) -> Result<BTreeMap<SessionId, Session>, Error> {
        let open = books.values().flat_map(|book| &book.tenures).filter(|past| past.ended.is_none());
        let mut keys: Vec<Key> = open.map(|past| Key::Session(epoch, past.session)).collect();
        keys.sort_unstable();
        keys.dedup();
        let found = self.store.read(&self.namespace, &Query { keys, kinds: Vec::new() }).await?;
        let session = |entry: crate::store::Entry| match (&entry.key, entry.value.parse::<Session>()) {
            (Key::Session(_, id), Ok(session)) => Some((*id, session)),
            _ => None,
        };
        Ok(found.into_iter().filter_map(session).collect())
    }
}

/// Enters the newest tenure, if it is not written down yet.
fn begin(book: &mut History, record: &Role) {
    let Some(holder) = &record.holder else { return };
    if book.tenures.iter().any(|past| past.token >= record.token) {
        return;
    }
    let (node, session) = (holder.node.clone(), holder.session);
    let (token, began) = (record.token, record.since);
    book.tenures.push(Past { token, node, session, began, ended: None, reason: None });
}

/// Ends what is over although nobody has written so yet.
fn end(book: &mut History, record: Option<&Role>, sessions: &BTreeMap<SessionId, Session>) {
    let begins: Vec<_> = book.tenures.iter().map(|past| (past.token, past.began)).collect();
    for past in book.tenures.iter_mut().filter(|past| past.ended.is_none()) {
        let last = sessions.get(&past.session);
        let state = last.map_or(SessionState::Expelled, |session| session.state);
        let current = record.is_some_and(|record| record.token == past.token && record.holder.is_some());
        let given_up = record.filter(|record| record.token == past.token && record.holder.is_none());
        if current && state == SessionState::Live {
            continue;
        }
        if let Some(record) = given_up {
            (past.ended, past.reason) = (Some(record.since), Some(record.reason));
            continue;
        }
        let next = begins.iter().find(|(token, _)| *token > past.token).map(|(_, began)| *began);
        let beat = last.filter(|session| session.state != SessionState::Live).map(|session| session.beat_at);
        past.ended = beat.or(next).map(|at| at.max(past.began));
        past.reason = Some(if state == SessionState::Closed { Reason::Shutdown } else { Reason::Expelled });
    }
}
