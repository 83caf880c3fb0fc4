//! The proofs of Tenure, on the very engine that leads in production: the simulator with its mutants, and the
//! exhaustive [`model`].
//!
//! ```text
//!   seed ──▶ swarm (settings) ──▶ world (event queue, processes, store, work, faults) ──▶ invariants ──▶ outcome
//! ```
//!
//! A failing seed is replayed, line by line, with `cargo run -p tenure-sim --release -- --seed S --trace`.

#![allow(missing_docs, reason = "never published: a doc comment says here what a name cannot")]

pub mod clock;
mod directed;
pub mod event_queue;
pub mod faults;
pub mod invariants;
pub mod liveness;
pub mod losses;
pub mod model;
pub mod process;
pub mod rng;
pub mod runner;
pub mod scale;
pub mod stats;
pub mod store;
pub mod swarm;
pub mod trace;
pub mod work;
pub mod world;
pub mod world_state;
