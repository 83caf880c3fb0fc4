//! The numbers of roles.

use std::time::Duration;

use super::super::{Resigning, RoleView, Stage, TrackedRole};
use super::Roles;
use crate::engine::canonical::{Visitor, keep, rekeyed, visit_role};

impl Roles {
    /// `watched`: for how long it matters that a role has been watched; `turn`: the longest wait for a turn.
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, watched: Duration, turn: Duration, v: &mut V) {
        self.roles.values_mut().for_each(|role| role.visit(watched, turn, v));
        self.held_by = rekeyed(std::mem::take(&mut self.held_by), |id, _| keep(v, id));
        let due = std::mem::take(&mut self.due).into_iter();
        self.due = due
            .map(|(mut at, name)| {
                v.due(&mut at);
                (at, name)
            })
            .collect();
    }
}

impl TrackedRole {
    fn visit<V: Visitor>(&mut self, watched: Duration, turn: Duration, v: &mut V) {
        let delay = self.candidacy.as_ref().map_or(Duration::ZERO, |candidacy| candidacy.takeover_delay);
        let turn = turn + delay;
        if let RoleView::Seen { version, record } = &mut self.view {
            v.version(version);
            visit_role(record, v);
        }
        v.bound(&mut self.view_from);
        let min_tenure = self.candidacy.as_ref().map_or(Duration::ZERO, |candidacy| candidacy.min_tenure);
        self.stage.visit(min_tenure, v);
        self.work.iter_mut().for_each(|token| v.token(token));
        v.token(&mut self.highest_token);
        // How far a token is above another is all the same.
        v.past(&mut self.highest_since, Duration::ZERO);
        self.reported_leader.iter_mut().for_each(|(_, token)| v.token(token));
        v.past(&mut self.watched_since, watched);
        self.claimable_since.iter_mut().for_each(|since| v.past(since, turn));
        v.due(&mut self.not_before);
        v.due(&mut self.resign_from);
        self.due.iter_mut().for_each(|at| v.due(at));
    }
}

impl Stage {
    fn visit<V: Visitor>(&mut self, min_tenure: Duration, v: &mut V) {
        match self {
            Self::Following | Self::Restamping => {}
            Self::Claiming { op, session, version, record, on_hint: _ } => {
                v.op(op);
                v.session(session);
                v.version(version);
                visit_role(record, v);
            }
            Self::Verifying { after, ready_at, token, version, .. } => {
                after.iter_mut().for_each(|after| v.bound(after));
                v.due(ready_at);
                v.token(token);
                v.version(version);
            }
            Self::Leading { token, version, since } => {
                v.token(token);
                v.version(version);
                v.past(since, min_tenure);
            }
            Self::Draining { token, version, .. } => {
                v.token(token);
                v.version(version);
            }
            Self::Resigning(resigning) => resigning.visit(v),
        }
    }
}

impl Resigning {
    fn visit<V: Visitor>(&mut self, v: &mut V) {
        v.version(&mut self.expect);
        self.since = crate::Timestamp::from_micros(0);
        if let Some((op, version, record)) = &mut self.writing {
            v.op(op);
            v.version(version);
            visit_role(record, v);
        }
        v.unacknowledged(&mut self.unacknowledged);
        v.due(&mut self.retry_at);
    }
}
