//! The proofs of Tenure, on the very engine that leads in production: the simulator with its mutants, and the
//! exhaustive [`model`].
//!
//! ```text
//!   seed ──▶ swarm (settings) ──▶ world (agenda, processes, store, work, faults) ──▶ invariants ──▶ verdict
//! ```
//!
//! A failing seed is replayed, line by line, with `cargo run -p tenure-sim --release -- --seed S --trace`.

pub mod agenda;
pub mod campaign;
pub mod clock;
mod directed;
pub mod faults;
pub mod invariants;
pub mod model;
pub mod process;
pub mod rng;
pub mod scene;
pub mod stats;
pub mod store;
pub mod swarm;
pub mod trace;
pub mod witness;
pub mod work;
pub mod world;
