//! A world: real engines, one set of registers, messages in flight, running work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::engine::canonical::expels_in_order;
use tenure_core::{
    Engine, Entry, Key, Name, Now, OpId, Query, Record, Reply, SessionId, Time, Timestamp, Token, Version,
    Write,
};

use super::setup::Setup;

/// Where every clock stands in a canonical world.
pub const BASE: Time = Time::from_nanos(1_000_000_000_000);

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub nodes: Vec<Node>,
    pub registers: BTreeMap<Key, (Version, Record)>,
    /// Messages in flight.
    pub in_flight: Vec<Message>,
    /// Sessions whose connection dropped.
    pub disconnected: BTreeSet<SessionId>,
    /// The highest token of any tenure so far.
    pub top: Token,
    /// The node that is partitioned from the store, if any.
    pub partition: Option<(usize, Partition)>,
    /// Crashes that may still happen.
    pub crashes: u8,
    /// Stops that may still happen.
    pub stops: u8,
    /// Live sessions that the store may still forget.
    pub forgets: u8,
    /// Forged hints that may still be sent.
    pub forged_hints: u8,
    /// The last nonce that was drawn.
    pub nonce: u128,
}

/// How a node is partitioned from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Partition {
    RequestsLost,
    /// Replies and hints to it are lost.
    RepliesLost,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// None after a crash.
    pub engine: Option<Arc<Engine>>,
    pub clock: Time,
    pub fresh: bool,
    /// Nothing reaches it, and it does nothing.
    pub frozen: bool,
    /// The deadline that its engine reported last.
    pub until: Time,
    pub works: Vec<Work>,
    /// Work that was killed at its deadline; the engine has not been told.
    pub killed: Vec<Token>,
    /// What it may claim to lead: granted and not revoked.
    pub granted: Option<Token>,
    /// When it first received the version of each session that it knows.
    pub received: BTreeMap<SessionId, (Version, Time)>,
    /// Sessions that evidence said are dead, or dropped, and when.
    pub evidence: BTreeMap<SessionId, Time>,
    /// Beats and openings that were sent and are awaited, and when.
    pub sent: Vec<(OpId, Time)>,
    /// The session that it had when it crashed.
    pub lost: Option<SessionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    pub token: Token,
    /// When it is killed at the latest.
    pub until: Time,
    /// It was asked to stop and takes its time.
    pub stopping: bool,
    /// The process that started it is gone: its deadline is final.
    pub orphan: bool,
}

/// A message in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "there are hardly ever any")]
pub enum Message {
    /// From a node to the store. If the node has crashed since, no process waits for the reply.
    Request {
        from: usize,
        /// None: the sender has crashed.
        op: Option<OpId>,
        what: Operation,
    },
    /// From the store to a node.
    Reply { to: usize, op: OpId, reply: Reply },
    /// From the store to a node.
    Hint { to: usize, key: Key },
}

/// What is asked of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is not served as long as that write of the same node is in flight.
    Read(Query, Option<OpId>),
    Write(Vec<Write>),
}

impl Node {
    /// A process that has not started.
    #[must_use]
    pub fn new(setup: &Setup, index: usize) -> Self {
        Self {
            engine: Some(Arc::new(Engine::new(setup.config(index)))),
            clock: BASE,
            fresh: true,
            frozen: false,
            until: Time::from_nanos(0),
            works: Vec::new(),
            killed: Vec::new(),
            granted: None,
            received: BTreeMap::new(),
            evidence: BTreeMap::new(),
            sent: Vec::new(),
            lost: None,
        }
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.engine.is_some() && !self.frozen
    }

    /// Whether it has something to do now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let waiting = |engine: &Arc<Engine>| engine.next_wake() <= self.clock;
        self.is_up() && (self.fresh || !self.killed.is_empty() || self.engine.as_ref().is_some_and(waiting))
    }

    /// The token under which its engine says that it leads.
    #[must_use]
    pub fn leads(&self, role: &Name) -> Option<Token> {
        self.engine.as_ref()?.leads(role, self.clock)
    }

    /// The time that the engine is given.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { time: self.clock, wall: Timestamp::from_micros(0) }
    }
}

impl World {
    /// Nodes that have not started, and an empty store.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        Self {
            nodes: (0..setup.paces.len()).map(|index| Node::new(setup, index)).collect(),
            registers: BTreeMap::new(),
            in_flight: Vec::new(),
            disconnected: BTreeSet::new(),
            partition: None,
            top: Token::new(0),
            crashes: setup.crashes,
            forged_hints: setup.forged_hints,
            stops: setup.stops,
            forgets: setup.forgets,
            nonce: 0,
        }
    }

    /// A number never drawn before.
    pub fn draw(nonce: &mut u128, names: &[Name]) -> u128 {
        loop {
            *nonce += 1;
            if expels_in_order(*nonce, names) {
                return *nonce;
            }
        }
    }

    /// Lets every clock go on by one tick; work whose deadline has come is killed.
    pub fn tick(&mut self, setup: &Setup) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.clock = node.clock.after(setup.tick(index));
            let clock = node.clock;
            let over = |work: &Work| work.until <= clock;
            node.killed.extend(node.works.iter().filter(|work| over(work)).map(|work| work.token));
            node.works.retain(|work| !over(work));
            if node.engine.is_none() {
                node.killed.clear();
            }
        }
    }

    /// What a read shows.
    #[must_use]
    pub fn read(&self, query: &Query) -> Reply {
        let wanted = |key: &Key| query.keys.contains(key) || query.kinds.contains(&(key.epoch(), key.kind()));
        let found = self.registers.iter().filter(|(key, _)| wanted(key));
        Reply::Read(found.map(|(key, (version, value))| entry(key, *version, value)).collect())
    }

    /// How that node is partitioned from the store, if it is.
    #[must_use]
    pub fn partition(&self, node: usize) -> Option<Partition> {
        self.partition.filter(|(cut, _)| *cut == node).map(|(_, partition)| partition)
    }

    /// Whether that request of a node is on its way to the store.
    #[must_use]
    pub fn is_requested(&self, node: usize, asked: OpId) -> bool {
        let is_it = |message: &Message| matches!(message, Message::Request { from, op, .. } if *from == node && *op == Some(asked));
        self.in_flight.iter().any(is_it)
    }

    /// Whether what a node asks must not be served yet.
    #[must_use]
    pub fn must_wait(&self, node: usize, what: &Operation) -> bool {
        matches!(what, Operation::Read(_, Some(after)) if self.is_requested(node, *after))
    }

    /// Whether that session is over, as the store knows.
    #[must_use]
    pub fn is_over(&self, id: SessionId) -> bool {
        let session = |key: &Key| matches!(key, Key::Session(_, found) if *found == id);
        self.registers.iter().find(|(key, _)| session(key)).is_some_and(|(_, (_, value))| is_over(value))
    }
}

/// Whether a register is that of a session which is over.
#[must_use]
pub fn is_over(value: &Record) -> bool {
    matches!(value, Record::Session(record) if record.state != tenure_core::record::SessionState::Live)
}

/// A register as a message carries it.
#[must_use]
pub fn entry(key: &Key, version: Version, value: &Record) -> Entry {
    Entry { key: key.clone(), version, value: value.clone() }
}
