//! Structured logs of what happens to a node, naming role, token and reason.
//!
//! A node with thousands of roles wins and loses them together. Of such a burst the first lines are written one by one, and
//! the rest is one line with a count.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::event::{Event, EventKind};
use crate::ledger::RunState;
use crate::{Name, Token};

/// The number of lines of one kind in a row that are written one by one.
const SINGLE: u32 = 10;
/// A burst is over when nothing more of its kind has come for so long.
const QUIET: Duration = Duration::from_millis(500);
/// The number of roles named in the line for the rest of a burst.
const NAMED: usize = 3;

/// Writes lines, and holds back what would repeat itself.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    bursts: Mutex<BTreeMap<&'static str, Burst>>,
}

#[derive(Debug)]
struct Burst {
    last: Instant,
    lines: u32,
    /// Held back.
    more: usize,
    /// The first of them.
    named: Vec<String>,
}

impl EventLog {
    pub(crate) fn write(&self, event: &Event) {
        let held_back = kind(event).is_some_and(|(kind, role)| self.hold_back(kind, role));
        if !held_back {
            line(event);
        }
    }

    fn hold_back(&self, kind: &'static str, role: &Name) -> bool {
        let mut bursts = self.bursts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let fresh = || Burst { last: now, lines: 0, more: 0, named: Vec::new() };
        let burst = bursts.entry(kind).or_insert_with(fresh);
        // What is held back is logged before another burst begins.
        if burst.more == 0 && now.duration_since(burst.last) >= QUIET {
            *burst = fresh();
        }
        (burst.last, burst.lines) = (now, burst.lines.saturating_add(1));
        if burst.lines <= SINGLE {
            return false;
        }
        burst.more += 1;
        if burst.named.len() < NAMED {
            burst.named.push(role.to_string());
        }
        true
    }

    /// Logs what was held back in bursts that are over, or all of it.
    pub(crate) fn flush_bursts(&self, node: &Name, all: bool) {
        let mut bursts = self.bursts.lock().unwrap_or_else(PoisonError::into_inner);
        bursts.retain(|kind, burst| {
            let over = all || burst.last.elapsed() >= QUIET;
            if over && burst.more > 0 {
                let (roles, named) = (burst.more, burst.named.join(", "));
                tracing::info!(%node, kind, roles, named, "the same of more roles");
            }
            !over
        });
    }
}

/// The kind and role of an event that may come in bursts.
fn kind(event: &Event) -> Option<(&'static str, &Name)> {
    Some(match &event.kind {
        EventKind::Elected { role, .. } => ("elected", role),
        EventKind::Draining { role, .. } => ("draining", role),
        EventKind::Lost { role, .. } => ("lost", role),
        EventKind::LeaderChanged { role, former, leader, .. } if !is_own(event, former, leader) => {
            ("leader changed", role)
        }
        EventKind::LeaderDown { role, .. } => ("leader down", role),
        EventKind::Stuck { role, .. } => ("the work did not stop in time", role),
        EventKind::WorkStopped { role, .. } => ("the work has stopped", role),
        _ => return None,
    })
}

/// Whether this node came or went: it has said so already.
fn is_own(event: &Event, former: &Option<Name>, leader: &Option<Name>) -> bool {
    leader.as_ref().or(former.as_ref()) == Some(&event.node)
}

fn line(event: &Event) {
    let node = &event.node;
    match &event.kind {
        EventKind::Elected { role, token, session } => {
            tracing::info!(%node, %role, %token, %session, "elected")
        }
        EventKind::WaitingForGuard { role, token, lock, why } => {
            tracing::warn!(%node, %role, %token, lock, why, "waiting for the guard lock");
        }
        EventKind::Draining { role, token, reason, forced } => {
            tracing::info!(%node, %role, %token, %reason, forced, "draining");
        }
        EventKind::Lost { role, token, reason } => tracing::info!(%node, %role, %token, %reason, "lost"),
        EventKind::LeaderChanged { role, former, leader, token } => {
            leader_changed(event, role, former, leader, *token);
        }
        EventKind::LeaderDown { role, former } => tracing::info!(%node, %role, %former, "leader down"),
        EventKind::Paused { role, paused } => tracing::info!(%node, %role, paused, "paused"),
        EventKind::NoLivenessLock { session } => tracing::warn!(
            %node, %session,
            "the store cannot tell of dropped connections: this session is strict, only its lease counts"
        ),
        EventKind::SessionOpened { session } => tracing::info!(%node, %session, "session opened"),
        EventKind::SessionOver { session, reason } => {
            tracing::info!(%node, %session, %reason, "session over")
        }
        EventKind::InDoubt { roles } => tracing::warn!(%node, roles, "in doubt: a beat failed"),
        EventKind::Certain { roles } => tracing::info!(%node, roles, "certain again"),
        EventKind::NameTaken { by } => {
            tracing::warn!(%node, %by, "another live process has this node's name; waiting until it is gone");
        }
        EventKind::Quarantined { millis } => {
            tracing::warn!(%node, millis, "the store may have forgotten: nothing is claimed for a while");
        }
        EventKind::Stuck { role, token } => {
            tracing::error!(%node, %role, %token, "the work did not stop in time; only the token protects what it does after its lease");
        }
        EventKind::StoreWeakened { why } => {
            tracing::warn!(%node, why, "the store can lose acknowledged writes from now on: class C");
        }
        EventKind::StoreFailed { error } => tracing::warn!(%node, error, "the store failed"),
        EventKind::LoopFailed { error } => {
            tracing::error!(%node, error, "the election loop failed and is started anew")
        }
        EventKind::Unreadable { register } => {
            tracing::warn!(%node, register, "a register cannot be read by this version")
        }
        EventKind::NewerProtocol { protocol } => {
            let ours = tenure_core::record::PROTOCOL;
            tracing::error!(%node, protocol, ours, "cannot take part: other nodes speak a newer protocol; upgrade this node");
        }
        EventKind::WorkRestarted { .. }
        | EventKind::WorkFailed { .. }
        | EventKind::WorkStopped { .. }
        | EventKind::TaskStarted { .. }
        | EventKind::TaskEnded { .. }
        | EventKind::TaskPassed { .. } => work_event(event),
        EventKind::ElectionFailed { role, cause } => tracing::debug!(%node, %role, ?cause, "election failed"),
        EventKind::StateChanged { role, from, to } => {
            tracing::debug!(%node, %role, ?from, ?to, "state changed")
        }
        EventKind::ElectionCheck { .. } | EventKind::Missed { .. } => {}
    }
}

/// What became of the work and the tasks of a leader.
fn work_event(event: &Event) {
    let node = &event.node;
    match &event.kind {
        EventKind::WorkRestarted { role, token, worker, why } => {
            tracing::warn!(%node, %role, %token, worker, why, "a worker failed; it is started again");
        }
        EventKind::WorkFailed { role, token, worker, why } => {
            tracing::error!(%node, %role, %token, worker, why, "the work failed; this node does not campaign until its cool-down is over");
        }
        EventKind::WorkStopped { role, token, cancelled } => {
            tracing::info!(%node, %role, %token, ?cancelled, "the work has stopped");
        }
        EventKind::TaskStarted { task, tick, token, late_ms } => {
            tracing::debug!(%node, %task, tick = tick.as_micros(), %token, late_ms, "task started");
        }
        EventKind::TaskEnded {
            task,
            tick,
            token,
            state: state @ (RunState::Failed | RunState::TimedOut),
            took_ms,
            why,
        } => {
            tracing::warn!(%node, %task, tick = tick.as_micros(), %token, %state, took_ms, why, "task failed");
        }
        EventKind::TaskEnded { task, tick, token, state, took_ms, why } => {
            tracing::info!(%node, %task, tick = tick.as_micros(), %token, %state, took_ms, why, "task ended");
        }
        EventKind::TaskPassed { task, count, state, why, .. } => {
            tracing::info!(%node, %task, count, %state, why, "ticks passed over");
        }
        _ => {}
    }
}

/// This node has said already that it came or went: its own change is a line for those who debug.
fn leader_changed(event: &Event, role: &Name, former: &Option<Name>, leader: &Option<Name>, token: Token) {
    let (node, own) = (&event.node, is_own(event, former, leader));
    let (former, leader) = (former.as_ref().map(Name::as_str), leader.as_ref().map(Name::as_str));
    if own {
        tracing::debug!(%node, %role, %token, former, leader, "leader changed");
    } else {
        tracing::info!(%node, %role, %token, former, leader, "leader changed");
    }
}
