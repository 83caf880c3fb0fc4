//! The settings of one world, drawn from its seed: how many nodes, how fast, what goes wrong and how often.
//!
//! Every seed draws its own subset of faults and its own rates ("swarm"), because a world in which everything
//! happens at once hides what one thing alone would show. Some are calm, some brutal in one dimension only.

use std::time::Duration;

use tenure_core::engine::Class;
use tenure_core::timing::Settings as Times;
use tenure_core::{Mutant, Name, Takeover, Timing};

use crate::clock::{Instant, MICRO, MILLI, SECOND};
use crate::faults::{Fault, Mishap};
use crate::rng::{Ppm, Rng};

/// What a node's work is, and so what stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// It dies and freezes with its process, and looks at the deadline before it acts.
    InProcess,
    /// A process of its own, which a watchdog kills before the deadline, and at once when the elector dies.
    Watched,
    /// The same, but after the elector's death it runs on until the deadline.
    Lingering,
}

/// Who outside the store can tell of a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WitnessKind {
    /// Nobody.
    None,
    /// The kernel of the same host.
    Death,
    /// The server, which sees connections drop.
    Disconnect,
}

/// One node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// Its name.
    pub name: Name,
    /// Its times.
    pub timing: Timing,
    /// The true error of its clock rate, within the bound of `timing`.
    pub clock_error_ppm: i64,
    /// Where it runs: nodes of one host see each other die.
    pub host: u64,
    /// What its work is.
    pub work: WorkKind,
    /// The mistake its engine makes.
    pub mutant: Option<Mutant>,
}

/// What users of the library want from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To stand for a role no longer.
    Withdraw,
    /// To stand otherwise than before.
    Change,
    /// Some work is done, or failed.
    Finish,
    /// Other labels.
    Describe,
    /// To stop the process.
    Stop,
}

impl Wish {
    /// Every wish.
    pub const ALL: [Self; 5] = [Self::Withdraw, Self::Change, Self::Finish, Self::Describe, Self::Stop];
}

/// How messages travel.
#[derive(Debug, Clone)]
pub struct Net {
    /// The fastest way.
    pub least: Instant,
    /// The slowest of most messages.
    pub usual: Instant,
    /// The slowest of the slow ones.
    pub slow: Instant,
    /// The oldest answer to a read.
    pub stale: Instant,
    /// How late a timer may be.
    pub lag: Instant,
    /// Whether the store rings at all.
    pub rings: bool,
    /// How often each [`Mishap`] happens, in its order.
    pub odds: [Ppm; Mishap::ALL.len()],
}

/// Everything about one world.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its nodes.
    pub nodes: Vec<NodeSettings>,
    /// Its roles.
    pub roles: Vec<Name>,
    /// What its store promises.
    pub class: Class,
    /// Who can tell of a death.
    pub witness: WitnessKind,
    /// How messages travel.
    pub net: Net,
    /// How long faults last.
    pub span: Instant,
    /// The mean time between two faults; none: there are none.
    pub fault_every: Option<Instant>,
    /// How much each [`Fault`] weighs, in its order.
    pub weights: [u64; Fault::ALL.len()],
    /// The mean time between two wishes of users (stand, withdraw, release, stop …).
    pub user_every: Option<Instant>,
    /// How much each [`Wish`] weighs, in its order.
    pub wishes: [u64; Wish::ALL.len()],
    /// The mean time between two requests of operators.
    pub operator_every: Option<Instant>,
    /// Whether pauses and crashes aim at leaders.
    pub hunt: bool,
}

impl Settings {
    /// The world of this seed; aimed at what shows a mistake, and with engines that make it, if there is one.
    #[must_use]
    pub fn draw(rng: &mut Rng, aim: Option<Mutant>, mutant: Option<Mutant>) -> Self {
        let class = if rng.chance(150_000) { Class::C } else { *rng.pick(&[Class::A, Class::B]) };
        let witness = match rng.index(5) {
            0 | 1 => WitnessKind::None,
            2 | 3 => WitnessKind::Death,
            _ => WitnessKind::Disconnect,
        };
        let base = draw_ttl(rng);
        let mut settings = Self {
            nodes: Vec::new(),
            roles: draw_roles(rng),
            class,
            witness,
            net: draw_net(rng, base),
            span: base * rng.between(20, 120),
            fault_every: Some(base * rng.between(1, 60) / 4),
            weights: draw_weights(rng),
            user_every: rng.coin().then(|| base * rng.between(2, 60) / 2),
            wishes: [1, 2, 3, 1, 1],
            operator_every: rng.coin().then(|| base * rng.between(2, 60) / 2),
            hunt: rng.coin(),
        };
        if rng.chance(100_000) {
            settings.fault_every = None;
        }
        if let Some(aim) = aim {
            crate::directed::aim(&mut settings, aim, base);
        }
        settings.draw_nodes(rng, base, mutant);
        settings.keep_the_assumptions();
        settings
    }

    /// The longest ttl of any node.
    #[must_use]
    pub fn max_ttl(&self) -> Duration {
        self.nodes.iter().map(|node| node.timing.ttl).max().unwrap_or(Timing::DEFAULT_TTL)
    }

    /// Whether every read is answered from the newest state.
    #[must_use]
    pub fn reads_are_fresh(&self) -> bool {
        self.odds(Mishap::Stale) == 0 && self.weights[Fault::Replica as usize] == 0
    }

    /// How often this mishap strikes.
    #[must_use]
    pub fn odds(&self, mishap: Mishap) -> Ppm {
        self.net.odds[mishap as usize]
    }

    /// How much this fault weighs.
    pub fn weight(&mut self, fault: Fault) -> &mut u64 {
        &mut self.weights[fault as usize]
    }

    fn draw_nodes(&mut self, rng: &mut Rng, base: Instant, mutant: Option<Mutant>) {
        let count = match rng.index(8) {
            0..=2 => 2,
            3..=5 => 3,
            6 => 4,
            _ => rng.between(5, 7),
        };
        let mixed = self.class != Class::C && rng.chance(400_000);
        let wide = mixed && rng.chance(200_000);
        if wide {
            // The shortest lease costs as many steps as all the others together.
            self.span /= 4;
        }
        let one_work = rng.coin().then(|| draw_work(rng));
        let bad_clocks = rng.chance(300_000);
        let hosts = rng.between(1, 3);
        let one_mutated = rng.chance(200_000);
        for index in 0..count {
            let ttl = match (wide, mixed) {
                (true, _) => rng.magnitude(base / 20, 2 * base),
                (false, true) => base * rng.between(2, 16) / 8,
                (false, false) => base,
            };
            let timing = draw_timing(rng, ttl, self.witness, bad_clocks);
            let bound = i64::from(timing.rate_error_ppm);
            let work = one_work.unwrap_or_else(|| draw_work(rng));
            self.nodes.push(NodeSettings {
                name: Name::new(format!("n{index}")).expect("a letter and a digit"),
                timing,
                clock_error_ppm: if rng.coin() {
                    *rng.pick(&[-bound, bound])
                } else {
                    rng.signed(-bound, bound)
                },
                host: rng.between(1, hosts),
                work,
                mutant: mutant.filter(|_| !one_mutated || index == 0),
            });
        }
    }

    /// What lies outside the safety argument is not simulated: a twin whose witness speaks for both, a clock fault
    /// of a store that counts on wall clocks, forgetting on a store that promises not to.
    fn keep_the_assumptions(&mut self) {
        if self.witness != WitnessKind::None {
            *self.weight(Fault::Clone) = 0;
        }
        if self.witness != WitnessKind::Disconnect {
            *self.weight(Fault::Disconnect) = 0;
        }
        if self.class == Class::C {
            *self.weight(Fault::WallJump) = 0;
            *self.weight(Fault::Clone) = 0;
        } else {
            for fault in [Fault::Rollback, Fault::Amnesia, Fault::Vandal] {
                *self.weight(fault) = 0;
            }
        }
    }
}

/// The profiles that people use, and everything between the shortest ttl and a minute.
fn draw_ttl(rng: &mut Rng) -> Instant {
    match rng.index(20) {
        0..=2 => 5 * SECOND,
        3 => 2 * SECOND,
        4 | 5 => 15 * SECOND,
        6 | 7 => 30 * SECOND,
        8 => 60 * SECOND,
        _ => rng.magnitude(100 * MILLI, 60 * SECOND) / MILLI * MILLI,
    }
}

fn draw_timing(rng: &mut Rng, ttl: Instant, witness: WitnessKind, bad_clocks: bool) -> Timing {
    let ttl = (ttl / MILLI).clamp(100, 60_000);
    let takeover = match witness {
        WitnessKind::Disconnect if rng.chance(750_000) => Takeover::OnDisconnect,
        _ => Takeover::Strict,
    };
    // On disconnect everything has to fit into the grace, the time for stopping too.
    let stop_grace = (takeover == Takeover::OnDisconnect).then(|| Duration::from_millis(ttl / 10));
    let times = Times {
        ttl: Some(Duration::from_millis(ttl)),
        takeover,
        stop_grace,
        rate_error_ppm: Some(if bad_clocks { rng.between(10_000, 60_000) as u32 } else { 10_000 }),
        ..Times::default()
    };
    let defaults = Times { rate_error_ppm: None, stop_grace: None, ..times.clone() };
    Timing::new(&times).or_else(|_| Timing::new(&defaults)).expect("the defaults hold for every ttl")
}

fn draw_work(rng: &mut Rng) -> WorkKind {
    *rng.pick(&[WorkKind::InProcess, WorkKind::Watched, WorkKind::Lingering])
}

fn draw_roles(rng: &mut Rng) -> Vec<Name> {
    let count = if rng.chance(4_000) { 300 } else { rng.between(1, 5) };
    (0..count).map(|index| Name::new(format!("r{index}")).expect("a letter and digits")).collect()
}

fn draw_net(rng: &mut Rng, base: Instant) -> Net {
    let mut odds = [0; Mishap::ALL.len()];
    for odd in &mut odds {
        if rng.chance(350_000) {
            *odd = rng.magnitude(500, 150_000) as Ppm;
        }
    }
    // Freezing at every tenth message is no longer a process.
    odds[Mishap::FrozenSending as usize] /= 8;
    if rng.chance(150_000) {
        odds[rng.index(odds.len())] = 400_000;
    }
    Net {
        least: *rng.pick(&[MICRO, 50 * MICRO, 100 * MICRO]),
        usual: rng.magnitude(200 * MICRO, 5 * MILLI),
        slow: rng.between(base / 10, (3 * base).clamp(SECOND, 12 * SECOND)),
        stale: rng.between(base / 10, 3 * base),
        lag: *rng.pick(&[0, 100 * MICRO, 2 * MILLI]),
        rings: rng.chance(850_000),
        odds,
    }
}

fn draw_weights(rng: &mut Rng) -> [u64; Fault::ALL.len()] {
    let mut weights = [0; Fault::ALL.len()];
    if rng.chance(200_000) {
        // One dimension only.
        weights[rng.index(weights.len())] = 1;
        return weights;
    }
    for weight in &mut weights {
        if rng.coin() {
            *weight = rng.between(1, 10);
        }
    }
    weights
}
