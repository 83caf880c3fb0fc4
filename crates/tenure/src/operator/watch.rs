//! What changes in a namespace, as an operator sees it: two looks, and the difference between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use tenure_core::record::{Order, Reason};

use super::pulse::Monitor;
use super::registers::Registers;
use super::{NodeReport, Operator, RoleReport, RoleState, Snapshot};
use crate::{Error, Name, SessionId, Token};

/// Looks again whenever something may have changed, and tells what has. What comes and goes between two looks is told
/// as the difference that it made.
pub struct Watch {
    operator: Operator,
    changes: BoxStream<'static, ()>,
    monitor: Monitor,
    last: Snapshot,
    pause: Duration,
    /// How long the last look took.
    took: Duration,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("operator", &self.operator).finish_non_exhaustive()
    }
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// A role has another leader, or the same one under a new token.
    LeaderChanged {
        /// Which role.
        role: Name,
        /// Who leads.
        leader: Name,
        /// The token of its tenure.
        token: Token,
        /// Who led before, if somebody did when we last looked.
        former: Option<Name>,
        /// Why the tenure began.
        reason: Option<Reason>,
    },
    /// The session of a leader is over without its doing, and nobody leads.
    LeaderLost {
        /// Which role.
        role: Name,
        /// Who led.
        former: Option<Name>,
        /// The token of the tenure that is over.
        token: Token,
        /// Why it is over.
        reason: Option<Reason>,
    },
    /// The leader gave the role up, and nobody leads.
    Vacant {
        /// Which role.
        role: Name,
        /// Who led, if it was seen.
        former: Option<Name>,
        /// The token of the tenure that is over.
        token: Token,
        /// Why it is over.
        reason: Option<Reason>,
    },
    /// The leader has not beaten for a ttl.
    LeaderSilent {
        /// Which role.
        role: Name,
        /// Who leads.
        leader: Name,
        /// The token of its tenure.
        token: Token,
    },
    /// A silent leader beats again.
    LeaderBack {
        /// Which role.
        role: Name,
        /// Who leads.
        leader: Name,
        /// The token of its tenure.
        token: Token,
    },
    /// An operator paused a role.
    Paused {
        /// Which role.
        role: Name,
        /// Who.
        by: String,
        /// Why.
        why: String,
    },
    /// An operator lets a role be led again.
    Resumed {
        /// Which role.
        role: Name,
    },
    /// A process takes part under that name.
    NodeJoined {
        /// The name.
        node: Name,
        /// The session of the process.
        session: SessionId,
    },
    /// It stopped.
    NodeLeft {
        /// The name.
        node: Name,
        /// The session of the process.
        session: SessionId,
    },
    /// Others proved it gone.
    NodeExpelled {
        /// The name.
        node: Name,
        /// The session of the process.
        session: SessionId,
    },
}

impl Change {
    /// The role that it is about, if it is about one.
    #[must_use]
    pub fn role(&self) -> Option<&Name> {
        match self {
            Self::LeaderChanged { role, .. }
            | Self::LeaderLost { role, .. }
            | Self::Vacant { role, .. }
            | Self::LeaderSilent { role, .. }
            | Self::LeaderBack { role, .. }
            | Self::Paused { role, .. }
            | Self::Resumed { role } => Some(role),
            Self::NodeJoined { .. } | Self::NodeLeft { .. } | Self::NodeExpelled { .. } => None,
        }
    }
}

/// Looks happen at least this often: beats ring no bell.
const RARELY: Duration = Duration::from_secs(1);
/// And not more often than this, however short a ttl is.
const OFTEN: Duration = Duration::from_millis(50);
/// After a look it rests for so many times as long as the look took.
const RESTED: u32 = 4;

impl Operator {
    /// Begins to watch: from here on nothing is missed.
    pub async fn watch(&self) -> Result<Watch, Error> {
        let changes = self.changes(RARELY);
        let (operator, last) = (self.clone(), Snapshot::default());
        let mut watch = Watch {
            operator,
            changes,
            monitor: Monitor::default(),
            last,
            pause: RARELY,
            took: Duration::ZERO,
        };
        watch.last = watch.look().await?;
        Ok(watch)
    }
}

impl Watch {
    /// The namespace as it was at the last look.
    #[must_use]
    pub fn last(&self) -> &Snapshot {
        &self.last
    }

    /// Waits until something has changed, and tells what. After an error it may be called again.
    pub async fn next(&mut self) -> Result<Vec<Change>, Error> {
        loop {
            let changes = self.look_again().await?;
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
    }

    /// Waits until it is time to look again, looks once, and tells what has changed since, if anything has. With very
    /// many roles it looks less often, so that looking takes a fifth of a core at most. After an error it may be called
    /// again.
    pub async fn look_again(&mut self) -> Result<Vec<Change>, Error> {
        tokio::time::sleep(self.took * RESTED).await;
        let _ = tokio::time::timeout(self.pause, self.changes.next()).await;
        while let Some(Some(())) = self.changes.next().now_or_never() {}
        let began = std::time::Instant::now();
        let now = self.look().await?;
        let changes = difference(&self.last, &now);
        self.last = now;
        self.took = began.elapsed();
        Ok(changes)
    }

    async fn look(&mut self) -> Result<Snapshot, Error> {
        let Operator { store, namespace, .. } = &self.operator;
        let Some(registers) = Registers::read(store, namespace).await? else {
            return Ok(Snapshot::default());
        };
        let pulses = self.monitor.look(&registers.sessions);
        let shortest = pulses.values().filter(|pulse| !pulse.state.is_over()).map(|pulse| pulse.ttl).min();
        self.pause = shortest.map_or(RARELY, |ttl| (ttl / 5).clamp(OFTEN, RARELY));
        Ok(registers.report(&pulses))
    }
}

/// What happened between two looks: nodes first, because they explain the rest.
fn difference(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let mut changes = Vec::new();
    let (was, is) = (by_name(&before.nodes, |n| &n.node), by_name(&after.nodes, |n| &n.node));
    both(&was, &is, |before, after| changes.extend(of_node(before, after)));
    let (was, is) = (by_name(&before.roles, |r| &r.role), by_name(&after.roles, |r| &r.role));
    both(&was, &is, |before, after| {
        changes.extend(of_orders(before, after));
        changes.extend(of_tenure(before, after));
        changes.extend(of_silence(before, after));
    });
    changes
}

fn by_name<T>(all: &[T], name: impl Fn(&T) -> &Name) -> BTreeMap<&Name, &T> {
    all.iter().map(|one| (name(one), one)).collect()
}

/// Calls `tell` for every name that either side has.
fn both<T>(
    before: &BTreeMap<&Name, &T>,
    after: &BTreeMap<&Name, &T>,
    mut tell: impl FnMut(Option<&T>, Option<&T>),
) {
    let names: BTreeSet<&Name> = before.keys().chain(after.keys()).copied().collect();
    for name in names {
        tell(before.get(name).copied(), after.get(name).copied());
    }
}

fn of_node(before: Option<&NodeReport>, after: Option<&NodeReport>) -> Option<Change> {
    let present =
        |report: Option<&NodeReport>| report.filter(|report| !report.state.is_over()).map(|r| r.session);
    match (before, after) {
        (_, Some(now)) if present(after).is_some() && present(before) != present(after) => {
            Some(Change::NodeJoined { node: now.node.clone(), session: now.session })
        }
        (Some(was), now) if present(before).is_some() && present(after).is_none() => {
            let (node, session) = (was.node.clone(), was.session);
            let expelled = now.is_some_and(|now| now.state == super::NodeState::Expelled);
            Some(if expelled {
                Change::NodeExpelled { node, session }
            } else {
                Change::NodeLeft { node, session }
            })
        }
        _ => None,
    }
}

fn of_orders(before: Option<&RoleReport>, after: Option<&RoleReport>) -> Option<Change> {
    let pause = |report: Option<&RoleReport>| report.and_then(|report| report.paused.clone());
    let role = before.or(after)?.role.clone();
    match (pause(before), pause(after)) {
        (None, Some(Order { by, why, .. })) => Some(Change::Paused { role, by, why }),
        (Some(_), None) => Some(Change::Resumed { role }),
        _ => None,
    }
}

fn of_tenure(before: Option<&RoleReport>, after: Option<&RoleReport>) -> Option<Change> {
    let led = |report: Option<&RoleReport>| report.and_then(|report| report.leader.clone());
    let (former, leader) = (led(before), led(after));
    let token = |report: Option<&RoleReport>| report.map_or(Token(0), |report| report.token);
    if former == leader && token(before) == token(after) {
        return None;
    }
    let role = before.or(after)?.role.clone();
    let (token, reason) = match after {
        Some(after) => (after.token, after.reason),
        None => (token(before), Some(Reason::Forgotten)),
    };
    let lost = matches!(reason, Some(Reason::Expelled | Reason::Forgotten));
    Some(match leader {
        Some(leader) => Change::LeaderChanged { role, leader, token, former, reason },
        None if lost => Change::LeaderLost { role, former, token, reason },
        None => Change::Vacant { role, former, token, reason },
    })
}

fn of_silence(before: Option<&RoleReport>, after: Option<&RoleReport>) -> Option<Change> {
    let after = after?;
    let (role, leader, token) = (after.role.clone(), after.leader.clone()?, after.token);
    let same = before.filter(|before| before.token == token);
    let was = same.map_or(RoleState::Led, |before| before.state);
    match (was, after.state) {
        (RoleState::Led, RoleState::Silent) => Some(Change::LeaderSilent { role, leader, token }),
        (RoleState::Silent, RoleState::Led) => Some(Change::LeaderBack { role, leader, token }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Wall;

    use super::*;

    fn role(leader: Option<&str>, token: u64, state: RoleState, reason: Reason) -> Snapshot {
        let report = RoleReport {
            role: Name::new("scheduler").unwrap(),
            leader: leader.map(|leader| Name::new(leader).unwrap()),
            token: Token(token),
            since: None,
            state,
            reason: Some(reason),
            last_beat_ms_ago: None,
            address: None,
            candidates: Vec::new(),
            paused: None,
            pinned: None,
            transfer: None,
        };
        Snapshot { roles: vec![report], ..Snapshot::default() }
    }

    fn told(before: &Snapshot, after: &Snapshot) -> Vec<String> {
        let kind =
            |change: &Change| serde_json::to_value(change).unwrap()["event"].as_str().unwrap().to_owned();
        difference(before, after).iter().map(kind).collect()
    }

    #[test]
    fn a_tenure_that_began_or_ended_is_told() {
        let led = role(Some("a"), 1, RoleState::Led, Reason::First);
        assert_eq!(told(&Snapshot::default(), &led), ["leader-changed"]);
        assert_eq!(told(&led, &led), [""; 0]);
        assert_eq!(told(&led, &role(Some("a"), 2, RoleState::Led, Reason::Reclaimed)), ["leader-changed"]);
        assert_eq!(told(&led, &role(None, 1, RoleState::Vacant, Reason::Resigned)), ["vacant"]);
        assert_eq!(told(&led, &role(None, 1, RoleState::Vacant, Reason::Expelled)), ["leader-lost"]);
        assert_eq!(told(&led, &Snapshot::default()), ["leader-lost"]);
        let passed = role(None, 2, RoleState::Vacant, Reason::Resigned);
        assert_eq!(told(&role(None, 1, RoleState::Vacant, Reason::Resigned), &passed), ["vacant"]);
    }

    #[test]
    fn silence_is_told_once_and_its_end_too() {
        let (led, silent) = (
            role(Some("a"), 1, RoleState::Led, Reason::First),
            role(Some("a"), 1, RoleState::Silent, Reason::First),
        );
        assert_eq!(told(&led, &silent), ["leader-silent"]);
        assert_eq!(told(&silent, &silent), [""; 0]);
        assert_eq!(told(&silent, &led), ["leader-back"]);
        assert_eq!(told(&Snapshot::default(), &silent), ["leader-changed", "leader-silent"]);
    }

    #[test]
    fn orders_are_told_before_what_they_cause() {
        let led = role(Some("a"), 1, RoleState::Led, Reason::First);
        let mut paused = role(None, 1, RoleState::Paused, Reason::Paused);
        paused.roles[0].paused = Some(Order { by: "ada".into(), why: String::new(), at: Wall(0) });
        assert_eq!(told(&led, &paused), ["paused", "vacant"]);
        assert_eq!(
            told(&paused, &role(Some("b"), 2, RoleState::Led, Reason::Vacant)),
            ["resumed", "leader-changed"]
        );
    }
}
