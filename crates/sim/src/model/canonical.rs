//! The canonical form of a world: what cannot be told apart is the same.
//!
//! Two passes. The first gathers what there is; the second replaces: times by their distance from now, sessions by
//! their rank, versions by the order in which they appear, operations, tokens and beats by their rank, counts of roles
//! given up by their distance from the least. Sessions that are over and mentioned nowhere are forgotten.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::engine::canonical::{
    Visitor, visit_entry, visit_key, visit_query, visit_reply, visit_write,
};
use tenure_core::{Key, OpId, Reply, SessionId, Time, Token, Version, Write};

use super::setup::Setup;
use super::world::{BASE, Message, Node, Operation, World, is_over};

/// Brings a world into its canonical form, in which it behaves as before.
pub fn canonicalize(setup: &Setup, world: &mut World) {
    release_reads(world);
    if setup.prune {
        prune(world);
    }
    let mut gathered = GatherPass { ops: vec![Vec::new(); world.nodes.len()], ..GatherPass::default() };
    visit_world(setup, world, &mut gathered);
    gathered.sort();
    let mentioned = &gathered.sessions;
    world.registers.retain(|key, (_, value)| match key {
        Key::Session(_, id) => !is_over(value) || mentioned.binary_search(id).is_ok(),
        _ => true,
    });
    world.disconnected.retain(|id| mentioned.binary_search(id).is_ok());
    for node in &mut world.nodes {
        node.received.retain(|id, _| mentioned.binary_search(id).is_ok());
        node.evidence.retain(|id, _| mentioned.binary_search(id).is_ok());
        node.lost = node.lost.filter(|id| mentioned.binary_search(id).is_ok());
    }
    let mut rewrite = RewritePass::new(setup, &gathered);
    visit_world(setup, world, &mut rewrite);
    let used = gathered.sessions.len().max(rewrite.versions.len()).max(rewrite.requests.len());
    world.nonce = used as u128;
    for _ in 0..=used {
        World::draw(&mut world.nonce, setup.names());
    }
}

/// A read that waits for no write any more is a read like any other.
fn release_reads(world: &mut World) {
    for index in 0..world.in_flight.len() {
        let Message::Request { from, what, .. } = &world.in_flight[index] else { continue };
        let waits = world.must_wait(*from, what);
        if let Message::Request { what: Operation::Read(_, after), .. } = &mut world.in_flight[index] {
            after.take_if(|_| !waits);
        }
    }
}

/// Drops messages that can change nothing any more: reads without a waiting node, and writes without a waiting
/// node that expect a version which is not there and never will be. (An engine that acts on a late answer to a
/// read, or does more about a late conflict than read again, would be missed by this; one world goes without.)
fn prune(world: &mut World) {
    let awaited = |node: usize, op: OpId| {
        world.nodes[node].engine.as_ref().is_some_and(|engine| {
            engine.awaited_until(op).is_some_and(|until| until > world.nodes[node].clock)
        })
    };
    let coming: Vec<Version> = world.in_flight.iter().flat_map(puts).collect();
    let possible = |write: &Write| match write.expect {
        None => !world.registers.contains_key(&write.key) || matches!(write.key, Key::Session(..)),
        Some(expect) => {
            // What a tenure wrote it may yet give up.
            let leads_to = |version: &Version| *version == expect || version.of_resignation() == Some(expect);
            coming.iter().any(leads_to)
                || world.registers.get(&write.key).is_some_and(|(found, _)| leads_to(found))
        }
    };
    let keep: Vec<bool> = world
        .in_flight
        .iter()
        .map(|message| match message {
            Message::Request { from, op, what } => {
                op.is_some_and(|op| awaited(*from, op))
                    || matches!(what, Operation::Write(writes) if writes.iter().any(possible))
            }
            Message::Reply { to, op, reply } => awaited(*to, *op) || matches!(reply, Reply::Written(_)),
            Message::Hint { .. } => true,
        })
        .collect();
    let mut keep = keep.into_iter();
    world.in_flight.retain(|_| keep.next() == Some(true));
}

fn puts(message: &Message) -> Vec<Version> {
    match message {
        Message::Request { what: Operation::Write(writes), .. } => {
            writes.iter().filter_map(|write| Some(write.put.as_ref()?.0)).collect()
        }
        _ => Vec::new(),
    }
}

/// What a visitor needs to know besides the numbers.
trait WorldVisitor: Visitor {
    /// What follows belongs to that node, whose clock shows this.
    fn enter(&mut self, node: usize, clock: Time);
    /// An operation as a message names it.
    fn message_op(&mut self, op: &mut OpId);
    /// A version that is in a register, or in flight to one.
    fn exists(&mut self, version: Version);
    /// Whether this is the first pass.
    fn gathers(&self) -> bool;
}

fn visit_world<V: WorldVisitor>(setup: &Setup, world: &mut World, v: &mut V) {
    visit_registers(world, v);
    for (index, node) in world.nodes.iter_mut().enumerate() {
        v.enter(index, node.clock);
        if let Some(engine) = &mut node.engine {
            Arc::make_mut(engine).visit(v);
        }
    }
    visit_messages(world, v);
    let memory = setup.memory();
    for (index, node) in world.nodes.iter_mut().enumerate() {
        v.enter(index, node.clock);
        visit_node(node, memory, v);
    }
    v.token(&mut world.top);
    if !v.gathers() {
        world.disconnected = renamed(std::mem::take(&mut world.disconnected), |id| v.session(id));
    }
}

fn visit_registers<V: WorldVisitor>(world: &mut World, v: &mut V) {
    world.registers = std::mem::take(&mut world.registers)
        .into_iter()
        .map(|(mut key, (mut version, mut value))| {
            v.exists(version);
            // A session that is over is no mention of itself.
            if !(v.gathers() && is_over(&value)) {
                visit_entry(&mut key, &mut version, &mut value, v);
            }
            (key, (version, value))
        })
        .collect();
}

fn visit_messages<V: WorldVisitor>(world: &mut World, v: &mut V) {
    for message in &mut world.in_flight {
        match message {
            Message::Request { from, op, what } => {
                v.enter(*from, BASE);
                op.iter_mut().for_each(|op| v.message_op(op));
                match what {
                    Operation::Read(query, after) => {
                        visit_query(query, v);
                        after.iter_mut().for_each(|op| v.message_op(op));
                    }
                    Operation::Write(writes) => {
                        for write in writes {
                            write.put.iter().for_each(|(version, _)| v.exists(*version));
                            visit_write(write, v);
                        }
                    }
                }
            }
            Message::Reply { to, op, reply } => {
                v.enter(*to, BASE);
                v.message_op(op);
                visit_reply(reply, v);
            }
            Message::Hint { key, .. } => visit_key(key, v),
        }
    }
}

/// What is remembered beside an engine. It is no mention: what no engine, register or message knows is forgotten here too.
fn visit_node<V: WorldVisitor>(node: &mut Node, memory: Duration, v: &mut V) {
    v.due(&mut node.until);
    for work in &mut node.works {
        v.token(&mut work.token);
        v.due(&mut work.until);
    }
    node.killed.iter_mut().for_each(|token| v.token(token));
    node.granted.iter_mut().for_each(|token| v.token(token));
    if v.gathers() {
        node.sent
            .retain(|(op, _)| node.engine.as_ref().is_some_and(|engine| engine.awaited_until(*op).is_some()));
        return;
    }
    for (op, at) in &mut node.sent {
        v.message_op(op);
        v.past(at, memory);
    }
    node.received = renamed(std::mem::take(&mut node.received), |(id, (version, at))| {
        v.session(id);
        v.version(version);
        v.past(at, memory);
    });
    node.evidence = renamed(std::mem::take(&mut node.evidence), |(id, at)| {
        v.session(id);
        v.past(at, memory);
    });
    node.lost.iter_mut().for_each(|id| v.session(id));
    node.clock = BASE;
}

fn renamed<T, C: IntoIterator<Item = T> + FromIterator<T>>(items: C, mut rename: impl FnMut(&mut T)) -> C {
    items
        .into_iter()
        .map(|mut item| {
            rename(&mut item);
            item
        })
        .collect()
}

/// The first pass.
#[derive(Debug, Default)]
struct GatherPass {
    sessions: Vec<SessionId>,
    /// Versions that are, or may come to be, in a register.
    existing: Vec<Version>,
    tokens: Vec<Token>,
    beats: Vec<(SessionId, u64)>,
    least_freed: BTreeMap<SessionId, u64>,
    ops: Vec<Vec<OpId>>,
    node: usize,
}

impl GatherPass {
    fn sort(&mut self) {
        sort(&mut self.sessions);
        sort(&mut self.existing);
        sort(&mut self.tokens);
        sort(&mut self.beats);
        self.ops.iter_mut().for_each(sort);
    }
}

fn sort<T: Ord>(items: &mut Vec<T>) {
    items.sort_unstable();
    items.dedup();
}

impl WorldVisitor for GatherPass {
    fn enter(&mut self, node: usize, _: Time) {
        self.node = node;
    }
    fn message_op(&mut self, _: &mut OpId) {}
    fn exists(&mut self, version: Version) {
        self.existing.push(version);
    }
    fn gathers(&self) -> bool {
        true
    }
}

impl Visitor for GatherPass {
    fn session(&mut self, id: &mut SessionId) {
        self.sessions.push(*id);
    }
    fn over(&mut self, _: &mut SessionId) -> bool {
        true
    }
    fn version(&mut self, _: &mut Version) {}
    fn unacknowledged(&mut self, _: &mut Vec<Version>) {}
    fn request(&mut self, _: &mut SessionId) {}
    fn op(&mut self, op: &mut OpId) {
        self.ops[self.node].push(*op);
    }
    fn bound(&mut self, _: &mut OpId) {}
    fn token(&mut self, token: &mut Token) {
        if *token > Token::new(0) {
            self.tokens.push(*token);
        }
    }
    fn beat(&mut self, session: SessionId, beat: &mut u64) {
        self.beats.push((session, *beat));
    }
    fn freed(&mut self, session: SessionId, freed: &mut u64) {
        let least = self.least_freed.entry(session).or_insert(*freed);
        *least = (*least).min(*freed);
    }
    fn past(&mut self, _: &mut Time, _: Duration) {}
    fn due(&mut self, _: &mut Time) {}
    fn moment(&mut self, _: &mut Time) {}
    fn polls(&mut self, _: &mut u64, _: u64) {}
}

/// The second pass.
struct RewritePass<'a> {
    gathered: &'a GatherPass,
    /// The canonical sessions, by rank.
    ids: Vec<u128>,
    /// By their nonces: a resignation is renamed together with the claim that it gives up.
    versions: HashMap<u128, u128>,
    requests: HashMap<SessionId, u128>,
    sweep: bool,
    /// How far each clock goes in one tick.
    ticks: Vec<Duration>,
    node: usize,
    clock: Time,
}

impl<'a> RewritePass<'a> {
    fn new(setup: &Setup, gathered: &'a GatherPass) -> Self {
        let mut nonce = 0;
        let ids = gathered.sessions.iter().map(|_| World::draw(&mut nonce, setup.names())).collect();
        let (versions, requests) = (HashMap::new(), HashMap::new());
        let ticks = (0..setup.paces.len()).map(|node| setup.tick(node)).collect();
        Self { gathered, ids, versions, requests, sweep: setup.sweep, ticks, node: 0, clock: BASE }
    }
}

impl WorldVisitor for RewritePass<'_> {
    fn enter(&mut self, node: usize, clock: Time) {
        (self.node, self.clock) = (node, clock);
    }
    /// Operations without a waiting node are all the same.
    fn message_op(&mut self, op: &mut OpId) {
        *op = OpId::new(self.gathered.ops[self.node].binary_search(op).map_or(0, |rank| rank as u64 + 1));
    }
    fn exists(&mut self, _: Version) {}
    fn gathers(&self) -> bool {
        false
    }
}

impl Visitor for RewritePass<'_> {
    fn session(&mut self, id: &mut SessionId) {
        if let Ok(rank) = self.gathered.sessions.binary_search(id) {
            *id = SessionId::new(self.ids[rank]);
        }
    }
    fn over(&mut self, id: &mut SessionId) -> bool {
        let mentioned = self.gathered.sessions.binary_search(id).is_ok();
        self.session(id);
        mentioned
    }
    fn version(&mut self, version: &mut Version) {
        let next = self.versions.len() as u128 + 1;
        let is_resignation = version.of_resignation().is_none();
        let nonce = *self.versions.entry(version.get() >> 1).or_insert(next);
        let renamed = Version::from_nonce(nonce);
        *version = renamed.of_resignation().filter(|_| is_resignation).unwrap_or(renamed);
    }
    fn unacknowledged(&mut self, versions: &mut Vec<Version>) {
        versions.retain(|version| self.gathered.existing.binary_search(version).is_ok());
        versions.iter_mut().for_each(|version| self.version(version));
        versions.sort_unstable();
    }
    fn request(&mut self, id: &mut SessionId) {
        let next = self.requests.len() as u128 + 1;
        *id = SessionId::new(*self.requests.entry(*id).or_insert(next));
    }
    fn op(&mut self, op: &mut OpId) {
        self.message_op(op);
    }
    fn bound(&mut self, op: &mut OpId) {
        *op = OpId::new(self.gathered.ops[self.node].partition_point(|live| live < op) as u64 + 1);
    }
    fn token(&mut self, token: &mut Token) {
        if *token > Token::new(0) {
            *token = Token::new(self.gathered.tokens.partition_point(|live| live < token) as u64 + 1);
        }
    }
    fn beat(&mut self, session: SessionId, beat: &mut u64) {
        let beats = &self.gathered.beats;
        let first = beats.partition_point(|(id, _)| *id < session);
        *beat = (beats.partition_point(|known| *known < (session, *beat)) - first) as u64 + 1;
    }
    fn freed(&mut self, session: SessionId, freed: &mut u64) {
        // Two stay, so that what is counted back does not stop at nothing.
        let least = self.gathered.least_freed.get(&session).copied().unwrap_or(0);
        *freed -= least - least.min(2);
    }
    fn past(&mut self, at: &mut Time, matters: Duration) {
        let age = self.clock.since(*at).min(matters + Duration::from_nanos(1));
        *at = BASE.before(age).after(at.since(self.clock));
    }
    fn due(&mut self, at: &mut Time) {
        if *at != Time::NEVER {
            *at = BASE.after(at.since(self.clock));
        }
    }
    /// Clocks show whole ticks only: what happens between two of them happens at the later one.
    fn moment(&mut self, at: &mut Time) {
        if *at != Time::NEVER {
            let (ahead, tick) = (at.since(self.clock).as_nanos(), self.ticks[self.node].as_nanos());
            let ticks = u32::try_from(ahead.div_ceil(tick)).unwrap_or(u32::MAX);
            *at = BASE.after(self.ticks[self.node].saturating_mul(ticks));
        }
    }
    fn polls(&mut self, count: &mut u64, sweep: u64) {
        *count = if self.sweep { *count % sweep } else { 1 };
    }
}
