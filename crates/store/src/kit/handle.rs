//! The handle on a server: a thread for its connections, the watches, and every clause of the contract that is the same
//! for all servers. A store on a server writes a [`Server`] and is a [`ServerHandle`] of it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::BoxStream;

use super::liveness::{LockNumber, WatchedLock, WatchedLocks};
use super::rules::check_batch;
use super::thread::ConnectionThread;
use super::watches::Watches;
use crate::{
    Description, Entry, Exchanged, LivenessLock, LivenessLocks, Name, Outcome, Query, SessionId, Signal,
    Store, StoreError, Takeover, Write,
};

/// A server as its store asks it. Futures run on the handle's thread to their end, also if the caller stops waiting. They
/// must not block: the node beats on the same thread.
///
/// `Display` is the URL without a secret.
pub trait Server: fmt::Display + Send + Sync + Sized + 'static {
    /// The store's name in messages.
    const STORE: &'static str;
    /// Whether connections hold liveness locks.
    const LOCKS: bool = false;

    /// Reads a URL and spawns on `thread` what keeps connections open. Connects to nothing itself. No error shows the URL.
    fn open(url: &str, watches: &Arc<Watches>, thread: &ConnectionThread) -> Result<Self, StoreError>;

    /// See [`Store::read`]; the query is not empty.
    fn read(
        &self,
        namespace: &Name,
        query: &Query,
    ) -> impl Future<Output = Result<Vec<Entry>, StoreError>> + Send;

    /// See [`Store::write`]; the batch and its values are no longer than allowed.
    fn write(
        &self,
        namespace: &Name,
        writes: &[Write],
    ) -> impl Future<Output = Result<Vec<Outcome>, StoreError>> + Send;

    /// See [`Store::exchange`]; the query is not empty, and the batch is as for [`Server::write`]. This default sends both at once.
    fn exchange(
        &self,
        namespace: &Name,
        writes: &[Write],
        query: &Query,
    ) -> impl Future<Output = Exchanged> + Send {
        Exchanged::of_two(self.write(namespace, writes), self.read(namespace, query))
    }

    /// See [`Store::write_then_read`]; query and batch are as for [`Server::exchange`]. This default sends one after the other.
    fn write_then_read(
        &self,
        namespace: &Name,
        writes: &[Write],
        query: &Query,
    ) -> impl Future<Output = Exchanged> + Send {
        Exchanged::in_turn(self.write(namespace, writes), self.read(namespace, query))
    }

    /// A watch of a namespace was opened: sees to it that changes arrive from now on.
    fn listen(&self, _namespace: &Name) {}

    /// See [`Store::describe`].
    fn describe(&self) -> impl Future<Output = Result<Description, StoreError>> + Send;

    /// What has to be done before the thread ends.
    fn finish(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Takes the lock of an on-disconnect session of this handle. None if it was ever asked for, or if something stands
    /// between.
    fn acquire_lock(
        self: Arc<Self>,
        _number: LockNumber,
    ) -> impl Future<Output = Result<Option<LivenessLock>, StoreError>> + Send {
        async { Ok(None) }
    }

    /// Gives a lock up; what is left to do for that in the background, if it is held.
    fn release_lock(self: Arc<Self>, _number: LockNumber) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Those locks that are free on the server that they are on.
    fn freed_locks(&self, _watched: Vec<WatchedLock>) -> impl Future<Output = Vec<WatchedLock>> + Send {
        async { Vec::new() }
    }
}

/// A handle on the registers of a [`Server`].
pub struct ServerHandle<S> {
    server: Arc<S>,
    watches: Arc<Watches>,
    watched_locks: Arc<WatchedLocks>,
    thread: ConnectionThread,
}

impl<S: Server> ServerHandle<S> {
    /// Reads the URL and begins to connect, in the background. The server may be down: operations say so.
    ///
    /// # Errors
    /// If the URL, or a file that it names, cannot be read, or the process has no threads left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let (watches, watched_locks) = (Arc::<Watches>::default(), Arc::<WatchedLocks>::default());
        let thread = ConnectionThread::open(S::STORE)?;
        let server = Arc::new(S::open(url, &watches, &thread)?);
        if S::LOCKS {
            let asked = server.clone();
            let free = move |watched| {
                let asked = asked.clone();
                async move { asked.freed_locks(watched).await }
            };
            thread.spawn(watched_locks.clone().look(watches.clone(), free));
        }
        Ok(Self { server, watches, watched_locks, thread })
    }

    /// Asks the server something on the thread, to the end.
    async fn run<T, F>(&self, ask: impl FnOnce(Arc<S>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.thread.run(ask(self.server.clone())).await
    }

    /// Asks the server for writes and a read; one of which there is nothing to ask is not sent.
    async fn both<F>(
        &self,
        (namespace, writes, query): (&Name, &[Write], &Query),
        ask: impl FnOnce(Arc<S>, Name, Vec<Write>, Query) -> F,
    ) -> Exchanged
    where
        F: Future<Output = Exchanged> + Send + 'static,
    {
        let nothing_to_read = query.keys.is_empty() && query.kinds.is_empty();
        if nothing_to_read || check_batch(S::STORE, writes).is_err() {
            return Exchanged::of_two(self.write(namespace, writes), self.read(namespace, query)).await;
        }
        let ask = |server| ask(server, namespace.clone(), writes.to_vec(), query.clone()).map(Ok);
        self.run(ask).await.unwrap_or_else(|error| Exchanged::failed(&error))
    }
}

/// A watch that outlives its store would wait for ever.
impl<S> Drop for ServerHandle<S> {
    fn drop(&mut self) {
        self.watches.close();
    }
}

/// Clients of servers show passwords.
impl<S: fmt::Display> fmt::Debug for ServerHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server.to_string();
        f.debug_struct("ServerHandle")
            .field("server", &server)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Display> fmt::Display for ServerHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

#[async_trait]
impl<S: Server> Store for ServerHandle<S> {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (namespace, query) = (namespace.clone(), query.clone());
        self.run(|server| async move { server.read(&namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(S::STORE, writes)?;
        let (namespace, writes) = (namespace.clone(), writes.to_vec());
        self.run(|server| async move { server.write(&namespace, &writes).await }).await
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both((namespace, writes, query), |server, namespace, writes, query| async move {
            server.exchange(&namespace, &writes, &query).await
        })
        .await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        self.both((namespace, writes, query), |server, namespace, writes, query| async move {
            server.write_then_read(&namespace, &writes, &query).await
        })
        .await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let watch = self.watches.watch(namespace);
        self.server.listen(namespace);
        watch
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        S::LOCKS.then_some(self)
    }

    fn thread(&self) -> Option<&ConnectionThread> {
        Some(&self.thread)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        self.run(|server| async move { server.describe().await }).await
    }

    async fn close(&self) {
        self.watches.close();
        let finish = |server: Arc<S>| async move {
            server.finish().await;
            Ok(())
        };
        let _ = self.run(finish).await;
        self.thread.close().await;
    }
}

#[async_trait]
impl<S: Server> LivenessLocks for ServerHandle<S> {
    /// To a strict session a dropped connection means nothing: it needs no liveness lock.
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        self.thread.check_open()?;
        if takeover == Takeover::Strict {
            return Ok(None);
        }
        let number = LockNumber::of(namespace, session);
        self.run(|server| server.acquire_lock(number)).await
    }

    fn release_lock(&self, namespace: &Name, session: SessionId) {
        if let Some(rest) = self.server.clone().release_lock(LockNumber::of(namespace, session)) {
            self.thread.spawn(rest);
        }
    }

    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, takeover: Takeover) {
        if takeover == Takeover::OnDisconnect {
            self.watched_locks.watch(namespace, session, id);
        }
    }

    fn unwatch_lock(&self, namespace: &Name, session: SessionId) {
        self.watched_locks.unwatch(namespace, session);
    }
}
