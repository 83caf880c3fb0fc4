//! One node's part in every election.
//!
//! ```text
//!            ┌────────── look ◀─────────── hints, the beat's tick
//!            │  one read at a time: cluster, controls, the sessions we depend on, what may have changed
//!            ▼
//!   cluster · peers · nodes · controls · views of roles      what we know of others
//!            │
//!            ▼
//!   session ──▶ card ──▶ roles                               what we do ourselves, in this order:
//!   (beat)    (our name)  (claim, lead, resign)              prove life, own the name, then stand
//! ```
//!
//! [`Engine::step`] always goes the same way: first time alone does its work (operations time out, deadlines pass),
//! so that a late answer finds nothing left to revive; then the input is taken in; then what follows from both is
//! decided and sent. Each file below is one register's part in that.

#[cfg(feature = "canon")]
pub mod canon;
mod card;
mod cluster;
mod control;
mod look;
mod ops;
mod order;
mod peers;
mod roles;
mod session;

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Reason, RoleControl};
use crate::{
    Entropy, Epoch, Event, Hint, Input, Key, Kind, Mutant, Name, Now, Output, SessionId, Time, Timing, Token,
    Version,
};

use card::Card;
use cluster::Cluster;
use control::Requests;
use look::Look;
use ops::Ops;
use peers::{NodeView, Peer};
use roles::Role;
use session::Session;

pub use order::in_order;
pub use roles::{RoleStatus, View};

/// At most so many writes leave in one batch.
pub const BATCH: usize = 256;

/// At most so many batches about roles are awaited at once.
const BATCHES_AWAITED: usize = 4;

/// What a store can promise about acknowledged writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Consensus: an acknowledged write is never lost.
    A,
    /// One durable node: an acknowledged write is never lost while the node's disk lives.
    B,
    /// An acknowledged write can vanish.
    C,
}

/// What an engine is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// The node's name.
    pub node: Name,
    /// Its times.
    pub timing: Timing,
    /// What its store can promise.
    pub class: Class,
    /// The mistake to make, for the proofs. Ignored without the feature `mutants`.
    pub mutant: Option<Mutant>,
}

/// Whether the node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Run {
    /// Not started yet.
    Idle,
    /// Taking part.
    Running,
    /// Giving everything up.
    Stopping,
    /// Nothing is left.
    Stopped,
}

/// One node's part in every election. See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Engine {
    config: Config,
    now: Now,
    run: Run,
    ops: Ops,
    look: Look,
    cluster: Cluster,
    session: Session,
    card: Card,
    /// Other sessions, and our own former ones.
    peers: BTreeMap<SessionId, Peer>,
    /// Who runs under which name.
    nodes: BTreeMap<Name, NodeView>,
    /// What operators ask of roles.
    controls: BTreeMap<Name, (Version, RoleControl)>,
    requests: Requests,
    /// Whether an operator drains this node.
    drained: bool,
    /// What people say about this node.
    labels: BTreeMap<String, String>,
    address: Option<String>,
    roles: BTreeMap<Name, Role>,
    /// The roles whose register names a session.
    held_by: BTreeMap<SessionId, BTreeSet<Name>>,
    /// When to consider a role again.
    due: BTreeSet<(Time, Name)>,
    /// Roles that have something to write.
    ready: BTreeSet<Name>,
    /// Roles whose work has been started and not stopped.
    working: BTreeSet<Name>,
}

/// What a step has at hand besides the engine: where outputs go and where nonces come from.
struct Cx<'a> {
    out: Vec<Output>,
    entropy: &'a mut dyn Entropy,
}

impl Cx<'_> {
    fn event(&mut self, event: Event) {
        self.out.push(Output::Event(event));
    }

    fn version(&mut self) -> Version {
        Version(self.entropy.nonce())
    }
}

impl Engine {
    /// An engine that has not started.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            now: Now::default(),
            run: Run::Idle,
            ops: Ops::default(),
            look: Look::default(),
            cluster: Cluster::default(),
            session: Session::None { retry_at: Time(0) },
            card: Card::default(),
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            controls: BTreeMap::new(),
            requests: Requests::default(),
            drained: false,
            labels: BTreeMap::new(),
            address: None,
            roles: BTreeMap::new(),
            held_by: BTreeMap::new(),
            due: BTreeSet::new(),
            ready: BTreeSet::new(),
            working: BTreeSet::new(),
        }
    }

    /// Feeds one input; the caller carries out the outputs in order and reports back.
    ///
    /// # Panics
    /// If the lease clock goes backwards, which the caller must have reported as [`Input::ClockFault`].
    pub fn step(&mut self, now: Now, input: Input, entropy: &mut dyn Entropy) -> Vec<Output> {
        assert!(now.time >= self.now.time, "the lease clock went backwards");
        self.now = now;
        let mut cx = Cx { out: Vec::new(), entropy };
        self.let_time_pass(&mut cx);
        self.take_in(input, &mut cx);
        self.decide(&mut cx);
        cx.out
    }

    /// When the engine wants to be woken if nothing else happens.
    #[must_use]
    pub fn next_wake(&self) -> Time {
        if matches!(self.run, Run::Idle | Run::Stopped) {
            return Time::NEVER;
        }
        let due = self.due.first().map_or(Time::NEVER, |(at, _)| *at);
        [
            self.ops.next_expiry(),
            self.session_wake(),
            self.look_wake(),
            self.card_wake(),
            self.peers_wake(),
            due,
        ]
        .into_iter()
        .chain(self.cluster_wake())
        .min()
        .unwrap_or(Time::NEVER)
    }

    /// The session in use and its deadline, if one is open.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, Time)> {
        self.session.validity()
    }

    /// The token under which this node leads `role`, if its tenure is valid at `now`.
    #[must_use]
    pub fn leads(&self, role: &Name, now: Time) -> Option<Token> {
        let (_, until) = self.session.validity()?;
        let token = self.roles.get(role)?.stage.tenure()?;
        (now < until || self.mutated(Mutant::BooleanLeadership)).then_some(token)
    }

    /// Whether everything has been given up after [`Input::Stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.run == Run::Stopped
    }

    /// What is known of a role that this node stands for or watches.
    #[must_use]
    pub fn role(&self, role: &Name) -> Option<RoleStatus<'_>> {
        self.roles.get(role).map(|found| self.role_status(found))
    }

    /// Where a node can be reached, if it said so.
    #[must_use]
    pub fn address_of(&self, node: &Name) -> Option<&str> {
        if *node == self.config.node {
            return self.address.as_deref();
        }
        self.nodes.get(node)?.record.address.as_deref()
    }

    /// Whether the register of a node was read.
    #[must_use]
    pub fn knows_node(&self, node: &Name) -> bool {
        *node == self.config.node || self.nodes.contains_key(node)
    }

    /// The times that this engine runs on.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.config.timing
    }

    /// Time alone may end an operation, a session, a tenure; nothing else has to happen.
    fn let_time_pass(&mut self, cx: &mut Cx<'_>) {
        self.pass_deadlines(cx);
        while let Some((op, expired)) = self.ops.take_expired(self.now.time) {
            self.settle(op, expired, crate::Reply::Failed(crate::Fate::Unknown), cx);
        }
    }

    fn take_in(&mut self, input: Input, cx: &mut Cx<'_>) {
        match input {
            Input::Wake => {}
            Input::Start => self.start(),
            Input::Stop => self.stop(cx),
            Input::Stand { role, standing } => self.stand(&role, Some(standing), cx),
            Input::Observe { role } => self.stand(&role, None, cx),
            Input::Withdraw { role } => self.withdraw(&role, cx),
            Input::Release { role, token, reason } => self.release(&role, token, reason, cx),
            Input::Stopped { role, token } => self.work_stopped(&role, token, cx),
            Input::Attested { session, witness } => self.attested(session, witness, cx),
            Input::Replied { op, reply } => self.replied(op, reply, cx),
            Input::Hinted(hint) => self.hinted(hint, cx),
            Input::Witnessed(evidence) => self.witnessed(&evidence),
            Input::ClockFault => self.end_session(Reason::ClockFault, session::Cut::AtOnce, cx),
            Input::Describe { labels, address } => {
                self.labels = labels;
                self.address = address;
                self.card.outdate();
            }
        }
    }

    /// What follows from the state as it is now: each register's part, in the order in which they need each other.
    fn decide(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.run, Run::Idle | Run::Stopped) {
            return;
        }
        self.drive_cluster(cx);
        self.drive_session(cx);
        self.drive_card(cx);
        self.drive_peers(cx);
        self.drive_roles(cx);
        self.drive_look(cx);
    }

    fn start(&mut self) {
        if matches!(self.run, Run::Idle | Run::Stopped) {
            self.run = Run::Running;
            self.note_joined();
            self.look.everything();
        }
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        if self.run == Run::Running {
            self.run = Run::Stopping;
            self.drain_all(Reason::Shutdown, cx);
        } else if self.run == Run::Idle {
            self.run = Run::Stopped;
        }
    }

    fn hinted(&mut self, hint: Hint, cx: &mut Cx<'_>) {
        if matches!(self.run, Run::Idle | Run::Stopped) {
            return;
        }
        match hint {
            Hint::Changed(entry) => self.hinted_change(entry, cx),
            Hint::Resync => self.look.everything(),
            Hint::Forgot => self.quarantine(cx),
        }
    }

    fn epoch(&self) -> Option<Epoch> {
        self.cluster.epoch()
    }

    fn named(&self, kind: Kind, name: &Name) -> Key {
        Key::Named(self.epoch().unwrap_or_default(), kind, name.clone())
    }

    /// Time to wait before an operation that failed is tried again.
    fn retry_delay(&self) -> std::time::Duration {
        self.config.timing.beat / 5
    }

    fn mutated(&self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.config.mutant == Some(mutant)
    }
}
