//! The numbers of the `cluster` register.

use super::Cluster;
use crate::engine::canonical::Visitor;
use crate::{Engine, Epoch};

impl Engine {
    /// Which life of the store this node knows.
    #[must_use]
    pub fn life(&self) -> Option<Epoch> {
        self.epoch()
    }
}

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
        self.lapses_at.iter_mut().for_each(|at| v.due(at));
        v.bound(&mut self.reduction.announced);
        self.reduction.falls_at.iter_mut().for_each(|at| v.due(at));
        if let Some((version, _)) = &mut self.reduction.wanted {
            v.version(version);
        }
    }
}
