//! The numbers of requests.

use std::time::Duration;

use super::Requests;
use crate::engine::canon::{Visitor, visit_control};

impl Requests {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, longest: Duration, v: &mut V) {
        for (id, at) in self.seen.values_mut() {
            v.request(id);
            v.past(at, longest);
        }
        for (version, control) in self.writing.values_mut() {
            v.version(version);
            control.iter_mut().for_each(|control| visit_control(control, v));
        }
        self.ask_at.values_mut().for_each(|at| v.due(at));
    }
}
