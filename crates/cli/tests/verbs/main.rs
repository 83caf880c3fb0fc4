//! The operator verbs, as people and scripts use them: the real binary, on a real file, with real nodes that are killed
//! and frozen.

mod actions;
mod arguments;
mod bench;
mod checking;
mod doctor;
mod kit;
mod pages;
mod peers;
mod queries;
mod schema;
mod watching;
