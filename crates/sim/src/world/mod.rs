//! One world: nodes, a store, a network, clocks, work, and everything that goes wrong.
//!
//! The world is a loop over an event queue in true time. It feeds inputs to engines, carries out their outputs, and
//! lets the invariants check every step. All randomness comes from one seed, and every iteration has a fixed order,
//! so that the same seed is the same world, line by line.

mod fault_injector;
mod healing;
mod network;
mod node_host;
mod operators;
mod users;
mod workers;

use std::collections::BTreeMap;

use tenure_core::engine::Config;
use tenure_core::{Engine, Input, Key, Mutant};

use crate::clock::{Clock, Instant, MICRO};
use crate::event_queue::{EventQueue, SimEvent};
use crate::faults::{Fault, MessageFault};
use crate::invariants::{Focus, Invariants, Violation};
use crate::liveness::LockTable;
use crate::losses::Losses;
use crate::process::{Pid, Process, ProcessState};
use crate::rng::Rng;
use crate::stats::Stats;
use crate::store::Store;
use crate::swarm::{Family, SimSettings};
use crate::trace::Trace;
use crate::work::Works;
use crate::world_state::WorldState;

#[derive(Debug, Clone)]
pub struct WorldOutcome {
    pub violation: Option<Violation>,
    pub stats: Stats,
    pub trace: Trace,
}

/// Which world to run, and how to check it.
#[derive(Debug, Clone, Default)]
pub struct WorldSpec {
    pub seed: u64,
    pub family: Family,
    /// The mutant that its settings are aimed at.
    pub aim: Option<Mutant>,
    /// The mutant that its engines are.
    pub mutant: Option<Mutant>,
    /// Which invariants are checked.
    pub focus: Focus,
    pub trace: Trace,
}

impl WorldSpec {
    /// The world of this seed, as it is.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The world of this seed that is aimed at a mutant and runs it.
    #[must_use]
    pub fn hunt(seed: u64, mutant: Mutant) -> Self {
        Self { seed, aim: Some(mutant), mutant: Some(mutant), ..Self::default() }
    }
}

/// Runs a world to its end, or to the first violation.
#[must_use]
pub fn run(spec: WorldSpec) -> WorldOutcome {
    World::new(spec).run()
}

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToStore,
    FromStore,
}

/// A network partition between a node and the store, in both directions or in one.
#[derive(Debug, Clone, Default)]
struct Partition {
    until: Instant,
    only: Option<Direction>,
}

#[derive(Debug)]
struct World {
    state: WorldState,
    checks: Invariants,
    events: EventQueue,
    rng: Rng,
    stats: Stats,
    trace: Trace,
    locks: LockTable,
    /// The partition of each node.
    partitions: Vec<Partition>,
    /// Until when the reads of each node are stale, and by how much.
    lags: Vec<(Instant, Instant)>,
    /// Until when the store is down.
    outage_until: Instant,
    /// When all faults ended.
    healed_at: Option<Instant>,
    /// When every role has to be led after that.
    judged_at: Instant,
    /// When every role had a leader again.
    settled_at: Option<Instant>,
    over: bool,
    mutant: Option<Mutant>,
}

impl World {
    fn new(spec: WorldSpec) -> Self {
        let WorldSpec { seed, family, aim, mutant, focus, trace } = spec;
        let mut rng = Rng::new(seed);
        let settings = SimSettings::draw(&mut rng, family, aim, mutant);
        let memory = settings.network.stale.max(settings.span.min(settings.network.slow));
        let clocks =
            settings.nodes.iter().map(|node| draw_clock(&mut rng, &settings, node.clock_error_ppm)).collect();
        let mut world = Self {
            partitions: vec![Partition::default(); settings.nodes.len()],
            lags: vec![(0, 0); settings.nodes.len()],
            state: WorldState {
                now: 0,
                clocks,
                processes: Vec::new(),
                works: Works::default(),
                store: Store::new(if needs_memory(&settings) { memory } else { 0 }),
                losses: Losses::default(),
                lost_at: BTreeMap::new(),
                won: BTreeMap::new(),
                settings,
            },
            checks: Invariants::new(focus),
            events: EventQueue::default(),
            rng,
            stats: Stats { worlds: 1, ..Stats::default() },
            trace,
            locks: LockTable::default(),
            outage_until: 0,
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
            let settings = format!("{:?}", self.state.settings);
            self.trace.line(0, format_args!("{settings}"));
        }
        let settings = &self.state.settings;
        let (nodes, span) = (settings.nodes.len(), settings.span);
        let (user, operator, fault) = (settings.user_every, settings.operator_every, settings.fault_every);
        for node in 0..nodes {
            let at = if self.rng.coin() { self.rng.between(0, span / 20) } else { 0 };
            self.events.schedule(at, SimEvent::Restart(node));
        }
        for (every, what) in
            [(user, SimEvent::User), (operator, SimEvent::Operator), (fault, SimEvent::Fault)]
        {
            if let Some(every) = every {
                let wait = self.rng.wait(every);
                self.events.schedule(wait, what);
            }
        }
        if self.state.settings.weakens {
            let at = self.rng.between(0, span / 4);
            self.events.schedule(at, SimEvent::Weaken);
        }
        self.events.schedule(span, SimEvent::Heal);
    }

    fn run(mut self) -> WorldOutcome {
        while let Some((at, what)) = self.events.pop() {
            self.state.now = at;
            self.process_event(what);
            if self.over || self.checks.broken().is_some() {
                break;
            }
        }
        self.stats.simulated = self.state.now;
        self.stats.by_evidence = self.checks.expelled_by_evidence();
        let violation = self.checks.broken().cloned();
        self.stats.violations = u64::from(violation.is_some());
        if let Some(violation) = &violation {
            let Violation { invariant, what } = violation;
            self.trace.line(self.state.now, format_args!("VIOLATION of \"{invariant}\": {what}"));
        }
        WorldOutcome { violation, stats: self.stats, trace: self.trace }
    }

    fn process_event(&mut self, what: SimEvent) {
        match what {
            SimEvent::Wake(pid) => self.wake(pid),
            SimEvent::Deliver(pid, input) => self.feed(pid, *input),
            SimEvent::Answer(pid, input, losses) => self.feed_reply(pid, *input, losses),
            SimEvent::Arrive(request) => self.arrive(*request),
            SimEvent::Thaw(pid) => self.thaw(pid),
            SimEvent::WorkStops(work) => self.work_stops(work),
            SimEvent::Watchdog(work) => self.watchdog(work),
            SimEvent::Covered(work) => self.is_covered(work),
            SimEvent::Release(session) => self.release_lock(session),
            SimEvent::Restart(node) => self.restart(node),
            SimEvent::Fault => self.fault(),
            SimEvent::User => self.user(),
            SimEvent::Operator => self.operator(),
            SimEvent::Weaken => self.weaken(),
            SimEvent::Heal => self.heal(),
            SimEvent::Judge => self.judge(),
        }
    }

    /// Starts a process of this node, unless one runs.
    fn restart(&mut self, node: usize) {
        if !self.alive_on(node).is_empty() {
            return;
        }
        self.start(node);
    }

    fn start(&mut self, node: usize) {
        let settings = &self.state.settings.nodes[node];
        let config = Config::new(settings.name.clone(), settings.timing, self.state.settings.class);
        let engine = Engine::new(config.with_mutant(settings.mutant));
        let pid = self.spawn(Process::new(node, node, engine), None);
        if self.trace.is_on() {
            self.trace.line(self.state.now, format_args!("p{pid} starts as {}", self.state.node(pid).name));
        }
        self.feed(pid, Input::Start);
        self.campaign_for_roles(pid);
    }

    fn spawn(&mut self, process: Process, twin_of: Option<Pid>) -> Pid {
        let pid = self.state.processes.len();
        let losses_heard = self.state.losses.count();
        self.state.processes.push(if twin_of.is_some() {
            process
        } else {
            Process { losses_heard, ..process }
        });
        self.checks.begun(&self.state, pid, twin_of);
        pid
    }

    fn alive_on(&self, node: usize) -> Vec<Pid> {
        let processes = self.state.processes.iter().enumerate();
        processes
            .filter(|(_, process)| process.node == node && process.is_alive())
            .map(|(pid, _)| pid)
            .collect()
    }

    fn alive(&self) -> Vec<Pid> {
        let processes = self.state.processes.iter().enumerate();
        processes.filter(|(_, process)| process.is_alive()).map(|(pid, _)| pid).collect()
    }

    /// Whether this fault occurs now; none does once the world is healed.
    fn occurs(&mut self, message_fault: MessageFault) -> bool {
        let odds = self.state.settings.odds(message_fault);
        let occurs = self.healed_at.is_none() && self.rng.chance(odds);
        if occurs {
            self.stats.message_faults[message_fault as usize] += 1;
        }
        occurs
    }

    fn is_down(&self) -> bool {
        self.state.now < self.outage_until
    }

    /// Until when a partition blocks this direction, if one does.
    fn partitioned_until(&self, pid: Pid, direction: Direction) -> Option<Instant> {
        let cut = &self.partitions[self.state.processes[pid].node];
        let blocked = cut.only.is_none_or(|only| only == direction);
        (self.state.now < cut.until && blocked).then_some(cut.until)
    }

    fn set_register(&mut self, key: &Key, held: Option<(tenure_core::Version, tenure_core::Record)>) {
        self.state.store.set(self.state.now, key, held);
    }

    fn kill(&mut self, pid: Pid) {
        self.state.processes[pid].state = ProcessState::Dead;
        self.state.processes[pid].queue.clear();
        self.checks.ended(pid);
    }
}

/// Where the wall clock counts, nodes agree on it to within so many microseconds.
const SKEW_US: i64 = 10_000;

fn draw_clock(rng: &mut Rng, settings: &SimSettings, error_ppm: i64) -> Clock {
    let origin = rng.between(1, 1 << 40);
    let skew = if settings.clocks_agree() { SKEW_US } else { 3_600_000_000 };
    let offset = rng.signed(-skew, skew);
    Clock::new(origin, error_ppm, offset)
}

fn needs_memory(settings: &SimSettings) -> bool {
    let stale = !settings.reads_are_fresh();
    stale
        || settings.forgets()
        || [Fault::FalseHint, Fault::HintFlood].iter().any(|lies| settings.weights[*lies as usize] > 0)
}

/// A timer is late by this much at most.
fn draw_lag(rng: &mut Rng, lag: Instant) -> Instant {
    if lag == 0 || rng.coin() { 0 } else { rng.between(MICRO, lag) }
}
