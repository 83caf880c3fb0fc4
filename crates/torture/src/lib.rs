//! What `tenure torture` is made of, and what tests of real processes share.
//!
//! ```text
//!   seed ─▶ plan ─▶ injector ─┬─▶ pool      (node processes: killed, frozen, starved, doubled, wrong clocks)
//!                             ├─▶ links     (a proxy for each node)
//!                             ├─▶ target    (the store itself, if it is private)
//!                             ├─▶ operator  (transfer, step-down, pause, drain)
//!                             └─▶ neighbour (a login without rights, all along)
//!   pool, fence, meters ── notes ─▶ judge ─▶ verdict
//! ```
//!
//! Nodes and workers write [notes](judge::Note) of what they do, on one host clock. The [`judge`] checks the notes against
//! everything that is promised, and shares no code with the engine. Private servers are started by one table,
//! [`attacked::PRIVATE_SERVERS`].
#![allow(missing_docs, reason = "a doc comment says here what a name cannot")]

pub mod attacked;
pub mod clock;
mod error;
pub mod fault;
mod fence;
pub mod freeze;
pub mod injector;
pub mod judge;
pub mod linearizability;
mod links;
pub mod member;
mod neighbour;
pub mod plan;
mod pool;
mod probes;
pub mod process;
mod programs;
pub mod proxy;
pub mod recorder;
pub mod servers;
mod settings;
pub mod target;
pub mod witness;
pub mod workload;

pub use error::Error;
pub use injector::{TortureObserver, TortureRecord, torture};
pub use settings::{ROLES, StopSignal, TortureSettings};
