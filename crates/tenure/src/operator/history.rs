//! The history of roles, with an end for every tenure that is over, also where its leader died before it could write one.

use std::collections::BTreeMap;

use tenure_core::record::{Role, Session, SessionState};
use tenure_core::{Epoch, Key, Kind, Query};

use super::Operator;
use crate::history::{EndSource, RoleHistory, TenureRecord};
use crate::{Error, Name, SessionId};

impl Operator {
    /// Past tenures, of one role or of all, the newest last, and the one that goes on.
    ///
    /// History is written after the fact. What it lacks yet is taken from the registers: the newest tenure, and the end
    /// of one whose leader died.
    pub async fn history(&self, role: Option<&Name>) -> Result<BTreeMap<Name, RoleHistory>, Error> {
        self.read_history(role.map(std::slice::from_ref)).await
    }

    /// Past tenures of some roles.
    pub async fn histories(&self, roles: &[Name]) -> Result<BTreeMap<Name, RoleHistory>, Error> {
        self.read_history(Some(roles)).await
    }

    async fn read_history(&self, roles: Option<&[Name]>) -> Result<BTreeMap<Name, RoleHistory>, Error> {
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
        let (mut histories, mut roles) =
            (BTreeMap::<Name, RoleHistory>::new(), BTreeMap::<Name, Role>::new());
        for entry in self.store.read(&self.namespace, &query).await? {
            match entry.key {
                Key::Named(_, Kind::History, role) => {
                    histories.insert(role, entry.value.parse().unwrap_or_default());
                }
                Key::Named(_, _, role) => _ = entry.value.parse().map(|record| roles.insert(role, record)),
                _ => {}
            }
        }
        for (role, record) in &roles {
            begin(histories.entry(role.clone()).or_default(), record);
        }
        if everything {
            histories.retain(|role, _| !super::is_internal(role));
        }
        let sessions = self.open_sessions(epoch, &histories).await?;
        for (role, history) in &mut histories {
            end(history, roles.get(role), &sessions);
        }
        Ok(histories)
    }

    async fn open_sessions(
        &self,
        epoch: Epoch,
        histories: &BTreeMap<Name, RoleHistory>,
    ) -> Result<BTreeMap<SessionId, Session>, Error> {
        let tenures = histories.values().flat_map(|history| &history.tenures);
        Ok(super::sessions_of_unfinished(&self.store, &self.namespace, epoch, tenures).await?)
    }
}

/// Adds the newest tenure, if it is not recorded yet.
fn begin(history: &mut RoleHistory, record: &Role) {
    let Some(holder) = &record.holder else { return };
    if history.tenures.iter().any(|tenure| tenure.token >= record.token) {
        return;
    }
    let tenure = TenureRecord::new(record.token, holder.node.clone(), holder.session, record.since);
    history.tenures.push(tenure);
}

/// Ends tenures that are over although no node has written so yet. Nodes record their own tenures late and in any order:
/// only the token tells which came first.
fn end(history: &mut RoleHistory, record: Option<&Role>, sessions: &BTreeMap<SessionId, Session>) {
    history.tenures.sort_by_key(|tenure| tenure.token);
    let begins: Vec<_> = history.tenures.iter().map(|tenure| (tenure.token, tenure.began)).collect();
    for tenure in history.tenures.iter_mut().filter(|tenure| tenure.ended.is_none()) {
        let last = sessions.get(&tenure.session);
        let state = last.map_or(SessionState::Expelled, |session| session.state);
        let current = record.is_some_and(|record| record.token == tenure.token && record.holder.is_some());
        let given_up = record.filter(|record| record.token == tenure.token && record.holder.is_none());
        if current && state == SessionState::Live {
            continue;
        }
        if let Some(record) = given_up {
            (tenure.ended, tenure.reason) = (Some(record.since), record.reason.end());
            tenure.measured = Some(EndSource::Leader);
            continue;
        }
        let next = begins.iter().find(|(token, _)| *token > tenure.token).map(|(_, began)| *began);
        let beat = last.filter(|session| session.state != SessionState::Live).map(|session| session.beat_at);
        tenure.close_unrecorded(Some(state), beat, next);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::record::{EndReason, Holder};
    use tenure_core::{Takeover, Timestamp};

    use super::*;
    use crate::Token;

    fn tenure(token: u64, ended: Option<u64>) -> TenureRecord {
        let (node, session) = (Name::new("a").unwrap(), SessionId::new(u128::from(token)));
        let reason = ended.map(|_| EndReason::Resigned);
        let measured = ended.map(|_| EndSource::Leader);
        let (token, began) = (Token::new(token), Timestamp::from_micros(token * 100));
        let ended = ended.map(Timestamp::from_micros);
        TenureRecord { ended, measured, reason, ..TenureRecord::new(token, node, session, began) }
    }

    fn role(token: u64, held: bool) -> Role {
        let holder = held
            .then(|| Holder { session: SessionId::new(u128::from(token)), node: Name::new("a").unwrap() });
        let (since, reason) = (Timestamp::from_micros(token * 100 + 50), EndReason::StepDown.into());
        Role { token: Token::new(token), holder, since, reason, previous: None, successor: None }
    }

    fn session(state: SessionState) -> Session {
        Session {
            node: Name::new("a").unwrap(),
            beat: 1,
            freed: 0,
            freed_lately: Vec::new(),
            node_writes: 1,
            holds_back: false,
            ttl: Duration::from_secs(1),
            every: Duration::ZERO,
            takeover: Takeover::Strict,
            grace: Duration::from_secs(1),
            liveness_lock: None,
            state,
            beat_at: Timestamp::from_micros(777),
        }
    }

    fn completed(
        tenures: Vec<TenureRecord>,
        role: &Role,
        sessions: &[(u128, SessionState)],
    ) -> Vec<TenureRecord> {
        let mut history = RoleHistory { tenures };
        let sessions = sessions.iter().map(|(id, state)| (SessionId::new(*id), session(*state))).collect();
        begin(&mut history, role);
        end(&mut history, Some(role), &sessions);
        history.tenures
    }

    #[test]
    fn tenures_are_in_the_order_of_their_tokens_whichever_node_wrote_first() {
        let told = completed(
            vec![tenure(2, Some(250)), tenure(1, Some(150))],
            &role(3, true),
            &[(3, SessionState::Live)],
        );
        assert_eq!(told.iter().map(|tenure| tenure.token.get()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((told[2].ended, told[2].reason), (None, None));
    }

    #[test]
    fn what_is_over_has_an_end_although_no_node_wrote_it() {
        let resigned = completed(vec![tenure(4, None)], &role(4, false), &[(4, SessionState::Live)]);
        assert_eq!(
            (resigned[0].ended, resigned[0].reason),
            (Some(Timestamp::from_micros(450)), Some(EndReason::StepDown))
        );
        let died = completed(vec![tenure(4, None)], &role(4, true), &[(4, SessionState::Expelled)]);
        assert_eq!(
            (died[0].ended, died[0].reason),
            (Some(Timestamp::from_micros(777)), Some(EndReason::Expelled))
        );
        assert_eq!(died[0].measured, Some(EndSource::LastBeat));
        let closed = completed(vec![tenure(4, None)], &role(4, true), &[(4, SessionState::Closed)]);
        assert_eq!(closed[0].reason, Some(EndReason::Shutdown));
        let forgotten = completed(vec![tenure(4, None)], &role(5, true), &[(5, SessionState::Live)]);
        assert_eq!(
            (forgotten[0].ended, forgotten[0].reason),
            (Some(Timestamp::from_micros(550)), Some(EndReason::Expelled))
        );
        assert_eq!(forgotten[0].measured, Some(EndSource::Successor));
    }
}
