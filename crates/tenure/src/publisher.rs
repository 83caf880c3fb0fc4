//! The publisher: the only place from which events leave.
//!
//! Events leave the election loop through it, numbered and in order. Each listener has a thread and a bounded queue of
//! its own, so that one that is slow, stuck or panicking harms neither the loop nor the others; it is told how many
//! events it missed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::sync::mpsc;

use crate::Name;
use crate::clock::Clock;
use crate::event::{Event, EventKind};
use crate::event_log::EventLog;

/// The number of events that wait for a listener; further ones are missed.
const QUEUE: usize = 4096;

/// Sends events to listeners and to the log.
#[derive(Clone)]
pub(crate) struct Publisher {
    shared: Arc<PublisherShared>,
}

struct PublisherShared {
    node: Name,
    clock: Arc<dyn Clock>,
    sequence: AtomicU64,
    listeners: Mutex<Listeners>,
    log: EventLog,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    open: Vec<Listener>,
}

struct Listener {
    id: u64,
    missed: u64,
    queue: ListenerQueue,
}

enum ListenerQueue {
    Thread(SyncSender<Event>),
    Stream(mpsc::Sender<Event>),
}

/// Keeps a listener; dropping it removes the listener.
#[must_use = "dropping the registration removes the listener; keep it, or call `detach()`"]
#[derive(Debug)]
pub struct ListenerGuard {
    id: u64,
    shared: Weak<PublisherShared>,
}

/// The events of a node from the moment it was made. Ends with the node.
#[must_use = "a stream does nothing unless it is polled"]
#[derive(Debug)]
pub struct EventStream {
    events: mpsc::Receiver<Event>,
    _listener: ListenerGuard,
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(context)
    }
}

impl std::fmt::Debug for PublisherShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("node", &self.node).finish_non_exhaustive()
    }
}

impl ListenerGuard {
    /// Lets the listener live as long as the node.
    pub fn detach(mut self) {
        self.shared = Weak::new();
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().open.retain(|listener| listener.id != self.id);
        }
    }
}

impl PublisherShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Publisher {
    pub(crate) fn new(node: Name, clock: Arc<dyn Clock>) -> Self {
        let listeners = Mutex::default();
        let shared =
            PublisherShared { node, clock, sequence: AtomicU64::new(0), listeners, log: EventLog::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Sends an event to every listener and to the log, without waiting for any of them.
    pub(crate) fn publish(&self, kind: EventKind) {
        self.publish_to_all(kind, true);
    }

    /// Sends an event to every listener, but not to the log, which has more detail already.
    pub(crate) fn publish_unlogged(&self, kind: EventKind) {
        self.publish_to_all(kind, false);
    }

    fn publish_to_all(&self, kind: EventKind, logged: bool) {
        let mut listeners = self.shared.lock();
        let event = Event {
            sequence: self.shared.sequence.fetch_add(1, Ordering::Relaxed),
            at: self.shared.clock.wall(),
            lease_nanos: self.shared.clock.now().as_nanos(),
            node: self.shared.node.clone(),
            kind,
        };
        if logged {
            self.shared.log.write(&event);
        }
        listeners.open.retain_mut(|listener| listener.offer(&event));
    }

    /// Calls `callback` for each event, on a thread of its own.
    pub(crate) fn listen(&self, mut callback: impl FnMut(&Event) + Send + 'static) -> ListenerGuard {
        let (sender, events) = sync_channel::<Event>(QUEUE);
        let thread = std::thread::Builder::new().name("tenure-listener".to_owned());
        let spawned = thread.spawn(move || {
            for event in events {
                if catch_unwind(AssertUnwindSafe(|| callback(&event))).is_err() {
                    tracing::error!(?event, "an event listener panicked; it goes on with the next event");
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for an event listener: it will hear nothing");
        }
        self.register(ListenerQueue::Thread(sender))
    }

    /// The events from now on. Ends with the node.
    pub(crate) fn events(&self) -> EventStream {
        let (sender, events) = mpsc::channel(QUEUE);
        EventStream { events, _listener: self.register(ListenerQueue::Stream(sender)) }
    }

    fn register(&self, queue: ListenerQueue) -> ListenerGuard {
        let mut listeners = self.shared.lock();
        let id = listeners.next;
        listeners.next += 1;
        listeners.open.push(Listener { id, missed: 0, queue });
        ListenerGuard { id, shared: Arc::downgrade(&self.shared) }
    }

    /// Logs what was held back, once nothing more of its kind comes. Called with every turn of the loop.
    pub(crate) fn flush_bursts(&self) {
        self.shared.log.flush_bursts(&self.shared.node, false);
    }

    /// After this every listener's queue ends.
    pub(crate) fn close(&self) {
        self.shared.log.flush_bursts(&self.shared.node, true);
        self.shared.lock().open.clear();
    }
}

impl Listener {
    /// Puts an event into the queue if there is room; false if the listener is gone.
    fn offer(&mut self, event: &Event) -> bool {
        if self.missed > 0 {
            let missed = Event { kind: EventKind::Missed { events: self.missed }, ..event.clone() };
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

impl ListenerQueue {
    /// The error says whether the listener is gone.
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
