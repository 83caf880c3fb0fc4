//! What must hold, one file each. A violation is a sentence.
//!
//! Some look at a state, some at one step of an engine, some at a write as the store applies it. What they need to
//! remember is kept in the [`Node`](super::world::Node) beside the engine, and never read by the engine.

mod alternation;
mod expulsion;
mod hands_off;
mod late_replies;
mod one_leader;
pub mod orphans;
mod stop_first;
mod tokens;
mod validity;

use std::sync::Arc;

use tenure_core::{Engine, Input, Output, Record, Time, Version, Write};

use super::setup::Setup;
use super::world::World;

/// What a property found, if it is violated.
pub type CheckResult = Result<(), String>;

/// One step of an engine. The world is as it was before its outputs were carried out.
#[derive(Debug)]
pub struct Stepped<'a> {
    /// The setup of the world.
    pub setup: &'a Setup,
    pub node: usize,
    pub input: &'a Input,
    pub before: &'a Arc<Engine>,
    pub outputs: &'a [Output],
}

impl Stepped<'_> {
    /// Whether this step delivers a timely reply.
    fn is_answer_in_time(&self, clock: Time) -> bool {
        let Input::Replied { op, .. } = self.input else { return false };
        self.before.awaited_until(*op).is_some_and(|until| clock < until)
    }
}

/// One write that the store is about to apply: its version matches.
#[derive(Debug)]
pub struct Applied<'a> {
    pub writer: usize,
    pub write: &'a Write,
    pub before: Option<&'a (Version, Record)>,
}

/// Checks one step, and remembers what later checks need.
pub fn stepped(world: &mut World, step: &Stepped<'_>) -> CheckResult {
    late_replies::check(world, step)?;
    validity::check(world, step)?;
    tokens::check(world, step)?;
    alternation::check(world, step)?;
    expulsion::check(world, step)?;
    stop_first::check(world, step)
}

pub fn applied(world: &World, applied: &Applied<'_>) -> CheckResult {
    hands_off::check(world, applied)
}

pub fn state(setup: &Setup, world: &World) -> CheckResult {
    one_leader::check(setup, world)
}
