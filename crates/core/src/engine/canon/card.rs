//! The numbers of our own node register.

use super::{Card, Seen};
use crate::engine::canon::{Visitor, visit_node};

impl Card {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, v: &mut V) {
        if let Seen::Found(version, record) = &mut self.seen {
            v.version(version);
            visit_node(record, v);
        }
        if let Some((op, version, record)) = &mut self.writing {
            v.op(op);
            v.version(version);
            visit_node(record, v);
        }
        v.bound(&mut self.seen_op);
        v.due(&mut self.retry_at);
        self.told.iter_mut().for_each(|id| v.session(id));
        self.joined = crate::Wall(0);
    }
}
