//! The numbers of our own session.

use std::time::Duration;

use super::{Open, Own, Session};
use crate::engine::canon::{Visitor, visit_session};

impl Session {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        match self {
            Self::None { retry_at } => v.due(retry_at),
            Self::Attesting { id, since, .. } => {
                v.session(id);
                v.past(since, longest);
            }
            Self::Opening { op, sent_at, own } => {
                v.op(op);
                v.past(sent_at, longest);
                own.visit(v);
            }
            Self::Open(open) => open.visit(longest, v),
            Self::Ending { own, valid_until, .. } => {
                own.visit(v);
                v.due(valid_until);
            }
            Self::Closing { own, writing, retry_at, .. } => {
                own.visit(v);
                writing.iter_mut().for_each(|op| v.op(op));
                v.due(retry_at);
            }
        }
    }
}

impl Open {
    fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        self.own.visit(v);
        v.due(&mut self.valid_until);
        v.due(&mut self.next_beat);
        if let Some(beating) = &mut self.beating {
            v.op(&mut beating.op);
            v.past(&mut beating.sent_at, longest);
            v.version(&mut beating.version);
        }
    }
}

impl Own {
    fn visit<V: Visitor>(&mut self, v: &mut V) {
        self.version.iter_mut().for_each(|version| v.version(version));
        visit_session(self.id, &mut self.record, v);
        v.unsure(&mut self.unsure);
        v.session(&mut self.id);
    }
}
