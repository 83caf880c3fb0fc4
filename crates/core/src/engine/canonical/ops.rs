//! The numbers of awaited operations.

use std::time::Duration;

use super::{Engine, PendingOp, PendingOps, Purpose};
use crate::engine::canonical::Visitor;
use crate::{OpId, Time};

impl PendingOps {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        let mut next = OpId::new(self.next);
        v.op(&mut next);
        self.next = next.get();
        self.awaited = std::mem::take(&mut self.awaited)
            .into_iter()
            .map(|(mut id, mut op)| {
                v.op(&mut id);
                op.visit(longest, v);
                (id, op)
            })
            .collect();
    }
}

impl Engine {
    /// Until when an answer to that operation is awaited, if it is.
    #[must_use]
    pub fn awaited_until(&self, op: OpId) -> Option<Time> {
        self.ops.awaited.get(&op).map(|awaited| awaited.expires)
    }
}

impl PendingOp {
    fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        v.past(&mut self.sent_at, longest);
        v.due(&mut self.expires);
        match &mut self.purpose {
            Purpose::Poll(scope) => scope.visit(v),
            Purpose::Expel(sessions) => sessions.iter_mut().for_each(|id| v.session(id)),
            _ => {}
        }
    }
}
