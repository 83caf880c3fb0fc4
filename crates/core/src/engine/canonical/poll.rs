//! The numbers of the poll.

use super::{Poll, PollScope};
use crate::engine::canonical::{Visitor, visit_key};

impl Poll {
    /// `period`: after so many polls the rotation begins anew.
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, period: u64, v: &mut V) {
        self.awaited.iter_mut().chain(&mut self.after_claim).for_each(|op| v.op(op));
        v.moment(&mut self.next_at);
        v.due(&mut self.hold_until);
        v.polls(&mut self.count, period);
        self.suspect_from.iter_mut().for_each(|from| v.bound(from));
        let garbage_examined = std::mem::take(&mut self.garbage_examined).into_iter();
        self.garbage_examined = garbage_examined.filter_map(|mut id| v.over(&mut id).then_some(id)).collect();
        for keys in [&mut self.requested, &mut self.hinted.keys] {
            let visited = |mut key| {
                visit_key(&mut key, v);
                key
            };
            *keys = std::mem::take(keys).into_iter().map(visited).collect();
        }
    }
}

impl PollScope {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, v: &mut V) {
        self.keys.iter_mut().for_each(|key| visit_key(key, v));
    }
}
