//! Liveness locks: how a store shows others that the owner of a session is gone, before its lease has run out.

#[cfg(unix)]
use std::os::fd::OwnedFd;

use async_trait::async_trait;

use crate::{LivenessLock, Name, SessionId, StoreError, Takeover};

/// The owner of a session holds a lock for as long as it lives, and nodes that depend on the session watch the lock. A
/// store that has such locks returns itself from [`Store::liveness`]; evidence comes through [`Store::watch`].
///
/// # Contract
///
/// Locks of processes ([`Description::process_liveness_locks`])
/// - **E1** [`acquire_lock`](Self::acquire_lock) MUST hold the lock before it returns. The lock of a process MUST be held
///   until [`release_lock`](Self::release_lock) or the death of the process; neither [`Store::close`] nor dropping the
///   store lets go of it, because the work may still be running.
/// - **E2** After [`watch_lock`](Self::watch_lock), [`Evidence::Dead`] MUST come once the holder died, and MUST NOT come
///   while any process holds the lock. It need not come after `release_lock`. A lock that cannot be found, or is not the
///   one named, is no evidence.
/// - **E3** A store whose description promises no liveness locks gives none, and no evidence ever; it need not have this
///   trait.
///
/// Locks of connections ([`Description::connection_liveness_locks`]), for sessions that are [`Takeover::OnDisconnect`]: a
/// connection holds the lock for as long as the connection lives.
/// - **E4** The lock is taken once for each session id and never again: a second `acquire_lock`, also after the connection
///   was lost or the lock released, MUST NOT give a lock, on this handle or, while it is held, on another one.
/// - **E5** A write with [`Write::requires_lock`] MUST be applied only if the connection that took the lock of the session
///   whose register it writes holds it still, proven in the same step as the compare-and-set. Otherwise it MUST change
///   nothing and answer [`Outcome::Failed`] with [`Fate::Severed`], whatever version it expects, and so MUST every later
///   one of that session. That the handle has another connection by then changes nothing. On a store without such locks
///   every write with `requires_lock` is refused in this way.
/// - **E6** After `watch_lock`, [`Evidence::Disconnected`] MUST come soon once the lock is free: the connection was lost,
///   the handle closed or the process killed; also if that was before `watch_lock`. It MUST NOT come while the lock is
///   held, nor for a lock that is not the one named. **Once it has come, no write of that session that requires the lock
///   is begun that will ever be applied.** It need not come after `release_lock`.
/// - **E7** A strict session pays for none of this: `acquire_lock` MAY answer `None` to it and `watch_lock` MAY do nothing,
///   and a write that does not require the lock MUST NOT be refused because a lock was lost. What cannot keep E4 to E6 (a
///   pooler stands between) MUST answer `None`, and its description say why.
///
/// [`Store::liveness`]: crate::Store::liveness
/// [`Store::watch`]: crate::Store::watch
/// [`Store::close`]: crate::Store::close
/// [`Description::process_liveness_locks`]: crate::Description::process_liveness_locks
/// [`Description::connection_liveness_locks`]: crate::Description::connection_liveness_locks
/// [`Evidence::Dead`]: crate::Evidence::Dead
/// [`Evidence::Disconnected`]: crate::Evidence::Disconnected
/// [`Write::requires_lock`]: crate::Write::requires_lock
/// [`Outcome::Failed`]: crate::Outcome::Failed
/// [`Fate::Severed`]: crate::Fate::Severed
#[async_trait]
pub trait LivenessLocks: Send + Sync {
    /// Acquires the liveness lock of a session of this process that is about to be opened, if there is any that is of use
    /// to a session of that kind.
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError>;

    /// Releases the liveness lock of a session that is over.
    fn release_lock(&self, namespace: &Name, session: SessionId);

    /// Tells, through every open watch of the namespace, when the lock of that session is let go of. `id` and `takeover`
    /// are what its record says: to a strict session a dropped connection means nothing.
    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, takeover: Takeover);

    /// Undoes [`watch_lock`](Self::watch_lock); evidence may still come.
    fn unwatch_lock(&self, namespace: &Name, session: SessionId);

    /// A duplicate of the descriptor by which this handle holds the lock of a session, if it holds it so. A process that
    /// is given it holds the lock too: a watchdog, until the last child is reaped.
    #[cfg(unix)]
    fn lock_descriptor(&self, _namespace: &Name, _session: SessionId) -> Option<OwnedFd> {
        None
    }
}

/// Those of a store that has none: clause E3.
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl LivenessLocks for Option<&dyn LivenessLocks> {
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        match self {
            Some(locks) => locks.acquire_lock(namespace, session, takeover).await,
            None => Ok(None),
        }
    }

    fn release_lock(&self, namespace: &Name, session: SessionId) {
        if let Some(locks) = self {
            locks.release_lock(namespace, session);
        }
    }

    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, takeover: Takeover) {
        if let Some(locks) = self {
            locks.watch_lock(namespace, session, id, takeover);
        }
    }

    fn unwatch_lock(&self, namespace: &Name, session: SessionId) {
        if let Some(locks) = self {
            locks.unwatch_lock(namespace, session);
        }
    }

    #[cfg(unix)]
    fn lock_descriptor(&self, namespace: &Name, session: SessionId) -> Option<OwnedFd> {
        self.as_ref()?.lock_descriptor(namespace, session)
    }
}
