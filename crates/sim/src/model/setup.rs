//! What one world of the model is made of, and which faults happen in it.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use super::world::Partition;
use tenure_core::engine::{Class, Config};
use tenure_core::io::Candidacy;
use tenure_core::record::LivenessLock;
use tenure_core::timing::TimingSettings;
use tenure_core::{Mutant, Name, Takeover, Timing};

/// One tick of the model. The spans of the engine are chosen so that each ends just after a tick or just before one:
/// rounding then makes nothing safer than it is.
pub const TICK: Duration = Duration::from_secs(1);

/// The times of one node, in ticks of its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePace {
    /// A version of its session counts for less than so many ticks, and for more than one tick less.
    pub ttl: u32,
    /// How fast its clock runs, in millionths of the true time.
    pub clock_ppm: u32,
    /// Its bound on the error of its clock, in millionths.
    pub error_ppm: u32,
}

impl NodePace {
    /// Four ticks, on a perfect clock.
    pub const PLAIN: Self = Self { ttl: 4, clock_ppm: 1_000_000, error_ppm: 0 };
}

/// The kinds of message that may be delayed, or lost alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Reads,
    Openings,
    Beats,
    Closings,
    Expulsions,
    Roles,
    Names,
    Hints,
}

/// One world, and what may happen in it.
#[derive(Debug, Clone)]
pub struct Setup {
    pub name: &'static str,
    pub paces: Vec<NodePace>,
    /// The mutant that every node is.
    pub mutant: Option<Mutant>,
    /// Begin before anything exists, instead of with a leader.
    pub from_empty: bool,
    /// Other things may happen between the wakes of two nodes in one tick; otherwise all that are due wake in turn,
    /// in either order.
    pub fine_grained: bool,
    /// An answer may take one tick and still count; otherwise it counts only in the tick in which it was asked for.
    pub slow_replies: bool,
    /// So many messages may be in flight at once; all others arrive at once or never.
    pub in_flight: usize,
    /// Only messages from or to these nodes are late.
    pub slow: Vec<usize>,
    /// Only these nodes are partitioned, freeze, crash or stop.
    pub victims: Vec<usize>,
    /// One node at a time may be partitioned from the store, in one of these ways, for any time.
    pub cuts: &'static [Partition],
    /// Only these may be delayed.
    pub late: &'static [MessageKind],
    /// A request in flight may be applied and a duplicate of it stay in flight.
    pub duplicates: bool,
    /// Hints arrive (or are lost); otherwise none ever does.
    pub hints: bool,
    /// So many forged hints.
    pub forged_hints: u8,
    /// They are not made up: the hint of a write in flight arrives before the write is applied, and whether or not it
    /// ever is.
    pub early_hints: bool,
    /// Work may stop late when it is asked to.
    pub slow_stops: bool,
    /// A leader may be asked to resign.
    pub resign: bool,
    /// One node at a time may freeze, for any time.
    pub pause: bool,
    /// So many crashes, each with a restart at any later time.
    pub crashes: u8,
    /// Work outlives the crash of its elector, up to its deadline.
    pub work_outlives: bool,
    /// So many clean stops, each with a start at any later time.
    pub stops: u8,
    pub class: Class,
    /// So often the store forgets the register of a live session.
    pub forgets: u8,
    /// Registers of sessions that are over and not named may vanish.
    pub deletion: bool,
    /// Sessions have a liveness lock that tells of a crash; true: not before all the work is gone.
    pub liveness_locks: Option<bool>,
    /// A dropped connection counts, and connections drop.
    pub disconnect: bool,
    /// Every fifth poll lists all sessions.
    pub sweep: bool,
    /// Messages that can change nothing any more are forgotten.
    pub prune: bool,
    /// Stop at this depth, if ever.
    pub depth: Option<u32>,
    /// What follows from the paces, reckoned once.
    pub derived: OnceLock<Derived>,
}

/// What follows from the paces.
#[derive(Debug, Clone)]
pub struct Derived {
    names: Vec<Name>,
    timings: Vec<Timing>,
    memory: Duration,
}

static ROLE: LazyLock<Name> = LazyLock::new(|| Name::new("role").expect("a good name"));

impl Setup {
    /// Two calm nodes: the beginning of every configuration.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            paces: vec![NodePace::PLAIN; 2],
            mutant: None,
            from_empty: false,
            fine_grained: false,
            slow_replies: false,
            in_flight: 0,
            late: &[],
            slow: vec![0],
            victims: vec![0],
            cuts: &[],
            duplicates: false,
            hints: false,
            early_hints: false,
            forged_hints: 0,
            slow_stops: false,
            resign: false,
            pause: false,
            crashes: 0,
            work_outlives: false,
            stops: 0,
            class: Class::B,
            forgets: 0,
            deletion: false,
            liveness_locks: None,
            disconnect: false,
            sweep: false,
            prune: true,
            depth: None,
            derived: OnceLock::new(),
        }
    }

    /// The role that every node campaigns for.
    #[must_use]
    pub fn role() -> Name {
        ROLE.clone()
    }

    #[must_use]
    pub fn node(index: usize) -> Name {
        Name::new(["A", "B", "C", "D"][index]).expect("a good name")
    }

    /// All nodes, in the order in which they expel.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.derived().names
    }

    /// The longest span that matters to anything outside the engines.
    #[must_use]
    pub fn memory(&self) -> Duration {
        self.derived().memory
    }

    fn derived(&self) -> &Derived {
        self.derived.get_or_init(|| {
            let timings: Vec<Timing> = (0..self.paces.len()).map(|node| self.reckon(node)).collect();
            let watch = |one: &Timing| timings.iter().map(|other| one.expulsion_wait(other.ttl)).max();
            let memory = timings.iter().filter_map(watch).max().unwrap_or_default();
            // The last node expels first: a leader that is the first is never given a tick too much.
            Derived { names: (0..self.paces.len()).rev().map(Self::node).collect(), timings, memory }
        })
    }

    /// The engine of a node, not started.
    #[must_use]
    pub fn config(&self, node: usize) -> Config {
        Config::new(Self::node(node), self.timing(node), self.class).with_mutant(self.mutant)
    }

    #[must_use]
    pub fn timing(&self, node: usize) -> Timing {
        self.derived().timings[node]
    }

    fn reckon(&self, node: usize) -> Timing {
        let pace = self.paces[node];
        let ticks = |tenths: u32| Some(TICK * tenths / 10);
        let ttl = TICK * (10 * pace.ttl - 1) / 10;
        let settings = TimingSettings {
            ttl: Some(ttl),
            beat: ticks(2),
            op_timeout: Some(TICK * if self.slow_replies { 105 } else { 80 } / 100),
            stop_grace: ticks(10),
            kill_slack: ticks(1),
            takeover: if self.disconnect { Takeover::OnDisconnect } else { Takeover::Strict },
            grace: Some(if self.disconnect { TICK * 39 / 10 } else { ttl }),
            rate_error_ppm: Some(pace.error_ppm),
        };
        Timing::new(&settings).expect("a possible pace")
    }

    /// How far a node's clock goes in one tick.
    #[must_use]
    pub fn tick(&self, node: usize) -> Duration {
        TICK * self.paces[node].clock_ppm / 1_000_000
    }

    /// The candidacy of every node.
    #[must_use]
    pub fn candidacy(&self) -> Candidacy {
        Candidacy::default()
    }

    /// The liveness lock of every session.
    #[must_use]
    pub fn liveness_lock(&self) -> Option<LivenessLock> {
        let covers_work = self.liveness_locks.unwrap_or(true);
        (self.liveness_locks.is_some() || self.disconnect).then(|| LivenessLock {
            id: LOCK_ID.to_owned(),
            covers_work,
            connection: self.disconnect,
        })
    }
}

/// The id of every liveness lock.
pub const LOCK_ID: &str = "lock";
