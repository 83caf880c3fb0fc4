//! What tests of real processes share, and what `tenure torture` is made of.
//!
//! Two witnesses. A worker that runs under `tenure run` appends a [`witness::Beat`] every few milliseconds to a file of
//! its own, and [`check::Verdict`] says whether two ever ran at once. A [`player`] is a whole node that writes
//! [notes](judge::Note) of all it does, and the [`judge`] holds them against everything that is promised. All times are
//! of one host clock, so that those of different processes can be compared.

pub mod chain;
pub mod check;
pub mod judge;
pub mod linear;
pub mod player;
pub mod proxy;
pub mod recorder;
pub mod servers;
pub mod witness;
