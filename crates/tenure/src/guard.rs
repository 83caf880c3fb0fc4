//! Guard locks: the lock of another system, held in that system's own protocol beside a role.
//!
//! A program that elects by client-go's Lease, or by an etcd election, knows nothing of roles. While such programs and nodes of
//! this library run side by side, give every candidate their lock as a guard lock:
//!
//! ```no_run
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let node = tenure::testing::node("web-1").await;
//! let lock = tenure::guard::open("kubernetes:team/scheduler?ttl=15s", node.name())?;
//! let candidate = node.candidate("scheduler").guard(lock).await?;
//! # Ok::<(), tenure::Error>(()) }).unwrap();
//! ```
//!
//! The node takes the lock before [`Candidate::elected`](crate::Candidate::elected) returns, renews it while the
//! [`Tenure`](crate::Tenure) lives, and gives it back after that. A lock that cannot be renewed in time ends the tenure
//! ([`EndReason::GuardLost`](crate::EndReason::GuardLost)) before the lock runs out. To the other programs the node is one more
//! contender. What is not the case while a role waits for its guard lock: this node is its leader in the store, but no work runs.

pub use tenure_store::{GuardBackend, GuardLock, Hold, OpenGuardLock, OpenedGuardLock, SharedGuardLock};

use crate::Name;
use crate::store::StoreError;

/// The kinds of guard lock that this build has.
pub const GUARD_BACKENDS: &[GuardBackend] = &[
    #[cfg(feature = "kubernetes")]
    tenure_kubernetes::GUARD_BACKEND,
    #[cfg(feature = "etcd")]
    tenure_etcd::GUARD_BACKEND,
];

/// The schemes of guard locks, and the features that bring them: for those who lack one.
const FEATURES: &[(&str, &str)] = &[("kubernetes", "kubernetes"), ("etcd", "etcd"), ("etcds", "etcd")];

/// Opens the guard lock that a URL names; nothing is connected before the first attempt to hold it.
///
/// | URL | lock |
/// |---|---|
/// | `kubernetes:NAMESPACE/LEASE?ttl=15s` | the Lease of client-go's `leaderelection` |
/// | `etcd://HOST:PORT,HOST:PORT/ELECTION?ttl=15s`, `etcds://` | the election of etcd's `concurrency.Election` and `etcdctl elect` |
///
/// `ttl` is how long one renewal counts, in whole seconds; the other parameters are those of the store of that scheme. Other programs
/// see the holder as the node's name with a random suffix.
///
/// # Errors
/// If the URL names no lock that this build has, or cannot be read. Messages show the scheme only.
pub fn open(url: &str, node: &Name) -> Result<SharedGuardLock, StoreError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let backend = GUARD_BACKENDS.iter().find(|backend| backend.schemes.contains(&scheme));
    let Some(backend) = backend else { return Err(unknown(scheme)) };
    let holder = format!("{node}_{:032x}", tenure_store::entropy::nonce());
    let OpenedGuardLock { lock, warning, .. } = (backend.open)(url, &holder).map_err(StoreError::misnamed)?;
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    Ok(lock)
}

fn unknown(scheme: &str) -> StoreError {
    let usages: Vec<_> = GUARD_BACKENDS.iter().map(|backend| backend.usage).collect();
    let known = if usages.is_empty() { "none".to_owned() } else { usages.join(", ") };
    let message = match FEATURES.iter().find(|(found, _)| *found == scheme) {
        Some((_, feature)) => {
            format!("this build has no {scheme}: guard lock (feature `{feature}`); it knows {known}")
        }
        None => format!("a guard lock is named by a URL; this build knows {known}"),
    };
    StoreError::not_applied("guard", message).misnamed()
}
