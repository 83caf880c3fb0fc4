//! One process of a node: an engine and what surrounds it.

use std::collections::{BTreeMap, VecDeque};

use tenure_core::io::Candidacy;
use tenure_core::{Engine, Input, Name, Time};

use crate::clock::Instant;

/// Names a process of a world; never used again after its death.
pub type Pid = usize;

/// Whether the scheduler lets the process run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    Running,
    /// Frozen until then; its inputs queue up.
    Frozen(Instant),
    Dead,
}

#[derive(Debug, Clone)]
pub struct Process {
    pub node: usize,
    /// The engine; of a dead process, as it was at its death.
    pub engine: Engine,
    pub clock: usize,
    pub state: ProcessState,
    /// Inputs that arrived while the process was frozen.
    pub queue: VecDeque<Input>,
    /// When the engine asked to be woken, by its own clock.
    pub wake_wanted: Time,
    /// When the next wake is due; an earlier entry of the event queue is void.
    pub wake_at: Instant,
    /// Until when its tenures may be relied on, as its engine said last.
    pub until: Time,
    pub stopping: bool,
    /// The roles that it campaigns for.
    pub candidacies: BTreeMap<Name, Candidacy>,
    /// The twin it was cloned from, or that was cloned from it, and when.
    pub twin: Option<(Pid, Instant)>,
    /// By how much a badly read clock runs ahead (only for [`tenure_core::Mutant::ClockReadOrder`]).
    pub clock_bend: u64,
    /// The latest lease time that its engine was given.
    pub last_reading: Time,
    /// It froze because its machine sleeps.
    pub asleep: bool,
    /// Since when it runs.
    pub running_since: Instant,
    /// How many losses of the store it has heard of.
    pub losses_heard: usize,
    /// Wakes without any time in between: an engine that spins is a fault.
    pub spins: u32,
}

impl Process {
    /// A process that has just started.
    #[must_use]
    pub fn new(node: usize, clock: usize, engine: Engine) -> Self {
        Self {
            node,
            engine,
            clock,
            state: ProcessState::Running,
            queue: VecDeque::new(),
            wake_wanted: Time::NEVER,
            wake_at: Instant::MAX,
            until: Time::from_nanos(0),
            stopping: false,
            candidacies: BTreeMap::new(),
            twin: None,
            clock_bend: 0,
            last_reading: Time::from_nanos(0),
            asleep: false,
            running_since: 0,
            losses_heard: 0,
            spins: 0,
        }
    }

    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.state != ProcessState::Dead
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == ProcessState::Running
    }
}
