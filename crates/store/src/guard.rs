//! Guard locks: the lock of another system, held in that system's own protocol beside a role.
//!
//! Programs that elect by another system's lock (client-go's Lease, a key of an etcd election) know nothing of roles. A node
//! that takes their lock before it works, and gives it back after its work stopped, is one more contender to them, so that both
//! kinds of program can run side by side through a migration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::StoreError;

/// The result of one attempt to hold a guard lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// The lock is held.
    Held,
    /// Another program holds it, or held it meanwhile: the name by which that program is known there.
    HeldBy(String),
}

/// A lock of another system, for one node.
///
/// # Contract
///
/// - **G1** After [`Hold::Held`] no other program that follows the lock's protocol holds the lock, until [`ttl`](Self::ttl) after
///   the moment *before* [`hold`](Self::hold) was called, on any clock.
/// - **G2** [`hold`](Self::hold) takes the lock or renews it. A renewal MUST answer [`Hold::HeldBy`] once if the lock was not held
///   without a gap since the last [`Hold::Held`], even if it is free now.
/// - **G3** Dropping the future of [`hold`](Self::hold) abandons the answer. What the attempt did or will do, the next
///   [`hold`](Self::hold) or [`release`](Self::release) takes into account.
/// - **G4** [`release`](Self::release) gives up this node's lock and never that of another. If it fails, the lock runs out by itself.
/// - **G5** No error, `Debug` or `Display` may show a secret.
#[async_trait]
pub trait GuardLock: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// How long one renewal counts.
    fn ttl(&self) -> Duration;

    /// One attempt to take the lock, or to renew it.
    async fn hold(&self) -> Result<Hold, StoreError>;

    /// Gives the lock back; nothing if it is not held.
    async fn release(&self) -> Result<(), StoreError>;
}

/// A guard lock shared by the candidate and the task that renews it.
pub type SharedGuardLock = Arc<dyn GuardLock>;

/// A guard lock that was opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenedGuardLock {
    /// The lock.
    pub lock: SharedGuardLock,
    /// What is doubtful about its URL all the same, with what to do.
    pub warning: Option<&'static str>,
}

impl OpenedGuardLock {
    /// A lock, and what is doubtful about its URL.
    #[must_use]
    pub fn new(lock: impl GuardLock, warning: Option<&'static str>) -> Self {
        Self { lock: Arc::new(lock), warning }
    }
}

/// A kind of guard lock, by its URLs.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct GuardBackend {
    /// The schemes of its URLs.
    pub schemes: &'static [&'static str],
    /// How its URLs look, for messages.
    pub usage: &'static str,
    /// Opens the lock that a URL names, without connecting to anything, for a holder that is known there by that name. No message may
    /// show more of the URL than its scheme.
    pub open: OpenGuardLock,
}

/// Opens the guard lock that a URL names, for a holder.
pub type OpenGuardLock = fn(url: &str, holder: &str) -> Result<OpenedGuardLock, StoreError>;

impl GuardBackend {
    /// A kind of guard lock with URLs of these schemes, which look like this.
    #[must_use]
    pub const fn new(schemes: &'static [&'static str], usage: &'static str, open: OpenGuardLock) -> Self {
        Self { schemes, usage, open }
    }
}
