//! One process of a node: an engine and what surrounds it.

use std::collections::{BTreeMap, VecDeque};

use tenure_core::io::Standing;
use tenure_core::{Engine, Input, Name, Time};

use crate::clock::Instant;

/// Names a process of a world; never used again after its death.
pub type Pid = usize;

/// Whether a process gets time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It is frozen until then; what it is told waits.
    Frozen(Instant),
    /// It is gone.
    Dead,
}

/// A process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Which node of the settings.
    pub node: usize,
    /// Its engine, as it was when it died if it is dead.
    pub engine: Engine,
    /// Which clock of the world it reads.
    pub clock: usize,
    /// Whether it gets time.
    pub life: Life,
    /// What waits while it is frozen.
    pub queue: VecDeque<Input>,
    /// When its engine wants to be woken, by its own clock.
    pub wants: Time,
    /// When the next wake is due; an earlier entry of the agenda is void.
    pub wake_at: Instant,
    /// Until when its tenures may be relied on, as its engine said last.
    pub until: Time,
    /// Whether it was told to stop.
    pub stopping: bool,
    /// How it stands for which roles.
    pub standing: BTreeMap<Name, Standing>,
    /// The twin it was cloned from, or that was cloned from it, and when.
    pub twin: Option<(Pid, Instant)>,
    /// How much a badly read clock shows too much, and until which reading it has shown.
    pub bend: u64,
    /// The latest instant that its engine was told.
    pub told: Time,
    /// Wakes without any time in between: an engine that spins is a fault.
    pub spins: u32,
}

impl Process {
    /// A process that has just been started.
    #[must_use]
    pub fn new(node: usize, clock: usize, engine: Engine) -> Self {
        Self {
            node,
            engine,
            clock,
            life: Life::Running,
            queue: VecDeque::new(),
            wants: Time::NEVER,
            wake_at: Instant::MAX,
            until: Time(0),
            stopping: false,
            standing: BTreeMap::new(),
            twin: None,
            bend: 0,
            told: Time(0),
            spins: 0,
        }
    }

    /// Whether it has not died.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.life != Life::Dead
    }

    /// Whether it gets time now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.life == Life::Running
    }
}
