//! The operator verbs, as people and scripts use them: the real binary, on a real file, with real nodes that are killed
//! and frozen.

mod asking;
mod checking;
mod doctor;
mod kit;
mod looking;
mod peers;
mod schema;
mod typing;
mod watching;
