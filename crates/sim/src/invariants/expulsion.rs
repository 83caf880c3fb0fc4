//! An expulsion only of a version that the expeller received at least T(1+ρ) of its own clock before, or with
//! evidence; and never of a node that may still rely on its lease.

use std::collections::{BTreeMap, VecDeque};

use tenure_core::record::Session;
use tenure_core::{
    Entry, Evidence, Input, Key, Outcome, Record, Reply, SessionId, Takeover, Time, Version, Write,
};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

/// So many versions of a session are remembered: more than any stale read, or a flood of late answers, reaches back to.
const REMEMBERED: usize = 128;

/// What one process has received.
#[derive(Debug, Clone, Default)]
struct Received {
    versions: BTreeMap<SessionId, VecDeque<(Version, Time)>>,
    evidence: Vec<(Evidence, Time)>,
}

/// What each process has received, and how many expulsions rested on evidence alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Expulsion {
    received: PerProcess<Received>,
    pub(super) by_evidence: u64,
}

impl Expulsion {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.received.begun(pid, twin_of);
    }

    pub(super) fn received(&mut self, pid: Pid, local: Time, input: &Input) {
        let received = self.received.get(pid);
        match input {
            Input::Replied { reply: Reply::Read(entries), .. } => {
                entries.iter().for_each(|entry| received.entry(entry, local));
            }
            Input::Replied { reply: Reply::Written(outcomes), .. } => {
                for outcome in outcomes {
                    if let Outcome::Conflict(Some(entry)) = outcome {
                        received.entry(entry, local);
                    }
                }
            }
            Input::Evidence(evidence) => received.evidence.push((evidence.clone(), local)),
            _ => {}
        }
    }

    pub(super) fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
        for write in sent.writes.iter().filter(|write| WriteKind::of(write) == WriteKind::Expel) {
            let (Key::Session(_, id), Some((_, Record::Session(record)))) = (&write.key, &write.put) else {
                continue;
            };
            let Some(expected) = write.expect else { continue };
            let timing = &state.node(sent.pid).timing;
            let received = self.received.get(sent.pid);
            let first = received.first(*id, expected);
            let watched = first.map(|first| sent.local.since(first));
            let due = watched.is_some_and(|watched| watched >= timing.expulsion_wait(record.ttl));
            if due {
                continue;
            }
            let grace = timing.expulsion_wait(record.grace);
            let silent = watched.is_some_and(|watched| watched >= grace);
            if !received.proves(*id, record, |told| silent || sent.local.since(told) >= grace) {
                let ttl = record.ttl;
                return Err(format!("{id:?} of ttl {ttl:?} is expelled after watching it for {watched:?}"));
            }
            self.by_evidence += 1;
        }
        Ok(())
    }

    pub(super) fn applied(&self, before: &WorldState, pid: Option<Pid>, write: &Write) -> CheckResult {
        let Key::Session(_, id) = &write.key else { return Ok(()) };
        if WriteKind::of(write) != WriteKind::Expel || before.has_lost_beats(*id) {
            return Ok(());
        }
        for (owner, process) in before.processes.iter().enumerate() {
            if !process.is_alive() || Some(owner) == pid {
                continue;
            }
            if let Some((session, deadline)) = process.engine.session()
                && session == *id
                && before.local(owner) < deadline
            {
                let early = deadline.since(before.local(owner));
                return Err(format!(
                    "{id:?} is expelled {early:?} before the deadline of its owner p{owner}"
                ));
            }
        }
        Ok(())
    }
}

impl Received {
    fn entry(&mut self, entry: &Entry, local: Time) {
        let Key::Session(_, id) = &entry.key else { return };
        let versions = self.versions.entry(*id).or_default();
        if versions.iter().rev().any(|(version, _)| *version == entry.version) {
            return;
        }
        if versions.len() >= REMEMBERED {
            versions.pop_front();
        }
        versions.push_back((entry.version, local));
    }

    fn first(&self, id: SessionId, expected: Version) -> Option<Time> {
        self.versions.get(&id)?.iter().rev().find(|(version, _)| *version == expected).map(|(_, at)| *at)
    }

    fn proves(&self, id: SessionId, record: &Session, forgiven: impl Fn(Time) -> bool) -> bool {
        let Some(named) = &record.liveness_lock else { return false };
        self.evidence.iter().any(|(evidence, at)| match evidence {
            Evidence::Dead { session, lock } => *session == id && *lock == named.id && named.covers_work,
            Evidence::Disconnected { session, lock } => {
                let counts = record.takeover == Takeover::OnDisconnect && forgiven(*at);
                *session == id && *lock == named.id && counts
            }
        })
    }
}
