//! The driver: a thin loop around the engine, on a thread of its own.
//!
//! *Store changes → hint → driver → `step` → read → `step` → compare-and-set → `step` → event → publisher → your code.*
//! The loop has its own thread and its own single-threaded runtime, so that neither blocking work nor a busy
//! application can delay a beat; callbacks never run inside it. If the engine ever panics, everything that was led is
//! lost first, and the loop is started anew afterwards.

mod desk;
mod history;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt};
use tenure_core::engine::{Class, Config};
use tenure_core::io::Standing;
use tenure_core::record::Reason;
use tenure_core::{Engine, Event as Told, Hint, Input, Mutant, Now, OpId, Outcome, Output, Reply, Time};
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Clock, KernelEntropy};
use crate::event::What;
use crate::publisher::Publisher;
use crate::slip::Slip;
use crate::store::{self, Entry, Retry, SharedStore, Signal, StoreError, Value, Write};
use crate::{Name, SessionId, Takeover, Timing, Token};

use desk::Desk;
pub(crate) use desk::Seat;
use history::Historian;

/// So many signals are heard before an answer is.
const SIGNALS_AT_ONCE: usize = 64;

/// What the handles ask of the loop.
#[derive(Debug)]
pub(crate) enum Command {
    Stand {
        role: Name,
        standing: Standing,
        seat: Arc<Seat>,
    },
    Observe {
        role: Name,
        seat: Arc<Seat>,
    },
    /// The last candidate, or the last observer, of a role is gone.
    Leave {
        role: Name,
    },
    Release {
        role: Name,
        token: Token,
        reason: Reason,
    },
    Stopped {
        role: Name,
        token: Token,
    },
    Describe {
        labels: BTreeMap<String, String>,
        address: Option<String>,
    },
    /// Tell this, after what was sent before it has been told: what became of work comes after the loss of its tenure.
    Tell(What),
    /// Give everything up; answered when nothing is left.
    Stop {
        done: oneshot::Sender<()>,
    },
    /// For tests: the session is lost at once.
    ForceLoss,
}

/// What a loop is made of.
pub(crate) struct Setup {
    pub(crate) node: Name,
    pub(crate) namespace: Name,
    pub(crate) timing: Timing,
    pub(crate) class: Class,
    pub(crate) store: SharedStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) publisher: Publisher,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) address: Option<String>,
    pub(crate) abort_if_stuck: bool,
    pub(crate) election_checks: bool,
    /// When the loop last turned.
    pub(crate) pulse: Arc<AtomicU64>,
    /// The mistakes to make, for the negative control.
    pub(crate) mutant: Option<Mutant>,
    pub(crate) slip: Option<Slip>,
}

/// Starts the loop on its own thread.
pub(crate) fn spawn(setup: Setup) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name(format!("tenure-{}", setup.node));
    thread.spawn(move || runtime.block_on(supervise(setup)))
}

/// Runs the loop; if it panics, everything led is lost first, and then it is started anew.
async fn supervise(mut setup: Setup) {
    let mut desk = Desk::new(&setup);
    loop {
        let mut driver = Driver::new(&setup, desk);
        let ended = AssertUnwindSafe(driver.run(&mut setup.commands)).catch_unwind().await;
        let Err(panic) = ended else {
            driver.desk.revoke_all(Reason::Shutdown);
            tell_the_rest(&mut setup);
            break;
        };
        desk = driver.desk;
        desk.revoke_all(Reason::Fault);
        setup.publisher.tell(What::LoopFailed { error: panic_text(&*panic) });
        // What was led must have stopped before it may be led again from here.
        desk.all_stopped(&mut setup.commands).await;
        tokio::time::sleep(setup.timing.beat).await;
    }
    setup.publisher.close();
}

/// Nobody hears commands any more; what was still to be told is told.
fn tell_the_rest(setup: &mut Setup) {
    setup.commands.close();
    while let Ok(command) = setup.commands.try_recv() {
        if let Command::Tell(what) = command {
            setup.publisher.tell(what);
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".to_owned())
}

/// An operation that has ended.
struct Done {
    input: Input,
    error: Option<String>,
}

struct Driver {
    engine: Engine,
    namespace: Name,
    store: SharedStore,
    clock: Arc<dyn Clock>,
    publisher: Publisher,
    entropy: KernelEntropy,
    /// Operations on their way.
    awaited: FuturesUnordered<BoxFuture<'static, Done>>,
    signals: BoxStream<'static, Signal>,
    patience: Duration,
    desk: Desk,
    historian: Historian,
    stopping: Option<oneshot::Sender<()>>,
    pulse: Arc<AtomicU64>,
    /// Whether there are handles left.
    wanted: bool,
    /// Since when only the store's word is missing for the end.
    alone_since: Option<Time>,
    /// The session whose witness is held.
    attested: Option<SessionId>,
    /// The last store error told, so that a broken store does not fill the log.
    last_error: Option<String>,
    slip: Option<Slip>,
}

impl Driver {
    fn new(setup: &Setup, desk: Desk) -> Self {
        let config = Config {
            node: setup.node.clone(),
            timing: setup.timing,
            class: setup.class,
            mutant: setup.mutant,
        };
        Self {
            engine: Engine::new(config),
            namespace: setup.namespace.clone(),
            store: setup.store.clone(),
            clock: setup.clock.clone(),
            publisher: setup.publisher.clone(),
            entropy: KernelEntropy,
            awaited: FuturesUnordered::new(),
            signals: setup.store.watch(&setup.namespace),
            // The engine gives up first; this only bounds how long a hung store is held on to.
            patience: 2 * setup.timing.op_timeout,
            historian: Historian::start(setup),
            desk,
            stopping: None,
            pulse: setup.pulse.clone(),
            wanted: true,
            alone_since: None,
            attested: None,
            last_error: None,
            slip: setup.slip,
        }
    }

    async fn run(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        for input in self.desk.opening_moves() {
            self.feed(input);
        }
        if let Some(done) = self.desk.stop_wanted() {
            self.command(Command::Stop { done });
        }
        while !self.engine.is_stopped() {
            self.pulse.store(self.clock.now().0, Ordering::Release);
            let forsaken_at = self.forsaken_at();
            if self.clock.now() >= forsaken_at {
                self.forsake();
                break;
            }
            let wake = self.desk.next_wake().min(self.engine.next_wake()).min(forsaken_at);
            let input = tokio::select! {
                biased;
                Some(done) = self.awaited.next(), if !self.awaited.is_empty() => {
                    // What the store said before it answered comes first: that it forgot, above all.
                    self.hear_signals();
                    self.done(done)
                }
                command = commands.recv(), if self.wanted => match command {
                    Some(command) => {
                        self.command(command);
                        continue;
                    }
                    // Nobody is left who could want anything.
                    None => {
                        self.wanted = false;
                        Input::Stop
                    }
                },
                Some(signal) = self.signals.next() => taken_in(signal),
                () = self.clock.sleep_until(wake) => Input::Wake,
            };
            self.feed(input);
        }
        self.historian.finish().await;
        if let Some(done) = self.stopping.take() {
            let _ = done.send(());
        }
    }

    /// When a node that is to stop, and whose work has ended, goes without the store's word: its session has run out by
    /// then, and others expel it. A program that outlives its store must not keep a thread for each node it ever had.
    fn forsaken_at(&mut self) -> Time {
        if (self.wanted && self.stopping.is_none()) || self.desk.has_work() {
            self.alone_since = None;
            return Time::NEVER;
        }
        let since = *self.alone_since.get_or_insert_with(|| self.clock.now());
        since.after(2 * self.engine.timing().ttl)
    }

    fn forsake(&mut self) {
        if let Some(session) = self.attested.take() {
            self.store.release(&self.namespace, session);
        }
    }

    /// Takes in the signals that have come already, but not for ever.
    fn hear_signals(&mut self) {
        for _ in 0..SIGNALS_AT_ONCE {
            let Some(Some(signal)) = self.signals.next().now_or_never() else { return };
            self.feed(taken_in(signal));
        }
    }

    fn command(&mut self, command: Command) {
        let input = match command {
            Command::Stand { role, standing, seat } => {
                self.desk.seat(&role, seat, Some(standing.clone()));
                Input::Stand { role, standing }
            }
            Command::Observe { role, seat } => {
                self.desk.seat(&role, seat, None);
                Input::Observe { role }
            }
            Command::Leave { role } => {
                return self.desk.leave(&role).into_iter().for_each(|input| self.feed(input));
            }
            Command::Release { role, token, reason } => Input::Release { role, token, reason },
            Command::Stopped { role, token } => {
                self.desk.stopped(&role, token);
                Input::Stopped { role, token }
            }
            Command::Describe { labels, address } => {
                self.desk.describe(&labels, address.as_ref());
                Input::Describe { labels, address }
            }
            Command::Tell(what) => return self.publisher.tell(what),
            Command::Stop { done } => {
                self.stopping = Some(done);
                Input::Stop
            }
            Command::ForceLoss => Input::ClockFault,
        };
        self.feed(input);
    }

    /// One step, and everything that follows from it at once.
    fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let now = Now { time: self.clock.now(), wall: self.clock.wall() };
            let input = if self.clock.fault() { Input::ClockFault } else { input };
            for output in self.engine.step(now, input, &mut self.entropy) {
                self.carry_out(output, &mut inputs);
            }
            self.desk.kill_stuck(now.time);
        }
    }

    fn carry_out(&mut self, output: Output, inputs: &mut Vec<Input>) {
        match output {
            Output::Read { op, query } => {
                let (store, namespace) = (self.store.clone(), self.namespace.clone());
                self.send(op, async move { Ok(Reply::Read(read(&store, &namespace, &query).await?)) });
            }
            Output::Write { op, writes } => {
                let (store, namespace, slip) = (self.store.clone(), self.namespace.clone(), self.slip);
                let written = async move { write(&store, &namespace, writes, slip).await };
                self.send(op, async move { Ok(Reply::Written(written.await?)) });
            }
            Output::Attest { session, takeover } => {
                self.attested = Some(session);
                let (store, namespace) = (self.store.clone(), self.namespace.clone());
                self.awaited.push(attest(store, namespace, session, takeover).boxed());
            }
            Output::Attend { session, witness, takeover } => {
                self.store.attend(&self.namespace, session, &witness, takeover);
            }
            Output::Ignore { session } => self.store.ignore(&self.namespace, session),
            Output::Release { session } => {
                self.attested.take_if(|held| *held == session);
                self.store.release(&self.namespace, session);
            }
            Output::Valid { until } => self.desk.valid_until(until),
            Output::Event(event) => self.event(event, inputs),
        }
    }

    fn send(
        &mut self,
        op: OpId,
        operation: impl Future<Output = Result<Reply, StoreError>> + Send + 'static,
    ) {
        let patience = self.patience;
        let answer = async move {
            let error = match tokio::time::timeout(patience, operation).await {
                Ok(Ok(reply)) => return Done { input: Input::Replied { op, reply }, error: None },
                Ok(Err(error)) => error,
                Err(_) => StoreError::unknown("store", "no answer in time"),
            };
            let reply = Reply::Failed(error.fate());
            Done { input: Input::Replied { op, reply }, error: Some(error.to_string()) }
        };
        self.awaited.push(answer.boxed());
    }

    /// A broken store says the same over and over: it is told once, until it works again or says something else.
    fn done(&mut self, done: Done) -> Input {
        if done.error.is_some() && done.error != self.last_error {
            let error = done.error.clone().unwrap_or_default();
            self.publisher.tell(What::StoreFailed { error });
        }
        self.last_error = done.error;
        done.input
    }

    fn event(&mut self, event: Told, inputs: &mut Vec<Input>) {
        if let Told::Checked = event {
            return self.desk.checked(&self.engine);
        }
        self.historian.note(&event);
        // Work is told before people are.
        self.desk.take(&event, &self.engine, inputs);
        self.desk.tell(event, self.clock.now());
    }
}

/// An error is no answer where the witness matters and may yet come: the engine gives up by itself, and asks anew.
async fn attest(store: SharedStore, namespace: Name, session: SessionId, takeover: Takeover) -> Done {
    match store.attest(&namespace, session, takeover).await {
        Ok(witness) => Done { input: Input::Attested { session, witness }, error: None },
        Err(error) if takeover == Takeover::OnDisconnect && error.retry() == Retry::Soon => {
            Done { input: Input::Wake, error: Some(error.to_string()) }
        }
        Err(error) => {
            tracing::warn!(%error, "no witness for this session: only its lease tells that it is gone");
            Done { input: Input::Attested { session, witness: None }, error: None }
        }
    }
}

fn taken_in(signal: Signal) -> Input {
    match signal {
        Signal::Changed(entry) => Input::Hinted(Hint::Changed(decode(entry))),
        Signal::Resync => Input::Hinted(Hint::Resync),
        Signal::Forgot => Input::Hinted(Hint::Forgot),
        Signal::Witnessed(evidence) => Input::Witnessed(evidence),
    }
}

fn decode(entry: Entry) -> tenure_core::Entry {
    let value = entry.value.to_record(&entry.key);
    tenure_core::Entry { key: entry.key, version: entry.version, value }
}

async fn read(
    store: &SharedStore,
    namespace: &Name,
    query: &tenure_core::Query,
) -> Result<Vec<tenure_core::Entry>, StoreError> {
    Ok(store.read(namespace, query).await?.into_iter().map(decode).collect())
}

async fn write(
    store: &SharedStore,
    namespace: &Name,
    writes: Vec<tenure_core::Write>,
    slip: Option<Slip>,
) -> Result<Vec<Outcome>, StoreError> {
    let encode = |write: tenure_core::Write| Write {
        key: write.key,
        expect: write.expect,
        put: write.put.map(|(version, record)| (version, Value::of_record(&record))),
        ring: write.ring,
        witnessed: write.witnessed,
    };
    let writes: Vec<Write> = writes.into_iter().map(encode).collect();
    let outcomes = match store.write(namespace, &writes).await {
        Err(_) if Slip::SilenceIsSuccess.made(slip) => {
            writes.iter().map(|_| store::Outcome::Applied).collect()
        }
        answer => answer?,
    };
    let believed = |found: Outcome| match found {
        Outcome::Conflict(_) if Slip::ConflictIsSuccess.made(slip) => Outcome::Applied,
        found => found,
    };
    Ok(outcomes.into_iter().map(outcome).map(believed).collect())
}

fn outcome(outcome: store::Outcome) -> Outcome {
    match outcome {
        store::Outcome::Applied => Outcome::Applied,
        store::Outcome::Conflict(found) => Outcome::Conflict(found.map(decode)),
        store::Outcome::Failed(error) => Outcome::Failed(error.fate()),
    }
}
