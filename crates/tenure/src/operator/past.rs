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
        self.past(role.map(std::slice::from_ref)).await
    }

    /// Past tenures of some roles.
    pub async fn histories(&self, roles: &[Name]) -> Result<BTreeMap<Name, History>, Error> {
        self.past(Some(roles)).await
    }

    async fn past(&self, roles: Option<&[Name]>) -> Result<BTreeMap<Name, History>, Error> {
        let Some(epoch) = super::epoch(&self.store, &self.namespace).await? else {
            return Ok(BTreeMap::new());
        };
        let (kinds, everything) = ([Kind::History, Kind::Role], roles.is_none());
        let query = match roles {
            Some(roles) => {
                let keys = |role: &Name| kinds.map(|kind| Key::Named(epoch, kind, role.clone()));
                Query { keys: roles.iter().flat_map(keys).collect(), kinds: Vec::new() }
            }
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
        if everything {
            books.retain(|role, _| !super::is_internal(role));
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
        let tenures = books.values().flat_map(|book| &book.tenures);
        Ok(super::sessions_of_open(&self.store, &self.namespace, epoch, tenures).await?)
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

/// Ends what is over although nobody has written so yet. Nodes write down their own tenures, each when it comes to it:
/// only the token tells the order.
fn end(book: &mut History, record: Option<&Role>, sessions: &BTreeMap<SessionId, Session>) {
    book.tenures.sort_by_key(|past| past.token);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::record::Holder;
    use tenure_core::{Takeover, Wall};

    use super::*;
    use crate::Token;

    fn past(token: u64, ended: Option<u64>) -> Past {
        let (node, session) = (Name::new("a").unwrap(), SessionId(u128::from(token)));
        let reason = ended.map(|_| Reason::Resigned);
        Past { token: Token(token), node, session, began: Wall(token * 100), ended: ended.map(Wall), reason }
    }

    fn role(token: u64, held: bool) -> Role {
        let holder =
            held.then(|| Holder { session: SessionId(u128::from(token)), node: Name::new("a").unwrap() });
        let (since, reason) = (Wall(token * 100 + 50), Reason::StepDown);
        Role { token: Token(token), holder, since, reason, previous: None, successor: None }
    }

    fn session(state: SessionState) -> Session {
        Session {
            node: Name::new("a").unwrap(),
            beat: 1,
            freed: 0,
            freed_lately: Vec::new(),
            card: 1,
            ttl: Duration::from_secs(1),
            takeover: Takeover::Strict,
            grace: Duration::from_secs(1),
            witness: None,
            state,
            beat_at: Wall(777),
        }
    }

    fn completed(tenures: Vec<Past>, role: &Role, sessions: &[(u128, SessionState)]) -> Vec<Past> {
        let mut book = History { tenures };
        let sessions = sessions.iter().map(|(id, state)| (SessionId(*id), session(*state))).collect();
        begin(&mut book, role);
        end(&mut book, Some(role), &sessions);
        book.tenures
    }

    #[test]
    fn tenures_are_in_the_order_of_their_tokens_whoever_wrote_first() {
        let told = completed(
            vec![past(2, Some(250)), past(1, Some(150))],
            &role(3, true),
            &[(3, SessionState::Live)],
        );
        assert_eq!(told.iter().map(|past| past.token.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((told[2].ended, told[2].reason), (None, None));
    }

    #[test]
    fn what_is_over_has_an_end_although_nobody_wrote_it() {
        let resigned = completed(vec![past(4, None)], &role(4, false), &[(4, SessionState::Live)]);
        assert_eq!((resigned[0].ended, resigned[0].reason), (Some(Wall(450)), Some(Reason::StepDown)));
        let died = completed(vec![past(4, None)], &role(4, true), &[(4, SessionState::Expelled)]);
        assert_eq!((died[0].ended, died[0].reason), (Some(Wall(777)), Some(Reason::Expelled)));
        let closed = completed(vec![past(4, None)], &role(4, true), &[(4, SessionState::Closed)]);
        assert_eq!(closed[0].reason, Some(Reason::Shutdown));
        let forgotten = completed(vec![past(4, None)], &role(5, true), &[(5, SessionState::Live)]);
        assert_eq!((forgotten[0].ended, forgotten[0].reason), (Some(Wall(550)), Some(Reason::Expelled)));
    }
}
