//! One node's part in every election.
//!
//! ```text
//!            ┌────────── poll ◀─────────── hints, the beat's tick
//!            │  one read at a time: cluster, controls, the sessions we depend on, what may have changed
//!            ▼
//!   cluster · peers · nodes · controls · views of roles      what we know of others
//!            │
//!            ▼
//!   session ──▶ own node ──▶ roles                           what we do ourselves, in this order:
//!   (beat)     (our name)   (claim, lead, resign)            prove life, own the name, then campaign
//! ```
//!
//! [`Engine::step`] always goes the same way: first time alone does its work (operations time out, deadlines pass),
//! so that a late answer finds nothing left to revive; then the input is taken in; then what follows from both is
//! decided and sent.
//!
//! Each part is a struct whose fields only its own file sees. It keeps what it knows, answers questions, and says with
//! a small value (`LiveNews`, `EpochNews`, `Recognised`, `NextWrite` …) what an observation means; the engine passes
//! that on to the other parts. The decisions on which safety rests are named in `rules.rs`.

#[cfg(feature = "canonical")]
pub mod canonical;
mod cluster;
mod control;
mod expel;
mod ops;
mod order;
mod own_node;
mod peers;
mod poll;
mod rhythm;
mod roles;
mod rules;
mod session;

#[cfg(feature = "mutants")]
use crate::Mutant;
use crate::record::EndReason;
use crate::{
    Entropy, Epoch, Event, Hint, Input, Key, Kind, Name, Now, OpId, Output, SessionId, Time, Timing, Token,
    Version,
};

use cluster::Cluster;
use control::Controls;
use ops::PendingOps;
use own_node::OwnNode;
use peers::Peers;
use poll::Poll;
use rhythm::Rhythm;
use roles::Roles;
use rules::Rules;
use session::OwnSession;

pub use order::claim_order;
pub use roles::{RoleStatus, RoleView};
pub use rules::AUDITED_PER_POLL;

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
#[non_exhaustive]
pub struct Config {
    /// The name of the node.
    pub node: Name,
    /// The times of the node.
    pub timing: Timing,
    /// What its store can promise; it may become less ([`Input::Weakened`]).
    pub class: Class,
    /// The deliberate fault of this engine, for the proofs.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl Config {
    /// A sound engine for this node.
    #[must_use]
    pub fn new(node: Name, timing: Timing, class: Class) -> Self {
        Self {
            node,
            timing,
            class,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The same with a deliberate fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(self, mutant: Option<Mutant>) -> Self {
        Self { mutant, ..self }
    }
}

/// Whether the node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Lifecycle {
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
    node: Name,
    rules: Rules,
    now: Now,
    lifecycle: Lifecycle,
    ops: PendingOps,
    poll: Poll,
    cluster: Cluster,
    session: OwnSession,
    rhythm: Rhythm,
    own_node: OwnNode,
    peers: Peers,
    controls: Controls,
    roles: Roles,
}

/// What a step has at hand besides the engine: where outputs go and where nonces come from.
struct StepContext<'a> {
    out: Vec<Output>,
    entropy: &'a mut dyn Entropy,
    /// The beat that this step sends, if a poll may share its round trip.
    beat: Option<OpId>,
    /// The claim that this step sends, if a poll may follow it in the same round trip.
    claim: Option<OpId>,
    /// A role that may just have been resigned: a hint names its register.
    hinted_role: Option<Name>,
}

impl StepContext<'_> {
    fn event(&mut self, event: Event) {
        self.out.push(Output::Event(event));
    }

    fn version(&mut self) -> Version {
        Version::from_nonce(self.entropy.nonce())
    }
}

impl Engine {
    /// An engine that has not started.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            rules: Rules::new(&config),
            node: config.node,
            now: Now::default(),
            lifecycle: Lifecycle::Idle,
            ops: PendingOps::default(),
            poll: Poll::default(),
            cluster: Cluster::default(),
            session: OwnSession::default(),
            rhythm: Rhythm::default(),
            own_node: OwnNode::default(),
            peers: Peers::default(),
            controls: Controls::default(),
            roles: Roles::default(),
        }
    }

    /// Feeds one input; the caller carries out the outputs in order and reports back.
    ///
    /// # Panics
    /// If the lease clock goes backwards, which the caller must have reported as [`Input::ClockFault`].
    pub fn step(&mut self, now: Now, input: Input, entropy: &mut dyn Entropy) -> Vec<Output> {
        assert!(now.time >= self.now.time, "the lease clock went backwards");
        self.now = now;
        let mut ctx = StepContext { out: Vec::new(), entropy, beat: None, claim: None, hinted_role: None };
        self.expire(&mut ctx);
        self.handle_input(input, &mut ctx);
        self.decide(&mut ctx);
        ctx.out
    }

    /// When the engine wants to be woken if nothing else happens.
    #[must_use]
    pub fn next_wake(&self) -> Time {
        if matches!(self.lifecycle, Lifecycle::Idle | Lifecycle::Stopped) {
            return Time::NEVER;
        }
        if self.stays_out() {
            return self.ops.next_expiry().min(self.session_wake()).min(self.poll_wake());
        }
        [
            self.ops.next_expiry(),
            self.session_wake(),
            self.poll_wake(),
            self.own_node_wake(),
            self.peers_wake(),
            self.roles.next_due(),
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
        let token = self.roles.get(role)?.tenure()?;
        self.rules.is_valid(now, until).then_some(token)
    }

    /// Whether everything has been given up after [`Input::Stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.lifecycle == Lifecycle::Stopped
    }

    /// What is known of a role that this node campaigns for or watches.
    #[must_use]
    pub fn role(&self, role: &Name) -> Option<RoleStatus<'_>> {
        self.roles.get(role).map(|found| self.role_status(found))
    }

    /// Where a node can be reached, if it said so.
    #[must_use]
    pub fn address_of(&self, node: &Name) -> Option<&str> {
        if *node == self.node {
            return self.own_node.address();
        }
        self.peers.node(node)?.address()
    }

    /// Whether the register of a node was read.
    #[must_use]
    pub fn knows_node(&self, node: &Name) -> bool {
        *node == self.node || self.peers.node(node).is_some()
    }

    /// Whether a hint that names this register is followed. Any other may be dropped without a step.
    #[must_use]
    pub fn heeds(&self, key: &Key) -> bool {
        self.is_relevant(key)
    }

    /// Whether a hint about that register may be followed somewhat later: it is that of a role, which this node would not be the
    /// first to claim. It leaves store and machine to the one who is, and learns of the next leader with the same read.
    #[must_use]
    pub fn may_wait(&self, key: &Key) -> bool {
        let Key::Named(_, Kind::Role, name) = key else { return false };
        self.roles.get(name).is_some_and(|role| !self.would_come_first(name, role))
    }

    /// What this engine takes its store to promise.
    #[must_use]
    pub fn class(&self) -> Class {
        self.rules.class()
    }

    /// The times that this engine runs on.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        self.rules.timing()
    }

    /// Time alone may end an operation, a session, a tenure; nothing else has to happen.
    fn expire(&mut self, ctx: &mut StepContext<'_>) {
        self.expire_session(ctx);
        while let Some((op, expired)) = self.ops.take_expired(self.now.time) {
            self.complete(op, expired, crate::Reply::Failed(crate::Fate::Unknown), ctx);
        }
    }

    fn handle_input(&mut self, input: Input, ctx: &mut StepContext<'_>) {
        match input {
            Input::Wake => {}
            Input::Start => self.start(),
            Input::Stop => self.stop(ctx),
            Input::Campaign { role, candidacy } => self.campaign(&role, Some(candidacy), ctx),
            Input::Observe { role } => self.campaign(&role, None, ctx),
            Input::Withdraw { role } => self.withdraw(&role, ctx),
            Input::Resign { role, token, reason } => self.release(&role, token, reason, ctx),
            Input::WorkStopped { role, token } => self.work_stopped(&role, token, ctx),
            Input::LockAcquired { session, lock } => self.lock_acquired(session, lock, ctx),
            Input::Replied { op, reply } => self.reply_received(op, reply, ctx),
            Input::Hinted(hint) => self.hinted(hint, ctx),
            #[cfg(feature = "mutants")]
            Input::Forged(entry) => self.forged(entry, ctx),
            Input::Weakened => self.rules.weaken(),
            Input::Evidence(evidence) => self.take_evidence(&evidence),
            Input::ClockFault => self.end_session(EndReason::ClockFault, session::EndMode::AtOnce, ctx),
            Input::Describe { labels, address } => self.own_node.describe(labels, address),
        }
    }

    /// What follows from the state as it is now: each register's part, in the order in which they need each other.
    fn decide(&mut self, ctx: &mut StepContext<'_>) {
        if matches!(self.lifecycle, Lifecycle::Idle | Lifecycle::Stopped) {
            return;
        }
        if self.stays_out() {
            self.drive_session(ctx);
            return self.drive_poll(ctx);
        }
        self.drive_cluster(ctx);
        self.drive_session(ctx);
        self.drive_own_node(ctx);
        self.drive_peers(ctx);
        self.drive_roles(ctx);
        self.drive_poll(ctx);
    }

    fn start(&mut self) {
        if matches!(self.lifecycle, Lifecycle::Idle | Lifecycle::Stopped) {
            self.lifecycle = Lifecycle::Running;
            self.note_joined();
            self.poll.everything();
        }
    }

    fn stop(&mut self, ctx: &mut StepContext<'_>) {
        if self.lifecycle == Lifecycle::Running {
            self.lifecycle = Lifecycle::Stopping;
            self.drain_all(EndReason::Shutdown, ctx);
        } else if self.lifecycle == Lifecycle::Idle {
            self.lifecycle = Lifecycle::Stopped;
        }
    }

    fn hinted(&mut self, hint: Hint, ctx: &mut StepContext<'_>) {
        if matches!(self.lifecycle, Lifecycle::Idle | Lifecycle::Stopped) {
            return;
        }
        match hint {
            Hint::Changed(key) => self.hinted_change(key, ctx),
            Hint::Resync => self.poll.resync(),
            Hint::Forgot => self.store_lost(ctx),
            Hint::UnknownLease(ttl) => {
                self.remember_lease(ttl.min(crate::Timing::MAX_TTL));
                self.quarantine(ctx);
            }
        }
    }

    /// The store says that it may have lost something. A store that keeps what it acknowledged says so only when it was
    /// replaced or set back: nothing that rests on it may be relied on any longer. One that can forget says so at every
    /// fail-over, most of which lose nothing of ours: that is found out at once, and no beat counts before.
    fn store_lost(&mut self, ctx: &mut StepContext<'_>) {
        if self.rules.loss_ends_session() {
            self.end_session(EndReason::Forgotten, session::EndMode::AtOnce, ctx);
        }
        self.quarantine(ctx);
    }

    fn epoch(&self) -> Option<Epoch> {
        self.cluster.epoch()
    }

    fn named(&self, kind: Kind, name: &Name) -> Key {
        Key::Named(self.epoch().unwrap_or_default(), kind, name.clone())
    }
}
