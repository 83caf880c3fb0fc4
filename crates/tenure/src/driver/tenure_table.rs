//! The table of this node's roles and tenures, which the loop shares with candidates and observers.
//!
//! It turns the engine's events into offers of tenures, requests to stop and views of leaders, and knows which work is
//! still running: a tenure that no candidate took has no work to wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::io::{Candidacy, State};
use tenure_core::record::EndReason;
use tenure_core::{Engine, Event as EngineEvent, Input, SessionId, Time};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::guard_keeper::{CandidateGuard, GuardKeeper};
use super::{Command, DriverConfig};
use crate::clock::Clock;
use crate::event::EventKind;
use crate::fault_injection::DriverFault;
use crate::lead::StopRequest;
use crate::lease_state::{GuardState, LeaseState, SharedDeadline, TenurePhase};
use crate::publisher::Publisher;
use crate::{Leader, Name, Timing, Token};

/// A role of this node, as its candidates and observers see it.
#[derive(Debug)]
pub(crate) struct RoleSlot {
    pub(crate) role: Name,
    pub(crate) candidates: AtomicUsize,
    pub(crate) observers: AtomicUsize,
    /// A tenure that no candidate has taken yet.
    offer: Mutex<Option<Arc<LeaseState>>>,
    /// The guard lock of the next tenure.
    guard: Mutex<Option<CandidateGuard>>,
    pub(crate) view: watch::Sender<RoleView>,
}

/// What this node knows of a role.
#[derive(Debug, Clone)]
pub(crate) struct RoleView {
    pub(crate) state: State,
    pub(crate) leader: Option<Leader>,
    /// The tenure of this node, taken or not.
    pub(crate) lease: Option<Arc<LeaseState>>,
    /// The node has stopped: nothing more will come.
    pub(crate) closed: bool,
}

impl RoleSlot {
    pub(crate) fn new(role: Name) -> Arc<Self> {
        let view = RoleView { state: State::Follower, leader: None, lease: None, closed: false };
        Arc::new(Self {
            role,
            candidates: AtomicUsize::new(0),
            observers: AtomicUsize::new(0),
            offer: Mutex::new(None),
            guard: Mutex::new(None),
            view: watch::Sender::new(view),
        })
    }

    /// The guard lock to take before a tenure is offered, from the next election on.
    pub(crate) fn set_guard(&self, guard: Option<CandidateGuard>) {
        *self.guard.lock().unwrap_or_else(PoisonError::into_inner) = guard;
    }

    fn guard(&self) -> Option<CandidateGuard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the tenure on offer, if there is one. Only one taker gets it.
    pub(crate) fn take_offer(&self) -> Option<Arc<LeaseState>> {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = offer.take()?;
        lease.taken.store(true, Ordering::Release);
        Some(lease)
    }

    fn offer(&self, lease: &Arc<LeaseState>) {
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease.clone());
        self.view.send_modify(|view| view.lease = Some(lease.clone()));
    }

    /// Takes the offer back; true if no candidate had taken it, so that there is no work.
    fn retract(&self, token: Token) -> bool {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        offer.take_if(|lease| lease.token == token).is_some()
    }
}

/// See the [module](self).
pub(super) struct TenureTable {
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    timing: Timing,
    abort_if_stuck: bool,
    election_checks: bool,
    labels: BTreeMap<String, String>,
    address: Option<String>,
    session: Option<(SessionId, Arc<SharedDeadline>)>,
    /// Tenures whose work may be running.
    tenures: BTreeMap<Name, Arc<LeaseState>>,
    /// Tenures that were not offered yet: their guard lock is not held.
    waiting: BTreeMap<Name, Token>,
    keepers: mpsc::UnboundedSender<Command>,
    of_keepers: mpsc::UnboundedReceiver<Command>,
    slots: BTreeMap<Name, (Arc<RoleSlot>, Option<Candidacy>)>,
    /// Roles whose leader's address is not known yet.
    unaddressed: BTreeSet<Name>,
    /// When work that was told to stop is stuck.
    kill_at: BTreeMap<Name, Time>,
    stop: Option<oneshot::Sender<()>>,
    fault: Option<DriverFault>,
}

impl TenureTable {
    pub(super) fn new(config: &DriverConfig) -> Self {
        let (keepers, of_keepers) = mpsc::unbounded_channel();
        Self {
            publisher: config.publisher.clone(),
            clock: config.clock.clone(),
            timing: config.timing,
            abort_if_stuck: config.abort_if_stuck,
            election_checks: config.election_checks,
            labels: config.labels.clone(),
            address: config.address.clone(),
            session: None,
            tenures: BTreeMap::new(),
            waiting: BTreeMap::new(),
            keepers,
            of_keepers,
            slots: BTreeMap::new(),
            unaddressed: BTreeSet::new(),
            kill_at: BTreeMap::new(),
            stop: None,
            fault: config.fault,
        }
    }

    /// The first inputs of a new engine.
    pub(super) fn initial_inputs(&self) -> Vec<Input> {
        let mut inputs = vec![
            Input::Describe { labels: self.labels.clone(), address: self.address.clone() },
            Input::Start,
        ];
        inputs.extend(self.slots.iter().map(|(role, (_, candidacy))| match candidacy.clone() {
            Some(candidacy) => Input::Campaign { role: role.clone(), candidacy },
            None => Input::Observe { role: role.clone() },
        }));
        inputs
    }

    pub(super) fn take_stop_request(&mut self) -> Option<oneshot::Sender<()>> {
        self.stop.take()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    pub(super) fn describe(&mut self, labels: &BTreeMap<String, String>, address: Option<&String>) {
        self.labels.clone_from(labels);
        self.address = address.cloned();
    }

    pub(super) fn register(&mut self, role: &Name, slot: Arc<RoleSlot>, candidacy: Option<Candidacy>) {
        let entry = self.slots.entry(role.clone()).or_insert((slot, None));
        if candidacy.is_some() {
            entry.1 = candidacy;
        }
    }

    /// The last candidate or observer of a role has left: the inputs that follow from it.
    pub(super) fn leave(&mut self, role: &Name) -> Vec<Input> {
        let Some((slot, candidacy)) = self.slots.get_mut(role) else { return Vec::new() };
        if slot.candidates.load(Ordering::Acquire) > 0 {
            return Vec::new();
        }
        *candidacy = None;
        let mut inputs = vec![Input::Withdraw { role: role.clone() }];
        if slot.observers.load(Ordering::Acquire) > 0 {
            inputs.push(Input::Observe { role: role.clone() });
        } else {
            self.slots.remove(role);
        }
        inputs
    }

    pub(super) fn valid_until(&self, until: Time) {
        if let Some((_, deadline)) = &self.session {
            deadline.set(until);
        }
    }

    /// Applies an event of the engine to tenures and views. `inputs` gets what the engine has to know of it.
    pub(super) fn apply(&mut self, event: &EngineEvent, engine: &Engine, inputs: &mut Vec<Input>) {
        match event {
            EngineEvent::SessionOpened { session } => self.session = Some((*session, SharedDeadline::new())),
            EngineEvent::SessionOver { .. } => self.end_session(),
            EngineEvent::Elected { role, token } => self.elected(role, *token),
            EngineEvent::Draining { role, token, reason, forced } => {
                self.draining(role, *token, *reason, *forced, inputs)
            }
            EngineEvent::Lost { role, token, reason } => self.lost(role, *token, *reason, inputs),
            EngineEvent::StateChanged { role, to, .. } => self.update_view(role, |view| view.state = *to),
            EngineEvent::LeaderChanged { role, leader, token, .. } => {
                let leader = leader.as_ref().map(|node| self.leader(node, *token, engine));
                if leader.as_ref().is_some_and(|leader| leader.address.is_none()) {
                    self.unaddressed.insert(role.clone());
                }
                self.update_view(role, |view| view.leader = leader);
            }
            _ => {}
        }
    }

    fn leader(&self, node: &Name, token: Token, engine: &Engine) -> Leader {
        let address = engine.address_of(node).map(str::to_owned);
        Leader { node: node.clone(), token, address }
    }

    fn update_view(&self, role: &Name, change: impl FnOnce(&mut RoleView)) {
        if let Some((slot, _)) = self.slots.get(role) {
            slot.view.send_modify(change);
        }
    }

    fn elected(&mut self, role: &Name, token: Token) {
        let (Some((session, deadline)), Some((slot, _))) = (&self.session, self.slots.get(role)) else {
            return;
        };
        let guard = slot.guard();
        let state = guard
            .is_some()
            .then(|| GuardState { deadline: SharedDeadline::new(), work_ended: CancellationToken::new() });
        let (clock, deadline) = (self.clock.clone(), deadline.clone());
        let lease = LeaseState::new(role.clone(), token, *session, deadline, state, clock, self.fault);
        match guard {
            None => slot.offer(&lease),
            Some(guard) => {
                self.waiting.insert(role.clone(), token);
                let (publisher, commands) = (self.publisher.clone(), self.keepers.clone());
                let keeper =
                    GuardKeeper { guard, lease: lease.clone(), timing: self.timing, publisher, commands };
                tokio::spawn(keeper.run());
            }
        }
        self.tenures.insert(role.clone(), lease);
    }

    /// The next command of a keeper of a guard lock. Cancel-safe.
    pub(super) async fn next_of_keepers(&mut self) -> Option<Command> {
        self.of_keepers.recv().await
    }

    /// The guard lock is held: the tenure is offered, unless its end has come meanwhile.
    pub(super) fn guard_held(&mut self, role: &Name, token: Token) {
        let lease = self.tenures.get(role).filter(|lease| lease.token == token);
        let held = lease.filter(|lease| matches!(*lease.phase.borrow(), TenurePhase::Held));
        let (Some(lease), Some((slot, _))) = (held, self.slots.get(role)) else { return };
        slot.offer(lease);
        self.waiting.remove(role);
        let session = lease.session;
        self.publisher.publish(EventKind::Elected { role: role.clone(), token, session });
    }

    /// The guard lock runs out, or is another's. Work that is winding down already has no longer than that either.
    pub(super) fn guard_lost(&mut self, role: &Name, token: Token) {
        let Some(lease) = self.tenures.get(role).filter(|lease| lease.token == token).cloned() else {
            return;
        };
        if matches!(*lease.phase.borrow(), TenurePhase::Stopping(StopRequest::Drain { .. })) {
            lease.stop(StopRequest::LeaseEnds { reason: EndReason::GuardLost });
            self.kill_in_time(role, &lease);
        }
    }

    /// What has not stopped right before the deadline is stuck.
    fn kill_in_time(&mut self, role: &Name, lease: &LeaseState) {
        // A process that was frozen finds the time long past: its work, frozen too, gets a moment to be told.
        let soonest = self.clock.now().after(self.timing.kill_slack);
        let kill_at = lease.deadline().before(self.timing.kill_slack).max(soonest);
        self.kill_at.insert(role.clone(), kill_at);
    }

    /// Whether an event is about a tenure that was never offered: no listener heard of its beginning.
    fn is_unannounced(&mut self, event: &EngineEvent) -> bool {
        let (EngineEvent::Elected { role, token }
        | EngineEvent::Draining { role, token, .. }
        | EngineEvent::Lost { role, token, .. }) = event
        else {
            return false;
        };
        let unannounced = self.waiting.get(role) == Some(token);
        if unannounced && matches!(event, EngineEvent::Lost { .. }) {
            self.waiting.remove(role);
        }
        unannounced
    }

    fn draining(
        &mut self,
        role: &Name,
        token: Token,
        reason: EndReason,
        forced: bool,
        inputs: &mut Vec<Input>,
    ) {
        let Some(lease) = self.tenures.get(role).filter(|lease| lease.token == token).cloned() else {
            return inputs.push(Input::WorkStopped { role: role.clone(), token });
        };
        lease.stop(StopRequest::new(reason, forced));
        if forced {
            self.kill_in_time(role, &lease);
        }
        self.stop_untaken(role, token, inputs);
        if DriverFault::StoppedTooEarly.is_injected(self.fault) && self.work_stopped(role, token) {
            inputs.push(Input::WorkStopped { role: role.clone(), token });
        }
    }

    fn lost(&mut self, role: &Name, token: Token, reason: EndReason, inputs: &mut Vec<Input>) {
        if let Some(lease) = self.tenures.get(role).filter(|lease| lease.token == token) {
            lease.revoke(reason);
        }
        self.update_view(role, |view| view.lease = None);
        self.stop_untaken(role, token, inputs);
    }

    /// A tenure that no candidate took has no work to wait for.
    fn stop_untaken(&mut self, role: &Name, token: Token, inputs: &mut Vec<Input>) {
        let retracted = self.slots.get(role).is_none_or(|(slot, _)| slot.retract(token));
        if !(retracted || self.waiting.get(role) == Some(&token)) {
            return;
        }
        let lease = self.tenures.get(role).filter(|lease| lease.token == token);
        if let Some(guard) = lease.and_then(|lease| lease.guard.as_ref()) {
            // Its keeper gives the lock back first, and then reports that the work has stopped.
            return guard.work_ended.cancel();
        }
        if self.work_stopped(role, token) {
            inputs.push(Input::WorkStopped { role: role.clone(), token });
        }
    }

    /// The work of a tenure has stopped; false if it had already. From here on every [`crate::Lead`] of it says so: the
    /// role is about to be given up.
    pub(super) fn work_stopped(&mut self, role: &Name, token: Token) -> bool {
        if self.tenures.get(role).is_none_or(|lease| lease.token != token) {
            return false;
        }
        self.kill_at.remove(role);
        let Some(lease) = self.tenures.remove(role) else { return false };
        let reason = match *lease.phase.borrow() {
            TenurePhase::Stopping(request) => request.reason(),
            TenurePhase::Lost(reason) => reason,
            TenurePhase::Held => EndReason::Resigned,
        };
        lease.revoke(reason);
        true
    }

    fn end_session(&mut self) {
        if let Some((_, deadline)) =
            self.session.take().filter(|_| !DriverFault::NotRevoked.is_injected(self.fault))
        {
            deadline.set(Time::from_nanos(0));
        }
    }

    /// Whether anything that was led may still be worked on.
    pub(super) fn has_work(&self) -> bool {
        !self.tenures.is_empty()
    }

    pub(super) fn next_wake(&self) -> Time {
        self.kill_at.values().min().copied().unwrap_or(Time::NEVER)
    }

    /// Rule 6: what has not stopped by then is killed, if it may be; in any case it is told.
    pub(super) fn kill_stuck(&mut self, now: Time) {
        if self.next_wake() > now {
            return;
        }
        let stuck: Vec<Name> =
            self.kill_at.iter().filter(|(_, at)| **at <= now).map(|(role, _)| role.clone()).collect();
        for role in stuck {
            self.kill_at.remove(&role);
            let Some(lease) = self.tenures.get(&role) else { continue };
            let ended = lease.guard.as_ref().is_some_and(|guard| guard.work_ended.is_cancelled());
            if ended || lease.idle.load(Ordering::Acquire) {
                continue;
            }
            self.publisher.publish(EventKind::Stuck { role, token: lease.token });
            if self.abort_if_stuck {
                std::process::abort();
            }
        }
    }

    /// After each poll: late addresses, and the election checks if they are on.
    pub(super) fn after_poll(&mut self, engine: &Engine) {
        for role in std::mem::take(&mut self.unaddressed) {
            let Some((slot, _)) = self.slots.get(&role) else { continue };
            let Some(mut leader) = slot.view.borrow().leader.clone() else { continue };
            leader.address = engine.address_of(&leader.node).map(str::to_owned);
            if leader.address.is_some() {
                slot.view.send_modify(|view| view.leader = Some(leader));
            } else if !engine.knows_node(&leader.node) {
                self.unaddressed.insert(role);
            }
        }
        if self.election_checks {
            for (role, (slot, _)) in &self.slots {
                let leader = slot.view.borrow().leader.as_ref().map(|leader| leader.node.clone());
                self.publisher.publish(EventKind::ElectionCheck { role: role.clone(), leader });
            }
        }
    }

    /// Publishes an event of the engine.
    pub(super) fn publish(&mut self, event: EngineEvent, now: Time) {
        if self.is_unannounced(&event) {
            return;
        }
        let roles = self.tenures.len();
        let kind = match event {
            EngineEvent::SessionOpened { session } => EventKind::SessionOpened { session },
            EngineEvent::NoLivenessLock { session } => EventKind::NoLivenessLock { session },
            EngineEvent::SessionOver { session, reason } => EventKind::SessionOver { session, reason },
            EngineEvent::NameTaken { by } => EventKind::NameTaken { by },
            EngineEvent::InDoubt => EventKind::InDoubt { roles },
            EngineEvent::Certain => EventKind::Certain { roles },
            EngineEvent::Elected { role, token } => {
                let Some((session, _)) = self.session else { return };
                EventKind::Elected { role, token, session }
            }
            EngineEvent::Draining { role, token, reason, forced } => {
                EventKind::Draining { role, token, reason, forced }
            }
            EngineEvent::Lost { role, token, reason } => EventKind::Lost { role, token, reason },
            EngineEvent::StateChanged { role, from, to } => EventKind::StateChanged { role, from, to },
            EngineEvent::LeaderChanged { role, former, leader, token } => {
                EventKind::LeaderChanged { role, former, leader, token }
            }
            EngineEvent::LeaderDown { role, former } => EventKind::LeaderDown { role, former },
            EngineEvent::ElectionFailed { role, cause } => EventKind::ElectionFailed { role, cause },
            EngineEvent::Paused { role, paused } => EventKind::Paused { role, paused },
            EngineEvent::Quarantined { until } => {
                let millis = u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
                EventKind::Quarantined { millis }
            }
            EngineEvent::Unreadable { key } => EventKind::Unreadable { register: key.to_string() },
            EngineEvent::NewerProtocol { protocol } => EventKind::NewerProtocol { protocol },
            EngineEvent::Polled => return,
        };
        self.publisher.publish(kind);
    }

    /// Nothing that was led may be relied on any more.
    pub(super) fn revoke_all(&mut self, reason: EndReason) {
        self.end_session();
        for (role, (slot, _)) in &self.slots {
            if let Some(lease) = self.tenures.get(role) {
                let held = lease.check() || !matches!(*lease.phase.borrow(), TenurePhase::Lost(_));
                lease.revoke(reason);
                let unannounced = self.waiting.remove(role).is_some();
                if held && !unannounced {
                    self.publisher.publish(EventKind::Lost {
                        role: role.clone(),
                        token: lease.token,
                        reason,
                    });
                }
                if slot.retract(lease.token) || unannounced {
                    lease.taken.store(false, Ordering::Release);
                    if let Some(guard) = &lease.guard {
                        guard.work_ended.cancel();
                    }
                }
            }
            let closed = reason == EndReason::Shutdown;
            slot.view.send_modify(|view| {
                (view.lease, view.closed, view.state) = (None, closed, State::Follower);
            });
        }
        self.tenures.retain(|_, lease| lease.taken.load(Ordering::Acquire) || lease.guard.is_some());
    }

    /// Waits, after a failure of the loop, until the work of every tenure has stopped.
    pub(super) async fn wait_until_stopped(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let mut has_handles = true;
        while !self.tenures.is_empty() {
            let command = tokio::select! {
                Some(command) = self.of_keepers.recv() => command,
                command = commands.recv(), if has_handles => match command {
                    Some(command) => command,
                    // No handle is left, and with it no work: only guard locks have to be given back.
                    None => {
                        has_handles = false;
                        self.tenures.retain(|_, lease| lease.guard.is_some());
                        continue;
                    }
                },
            };
            self.apply_without_engine(command);
        }
    }

    /// Takes a command while there is no engine: it is told all of it when it starts.
    pub(super) fn apply_without_engine(&mut self, command: Command) {
        match command {
            Command::Stopped { role, token } => _ = self.work_stopped(&role, token),
            Command::Campaign { role, candidacy, slot } => self.register(&role, slot, Some(candidacy)),
            Command::Observe { role, slot } => self.register(&role, slot, None),
            Command::Leave { role } => _ = self.leave(&role),
            Command::Describe { labels, address } => self.describe(&labels, address.as_ref()),
            Command::Publish(kind) => self.publisher.publish(kind),
            Command::Stop { done } => self.stop = Some(done),
            Command::Release { .. }
            | Command::GuardHeld { .. }
            | Command::GuardLost { .. }
            | Command::ForceLoss => {}
        }
    }
}
