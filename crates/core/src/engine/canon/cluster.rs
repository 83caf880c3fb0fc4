//! The numbers of the `cluster` register.

use super::Cluster;
use crate::engine::canon::Visitor;

impl Cluster {
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, v: &mut V) {
        if let Some(known) = &mut self.known {
            v.version(&mut known.version);
        }
        v.due(&mut self.quarantined_until);
        if let Some(writing) = &mut self.writing {
            v.version(&mut writing.version);
        }
        v.due(&mut self.retry_at);
    }
}
