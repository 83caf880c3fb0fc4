//! On a store that can forget, no node claims a role that it has watched for less than the longest lease, nor asks for it,
//! nor is handed it; a claim settles before it is led, and one that was long on its way is made once more before.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::engine::Class;
use tenure_core::record::{Answer, Request};
use tenure_core::{Input, Key, Name, OpId, Record, Reply, Time, Token, Version, Write};

use super::{CheckResult, SentBatch, WriteKind};
use crate::process::Pid;
use crate::world_state::WorldState;

/// When each process began, by its own clock, whether the store could lose something by then, and what it claimed last.
#[derive(Debug, Clone, Default)]
pub(super) struct Quarantine {
    began: Vec<(Time, bool)>,
    claimed: BTreeMap<Pid, BTreeMap<Name, Vec<Claim>>>,
}

/// A claim of a role by a process.
#[derive(Debug, Clone, Copy)]
struct Claim {
    op: OpId,
    token: Token,
    version: Version,
    /// It replaced an earlier one of the same process.
    on_top: bool,
    sent: Time,
    answered: Option<Time>,
    /// It was answered before the store could lose anything: what is lost afterwards is claimed again with a token from the
    /// wall clock, which is higher than any that was given without.
    before_losses: bool,
}

/// So many claims of a role are remembered per process: more than it can have on their way.
const REMEMBERED: usize = 8;

/// Twice what wall clocks may differ by, on a clock that is as slow as any may be.
const SETTLING: Duration = Duration::from_millis(20);

/// A claim that took longer may have been overtaken by one that the store lost; by a clock that is as fast as any may be.
const FLIGHT: Duration = Duration::from_micros(3_300);

impl Quarantine {
    pub(super) fn begun(&mut self, state: &WorldState, pid: Pid, twin_of: Option<Pid>) {
        self.began.truncate(pid);
        let forgets = state.settings.class == Class::C;
        self.began.push(twin_of.map_or_else(|| (state.local(pid), forgets), |twin| self.began[twin]));
        if let Some(claimed) = twin_of.and_then(|twin| self.claimed.get(&twin)).cloned() {
            self.claimed.insert(pid, claimed);
        }
    }

    pub(super) fn received(&mut self, state: &WorldState, pid: Pid, input: &Input) {
        let Input::Replied { op, reply: Reply::Written(_) } = input else { return };
        let (local, keeps) = (state.local(pid), state.processes[pid].engine.class() != Class::C);
        let claimed = self.claimed.get_mut(&pid).into_iter().flat_map(BTreeMap::values_mut).flatten();
        for claim in claimed.filter(|claim| claim.op == *op) {
            claim.before_losses |= keeps && claim.answered.is_none();
            claim.answered.get_or_insert(local);
        }
    }

    pub(super) fn sent(&mut self, state: &WorldState, sent: SentBatch<'_>) -> CheckResult {
        // Also before the store could lose anything: the next claim may be on top of that one.
        sent.writes.iter().for_each(|write| self.note_claim(sent, write));
        if state.processes[sent.pid].engine.class() != Class::C {
            return Ok(());
        }
        for write in sent.writes {
            let who = match request(write) {
                // A claim on top of its own claim needs no more than that one did; the store may have weakened in between.
                _ if WriteKind::of(write) == WriteKind::Claim => {
                    Some(sent.pid).filter(|pid| !self.is_on_top(*pid, write))
                }
                Some(Request { preemption: true, answer: Answer::Open, .. }) => Some(sent.pid),
                // Of a node that started before the store could lose anything, others do not know at once that it waits.
                Some(Request { to: Some(to), answer: Answer::Accepted, .. }) => {
                    only_process(state, to).filter(|to| self.began[*to].1)
                }
                _ => None,
            };
            if let Some(who) = who {
                self.has_watched(state, who)?;
            }
        }
        Ok(())
    }

    fn is_on_top(&self, pid: Pid, write: &Write) -> bool {
        let mut own = self.claimed.get(&pid).into_iter().flat_map(BTreeMap::values).flatten();
        own.any(|claim| Some(claim.version) == write.expect)
    }

    fn note_claim(&mut self, sent: SentBatch<'_>, write: &Write) {
        if let (Key::Named(_, _, role), Some((version, Record::Role(record))), WriteKind::Claim) =
            (&write.key, &write.put, WriteKind::of(write))
        {
            let claimed = self.claimed.entry(sent.pid).or_default();
            let claimed = claimed.entry(role.clone()).or_default();
            let on_top = claimed.iter().any(|claim| Some(claim.version) == write.expect);
            let (op, token, version) = (sent.op, record.token, *version);
            let claim =
                Claim { op, token, version, on_top, sent: sent.local, answered: None, before_losses: false };
            claimed.drain(..claimed.len().saturating_sub(REMEMBERED));
            claimed.push(claim);
        }
    }

    fn has_watched(&self, state: &WorldState, pid: Pid) -> CheckResult {
        let timing = &state.node(pid).timing;
        let watched = state.local(pid).since(self.began[pid].0);
        let needed = timing.expulsion_wait(timing.ttl);
        if watched < needed {
            return Err(format!("p{pid} claims, asks or is handed a role after {watched:?}, not {needed:?}"));
        }
        Ok(())
    }

    pub(super) fn elected(&self, state: &WorldState, pid: Pid, role: &Name, token: Token) -> CheckResult {
        let mut claims = self.claimed.get(&pid).and_then(|claimed| claimed.get(role)).into_iter().flatten();
        let claim = claims.rfind(|claim| claim.token == token).filter(|claim| !claim.before_losses);
        let (Class::C, Some(claim)) = (state.processes[pid].engine.class(), claim) else { return Ok(()) };
        let age = state.local(pid).since(claim.sent);
        if age < SETTLING {
            return Err(format!("{role} {token} is led by p{pid} {age:?} after it was claimed"));
        }
        let flight = claim.answered.map_or(Duration::ZERO, |answered| answered.since(claim.sent));
        let twin = state.processes[pid].twin.is_some();
        if flight > FLIGHT && !claim.on_top && !twin && state.settings.clocks_agree() {
            return Err(format!(
                "{role} {token} is led by p{pid}, and was claimed {flight:?} before the answer"
            ));
        }
        Ok(())
    }
}

fn request(write: &Write) -> Option<&Request> {
    match &write.put {
        Some((_, Record::RoleControl(control))) => control.request.as_ref(),
        _ => None,
    }
}

/// The process of a node that was never started before: no other can be taken for it.
fn only_process(state: &WorldState, node: &Name) -> Option<Pid> {
    let of_node = |pid: &Pid| state.node(*pid).name == *node;
    let mut pids = (0..state.processes.len()).filter(of_node);
    pids.next().filter(|_| pids.next().is_none())
}
