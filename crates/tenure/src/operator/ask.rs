//! Asking for changes: one compare-and-set on a control register, then watching what comes of it.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tenure_core::record::{
    Answer, Node, NodeControl, Pin, Request, Role, RoleControl, Session, SessionState,
};
use tenure_core::{Epoch, Key, Kind, Version};

use super::{Act, NodeState, Operator, RoleReport, RoleState, fresh};
use crate::store::{Outcome, Value, Write};
use crate::{Error, Leader, Name, SessionId, Token};

/// What came of a request.
enum Came {
    /// Somebody leads under a later token.
    Leader(Leader),
    /// The leader said that the target cannot take it.
    NoTarget,
    /// The session of the target is over, before the leader answered.
    Gone(NodeState),
    /// The leader is giving the role up: its work winds down.
    Winding,
    /// The tenure is over and nobody leads yet.
    Vacant,
    /// Nothing yet.
    Nothing,
}

impl Operator {
    /// Hands a role to a node, and returns when that node leads it.
    ///
    /// The leader waits up to `patience` for the target to be alive and to stand for the role; then its work has its
    /// drain time to wind down. `limit` bounds the whole.
    pub async fn transfer(
        &self,
        role: &Name,
        to: &Name,
        why: &str,
        patience: Duration,
        limit: Duration,
    ) -> Result<Leader, Error> {
        let report = self.led(role).await?;
        if report.leader.as_ref() == Some(to) {
            return Ok(Leader { node: to.clone(), token: report.token, address: report.address });
        }
        if !report.candidates.contains(to) || report.pinned.as_ref().is_some_and(|node| node != to) {
            return Err(self.why_not(&report, to).await?);
        }
        self.note(Act::Transfer, role, Some(to), why).await?;
        self.request(&report, Some(to.clone()), why, patience, limit).await
    }

    /// Asks the leader of a role to give it up, and returns when somebody leads again: another node if there is one.
    pub async fn step_down(&self, role: &Name, why: &str, limit: Duration) -> Result<Leader, Error> {
        let report = self.led(role).await?;
        self.note(Act::StepDown, role, None, why).await?;
        self.request(&report, None, why, limit, limit).await
    }

    /// Withdraws a transfer or step-down that the leader has not agreed to yet. False if there is none.
    pub async fn withdraw_request(&self, role: &Name) -> Result<bool, Error> {
        let mut withdrawn = false;
        let open = |request: &mut Request| request.answer != Answer::Accepted;
        self.change(role, |control| withdrawn = control.request.take_if(open).is_some()).await?;
        Ok(withdrawn)
    }

    /// Lets nobody lead a role until [`Operator::resume`]. Returns when nobody does, or after `limit` with the leader
    /// that is still winding down.
    pub async fn pause(&self, role: &Name, why: &str, limit: Duration) -> Result<Option<Name>, Error> {
        self.report(role).await?;
        let order = self.order(why);
        self.note(Act::Pause, role, None, why).await?;
        self.change(role, |control| _ = control.pause.get_or_insert_with(|| order.clone())).await?;
        let mut changes = self.changes(Duration::from_millis(250));
        let started = Instant::now();
        loop {
            let report = self.report(role).await?;
            if matches!(report.state, RoleState::Paused | RoleState::Vacant) || started.elapsed() >= limit {
                return Ok(report.leader);
            }
            let _ = tokio::time::timeout(Duration::from_millis(500), changes.next()).await;
        }
    }

    /// Lets a role be led again. False if it was not paused.
    pub async fn resume(&self, role: &Name, why: &str) -> Result<bool, Error> {
        if self.report(role).await?.paused.is_some() {
            self.note(Act::Resume, role, None, why).await?;
        }
        let mut was = false;
        self.change(role, |control| was = control.pause.take().is_some()).await?;
        Ok(was)
    }

    /// Ties a role to a node, or unties it. Both must be known: nobody leads a role that is tied to nobody.
    pub async fn pin(&self, role: &Name, node: Option<Name>, why: &str) -> Result<(), Error> {
        if let Some(node) = &node {
            let report = self.report(role).await?;
            if self.snapshot().await?.node(node).is_none() {
                return Err(self.why_not(&report, node).await?);
            }
        }
        let order = self.order(why);
        self.note(if node.is_some() { Act::Pin } else { Act::Unpin }, role, node.as_ref(), why).await?;
        let pin = node.map(|node| Pin { node, order });
        self.change(role, |control| control.pin.clone_from(&pin)).await
    }

    /// Makes a node give up its roles and stand for none, or lets it stand again.
    pub async fn drain(&self, node: &Name, drain: bool, why: &str) -> Result<(), Error> {
        let epoch = self.epoch_of(node).await?;
        let key = Key::Named(epoch, Kind::NodeControl, node.clone());
        self.note(if drain { Act::Drain } else { Act::Undrain }, node, None, why).await?;
        let control = drain.then(|| NodeControl { drain: Some(self.order(why)) });
        let value = control.map(|control| Value::of(&control, None));
        for _ in 0..TRIES {
            let found = self.read_one(key.clone()).await?;
            if found.is_none() && value.is_none() {
                return Ok(());
            }
            if self.put(key.clone(), found.map(|entry| entry.version), value.clone()).await? {
                return Ok(());
            }
        }
        Err(Error::Contended(key.to_string()))
    }

    async fn report(&self, role: &Name) -> Result<RoleReport, Error> {
        let snapshot = self.snapshot().await?;
        let missing = || Error::NoSuchRole { role: role.clone(), namespace: self.namespace.clone() };
        snapshot.role(role).cloned().ok_or_else(missing)
    }

    /// A role that has a leader to be asked.
    async fn led(&self, role: &Name) -> Result<RoleReport, Error> {
        let report = self.report(role).await?;
        if let Some(order) = &report.paused {
            return Err(Error::Paused { role: role.clone(), by: order.by.clone() });
        }
        if report.leader.is_none() {
            return Err(Error::NobodyLeads(role.clone()));
        }
        Ok(report)
    }

    async fn why_not(&self, report: &RoleReport, to: &Name) -> Result<Error, Error> {
        let snapshot = self.snapshot().await?;
        let why = match (snapshot.node(to), &report.pinned) {
            (None, _) => "no node of that name is registered; `tenure nodes` lists them".to_owned(),
            (Some(node), _) if node.state != NodeState::Live => not_there(node.state),
            (Some(node), _) if node.drained.is_some() => "it is being drained".to_owned(),
            (Some(_), Some(pinned)) if pinned != to => format!("the role is pinned to {pinned}"),
            (Some(_), _) => "it does not stand for the role".to_owned(),
        };
        Ok(Error::NoTarget { role: report.role.clone(), node: to.clone(), why })
    }

    async fn request(
        &self,
        report: &RoleReport,
        to: Option<Name>,
        why: &str,
        patience: Duration,
        limit: Duration,
    ) -> Result<Leader, Error> {
        let (role, token) = (&report.role, report.token);
        let id = SessionId(crate::clock::nonce());
        let order = self.order(why);
        let answer = Answer::Open;
        let request = Request { id, token, to: to.clone(), preemption: false, patience, order, answer };
        let mut changes = self.changes(Duration::from_millis(250));
        self.change(role, |control| control.request = Some(request.clone())).await?;
        let started = Instant::now();
        let came = loop {
            match self.came_of(role, token, id).await? {
                Came::Nothing | Came::Winding | Came::Vacant if started.elapsed() < limit => {
                    let _ = tokio::time::timeout(Duration::from_millis(500), changes.next()).await;
                }
                came => break came,
            }
        };
        self.withdraw(role, id).await?;
        let leader = || report.leader.clone().unwrap_or_else(|| role.clone());
        let target = || to.clone().unwrap_or_else(|| role.clone());
        let waited = Duration::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
        let role = role.clone();
        Err(match came {
            Came::Leader(leader) if to.as_ref().is_none_or(|to| leader.node == *to) => return Ok(leader),
            Came::Leader(leader) => Error::OutrunBy { role, leader: leader.node, wanted: target() },
            Came::NoTarget => {
                Error::NoTarget { role, node: target(), why: "it was not ready in time".into() }
            }
            Came::Gone(state) => Error::NoTarget { role, node: target(), why: not_there(state) },
            Came::Winding => Error::WindingDown { role, leader: leader(), waited },
            Came::Vacant => Error::NobodyTook { role, waited },
            Came::Nothing => Error::NotHandedOver { role, leader: leader(), waited },
        })
    }

    async fn came_of(&self, role: &Name, token: Token, id: SessionId) -> Result<Came, Error> {
        let epoch = self.epoch_of(role).await?;
        let record = self.read_one(Key::Named(epoch, Kind::Role, role.clone())).await?;
        let record = record.and_then(|entry| entry.value.parse::<Role>().ok());
        match record {
            Some(Role { token: later, holder: Some(holder), .. }) if later > token => {
                let address = self.node(epoch, &holder.node).await?.and_then(|node| node.address);
                Ok(Came::Leader(Leader { node: holder.node, token: later, address }))
            }
            Some(Role { holder: None, .. }) => Ok(Came::Vacant),
            _ => self.answer_to(epoch, role, id).await,
        }
    }

    /// What the leader makes of our request, and whether there is still somebody to hand over to.
    async fn answer_to(&self, epoch: Epoch, role: &Name, id: SessionId) -> Result<Came, Error> {
        let (_, control) = self.control(role).await?;
        let Some(request) = control.request.filter(|request| request.id == id) else {
            return Ok(Came::Nothing);
        };
        match (request.answer, request.to) {
            (Answer::NoTarget, _) => Ok(Came::NoTarget),
            (Answer::Accepted, _) => Ok(Came::Winding),
            (_, Some(to)) => Ok(self.gone(epoch, &to).await?.map_or(Came::Nothing, Came::Gone)),
            (_, None) => Ok(Came::Nothing),
        }
    }

    async fn node(&self, epoch: Epoch, name: &Name) -> Result<Option<Node>, Error> {
        let found = self.read_one(Key::Named(epoch, Kind::Node, name.clone())).await?;
        Ok(found.and_then(|entry| entry.value.parse().ok()))
    }

    /// How the session of a node ended, if it did.
    async fn gone(&self, epoch: Epoch, name: &Name) -> Result<Option<NodeState>, Error> {
        let Some(node) = self.node(epoch, name).await? else { return Ok(Some(NodeState::Closed)) };
        let found = self.read_one(Key::Session(epoch, node.session)).await?;
        let session = found.and_then(|entry| entry.value.parse::<Session>().ok());
        Ok(match session.map(|session| session.state) {
            Some(SessionState::Live) => None,
            Some(SessionState::Closed) => Some(NodeState::Closed),
            Some(SessionState::Expelled) | None => Some(NodeState::Expelled),
        })
    }

    /// Clears our own request away, whatever became of it.
    async fn withdraw(&self, role: &Name, id: SessionId) -> Result<(), Error> {
        self.change(role, |control| _ = control.request.take_if(|request| request.id == id)).await
    }

    async fn control(&self, role: &Name) -> Result<(Option<Version>, RoleControl), Error> {
        let key = Key::Named(self.epoch_of(role).await?, Kind::RoleControl, role.clone());
        let found = self.read_one(key).await?;
        let version = found.as_ref().map(|entry| entry.version);
        Ok((version, found.and_then(|entry| entry.value.parse().ok()).unwrap_or_default()))
    }

    /// Changes a control register, on top of whatever it holds. Nothing left to say: it is deleted.
    async fn change(&self, role: &Name, mut change: impl FnMut(&mut RoleControl)) -> Result<(), Error> {
        let key = Key::Named(self.epoch_of(role).await?, Kind::RoleControl, role.clone());
        for _ in 0..TRIES {
            let (version, before) = self.control(role).await?;
            let mut control = before.clone();
            change(&mut control);
            if control == before {
                return Ok(());
            }
            let value = (control != RoleControl::default()).then(|| Value::of(&control, None));
            if self.put(key.clone(), version, value).await? {
                return Ok(());
            }
        }
        Err(Error::Contended(key.to_string()))
    }

    /// One compare-and-set; false if somebody was faster.
    pub(super) async fn put(
        &self,
        key: Key,
        expect: Option<Version>,
        value: Option<Value>,
    ) -> Result<bool, Error> {
        let write = Write { key, expect, put: value.map(fresh), ring: true, witnessed: false };
        match self.store.write(&self.namespace, &[write]).await?.pop() {
            Some(Outcome::Applied) => Ok(true),
            Some(Outcome::Failed(error)) => Err(error.into()),
            Some(Outcome::Conflict(_)) | None => Ok(false),
        }
    }

    pub(super) async fn epoch_of(&self, name: &Name) -> Result<Epoch, Error> {
        let missing = || Error::NoSuchRole { role: name.clone(), namespace: self.namespace.clone() };
        super::epoch(&self.store, &self.namespace).await?.ok_or_else(missing)
    }
}

/// Others may change the same register; so often we try on top of it.
pub(super) const TRIES: usize = 20;

/// Why a node that is not live cannot lead.
fn not_there(state: NodeState) -> String {
    match state {
        NodeState::Closed => "it has stopped (closed)",
        NodeState::Expelled => "it is dead (expelled)",
        NodeState::Silent | NodeState::Live => "it has not beaten for a ttl (silent)",
    }
    .to_owned()
}
