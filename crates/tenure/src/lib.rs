//! Exactly one leader per role, on the store you already run. (Under construction.)

pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod store;
