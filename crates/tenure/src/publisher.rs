//! The publisher: the only place that tells anyone anything.
//!
//! Events leave the election loop through it, numbered and in order. Each listener has a thread and a bounded queue of
//! its own, so that one that is slow, stuck or panicking harms neither the loop nor the others; it is told how many
//! events it missed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::mpsc;

use crate::Name;
use crate::clock::Clock;
use crate::event::{Event, What};

/// So many events wait for a listener; further ones are missed.
const QUEUE: usize = 4096;

/// Tells listeners what happens.
#[derive(Clone)]
pub(crate) struct Publisher {
    shared: Arc<Shared>,
}

struct Shared {
    node: Name,
    clock: Arc<dyn Clock>,
    sequence: AtomicU64,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    open: Vec<Listener>,
}

struct Listener {
    id: u64,
    missed: u64,
    queue: Queue,
}

enum Queue {
    Thread(SyncSender<Event>),
    Stream(mpsc::Sender<Event>),
}

/// Keeps a listener; dropping it removes the listener.
#[must_use = "dropping the registration removes the listener; keep it, or call `forever()`"]
#[derive(Debug)]
pub struct Registration {
    id: u64,
    shared: Weak<Shared>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Registration {
    /// Lets the listener live as long as the node.
    pub fn forever(mut self) {
        self.shared = Weak::new();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().open.retain(|listener| listener.id != self.id);
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Publisher {
    pub(crate) fn new(node: Name, clock: Arc<dyn Clock>) -> Self {
        let listeners = Mutex::default();
        Self { shared: Arc::new(Shared { node, clock, sequence: AtomicU64::new(0), listeners }) }
    }

    /// Tells everybody, without ever waiting for anybody.
    pub(crate) fn tell(&self, what: What) {
        let mut listeners = self.shared.lock();
        let event = Event {
            sequence: self.shared.sequence.fetch_add(1, Ordering::Relaxed),
            at: self.shared.clock.wall(),
            lease_nanos: self.shared.clock.now().0,
            node: self.shared.node.clone(),
            what,
        };
        log(&event);
        listeners.open.retain_mut(|listener| listener.offer(&event));
    }

    /// Calls `heard` for each event, on a thread of its own.
    pub(crate) fn listen(&self, mut heard: impl FnMut(&Event) + Send + 'static) -> Registration {
        let (sender, events) = sync_channel::<Event>(QUEUE);
        let thread = std::thread::Builder::new().name("tenure-listener".to_owned());
        let spawned = thread.spawn(move || {
            for event in events {
                if catch_unwind(AssertUnwindSafe(|| heard(&event))).is_err() {
                    tracing::error!(?event, "an event listener panicked; it goes on with the next event");
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for an event listener: it will hear nothing");
        }
        self.register(Queue::Thread(sender))
    }

    /// The events from now on. Ends with the node.
    pub(crate) fn events(&self) -> BoxStream<'static, Event> {
        let (sender, events) = mpsc::channel(QUEUE);
        let registration = self.register(Queue::Stream(sender));
        stream::unfold((events, registration), |(mut events, registration)| async move {
            let event = events.recv().await?;
            Some((event, (events, registration)))
        })
        .boxed()
    }

    fn register(&self, queue: Queue) -> Registration {
        let mut listeners = self.shared.lock();
        let id = listeners.next;
        listeners.next += 1;
        listeners.open.push(Listener { id, missed: 0, queue });
        Registration { id, shared: Arc::downgrade(&self.shared) }
    }

    /// After this every listener's queue ends.
    pub(crate) fn close(&self) {
        self.shared.lock().open.clear();
    }
}

impl Listener {
    /// Puts an event into the queue if there is room; false if nobody is left to hear it.
    fn offer(&mut self, event: &Event) -> bool {
        if self.missed > 0 {
            let missed = Event { what: What::Missed { events: self.missed }, ..event.clone() };
            match self.queue.put(missed) {
                Ok(()) => self.missed = 0,
                Err(gone) => return self.miss(gone),
            }
        }
        match self.queue.put(event.clone()) {
            Ok(()) => true,
            Err(gone) => self.miss(gone),
        }
    }

    fn miss(&mut self, gone: bool) -> bool {
        self.missed += 1;
        !gone
    }
}

impl Queue {
    /// Fails with whether nobody is left on the other side.
    fn put(&self, event: Event) -> Result<(), bool> {
        match self {
            Self::Thread(queue) => {
                queue.try_send(event).map_err(|error| matches!(error, TrySendError::Disconnected(_)))
            }
            Self::Stream(queue) => {
                queue.try_send(event).map_err(|error| matches!(error, mpsc::error::TrySendError::Closed(_)))
            }
        }
    }
}

/// Structured logs on every node, naming role, token and reason.
fn log(event: &Event) {
    let node = &event.node;
    match &event.what {
        What::Elected { role, token, session } => tracing::info!(%node, %role, %token, %session, "elected"),
        What::Draining { role, token, reason, forced } => {
            tracing::info!(%node, %role, %token, %reason, forced, "draining");
        }
        What::Lost { role, token, reason } => tracing::info!(%node, %role, %token, %reason, "lost"),
        What::LeaderChanged { role, former, leader, token } => {
            let (former, leader) = (former.as_ref().map(Name::as_str), leader.as_ref().map(Name::as_str));
            tracing::info!(%node, %role, %token, former, leader, "leader changed");
        }
        What::LeaderDown { role, former } => tracing::info!(%node, %role, %former, "leader down"),
        What::Paused { role, paused } => tracing::info!(%node, %role, paused, "paused"),
        What::NoWitness { session } => tracing::warn!(
            %node, %session,
            "the store cannot tell of dropped connections: this session is strict, only its lease counts; tenure doctor says why"
        ),
        What::SessionOpened { session } => tracing::info!(%node, %session, "session opened"),
        What::SessionOver { session, reason } => tracing::info!(%node, %session, %reason, "session over"),
        What::InDoubt { roles } => tracing::warn!(%node, roles, "in doubt: a beat failed"),
        What::Certain { roles } => tracing::info!(%node, roles, "certain again"),
        What::NameTaken { by } => {
            tracing::warn!(%node, %by, "another live process has this node's name; waiting until it is gone");
        }
        What::Quarantined { millis } => {
            tracing::warn!(%node, millis, "the store may have forgotten: nothing is claimed for a while");
        }
        What::Stuck { role, token } => {
            tracing::error!(%node, %role, %token, "the work did not stop in time; only the token protects what it does");
        }
        What::StoreFailed { error } => tracing::warn!(%node, error, "the store failed"),
        What::LoopFailed { error } => {
            tracing::error!(%node, error, "the election loop failed and is started anew")
        }
        What::Unreadable { register } => {
            tracing::warn!(%node, register, "a register cannot be read by this version")
        }
        What::WorkFailed { role, token, worker, why } => {
            tracing::error!(%node, %role, %token, worker, why, "the work failed; this node stands back for a while");
        }
        What::WorkStopped { role, token, cancelled } => {
            tracing::info!(%node, %role, %token, ?cancelled, "the work has stopped");
        }
        What::TaskStarted { task, tick, token, late_ms } => {
            tracing::debug!(%node, %task, tick = tick.0, %token, late_ms, "task started");
        }
        What::TaskEnded { task, tick, token, state, took_ms, why } => {
            tracing::info!(%node, %task, tick = tick.0, %token, %state, took_ms, why, "task ended");
        }
        What::TaskPassed { task, count, state, why, .. } => {
            tracing::info!(%node, %task, count, %state, why, "ticks passed over");
        }
        What::ElectionFailed { role, cause } => tracing::debug!(%node, %role, ?cause, "election failed"),
        What::StateChanged { role, from, to } => tracing::debug!(%node, %role, ?from, ?to, "state changed"),
        What::ElectionCheck { .. } | What::Missed { .. } => {}
    }
}
