//! A store around another one: it counts, writes down, cuts or changes what passes, and passes on all the rest.

use std::fmt;
#[cfg(unix)]
use std::os::fd::OwnedFd;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::kit::thread::ConnectionThread;
use crate::{
    Description, Entry, Exchanged, LivenessLock, LivenessLocks, Name, Outcome, Query, SessionId, Signal,
    Store, StoreError, Takeover, Write,
};

/// A store around another one. Whatever a layer does not write itself goes to the inner store as it is, so that none can
/// forget to pass on a liveness lock. Every layer is a [`Store`].
#[async_trait]
pub trait Layer: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// What it is around.
    fn inner(&self) -> &dyn Store;

    /// See [`Store::read`].
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.inner().read(namespace, query).await
    }

    /// See [`Store::write`].
    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.inner().write(namespace, writes).await
    }

    /// See [`Store::exchange`]. It is not passed on by itself: what a layer does to reads and writes it does to these too. A layer
    /// that wants the one round trip of the inner store passes it on.
    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        Exchanged::of_two(Layer::write(self, namespace, writes), Layer::read(self, namespace, query)).await
    }

    /// See [`Store::write_then_read`]; it is not passed on by itself either.
    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        Exchanged::in_turn(Layer::write(self, namespace, writes), Layer::read(self, namespace, query)).await
    }

    /// See [`Store::watch`].
    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.inner().watch(namespace)
    }

    /// See [`LivenessLocks::acquire_lock`].
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        self.inner().liveness().acquire_lock(namespace, session, takeover).await
    }

    /// See [`Store::describe`].
    async fn describe(&self) -> Result<Description, StoreError> {
        self.inner().describe().await
    }

    /// See [`Store::close`].
    async fn close(&self) {
        self.inner().close().await;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Store for L {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        Layer::read(self, namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        Layer::write(self, namespace, writes).await
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        Layer::exchange(self, namespace, writes, query).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        Layer::write_then_read(self, namespace, writes, query).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        Layer::watch(self, namespace)
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        self.inner().liveness().map(|_| self as &dyn LivenessLocks)
    }

    fn thread(&self) -> Option<&ConnectionThread> {
        self.inner().thread()
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        Layer::describe(self).await
    }

    async fn close(&self) {
        Layer::close(self).await;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<L: Layer> LivenessLocks for L {
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        Layer::acquire_lock(self, namespace, session, takeover).await
    }

    fn release_lock(&self, namespace: &Name, session: SessionId) {
        self.inner().liveness().release_lock(namespace, session);
    }

    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, takeover: Takeover) {
        self.inner().liveness().watch_lock(namespace, session, id, takeover);
    }

    fn unwatch_lock(&self, namespace: &Name, session: SessionId) {
        self.inner().liveness().unwatch_lock(namespace, session);
    }

    #[cfg(unix)]
    fn lock_descriptor(&self, namespace: &Name, session: SessionId) -> Option<OwnedFd> {
        self.inner().liveness().lock_descriptor(namespace, session)
    }
}
