//! The engine (stub: being written).
use crate::{Entropy, Input, Mutant, Name, Now, Output, SessionId, Time, Timing, Token};

/// At most so many writes leave in one batch.
pub const BATCH: usize = 256;

/// What a store can promise about acknowledged writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Consensus: an acknowledged write is never lost.
    A,
    /// One durable node: an acknowledged write is never lost while the node's disk lives.
    B,
    /// An acknowledged write can vanish.
    C,
}

/// What an engine is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// The node's name.
    pub node: Name,
    /// Its times.
    pub timing: Timing,
    /// What its store can promise.
    pub class: Class,
    /// The mistake to make, for the proofs. Ignored without the feature `mutants`.
    pub mutant: Option<Mutant>,
}

/// One node's part in every election.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Engine {
    config: Config,
}

impl Engine {
    /// An engine that has not started.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }
    /// Feeds one input; the caller carries out the outputs in order and reports back.
    pub fn step(&mut self, _now: Now, _input: Input, _entropy: &mut dyn Entropy) -> Vec<Output> {
        Vec::new()
    }
    /// When the engine wants to be woken if nothing else happens.
    #[must_use]
    pub fn next_wake(&self) -> Time {
        Time::NEVER
    }
    /// The session in use and its deadline, if one is open.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, Time)> {
        None
    }
    /// The token under which this node leads `role`, if its tenure is valid at `now`.
    #[must_use]
    pub fn leads(&self, _role: &Name, _now: Time) -> Option<Token> {
        None
    }
    /// Whether everything has been given up after [`Input::Stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        true
    }
}
