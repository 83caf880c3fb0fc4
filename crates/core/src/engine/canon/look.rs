//! The numbers of looks.

use super::{Look, Scope};
use crate::engine::canon::{Visitor, visit_key};

impl Look {
    /// `period`: after so many looks all begins anew.
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, period: u64, v: &mut V) {
        if let Some(op) = &mut self.awaited {
            v.op(op);
        }
        v.due(&mut self.next_at);
        v.due(&mut self.hold_until);
        v.looks(&mut self.count, period);
        let examined = std::mem::take(&mut self.examined).into_iter();
        self.examined = examined.filter_map(|mut id| v.over(&mut id).then_some(id)).collect();
        self.again = std::mem::take(&mut self.again)
            .into_iter()
            .map(|mut key| {
                visit_key(&mut key, v);
                key
            })
            .collect();
    }
}

impl Scope {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, v: &mut V) {
        self.keys.iter_mut().for_each(|key| visit_key(key, v));
    }
}
