//! Registers in the memory of this process: for tests, for examples, and for roles that never leave one process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure_core::Entropy;

use crate::entropy::KernelEntropy;
use crate::kit::registers::{Registers, apply, select};
use crate::kit::rules::check_batch;
use crate::kit::watches::{Watches, lock};
use crate::{
    Backend, Class, Description, Entry, Evidence, Fate, Key, LivenessLock, LivenessLocks, Name, Opening,
    Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Write,
};

const STORE: &str = "memory";

/// A handle on registers in this process.
///
/// A clone is another handle on the same registers, as another process would have on a server: each has its own
/// watches and its own connection, so to speak, and [`Store::close`] closes one handle only.
///
/// The other methods are for your tests: [`fail`](Self::fail), [`delay`](Self::delay) and [`forget`](Self::forget)
/// trouble every handle on these registers, [`sever`](Self::sever) this one.
pub struct Memory {
    shared: Arc<Shared>,
    watches: Arc<Watches>,
    closed: AtomicBool,
    /// Which handle this is.
    id: u128,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    handles: Mutex<Vec<Weak<Watches>>>,
}

#[derive(Default)]
struct State {
    registers: BTreeMap<Name, Registers>,
    life: u128,
    failing: Option<Fate>,
    delay: Duration,
    locks: LockTable,
}

/// Which handle holds the lock of which session, as a server knows which connection holds a lock.
#[derive(Default)]
struct LockTable {
    held: BTreeMap<(Name, SessionId), u128>,
    /// Every session whose lock was ever taken.
    taken: BTreeSet<(Name, SessionId)>,
    watched: Vec<(Name, SessionId, Weak<Watches>)>,
}

impl LockTable {
    /// Takes the lock of a session, unless it ever was.
    fn take(&mut self, namespace: &Name, session: SessionId, handle: u128) -> bool {
        let fresh = self.taken.insert((namespace.clone(), session));
        if fresh {
            self.held.insert((namespace.clone(), session), handle);
        }
        fresh
    }

    fn is_held(&self, namespace: &Name, key: &Key) -> bool {
        matches!(key, Key::Session(_, session) if self.held.contains_key(&(namespace.clone(), *session)))
    }

    /// Frees what `handle` holds, and tells those who watch.
    fn free(&mut self, life: u128, handle: u128) {
        self.held.retain(|_, holder| *holder != handle);
        let held = &self.held;
        self.watched.retain(|(namespace, session, watches)| {
            let wait = held.contains_key(&(namespace.clone(), *session));
            if let Some(watches) = watches.upgrade().filter(|_| !wait) {
                watches.send(namespace, &disconnected(life, *session));
            }
            wait
        });
    }
}

fn lock_id(life: u128, session: SessionId) -> String {
    format!("memory:{life:032x}:{session}")
}

fn disconnected(life: u128, session: SessionId) -> Signal {
    Signal::Evidence(Evidence::Disconnected { session, lock: lock_id(life, session) })
}

impl Memory {
    /// `memory:` and `memory:NAME`: registers in this process, which last as long as it; the same name gives the same ones.
    pub const BACKEND: Backend =
        Backend::new(STORE, "this process alone", &["memory"], "memory: and memory:NAME", |url, _| {
            let name = url.to_owned();
            Ok(Opening::new(move || Ok(Arc::new(Self::named(&name)))))
        })
        .in_process();

    fn named(name: &str) -> Self {
        static NAMED: Mutex<BTreeMap<String, Memory>> = Mutex::new(BTreeMap::new());
        lock(&NAMED).entry(name.to_owned()).or_default().clone()
    }

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
        state.locks = LockTable::default();
        self.shared.each_handle(|watches| watches.send_all(&Signal::Forgot));
    }

    /// Drops the connection of this handle, as a network would, and opens another one: the liveness locks of its sessions
    /// are gone for good.
    pub fn sever(&self) {
        let mut state = lock(&self.shared.state);
        let life = state.life;
        state.locks.free(life, self.id);
    }

    fn on(shared: Arc<Shared>) -> Self {
        let watches = Arc::new(Watches::default());
        lock(&shared.handles).push(Arc::downgrade(&watches));
        Self { shared, watches, closed: AtomicBool::new(false), id: KernelEntropy.nonce() }
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
    fn each_handle(&self, mut tell: impl FnMut(&Watches)) {
        lock(&self.handles)
            .retain(|watches| watches.upgrade().is_some_and(|watches| (tell(&watches), true).1));
    }

    /// Signals leave while the registers are locked, so that they come in the order of the writes.
    fn carry_out(&self, namespace: &Name, writes: &[Write]) -> Vec<Outcome> {
        let mut state = lock(&self.state);
        let State { registers, locks, .. } = &mut *state;
        let registers = registers.entry(namespace.clone()).or_default();
        let outcome = |write: &Write| {
            let proven = write.requires_lock && locks.is_held(namespace, &write.key);
            let outcome = if proven {
                apply(STORE, registers, &Write { requires_lock: false, ..write.clone() })
            } else {
                apply(STORE, registers, write)
            };
            if write.notify && matches!(outcome, Outcome::Applied) {
                let signal = Signal::Changed(write.key.clone());
                self.each_handle(|watches| watches.send(namespace, &signal));
            }
            outcome
        };
        writes.iter().map(outcome).collect()
    }
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

impl Drop for Memory {
    fn drop(&mut self) {
        self.sever();
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
        Ok(select(registers, query))
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let answer_lost = self.begin().await?.is_some();
        let outcomes = self.shared.carry_out(namespace, writes);
        if answer_lost { Err(lost()) } else { Ok(outcomes) }
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.watches.watch(namespace)
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        if self.begin().await?.is_some() {
            return Err(lost());
        }
        let mut described = Description::new(
            Class::B,
            format!("memory:{:032x}", lock(&self.shared.state).life),
            self.to_string(),
        );
        described.notifies = true;
        described.connection_liveness_locks = true;
        described.remarks = vec!["it ends with this process: other processes cannot take part".to_owned()];
        Ok(described)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.watches.close();
        self.sever();
    }
}

#[async_trait]
impl LivenessLocks for Memory {
    async fn acquire_lock(
        &self,
        namespace: &Name,
        session: SessionId,
        takeover: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        let answer_lost = self.begin().await?.is_some();
        let mut state = lock(&self.shared.state);
        if takeover == Takeover::Strict || !state.locks.take(namespace, session, self.id) {
            return Ok(None);
        }
        let id = lock_id(state.life, session);
        if answer_lost {
            Err(lost())
        } else {
            Ok(Some(LivenessLock { id, covers_work: false, connection: true }))
        }
    }

    fn release_lock(&self, namespace: &Name, session: SessionId) {
        let held = &mut lock(&self.shared.state).locks.held;
        held.retain(|(space, id), holder| space != namespace || *id != session || *holder != self.id);
    }

    fn watch_lock(&self, namespace: &Name, session: SessionId, id: &str, takeover: Takeover) {
        let mut state = lock(&self.shared.state);
        let life = state.life;
        if takeover == Takeover::Strict || id != lock_id(life, session) {
            return;
        }
        if state.locks.held.contains_key(&(namespace.clone(), session)) {
            let watched = (namespace.clone(), session, Arc::downgrade(&self.watches));
            state.locks.watched.push(watched);
        } else {
            self.watches.send(namespace, &disconnected(life, session));
        }
    }

    fn unwatch_lock(&self, namespace: &Name, session: SessionId) {
        let own = Arc::downgrade(&self.watches);
        let is_own = |(space, id, watches): &(Name, SessionId, Weak<Watches>)| {
            space == namespace && *id == session && watches.ptr_eq(&own)
        };
        lock(&self.shared.state).locks.watched.retain(|watched| !is_own(watched));
    }
}
