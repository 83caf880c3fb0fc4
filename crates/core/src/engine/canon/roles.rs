//! The numbers of roles.

use std::time::Duration;

use super::{Resigning, Role, Stage, View};
use crate::engine::canon::{Visitor, visit_role};

impl Role {
    /// `watched`: for how long it matters that it has been watched; `turn`: the longest wait for a turn.
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, watched: Duration, turn: Duration, v: &mut V) {
        let delay = self.standing.as_ref().map_or(Duration::ZERO, |standing| standing.takeover_delay);
        let turn = turn + delay;
        if let View::Seen { version, record, .. } = &mut self.view {
            v.version(version);
            visit_role(record, v);
        }
        v.bound(&mut self.view_op);
        let min_tenure = self.standing.as_ref().map_or(Duration::ZERO, |standing| standing.min_tenure);
        self.stage.visit(min_tenure, v);
        self.work.iter_mut().for_each(|token| v.token(token));
        v.token(&mut self.highest);
        // How far a token is above another is all the same.
        v.past(&mut self.highest_since, Duration::ZERO);
        self.told_leader.iter_mut().for_each(|(_, token)| v.token(token));
        v.past(&mut self.watched_since, watched);
        self.free.iter_mut().for_each(|since| v.past(since, turn));
        v.due(&mut self.not_before);
        self.due.iter_mut().for_each(|at| v.due(at));
    }
}

impl Stage {
    fn visit<V: Visitor>(&mut self, min_tenure: Duration, v: &mut V) {
        match self {
            Self::Following => {}
            Self::Claiming { op, session, version, record } => {
                v.op(op);
                v.session(session);
                v.version(version);
                visit_role(record, v);
            }
            Self::Verifying { after, token, version } => {
                v.bound(after);
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
        if let Some((op, version, record)) = &mut self.writing {
            v.op(op);
            v.version(version);
            visit_role(record, v);
        }
        v.unsure(&mut self.unsure);
        v.due(&mut self.retry_at);
    }
}
