//! A store around another one: it counts, writes down, cuts or changes what passes, and passes on all the rest.

use std::fmt;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::{Description, Entry, LivenessLocks, Name, Outcome, Query, Signal, Store, StoreError, Write};

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

    /// See [`Store::watch`].
    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.inner().watch(namespace)
    }

    /// See [`Store::liveness`].
    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        self.inner().liveness()
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

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        Layer::watch(self, namespace)
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        Layer::liveness(self)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        Layer::describe(self).await
    }

    async fn close(&self) {
        Layer::close(self).await;
    }
}
