//! Exactly one leader per role, on the store you already run. (Under construction.)

pub mod store;
