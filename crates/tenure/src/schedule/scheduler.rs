//! The scheduler: one loop that keeps the ledgers of all tasks, and starts the runs that it has written there.
//!
//! *A tick comes due → entered by compare-and-set under the token → acknowledged → leadership checked → started → ended →
//! entered.* The scheduler alone writes, in batches, one write at a time. While nothing is due it sleeps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure_core::{Epoch, Key, Kind, Query, Time, Version};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::counters::TaskCounters;
use super::ledger::{FORMAT, LedgerWriter, PassedTicks, RunCause};
use super::run::{self, FinishedRun, RunGate};
use super::settings::{StopPolicy, TaskPlacement};
use super::task::{RunContext, Task};
use super::task_state::{ActiveRun, LedgerDraft, LedgerEdit, LoggedTrouble, TaskState};
use crate::event::EventKind;
use crate::ledger::TaskRecord;
use crate::store::{MAX_BATCH, Outcome, Retry, Signal, StoreError, Value, Write};
use crate::work::WorkerContext;
use crate::{Name, Node, Timestamp, Token};

/// The wall clock may be set: it is looked at this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(20);
/// The number of writes on top of what others wrote, before a pause.
const MAX_ATTEMPTS: u32 = 20;
/// Tasks up to here are read by name; beyond that all of the kind at once.
const MAX_READ_BY_NAME: usize = 200;

type TasksReceiver = watch::Receiver<super::Tasks>;

/// See the [module](self).
pub(super) struct Scheduler {
    node: Node,
    gate: RunGate,
    shadow: bool,
    counters: TaskCounters,
    /// The tasks of the schedule; they may change at any time.
    tasks: TasksReceiver,
    entries: Vec<TaskState>,
    epoch: Epoch,
    positions: BTreeMap<Key, usize>,
    agenda: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// Tasks with edits to write.
    dirty: BTreeSet<usize>,
    /// Tasks whose registers others may have changed.
    stale: BTreeSet<usize>,
    runs: JoinSet<FinishedRun>,
    signals: BoxStream<'static, Signal>,
    /// The store failed: not before then.
    retry_at: Option<Time>,
    /// Those whose registers the store refuses to write until a person has done something, and when to try again.
    refused: BTreeSet<usize>,
    refused_until: Time,
    /// Why the store could not be asked.
    trouble: LoggedTrouble,
}

impl Scheduler {
    pub(super) fn of_leader(
        context: &WorkerContext,
        tasks: TasksReceiver,
        counters: TaskCounters,
        shadow: bool,
    ) -> Self {
        let slack = context.node().timing().kill_slack;
        let gate = RunGate::Lead(context.lead().clone(), slack);
        Self::new(context.node().clone(), gate, tasks, counters, shadow)
    }

    pub(super) fn of_node(node: &Node, tasks: TasksReceiver, counters: TaskCounters) -> Self {
        let life = Token::new(node.clock().wall().as_micros()).min(Token::IMPLAUSIBLE);
        Self::new(node.clone(), RunGate::Node(life), tasks, counters, false)
    }

    fn new(node: Node, gate: RunGate, tasks: TasksReceiver, counters: TaskCounters, shadow: bool) -> Self {
        let signals = node.store().watch(node.namespace());
        Self {
            node,
            gate,
            shadow,
            counters,
            tasks,
            entries: Vec::new(),
            epoch: Epoch::new(0),
            positions: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            dirty: BTreeSet::new(),
            stale: BTreeSet::new(),
            runs: JoinSet::new(),
            signals,
            retry_at: None,
            refused: BTreeSet::new(),
            refused_until: Time::NEVER,
            trouble: LoggedTrouble::default(),
        }
    }

    /// Keeps the ledger until told to stop; then no run begins any more, and those that go on may finish until `kill`.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>, kill: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        tokio::select! {
            biased;
            () = &mut stop => return,
            () = self.open() => {}
        }
        loop {
            // An exchange with the store is never cut short: what it entered must be known.
            if self.has_to_write() {
                self.sync().await;
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = self.wait(), if !self.has_to_write() => {}
                () = std::future::ready(()), if self.has_to_write() => {}
            }
        }
        self.wind_down(kill).await;
    }

    /// Reads the whole ledger; tries until that works.
    async fn open(&mut self) {
        while let Err(error) = self.read_ledger().await {
            if self.trouble.is_new(&error.to_string()) {
                tracing::warn!(%error, "the ledger cannot be read; nothing is started until it can");
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    async fn read_ledger(&mut self) -> Result<(), StoreError> {
        let (store, namespace) = (self.node.store().clone(), self.node.namespace().clone());
        let Some(epoch) = crate::operator::epoch(&store, &namespace).await? else {
            return Err(StoreError::not_applied("ledger", "this namespace is not there yet"));
        };
        self.epoch = epoch;
        self.agenda.clear();
        self.entries = self.current_tasks().into_iter().map(|task| self.entry(task)).collect();
        self.positions =
            self.entries.iter().enumerate().map(|(nth, entry)| (entry.key.clone(), nth)).collect();
        let everything: Vec<usize> = (0..self.entries.len()).collect();
        self.refresh(&everything).await?;
        if let RunGate::Node(life) = &mut self.gate {
            let highest = self.entries.iter().map(|entry| entry.base.token.get()).max().unwrap_or(0);
            *life = Token::new(life.get().max(highest + 1));
        }
        self.adopt(&everything).await
    }

    /// The tasks that are run here, as of now.
    fn current_tasks(&mut self) -> Vec<Arc<Task>> {
        let place = if self.gate.lead().is_some() { TaskPlacement::Leader } else { TaskPlacement::EveryNode };
        let tasks = self.tasks.borrow_and_update();
        tasks.values().filter(|task| task.settings.place == place).cloned().collect()
    }

    /// Other tasks, or other settings for them. New ones are read first; what has begun goes on.
    fn renew(&mut self) {
        let mut offered: BTreeMap<Name, Arc<Task>> =
            self.current_tasks().into_iter().map(|task| (task.settings.name.clone(), task)).collect();
        let now = self.wall();
        self.agenda.clear();
        for nth in 0..self.entries.len() {
            let entry = &mut self.entries[nth];
            let task = offered.remove(entry.name());
            if task.is_some() || !entry.retired {
                entry.renew(task);
            }
            if entry.adopted {
                self.agenda.extend((!entry.retired).then_some(Reverse((now, nth))));
                self.reconcile(nth);
            }
        }
        for task in offered.into_values() {
            let entry = self.entry(task);
            self.positions.insert(entry.key.clone(), self.entries.len());
            self.stale.insert(self.entries.len());
            self.entries.push(entry);
        }
    }

    /// Registers that were read for the first time: from now on their ticks are kept here.
    async fn adopt(&mut self, read: &[usize]) -> Result<(), StoreError> {
        let new: Vec<usize> = read.iter().copied().filter(|nth| !self.entries[*nth].adopted).collect();
        self.take_over_from_other_roles(&new).await?;
        let now = self.wall();
        for nth in new {
            let entry = &mut self.entries[nth];
            entry.adopted = true;
            if entry.retired {
                entry.edits.clear();
            } else {
                self.agenda.push(Reverse((now, nth)));
                self.reconcile(nth);
            }
        }
        Ok(())
    }

    fn entry(&self, task: Arc<Task>) -> TaskState {
        let (epoch, name) = (self.epoch, task.settings.name.clone());
        match self.gate.lead() {
            Some(lead) => {
                let key = Key::Named(epoch, Kind::Task, name);
                TaskState::new(task, key, Some(lead.role().clone()), None)
            }
            None => {
                let node = self.node.name().clone();
                let own = format!("{name}.{node}");
                // A name that is too long for both is cut; the record says whose it is.
                let own: String = own.chars().take(Name::MAX_LEN).collect();
                let key = Key::Named(epoch, Kind::Task, Name::new(own).unwrap_or(name));
                TaskState::new(task, key, None, Some(node))
            }
        }
    }

    /// Reads some registers.
    async fn refresh(&mut self, which: &[usize]) -> Result<(), StoreError> {
        if which.is_empty() {
            return Ok(());
        }
        let query = if which.len() <= MAX_READ_BY_NAME {
            Query {
                keys: which.iter().map(|nth| self.entries[*nth].key.clone()).collect(),
                kinds: Vec::new(),
            }
        } else {
            Query { keys: Vec::new(), kinds: vec![(self.epoch, Kind::Task)] }
        };
        for found in self.node.store().read(self.node.namespace(), &query).await? {
            let Some(nth) = self.positions.get(&found.key).copied() else { continue };
            let _ = self.load(nth, found.version, &found.value);
        }
        Ok(())
    }

    /// False if the register is not ours to write: then nothing of the task is run.
    fn load(&mut self, nth: usize, version: Version, value: &Value) -> bool {
        let entry = &mut self.entries[nth];
        let fault = match value.parse::<TaskRecord>() {
            Ok(record) if record.form > FORMAT => "it was written by a newer version".to_owned(),
            // A leader that went on from it would carry it into all the others.
            Ok(record) if record.token > Token::IMPLAUSIBLE => {
                format!("no node led under token {}", record.token)
            }
            Ok(record) if record.task != *entry.name() || record.node != entry.base.node => {
                format!("it belongs to task {}; give this one another name", record.task)
            }
            Ok(record) => {
                entry.load(version, record);
                entry.trouble.is_over();
                return true;
            }
            Err(error) => error.to_string(),
        };
        if entry.trouble.is_new(&fault) {
            tracing::error!(register = %entry.key, fault, "this register cannot be used, so that its task is not run");
        }
        entry.edits.clear();
        self.dirty.remove(&nth);
        false
    }

    /// A task that moved here from a role with higher tokens: its register begins anew, with its past.
    async fn take_over_from_other_roles(&mut self, new: &[usize]) -> Result<(), StoreError> {
        let Some(lead) = self.gate.lead() else { return Ok(()) };
        let (role, token) = (lead.role().clone(), lead.token());
        for nth in new {
            let entry = &mut self.entries[*nth];
            if entry.base.role.as_ref() == Some(&role) {
                continue;
            }
            if entry.version.is_some() && entry.base.token > token {
                let write = Write {
                    key: entry.key.clone(),
                    expect: entry.version,
                    put: None,
                    notify: false,
                    requires_lock: false,
                };
                let outcome = self.node.store().write(self.node.namespace(), &[write]).await?.pop();
                if !matches!(outcome, Some(Outcome::Applied)) {
                    return Err(StoreError::not_applied(
                        "ledger",
                        "the leader of another role runs this task",
                    ));
                }
                entry.version = None;
            }
            (entry.base.role, entry.base.token) = (Some(role.clone()), Token::new(0));
            for run in &mut entry.base.runs {
                run.token = Token::new(0);
            }
        }
        Ok(())
    }

    fn reconcile(&mut self, nth: usize) {
        let (token, now, shadow) = (self.gate.token(), self.wall(), self.shadow);
        let entry = &mut self.entries[nth];
        entry.reconcile(token, now, shadow);
        if !entry.edits.is_empty() {
            self.dirty.insert(nth);
        }
    }

    /// Whether there is something to enter or to read, and the store is to be asked now.
    fn has_to_write(&self) -> bool {
        let now = self.node.clock().now();
        self.retry_at.is_none_or(|at| at <= now) && (!self.stale.is_empty() || !self.dirty.is_empty())
    }

    /// Waits for something to happen. Cancel-safe.
    async fn wait(&mut self) {
        let wake = self.wake();
        let clock = self.node.clock().clone();
        tokio::select! {
            biased;
            Some(ended) = self.runs.join_next(), if !self.runs.is_empty() => {
                self.ended(ended.ok());
                while let Some(ended) = self.runs.try_join_next() {
                    self.ended(ended.ok());
                }
            }
            Ok(()) = self.tasks.changed() => self.renew(),
            Some(signal) = self.signals.next() => self.on_signal(&signal),
            () = clock.sleep_until(wake) => self.come_due(),
        }
    }

    /// When time alone asks for something.
    fn wake(&self) -> Time {
        let now = self.node.clock().now();
        let due = self.agenda.peek().map_or(Timestamp::from_micros(u64::MAX), |Reverse((at, _))| *at);
        let wait =
            Duration::from_micros(due.as_micros().saturating_sub(self.wall().as_micros())).min(LONGEST_SLEEP);
        let retry = if self.refused.is_empty() { Time::NEVER } else { self.refused_until };
        now.after(wait).min(self.retry_at.unwrap_or(Time::NEVER)).min(retry)
    }

    /// Plans anew, now and then, what the store refused.
    fn retry_refused(&mut self) {
        if self.node.clock().now() < self.refused_until {
            return;
        }
        let now = self.wall();
        for nth in std::mem::take(&mut self.refused) {
            // The agenda knows already when it is due next.
            let _ = self.entries[nth].come_due(now, self.shadow);
            self.reconcile(nth);
        }
    }

    fn come_due(&mut self) {
        self.retry_refused();
        let now = self.wall();
        while let Some(Reverse((at, nth))) = self.agenda.peek().copied() {
            if at > now {
                return;
            }
            self.agenda.pop();
            let entry = &mut self.entries[nth];
            if entry.retired {
                continue;
            }
            let next = entry.come_due(now, self.shadow);
            if !entry.edits.is_empty() {
                self.dirty.insert(nth);
            }
            self.agenda.extend(next.map(|at| Reverse((at, nth))));
        }
    }

    /// A hint is never the truth: what it is about is read.
    fn on_signal(&mut self, signal: &Signal) {
        match signal {
            Signal::Changed(changed) => {
                if let Some(nth) = self.positions.get(changed) {
                    self.stale.insert(*nth);
                }
            }
            Signal::Resync | Signal::Forgot => self.stale.extend(0..self.entries.len()),
            Signal::Evidence(_) | Signal::UnknownLease(_) => {}
        }
    }

    /// Reads what others may have changed, and enters what is to be entered.
    async fn sync(&mut self) {
        self.retry_at = None;
        if !self.gate.check() {
            self.retry_at = Some(self.node.clock().now().after(self.pause()));
            return;
        }
        // Thousands of ledgers at once take their time; nothing relies on how long.
        let patience = if self.stale.len() > MAX_READ_BY_NAME { 10 } else { 1 };
        let limit = patience * self.node.timing().op_timeout;
        let answer = tokio::time::timeout(limit, self.exchange()).await;
        let failed = match answer {
            Ok(Ok(())) => return self.trouble.is_over(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        if self.trouble.is_new(&failed) {
            tracing::warn!(error = failed, "the ledger cannot be kept; nothing is started until it can");
        }
        self.retry_at = Some(self.node.clock().now().after(self.pause()));
    }

    async fn exchange(&mut self) -> Result<(), StoreError> {
        if !self.stale.is_empty() {
            let which: Vec<usize> = self.stale.iter().copied().collect();
            self.refresh(&which).await?;
            self.adopt(&which).await?;
            self.stale.clear();
            which.into_iter().for_each(|nth| self.reconcile(nth));
        }
        let batch: Vec<usize> = self.dirty.iter().copied().take(MAX_BATCH).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let (token, now, node) = (self.gate.token(), self.wall(), self.node.name().clone());
        let by = LedgerWriter { token, node: &node, now };
        let drafts: Vec<LedgerDraft> = batch.iter().map(|nth| self.entries[*nth].draft(by)).collect();
        let writes: Vec<Write> =
            batch.iter().zip(&drafts).map(|(nth, draft)| self.write(*nth, draft)).collect();
        let versions: Vec<Version> = writes.iter().filter_map(|write| Some(write.put.as_ref()?.0)).collect();
        let outcomes = self.node.store().write(self.node.namespace(), &writes).await?;
        for (((nth, draft), version), outcome) in batch.into_iter().zip(drafts).zip(versions).zip(outcomes) {
            self.settle(nth, draft, version, outcome);
        }
        Ok(())
    }

    fn write(&self, nth: usize, draft: &LedgerDraft) -> Write {
        let entry = &self.entries[nth];
        let token = self.gate.lead().map(|_| draft.record.token);
        let put = (Version::new(crate::store::entropy::nonce()), Value::of(&draft.record, token));
        Write {
            key: entry.key.clone(),
            expect: entry.version,
            put: Some(put),
            notify: false,
            requires_lock: false,
        }
    }

    fn settle(&mut self, nth: usize, draft: LedgerDraft, version: Version, outcome: Outcome) {
        let later = self.node.clock().now().after(self.pause());
        let entry = &mut self.entries[nth];
        match outcome {
            Outcome::Applied => {
                (entry.base, entry.version, entry.tries) = (draft.record, Some(version), 0);
                entry.trouble.is_over();
                entry.edits.clear();
                self.dirty.remove(&nth);
                self.carry_out(nth, draft.starts, &draft.passed, &draft.interrupted);
                self.reconcile(nth);
            }
            Outcome::Conflict(found) => {
                entry.tries += 1;
                if entry.tries.is_multiple_of(MAX_ATTEMPTS) {
                    self.retry_at = Some(later);
                }
                let usable = match found {
                    Some(found) => self.load(nth, found.version, &found.value),
                    None => {
                        entry.version = None;
                        true
                    }
                };
                if !usable {
                    return;
                }
                if self.entries[nth].base.token > self.gate.token() {
                    // A later leader writes: there is nothing left to write here.
                    self.entries[nth].edits.clear();
                    self.dirty.remove(&nth);
                } else {
                    self.reconcile(nth);
                }
            }
            Outcome::Failed(error) => {
                let permanent = error.retry() == Retry::Never;
                if entry.trouble.is_new(&error.to_string()) {
                    tracing::warn!(task = %entry.name(), %error, permanent, "the ledger of a task was not written");
                }
                if !permanent {
                    self.retry_at = Some(later);
                    return;
                }
                entry.refused();
                self.dirty.remove(&nth);
                self.refused.insert(nth);
                self.refused_until = later;
            }
        }
    }

    /// Carries out and publishes what was written.
    fn carry_out(
        &mut self,
        nth: usize,
        starts: Vec<RunCause>,
        passed: &[PassedTicks],
        interrupted: &[Timestamp],
    ) {
        let name = self.entries[nth].name().clone();
        for tick in interrupted {
            tracing::warn!(task = %name, tick = tick.as_micros(), "a run of a former leader was interrupted");
        }
        for row in passed {
            let (from, to, count, state, why) = (row.from, row.to, row.count, row.state, row.why.clone());
            self.counters.passed(&name, state, count);
            self.node.publish(EventKind::TaskPassed { task: name.clone(), from, to, count, state, why });
        }
        for cause in starts {
            // The gate, once more: the acknowledgement may have come after the deadline.
            if self.gate.check() {
                self.start(nth, cause);
            }
        }
    }

    fn start(&mut self, nth: usize, cause: RunCause) {
        let entry = &mut self.entries[nth];
        if entry.live.iter().any(|live| live.cause == cause) {
            return;
        }
        let now = self.node.clock().wall();
        let (task, token, stop) = (entry.task.clone(), self.gate.token(), CancellationToken::new());
        let (name, late_ms) = (entry.name().clone(), entry.lateness(cause, now) / 1000);
        self.counters.started(&name, entry.is_late(cause, now));
        self.node.publish(EventKind::TaskStarted { task: name.clone(), tick: cause.tick(), token, late_ms });
        entry.live.push(ActiveRun { cause, stop: stop.clone() });
        let lead = self.gate.lead().cloned();
        let context =
            RunContext { task: name, cause, attempt: 1, token, node: self.node.clone(), lead, stop };
        self.runs.spawn(run::run(nth, task, context, self.gate.clone()));
    }

    fn ended(&mut self, finished: Option<FinishedRun>) {
        let Some(FinishedRun { nth, cause, ending }) = finished else { return };
        let token = self.gate.token();
        let entry = &mut self.entries[nth];
        entry.live.retain(|live| live.cause != cause);
        let (task, state, took_ms) = (entry.name().clone(), ending.state, ending.took_ms);
        self.counters.ended(&task, state, Duration::from_millis(took_ms));
        let why = ending.why.clone();
        self.node.publish(EventKind::TaskEnded { task, tick: cause.tick(), token, state, took_ms, why });
        entry.edits.push(LedgerEdit::End(cause, ending));
        self.dirty.insert(nth);
    }

    /// No run begins any more; those that go on may finish until `kill`, and how they ended is entered.
    async fn wind_down(&mut self, kill: impl Future<Output = ()>) {
        let mut kill = std::pin::pin!(kill);
        for entry in &mut self.entries {
            entry.drop_planned();
            let at_once = entry.task.settings.on_stop == StopPolicy::Cancel;
            entry.live.iter().filter(|_| at_once).for_each(|live| live.stop.cancel());
        }
        self.dirty.retain(|nth| !self.entries[*nth].edits.is_empty());
        // What others changed could only be begun.
        self.stale.clear();
        let mut killed = false;
        while !self.runs.is_empty() {
            tokio::select! {
                biased;
                () = &mut kill, if !killed => {
                    killed = true;
                    self.entries.iter().flat_map(|entry| &entry.live).for_each(|live| live.stop.cancel());
                }
                () = self.next_end() => {}
            }
        }
        // As far as the store answers at once: the lease may be running out.
        self.retry_at = None;
        while !self.dirty.is_empty() && self.gate.check() && self.retry_at.is_none() {
            self.write_endings().await;
        }
    }

    /// Waits for the next run to end. What has ended is entered meanwhile: if this node dies before the last one has, it
    /// must not look interrupted, and be run again. Nothing begins here, so that an exchange may be cut short.
    async fn next_end(&mut self) {
        loop {
            if self.has_to_write() {
                self.write_endings().await;
            }
            let again = self.retry_at.filter(|_| !self.dirty.is_empty()).unwrap_or(Time::NEVER);
            let clock = self.node.clock().clone();
            tokio::select! {
                biased;
                Some(ended) = self.runs.join_next() => return self.ended(ended.ok()),
                () = std::future::ready(()), if self.has_to_write() => {}
                () = clock.sleep_until(again) => {}
            }
        }
    }

    /// Enters how runs ended, or notes when to try that again.
    async fn write_endings(&mut self) {
        let limit = self.node.timing().stop_grace / 2;
        if tokio::time::timeout(limit, self.sync_endings()).await.is_err() {
            self.retry_at = Some(self.node.clock().now().after(self.pause()));
        }
    }

    /// As [`Self::sync`], without beginning anything: `reconcile` may have planned something anew.
    async fn sync_endings(&mut self) {
        self.sync().await;
        self.entries.iter_mut().for_each(TaskState::drop_planned);
        self.dirty.retain(|nth| !self.entries[*nth].edits.is_empty());
    }

    fn wall(&self) -> Timestamp {
        self.node.clock().wall()
    }

    fn pause(&self) -> Duration {
        self.node.timing().op_timeout / 2
    }
}
