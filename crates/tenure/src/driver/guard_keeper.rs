//! The keeper of a guard lock: it takes the lock before the tenure is offered, renews it while the work runs, and gives it back
//! after the work has stopped.
//!
//! ```text
//!   elected by the engine ──▶ keeper: hold() … hold() ──held──▶ the tenure is offered, `elected` is published
//!                                │                                 │ hold() every fifth of the ttl
//!                                │ no answer for a ttl             │ not renewed, or held by another: the work has to stop
//!                                ▼                                 ▼
//!                      the role is given up        the work has stopped ──▶ release() ──▶ the role is given up
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};

use super::Command;
use crate::event::EventKind;
use crate::guard::{Hold, SharedGuardLock};
use crate::lease_state::{GuardState, LeaseState};
use crate::publisher::Publisher;
use crate::store::StoreError;
use crate::{Time, Timing};

/// A lock that another program holds is asked for at least this often.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How long giving the lock back may take; a lock that cannot be given back runs out by itself.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// The guard lock of a candidacy. One keeper at a time has it: that of an earlier tenure gives the lock back first.
#[derive(Debug, Clone)]
pub(crate) struct CandidateGuard {
    lock: SharedGuardLock,
    turn: Arc<Mutex<()>>,
}

impl CandidateGuard {
    /// # Errors
    /// If one renewal counts for too short a time for work to be stopped in.
    pub(crate) fn new(lock: SharedGuardLock, timing: &Timing) -> Result<Self, StoreError> {
        let least = 3 * timing.stop_grace;
        if lock.ttl() < least {
            let (ttl, least) = (humantime::format_duration(lock.ttl()), humantime::format_duration(least));
            let message = format!(
                "cannot use the guard lock {lock}: its ttl of {ttl} is too short to stop work in; set at least {least}"
            );
            return Err(StoreError::not_applied("guard", message).misnamed());
        }
        Ok(Self { lock, turn: Arc::default() })
    }
}

/// See the [module](self).
pub(super) struct GuardKeeper {
    pub(super) guard: CandidateGuard,
    pub(super) lease: Arc<LeaseState>,
    pub(super) timing: Timing,
    pub(super) publisher: Publisher,
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

/// How far the keeper has come.
#[derive(Debug)]
struct Progress {
    held: bool,
    /// The lock runs out here. Before it is held, the role is given up then: the lock's servers have not answered for a ttl, and
    /// another node may reach them.
    until: Time,
    /// The work was told to stop: no renewal moves the deadline on any more.
    lost: bool,
    /// What was last published about waiting.
    told: Option<String>,
}

impl GuardKeeper {
    /// Keeps the lock until the work has ended, then gives it back and reports that the work has stopped.
    pub(super) async fn run(self) {
        let lease = self.lease.clone();
        let Some(state) = &lease.guard else { return };
        let _turn = self.guard.turn.lock().await;
        tokio::select! {
            biased;
            () = state.work_ended.cancelled() => {}
            () = self.keep(state) => {}
        }
        // From here on every `Lead` of this tenure says no: others may take the lock.
        state.deadline.set(Time::from_nanos(0));
        let lock = &self.guard.lock;
        let why = match tokio::time::timeout(RELEASE_WITHIN, lock.release()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {RELEASE_WITHIN:?}")),
        };
        if let Some(why) = why {
            let (role, ttl) = (&self.lease.role, lock.ttl());
            tracing::warn!(%role, %lock, why, ?ttl, "cannot give the guard lock back; it runs out by itself");
        }
        let (role, token) = (self.lease.role.clone(), self.lease.token);
        self.send(Command::Stopped { role, token });
    }

    async fn keep(&self, state: &GuardState) {
        let (clock, ttl) = (&self.lease.clock, self.guard.lock.ttl());
        let mut progress = Progress { held: false, until: clock.now().after(ttl), lost: false, told: None };
        loop {
            let sent_at = clock.now();
            let attempt = tokio::time::timeout(ttl / 3, self.guard.lock.hold());
            let held = tokio::select! {
                biased;
                held = attempt => held.unwrap_or_else(|_| Err(StoreError::unknown("guard", "no answer in time"))),
                () = self.until_lost(&progress) => {
                    self.lose(&mut progress);
                    continue;
                }
            };
            let pause = self.answered(state, &mut progress, sent_at, held);
            tokio::select! {
                biased;
                () = clock.sleep_until(sent_at.after(pause)) => {}
                () = self.until_lost(&progress) => self.lose(&mut progress),
            }
        }
    }

    /// What follows from the answer to an attempt; gives the time from it to the next.
    fn answered(
        &self,
        state: &GuardState,
        progress: &mut Progress,
        sent_at: Time,
        held: Result<Hold, StoreError>,
    ) -> Duration {
        let (ttl, lock) = (self.guard.lock.ttl(), &self.guard.lock);
        let often = (ttl / 5).min(ASK_EVERY);
        match held {
            Ok(Hold::Held) if progress.lost => ttl / 5,
            Ok(Hold::Held) => {
                progress.until = sent_at.after(self.validity());
                state.deadline.set(progress.until);
                if !std::mem::replace(&mut progress.held, true) {
                    let (role, token) = (self.lease.role.clone(), self.lease.token);
                    self.send(Command::GuardHeld { role, token });
                }
                ttl / 5
            }
            Ok(Hold::HeldBy(_)) if progress.lost => often,
            Ok(Hold::HeldBy(holder)) if progress.held => {
                tracing::warn!(role = %self.lease.role, %lock, holder, "guard lock lost");
                state.deadline.set(Time::from_nanos(0));
                self.lose(progress);
                often
            }
            Ok(Hold::HeldBy(holder)) => {
                progress.until = sent_at.after(ttl);
                self.tell(progress, format!("held by {holder}"));
                often
            }
            Err(error) if progress.held => {
                tracing::warn!(role = %self.lease.role, %lock, %error, "cannot renew the guard lock; trying again");
                ttl / 10
            }
            Err(error) => {
                self.tell(progress, error.to_string());
                ttl / 10
            }
        }
    }

    /// How long a renewal counts on this node's clock.
    fn validity(&self) -> Duration {
        let ttl = self.guard.lock.ttl();
        let slack = self.timing.expulsion_wait(ttl).saturating_sub(ttl);
        ttl.saturating_sub(slack)
    }

    /// Waits until the work has to be told that the lock runs out. For ever, if it was told.
    async fn until_lost(&self, progress: &Progress) {
        if progress.lost {
            return std::future::pending().await;
        }
        self.lease.clock.sleep_until(progress.until.before(self.timing.stop_grace)).await;
    }

    fn lose(&self, progress: &mut Progress) {
        progress.lost = true;
        let (role, token) = (self.lease.role.clone(), self.lease.token);
        self.send(Command::GuardLost { role, token });
    }

    /// Once for each reason.
    fn tell(&self, progress: &mut Progress, why: String) {
        if progress.told.as_ref() == Some(&why) {
            return;
        }
        let (role, token, lock) = (self.lease.role.clone(), self.lease.token, self.guard.lock.to_string());
        self.publisher.publish(EventKind::WaitingForGuard { role, token, lock, why: why.clone() });
        progress.told = Some(why);
    }

    /// Without a loop there is nothing left to give up.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}
