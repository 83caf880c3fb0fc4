//! The numbers of requests.

use std::time::Duration;

use super::Controls;
use crate::engine::canonical::{Visitor, visit_control};

impl Controls {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        for (version, control) in self.registers.values_mut() {
            v.version(version);
            visit_control(control, v);
        }
        for (id, at) in self.first_seen.values_mut() {
            v.request(id);
            v.past(at, longest);
        }
        for (version, control) in self.writing.values_mut() {
            v.version(version);
            control.iter_mut().for_each(|control| visit_control(control, v));
        }
        self.next_request_at.values_mut().for_each(|at| v.due(at));
    }
}
