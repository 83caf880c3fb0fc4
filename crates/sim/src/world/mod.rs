//! One world: nodes, a store, a network, clocks, work, and everything that goes wrong.
//!
//! The world is a loop over an agenda in true time. It tells engines what happened to them, carries out what they
//! answer, and lets the invariants look at every step. All chance comes from one seed, and nothing is iterated in
//! an order that could differ, so that the same seed is the same world, line by line.

mod calamity;
mod healing;
mod operator;
mod station;
mod traffic;
mod user;
mod workshop;

use std::collections::BTreeMap;

use tenure_core::engine::Config;
use tenure_core::{Engine, Input, Key, Mutant};

use crate::agenda::{Agenda, Happening};
use crate::clock::{Clock, Instant, MICRO};
use crate::faults::{Fault, Mishap};
use crate::invariants::{Focus, Invariants, Violation};
use crate::process::{Life, Pid, Process};
use crate::rng::Rng;
use crate::scene::Scene;
use crate::stats::Stats;
use crate::store::Store;
use crate::swarm::Settings;
use crate::trace::Trace;
use crate::witness::Witnesses;
use crate::work::Works;

/// What became of a world.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What went wrong, if anything did.
    pub violation: Option<Violation>,
    /// Its figures.
    pub stats: Stats,
    /// Its trace, if it was kept.
    pub trace: Trace,
}

/// Which world, and how it is looked at.
#[derive(Debug, Clone, Default)]
pub struct Ticket {
    /// Its seed.
    pub seed: u64,
    /// The mistake that its settings are aimed at.
    pub aim: Option<Mutant>,
    /// The mistake that its engines make.
    pub mutant: Option<Mutant>,
    /// Which invariants are looked at.
    pub focus: Focus,
    /// Where the trace goes.
    pub trace: Trace,
}

impl Ticket {
    /// The world of this seed, as it is.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The world of this seed that is aimed at a mistake, and makes it.
    #[must_use]
    pub fn hunt(seed: u64, mutant: Mutant) -> Self {
        Self { seed, aim: Some(mutant), mutant: Some(mutant), ..Self::default() }
    }
}

/// Runs a world to its end, or to the first violation.
#[must_use]
pub fn run(ticket: Ticket) -> Verdict {
    World::new(ticket).run()
}

/// Between a process and the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    There,
    Back,
}

/// A node is cut off from the store until then, in both directions or in one.
#[derive(Debug, Clone, Default)]
struct Cut {
    until: Instant,
    only: Option<Direction>,
}

/// A world.
#[derive(Debug)]
struct World {
    scene: Scene,
    checks: Invariants,
    agenda: Agenda,
    rng: Rng,
    stats: Stats,
    trace: Trace,
    witnesses: Witnesses,
    /// Who is cut off from the store.
    cuts: Vec<Cut>,
    /// Whose reads lag behind, until when and by how much.
    lags: Vec<(Instant, Instant)>,
    /// Until when the store answers nobody.
    out_until: Instant,
    /// When everything was healed.
    healed_at: Option<Instant>,
    /// When every role has to be led after that.
    judged_at: Instant,
    /// When each role had a leader again.
    settled_at: Option<Instant>,
    over: bool,
    mutant: Option<Mutant>,
}

impl World {
    fn new(ticket: Ticket) -> Self {
        let Ticket { seed, aim, mutant, focus, trace } = ticket;
        let mut rng = Rng::new(seed);
        let settings = Settings::draw(&mut rng, aim, mutant);
        let memory = settings.net.stale.max(settings.span.min(settings.net.slow));
        let clocks =
            settings.nodes.iter().map(|node| draw_clock(&mut rng, &settings, node.clock_error_ppm)).collect();
        let mut world = Self {
            cuts: vec![Cut::default(); settings.nodes.len()],
            lags: vec![(0, 0); settings.nodes.len()],
            scene: Scene {
                now: 0,
                clocks,
                processes: Vec::new(),
                works: Works::default(),
                store: Store::new(if needs_memory(&settings) { memory } else { 0 }),
                rolled_back: false,
                forgot: false,
                lost_at: BTreeMap::new(),
                won: BTreeMap::new(),
                settings,
            },
            checks: Invariants::new(focus),
            agenda: Agenda::default(),
            rng,
            stats: Stats { worlds: 1, ..Stats::default() },
            trace,
            witnesses: Witnesses::default(),
            out_until: 0,
            healed_at: None,
            judged_at: Instant::MAX,
            settled_at: None,
            over: false,
            mutant,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        if self.trace.is_on() {
            let settings = format!("{:?}", self.scene.settings);
            self.trace.line(0, format_args!("{settings}"));
        }
        let settings = &self.scene.settings;
        let (nodes, span) = (settings.nodes.len(), settings.span);
        let (user, operator, fault) = (settings.user_every, settings.operator_every, settings.fault_every);
        for node in 0..nodes {
            let at = if self.rng.coin() { self.rng.between(0, span / 20) } else { 0 };
            self.agenda.add(at, Happening::Restart(node));
        }
        for (every, what) in
            [(user, Happening::User), (operator, Happening::Operator), (fault, Happening::Fault)]
        {
            if let Some(every) = every {
                let wait = self.rng.wait(every);
                self.agenda.add(wait, what);
            }
        }
        self.agenda.add(span, Happening::Heal);
    }

    fn run(mut self) -> Verdict {
        while let Some((at, what)) = self.agenda.take() {
            self.scene.now = at;
            self.happen(what);
            if self.over || self.checks.broken().is_some() {
                break;
            }
        }
        self.stats.simulated = self.scene.now;
        self.stats.by_evidence = self.checks.expelled_by_evidence();
        let violation = self.checks.broken().cloned();
        self.stats.violations = u64::from(violation.is_some());
        if let Some(violation) = &violation {
            let Violation { invariant, what } = violation;
            self.trace.line(self.scene.now, format_args!("VIOLATION of \"{invariant}\": {what}"));
        }
        Verdict { violation, stats: self.stats, trace: self.trace }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Wake(pid) => self.wake(pid),
            Happening::Deliver(pid, input) => self.tell(pid, *input),
            Happening::Arrive(request) => self.arrive(*request),
            Happening::Thaw(pid) => self.thaw(pid),
            Happening::WorkStops(work) => self.work_stops(work),
            Happening::Watchdog(work) => self.watchdog(work),
            Happening::Release(session) => self.release_witness(session),
            Happening::Restart(node) => self.restart(node),
            Happening::Fault => self.fault(),
            Happening::User => self.user(),
            Happening::Operator => self.operator(),
            Happening::Heal => self.heal(),
            Happening::Judge => self.judge(),
        }
    }

    /// Starts a process of this node, unless one runs.
    fn restart(&mut self, node: usize) {
        if !self.alive_on(node).is_empty() {
            return;
        }
        self.start(node);
    }

    /// Starts a process of this node.
    fn start(&mut self, node: usize) {
        let settings = &self.scene.settings.nodes[node];
        let engine = Engine::new(Config {
            node: settings.name.clone(),
            timing: settings.timing,
            class: self.scene.settings.class,
            mutant: settings.mutant,
        });
        let pid = self.admit(Process::new(node, node, engine), None);
        if self.trace.is_on() {
            self.trace.line(self.scene.now, format_args!("p{pid} starts as {}", self.scene.node(pid).name));
        }
        self.tell(pid, Input::Start);
        self.stand_for_roles(pid);
    }

    /// Takes a process into the world.
    fn admit(&mut self, process: Process, twin_of: Option<Pid>) -> Pid {
        let pid = self.scene.processes.len();
        self.scene.processes.push(process);
        self.checks.begun(&self.scene, pid, twin_of);
        pid
    }

    fn alive_on(&self, node: usize) -> Vec<Pid> {
        let processes = self.scene.processes.iter().enumerate();
        processes
            .filter(|(_, process)| process.node == node && process.is_alive())
            .map(|(pid, _)| pid)
            .collect()
    }

    fn alive(&self) -> Vec<Pid> {
        let processes = self.scene.processes.iter().enumerate();
        processes.filter(|(_, process)| process.is_alive()).map(|(pid, _)| pid).collect()
    }

    /// Whether this mishap strikes now; none does once the world is healed.
    fn strikes(&mut self, mishap: Mishap) -> bool {
        let odds = self.scene.settings.odds(mishap);
        let strikes = self.healed_at.is_none() && self.rng.chance(odds);
        if strikes {
            self.stats.mishaps[mishap as usize] += 1;
        }
        strikes
    }

    fn is_out(&self) -> bool {
        self.scene.now < self.out_until
    }

    /// Until when nothing gets through in this direction, if so.
    fn cut_until(&self, pid: Pid, direction: Direction) -> Option<Instant> {
        let cut = &self.cuts[self.scene.processes[pid].node];
        let blocked = cut.only.is_none_or(|only| only == direction);
        (self.scene.now < cut.until && blocked).then_some(cut.until)
    }

    fn set_register(&mut self, key: &Key, held: Option<(tenure_core::Version, tenure_core::Record)>) {
        self.scene.store.set(self.scene.now, key, held);
    }

    fn kill(&mut self, pid: Pid) {
        self.scene.processes[pid].life = Life::Dead;
        self.scene.processes[pid].queue.clear();
        self.checks.ended(pid);
    }
}

fn draw_clock(rng: &mut Rng, settings: &Settings, error_ppm: i64) -> Clock {
    let origin = rng.between(1, 1 << 40);
    // Where the wall clock counts, nodes agree on it to within a fraction of the shortest lease.
    let skew = if settings.class == tenure_core::engine::Class::C { 10_000 } else { 3_600_000_000 };
    let offset = rng.signed(-skew, skew);
    Clock::new(origin, error_ppm, offset)
}

fn needs_memory(settings: &Settings) -> bool {
    let stale = !settings.reads_are_fresh();
    let forgets = settings.class == tenure_core::engine::Class::C;
    stale || forgets || settings.weights[Fault::FalseHint as usize] > 0
}

/// A timer is late by this much at most.
fn draw_lag(rng: &mut Rng, lag: Instant) -> Instant {
    if lag == 0 || rng.coin() { 0 } else { rng.between(MICRO, lag) }
}
