//! For tests of your own code: elections without a server, a clock that you move, and losses when you want them.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let node = tenure::testing::node("web-1").await;
//! let candidate = node.candidate("scheduler").await.unwrap();
//! let tenure = candidate.elected().await.unwrap();
//! assert!(tenure.check());
//!
//! tenure::testing::force_loss(&node);
//! tenure.cancelled().await;
//! assert!(!tenure.check());
//! # });
//! ```

use std::sync::Arc;

pub use crate::clock::ManualClock;
use crate::driver::Command;
use crate::event::EventKind;
pub use crate::store::Memory;
use crate::{Event, Name, Node, NodeBuilder, Timestamp};

/// A node on a store of its own, in memory.
///
/// # Panics
/// If `name` is no valid name.
pub async fn node(name: &str) -> Node {
    node_on(&Memory::new()).name(name).start().await.expect("a node in memory starts")
}

/// Begins a node on that store: nodes on one [`Memory`] elect among themselves.
pub fn node_on(store: &Memory) -> NodeBuilder {
    Node::builder_with_store(Arc::new(store.clone()))
}

/// An event of a node, as its listeners are told of it.
///
/// # Panics
/// If `node` is no valid name.
#[must_use]
pub fn event(node: &str, kind: EventKind) -> Event {
    let (at, node) = (Timestamp::from_micros(1), Name::new(node).expect("a valid name"));
    Event { sequence: 0, at, lease_nanos: 0, node, kind }
}

/// Makes a node lose its session, and with it everything it leads, at once. It stands again afterwards.
pub fn force_loss(node: &Node) {
    node.command(Command::ForceLoss);
}
