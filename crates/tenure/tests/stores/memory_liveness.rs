//! The clauses about liveness locks can fail, and pass for locks that are honest, wherever they come from.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::stream::{BoxStream, poll_fn, select};
use tenure::conformance::{self, Harness, Holder};
use tenure::store::{
    Description, Entry, Evidence, LivenessLock, LivenessLocks, Memory, Name, Outcome, Query, SessionId,
    SharedStore, Signal, Store, StoreError, Takeover, Write,
};
use tokio::sync::mpsc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Honesty {
    Honest,
    /// Evidence comes as soon as it is asked for.
    SeesTheLivingDead,
    /// Closing lets go, although the work may be running.
    LetsGoAtClose,
    /// The lock that was named is not looked at.
    BelievesAnyName,
    /// The dead are told of only to those who asked before.
    TellsOnce,
}

/// The in-process store, with locks of processes that are told to die.
struct WithLivenessLocks {
    inner: Memory,
    world: Arc<World>,
    mine: Mutex<BTreeSet<SessionId>>,
}

struct World {
    honesty: Honesty,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    dead: BTreeSet<SessionId>,
    watched: BTreeSet<(SessionId, String)>,
    watches: Vec<mpsc::UnboundedSender<Signal>>,
}

fn lock_id(session: SessionId) -> String {
    format!("told:{session}")
}

impl World {
    fn kill(&self, session: SessionId) {
        let mut state = self.state.lock().unwrap();
        state.dead.insert(session);
        let (gone, waiting) =
            std::mem::take(&mut state.watched).into_iter().partition(|(whose, _)| *whose == session);
        state.watched = waiting;
        state.tell(gone);
    }

    fn watch_lock(&self, session: SessionId, id: &str) {
        let mut state = self.state.lock().unwrap();
        if self.honesty != Honesty::BelievesAnyName && id != lock_id(session) {
            return;
        }
        let asked = (session, id.to_owned());
        let known = match self.honesty {
            Honesty::SeesTheLivingDead => true,
            Honesty::TellsOnce => false,
            _ => state.dead.contains(&session),
        };
        if known {
            state.tell(BTreeSet::from([asked]));
        } else {
            state.watched.insert(asked);
        }
    }
}

impl State {
    fn tell(&self, dead: BTreeSet<(SessionId, String)>) {
        for (session, lock) in dead {
            let evidence = Evidence::Dead { session, lock };
            self.watches.iter().for_each(|watch| drop(watch.send(Signal::Evidence(evidence.clone()))));
        }
    }
}

impl fmt::Debug for WithLivenessLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithLivenessLocks")
    }
}

impl fmt::Display for WithLivenessLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory with liveness locks")
    }
}

#[async_trait]
impl Store for WithLivenessLocks {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        self.inner.read(namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        self.inner.write(namespace, writes).await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        let (sender, mut evidence) = mpsc::unbounded_channel();
        self.world.state.lock().unwrap().watches.push(sender);
        Box::pin(select(self.inner.watch(namespace), poll_fn(move |context| evidence.poll_recv(context))))
    }

    fn liveness(&self) -> Option<&dyn LivenessLocks> {
        Some(self)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let mut described = self.inner.describe().await?;
        (described.process_liveness_locks, described.connection_liveness_locks) = (true, false);
        Ok(described)
    }

    async fn close(&self) {
        if self.world.honesty == Honesty::LetsGoAtClose {
            let mine = std::mem::take(&mut *self.mine.lock().unwrap());
            mine.into_iter().for_each(|session| self.world.kill(session));
        }
        self.inner.close().await;
    }
}

#[async_trait]
impl LivenessLocks for WithLivenessLocks {
    async fn acquire_lock(
        &self,
        _: &Name,
        session: SessionId,
        _: Takeover,
    ) -> Result<Option<LivenessLock>, StoreError> {
        self.mine.lock().unwrap().insert(session);
        Ok(Some(LivenessLock { id: lock_id(session), covers_work: true, connection: false }))
    }

    fn release_lock(&self, _: &Name, session: SessionId) {
        self.mine.lock().unwrap().remove(&session);
    }

    fn watch_lock(&self, _: &Name, session: SessionId, id: &str, _: Takeover) {
        self.world.watch_lock(session, id);
    }

    fn unwatch_lock(&self, _: &Name, session: SessionId) {
        self.world.state.lock().unwrap().watched.retain(|(whose, _)| *whose != session);
    }
}

struct Mortals(Memory, Arc<World>);

#[async_trait]
impl Harness for Mortals {
    async fn open(&self) -> SharedStore {
        Arc::new(WithLivenessLocks { inner: self.0.clone(), world: self.1.clone(), mine: Mutex::default() })
    }

    async fn holder(&self, _: &Name, session: SessionId) -> Option<Box<dyn Holder>> {
        Some(Box::new(Mortal(session, self.1.clone())))
    }
}

struct Mortal(SessionId, Arc<World>);

#[async_trait]
impl Holder for Mortal {
    fn lock(&self) -> LivenessLock {
        LivenessLock { id: lock_id(self.0), covers_work: true, connection: false }
    }

    async fn kill(self: Box<Self>) {
        self.1.kill(self.0);
    }
}

/// Whether both clauses about evidence pass: (E1, E2).
fn verdict(honesty: Honesty) -> (bool, bool) {
    let passes = |second: bool| {
        let trial = std::thread::spawn(move || {
            let harness = Mortals(Memory::new(), Arc::new(World { honesty, state: Mutex::default() }));
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            runtime.unwrap().block_on(async {
                if second {
                    conformance::e2_evidence_comes_with_death_only(&harness).await;
                } else {
                    conformance::e1_a_lock_is_held_once_acquired(&harness).await;
                }
            });
        });
        trial.join().is_ok()
    };
    (passes(false), passes(true))
}

#[test]
fn honest_locks_pass() {
    assert_eq!(verdict(Honesty::Honest), (true, true));
}

#[test]
fn evidence_about_the_living_is_caught() {
    assert_eq!(verdict(Honesty::SeesTheLivingDead), (false, false));
}

#[test]
fn letting_go_at_closing_is_caught() {
    assert_eq!(verdict(Honesty::LetsGoAtClose), (false, true));
}

#[test]
fn believing_any_name_is_caught() {
    assert!(!verdict(Honesty::BelievesAnyName).1);
}

#[test]
fn telling_only_once_is_caught() {
    assert!(!verdict(Honesty::TellsOnce).1);
}
