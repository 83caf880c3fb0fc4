//! Asking for changes: one compare-and-set on a control register, then watching what comes of it.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tenure_core::record::{
    Answer, Forgotten, Node, NodeControl, Pin, Request, Role, RoleControl, Session, SessionState,
};
use tenure_core::{Epoch, Key, Kind, Timing};

use super::update::Update;
use super::{NodeReport, NodeState, Operator, OperatorAction, RoleReport, RoleState};
use crate::store::{Entry, Value};
use crate::{Error, Leader, Name, SessionId, Token};

/// How far a request has come.
enum RequestProgress {
    /// A node leads under a later token.
    Leader(Leader),
    /// The leader said that the target cannot take it.
    NoTarget,
    /// The session of the target is over, before the leader answered.
    Gone(NodeState),
    /// The leader is giving the role up: its work winds down.
    Winding,
    /// The tenure is over and no node leads yet.
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
            return Err(self.ineligible_target(&report, to).await?);
        }
        self.record_action(OperatorAction::Transfer, role, Some(to), why).await?;
        self.request(&report, Some(to.clone()), why, patience, limit).await
    }

    /// Asks the leader of a role to give it up, and returns when the role has a leader again: another node if there is one.
    pub async fn step_down(&self, role: &Name, why: &str, limit: Duration) -> Result<Leader, Error> {
        let report = self.led(role).await?;
        self.record_action(OperatorAction::StepDown, role, None, why).await?;
        self.request(&report, None, why, limit, limit).await
    }

    /// Withdraws a transfer or step-down that the leader has not agreed to yet. False if there is none.
    pub async fn withdraw_request(&self, role: &Name) -> Result<bool, Error> {
        let mut withdrawn = false;
        let open = |request: &mut Request| request.answer != Answer::Accepted;
        self.change(role, |control| withdrawn = control.request.take_if(open).is_some()).await?;
        Ok(withdrawn)
    }

    /// Keeps a role without a leader until [`Operator::resume`]. Returns when it has none, or after `limit` with the leader
    /// that is still winding down.
    pub async fn pause(&self, role: &Name, why: &str, limit: Duration) -> Result<Option<Name>, Error> {
        self.report(role).await?;
        let order = self.order(why);
        self.record_action(OperatorAction::Pause, role, None, why).await?;
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
            self.record_action(OperatorAction::Resume, role, None, why).await?;
        }
        let mut was = false;
        self.change(role, |control| was = control.pause.take().is_some()).await?;
        Ok(was)
    }

    /// Hides a role that has no candidate: status, metrics and alerts leave it out until a node stands for it
    /// again. Its register, and with it its token, stays.
    pub async fn forget(&self, role: &Name, why: &str) -> Result<(), Error> {
        let snapshot = self.snapshot().await?;
        let missing = || Error::NoSuchRole { role: role.clone(), namespace: self.namespace.clone() };
        let report = snapshot.role(role).ok_or_else(missing)?;
        let stands = |node: &&NodeReport| !node.state.is_over() && node.candidacies.contains_key(role);
        let candidate = snapshot.nodes.iter().find(stands).map(|node| &node.node);
        if let Some(node) = report.leader.as_ref().or(candidate) {
            return Err(Error::InUse { role: role.clone(), node: node.clone() });
        }
        self.record_action(OperatorAction::Forget, role, None, why).await?;
        let forgotten = Some(Forgotten { token: report.token, order: self.order(why) });
        self.change(role, |control| {
            *control = RoleControl { forgotten: forgotten.clone(), ..RoleControl::default() };
        })
        .await
    }

    /// Pins a role to a node, or unpins it. Both must be known: a role that is pinned to an unknown node has no leader.
    pub async fn pin(&self, role: &Name, node: Option<Name>, why: &str) -> Result<(), Error> {
        if let Some(node) = &node {
            let report = self.report(role).await?;
            if self.snapshot().await?.node(node).is_none() {
                return Err(self.ineligible_target(&report, node).await?);
            }
        }
        let order = self.order(why);
        self.record_action(
            if node.is_some() { OperatorAction::Pin } else { OperatorAction::Unpin },
            role,
            node.as_ref(),
            why,
        )
        .await?;
        let pin = node.map(|node| Pin { node, order });
        self.change(role, |control| control.pin.clone_from(&pin)).await
    }

    /// Makes a node give up its roles and stand for none, or lets it stand again.
    pub async fn drain(&self, node: &Name, drain: bool, why: &str) -> Result<(), Error> {
        let epoch = self.epoch_of(node).await?;
        let key = Key::Named(epoch, Kind::NodeControl, node.clone());
        self.record_action(
            if drain { OperatorAction::Drain } else { OperatorAction::Undrain },
            node,
            None,
            why,
        )
        .await?;
        let control = drain.then(|| NodeControl { drain: Some(self.order(why)) });
        let value = control.map(|control| Value::of(&control, None));
        let change = |found: Option<&Entry>| match (found, &value) {
            (None, None) => Update::Keep(()),
            _ => Update::Put(value.clone(), ()),
        };
        self.update(key, change).await
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
            return Err(Error::NoLeader(role.clone()));
        }
        Ok(report)
    }

    async fn ineligible_target(&self, report: &RoleReport, to: &Name) -> Result<Error, Error> {
        let snapshot = self.snapshot().await?;
        let why = match (snapshot.node(to), &report.pinned) {
            (None, _) => "no node of that name is registered".to_owned(),
            (Some(node), _) if node.state != NodeState::Live => not_there(node.state),
            (Some(node), _) if node.drained.is_some() => "it is being drained".to_owned(),
            (Some(_), Some(pinned)) if pinned != to => format!("the role is pinned to {pinned}"),
            (Some(_), _) => "it is not a candidate for the role".to_owned(),
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
        let id = SessionId::new(crate::store::entropy::nonce());
        let order = self.order(why);
        let (answer, patience) = (Answer::Open, patience.min(Timing::MAX_TTL));
        let request = Request { id, token, to: to.clone(), preemption: false, patience, order, answer };
        let mut changes = self.changes(Duration::from_millis(250));
        self.change(role, |control| control.request = Some(request.clone())).await?;
        let started = Instant::now();
        let progress = loop {
            match self.request_progress(role, token, id).await? {
                RequestProgress::Nothing | RequestProgress::Winding | RequestProgress::Vacant
                    if started.elapsed() < limit =>
                {
                    let _ = tokio::time::timeout(Duration::from_millis(500), changes.next()).await;
                }
                progress => break progress,
            }
        };
        self.withdraw(role, id).await?;
        let leader = || report.leader.clone().unwrap_or_else(|| role.clone());
        let target = || to.clone().unwrap_or_else(|| role.clone());
        let waited = Duration::from_millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
        let role = role.clone();
        Err(match progress {
            RequestProgress::Leader(leader) if to.as_ref().is_none_or(|to| leader.node == *to) => {
                return Ok(leader);
            }
            RequestProgress::Leader(leader) => {
                Error::OtherLeader { role, leader: leader.node, wanted: target() }
            }
            RequestProgress::NoTarget => {
                Error::NoTarget { role, node: target(), why: "it was not ready in time".into() }
            }
            RequestProgress::Gone(state) => Error::NoTarget { role, node: target(), why: not_there(state) },
            RequestProgress::Winding => Error::StillStopping { role, leader: leader(), waited },
            RequestProgress::Vacant => Error::NotTaken { role, waited },
            RequestProgress::Nothing => Error::NotHandedOver { role, leader: leader(), waited },
        })
    }

    async fn request_progress(
        &self,
        role: &Name,
        token: Token,
        id: SessionId,
    ) -> Result<RequestProgress, Error> {
        let epoch = self.epoch_of(role).await?;
        let record = self.read_one(Key::Named(epoch, Kind::Role, role.clone())).await?;
        let record = record.and_then(|entry| entry.value.parse::<Role>().ok());
        match record {
            Some(Role { token: later, holder: Some(holder), .. }) if later > token => {
                let address = self.node(epoch, &holder.node).await?.and_then(|node| node.address);
                Ok(RequestProgress::Leader(Leader { node: holder.node, token: later, address }))
            }
            Some(Role { holder: None, .. }) => Ok(RequestProgress::Vacant),
            _ => self.leader_answer(epoch, role, id).await,
        }
    }

    /// The leader's answer to our request, and whether the target is still alive.
    async fn leader_answer(
        &self,
        epoch: Epoch,
        role: &Name,
        id: SessionId,
    ) -> Result<RequestProgress, Error> {
        let found = self.read_one(Key::Named(epoch, Kind::RoleControl, role.clone())).await?;
        let Some(request) = control_in(found.as_ref()).request.filter(|request| request.id == id) else {
            return Ok(RequestProgress::Nothing);
        };
        match (request.answer, request.to) {
            (Answer::NoTarget, _) => Ok(RequestProgress::NoTarget),
            (Answer::Accepted, _) => Ok(RequestProgress::Winding),
            (_, Some(to)) => {
                Ok(self.gone(epoch, &to).await?.map_or(RequestProgress::Nothing, RequestProgress::Gone))
            }
            (_, None) => Ok(RequestProgress::Nothing),
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

    /// Clears our own request away, unless the leader agreed to it: then those who lead later do, and until then it tells
    /// nodes of higher priority that an operator wanted this leader.
    async fn withdraw(&self, role: &Name, id: SessionId) -> Result<(), Error> {
        let open = |request: &mut Request| request.id == id && request.answer != Answer::Accepted;
        self.change(role, |control| _ = control.request.take_if(open)).await
    }

    /// Changes a control register, on top of whatever it holds. Nothing left to say: it is deleted.
    async fn change(&self, role: &Name, mut change: impl FnMut(&mut RoleControl)) -> Result<(), Error> {
        let key = Key::Named(self.epoch_of(role).await?, Kind::RoleControl, role.clone());
        let changed = |found: Option<&Entry>| {
            let before = control_in(found);
            let mut control = before.clone();
            change(&mut control);
            if control == before {
                return Update::Keep(());
            }
            let value = (control != RoleControl::default()).then(|| Value::of(&control, None));
            Update::Put(value, ())
        };
        self.update(key, changed).await
    }

    pub(super) async fn epoch_of(&self, name: &Name) -> Result<Epoch, Error> {
        let missing = || Error::NoSuchRole { role: name.clone(), namespace: self.namespace.clone() };
        super::epoch(&self.store, &self.namespace).await?.ok_or_else(missing)
    }
}

/// The orders in a control register; none where it is absent or cannot be read.
fn control_in(found: Option<&Entry>) -> RoleControl {
    found.and_then(|entry| entry.value.parse().ok()).unwrap_or_default()
}

/// Why a node that is not live cannot lead.
fn not_there(state: NodeState) -> String {
    match state {
        NodeState::Closed => "it has stopped (closed)",
        NodeState::Expelled => "it is dead (expelled)",
        NodeState::Silent | NodeState::Live | NodeState::Unknown => "it has not beaten for a ttl (silent)",
    }
    .to_owned()
}
