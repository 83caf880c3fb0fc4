//! The settings of one world, drawn from its seed: how many nodes, how fast, what goes wrong and how often.
//!
//! Every seed draws its own subset of faults and its own rates ("swarm"), because a world in which everything
//! happens at once hides what one thing alone would show. Some are calm, some brutal in one dimension only.

use std::time::Duration;

use tenure_core::engine::Class;
use tenure_core::timing::TimingSettings as Times;
use tenure_core::{Mutant, Name, Takeover, Timing};

use crate::clock::{Instant, MICRO, MILLI, SECOND};
use crate::faults::{Fault, MessageFault};
use crate::rng::{Ppm, Rng};

/// Which worlds are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Family {
    /// All of them, as they come.
    #[default]
    Any,
    /// The store loses what it acknowledged, again and again, and roles change hands often.
    Lossy,
    /// The same with 20 roles and more, and without hints.
    Crowded,
}

impl Family {
    pub const ALL: [Self; 3] = [Self::Any, Self::Lossy, Self::Crowded];

    fn shape(self, settings: &mut SimSettings, rng: &mut Rng, base: Instant) {
        if self == Self::Any {
            return;
        }
        settings.class = Class::C;
        settings.liveness_locks = LivenessLockKind::None;
        settings.span = base * rng.between(20, 60);
        settings.fault_every = Some(base * rng.between(2, 12) / 4);
        settings.user_every = Some(base * rng.between(1, 12) / 4);
        for fault in [Fault::Rollback, Fault::LostWrite, Fault::Crash] {
            *settings.weight(fault) = rng.between(1, 10);
        }
        if self == Self::Lossy && rng.chance(300_000) {
            (settings.class, settings.weakens) = (Class::B, true);
        }
        if self == Self::Crowded {
            settings.roles = names(rng.between(20, 40));
            settings.network.notifies = false;
        }
    }
}

/// What a node's work is, and so what stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// It dies and freezes with its process, and checks the deadline before it acts.
    InProcess,
    /// A process of its own, which a watchdog kills before the deadline, and at once when the elector dies.
    Watched,
    /// The same, but after the elector's death it runs on until the deadline.
    Lingering,
}

/// Who outside the store can tell of a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivenessLockKind {
    None,
    /// The kernel of the same host.
    Death,
    /// The server, which sees connections drop.
    Disconnect,
}

#[derive(Debug, Clone)]
pub struct NodeSettings {
    pub name: Name,
    pub timing: Timing,
    /// The true error of its clock rate, within the bound of `timing`.
    pub clock_error_ppm: i64,
    /// Where it runs: nodes of one host see each other die.
    pub host: u64,
    pub work: WorkKind,
    /// The mutant that its engine is.
    pub mutant: Option<Mutant>,
}

/// What users of the library do from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserAction {
    /// Withdraw from a role.
    Withdraw,
    /// Campaign with other settings than before.
    Change,
    /// End a tenure because its work is done, or failed.
    Finish,
    /// Change the labels of the node.
    Describe,
    /// Stop the process.
    Stop,
}

impl UserAction {
    pub const ALL: [Self; 5] = [Self::Withdraw, Self::Change, Self::Finish, Self::Describe, Self::Stop];
}

#[derive(Debug, Clone)]
pub struct NetworkSettings {
    /// The shortest delay.
    pub least: Instant,
    /// The longest delay of most messages.
    pub usual: Instant,
    /// The longest delay of a slow message.
    pub slow: Instant,
    /// The oldest answer to a read.
    pub stale: Instant,
    /// How late a timer may be.
    pub lag: Instant,
    /// Whether the store sends hints at all.
    pub notifies: bool,
    /// The probability of each [`MessageFault`], in its order.
    pub odds: [Ppm; MessageFault::ALL.len()],
}

/// Everything about one world.
#[derive(Debug, Clone)]
pub struct SimSettings {
    pub nodes: Vec<NodeSettings>,
    pub roles: Vec<Name>,
    /// What its store promises, now.
    pub class: Class,
    /// Whether it can lose what it acknowledges only from some moment on, of which every node is told.
    pub weakens: bool,
    /// Who can tell of a death.
    pub liveness_locks: LivenessLockKind,
    pub network: NetworkSettings,
    /// How long faults last.
    pub span: Instant,
    /// The mean time between two faults; none: there are none.
    pub fault_every: Option<Instant>,
    /// The weight of each [`Fault`], in its order.
    pub weights: [u64; Fault::ALL.len()],
    /// The mean time between two actions of users (campaign, withdraw, resign, stop …).
    pub user_every: Option<Instant>,
    /// The weight of each [`UserAction`], in its order.
    pub user_weights: [u64; UserAction::ALL.len()],
    /// The mean time between two requests of operators.
    pub operator_every: Option<Instant>,
    /// Whether half of the process faults pick a leader.
    pub target_leaders: bool,
    /// Whether the store reports a loss to every node with its first reply afterwards.
    pub reports_losses: bool,
    /// Where the store reports no losses: whether no node hears of them, or half of the nodes.
    pub silent: bool,
    /// Whether clock rates are worse than 1 %, within what their nodes reckon with.
    pub bad_clocks: bool,
    /// Whether wall clocks are wrong by hours, and jump, where they count: on a store that can forget.
    pub wrong_clocks: bool,
}

impl SimSettings {
    /// The world of this seed; aimed at a mutant, and run with it, if there is one.
    #[must_use]
    pub fn draw(rng: &mut Rng, family: Family, aim: Option<Mutant>, mutant: Option<Mutant>) -> Self {
        let class = if rng.chance(150_000) { Class::C } else { *rng.pick(&[Class::A, Class::B]) };
        let liveness_locks = match rng.index(5) {
            0 | 1 => LivenessLockKind::None,
            2 | 3 => LivenessLockKind::Death,
            _ => LivenessLockKind::Disconnect,
        };
        let base = draw_ttl(rng);
        let mut settings = Self {
            nodes: Vec::new(),
            roles: draw_roles(rng),
            class,
            weakens: false,
            liveness_locks,
            network: draw_network(rng, base),
            span: base * rng.between(20, 120),
            fault_every: Some(base * rng.between(1, 60) / 4),
            weights: draw_weights(rng),
            user_every: rng.coin().then(|| base * rng.between(2, 60) / 2),
            user_weights: [1, 2, 3, 1, 1],
            operator_every: rng.coin().then(|| base * rng.between(2, 60) / 2),
            target_leaders: rng.coin(),
            reports_losses: rng.chance(700_000),
            silent: rng.coin(),
            bad_clocks: rng.chance(300_000),
            wrong_clocks: rng.chance(300_000),
        };
        if rng.chance(100_000) {
            settings.fault_every = None;
        }
        family.shape(&mut settings, rng, base);
        if let Some(aim) = aim {
            crate::directed::aim(&mut settings, aim, base);
        }
        settings.draw_nodes(rng, base, mutant);
        crate::directed::aim_node(&mut settings.nodes[0], aim, base);
        settings.keep_assumptions();
        settings
    }

    #[must_use]
    pub fn max_ttl(&self) -> Duration {
        self.nodes.iter().map(|node| node.timing.ttl).max().unwrap_or(Timing::DEFAULT_TTL)
    }

    /// Whether every read is answered from the newest state.
    #[must_use]
    pub fn reads_are_fresh(&self) -> bool {
        self.odds(MessageFault::Stale) == 0 && self.weights[Fault::StaleReplica as usize] == 0
    }

    /// Whether the store can lose what it acknowledged, sooner or later.
    #[must_use]
    pub fn forgets(&self) -> bool {
        self.class == Class::C || self.weakens
    }

    /// Whether the wall clocks agree, as they have to for tokens to rise on a store that forgets.
    #[must_use]
    pub fn clocks_agree(&self) -> bool {
        self.forgets() && !self.wrong_clocks
    }

    /// The probability of this fault.
    #[must_use]
    pub fn odds(&self, message_fault: MessageFault) -> Ppm {
        self.network.odds[message_fault as usize]
    }

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
        let mixed = rng.chance(400_000);
        let wide = mixed && rng.chance(200_000);
        if wide {
            // The shortest lease costs as many steps as all the others together.
            self.span /= 4;
        }
        let one_work = rng.coin().then(|| draw_work(rng));
        let hosts = rng.between(1, 3);
        let one_mutated = rng.chance(200_000);
        for index in 0..count {
            let ttl = match (wide, mixed) {
                (true, _) => rng.magnitude(base / 20, 2 * base),
                (false, true) => base * rng.between(2, 16) / 8,
                (false, false) => base,
            };
            let timing = draw_timing(rng, ttl, self.liveness_locks, self.bad_clocks);
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

    /// What lies outside the safety argument is not simulated: a twin whose liveness lock speaks for both, wall clocks that jump
    /// where they are said to agree, forgetting on a store that promises not to.
    fn keep_assumptions(&mut self) {
        if self.liveness_locks != LivenessLockKind::None {
            *self.weight(Fault::Clone) = 0;
        }
        if self.liveness_locks != LivenessLockKind::Disconnect {
            *self.weight(Fault::Disconnect) = 0;
        }
        if self.clocks_agree() {
            *self.weight(Fault::WallClockJump) = 0;
        }
        if !self.forgets() {
            for fault in Fault::LOSSES {
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

fn draw_timing(rng: &mut Rng, ttl: Instant, locks: LivenessLockKind, bad_clocks: bool) -> Timing {
    let ttl = (ttl / MILLI).clamp(100, 60_000);
    let takeover = match locks {
        LivenessLockKind::Disconnect if rng.chance(750_000) => Takeover::OnDisconnect,
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
    let count = match rng.index(250) {
        0 => 300,
        1..=10 => rng.between(20, 40),
        _ => rng.between(1, 5),
    };
    names(count)
}

/// The names of so many roles.
pub(crate) fn names(count: u64) -> Vec<Name> {
    (0..count).map(|index| Name::new(format!("r{index}")).expect("a letter and digits")).collect()
}

fn draw_network(rng: &mut Rng, base: Instant) -> NetworkSettings {
    let mut odds = [0; MessageFault::ALL.len()];
    for odd in &mut odds {
        if rng.chance(350_000) {
            *odd = rng.magnitude(500, 150_000) as Ppm;
        }
    }
    // Freezing at every tenth message is no longer a process.
    odds[MessageFault::FrozenSending as usize] /= 8;
    if rng.chance(150_000) {
        odds[rng.index(odds.len())] = 400_000;
    }
    NetworkSettings {
        least: *rng.pick(&[MICRO, 50 * MICRO, 100 * MICRO]),
        usual: rng.magnitude(200 * MICRO, 5 * MILLI),
        slow: rng.between(base / 10, (3 * base).clamp(SECOND, 12 * SECOND)),
        stale: rng.between(base / 10, 3 * base),
        lag: *rng.pick(&[0, 100 * MICRO, 2 * MILLI]),
        notifies: rng.chance(850_000),
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
