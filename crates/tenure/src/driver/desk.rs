//! The desk: what the loop shares with candidates and observers, and what it owes them.
//!
//! It turns the engine's events into offers of tenures, orders to stop and news about leaders, and knows which work
//! is still running: a tenure nobody took has no work to wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::io::{Standing, State};
use tenure_core::record::Reason;
use tenure_core::{Engine, Event as Told, Input, SessionId, Time};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Command, Setup};
use crate::clock::Clock;
use crate::event::What;
use crate::office::{Deadline, Office, Phase};
use crate::publisher::Publisher;
use crate::slip::Slip;
use crate::{Leader, Name, Timing, Token};

/// A role of this node, as its candidates and observers see it.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) role: Name,
    pub(crate) candidates: AtomicUsize,
    pub(crate) observers: AtomicUsize,
    /// A tenure that nobody took yet.
    offer: Mutex<Option<Arc<Office>>>,
    pub(crate) news: watch::Sender<News>,
}

/// What is known of a role.
#[derive(Debug, Clone)]
pub(crate) struct News {
    pub(crate) state: State,
    pub(crate) leader: Option<Leader>,
    /// The tenure of this node, taken or not.
    pub(crate) office: Option<Arc<Office>>,
    /// The node has stopped: nothing more will come.
    pub(crate) closed: bool,
}

impl Seat {
    pub(crate) fn new(role: Name) -> Arc<Self> {
        let news = News { state: State::Follower, leader: None, office: None, closed: false };
        Arc::new(Self {
            role,
            candidates: AtomicUsize::new(0),
            observers: AtomicUsize::new(0),
            offer: Mutex::new(None),
            news: watch::Sender::new(news),
        })
    }

    /// Takes the tenure on offer, if there is one. Only one taker gets it.
    pub(crate) fn take_offer(&self) -> Option<Arc<Office>> {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        let office = offer.take()?;
        office.taken.store(true, Ordering::Release);
        Some(office)
    }

    fn offer(&self, office: &Arc<Office>) {
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(office.clone());
        self.news.send_modify(|news| news.office = Some(office.clone()));
    }

    /// Takes the offer back; true if nobody had taken it, so that there is no work.
    fn retract(&self, token: Token) -> bool {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        offer.take_if(|office| office.token == token).is_some()
    }
}

/// See the [module](self).
pub(super) struct Desk {
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    timing: Timing,
    abort_if_stuck: bool,
    election_checks: bool,
    labels: BTreeMap<String, String>,
    address: Option<String>,
    session: Option<(SessionId, Arc<Deadline>)>,
    /// Tenures whose work may be running.
    offices: BTreeMap<Name, Arc<Office>>,
    seats: BTreeMap<Name, (Arc<Seat>, Option<Standing>)>,
    /// Roles whose leader's address is not known yet.
    unaddressed: BTreeSet<Name>,
    /// When work that was told to stop is stuck.
    kill_at: BTreeMap<Name, Time>,
    stop: Option<oneshot::Sender<()>>,
    slip: Option<Slip>,
}

impl Desk {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            publisher: setup.publisher.clone(),
            clock: setup.clock.clone(),
            timing: setup.timing,
            abort_if_stuck: setup.abort_if_stuck,
            election_checks: setup.election_checks,
            labels: setup.labels.clone(),
            address: setup.address.clone(),
            session: None,
            offices: BTreeMap::new(),
            seats: BTreeMap::new(),
            unaddressed: BTreeSet::new(),
            kill_at: BTreeMap::new(),
            stop: None,
            slip: setup.slip,
        }
    }

    /// What a new engine has to be told first.
    pub(super) fn opening_moves(&self) -> Vec<Input> {
        let mut inputs = vec![
            Input::Describe { labels: self.labels.clone(), address: self.address.clone() },
            Input::Start,
        ];
        inputs.extend(self.seats.iter().map(|(role, (_, standing))| match standing.clone() {
            Some(standing) => Input::Stand { role: role.clone(), standing },
            None => Input::Observe { role: role.clone() },
        }));
        inputs
    }

    pub(super) fn stop_wanted(&mut self) -> Option<oneshot::Sender<()>> {
        self.stop.take()
    }

    pub(super) fn describe(&mut self, labels: &BTreeMap<String, String>, address: Option<&String>) {
        self.labels.clone_from(labels);
        self.address = address.cloned();
    }

    pub(super) fn seat(&mut self, role: &Name, seat: Arc<Seat>, standing: Option<Standing>) {
        let entry = self.seats.entry(role.clone()).or_insert((seat, None));
        if standing.is_some() {
            entry.1 = standing;
        }
    }

    /// The last candidate or observer of a role has left: what the engine has to be told.
    pub(super) fn leave(&mut self, role: &Name) -> Vec<Input> {
        let Some((seat, standing)) = self.seats.get_mut(role) else { return Vec::new() };
        if seat.candidates.load(Ordering::Acquire) > 0 {
            return Vec::new();
        }
        *standing = None;
        let mut inputs = vec![Input::Withdraw { role: role.clone() }];
        if seat.observers.load(Ordering::Acquire) > 0 {
            inputs.push(Input::Observe { role: role.clone() });
        } else {
            self.seats.remove(role);
        }
        inputs
    }

    pub(super) fn valid_until(&self, until: Time) {
        if let Some((_, deadline)) = &self.session {
            deadline.set(until);
        }
    }

    /// Lets an event of the engine take effect on tenures and news. `inputs` gets what the engine has to know of it.
    pub(super) fn take(&mut self, event: &Told, engine: &Engine, inputs: &mut Vec<Input>) {
        match event {
            Told::SessionOpened { session } => self.session = Some((*session, Deadline::new())),
            Told::SessionOver { .. } => self.end_session(),
            Told::Elected { role, token } => self.elected(role, *token),
            Told::Draining { role, token, reason, forced } => {
                self.draining(role, *token, *reason, *forced, inputs)
            }
            Told::Lost { role, token, reason } => self.lost(role, *token, *reason, inputs),
            Told::StateChanged { role, to, .. } => self.news(role, |news| news.state = *to),
            Told::LeaderChanged { role, leader, token, .. } => {
                let leader = leader.as_ref().map(|node| self.leader(node, *token, engine));
                if leader.as_ref().is_some_and(|leader| leader.address.is_none()) {
                    self.unaddressed.insert(role.clone());
                }
                self.news(role, |news| news.leader = leader);
            }
            _ => {}
        }
    }

    fn leader(&self, node: &Name, token: Token, engine: &Engine) -> Leader {
        let address = engine.address_of(node).map(str::to_owned);
        Leader { node: node.clone(), token, address }
    }

    fn news(&self, role: &Name, change: impl FnOnce(&mut News)) {
        if let Some((seat, _)) = self.seats.get(role) {
            seat.news.send_modify(change);
        }
    }

    fn elected(&mut self, role: &Name, token: Token) {
        let (Some((session, deadline)), Some((seat, _))) = (&self.session, self.seats.get(role)) else {
            return;
        };
        let office =
            Office::new(role.clone(), token, *session, deadline.clone(), self.clock.clone(), self.slip);
        seat.offer(&office);
        self.offices.insert(role.clone(), office);
    }

    fn draining(&mut self, role: &Name, token: Token, reason: Reason, forced: bool, inputs: &mut Vec<Input>) {
        let Some(office) = self.offices.get(role).filter(|office| office.token == token).cloned() else {
            return inputs.push(Input::Stopped { role: role.clone(), token });
        };
        office.drain(reason, forced);
        if forced {
            // A process that was frozen finds the time long past: its work, frozen too, gets a moment to be told.
            let soonest = self.clock.now().after(self.timing.kill_slack);
            let kill_at = office.deadline.get().before(self.timing.kill_slack).max(soonest);
            self.kill_at.insert(role.clone(), kill_at);
        }
        self.stop_untaken(role, token, inputs);
        if Slip::StoppedTooEarly.made(self.slip) && self.stopped(role, token) {
            inputs.push(Input::Stopped { role: role.clone(), token });
        }
    }

    fn lost(&mut self, role: &Name, token: Token, reason: Reason, inputs: &mut Vec<Input>) {
        if let Some(office) = self.offices.get(role).filter(|office| office.token == token) {
            office.revoke(reason);
        }
        self.news(role, |news| news.office = None);
        self.stop_untaken(role, token, inputs);
    }

    /// A tenure that nobody took has no work to wait for.
    fn stop_untaken(&mut self, role: &Name, token: Token, inputs: &mut Vec<Input>) {
        let retracted = self.seats.get(role).is_none_or(|(seat, _)| seat.retract(token));
        if retracted && self.stopped(role, token) {
            inputs.push(Input::Stopped { role: role.clone(), token });
        }
    }

    /// The work of a tenure has stopped; false if it had already. Whoever still has a [`crate::Lead`] of it may not rely
    /// on it any more: the role is about to be given up.
    pub(super) fn stopped(&mut self, role: &Name, token: Token) -> bool {
        if self.offices.get(role).is_none_or(|office| office.token != token) {
            return false;
        }
        self.kill_at.remove(role);
        let Some(office) = self.offices.remove(role) else { return false };
        let reason = match *office.phase.borrow() {
            Phase::Draining(reason, _) | Phase::Lost(reason) => reason,
            Phase::Held => Reason::Resigned,
        };
        office.revoke(reason);
        true
    }

    fn end_session(&mut self) {
        if let Some((_, deadline)) = self.session.take().filter(|_| !Slip::NotRevoked.made(self.slip)) {
            deadline.set(Time(0));
        }
    }

    /// Whether anything that was led may still be worked on.
    pub(super) fn has_work(&self) -> bool {
        !self.offices.is_empty()
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
            let Some(office) = self.offices.get(&role) else { continue };
            self.publisher.tell(What::Stuck { role, token: office.token });
            if self.abort_if_stuck {
                std::process::abort();
            }
        }
    }

    /// After each look: late addresses, and the checks that somebody asked for.
    pub(super) fn checked(&mut self, engine: &Engine) {
        for role in std::mem::take(&mut self.unaddressed) {
            let Some((seat, _)) = self.seats.get(&role) else { continue };
            let Some(mut leader) = seat.news.borrow().leader.clone() else { continue };
            leader.address = engine.address_of(&leader.node).map(str::to_owned);
            if leader.address.is_some() {
                seat.news.send_modify(|news| news.leader = Some(leader));
            } else if !engine.knows_node(&leader.node) {
                self.unaddressed.insert(role);
            }
        }
        if self.election_checks {
            for (role, (seat, _)) in &self.seats {
                let leader = seat.news.borrow().leader.as_ref().map(|leader| leader.node.clone());
                self.publisher.tell(What::ElectionCheck { role: role.clone(), leader });
            }
        }
    }

    /// Tells people.
    pub(super) fn tell(&self, event: Told, now: Time) {
        let roles = self.offices.len();
        let what = match event {
            Told::SessionOpened { session } => What::SessionOpened { session },
            Told::NoWitness { session } => What::NoWitness { session },
            Told::SessionOver { session, reason } => What::SessionOver { session, reason },
            Told::NameTaken { by } => What::NameTaken { by },
            Told::InDoubt => What::InDoubt { roles },
            Told::Certain => What::Certain { roles },
            Told::Elected { role, token } => {
                let Some((session, _)) = self.session else { return };
                What::Elected { role, token, session }
            }
            Told::Draining { role, token, reason, forced } => What::Draining { role, token, reason, forced },
            Told::Lost { role, token, reason } => What::Lost { role, token, reason },
            Told::StateChanged { role, from, to } => What::StateChanged { role, from, to },
            Told::LeaderChanged { role, former, leader, token } => {
                What::LeaderChanged { role, former, leader, token }
            }
            Told::LeaderDown { role, former } => What::LeaderDown { role, former },
            Told::ElectionFailed { role, cause } => What::ElectionFailed { role, cause },
            Told::Paused { role, paused } => What::Paused { role, paused },
            Told::Quarantined { until } => {
                let millis = u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
                What::Quarantined { millis }
            }
            Told::Unreadable { key } => What::Unreadable { register: key.to_string() },
            Told::Checked => return,
        };
        self.publisher.tell(what);
    }

    /// Nothing that was led may be relied on any more.
    pub(super) fn revoke_all(&mut self, reason: Reason) {
        self.end_session();
        for (role, (seat, _)) in &self.seats {
            if let Some(office) = self.offices.get(role) {
                let held = office.check() || !matches!(*office.phase.borrow(), Phase::Lost(_));
                office.revoke(reason);
                if held {
                    self.publisher.tell(What::Lost { role: role.clone(), token: office.token, reason });
                }
                if seat.retract(office.token) {
                    office.taken.store(false, Ordering::Release);
                }
            }
            let closed = reason == Reason::Shutdown;
            seat.news.send_modify(|news| {
                (news.office, news.closed, news.state) = (None, closed, State::Follower);
            });
        }
        self.offices.retain(|_, office| office.taken.load(Ordering::Acquire));
    }

    /// Waits, after a failure of the loop, until the work of every tenure has stopped.
    pub(super) async fn all_stopped(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        while !self.offices.is_empty() {
            match commands.recv().await {
                None => return,
                Some(Command::Stopped { role, token }) => _ = self.stopped(&role, token),
                Some(Command::Stand { role, standing, seat }) => self.seat(&role, seat, Some(standing)),
                Some(Command::Observe { role, seat }) => self.seat(&role, seat, None),
                Some(Command::Leave { role }) => _ = self.leave(&role),
                Some(Command::Describe { labels, address }) => self.describe(&labels, address.as_ref()),
                Some(Command::Tell(what)) => self.publisher.tell(what),
                Some(Command::Stop { done }) => self.stop = Some(done),
                Some(Command::Release { .. } | Command::ForceLoss) => {}
            }
        }
    }
}
