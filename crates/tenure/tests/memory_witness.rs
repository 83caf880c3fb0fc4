//! The clauses about witnesses can fail, and pass for a witness that is honest, wherever it comes from.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::stream::{BoxStream, poll_fn, select};
use tenure::conformance::{self, Harness, Holder};
use tenure::store::{
    Description, Entry, Evidence, Memory, Name, Outcome, Query, SessionId, SharedStore, Signal, Store,
    StoreError, Takeover, Witness, Write,
};
use tokio::sync::mpsc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Honesty {
    Honest,
    /// Evidence comes as soon as somebody asks.
    SeesTheLivingDead,
    /// Closing lets go, although the work may be running.
    LetsGoAtClose,
    /// The witness that was named is not looked at.
    BelievesAnyName,
    /// The dead are told of only to those who asked before.
    TellsOnce,
}

/// The in-process store, with a witness that is told who dies.
struct Witnessing {
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
    attended: BTreeSet<(SessionId, String)>,
    watches: Vec<mpsc::UnboundedSender<Signal>>,
}

fn witness_of(session: SessionId) -> String {
    format!("told:{session}")
}

impl World {
    fn kill(&self, session: SessionId) {
        let mut state = self.state.lock().unwrap();
        state.dead.insert(session);
        let (gone, waiting) =
            std::mem::take(&mut state.attended).into_iter().partition(|(whose, _)| *whose == session);
        state.attended = waiting;
        state.tell(gone);
    }

    fn attend(&self, session: SessionId, witness: &str) {
        let mut state = self.state.lock().unwrap();
        if self.honesty != Honesty::BelievesAnyName && witness != witness_of(session) {
            return;
        }
        let asked = (session, witness.to_owned());
        let known = match self.honesty {
            Honesty::SeesTheLivingDead => true,
            Honesty::TellsOnce => false,
            _ => state.dead.contains(&session),
        };
        if known {
            state.tell(BTreeSet::from([asked]));
        } else {
            state.attended.insert(asked);
        }
    }
}

impl State {
    fn tell(&self, dead: BTreeSet<(SessionId, String)>) {
        for (session, witness) in dead {
            let evidence = Evidence::Dead { session, witness };
            self.watches.iter().for_each(|watch| drop(watch.send(Signal::Witnessed(evidence.clone()))));
        }
    }
}

impl fmt::Debug for Witnessing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witnessing")
    }
}

impl fmt::Display for Witnessing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory with a witness")
    }
}

#[async_trait]
impl Store for Witnessing {
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

    async fn attest(&self, _: &Name, session: SessionId, _: Takeover) -> Result<Option<Witness>, StoreError> {
        self.mine.lock().unwrap().insert(session);
        Ok(Some(Witness { id: witness_of(session), covers_work: true, connection: false }))
    }

    fn release(&self, _: &Name, session: SessionId) {
        self.mine.lock().unwrap().remove(&session);
    }

    fn attend(&self, _: &Name, session: SessionId, witness: &str, _: Takeover) {
        self.world.attend(session, witness);
    }

    fn ignore(&self, _: &Name, session: SessionId) {
        self.world.state.lock().unwrap().attended.retain(|(whose, _)| *whose != session);
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        Ok(Description { witnesses_death: true, witnesses_disconnect: false, ..self.inner.describe().await? })
    }

    async fn close(&self) {
        if self.world.honesty == Honesty::LetsGoAtClose {
            let mine = std::mem::take(&mut *self.mine.lock().unwrap());
            mine.into_iter().for_each(|session| self.world.kill(session));
        }
        self.inner.close().await;
    }
}

struct Mortals(Memory, Arc<World>);

#[async_trait]
impl Harness for Mortals {
    async fn open(&self) -> SharedStore {
        Arc::new(Witnessing { inner: self.0.clone(), world: self.1.clone(), mine: Mutex::default() })
    }

    async fn holder(&self, _: &Name, session: SessionId) -> Option<Box<dyn Holder>> {
        Some(Box::new(Mortal(session, self.1.clone())))
    }
}

struct Mortal(SessionId, Arc<World>);

#[async_trait]
impl Holder for Mortal {
    fn witness(&self) -> Witness {
        Witness { id: witness_of(self.0), covers_work: true, connection: false }
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
                    conformance::e1_a_witness_is_held_once_attested(&harness).await;
                }
            });
        });
        trial.join().is_ok()
    };
    (passes(false), passes(true))
}

#[test]
fn an_honest_witness_passes() {
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
