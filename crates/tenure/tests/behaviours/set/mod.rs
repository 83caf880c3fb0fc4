//! The behaviours, each written once for any store.

pub(crate) mod deaths;
pub(crate) mod links;
pub(crate) mod places;
pub(crate) mod rows;
pub(crate) mod servers;
pub(crate) mod times;
