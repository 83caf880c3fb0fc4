//! The pure engine of Tenure: one engine per node, many roles.
//!
//! ```text
//!   the world                          this crate                          the world
//!   ─────────                          ──────────                          ─────────
//!   time, replies, hints,   Input  ┌───────────────┐  Output   reads and writes of the store,
//!   evidence, the user's  ───────▶ │ Engine::step  │ ───────▶  events for people and for work
//!   wishes                         └───────────────┘
//! ```
//!
//! The engine does no I/O, reads no clock, draws no randomness and awaits nothing: it is told the time and every
//! result, asks for nonces through [`Entropy`], and answers with [`Output`]s for the caller to carry out **in
//! order**. It is `Clone + Eq + Hash`, so that the same code that leads in production is explored exhaustively by
//! the model and attacked by the simulator.
//!
//! The rules it keeps, and why they are safe, are in `SAFETY.md`; [`engine`] names the rule at each place.

pub mod bounds;
pub mod engine;
pub mod hash;
pub mod id;
pub mod io;
pub mod key;
mod mutant;
pub mod name;
pub mod record;
pub mod time;
pub mod timing;

pub use engine::Engine;
pub use id::{Epoch, OpId, SessionId, Token, Version};
pub use io::{
    Entropy, Entry, Event, Evidence, Fate, Hint, Input, Outcome, Output, Pairing, Query, Reply, Write,
};
pub use key::{Key, Kind};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use name::{BadName, Name};
pub use record::Record;
pub use time::{Now, Time, Timestamp};
pub use timing::{BadTiming, Bounds, Takeover, Timing};
