//! The proofs of Tenure: simulator, exhaustive model, mutants. Never published.

pub mod model;
