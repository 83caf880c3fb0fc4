//! The context of a worker: proof of leadership, and the signals to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::WorkMode;
use crate::{Lead, Node, Token};

/// The signals that end the workers of a tenure.
#[derive(Debug, Clone)]
pub(super) struct StopSignals {
    /// Accept nothing new, finish what is in flight.
    pub(super) stop: CancellationToken,
    /// The time for that is over.
    pub(super) kill: CancellationToken,
}

impl StopSignals {
    pub(super) fn new() -> Self {
        Self { stop: CancellationToken::new(), kill: CancellationToken::new() }
    }

    /// The signals of one worker: those of all, and its own.
    fn for_worker(&self) -> Self {
        Self { stop: self.stop.child_token(), kill: self.kill.child_token() }
    }
}

/// A worker's view of its tenure. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WorkerContext {
    node: Node,
    lead: Lead,
    mode: WorkMode,
    signals: StopSignals,
    signs: Arc<WorkerSigns>,
}

/// Signs of life of one worker.
#[derive(Debug)]
struct WorkerSigns {
    ready: watch::Sender<bool>,
    alive: watch::Sender<Instant>,
}

impl WorkerSigns {
    fn new() -> Arc<Self> {
        Arc::new(Self { ready: watch::Sender::new(false), alive: watch::Sender::new(Instant::now()) })
    }
}

impl WorkerContext {
    pub(super) fn new(node: Node, lead: Lead, mode: WorkMode, signals: StopSignals) -> Self {
        Self { node, lead, mode, signals, signs: WorkerSigns::new() }
    }

    pub(super) fn for_worker(&self) -> Self {
        Self { signs: WorkerSigns::new(), signals: self.signals.for_worker(), ..self.clone() }
    }

    /// This worker alone has to end, at once: it hangs, or is not well.
    pub(super) fn kill(&self) {
        self.signals.stop.cancel();
        self.signals.kill.cancel();
    }

    /// The worker has started: the next one may. Only needed with [`super::Worker::ready_timeout`].
    pub fn ready(&self) {
        self.signs.ready.send_replace(true);
    }

    /// The worker is not stuck. Only needed with [`super::Worker::hang_timeout`].
    pub fn heartbeat(&self) {
        self.signs.alive.send_replace(Instant::now());
    }

    /// Waits until the worker is to accept nothing new and to finish what is in flight. It has the drain time for it,
    /// or what is left of the lease.
    pub async fn stopping(&self) {
        self.signals.stop.cancelled().await;
    }

    /// Waits until the time to finish is over. An ordinary worker is dropped then; a blocking one has to look.
    pub async fn killed(&self) {
        self.signals.kill.cancelled().await;
    }

    /// Whether the worker was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.signals.stop.is_cancelled()
    }

    /// Whether leadership may be relied on at this very moment; see [`Lead::check`].
    #[must_use]
    pub fn check(&self) -> bool {
        self.lead.check()
    }

    /// The fencing token of this tenure.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lead.token()
    }

    /// Proof of leadership, to pass around.
    #[must_use]
    pub fn lead(&self) -> &Lead {
        &self.lead
    }

    /// The node that leads.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The mode of the group.
    #[must_use]
    pub fn mode(&self) -> WorkMode {
        self.mode
    }

    pub(super) fn readiness(&self) -> watch::Receiver<bool> {
        self.signs.ready.subscribe()
    }

    /// A new start: the time to the next heartbeat counts from here.
    pub(super) fn reset_heartbeat(&self) {
        self.heartbeat();
    }

    /// Waits until nothing was heard of the worker for so long.
    pub(super) async fn silent_for(&self, limit: Duration) {
        let mut alive = self.signs.alive.subscribe();
        loop {
            let due = *alive.borrow_and_update() + limit;
            tokio::select! {
                () = tokio::time::sleep_until(due) => return,
                changed = alive.changed() => if changed.is_err() { return },
            }
        }
    }
}
