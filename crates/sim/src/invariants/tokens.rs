//! Tokens strictly rise per role: in the register at every claim, and among the tenures that began, even on a store
//! that forgets, as long as wall clocks agree. What accepts only tokens that are not lower than the highest it saw never
//! goes back, and never locks out a leader.
//!
//! Where wall clocks are wrong, a tenure whose claim the store lost is no floor any more, except to processes that saw it.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::engine::Class;
use tenure_core::{Entry, Input, Key, Kind, Name, Outcome, Record, Reply, Time, Token, Write};

use super::{CheckResult, PerProcess, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

/// The highest token of any tenure that began, for each role: what a fenced resource has seen. And what each process has
/// seen in the store.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens {
    began: BTreeMap<Name, (Token, Pid)>,
    seen: PerProcess<Seen>,
}

/// What one process has seen of the roles that it stands for or watches, since it does: a process that withdraws forgets.
#[derive(Debug, Clone, Default)]
struct Seen {
    watched: BTreeSet<Name>,
    /// With when it was first seen, by the clock of the process.
    highest: BTreeMap<Name, (Token, Time)>,
}

impl Tokens {
    pub(super) fn begun(&mut self, pid: Pid, twin_of: Option<Pid>) {
        self.seen.begun(pid, twin_of);
    }

    pub(super) fn received(&mut self, state: &WorldState, pid: Pid, input: &Input) {
        // Elsewhere what began is a floor for all.
        if state.settings.class != Class::C {
            return;
        }
        let (engine, local) = (&state.processes[pid].engine, state.local(pid));
        let seen = self.seen.get(pid);
        match input {
            Input::Campaign { role, .. } | Input::Observe { role } => _ = seen.watched.insert(role.clone()),
            Input::Withdraw { role } => {
                seen.watched.remove(role);
                seen.highest.remove(role);
            }
            // What comes too late it does not see.
            Input::Replied { op, .. } if engine.awaited_until(*op).is_none_or(|until| until <= local) => {}
            Input::Replied { reply: Reply::Read(entries), .. } => {
                // Nothing else is taken in of a read that shows another life of the store than the process knows.
                let life = entries.iter().find_map(|entry| match &entry.value {
                    Record::Cluster(cluster) => Some(cluster.epoch),
                    _ => None,
                });
                if life.is_none() || life == engine.life() {
                    entries.iter().for_each(|entry| seen.note(entry, local));
                }
            }
            Input::Replied { reply: Reply::Written(outcomes), .. } => {
                for outcome in outcomes {
                    if let Outcome::Conflict(Some(entry)) = outcome {
                        seen.note(entry, local);
                    }
                }
            }
            _ => {}
        }
    }

    /// A claim on a store that forgets is as much higher than what its claimer saw as true time has passed at least.
    pub(super) fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
        if state.processes[sent.pid].engine.class() != Class::C {
            return Ok(());
        }
        for write in sent.writes.iter().filter(|write| WriteKind::of(write) == WriteKind::Claim) {
            let (Key::Named(_, _, role), Some((_, Record::Role(record)))) = (&write.key, &write.put) else {
                continue;
            };
            no_faster_than_clocks(state, role, record.token)?;
            let Some((seen, since)) = self.seen.get(sent.pid).highest.get(role) else { continue };
            let age = state.node(sent.pid).timing.min_elapsed(sent.local.since(*since));
            // What a process has seen counts from when its engine took it in, which may be an answer or two later.
            let late = 2 * state.node(sent.pid).timing.ttl;
            if u128::from(record.token.get()) < u128::from(seen.get()) + age.saturating_sub(late).as_micros()
            {
                return Err(format!(
                    "{role} is claimed with {}, {age:?} after {seen} was seen",
                    record.token
                ));
            }
        }
        Ok(())
    }

    /// The store lost these registers' last writes.
    pub(super) fn lost(&mut self, after: &WorldState, lost: &[Key]) {
        if after.settings.clocks_agree() {
            return;
        }
        if lost.contains(&Key::Cluster) {
            return self.began.clear();
        }
        for key in lost.iter().filter(|key| key.kind() == Kind::Role) {
            let Key::Named(_, _, role) = key else { continue };
            let kept = after.store.get(key).and_then(|(_, record)| record.token()).unwrap_or_default();
            if let Some((began, _)) = self.began.get_mut(role) {
                *began = kept.min(*began);
            }
        }
    }

    pub(super) fn applied(&self, before: &WorldState, write: &Write) -> CheckResult {
        let Some((_, Record::Role(former))) = before.store.get(&write.key) else { return Ok(()) };
        let (key, was) = (&write.key, former.token);
        match &write.put {
            None => Err(format!("{key} is deleted, and its token {was} with it")),
            Some((_, Record::Role(role)))
                if WriteKind::of(write) == WriteKind::Claim && role.token <= was =>
            {
                Err(format!("{key} is claimed with {} after {was}", role.token))
            }
            Some((_, Record::Role(role))) if role.token < was => {
                Err(format!("{key} goes back from {was} to {}", role.token))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn elected(&mut self, state: &WorldState, pid: Pid, role: &Name, token: Token) -> CheckResult {
        if let Some((seen, _)) = self.seen.get(pid).highest.get(role).filter(|(seen, _)| token < *seen) {
            return Err(format!("{role} is led by p{pid} with {token}, although it has seen {seen}"));
        }
        let (highest, by) = self.began.entry(role.clone()).or_default();
        // Twins may have been parted between the claim and the election.
        if token <= *highest && !state.is_excused(pid, *by) {
            let name = &state.node(pid).name;
            return Err(format!("{role} is led by {name} with {token} after {highest}"));
        }
        if state.settings.clocks_agree() || is_kept(state, role, token) {
            (*highest, *by) = (token.max(*highest), pid);
        }
        Ok(())
    }
}

/// Whether the store still holds a token: it may have lost the claim while the answer was on its way that let a tenure begin.
fn is_kept(state: &WorldState, role: &Name, token: Token) -> bool {
    state.store.entries().any(|(key, (_, record))| {
        matches!(key, Key::Named(_, Kind::Role, name) if name == role) && record.token() >= Some(token)
    })
}

impl Seen {
    fn note(&mut self, entry: &Entry, local: Time) {
        if let (Key::Named(_, Kind::Role, role), Record::Role(record)) = (&entry.key, &entry.value)
            && self.watched.contains(role)
        {
            let highest = self.highest.entry(role.clone()).or_default();
            if record.token > highest.0 {
                *highest = (record.token, local);
            }
        }
    }
}

/// Where wall clocks agree, no token is ahead of all of them: it would be ahead of the next claimer.
fn no_faster_than_clocks(state: &WorldState, role: &Name, token: Token) -> CheckResult {
    let walls = state.clocks.iter().map(|clock| clock.now(state.now).wall.as_micros());
    let ahead = token.get().saturating_sub(walls.max().unwrap_or_default());
    if state.settings.clocks_agree() && ahead > COUNTED {
        return Err(format!("{role} is claimed with {token}, {ahead} µs ahead of every wall clock"));
    }
    Ok(())
}

/// So much a role may be ahead because it was claimed again and again within a microsecond each.
const COUNTED: u64 = 1_000;
