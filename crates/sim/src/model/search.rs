//! Breadth first over canonical worlds, so that the first violation found is a shortest one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use super::action::{begin, enabled};
use super::canonical::canonicalize;
use super::properties::orphans;
use super::setup::Setup;
use super::world::World;

/// The result of a search.
#[derive(Debug, Clone)]
pub struct SearchReport {
    pub name: &'static str,
    /// Different worlds.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// How far from the beginning the last new one was.
    pub depth: u32,
    /// Whether there is nothing beyond.
    pub closed: bool,
    pub took: Duration,
    /// The first violation: what, and the shortest way to it.
    pub violation: Option<Violation>,
}

/// A property that does not hold.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which, and how.
    pub what: String,
    /// What happened, line by line.
    pub path: Vec<String>,
}

impl fmt::Display for SearchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, states, steps, depth, .. } = self;
        let closed = if self.closed { "closed" } else { "bounded" };
        let seconds = self.took.as_secs_f64();
        write!(
            f,
            "{name:<22} {states:>9} states {steps:>10} steps  depth {depth:>3}  {closed:<7} {seconds:>6.1} s"
        )?;
        if let Some(violation) = &self.violation {
            write!(f, "\nviolation: {}\n  {}", violation.what, violation.path.join("\n  "))?;
        }
        Ok(())
    }
}

/// How a world was first reached: from which one, by which of its successors.
type Origin = (u32, u32);

struct Search<'a> {
    setup: &'a Setup,
    seen: HashMap<u128, (), BuildHasherDefault<Plain>>,
    origins: Vec<Origin>,
    frontier: VecDeque<(u32, u32, World)>,
    good: HashSet<u128>,
    report: SearchReport,
}

/// Searches until everything has been seen, a property is violated, or the depth or `limit` states are reached.
#[must_use]
pub fn search(setup: &Setup, limit: usize) -> SearchReport {
    let began = Instant::now();
    let mut search = Search {
        setup,
        seen: HashMap::default(),
        origins: Vec::new(),
        frontier: VecDeque::new(),
        good: HashSet::new(),
        report: SearchReport {
            name: setup.name,
            states: 0,
            steps: 0,
            depth: 0,
            closed: false,
            took: Duration::ZERO,
            violation: None,
        },
    };
    search.run(limit);
    search.report.took = began.elapsed();
    search.report
}

/// The world that a search begins with.
#[must_use]
pub fn initial_world(setup: &Setup) -> World {
    let mut world = if setup.from_empty { World::new(setup) } else { orphans::settled(setup) };
    canonicalize(setup, &mut world);
    world
}

impl Search<'_> {
    fn run(&mut self, limit: usize) {
        self.record(initial_world(self.setup), (0, 0), 0);
        while let Some((index, depth, world)) = self.frontier.pop_front() {
            if self.setup.depth.is_some_and(|most| depth >= most) || self.report.states >= limit {
                return;
            }
            if !self.expand(index, depth, &world) {
                return;
            }
        }
        self.report.closed = true;
    }

    /// Visits every successor of a world; false when a property is violated.
    fn expand(&mut self, index: u32, depth: u32, world: &World) -> bool {
        if let Err(what) = orphans::check(self.setup, world, &mut self.good) {
            return self.violated(what, index, None);
        }
        let mut nth = 0;
        for action in enabled(self.setup, world) {
            for run in begin(self.setup, world, &action, false, false).outcomes() {
                self.report.steps += 1;
                if let Some(what) = run.broken {
                    return self.violated(what, index, Some(nth));
                }
                let mut next = run.world;
                canonicalize(self.setup, &mut next);
                self.record(next, (index, nth), depth + 1);
                nth += 1;
            }
        }
        true
    }

    fn record(&mut self, world: World, origin: Origin, depth: u32) {
        if self.seen.insert(fingerprint(&world), ()).is_none() {
            let index = u32::try_from(self.origins.len()).expect("fewer than four billion worlds");
            self.origins.push(origin);
            self.report.states += 1;
            self.report.depth = depth;
            self.frontier.push_back((index, depth, world));
        }
    }

    fn violated(&mut self, what: String, index: u32, last: Option<u32>) -> bool {
        let path = self.path(index, last);
        self.report.violation = Some(Violation { what, path });
        false
    }

    /// Replays the path with notes.
    fn path(&self, index: u32, last: Option<u32>) -> Vec<String> {
        let mut fate: Vec<u32> = last.into_iter().collect();
        let mut at = index;
        while at != 0 {
            let (from, nth) = self.origins[at as usize];
            fate.push(nth);
            at = from;
        }
        let (mut world, mut lines) = (initial_world(self.setup), Vec::new());
        for nth in fate.into_iter().rev() {
            let actions = enabled(self.setup, &world);
            let runs =
                actions.iter().flat_map(|action| begin(self.setup, &world, action, false, true).outcomes());
            let run = runs.into_iter().nth(nth as usize).expect("the same successors as before");
            lines.extend(run.notes.unwrap_or_default());
            world = run.world;
            canonicalize(self.setup, &mut world);
        }
        lines
    }
}

/// A hash that identifies a world.
#[must_use]
pub fn fingerprint(world: &World) -> u128 {
    let mut hasher = Wide::default();
    world.hash(&mut hasher);
    u128::from(hasher.high) << 64 | u128::from(hasher.low)
}

/// Two independent hashes at once: with 128 bits two different worlds are never taken for one.
#[derive(Debug)]
struct Wide {
    high: u64,
    low: u64,
}

impl Default for Wide {
    fn default() -> Self {
        Self { high: 0x9e37_79b9_7f4a_7c15, low: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Wide {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.high ^ word) * 0x2d35_8dcc_aa6c_78a5_u128;
        self.high = (product as u64 ^ (product >> 64) as u64).wrapping_add(word);
        let product = u128::from(self.low ^ word.rotate_left(32)) * 0x8bb8_4b93_962e_acc9_u128;
        self.low = (product as u64 ^ (product >> 64) as u64).wrapping_add(self.high.rotate_left(17));
    }
}

impl Hasher for Wide {
    fn finish(&self) -> u64 {
        self.low
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.mix(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
    fn write_u128(&mut self, n: u128) {
        self.mix(n as u64);
        self.mix((n >> 64) as u64);
    }
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }
}

/// Fingerprints are hashes already.
#[derive(Debug, Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u128(&mut self, n: u128) {
        self.0 = n as u64;
    }
}
