//! The numbers of our own session.

use std::time::Duration;

use super::{OpenSession, OwnRegister, OwnSession, SessionStage};
use crate::engine::canonical::{Visitor, visit_session};

impl OwnSession {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        match &mut self.stage {
            SessionStage::None { retry_at } => v.due(retry_at),
            SessionStage::AcquiringLock { id, since, .. } => {
                v.session(id);
                v.past(since, longest);
            }
            SessionStage::Opening { op, sent_at, own } => {
                v.op(op);
                v.past(sent_at, longest);
                own.visit(v);
            }
            SessionStage::Open(open) => open.visit(longest, v),
            SessionStage::Ending { own, valid_until, .. } => {
                own.visit(v);
                v.due(valid_until);
            }
            SessionStage::Closing { own, writing, retry_at, .. } => {
                own.visit(v);
                writing.iter_mut().for_each(|op| v.op(op));
                v.due(retry_at);
            }
        }
    }
}

impl OpenSession {
    fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        self.own.visit(v);
        v.due(&mut self.valid_until);
        v.moment(&mut self.next_beat);
        if let Some(pending_beat) = &mut self.pending_beat {
            v.op(&mut pending_beat.op);
            v.past(&mut pending_beat.sent_at, longest);
            v.version(&mut pending_beat.version);
        }
    }
}

impl OwnRegister {
    fn visit<V: Visitor>(&mut self, v: &mut V) {
        self.version.iter_mut().for_each(|version| v.version(version));
        visit_session(self.id, &mut self.record, v);
        v.unacknowledged(&mut self.unacknowledged);
        v.session(&mut self.id);
    }
}
