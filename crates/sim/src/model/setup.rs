//! What one world of the model is made of, and which faults happen in it.

use std::time::Duration;

use tenure_core::engine::{Class, Config};
use tenure_core::io::Standing;
use tenure_core::record::Witness;
use tenure_core::timing::Settings;
use tenure_core::{Mutant, Name, Takeover, Timing};

/// One tick of the model. The spans of the engine are chosen so that each ends just after a tick or just before one:
/// rounding then makes nothing safer than it is.
pub const TICK: Duration = Duration::from_secs(1);

/// The times of one node, in ticks of its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// A version of its session counts for less than so many ticks, and for more than one tick less.
    pub ttl: u32,
    /// How fast its clock runs, in millionths of the true time.
    pub clock_ppm: u32,
    /// Its bound on the error of its clock, in millionths.
    pub error_ppm: u32,
}

impl Pace {
    /// Four ticks, on a perfect clock.
    pub const PLAIN: Self = Self { ttl: 4, clock_ppm: 1_000_000, error_ppm: 0 };
}

/// One world, and what may happen in it.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What it is called.
    pub name: &'static str,
    /// One for each node.
    pub paces: Vec<Pace>,
    /// The mistake that every node makes.
    pub mutant: Option<Mutant>,
    /// Begin before anything exists, instead of with a leader.
    pub scratch: bool,
    /// So many messages may be under way at once; all others arrive at once or never.
    pub wires: usize,
    /// One node at a time may be cut off from the store, in either direction, for any time.
    pub cuts: bool,
    /// A request under way may be applied and stay under way.
    pub duplicates: bool,
    /// Hints arrive (or are lost); otherwise none ever does.
    pub hints: bool,
    /// A write that is under way may ring its bell before it is applied, and whether or not it ever is.
    pub early_hints: bool,
    /// Work may take its time when it is told to stop.
    pub linger: bool,
    /// A leader may be asked to give up.
    pub release: bool,
    /// One node at a time may freeze, for any time.
    pub pause: bool,
    /// So many crashes, each with a restart at any later time.
    pub crashes: u8,
    /// Work outlives the crash of its elector, up to its deadline.
    pub work_outlives: bool,
    /// So many clean stops, each with a start at any later time.
    pub stops: u8,
    /// Registers of sessions that are over and not named may vanish.
    pub deletion: bool,
    /// Sessions have a witness that tells of a crash; true: not before all the work is gone.
    pub witness: Option<bool>,
    /// A dropped connection counts, and connections drop.
    pub disconnect: bool,
    /// Every fifth look lists all sessions.
    pub sweep: bool,
    /// Stop at this depth, if ever.
    pub depth: Option<u32>,
}

impl Setup {
    /// Two calm nodes: the beginning of every configuration.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            paces: vec![Pace::PLAIN; 2],
            mutant: None,
            scratch: false,
            wires: 0,
            cuts: false,
            duplicates: false,
            hints: false,
            early_hints: false,
            linger: false,
            release: false,
            pause: false,
            crashes: 0,
            work_outlives: false,
            stops: 0,
            deletion: false,
            witness: None,
            disconnect: false,
            sweep: false,
            depth: None,
        }
    }

    /// The role that everybody stands for.
    #[must_use]
    pub fn role() -> Name {
        Name::new("role").expect("a good name")
    }

    /// What a node is called.
    #[must_use]
    pub fn node(index: usize) -> Name {
        Name::new(["A", "B", "C", "D"][index]).expect("a good name")
    }

    /// All nodes.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        (0..self.paces.len()).map(Self::node).collect()
    }

    /// The engine of a node, not started.
    #[must_use]
    pub fn config(&self, node: usize) -> Config {
        Config { node: Self::node(node), timing: self.timing(node), class: Class::B, mutant: self.mutant }
    }

    /// The times of a node.
    ///
    /// # Panics
    /// If the pace is impossible.
    #[must_use]
    pub fn timing(&self, node: usize) -> Timing {
        let pace = self.paces[node];
        let ticks = |tenths: u32| Some(TICK * tenths / 10);
        let ttl = TICK * (10 * pace.ttl - 1) / 10;
        let settings = Settings {
            ttl: Some(ttl),
            beat: ticks(5),
            op_timeout: Some(TICK * 105 / 100),
            stop_grace: ticks(10),
            kill_slack: ticks(1),
            takeover: if self.disconnect { Takeover::OnDisconnect } else { Takeover::Strict },
            grace: Some(ttl),
            rate_error_ppm: Some(pace.error_ppm),
        };
        Timing::new(&settings).expect("a possible pace")
    }

    /// How far a node's clock goes in one tick.
    #[must_use]
    pub fn tick(&self, node: usize) -> Duration {
        TICK * self.paces[node].clock_ppm / 1_000_000
    }

    /// How everybody stands for the role.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing {
            eligible: true,
            priority: 0,
            preempt: false,
            takeover_delay: Duration::ZERO,
            min_tenure: Duration::ZERO,
            cool_down: Duration::ZERO,
        }
    }

    /// The witness of every session.
    #[must_use]
    pub fn attestation(&self) -> Option<Witness> {
        let covers_work = self.witness.unwrap_or(true);
        (self.witness.is_some() || self.disconnect).then(|| Witness { id: WITNESS.to_owned(), covers_work })
    }
}

/// What every witness is called.
pub const WITNESS: &str = "lock";
