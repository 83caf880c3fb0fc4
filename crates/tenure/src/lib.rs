//! Exactly one leader per role, on the store you already run.
//!
//! Several replicas of your program run; one of them must run the schedules, assign the jobs, own the shard. Each opens
//! a [`Node`]; of each *role* at most one node is the leader, and what it writes carries a *token* that rises with every
//! change of leader, so that a write of a leader that was frozen and deposed can be refused.
//!
//! # A singleton worker
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let node = tenure::Node::builder("memory:singleton").name("web-1").start().await?;
//!
//! // SIGTERM and Ctrl-C stop the node: the next leader starts at once, and not when a lease has run out.
//! node.stop_on_signal()?;
//!
//! // The whole of it: campaign, work while leading, give up cleanly, campaign again, until the node is stopped.
//! let mut ticks = 0; // What the closure uses it borrows: it is called again for each tenure.
//! let worker = node.lead("scheduler", async |lead| {
//!     while lead.check() {
//!         ticks += 1;
//!         println!("tick {ticks}, under token {}", lead.token());
//!         tokio::time::sleep(std::time::Duration::from_millis(10)).await;
//!     }
//! });
//! # let stop = async { tokio::time::sleep(std::time::Duration::from_millis(50)).await; node.stop().await; Ok(()) };
//! # tokio::try_join!(worker, stop)?;
//! # Ok::<(), tenure::Error>(()) }).unwrap();
//! ```
//!
//! Work that returns an `Err` is logged, published ([`event::EventKind::WorkFailed`]) and recorded in the history (`work-failed`);
//! the node does not claim the role for its cool-down, so that another node gets a turn. To wind down when the node is stopped, wait for
//! [`Lead::draining`] beside the work; otherwise its future is dropped.
//!
//! # Step by step, with a fenced write
//!
//! A process can be frozen between asking [`Lead::check`] and writing. What protects the resource then is the token:
//! it accepts a write only if it has never seen a higher one.
//!
//! ```
//! use std::sync::Mutex;
//! use tenure::{Token, WorkOutcome};
//!
//! /// A resource that refuses the writes of former leaders.
//! struct Ledger { highest: Mutex<Token>, lines: Mutex<Vec<String>> }
//!
//! impl Ledger {
//!     fn append(&self, token: Token, line: &str) -> Result<(), String> {
//!         let mut highest = self.highest.lock().unwrap();
//!         if token < *highest {
//!             return Err(format!("token {token} is stale: {} was seen", *highest));
//!         }
//!         *highest = token;
//!         self.lines.lock().unwrap().push(line.to_owned());
//!         Ok(())
//!     }
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let ledger = Ledger { highest: Mutex::default(), lines: Mutex::default() };
//! let node = tenure::Node::builder("memory:ledger").name("web-1").start().await?;
//! let candidate = node.candidate("bookkeeper").await?;
//!
//! let tenure = candidate.elected().await.expect("the node was not stopped");
//! let first = tenure.token();
//! match tenure.hold(|lead| async move { lead.token() }).await {
//!     WorkOutcome::Completed(token) => ledger.append(token, "one").unwrap(),
//!     WorkOutcome::Lost(reason) => println!("lost: {reason}"), // losing is not an error; campaign again
//! }
//!
//! let next = candidate.elected().await.expect("the node was not stopped");
//! ledger.append(next.token(), "two").unwrap();
//! assert!(ledger.append(first, "three").is_err(), "a former leader is refused");
//! # drop(next); node.stop().await;
//! # Ok::<(), tenure::Error>(()) }).unwrap();
//! ```
//!
//! For PostgreSQL, MySQL, MariaDB, SQLite and Redis this is done: see [`fence`].
//!
//! # Who leads?
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! use futures_util::StreamExt;
//!
//! let leader = tenure::Node::builder("memory:who").name("web-1").address("10.0.0.1:80").start().await?;
//! let _standing = leader.candidate("scheduler").await?;
//!
//! let watcher = tenure::Node::builder("memory:who").name("web-2").start().await?;
//! let observer = watcher.observer("scheduler").await?;
//! let mut leaders = observer.leaders();
//! let seen = loop {
//!     if let Some(Some(leader)) = leaders.next().await { break leader }
//! };
//! assert_eq!(seen.node.as_str(), "web-1");
//! # watcher.stop().await; leader.stop().await;
//! # Ok::<(), tenure::Error>(()) }).unwrap();
//! ```
//!
//! # Several roles
//!
//! A node beats once for all its roles: ten thousand cost the store what one costs.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! let node = tenure::Node::builder("memory:shards").name("web-1").label("zone", "a").start().await?;
//! let mut shards = Vec::new();
//! for shard in 0..100 {
//!     let candidate = node.candidate(&format!("shard-{shard}")).priority(1).require_label("zone", "a");
//!     shards.push(candidate.await?);
//! }
//! for shard in &shards {
//!     let tenure = shard.elected().await.expect("the node was not stopped");
//!     assert!(tenure.check());
//! }
//! # node.stop().await;
//! # Ok::<(), tenure::Error>(()) }).unwrap();
//! ```
//!
//! # A store of your own
//!
//! Whatever keeps the clauses of [`store::Store`] can carry elections: the module `conformance` has a test for each
//! of them. Pass it to [`Node::builder_with_store`].
//!
//! # What it promises
//!
//! Never two leaders of a role, as long as the assumptions in `SAFETY.md` hold: the clock's *rate* within its bound,
//! the store's compare-and-set atomic and as durable as its [class](Class) says, and all work stopped by the deadline.
//! Effects that were already on their way when a process froze are covered by the token alone.
//!
//! # Where it runs
//!
//! On Linux. The lease clock counts while the machine sleeps, which takes clocks of Linux; that a process of the same host
//! died is seen by locks of its kernel.

pub mod candidate;
pub mod clock;
mod driver;
mod error;
pub mod event;
mod event_log;
#[cfg(feature = "mutants")]
pub mod fault_injection;
#[cfg(not(feature = "mutants"))]
#[allow(unreachable_pub, reason = "it can be reached where mistakes can be made")]
mod fault_injection;
pub mod fence;
pub mod guard;
pub mod history;
mod lead;
mod lease_state;
pub mod ledger;
mod node;
pub mod operator;
mod origin;
mod publisher;
#[cfg(feature = "schedule")]
pub mod schedule;
pub mod schema;
pub mod store;
pub mod testing;
pub mod work;

#[cfg(feature = "conformance")]
pub use tenure_store::conformance;
pub use tenure_store::trust;

pub use candidate::{Candidate, LeaderStream, Observer};
pub use error::Error;
pub use event::{EndReason, Event, Reason, StartReason, State};
pub use fence::FenceError;
pub use lead::{DeadlineWatch, Lead, StopRequest, Tenure, WorkOutcome, WorkResult};
pub use node::{CandidateBuilder, Node, NodeBuilder, default_node_name};
pub use operator::Operator;
pub use publisher::{EventStream, ListenerGuard};
pub use store::{SharedStore, Store};
pub use tenure_core::engine::Class;
pub use tenure_core::timing::TimingSettings;
pub use tenure_core::{
    BadName, BadTiming, Bounds, Name, SessionId, Takeover, Time, Timestamp, Timing, Token,
};

/// The namespace when none is given.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The leader of a role.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Leader {
    /// Its name.
    pub node: Name,
    /// The token of its tenure.
    pub token: Token,
    /// Its address, if it has given one.
    pub address: Option<String>,
}

impl Leader {
    /// A leader, as an agent or another source reports it.
    #[must_use]
    pub fn new(node: Name, token: Token, address: Option<String>) -> Self {
        Self { node, token, address }
    }
}
