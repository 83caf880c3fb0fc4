//! The driver: a thin loop around the engine, on the thread of its store's connections.
//!
//! *Store changes → hint → driver → `step` → read → `step` → compare-and-set → `step` → event → publisher → your code.*
//! That thread has a runtime of its own, so that neither blocking work nor a busy application can delay a beat, and an
//! answer is processed where it arrives; a store without such a thread gets one for the loop. Callbacks never run inside it.
//! If the engine ever panics, everything that was led is lost first, and the loop is started anew afterwards.

mod guard_keeper;
mod history;
mod store_contact;
mod tenure_table;
mod waiting_hints;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt};
use tenure_core::engine::{Class, Config};
use tenure_core::io::Candidacy;
use tenure_core::record::EndReason;
use tenure_core::{
    Engine, Event as EngineEvent, Hint, Input, Now, OpId, Outcome, Output, Pairing, Reply, Time,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Clock, SuspendTimer};
use crate::event::EventKind;
use crate::fault_injection::DriverFault;
use crate::publisher::Publisher;
use crate::store::entropy::KernelEntropy;
use crate::store::{
    self, Entry, Exchanged, LivenessLocks as _, Query, Retry, SharedStore, Signal, StoreError, Value, Write,
};
use crate::{Name, SessionId, Takeover, Timing, Token};

pub(crate) use guard_keeper::CandidateGuard;
use history::HistoryRecorder;
pub(crate) use store_contact::StoreContact;
pub(crate) use tenure_table::RoleSlot;
use tenure_table::TenureTable;
use waiting_hints::WaitingHints;

/// The store is asked once in so many leases what it can promise.
const DESCRIBE_EVERY: u32 = 12;

/// The number of signals taken before an answer is.
const MAX_SIGNALS_AT_ONCE: usize = 64;

/// A command from a handle to the loop.
#[derive(Debug)]
pub(crate) enum Command {
    Campaign {
        role: Name,
        candidacy: Candidacy,
        slot: Arc<RoleSlot>,
    },
    Observe {
        role: Name,
        slot: Arc<RoleSlot>,
    },
    /// The last candidate, or the last observer, of a role is gone.
    Leave {
        role: Name,
    },
    Release {
        role: Name,
        token: Token,
        reason: EndReason,
    },
    Stopped {
        role: Name,
        token: Token,
    },
    /// The guard lock of a tenure is held.
    GuardHeld {
        role: Name,
        token: Token,
    },
    /// The guard lock of a tenure runs out, or is another's.
    GuardLost {
        role: Name,
        token: Token,
    },
    Describe {
        labels: BTreeMap<String, String>,
        address: Option<String>,
    },
    /// Publish this event after what earlier commands cause: the end of work comes after the loss of its tenure.
    Publish(EventKind),
    /// Give everything up; answered when nothing is left.
    Stop {
        done: oneshot::Sender<()>,
    },
    /// For tests: the session is lost at once.
    ForceLoss,
}

/// Everything that a loop needs.
pub(crate) struct DriverConfig {
    pub(crate) node: Name,
    pub(crate) namespace: Name,
    pub(crate) timing: Timing,
    pub(crate) store: SharedStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) publisher: Publisher,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) address: Option<String>,
    pub(crate) abort_if_stuck: bool,
    pub(crate) election_checks: bool,
    /// When the loop last turned.
    pub(crate) last_turn: Arc<AtomicU64>,
    /// Whether the store has answered yet.
    pub(crate) contact: watch::Sender<StoreContact>,
    /// The faults to inject, for the negative control.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<tenure_core::Mutant>,
    pub(crate) fault: Option<DriverFault>,
}

/// Starts the loop on the thread of the store's connections, or on one of its own.
pub(crate) fn spawn(config: DriverConfig) -> std::io::Result<()> {
    let (store, name) = (config.store.clone(), format!("tenure-{}", config.node));
    let alone = match store.thread() {
        Some(thread) => thread.host(supervise(config)).err(),
        None => Some(supervise(config)),
    };
    let Some(alone) = alone else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name).spawn(move || runtime.block_on(alone)).map(drop)
}

/// Runs the loop; if it panics, everything led is lost first, and then it is started anew.
async fn supervise(mut config: DriverConfig) {
    let mut table = TenureTable::new(&config);
    let Some(class) = store_contact::connect(&mut config, &mut table).await else {
        table.revoke_all(EndReason::Shutdown);
        conclude(&mut config, table.take_stop_request());
        return;
    };
    loop {
        let mut driver = Driver::new(&config, class, table);
        let ended = AssertUnwindSafe(driver.run(&mut config.commands)).catch_unwind().await;
        let Err(panic) = ended else {
            driver.table.revoke_all(EndReason::Shutdown);
            conclude(&mut config, driver.stopping.take());
            return;
        };
        table = driver.table;
        table.revoke_all(EndReason::Fault);
        config.publisher.publish(EventKind::LoopFailed { error: panic_text(&*panic) });
        // What was led must have stopped before it may be led again from here.
        table.wait_until_stopped(&mut config.commands).await;
        tokio::time::sleep(config.timing.beat).await;
    }
}

/// Publishes what is left, and then tells the caller that waits for the end: its process may end at once.
fn conclude(config: &mut DriverConfig, done: Option<oneshot::Sender<()>>) {
    publish_pending(config);
    config.publisher.close();
    if let Some(done) = done {
        let _ = done.send(());
    }
}

/// No command is taken any more; events that were still to be published are.
fn publish_pending(config: &mut DriverConfig) {
    config.commands.close();
    while let Ok(command) = config.commands.try_recv() {
        if let Command::Publish(kind) = command {
            config.publisher.publish(kind);
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".to_owned())
}

/// An operation that has ended.
struct CompletedOperation {
    input: Input,
    error: Option<StoreError>,
    /// Why the store refuses a write of a batch for good, where the others may have succeeded.
    refusal: Option<StoreError>,
    /// The operation that shared its round trip.
    then: Option<Box<Self>>,
}

impl CompletedOperation {
    fn new(input: Input, error: Option<StoreError>) -> Self {
        Self { input, error, refusal: None, then: None }
    }

    fn failed(op: OpId, error: StoreError) -> Self {
        Self::new(Input::Replied { op, reply: Reply::Failed(error.fate()) }, Some(error))
    }

    fn read(op: OpId, answer: Result<Vec<Entry>, StoreError>) -> Self {
        match answer {
            Ok(found) => {
                let reply = Reply::Read(found.into_iter().map(decode).collect());
                Self::new(Input::Replied { op, reply }, None)
            }
            Err(error) => Self::failed(op, error),
        }
    }

    fn written(
        op: OpId,
        writes: &[Write],
        answer: Result<Vec<store::Outcome>, StoreError>,
        fault: Option<DriverFault>,
    ) -> Self {
        let outcomes = match answer {
            Ok(outcomes) => outcomes,
            Err(_) if DriverFault::SilenceIsSuccess.is_injected(fault) => {
                writes.iter().map(|_| store::Outcome::Applied).collect()
            }
            Err(error) => return Self::failed(op, error),
        };
        let refusal = outcomes.iter().find_map(refusal);
        let believed = |found: Outcome| match found {
            Outcome::Conflict(_) if DriverFault::ConflictIsSuccess.is_injected(fault) => Outcome::Applied,
            found => found,
        };
        let reply = Reply::Written(outcomes.into_iter().map(outcome).map(believed).collect());
        Self { refusal, ..Self::new(Input::Replied { op, reply }, None) }
    }
}

struct Driver {
    engine: Engine,
    namespace: Name,
    store: SharedStore,
    clock: Arc<dyn Clock>,
    /// Wakes the loop after a suspend, during which the runtime's timers stand still.
    alarm: Option<Box<dyn SuspendTimer>>,
    publisher: Publisher,
    entropy: KernelEntropy,
    /// Operations on their way.
    in_flight: FuturesUnordered<BoxFuture<'static, CompletedOperation>>,
    signals: BoxStream<'static, Signal>,
    waiting_hints: WaitingHints,
    patience: Duration,
    table: TenureTable,
    history: HistoryRecorder,
    stopping: Option<oneshot::Sender<()>>,
    last_turn: Arc<AtomicU64>,
    contact: watch::Sender<StoreContact>,
    /// When the store is asked again what it can promise.
    describe_at: Time,
    /// Whether there are handles left.
    has_handles: bool,
    /// When the loop turns if nothing else happens.
    wake_at: Time,
    /// Since when only the store's word is missing for the end.
    idle_since: Option<Time>,
    /// The session whose liveness lock is held.
    acquired: Option<SessionId>,
    /// The last store error published, so that a broken store does not fill the log.
    last_error: Option<String>,
    last_refusal: Option<String>,
    fault: Option<DriverFault>,
}

impl Driver {
    fn new(config: &DriverConfig, class: Class, table: TenureTable) -> Self {
        let engine = Config::new(config.node.clone(), config.timing, class);
        #[cfg(feature = "mutants")]
        let engine = engine.with_mutant(config.mutant);
        Self {
            engine: Engine::new(engine),
            namespace: config.namespace.clone(),
            store: config.store.clone(),
            clock: config.clock.clone(),
            alarm: config.clock.alarm(),
            publisher: config.publisher.clone(),
            entropy: KernelEntropy,
            in_flight: FuturesUnordered::new(),
            signals: config.store.watch(&config.namespace),
            waiting_hints: WaitingHints::default(),
            // The engine gives up first; this only bounds how long a hung store is held on to.
            patience: 2 * config.timing.op_timeout,
            history: HistoryRecorder::start(config),
            table,
            stopping: None,
            last_turn: config.last_turn.clone(),
            contact: config.contact.clone(),
            describe_at: config.clock.now().after(DESCRIBE_EVERY * config.timing.ttl),
            has_handles: true,
            wake_at: Time::from_nanos(0),
            idle_since: None,
            acquired: None,
            last_error: None,
            last_refusal: None,
            fault: config.fault,
        }
    }

    async fn run(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        for input in self.table.initial_inputs() {
            self.feed(input);
        }
        if let Some(done) = self.table.take_stop_request() {
            self.command(Command::Stop { done });
        }
        while !self.engine.is_stopped() {
            self.last_turn.store(self.clock.now().as_nanos(), Ordering::Release);
            self.publisher.flush_bursts();
            self.describe();
            self.follow_waiting_hints();
            let abandon_at = self.abandon_at();
            if self.clock.now() >= abandon_at {
                self.abandon();
                break;
            }
            let wakes = [self.table.next_wake(), self.engine.next_wake(), self.waiting_hints.due()];
            let wake = wakes.into_iter().fold(abandon_at, Time::min);
            self.wake_at = wake;
            let input = tokio::select! {
                biased;
                Some(done) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    // What the store said before it answered comes first: that it forgot, above all.
                    self.drain_signals();
                    self.on_completed(done);
                    continue;
                }
                command = commands.recv(), if self.has_handles => match command {
                    Some(command) => {
                        self.command(command);
                        continue;
                    }
                    // Every handle is gone.
                    None => {
                        self.has_handles = false;
                        Input::Stop
                    }
                },
                Some(command) = self.table.next_of_keepers() => {
                    self.command(command);
                    continue;
                }
                Some(signal) = self.signals.next() => {
                    self.on_signal(signal);
                    self.drain_signals();
                    continue;
                }
                () = self.clock.sleep_until(wake) => Input::Wake,
                () = alarm_fired(&mut self.alarm, wake.since(self.clock.now())) => Input::Wake,
            };
            self.feed(input);
        }
        self.history.finish().await;
    }

    /// When a node that is to stop, and whose work has ended, goes without the store's word: its session has run out by
    /// then, and others expel it. A program that outlives its store must not keep a thread for each node it ever had.
    fn abandon_at(&mut self) -> Time {
        if (self.has_handles && self.stopping.is_none()) || self.table.has_work() {
            self.idle_since = None;
            return Time::NEVER;
        }
        let since = *self.idle_since.get_or_insert_with(|| self.clock.now());
        since.after(2 * self.engine.timing().ttl)
    }

    fn abandon(&mut self) {
        if let Some(session) = self.acquired.take() {
            self.store.liveness().release_lock(&self.namespace, session);
        }
    }

    /// Asks the store now and then whether it still keeps what it acknowledges: a replica may follow it by now. What it
    /// gained counts from the next start.
    fn describe(&mut self) {
        let now = self.clock.now();
        if self.engine.class() != Class::B || now < self.describe_at {
            return;
        }
        self.describe_at = now.after(DESCRIBE_EVERY * self.engine.timing().ttl);
        let (store, publisher, patience) = (self.store.clone(), self.publisher.clone(), self.patience);
        let answer = async move {
            let input = match tokio::time::timeout(patience, store.describe()).await {
                Ok(Ok(description)) if description.class == Class::C => {
                    publisher.publish(EventKind::StoreWeakened { why: description.remarks.join("; ") });
                    Input::Weakened
                }
                _ => Input::Wake,
            };
            CompletedOperation::new(input, None)
        };
        self.in_flight.push(answer.boxed());
    }

    /// Takes in the signals that have come already, but not for ever.
    fn drain_signals(&mut self) {
        for _ in 0..MAX_SIGNALS_AT_ONCE {
            let Some(Some(signal)) = self.signals.next().now_or_never() else { return };
            self.on_signal(signal);
        }
    }

    /// Among many nodes most changes concern others: they are worth no step, unless it is time for one.
    fn on_signal(&mut self, signal: Signal) {
        let concerns_others = matches!(&signal, Signal::Changed(key) if !self.engine.heeds(key));
        if concerns_others && self.clock.now() < self.wake_at {
            return;
        }
        if let Signal::Changed(key) = &signal
            && self.engine.may_wait(key)
        {
            return self.waiting_hints.add(key.clone(), self.clock.now());
        }
        if matches!(signal, Signal::Forgot) {
            self.describe_at = self.clock.now();
        }
        self.feed(signal_to_input(signal));
    }

    fn follow_waiting_hints(&mut self) {
        for key in self.waiting_hints.take_due(self.clock.now()) {
            self.feed(signal_to_input(Signal::Changed(key)));
        }
    }

    fn command(&mut self, command: Command) {
        let input = match command {
            Command::Campaign { role, candidacy, slot } => {
                self.table.register(&role, slot, Some(candidacy.clone()));
                Input::Campaign { role, candidacy }
            }
            Command::Observe { role, slot } => {
                self.table.register(&role, slot, None);
                Input::Observe { role }
            }
            Command::Leave { role } => {
                return self.table.leave(&role).into_iter().for_each(|input| self.feed(input));
            }
            Command::Release { role, token, reason } => Input::Resign { role, token, reason },
            Command::Stopped { role, token } => {
                self.table.work_stopped(&role, token);
                Input::WorkStopped { role, token }
            }
            Command::GuardHeld { role, token } => return self.table.guard_held(&role, token),
            Command::GuardLost { .. } if DriverFault::GuardIgnored.is_injected(self.fault) => return,
            Command::GuardLost { role, token } => {
                self.table.guard_lost(&role, token);
                Input::Resign { role, token, reason: EndReason::GuardLost }
            }
            Command::Describe { labels, address } => {
                self.table.describe(&labels, address.as_ref());
                Input::Describe { labels, address }
            }
            Command::Publish(kind) => return self.publisher.publish(kind),
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
            let outputs = self.engine.step(now, input, &mut self.entropy);
            let shared = outputs.iter().find_map(|output| match output {
                Output::Read { with, .. } => with.map(Pairing::write),
                _ => None,
            });
            let mut paired = None;
            for output in outputs {
                match output {
                    Output::Write { op, writes } if shared == Some(op) => paired = Some((op, writes)),
                    output => self.perform(output, &mut paired, &mut inputs),
                }
            }
            self.table.kill_stuck(now.time);
        }
    }

    /// `paired`: a write that waits for the read of this step, with which it goes out.
    fn perform(
        &mut self,
        output: Output,
        paired: &mut Option<(OpId, Vec<tenure_core::Write>)>,
        inputs: &mut Vec<Input>,
    ) {
        match output {
            Output::Read { op, query, with } => match (with, paired.take()) {
                (Some(pairing), Some((_, writes))) => self.send_pair(pairing, encode(writes), (op, query)),
                _ => {
                    let (store, namespace) = (self.store.clone(), self.namespace.clone());
                    let read =
                        async move { CompletedOperation::read(op, store.read(&namespace, &query).await) };
                    self.send(op, read);
                }
            },
            Output::Write { op, writes } => {
                let (store, namespace, fault) = (self.store.clone(), self.namespace.clone(), self.fault);
                self.send(op, async move {
                    let writes = encode(writes);
                    let answer = store.write(&namespace, &writes).await;
                    CompletedOperation::written(op, &writes, answer, fault)
                });
            }
            Output::AcquireLock { session, takeover } => {
                self.acquired = Some(session);
                let (store, namespace) = (self.store.clone(), self.namespace.clone());
                self.in_flight.push(acquire_lock(store, namespace, session, takeover).boxed());
            }
            Output::WatchLock { session, lock, takeover } => {
                self.store.liveness().watch_lock(&self.namespace, session, &lock, takeover);
            }
            Output::UnwatchLock { session } => self.store.liveness().unwatch_lock(&self.namespace, session),
            Output::ReleaseLock { session } => {
                self.acquired.take_if(|held| *held == session);
                self.store.liveness().release_lock(&self.namespace, session);
            }
            Output::Valid { until } => self.table.valid_until(until),
            Output::Event(event) => self.on_event(event, inputs),
        }
    }

    fn send(&mut self, op: OpId, operation: impl Future<Output = CompletedOperation> + Send + 'static) {
        let patience = self.patience;
        let answer = async move {
            let answered = tokio::time::timeout(patience, operation).await;
            answered.unwrap_or_else(|_| CompletedOperation::failed(op, unanswered()))
        };
        self.in_flight.push(answer.boxed());
    }

    /// Sends a write and the poll that goes with it. The answer to the write is taken in first.
    fn send_pair(&mut self, pairing: Pairing, writes: Vec<Write>, (poll, query): (OpId, Query)) {
        let (store, namespace, fault) = (self.store.clone(), self.namespace.clone(), self.fault);
        let patience = self.patience;
        let answer = async move {
            let both = match pairing {
                Pairing::Beside(_) => store.exchange(&namespace, &writes, &query),
                Pairing::After(_) => store.write_then_read(&namespace, &writes, &query),
            };
            let both = tokio::time::timeout(patience, both).await;
            let Exchanged { written, read } = both.unwrap_or_else(|_| Exchanged::failed(&unanswered()));
            let then = Some(Box::new(CompletedOperation::read(poll, read)));
            CompletedOperation {
                then,
                ..CompletedOperation::written(pairing.write(), &writes, written, fault)
            }
        };
        self.in_flight.push(answer.boxed());
    }

    fn on_completed(&mut self, done: CompletedOperation) {
        let mut next = Some(Box::new(done));
        while let Some(mut done) = next {
            next = done.then.take();
            let input = self.on_answer(*done);
            self.feed(input);
        }
    }

    /// A broken store repeats its error: it is published once, until the store works again or fails differently.
    fn on_answer(&mut self, done: CompletedOperation) -> Input {
        let said = done.error.as_ref().map(ToString::to_string);
        if let Some(error) = said.clone().filter(|_| said != self.last_error) {
            self.publisher.publish(EventKind::StoreFailed { error });
        }
        self.last_error = said;
        self.report_refusal(done.refusal.as_ref());
        let permanent = done.error.filter(|error| error.retry() == Retry::Never);
        if let Some(error) = permanent.or(done.refusal) {
            store_contact::mark_refused(&self.contact, error);
        }
        done.input
    }

    /// One write of many that the store refuses for good is repeated between others that succeed: it is published once, until
    /// another one is refused.
    fn report_refusal(&mut self, refusal: Option<&StoreError>) {
        let Some(error) = refusal.map(ToString::to_string) else { return };
        if self.last_refusal.as_ref() != Some(&error) {
            self.publisher.publish(EventKind::StoreFailed { error: error.clone() });
            self.last_refusal = Some(error);
        }
    }

    fn on_event(&mut self, mut event: EngineEvent, inputs: &mut Vec<Input>) {
        // To the engine it is a resignation; the work has to stop before the lock runs out.
        if let EngineEvent::Draining { reason: EndReason::GuardLost, forced, .. } = &mut event {
            *forced = true;
        }
        if let EngineEvent::Polled = event {
            return self.table.after_poll(&self.engine);
        }
        if let EngineEvent::SessionOpened { .. } = event {
            self.contact.send_replace(StoreContact::Admitted);
        }
        let turned = Time::from_nanos(self.last_turn.load(Ordering::Acquire));
        self.history.record(&event, self.clock.now().since(turned));
        // Work hears of it before listeners do.
        self.table.apply(&event, &self.engine, inputs);
        self.table.publish(event, self.clock.now());
    }
}

/// Waits for the alarm, if there is one.
async fn alarm_fired(alarm: &mut Option<Box<dyn SuspendTimer>>, span: Duration) {
    match alarm {
        Some(alarm) => alarm.fire_after(span).await,
        None => std::future::pending().await,
    }
}

/// An error is no answer where the lock matters and may yet come: the engine gives up by itself, and asks anew.
async fn acquire_lock(
    store: SharedStore,
    namespace: Name,
    session: SessionId,
    takeover: Takeover,
) -> CompletedOperation {
    match store.liveness().acquire_lock(&namespace, session, takeover).await {
        Ok(lock) => CompletedOperation::new(Input::LockAcquired { session, lock }, None),
        Err(error) if takeover == Takeover::OnDisconnect && error.retry() == Retry::Soon => {
            CompletedOperation::new(Input::Wake, Some(error))
        }
        Err(error) => {
            tracing::warn!(%error, "no liveness lock for this session: only its lease tells that it is gone");
            CompletedOperation::new(Input::LockAcquired { session, lock: None }, None)
        }
    }
}

fn signal_to_input(signal: Signal) -> Input {
    match signal {
        Signal::Changed(key) => Input::Hinted(Hint::Changed(key)),
        Signal::Resync => Input::Hinted(Hint::Resync),
        Signal::Forgot => Input::Hinted(Hint::Forgot),
        Signal::UnknownLease(ttl) => Input::Hinted(Hint::UnknownLease(ttl)),
        Signal::Evidence(evidence) => Input::Evidence(evidence),
    }
}

fn decode(entry: Entry) -> tenure_core::Entry {
    let value = entry.value.to_record(&entry.key);
    tenure_core::Entry { key: entry.key, version: entry.version, value }
}

fn unanswered() -> StoreError {
    StoreError::unknown("store", "no answer in time")
}

fn encode(writes: Vec<tenure_core::Write>) -> Vec<Write> {
    let encode = |write: tenure_core::Write| Write {
        key: write.key,
        expect: write.expect,
        put: write.put.map(|(version, record)| (version, Value::of_record(&record))),
        notify: write.notify,
        requires_lock: write.requires_lock,
    };
    writes.into_iter().map(encode).collect()
}

/// Why the store refuses a write, if a person has to do something before it would not.
fn refusal(outcome: &store::Outcome) -> Option<StoreError> {
    match outcome {
        store::Outcome::Failed(error) if error.retry() == Retry::Never => Some(error.clone()),
        _ => None,
    }
}

fn outcome(outcome: store::Outcome) -> Outcome {
    match outcome {
        store::Outcome::Applied => Outcome::Applied,
        store::Outcome::Conflict(found) => Outcome::Conflict(found.map(decode)),
        store::Outcome::Failed(error) => Outcome::Failed(error.fate()),
    }
}
