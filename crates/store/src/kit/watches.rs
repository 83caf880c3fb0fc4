//! The open watches of one store handle: every signal goes to each of them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use futures_util::stream::BoxStream;

use crate::{Name, Signal};

/// A watch that is so far behind has to look at everything anyway.
const BACKLOG: usize = 1024;

/// The open watches of one handle.
#[derive(Debug, Default)]
pub struct Watches {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    open: Vec<(Name, Weak<Inbox>)>,
}

impl Watches {
    /// A watch of one namespace, from now on. It ends at once if they were closed.
    pub fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let mut state = lock(&self.state);
        let inbox = Arc::new(Inbox::default());
        if state.closed {
            inbox.end();
        } else {
            state.open.push((namespace.clone(), Arc::downgrade(&inbox)));
        }
        Box::pin(Watch(inbox))
    }

    /// Tells every watch of that namespace.
    pub fn send(&self, namespace: &Name, signal: &Signal) {
        self.each(|watched, inbox| {
            if watched == namespace {
                inbox.push(signal.clone());
            }
        });
    }

    /// Tells every watch of every namespace.
    pub fn send_all(&self, signal: &Signal) {
        self.each(|_, inbox| inbox.push(signal.clone()));
    }

    /// Ends every watch, now and later.
    pub fn close(&self) {
        self.each(|_, inbox| inbox.end());
        lock(&self.state).closed = true;
    }

    /// Whether there is any.
    pub fn is_watched(&self) -> bool {
        lock(&self.state).open.iter().any(|(_, inbox)| inbox.strong_count() > 0)
    }

    fn each(&self, mut tell: impl FnMut(&Name, &Inbox)) {
        lock(&self.state).open.retain(|(namespace, inbox)| match inbox.upgrade() {
            Some(inbox) => {
                tell(namespace, &inbox);
                true
            }
            None => false,
        });
    }
}

/// A watch that outlives its store would wait for ever.
impl Drop for Watches {
    fn drop(&mut self) {
        self.close();
    }
}

/// What one watch has yet to deliver.
#[derive(Debug, Default)]
struct Inbox(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    signals: VecDeque<Signal>,
    waker: Option<Waker>,
    ended: bool,
}

impl Inbox {
    /// Adds a signal. A backlog is cut down to "look at everything again", except for evidence and for "the store
    /// forgot", which looking again would not find.
    fn push(&self, signal: Signal) {
        let mut pending = lock(&self.0);
        if pending.signals.len() >= BACKLOG {
            let lasts = |signal: &Signal| !matches!(signal, Signal::Changed(_) | Signal::Resync);
            pending.signals.retain(lasts);
            pending.signals.push_back(Signal::Resync);
        }
        pending.signals.push_back(signal);
        wake(pending);
    }

    fn end(&self) {
        let mut pending = lock(&self.0);
        pending.ended = true;
        wake(pending);
    }
}

/// Wakes after the lock is let go of, because the woken task takes it at once.
fn wake(mut pending: MutexGuard<'_, Pending>) {
    let waker = pending.waker.take();
    drop(pending);
    if let Some(waker) = waker {
        waker.wake();
    }
}

struct Watch(Arc<Inbox>);

impl Stream for Watch {
    type Item = Signal;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Signal>> {
        let mut pending = lock(&self.0.0);
        if let Some(signal) = pending.signals.pop_front() {
            return Poll::Ready(Some(signal));
        }
        if pending.ended {
            return Poll::Ready(None);
        }
        pending.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Nothing in here can be left half done by a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use tenure_core::{Evidence, SessionId};

    use super::*;

    #[test]
    fn a_watch_that_falls_behind_is_told_so_and_keeps_its_evidence() {
        let (watches, name) = (Watches::default(), Name::new("a").unwrap());
        let mut watch = watches.watch(&name);
        let dead = Evidence::Dead { session: SessionId::new(1), lock: "w".to_owned() };
        watches.send(&name, &Signal::Evidence(dead));
        for _ in 0..BACKLOG + 5 {
            watches.send(&name, &Signal::Resync);
        }
        assert!(matches!(watch.next().now_or_never(), Some(Some(Signal::Evidence(_)))));
        let mut rest = 0;
        while let Some(Some(signal)) = watch.next().now_or_never() {
            assert!(matches!(signal, Signal::Resync));
            rest += 1;
        }
        assert!((1..BACKLOG).contains(&rest), "{rest}");
        watches.close();
        assert!(matches!(watch.next().now_or_never(), Some(None)));
        assert!(matches!(watches.watch(&name).next().now_or_never(), Some(None)));
    }
}
