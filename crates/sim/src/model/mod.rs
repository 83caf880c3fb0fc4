//! The exhaustive model: every interleaving of a small world, on the real engine.
//!
//! ```text
//!   setup ──▶ world ──▶ action ──▶ execution ──▶ canonical ──▶ search
//!   which     engines,  what may   carried       what is       breadth first,
//!   faults    store,    happen     through,      told          until nothing
//!             messages  next       forking       apart         is new
//!                                    │
//!                                    └──▶ properties, one file each
//! ```
//!
//! What is bounded and what is not is in `docs/adr/0003-model.md`. Time is not.

pub mod action;
pub mod canonical;
pub mod configs;
pub mod execution;
pub mod properties;
pub mod search;
pub mod setup;
pub mod world;

pub use search::{SearchReport, search};
pub use setup::Setup;
