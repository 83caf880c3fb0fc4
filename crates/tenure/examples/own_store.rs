//! A store of your own: here a layer that counts the writes of another store.
//!
//! Run with `cargo run -p tenure --example own_store`. A store from scratch implements `tenure::Store`, and shows with the
//! suite in `tenure::conformance` that it keeps the contract.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tenure::store::{Layer, Memory, Name, Outcome, Store, StoreError, Write};

#[derive(Debug, Default)]
struct Counted {
    inner: Memory,
    writes: AtomicUsize,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counted {}", self.inner)
    }
}

#[async_trait]
impl Layer for Counted {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.writes.fetch_add(writes.len(), Ordering::Relaxed);
        self.inner.write(namespace, writes).await
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), tenure::Error> {
    let store = Arc::new(Counted::default());
    let node = tenure::Node::builder_with_store(store.clone()).name("web-1").start().await?;
    let candidate = node.candidate("scheduler").await?;
    let tenure = candidate.elected().await.expect("the node was not stopped");
    println!("elected under token {} after {} writes", tenure.token(), store.writes.load(Ordering::Relaxed));
    drop(tenure);
    node.stop().await;
    Ok(())
}
