//! Who outside the store can tell that a session died.

use std::collections::BTreeMap;

use tenure_core::SessionId;

use crate::process::Pid;

/// The liveness lock of one session.
#[derive(Debug, Clone)]
pub struct Held {
    /// Its name in the record.
    pub id: String,
    /// The process that took hold of it.
    pub by: Pid,
    /// Whether it is held until the work has ended too.
    pub covers_work: bool,
    /// Whether it was let go of.
    pub released: bool,
}

/// Every liveness lock, and who watches it.
#[derive(Debug, Clone, Default)]
pub struct LockTable {
    held: BTreeMap<SessionId, Held>,
    watching: BTreeMap<SessionId, Vec<Pid>>,
}

impl LockTable {
    /// A process acquires a lock.
    pub fn hold(&mut self, session: SessionId, held: Held) {
        self.held.insert(session, held);
    }

    /// The liveness lock of a session.
    #[must_use]
    pub fn get(&self, session: SessionId) -> Option<&Held> {
        self.held.get(&session)
    }

    /// The sessions whose lock this process holds.
    #[must_use]
    pub fn held_by(&self, pid: Pid) -> Vec<SessionId> {
        self.held.iter().filter(|(_, held)| held.by == pid && !held.released).map(|(id, _)| *id).collect()
    }

    /// A watch of the lock begins.
    pub fn watch(&mut self, session: SessionId, pid: Pid) {
        let watching = self.watching.entry(session).or_default();
        if !watching.contains(&pid) {
            watching.push(pid);
        }
    }

    /// A watch of the lock ends.
    pub fn unwatch(&mut self, session: SessionId, pid: Pid) {
        if let Some(watching) = self.watching.get_mut(&session) {
            watching.retain(|other| *other != pid);
        }
    }

    /// The lock is released: who watches it. None the second time.
    pub fn release(&mut self, session: SessionId) -> Vec<Pid> {
        match self.held.get_mut(&session) {
            Some(held) if !held.released => held.released = true,
            _ => return Vec::new(),
        }
        self.watching.get(&session).cloned().unwrap_or_default()
    }
}
