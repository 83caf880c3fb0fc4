//! A world: real engines, one set of registers, messages under way, work that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::engine::canon::in_order;
use tenure_core::{
    Engine, Entry, Key, Name, Now, OpId, Query, Record, Reply, SessionId, Time, Token, Version, Wall, Write,
};

use super::setup::Setup;

/// Where every clock stands in a canonical world.
pub const BASE: Time = Time(1_000_000_000_000);

/// Everything there is, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The store.
    pub registers: BTreeMap<Key, (Version, Record)>,
    /// What is under way.
    pub wires: Vec<Wire>,
    /// Sessions whose connection dropped.
    pub cut: BTreeSet<SessionId>,
    /// The highest token of any tenure so far.
    pub top: Token,
    /// The node that is cut off from the store, if any.
    pub link: Option<(usize, Link)>,
    /// Crashes that may still happen.
    pub crashes: u8,
    /// Stops that may still happen.
    pub stops: u8,
    /// Live sessions that the store may still forget.
    pub forgets: u8,
    /// The last nonce that was drawn.
    pub nonce: u128,
}

/// How a node is cut off from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// Its requests are lost.
    Mute,
    /// The answers to them, and hints, are lost.
    Deaf,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// None after a crash.
    pub engine: Option<Arc<Engine>>,
    /// Its lease clock.
    pub clock: Time,
    /// Not started yet.
    pub fresh: bool,
    /// Nothing reaches it, and it does nothing.
    pub frozen: bool,
    /// The deadline that its engine told last.
    pub until: Time,
    /// The work that runs.
    pub works: Vec<Work>,
    /// Work that was killed at its deadline; the engine has not been told.
    pub killed: Vec<Token>,
    /// What it may claim to lead: granted and not revoked.
    pub granted: Option<Token>,
    /// When it first received the version of each session that it knows.
    pub received: BTreeMap<SessionId, (Version, Time)>,
    /// Sessions that a witness said are dead, or dropped, and when.
    pub evidence: BTreeMap<SessionId, Time>,
    /// Beats and openings that were sent and are awaited, and when.
    pub sent: Vec<(OpId, Time)>,
    /// The session that it had when it crashed.
    pub lost: Option<SessionId>,
}

/// Work of one tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// Which tenure.
    pub token: Token,
    /// When it is killed at the latest.
    pub until: Time,
    /// It was asked to stop and takes its time.
    pub stopping: bool,
    /// The process that started it is gone: nobody gives it more time.
    pub orphan: bool,
}

/// A message under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "there are hardly ever any")]
pub enum Wire {
    /// From a node to the store. Nobody waits for the answer any more if the node has crashed since.
    Request {
        /// Who asked.
        from: usize,
        /// Which operation; none: the asker is gone.
        op: Option<OpId>,
        /// What.
        what: Operation,
    },
    /// From the store to a node.
    Reply {
        /// To whom.
        to: usize,
        /// To which operation.
        op: OpId,
        /// What.
        reply: Reply,
    },
    /// From the store to a node.
    Hint {
        /// To whom.
        to: usize,
        /// What.
        entry: Entry,
    },
}

/// What is asked of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Operation {
    /// To read.
    Read(Query),
    /// To write.
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
            until: Time(0),
            works: Vec::new(),
            killed: Vec::new(),
            granted: None,
            received: BTreeMap::new(),
            evidence: BTreeMap::new(),
            sent: Vec::new(),
            lost: None,
        }
    }

    /// Whether it takes part and nothing holds it up.
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

    /// What the engine is told of the time.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { time: self.clock, wall: Wall(0) }
    }
}

impl World {
    /// Nodes that have not started, and an empty store.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        Self {
            nodes: (0..setup.paces.len()).map(|index| Node::new(setup, index)).collect(),
            registers: BTreeMap::new(),
            wires: Vec::new(),
            cut: BTreeSet::new(),
            link: None,
            top: Token(0),
            crashes: setup.crashes,
            stops: setup.stops,
            forgets: setup.forgets,
            nonce: 0,
        }
    }

    /// A number never drawn before.
    pub fn draw(nonce: &mut u128, names: &[Name]) -> u128 {
        loop {
            *nonce += 1;
            if in_order(*nonce, names) {
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

    /// How that node is cut off, if it is.
    #[must_use]
    pub fn link(&self, node: usize) -> Option<Link> {
        self.link.filter(|(cut, _)| *cut == node).map(|(_, link)| link)
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
