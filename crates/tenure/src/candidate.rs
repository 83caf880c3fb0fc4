//! Standing for a role, and watching one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use tenure_core::io::{Standing, State};
use tokio::sync::mpsc;

use crate::driver::{Command, Seat};
use crate::lead::{Lead, Tenure};
use crate::{Leader, Name};

/// Stands for a role until the last clone, and the last tenure, is dropped.
#[derive(Debug, Clone)]
pub struct Candidate {
    standee: Arc<Standee>,
}

/// What a candidacy is made of.
#[derive(Debug)]
pub(crate) struct Standee {
    pub(crate) seat: Arc<Seat>,
    commands: mpsc::UnboundedSender<Command>,
    standing: std::sync::Mutex<Standing>,
    drain: Duration,
    kill_slack: Duration,
}

impl Drop for Standee {
    fn drop(&mut self) {
        self.seat.candidates.fetch_sub(1, Ordering::AcqRel);
        let _ = self.commands.send(Command::Leave { role: self.seat.role.clone() });
    }
}

impl Standee {
    pub(crate) fn new(
        seat: Arc<Seat>,
        commands: mpsc::UnboundedSender<Command>,
        standing: Standing,
        drain: Duration,
        kill_slack: Duration,
    ) -> Arc<Self> {
        seat.candidates.fetch_add(1, Ordering::AcqRel);
        let standee = Self { seat, commands, standing: std::sync::Mutex::new(standing), drain, kill_slack };
        standee.stand();
        Arc::new(standee)
    }

    fn stand(&self) {
        let standing = self.standing.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let (role, seat) = (self.seat.role.clone(), self.seat.clone());
        let _ = self.commands.send(Command::Stand { role, standing, seat });
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.standing.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.stand();
    }
}

impl Candidate {
    pub(crate) fn new(standee: Arc<Standee>) -> Self {
        Self { standee }
    }

    /// Waits to be elected. None once the node has stopped. Cancel-safe: a tenure is never lost by dropping this.
    pub async fn elected(&self) -> Option<Tenure> {
        let mut news = self.standee.seat.news.subscribe();
        loop {
            let closed = news.borrow_and_update().closed;
            if let Some(office) = self.standee.seat.take_offer() {
                let Standee { commands, drain, kill_slack, .. } = &*self.standee;
                return Some(Tenure::new(
                    office,
                    commands.clone(),
                    *drain,
                    *kill_slack,
                    self.standee.clone(),
                ));
            }
            if closed || news.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Waits to be elected, but no longer than this.
    pub async fn elected_within(&self, limit: Duration) -> Option<Tenure> {
        tokio::time::timeout(limit, self.elected()).await.ok().flatten()
    }

    /// Leadership, if this node has it now: for request handlers beside the work.
    #[must_use]
    pub fn lead(&self) -> Option<Lead> {
        let office = self.standee.seat.news.borrow().office.clone()?;
        office.check().then(|| Lead::of(office))
    }

    /// This node's part in the role.
    #[must_use]
    pub fn state(&self) -> State {
        self.standee.seat.news.borrow().state
    }

    /// Who leads, as far as this node has seen.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.standee.seat.news.borrow().leader.clone()
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &Name {
        &self.standee.seat.role
    }

    /// Stands, or only follows. A leader that becomes ineligible gives the role up.
    pub fn set_eligible(&self, eligible: bool) {
        self.standee.change(|standing| standing.eligible = eligible);
    }

    /// Changes the priority: higher claims first.
    pub fn set_priority(&self, priority: i32) {
        self.standee.change(|standing| standing.priority = priority);
    }

    /// Gives the role up, if this node leads it; its work is told to stop first. It stays a candidate, the last in line.
    pub fn resign(&self) {
        if let Some(lead) = self.lead() {
            let (role, token, reason) = (self.role().clone(), lead.token(), crate::Reason::Resigned);
            let _ = self.standee.commands.send(Command::Release { role, token, reason });
        }
    }
}

/// Watches a role without standing for it.
#[derive(Debug, Clone)]
pub struct Observer {
    watcher: Arc<Watcher>,
}

#[derive(Debug)]
pub(crate) struct Watcher {
    seat: Arc<Seat>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.seat.observers.fetch_sub(1, Ordering::AcqRel);
        let _ = self.commands.send(Command::Leave { role: self.seat.role.clone() });
    }
}

impl Observer {
    pub(crate) fn new(seat: Arc<Seat>, commands: mpsc::UnboundedSender<Command>) -> Self {
        seat.observers.fetch_add(1, Ordering::AcqRel);
        let _ = commands.send(Command::Observe { role: seat.role.clone(), seat: seat.clone() });
        Self { watcher: Arc::new(Watcher { seat, commands }) }
    }

    /// Who leads, as far as this node has seen. A follower's word: only the leader itself can be sure.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.watcher.seat.news.borrow().leader.clone()
    }

    /// Who leads, now and whenever it changes. May skip what was passed over quickly; always ends with the latest.
    #[must_use]
    pub fn leaders(&self) -> BoxStream<'static, Option<Leader>> {
        let news = self.watcher.seat.news.subscribe();
        stream::unfold((news, true, None), |(mut news, first, last)| async move {
            let mut first = first;
            loop {
                if !std::mem::take(&mut first) {
                    news.changed().await.ok()?;
                } else {
                    let leader = news.borrow_and_update().leader.clone();
                    return Some((leader.clone(), (news, false, Some(leader))));
                }
                let leader = news.borrow_and_update().leader.clone();
                if last.as_ref() != Some(&leader) {
                    return Some((leader.clone(), (news, false, Some(leader))));
                }
            }
        })
        .boxed()
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &Name {
        &self.watcher.seat.role
    }
}
