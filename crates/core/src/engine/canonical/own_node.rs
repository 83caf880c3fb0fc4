//! The numbers of our own node register.

use super::{OwnNode, OwnNodeView};
use crate::engine::canonical::{Visitor, visit_node};

impl OwnNode {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, v: &mut V) {
        if let OwnNodeView::Found(version, record) = &mut self.view {
            v.version(version);
            visit_node(record, v);
        }
        if let Some((op, version, record)) = &mut self.writing {
            v.op(op);
            v.version(version);
            visit_node(record, v);
        }
        v.bound(&mut self.view_from);
        v.due(&mut self.retry_at);
        self.reported_holder.iter_mut().for_each(|id| v.session(id));
        self.joined = crate::Timestamp::from_micros(0);
    }
}
