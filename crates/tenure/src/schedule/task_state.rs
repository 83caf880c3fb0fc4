//! The state of one task in the scheduler: the last known content of its register, and the edits to write on top of it.
//!
//! Edits are kept until a write with them is acknowledged, and applied anew on whatever the register turns out to hold:
//! an operator may have written meanwhile, or a write of ours whose answer was lost.

use std::sync::Arc;

use tenure_core::{Key, Version};
use tokio_util::sync::CancellationToken;

use super::ledger::{FORMAT, LedgerWriter, PassedTicks, RunCause, RunEnd};
use super::settings::OverlapPolicy;
use super::task::Task;
use super::{plan, task};
use crate::ledger::{RunState, TaskRecord, TaskTotals};
use crate::{Name, Timestamp, Token};

/// The number of ticks of one task that may wait.
const QUEUE: usize = 100;

/// A change to be written to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LedgerEdit {
    /// The task is new, or means something else now: ticks count from then on.
    Adopt(Timestamp),
    /// Unfinished runs of earlier tenures are interrupted.
    Interrupt,
    Start(RunCause),
    End(RunCause, RunEnd),
    Owe(Vec<Timestamp>),
    Pass(PassedTicks),
    /// The task is gone from this schedule; what is owed stays owed, for a node that has the task in its schedule.
    Retire,
}

/// The trouble that was logged last: the same one is not logged at each tick.
#[derive(Debug, Default)]
pub(super) struct LoggedTrouble(Option<String>);

impl LoggedTrouble {
    /// Whether this is another trouble than the last.
    pub(super) fn is_new(&mut self, trouble: &str) -> bool {
        let new = self.0.as_deref() != Some(trouble);
        if new {
            self.0 = Some(trouble.to_owned());
        }
        new
    }

    pub(super) fn is_over(&mut self) {
        self.0 = None;
    }
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct ActiveRun {
    pub(super) cause: RunCause,
    pub(super) stop: CancellationToken,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) task: Arc<Task>,
    pub(super) key: Key,
    pub(super) base: TaskRecord,
    pub(super) version: Option<Version>,
    pub(super) edits: Vec<LedgerEdit>,
    pub(super) live: Vec<ActiveRun>,
    /// Ticks up to here are in the register or among the edits.
    planned: Timestamp,
    pub(super) tries: u32,
    /// Why its register could not be used.
    pub(super) trouble: LoggedTrouble,
    /// Its register was read, and is this tenure's.
    pub(super) adopted: bool,
    /// It is not in the schedule any more: nothing begins, and what has ended is still entered.
    pub(super) retired: bool,
}

/// The record that a write would leave, and what follows once the write is acknowledged.
pub(super) struct LedgerDraft {
    pub(super) record: TaskRecord,
    pub(super) starts: Vec<RunCause>,
    pub(super) passed: Vec<PassedTicks>,
    pub(super) interrupted: Vec<Timestamp>,
}

impl TaskState {
    pub(super) fn new(task: Arc<Task>, key: Key, role: Option<Name>, node: Option<Name>) -> Self {
        let base = TaskRecord {
            form: FORMAT,
            token: Token::new(0),
            task: task.settings.name.clone(),
            role,
            node,
            when: task.when.text().to_owned(),
            zone: task.when.zone().to_owned(),
            tick: Timestamp::from_micros(0),
            owed: Default::default(),
            next: None,
            paused: None,
            trigger: None,
            totals: TaskTotals::default(),
            runs: Vec::new(),
        };
        let (edits, live) = (Vec::new(), Vec::new());
        let (adopted, retired) = (false, false);
        Self {
            task,
            key,
            base,
            version: None,
            edits,
            live,
            planned: Timestamp::from_micros(0),
            tries: 0,
            trouble: LoggedTrouble::default(),
            adopted,
            retired,
        }
    }

    pub(super) fn name(&self) -> &Name {
        &self.task.settings.name
    }

    /// Takes in what the register holds. What was planned on top of it stays planned.
    pub(super) fn load(&mut self, version: Version, record: TaskRecord) {
        (self.version, self.base) = (Some(version), record);
    }

    /// Other settings, or none: then the task is not in the schedule any more.
    pub(super) fn renew(&mut self, task: Option<Arc<Task>>) {
        self.retired = task.is_none();
        match task {
            Some(task) => {
                self.task = task;
                self.edits.retain(|edit| *edit != LedgerEdit::Retire);
            }
            None => {
                self.drop_planned();
                self.edits.push(LedgerEdit::Retire);
            }
        }
    }

    /// Adds the edits that follow from the content of the register.
    pub(super) fn reconcile(&mut self, token: Token, now: Timestamp, shadow: bool) {
        if self.retired {
            return;
        }
        let when = &self.task.when;
        let same = self.base.when == when.text()
            && self.base.zone == when.zone()
            && self.base.tick > Timestamp::from_micros(0);
        if !same && !self.edits.iter().any(|edit| matches!(edit, LedgerEdit::Adopt(_))) {
            self.edits.insert(0, LedgerEdit::Adopt(now));
            self.planned = self.planned.max(now);
        }
        if self.base.has_orphans(token) && !self.edits.contains(&LedgerEdit::Interrupt) {
            self.edits.insert(0, LedgerEdit::Interrupt);
        }
        if let Some(trigger) = &self.base.trigger
            && !shadow
        {
            let asked = |cause: &RunCause| matches!(cause, RunCause::Trigger(id, _) if *id == trigger.id);
            if !self.starting().any(|cause| asked(&cause)) {
                self.edits.push(LedgerEdit::Start(RunCause::Trigger(trigger.id, now)));
            }
        }
        self.start_owed(shadow);
    }

    /// Plans what has come due; when to look again.
    pub(super) fn come_due(&mut self, now: Timestamp, shadow: bool) -> Option<Timestamp> {
        let due = plan::due(&self.task, self.base.tick.max(self.planned), now);
        if let Some((from, to, count)) = due.missed {
            let why = "no node could start it in time".to_owned();
            self.edits.push(LedgerEdit::Pass(PassedTicks { from, to, count, state: RunState::Missed, why }));
        }
        if !due.caught_up.is_empty() {
            self.edits.push(LedgerEdit::Owe(due.caught_up));
        }
        for tick in due.fresh {
            let edit = self.fresh(tick, shadow);
            self.edits.push(edit);
        }
        self.planned = self.planned.max(due.upto.unwrap_or(self.planned));
        self.start_owed(shadow);
        due.look_at
    }

    /// What becomes of a tick in time.
    fn fresh(&self, tick: Timestamp, shadow: bool) -> LedgerEdit {
        let skip = |why: String| LedgerEdit::Pass(skipped(tick, why));
        let busy = || self.live.first().map(|live| live.cause).or_else(|| self.starting().next());
        let waits = |edit: &LedgerEdit| matches!(edit, LedgerEdit::Owe(_));
        let owing = !self.base.owed.is_empty() || self.edits.iter().any(waits);
        if let Some(order) = &self.base.paused {
            return skip(format!("paused by {}", order.by));
        }
        if shadow {
            return skip(IN_SHADOW.to_owned());
        }
        match (self.task.settings.overlap, busy()) {
            (OverlapPolicy::Allow, _) => LedgerEdit::Start(RunCause::Tick(tick)),
            (_, None) if !owing => LedgerEdit::Start(RunCause::Tick(tick)),
            (OverlapPolicy::Queue, _) if self.base.owed.len() < QUEUE => LedgerEdit::Owe(vec![tick]),
            (OverlapPolicy::Queue, _) => skip(format!("{QUEUE} runs wait already")),
            (OverlapPolicy::Skip, _) => skip("the run before it goes on".to_owned()),
        }
    }

    /// Starts what is owed, as far as it is its turn.
    fn start_owed(&mut self, shadow: bool) {
        if self.base.owed.is_empty() || self.base.paused.is_some() {
            return;
        }
        if shadow {
            let owed: Vec<Timestamp> = self.base.owed.iter().copied().collect();
            let new: Vec<LedgerEdit> =
                owed.into_iter().map(|tick| LedgerEdit::Pass(skipped(tick, IN_SHADOW.to_owned()))).collect();
            self.edits.extend(new.into_iter().filter(|edit| !self.edits.contains(edit)).collect::<Vec<_>>());
            return;
        }
        let parallel = self.task.settings.overlap == OverlapPolicy::Allow;
        if !parallel && (!self.live.is_empty() || self.starting().next().is_some()) {
            return;
        }
        let most = if parallel { usize::MAX } else { 1 };
        let owed: Vec<Timestamp> = self.base.owed.iter().copied().take(most).collect();
        for tick in owed {
            let start = LedgerEdit::Start(RunCause::Tick(tick));
            if !self.edits.contains(&start) {
                self.edits.push(start);
            }
        }
    }

    fn starting(&self) -> impl Iterator<Item = RunCause> {
        self.edits.iter().filter_map(|edit| match edit {
            LedgerEdit::Start(cause) => Some(*cause),
            _ => None,
        })
    }

    /// Nothing is begun any more, nor passed over: that is the successor's. What has ended is still entered.
    pub(super) fn drop_planned(&mut self) {
        self.edits.retain(|edit| matches!(edit, LedgerEdit::End(..)));
    }

    /// The store refused a write for good: how runs ended stays to be entered, and what was planned is planned anew from what
    /// the register holds, so that no tick is lost and none is started late without a word.
    pub(super) fn refused(&mut self) {
        self.edits.retain(|edit| matches!(edit, LedgerEdit::End(..) | LedgerEdit::Adopt(_)));
        let adopted = |edit: &LedgerEdit| if let LedgerEdit::Adopt(from) = edit { Some(*from) } else { None };
        self.planned = self.edits.iter().find_map(adopted).unwrap_or(Timestamp::from_micros(0));
    }

    /// Lateness of a run, in microseconds, beyond what its jitter asks for.
    pub(super) fn lateness(&self, cause: RunCause, now: Timestamp) -> u64 {
        match cause {
            RunCause::Tick(tick) => {
                now.as_micros().saturating_sub(tick.as_micros().saturating_add(self.task.delay(tick)))
            }
            RunCause::Trigger(..) => 0,
        }
    }

    pub(super) fn is_late(&self, cause: RunCause, now: Timestamp) -> bool {
        self.lateness(cause, now) > task::micros(self.task.settings.late)
    }

    /// Applies the edits on what the register held last.
    pub(super) fn draft(&self, by: LedgerWriter<'_>) -> LedgerDraft {
        let mut draft = LedgerDraft {
            record: self.base.clone(),
            starts: Vec::new(),
            passed: Vec::new(),
            interrupted: Vec::new(),
        };
        for edit in &self.edits {
            self.apply(edit, by, &mut draft);
        }
        let record = &mut draft.record;
        (record.form, record.token) = (FORMAT, by.token.max(record.token));
        record.next = if self.retired { None } else { self.task.when.next(record.tick.max(by.now)) };
        record.trim(usize::try_from(self.task.settings.history).unwrap_or(usize::MAX));
        draft
    }

    fn apply(&self, edit: &LedgerEdit, by: LedgerWriter<'_>, draft: &mut LedgerDraft) {
        let record = &mut draft.record;
        match edit {
            LedgerEdit::Adopt(from) => {
                record.when = self.task.when.text().to_owned();
                record.zone = self.task.when.zone().to_owned();
                record.tick = record.tick.max(*from);
                record.owed.clear();
            }
            LedgerEdit::Interrupt => {
                let again = u32::from(self.task.settings.rerun);
                draft.interrupted.extend(record.interrupt(by.token, again));
            }
            LedgerEdit::Start(cause @ RunCause::Tick(tick)) if record.paused.is_some() => {
                // What is owed stays owed; what has come due while it was paused is passed over.
                let why = record.paused.as_ref().map(|order| format!("paused by {}", order.by));
                let passed = skipped(*tick, why.unwrap_or_default());
                if !record.owed.contains(&cause.tick()) && record.pass(&passed, by) {
                    draft.passed.push(passed);
                }
            }
            LedgerEdit::Start(cause) => {
                if record.start(*cause, self.is_late(*cause, by.now), by) {
                    draft.starts.push(*cause);
                }
            }
            LedgerEdit::End(cause, ending) => record.end(*cause, ending, by),
            LedgerEdit::Retire => {}
            LedgerEdit::Owe(ticks) => record.owe(ticks),
            LedgerEdit::Pass(passed) => {
                if record.pass(passed, by) {
                    draft.passed.push(passed.clone());
                }
            }
        }
    }
}

const IN_SHADOW: &str = "in the shadow, where nothing is run";

fn skipped(tick: Timestamp, why: String) -> PassedTicks {
    PassedTicks { from: tick, to: tick, count: 1, state: RunState::Skipped, why }
}
