//! Many nodes and many roles on the engine alone, in a calm world: what they cost at rest, and how long it takes until every
//! role is led again when a third of the nodes is gone.
//!
//! Each role has a few candidates, drawn by lot. Every operation is applied when it is sent and answered a moment later, and
//! every notification comes after the same moment. A notification that does not concern a node is counted and not delivered:
//! the driver drops it too.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::fmt;
use std::time::Duration;

use tenure_core::engine::{Class, Config};
use tenure_core::io::Candidacy;
use tenure_core::{
    Engine, Event, Hint, Input, Key, Kind, Name, Now, Outcome, Output, Record, Reply, Time, Timestamp,
    Timing, Write,
};

use crate::rng::Rng;
use crate::store::Store;

/// How long an answer takes, and a notification.
const LATENCY: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// Two leases.
const SETTLING: u64 = 10 * SECOND;
/// The minute of rest is counted for a fifth of it.
const PARTS: u64 = 5;

/// How large the world is.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub nodes: usize,
    pub roles: usize,
    /// So many nodes stand for each role.
    pub candidates: usize,
}

/// What was asked of the store, and what it told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub operations: u64,
    /// Registers that reads gave.
    pub rows: u64,
    /// Notifications that the store sends: one to each node for each write that notifies.
    pub messages: u64,
}

impl Cost {
    fn times(self, count: u64) -> Self {
        let Self { operations, rows, messages } = self;
        Self { operations: operations * count, rows: rows * count, messages: messages * count }
    }
}

/// What a world showed.
#[derive(Debug, Clone)]
pub struct ScaleReport {
    pub scale: Scale,
    /// Until every role was led, from the start of the first node.
    pub started: Duration,
    pub start: Cost,
    /// A minute of rest.
    pub rest: Cost,
    /// Roles that lost all their candidates with the third of the nodes.
    pub orphaned: usize,
    /// Until every role with a candidate left was led again.
    pub led_again: Duration,
    pub takeover: Cost,
    /// Until, for a lease, those that are left made no more operations than all did at rest.
    pub calm_again: Duration,
    /// Resident memory of this process at rest, divided by the nodes. What one node reads of another is shared here: in a
    /// process of its own it has all candidacies for itself.
    pub bytes_per_node: u64,
}

/// An input on its way: when it comes, in the order in which it was sent.
type Delivery = Reverse<(u64, u64, usize)>;

struct World {
    now: u64,
    sent: u64,
    rng: Rng,
    store: Store,
    engines: Vec<Option<Engine>>,
    deliveries: BinaryHeap<Delivery>,
    /// What each delivery carries, by the number under which it was sent; none: the node is only woken.
    inputs: HashMap<u64, Input>,
    /// When each node is to be woken.
    wakes: Vec<u64>,
    stands: Vec<Vec<usize>>,
    names: Vec<Name>,
    /// The other way round.
    numbers: HashMap<Name, usize>,
    led: BTreeSet<Name>,
    cost: Cost,
}

impl World {
    fn new(scale: Scale) -> Self {
        let timing = Timing::default();
        let engine = |n: usize| Engine::new(Config::new(name("node", n), timing, Class::B));
        let mut rng = Rng::new(1);
        Self {
            now: SECOND,
            sent: 0,
            store: Store::new(0),
            engines: (0..scale.nodes).map(|n| Some(engine(n))).collect(),
            deliveries: BinaryHeap::new(),
            inputs: HashMap::new(),
            wakes: vec![u64::MAX; scale.nodes],
            stands: (0..scale.roles).map(|_| lot(&mut rng, scale)).collect(),
            names: (0..scale.roles).map(|n| name("role", n)).collect(),
            numbers: (0..scale.roles).map(|n| (name("role", n), n)).collect(),
            led: BTreeSet::new(),
            cost: Cost::default(),
            rng,
        }
    }

    /// All nodes start at once, and campaign for their roles.
    fn start(&mut self) {
        let mut roles = vec![Vec::new(); self.engines.len()];
        for (role, nodes) in self.stands.iter().enumerate() {
            nodes.iter().for_each(|node| roles[*node].push(role));
        }
        for (node, roles) in roles.into_iter().enumerate() {
            self.send(node, self.now, Input::Start);
            for role in roles {
                let candidacy = Candidacy::default();
                self.send(node, self.now, Input::Campaign { role: self.names[role].clone(), candidacy });
            }
        }
    }

    fn send(&mut self, node: usize, at: u64, input: Input) {
        self.sent += 1;
        self.inputs.insert(self.sent, input);
        self.deliveries.push(Reverse((at, self.sent, node)));
    }

    /// Goes on until then, or until every role in `awaited` is led; whether it is.
    fn run_until(&mut self, end: u64, awaited: Option<usize>) -> bool {
        while awaited.is_none_or(|roles| self.led.len() < roles) {
            match self.deliveries.peek() {
                Some(Reverse((at, ..))) if *at <= end => self.deliver(),
                _ => {
                    self.now = end;
                    return false;
                }
            }
        }
        true
    }

    fn deliver(&mut self) {
        let Some(Reverse((at, number, node))) = self.deliveries.pop() else { return };
        let input = self.inputs.remove(&number);
        self.now = self.now.max(at);
        if input.is_none() && self.wakes[node] != at {
            // It was woken before, or wants to be woken at another time by now.
            return;
        }
        self.step(node, input.unwrap_or(Input::Wake));
    }

    fn step(&mut self, node: usize, input: Input) {
        let now = Now { time: Time::from_nanos(self.now), wall: Timestamp::from_micros(self.now / 1000) };
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let Some(engine) = &mut self.engines[node] else { return };
            let rng = &mut self.rng;
            for output in engine.step(now, input, &mut || rng.nonce()) {
                self.carry_out(node, output, &mut inputs);
            }
        }
        let wake = self.engines[node].as_ref().map_or(Time::NEVER, Engine::next_wake).as_nanos();
        if wake != self.wakes[node] {
            self.wakes[node] = wake;
            if wake != Time::NEVER.as_nanos() {
                self.sent += 1;
                self.deliveries.push(Reverse((wake.max(self.now), self.sent, node)));
                self.wakes[node] = wake.max(self.now);
            }
        }
    }

    fn carry_out(&mut self, node: usize, output: Output, inputs: &mut Vec<Input>) {
        match output {
            Output::Read { op, query, with } => {
                // With a write it is one operation.
                self.cost.operations += u64::from(with.is_none());
                let found = self.store.read(self.now, &query);
                self.cost.rows += found.len() as u64;
                self.send(node, self.now + LATENCY, Input::Replied { op, reply: Reply::Read(found) });
            }
            Output::Write { op, writes } => {
                self.cost.operations += 1;
                let outcomes = writes.iter().map(|write| self.write(node, write)).collect();
                self.send(node, self.now + LATENCY, Input::Replied { op, reply: Reply::Written(outcomes) });
            }
            Output::AcquireLock { session, .. } => inputs.push(Input::LockAcquired { session, lock: None }),
            Output::Event(Event::Elected { role, .. }) => _ = self.led.insert(role),
            Output::Event(Event::Lost { role, token, .. } | Event::Draining { role, token, .. }) => {
                self.led.remove(&role);
                inputs.push(Input::WorkStopped { role, token });
            }
            _ => {}
        }
    }

    fn write(&mut self, from: usize, write: &Write) -> Outcome {
        let outcome = self.store.write(self.now, write);
        if write.notify && outcome == Outcome::Applied {
            self.notify(from, &write.key);
        }
        outcome
    }

    fn notify(&mut self, from: usize, key: &Key) {
        let living = self.engines.iter().enumerate().filter(|(n, engine)| *n != from && engine.is_some());
        self.cost.messages += living.count() as u64;
        let heeds = |node: &usize| {
            *node != from && self.engines[*node].as_ref().is_some_and(|engine| engine.heeds(key))
        };
        let heeding: Vec<usize> = match key {
            // All others would say no.
            Key::Named(_, Kind::Role, role) => {
                self.stands[self.numbers[role]].iter().copied().filter(heeds).collect()
            }
            _ => (0..self.engines.len()).filter(heeds).collect(),
        };
        for node in heeding {
            self.send(node, self.now + LATENCY, Input::Hinted(Hint::Changed(key.clone())));
        }
    }

    /// Every third node is gone, without a word. How many roles have no candidate left.
    fn lose_a_third(&mut self) -> usize {
        let lost = |node: usize| node.is_multiple_of(3);
        let led_by = |key: &Key, record: &Record| match (key, record) {
            (Key::Named(_, Kind::Role, role), Record::Role(record)) => {
                Some((role.clone(), record.holder.as_ref()?.node.clone()))
            }
            _ => None,
        };
        let gone: BTreeSet<Name> =
            (0..self.engines.len()).filter(|n| lost(*n)).map(|n| name("node", n)).collect();
        let holders = self.store.entries().filter_map(|(key, (_, record))| led_by(key, record));
        let leaderless: Vec<Name> =
            holders.filter(|(_, node)| gone.contains(node)).map(|(role, _)| role).collect();
        leaderless.iter().for_each(|role| _ = self.led.remove(role));
        (0..self.engines.len()).filter(|n| lost(*n)).for_each(|n| self.engines[n] = None);
        self.stands.iter().filter(|nodes| nodes.iter().all(|node| lost(*node))).count()
    }

    fn take_cost(&mut self) -> Cost {
        std::mem::take(&mut self.cost)
    }
}

/// Simulates it.
///
/// # Errors
/// If a role is not led in time.
pub fn run(scale: Scale) -> Result<ScaleReport, String> {
    let mut world = World::new(scale);
    let began = world.now;
    world.start();
    if !world.run_until(began + 120 * SECOND, Some(scale.roles)) {
        return Err(format!("{} of {} roles are led after two minutes", world.led.len(), scale.roles));
    }
    let (started, start) = (Duration::from_nanos(world.now - began), world.take_cost());
    // They have seen each other move by then.
    world.run_until(world.now + SETTLING, None);
    world.take_cost();
    world.run_until(world.now + SECOND * 60 / PARTS, None);
    let (rest, bytes_per_node) = (world.take_cost().times(PARTS), resident() / scale.nodes as u64);
    let lost_at = world.now;
    let orphaned = world.lose_a_third();
    if !world.run_until(lost_at + 120 * SECOND, Some(scale.roles - orphaned)) {
        return Err(format!("{} of {} roles are led again", world.led.len(), scale.roles - orphaned));
    }
    let (led_again, takeover) = (Duration::from_nanos(world.now - lost_at), world.take_cost());
    let calm_again = calm_again(&mut world, lost_at, rest);
    Ok(ScaleReport { scale, started, start, rest, orphaned, led_again, takeover, calm_again, bytes_per_node })
}

/// Runs until, for a lease, the nodes that are left make no more operations than all made at rest.
fn calm_again(world: &mut World, since: u64, rest: Cost) -> Duration {
    let lease = Timing::default().ttl.as_nanos() as u64;
    loop {
        let before = world.cost.operations;
        world.run_until(world.now + lease, None);
        let made = world.cost.operations - before;
        if made * 60 * SECOND <= rest.operations * lease {
            return Duration::from_nanos(world.now - lease - since);
        }
    }
}

fn name(what: &str, n: usize) -> Name {
    Name::new(format!("{what}-{n}")).expect("a name")
}

/// Different nodes, drawn by lot.
fn lot(rng: &mut Rng, scale: Scale) -> Vec<usize> {
    let mut drawn = BTreeSet::new();
    while drawn.len() < scale.candidates.min(scale.nodes) {
        drawn.insert(rng.index(scale.nodes));
    }
    drawn.into_iter().collect()
}

/// Memory of this process, in bytes; none elsewhere than on Linux.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations, {} rows, {} messages", self.operations, self.rows, self.messages)
    }
}

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scale { nodes, roles, candidates } = self.scale;
        writeln!(f, "{nodes} nodes, {roles} roles, {candidates} candidates each")?;
        writeln!(f, "all led after {} ms: {}", self.started.as_millis(), self.start)?;
        writeln!(f, "a minute of rest: {}", self.rest)?;
        writeln!(
            f,
            "a node: {} KiB, besides the candidacies, which nodes share here",
            self.bytes_per_node / 1024
        )?;
        writeln!(f, "a third of the nodes gone: {} roles have no candidate left", self.orphaned)?;
        writeln!(f, "the others led again after {:.2} s: {}", self.led_again.as_secs_f64(), self.takeover)?;
        write!(f, "calm again after {:.0} s", self.calm_again.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each leads some roles, so that none rests: five operations in a lease, and no more when there is nothing to tell.
    #[test]
    fn many_nodes_cost_little_at_rest_and_lead_again_within_the_bound() {
        let scale = Scale { nodes: 60, roles: 600, candidates: 3 };
        let report = run(scale).unwrap();
        let (timing, nodes) = (Timing::default(), scale.nodes as u64);
        assert!((nodes * 48..=nodes * 61).contains(&report.rest.operations), "{report}");
        assert_eq!(report.rest.messages, 0, "{report}");
        assert!(report.led_again <= timing.bounds().crash, "{report}");
        assert!(report.orphaned < scale.roles / 9, "{report}");
        // Every claim is told to every other node.
        assert!(report.start.messages >= (scale.roles as u64 + nodes) * (nodes - 1), "{report}");
    }
}
