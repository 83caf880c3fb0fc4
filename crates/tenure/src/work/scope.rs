//! What a worker is given: proof of leadership, and the orders to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Mode;
use crate::{Lead, Node, Token};

/// What all workers of a tenure are told.
#[derive(Debug, Clone)]
pub(super) struct Orders {
    /// Accept nothing new, finish what is in flight.
    pub(super) stop: CancellationToken,
    /// The time for that is over.
    pub(super) kill: CancellationToken,
}

impl Orders {
    pub(super) fn new() -> Self {
        Self { stop: CancellationToken::new(), kill: CancellationToken::new() }
    }

    /// Those of one worker: what all are told, and what it alone is told.
    fn of_worker(&self) -> Self {
        Self { stop: self.stop.child_token(), kill: self.kill.child_token() }
    }
}

/// A worker's view of its tenure. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scope {
    node: Node,
    lead: Lead,
    mode: Mode,
    orders: Orders,
    pulse: Arc<Pulse>,
}

/// Signs of life of one worker.
#[derive(Debug)]
struct Pulse {
    ready: watch::Sender<bool>,
    alive: watch::Sender<Instant>,
}

impl Pulse {
    fn new() -> Arc<Self> {
        Arc::new(Self { ready: watch::Sender::new(false), alive: watch::Sender::new(Instant::now()) })
    }
}

impl Scope {
    pub(super) fn new(node: Node, lead: Lead, mode: Mode, orders: Orders) -> Self {
        Self { node, lead, mode, orders, pulse: Pulse::new() }
    }

    pub(super) fn of_worker(&self) -> Self {
        Self { pulse: Pulse::new(), orders: self.orders.of_worker(), ..self.clone() }
    }

    /// This worker alone has to end, at once: it hangs, or is not well.
    pub(super) fn give_up_on(&self) {
        self.orders.stop.cancel();
        self.orders.kill.cancel();
    }

    /// The worker has started: the next one may. Only needed with [`super::Worker::ready_within`].
    pub fn ready(&self) {
        self.pulse.ready.send_replace(true);
    }

    /// The worker is not stuck. Only needed with [`super::Worker::hangs_after`].
    pub fn alive(&self) {
        self.pulse.alive.send_replace(Instant::now());
    }

    /// Waits until the worker is to accept nothing new and to finish what is in flight. It has the drain time for it,
    /// or what is left of the lease.
    pub async fn stopping(&self) {
        self.orders.stop.cancelled().await;
    }

    /// Waits until the time to finish is over. An ordinary worker is dropped then; a blocking one has to look.
    pub async fn killed(&self) {
        self.orders.kill.cancelled().await;
    }

    /// Whether the worker was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.orders.stop.is_cancelled()
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

    /// How far leading goes.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn readiness(&self) -> watch::Receiver<bool> {
        self.pulse.ready.subscribe()
    }

    /// A new life: nothing was heard of it yet.
    pub(super) fn born(&self) {
        self.alive();
    }

    /// Waits until nothing was heard of the worker for so long.
    pub(super) async fn silent_for(&self, limit: Duration) {
        let mut alive = self.pulse.alive.subscribe();
        loop {
            let due = *alive.borrow_and_update() + limit;
            tokio::select! {
                () = tokio::time::sleep_until(due) => return,
                changed = alive.changed() => if changed.is_err() { return },
            }
        }
    }
}
