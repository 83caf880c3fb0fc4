//! A store around another one: it counts, writes down, cuts or changes what passes, and passes on all the rest.

use std::fmt;
use std::os::fd::OwnedFd;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::{
    Description, Entry, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Witness, Write,
};

/// A store around another one. Whatever a layer does not write itself goes to the inner store as it is, so that none can
/// forget to pass on a witness. Every layer is a [`Store`].
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

    /// See [`Store::attest`].
    async fn attest(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<Witness>, StoreError> {
        self.inner().attest(namespace, session, takeover).await
    }

    /// See [`Store::release`].
    fn release(&self, namespace: &Name, session: SessionId) {
        self.inner().release(namespace, session);
    }

    /// See [`Store::attend`].
    fn attend(&self, namespace: &Name, session: SessionId, witness: &str, takeover: Takeover) {
        self.inner().attend(namespace, session, witness, takeover);
    }

    /// See [`Store::ignore`].
    fn ignore(&self, namespace: &Name, session: SessionId) {
        self.inner().ignore(namespace, session);
    }

    /// See [`Store::witness_fd`].
    fn witness_fd(&self, namespace: &Name, session: SessionId) -> Option<OwnedFd> {
        self.inner().witness_fd(namespace, session)
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

    async fn attest(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<Witness>, StoreError> {
        Layer::attest(self, namespace, session, takeover).await
    }

    fn release(&self, namespace: &Name, session: SessionId) {
        Layer::release(self, namespace, session);
    }

    fn attend(&self, namespace: &Name, session: SessionId, witness: &str, takeover: Takeover) {
        Layer::attend(self, namespace, session, witness, takeover);
    }

    fn ignore(&self, namespace: &Name, session: SessionId) {
        Layer::ignore(self, namespace, session);
    }

    fn witness_fd(&self, namespace: &Name, session: SessionId) -> Option<OwnedFd> {
        Layer::witness_fd(self, namespace, session)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        Layer::describe(self).await
    }

    async fn close(&self) {
        Layer::close(self).await;
    }
}
