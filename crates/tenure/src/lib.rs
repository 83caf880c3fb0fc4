//! Exactly one leader per role, on the store you already run.

pub mod candidate;
pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod driver;
mod error;
pub mod event;
pub mod history;
mod lead;
mod node;
mod office;
pub mod operator;
mod publisher;
pub mod store;
pub mod testing;

pub use candidate::{Candidate, Observer};
pub use error::Error;
pub use event::{Event, Reason, State};
pub use lead::{Held, Lead, Tenure};
pub use node::{CandidateBuilder, Node, NodeBuilder, default_name};
pub use operator::Operator;
pub use publisher::Registration;
pub use store::{SharedStore, Store};
pub use tenure_core::engine::Class;
pub use tenure_core::timing::Settings;
pub use tenure_core::{BadName, BadTiming, Bounds, Name, SessionId, Takeover, Time, Timing, Token, Wall};

/// The namespace when none is given.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Who leads a role.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Leader {
    /// Its name.
    pub node: Name,
    /// The token of its tenure.
    pub token: Token,
    /// Where to reach it, if it said so.
    pub address: Option<String>,
}
