//! What the `tenure` binary is made of, as a library so that tests can reach it.

pub mod process;
