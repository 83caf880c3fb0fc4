//! A tap on a node's store: what it asks is counted and written down, and where there is no server, and so no link, the
//! way between node and store can be cut here.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure::store::{
    Entry, Exchanged, Key, Kind, Layer, Name, Outcome, Query, SharedStore, Signal, Store, StoreError, Value,
    Write,
};
use tenure_torture::proxy::{Direction, Flow};
use tokio::sync::watch;

/// What was asked so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) operations: u64,
    /// Registers read or written.
    pub(crate) rows: u64,
    /// Writes of a session: beats, for a node that is left in peace.
    pub(crate) beats: u64,
    /// Writes of roles that name a holder.
    pub(crate) claims: u64,
}

/// Something done to a claim on its way.
type Ambush = Box<dyn FnOnce() + Send>;

/// A store with a tap on it.
pub(crate) struct Tap {
    inner: SharedStore,
    gates: [watch::Sender<Flow>; 2],
    waiting: [AtomicU64; 2],
    deaf: AtomicBool,
    /// How many operations the store was given, and how many it has done with.
    begun: AtomicU64,
    ended: AtomicU64,
    /// What is done just before the next claim is sent, when nothing else is under way.
    ambush: Mutex<Option<Ambush>>,
    asked: Mutex<Asked>,
    written: Mutex<Vec<(Key, Option<Value>)>>,
}

impl Tap {
    pub(crate) fn on(inner: SharedStore) -> Self {
        Self {
            inner,
            gates: std::array::from_fn(|_| watch::Sender::new(Flow::Pass)),
            waiting: Default::default(),
            deaf: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            ambush: Mutex::default(),
            asked: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// Requests (up) or answers (down) arrive, wait or vanish.
    pub(crate) fn set(&self, way: Direction, flow: Flow) {
        self.gates[way as usize].send_replace(flow);
    }

    /// How many requests or answers wait.
    pub(crate) fn waiting(&self, way: Direction) -> u64 {
        self.waiting[way as usize].load(Ordering::SeqCst)
    }

    /// How many operations the store was given, and how many it has done with.
    pub(crate) fn under_way(&self) -> (u64, u64) {
        let ended = self.ended.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst), ended)
    }

    /// Does this just before the next claim is sent, where there is no link. Nothing else of this node is under way then, nor
    /// comes after it until requests pass again.
    pub(crate) fn ambush(&self, act: impl FnOnce() + Send + 'static) {
        *self.ambush.lock().expect("no panic with it") = Some(Box::new(act));
    }

    /// Lets a request of this node through.
    async fn let_through(&self, writes: &[Write]) {
        let ambush = self.ambush.lock().expect("no panic with it").take_if(|_| writes.iter().any(is_claim));
        match ambush {
            None => self.gate(Direction::Up).await,
            Some(act) => {
                self.set(Direction::Up, Flow::Hold);
                while self.under_way().0 > self.under_way().1 {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                act();
            }
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether notifications never arrive.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::SeqCst);
    }

    pub(crate) fn asked(&self) -> Asked {
        *self.asked.lock().expect("no panic with it")
    }

    /// What was written on that register, whether it came to anything or not.
    pub(crate) fn written_on(&self, key: &Key) -> Vec<Option<Value>> {
        let written = self.written.lock().expect("no panic with it");
        written.iter().filter(|(found, _)| found == key).map(|(_, value)| value.clone()).collect()
    }

    async fn gate(&self, way: Direction) {
        let mut gate = self.gates[way as usize].subscribe();
        self.waiting[way as usize].fetch_add(1, Ordering::SeqCst);
        let _ = gate.wait_for(|flow| *flow != Flow::Hold).await;
        self.waiting[way as usize].fetch_sub(1, Ordering::SeqCst);
        if *gate.borrow() == Flow::Lose {
            std::future::pending::<()>().await;
        }
    }

    fn note_read(&self, rows: usize) {
        let mut asked = self.asked.lock().expect("no panic with it");
        asked.operations += 1;
        asked.rows += rows as u64;
    }

    /// What was read together with a write.
    fn note_read_along(&self, rows: usize) {
        self.asked.lock().expect("no panic with it").rows += rows as u64;
    }

    fn note_writes(&self, writes: &[Write]) {
        let mut asked = self.asked.lock().expect("no panic with it");
        asked.operations += 1;
        asked.rows += writes.len() as u64;
        for write in writes {
            asked.beats += u64::from(write.key.kind() == Kind::Session);
            asked.claims += u64::from(is_claim(write));
        }
        drop(asked);
        let mut written = self.written.lock().expect("no panic with it");
        written.extend(
            writes
                .iter()
                .map(|write| (write.key.clone(), write.put.as_ref().map(|(_, value)| value.clone()))),
        );
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("inner", &self.inner).finish_non_exhaustive()
    }
}

fn is_claim(write: &Write) -> bool {
    let value = write.put.as_ref().map(|(_, value)| value);
    write.key.kind() == Kind::Role && value.is_some_and(|value| value.json.contains("\"holder\""))
}

/// What was sent is on its way, whether its sender still waits or not; so it runs by itself.
#[derive(Debug)]
pub(crate) struct Tapped(pub(crate) std::sync::Arc<Tap>);

impl Tapped {
    /// Writes and a read in one operation.
    async fn both<F>(&self, writes: &[Write], ask: impl FnOnce(Vec<Write>) -> F + Send + 'static) -> Exchanged
    where
        F: Future<Output = Exchanged> + Send + 'static,
    {
        let (tap, writes) = (self.0.clone(), writes.to_vec());
        let sent = async move {
            tap.note_writes(&writes);
            tap.let_through(&writes).await;
            let exchanged = ask(writes).await;
            tap.ended.fetch_add(1, Ordering::SeqCst);
            tap.note_read_along(exchanged.read.as_ref().map_or(0, Vec::len));
            tap.gate(Direction::Down).await;
            exchanged
        };
        tokio::spawn(sent).await.expect("the store does not panic")
    }
}

impl fmt::Display for Tapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Tapped {
    fn inner(&self) -> &dyn Store {
        &*self.0.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let (tap, namespace, query) = (self.0.clone(), namespace.clone(), query.clone());
        let sent = async move {
            tap.let_through(&[]).await;
            let found = tap.inner.read(&namespace, &query).await;
            tap.ended.fetch_add(1, Ordering::SeqCst);
            tap.note_read(found.as_ref().map_or(0, Vec::len));
            tap.gate(Direction::Down).await;
            found
        };
        tokio::spawn(sent).await.expect("the store does not panic")
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let (tap, namespace, writes) = (self.0.clone(), namespace.clone(), writes.to_vec());
        let sent = async move {
            tap.note_writes(&writes);
            tap.let_through(&writes).await;
            let outcomes = tap.inner.write(&namespace, &writes).await;
            tap.ended.fetch_add(1, Ordering::SeqCst);
            tap.gate(Direction::Down).await;
            outcomes
        };
        tokio::spawn(sent).await.expect("the store does not panic")
    }

    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let (inner, namespace, query) = (self.0.inner.clone(), namespace.clone(), query.clone());
        self.both(writes, |writes| async move { inner.exchange(&namespace, &writes, &query).await }).await
    }

    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let (inner, namespace, query) = (self.0.inner.clone(), namespace.clone(), query.clone());
        self.both(writes, |writes| async move { inner.write_then_read(&namespace, &writes, &query).await })
            .await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let tap = self.0.clone();
        let heard = self.0.inner.watch(namespace).filter(move |signal| {
            let notifies = matches!(signal, Signal::Changed(_) | Signal::Resync);
            let cut = *tap.gates[Direction::Down as usize].borrow() != Flow::Pass;
            std::future::ready(!(notifies && (cut || tap.deaf.load(Ordering::SeqCst))))
        });
        heard.boxed()
    }
}
