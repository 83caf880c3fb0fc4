//! Who outside the store can tell that a session died.

use std::collections::BTreeMap;

use tenure_core::SessionId;

use crate::process::Pid;

/// The witness of one session.
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

/// Every witness, and who attends to it.
#[derive(Debug, Clone, Default)]
pub struct Witnesses {
    held: BTreeMap<SessionId, Held>,
    attending: BTreeMap<SessionId, Vec<Pid>>,
}

impl Witnesses {
    /// A process takes hold of a witness.
    pub fn hold(&mut self, session: SessionId, held: Held) {
        self.held.insert(session, held);
    }

    /// The witness of a session.
    #[must_use]
    pub fn get(&self, session: SessionId) -> Option<&Held> {
        self.held.get(&session)
    }

    /// The sessions whose witness this process holds.
    #[must_use]
    pub fn held_by(&self, pid: Pid) -> Vec<SessionId> {
        self.held.iter().filter(|(_, held)| held.by == pid && !held.released).map(|(id, _)| *id).collect()
    }

    /// Somebody wants to know.
    pub fn attend(&mut self, session: SessionId, pid: Pid) {
        let attending = self.attending.entry(session).or_default();
        if !attending.contains(&pid) {
            attending.push(pid);
        }
    }

    /// Somebody does not want to know any more.
    pub fn ignore(&mut self, session: SessionId, pid: Pid) {
        if let Some(attending) = self.attending.get_mut(&session) {
            attending.retain(|other| *other != pid);
        }
    }

    /// The witness lets go: who wants to know it. Nobody the second time.
    pub fn release(&mut self, session: SessionId) -> Vec<Pid> {
        match self.held.get_mut(&session) {
            Some(held) if !held.released => held.released = true,
            _ => return Vec::new(),
        }
        self.attending.get(&session).cloned().unwrap_or_default()
    }
}
