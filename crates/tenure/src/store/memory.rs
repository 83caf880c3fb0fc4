//! Registers in the memory of this process: for tests, for examples, and for roles that never leave one process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure_core::Entropy;

use super::hub::{Hub, lock};
use super::rules::{Verdict, check_batch, judge};
use super::{
    Class, Description, Entry, Fate, Key, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Value,
    Version, Witness, Write,
};
use crate::clock::KernelEntropy;

const STORE: &str = "memory";

/// A handle on registers in this process.
///
/// A clone is another handle on the same registers, as another process would have on a server: each has its own
/// watches, and [`Store::close`] closes one handle only.
///
/// The other methods are for your tests: [`fail`](Self::fail), [`delay`](Self::delay) and [`forget`](Self::forget)
/// trouble every handle on these registers.
pub struct Memory {
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    closed: AtomicBool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    handles: Mutex<Vec<Weak<Hub>>>,
}

#[derive(Default)]
struct State {
    registers: BTreeMap<Name, BTreeMap<Key, (Version, Value)>>,
    life: u128,
    failing: Option<Fate>,
    delay: Duration,
}

impl Memory {
    /// Registers of its own.
    #[must_use]
    pub fn new() -> Self {
        let shared = Arc::new(Shared::default());
        lock(&shared.state).life = KernelEntropy.nonce();
        Self::on(shared)
    }

    /// While set, every operation fails with that fate; `None` heals it.
    ///
    /// With [`Fate::NotApplied`] nothing happens. With [`Fate::Unknown`] writes *are* carried out and only the
    /// answer is lost, which is the case that programs get wrong.
    pub fn fail(&self, with: Option<Fate>) {
        lock(&self.shared.state).failing = with;
    }

    /// Lets every operation begin only after so long.
    pub fn delay(&self, delay: Duration) {
        lock(&self.shared.state).delay = delay;
    }

    /// Loses everything, as a server whose disk was replaced would, and signals [`Signal::Forgot`].
    pub fn forget(&self) {
        let mut state = lock(&self.shared.state);
        state.registers.clear();
        state.life = KernelEntropy.nonce();
        self.shared.each_hub(|hub| hub.send_all(&Signal::Forgot));
    }

    fn on(shared: Arc<Shared>) -> Self {
        let hub = Arc::new(Hub::default());
        lock(&shared.handles).push(Arc::downgrade(&hub));
        Self { shared, hub, closed: AtomicBool::new(false) }
    }

    /// What precedes every operation: the handle is open, the delay is over, and what [`Memory::fail`] says.
    async fn begin(&self) -> Result<Option<Fate>, StoreError> {
        let delay = lock(&self.shared.state).delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(
                StoreError::not_applied(STORE, "this handle was closed: open another one").permanent()
            );
        }
        match lock(&self.shared.state).failing {
            Some(Fate::NotApplied) => Err(StoreError::not_applied(STORE, "told to refuse everything")),
            other => Ok(other),
        }
    }
}

fn lost() -> StoreError {
    StoreError::unknown(STORE, "told to lose every answer")
}

impl Shared {
    fn each_hub(&self, mut tell: impl FnMut(&Hub)) {
        lock(&self.handles).retain(|hub| hub.upgrade().is_some_and(|hub| (tell(&hub), true).1));
    }

    /// Signals leave while the registers are locked, so that they come in the order of the writes.
    fn carry_out(&self, namespace: &Name, writes: &[Write]) -> Vec<Outcome> {
        let mut state = lock(&self.state);
        let registers = state.registers.entry(namespace.clone()).or_default();
        let outcome = |write| {
            let outcome = apply(registers, write);
            if write.ring && matches!(outcome, Outcome::Applied) {
                let signal = signal_of(write);
                self.each_hub(|hub| hub.send(namespace, &signal));
            }
            outcome
        };
        writes.iter().map(outcome).collect()
    }
}

fn apply(registers: &mut BTreeMap<Key, (Version, Value)>, write: &Write) -> Outcome {
    let current = registers.get(&write.key);
    match judge(STORE, write, current.map(|(version, value)| (*version, value.token))) {
        Verdict::Conflict => Outcome::Conflict(current.map(|found| entry(&write.key, found))),
        Verdict::Refuse(why) => Outcome::Failed(why),
        Verdict::Apply => {
            match &write.put {
                Some(put) => registers.insert(write.key.clone(), put.clone()),
                None => registers.remove(&write.key),
            };
            Outcome::Applied
        }
    }
}

/// A deletion has no content to show: look again.
fn signal_of(write: &Write) -> Signal {
    match &write.put {
        Some(put) => Signal::Changed(entry(&write.key, put)),
        None => Signal::Resync,
    }
}

fn entry(key: &Key, (version, value): &(Version, Value)) -> Entry {
    Entry { key: key.clone(), version: *version, value: value.clone() }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self::on(self.shared.clone())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory of this process")
    }
}

#[async_trait]
impl Store for Memory {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if self.begin().await?.is_some() {
            return Err(lost());
        }
        let state = lock(&self.shared.state);
        let Some(registers) = state.registers.get(namespace) else { return Ok(Vec::new()) };
        let wanted: BTreeSet<&Key> = query.keys.iter().collect();
        let listed = |key: &Key| query.kinds.contains(&(key.epoch(), key.kind()));
        let found = registers.iter().filter(|(key, _)| wanted.contains(key) || listed(key));
        Ok(found.map(|(key, value)| entry(key, value)).collect())
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let answer_lost = self.begin().await?.is_some();
        let outcomes = self.shared.carry_out(namespace, writes);
        if answer_lost { Err(lost()) } else { Ok(outcomes) }
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.hub.watch(namespace)
    }

    async fn attest(&self, _: &Name, _: SessionId) -> Result<Option<Witness>, StoreError> {
        self.begin().await.map(|_| None)
    }

    fn release(&self, _: &Name, _: SessionId) {}

    fn attend(&self, _: &Name, _: SessionId, _: &str) {}

    fn ignore(&self, _: &Name, _: SessionId) {}

    async fn describe(&self) -> Result<Description, StoreError> {
        if self.begin().await?.is_some() {
            return Err(lost());
        }
        Ok(Description {
            class: Class::B,
            identity: format!("memory:{:032x}", lock(&self.shared.state).life),
            about: self.to_string(),
            rings: true,
            witnesses_death: false,
            witnesses_disconnect: false,
            remarks: vec!["it ends with this process: other processes cannot take part".to_owned()],
        })
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.hub.close();
    }
}
