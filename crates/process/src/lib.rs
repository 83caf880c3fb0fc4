//! A child program that cannot outlive the lease, whatever happens to the process that started it.
//! It runs on Linux: process groups, subreapers and timers of its kernel make sure of it.
//!
//! Three processes take part. *P* runs the election and may be killed, frozen or starved. *W*, the
//! [`watchdog`], is a tiny process of its own that P launches before it is elected; it owns the timer and the
//! child. *C* is the user's command, a child of W.
//!
//! ```text
//!   Guard, Child ──────── requests ────────┬─ socket ──> watchdog (W) ── fork, exec ──> command (C)
//!   (async, in P) <─ answers ─ guard thread ┘ <── reports ──    │ timer, subreaper, lock
//!                              └ kills W and the tree itself if W dies or freezes
//! ```
//!
//! On standby, W keeps one process more: a copy of itself that waits at a gate and becomes the next C when W opens it.
//!
//! Each of P and W covers the other: W has its own timer and sees P's end of the socket close; P sees W die
//! or fall silent. Which failure is covered by whom is a table in `docs/adr/0005-watchdog.md`.

pub mod clock;
pub mod environment;
mod gate;
mod guard;
mod guard_thread;
mod job;
mod signals;
mod spawn;
mod supervise;
pub mod terminal;
mod tree;
pub mod watchdog;
mod wire;

pub use guard::{Change, Child, Ended, Guard, GuardError, GuardOptions};
pub use signals::{ReceivedSignal, Signals};
pub use spawn::Command;
pub use supervise::{Drains, Outcome, lease_deadline, supervise};
pub use wire::Exit;
