//! The work that is tied to tenures: what must never run twice at once.

use std::collections::BTreeMap;

use tenure_core::{Name, SessionId, Token};

use crate::process::Pid;
use crate::swarm::WorkKind;

pub type WorkId = u64;

/// The work of one tenure, while it runs.
#[derive(Debug, Clone)]
pub struct Work {
    /// The process whose tenure it is.
    pub pid: Pid,
    pub role: Name,
    pub token: Token,
    pub session: Option<SessionId>,
    pub kind: WorkKind,
    /// It should have stopped while it was frozen, and stops as soon as it gets time.
    pub overdue: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Works {
    running: BTreeMap<WorkId, Work>,
    next: WorkId,
}

impl Works {
    pub fn start(&mut self, work: Work) -> WorkId {
        self.next += 1;
        self.running.insert(self.next, work);
        self.next
    }

    #[must_use]
    pub fn get(&self, id: WorkId) -> Option<&Work> {
        self.running.get(&id)
    }

    pub fn get_mut(&mut self, id: WorkId) -> Option<&mut Work> {
        self.running.get_mut(&id)
    }

    pub fn end(&mut self, id: WorkId) -> Option<Work> {
        self.running.remove(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (WorkId, &Work)> {
        self.running.iter().map(|(id, work)| (*id, work))
    }

    #[must_use]
    pub fn of(&self, pid: Pid) -> Vec<WorkId> {
        self.iter().filter(|(_, work)| work.pid == pid).map(|(id, _)| id).collect()
    }

    #[must_use]
    pub fn find(&self, pid: Pid, role: &Name, token: Token) -> Option<WorkId> {
        self.iter()
            .find(|(_, work)| work.pid == pid && work.token == token && work.role == *role)
            .map(|(id, _)| id)
    }
}
