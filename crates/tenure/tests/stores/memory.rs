//! The in-process store keeps the contract, and troubles a program in tests as told.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tenure::conformance::Harness;
use tenure::store::{
    Epoch, Fate, Key, Kind, Memory, Name, Query, SharedStore, Signal, Store, Value, Version, Write,
};

struct InMemory(Memory);

#[async_trait]
impl Harness for InMemory {
    async fn open(&self) -> SharedStore {
        Arc::new(self.0.clone())
    }

    async fn severable(&self) -> Option<(SharedStore, BoxFuture<'static, ()>)> {
        let handle = Arc::new(self.0.clone());
        let cut = handle.clone();
        Some((handle, Box::pin(async move { cut.sever() })))
    }
}

mod conformance {
    use super::*;

    tenure::conformance!(InMemory(Memory::new()));
}

fn space() -> Name {
    Name::new("default").unwrap()
}

fn write() -> Write {
    let key = Key::Named(Epoch::new(1), Kind::Node, Name::new("a").unwrap());
    Write {
        key,
        expect: None,
        put: Some((Version::new(1), Value::of(&1, None))),
        notify: true,
        requires_lock: false,
    }
}

async fn count(store: &Memory) -> usize {
    let query = Query { keys: vec![write().key], kinds: Vec::new() };
    store.read(&space(), &query).await.unwrap().len()
}

#[tokio::test]
async fn a_refusing_store_does_nothing_and_heals() {
    let store = Memory::new();
    let other = store.clone();
    store.fail(Some(Fate::NotApplied));
    assert_eq!(other.write(&space(), &[write()]).await.unwrap_err().fate(), Fate::NotApplied);
    store.fail(None);
    assert_eq!(count(&other).await, 0);
}

#[tokio::test]
async fn a_lost_answer_hides_a_write_that_happened() {
    let store = Memory::new();
    store.fail(Some(Fate::Unknown));
    assert_eq!(store.write(&space(), &[write()]).await.unwrap_err().fate(), Fate::Unknown);
    assert!(store.describe().await.is_err());
    store.fail(None);
    assert_eq!(count(&store).await, 1);
}

#[tokio::test]
async fn forgetting_is_another_memory_and_is_said() {
    let store = Memory::new();
    let before = store.describe().await.unwrap().identity;
    store.write(&space(), &[write()]).await.unwrap();
    let mut orphan = store.clone().watch(&space());
    let mut mine = store.watch(&space());
    store.forget();
    assert!(orphan.next().await.is_none(), "the watch of a dropped handle ends");
    assert!(matches!(mine.next().await, Some(Signal::Forgot)));
    assert_eq!(count(&store).await, 0);
    assert_ne!(store.describe().await.unwrap().identity, before);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_operation_takes_its_time() {
    let store = Memory::new();
    let span = std::time::Duration::from_secs(3);
    store.delay(span);
    let begun = tokio::time::Instant::now();
    store.write(&space(), &[write()]).await.unwrap();
    assert_eq!(begun.elapsed(), span);
}
