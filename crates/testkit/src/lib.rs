//! What tests of real processes share: the witness, which every worker writes, and its checker.
//!
//! A worker that runs under a lease appends a [`witness::Beat`] every few milliseconds to a file of its own.
//! [`check::Verdict`] reads the files of all workers and says whether two ever ran at once, and whether tokens rose.
//! All times are of one host clock, so that beats of different processes can be compared.

pub mod check;
pub mod witness;
