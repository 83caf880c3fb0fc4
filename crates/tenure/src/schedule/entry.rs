//! A task in the clerk's hands: what its register held last, and what is to be entered on top of it.
//!
//! Edits are kept until a write with them is acknowledged, and applied anew on whatever the register turns out to hold:
//! an operator may have written meanwhile, or a write of ours whose answer was lost.

use std::sync::Arc;

use tenure_core::{Key, Version};
use tokio_util::sync::CancellationToken;

use super::settings::Overlap;
use super::task::Task;
use super::{plan, task};
use crate::ledger::{Cause, Ending, FORM, Passed, Record, RunState, Totals, Writer};
use crate::{Name, Token, Wall};

/// So many ticks of one task wait for their turn.
const QUEUE: usize = 100;

/// Something to be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    /// The task is new, or means something else now: ticks count from then on.
    Adopt(Wall),
    /// Runs that nobody ended.
    Interrupt,
    Start(Cause),
    End(Cause, Ending),
    Owe(Vec<Wall>),
    Pass(Passed),
    /// No more is to come from here; what is owed stays owed, for whoever has the task in its schedule.
    Retire,
}

/// A run that goes on.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) cause: Cause,
    pub(super) stop: CancellationToken,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) task: Arc<Task>,
    pub(super) key: Key,
    pub(super) base: Record,
    pub(super) version: Option<Version>,
    pub(super) edits: Vec<Edit>,
    pub(super) live: Vec<Live>,
    /// Ticks up to here are in the register or among the edits.
    planned: Wall,
    pub(super) tries: u32,
    /// Its register was read, and is this tenure's.
    pub(super) adopted: bool,
    /// It is not in the schedule any more: nothing begins, and what has ended is still entered.
    pub(super) retired: bool,
}

/// What a write would make of the register, and what follows once it is acknowledged.
pub(super) struct Draft {
    pub(super) record: Record,
    pub(super) starts: Vec<Cause>,
    pub(super) passed: Vec<Passed>,
    pub(super) interrupted: Vec<Wall>,
}

impl Entry {
    pub(super) fn new(task: Arc<Task>, key: Key, role: Option<Name>, node: Option<Name>) -> Self {
        let base = Record {
            form: FORM,
            token: Token(0),
            task: task.settings.name.clone(),
            role,
            node,
            when: task.when.text().to_owned(),
            zone: task.when.zone().to_owned(),
            tick: Wall(0),
            owed: Default::default(),
            next: None,
            paused: None,
            trigger: None,
            totals: Totals::default(),
            runs: Vec::new(),
        };
        let (edits, live) = (Vec::new(), Vec::new());
        let (adopted, retired) = (false, false);
        Self { task, key, base, version: None, edits, live, planned: Wall(0), tries: 0, adopted, retired }
    }

    pub(super) fn name(&self) -> &Name {
        &self.task.settings.name
    }

    /// Takes in what the register holds. What was planned on top of it stays planned.
    pub(super) fn take_in(&mut self, version: Version, record: Record) {
        (self.version, self.base) = (Some(version), record);
    }

    /// Other settings, or none: then the task is not in the schedule any more.
    pub(super) fn renew(&mut self, task: Option<Arc<Task>>) {
        self.retired = task.is_none();
        match task {
            Some(task) => {
                self.task = task;
                self.edits.retain(|edit| *edit != Edit::Retire);
            }
            None => {
                self.begin_nothing();
                self.edits.push(Edit::Retire);
            }
        }
    }

    /// What has to be entered because of what the register holds.
    pub(super) fn reconcile(&mut self, token: Token, now: Wall, shadow: bool) {
        if self.retired {
            return;
        }
        let when = &self.task.when;
        let same = self.base.when == when.text() && self.base.zone == when.zone() && self.base.tick > Wall(0);
        if !same && !self.edits.iter().any(|edit| matches!(edit, Edit::Adopt(_))) {
            self.edits.insert(0, Edit::Adopt(now));
            self.planned = self.planned.max(now);
        }
        if self.base.has_orphans(token) && !self.edits.contains(&Edit::Interrupt) {
            self.edits.insert(0, Edit::Interrupt);
        }
        if let Some(trigger) = &self.base.trigger
            && !shadow
        {
            let asked = |cause: &Cause| matches!(cause, Cause::Trigger(id, _) if *id == trigger.id);
            if !self.starting().any(|cause| asked(&cause)) {
                self.edits.push(Edit::Start(Cause::Trigger(trigger.id, now)));
            }
        }
        self.start_owed(shadow);
    }

    /// Plans what has come due; when to look again.
    pub(super) fn come_due(&mut self, now: Wall, shadow: bool) -> Option<Wall> {
        let due = plan::due(&self.task, self.base.tick.max(self.planned), now);
        if let Some((from, to, count)) = due.missed {
            let why = "nobody could start it in time".to_owned();
            self.edits.push(Edit::Pass(Passed { from, to, count, state: RunState::Missed, why }));
        }
        if !due.caught_up.is_empty() {
            self.edits.push(Edit::Owe(due.caught_up));
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
    fn fresh(&self, tick: Wall, shadow: bool) -> Edit {
        let skip = |why: String| Edit::Pass(skipped(tick, why));
        let busy = || self.live.first().map(|live| live.cause).or_else(|| self.starting().next());
        let waits = |edit: &Edit| matches!(edit, Edit::Owe(_));
        let owing = !self.base.owed.is_empty() || self.edits.iter().any(waits);
        if let Some(order) = &self.base.paused {
            return skip(format!("paused by {}", order.by));
        }
        if shadow {
            return skip(IN_SHADOW.to_owned());
        }
        match (self.task.settings.overlap, busy()) {
            (Overlap::Allow, _) => Edit::Start(Cause::Tick(tick)),
            (_, None) if !owing => Edit::Start(Cause::Tick(tick)),
            (Overlap::Queue, _) if self.base.owed.len() < QUEUE => Edit::Owe(vec![tick]),
            (Overlap::Queue, _) => skip(format!("{QUEUE} runs wait already")),
            (Overlap::Skip, _) => skip("the run before it goes on".to_owned()),
        }
    }

    /// Starts what is owed, as far as it is its turn.
    fn start_owed(&mut self, shadow: bool) {
        if self.base.owed.is_empty() || self.base.paused.is_some() {
            return;
        }
        if shadow {
            let owed: Vec<Wall> = self.base.owed.iter().copied().collect();
            let new: Vec<Edit> =
                owed.into_iter().map(|tick| Edit::Pass(skipped(tick, IN_SHADOW.to_owned()))).collect();
            self.edits.extend(new.into_iter().filter(|edit| !self.edits.contains(edit)).collect::<Vec<_>>());
            return;
        }
        let parallel = self.task.settings.overlap == Overlap::Allow;
        if !parallel && (!self.live.is_empty() || self.starting().next().is_some()) {
            return;
        }
        let most = if parallel { usize::MAX } else { 1 };
        let owed: Vec<Wall> = self.base.owed.iter().copied().take(most).collect();
        for tick in owed {
            let start = Edit::Start(Cause::Tick(tick));
            if !self.edits.contains(&start) {
                self.edits.push(start);
            }
        }
    }

    fn starting(&self) -> impl Iterator<Item = Cause> {
        self.edits.iter().filter_map(|edit| match edit {
            Edit::Start(cause) => Some(*cause),
            _ => None,
        })
    }

    /// Nothing is begun any more, nor passed over: that is the successor's. What has ended is still entered.
    pub(super) fn begin_nothing(&mut self) {
        self.edits.retain(|edit| matches!(edit, Edit::End(..)));
    }

    /// Lateness of a run, in microseconds, beyond what its jitter asks for.
    pub(super) fn lateness(&self, cause: Cause, now: Wall) -> u64 {
        match cause {
            Cause::Tick(tick) => now.0.saturating_sub(tick.0.saturating_add(self.task.delay(tick))),
            Cause::Trigger(..) => 0,
        }
    }

    pub(super) fn is_late(&self, cause: Cause, now: Wall) -> bool {
        self.lateness(cause, now) > task::micros(self.task.settings.late)
    }

    /// Applies the edits on what the register held last.
    pub(super) fn draft(&self, by: Writer<'_>) -> Draft {
        let mut draft = Draft {
            record: self.base.clone(),
            starts: Vec::new(),
            passed: Vec::new(),
            interrupted: Vec::new(),
        };
        for edit in &self.edits {
            self.apply(edit, by, &mut draft);
        }
        let record = &mut draft.record;
        (record.form, record.token) = (FORM, by.token.max(record.token));
        record.next = if self.retired { None } else { self.task.when.next(record.tick.max(by.now)) };
        record.trim(usize::try_from(self.task.settings.history).unwrap_or(usize::MAX));
        draft
    }

    fn apply(&self, edit: &Edit, by: Writer<'_>, draft: &mut Draft) {
        let record = &mut draft.record;
        match edit {
            Edit::Adopt(from) => {
                record.when = self.task.when.text().to_owned();
                record.zone = self.task.when.zone().to_owned();
                record.tick = record.tick.max(*from);
                record.owed.clear();
            }
            Edit::Interrupt => {
                let again = u32::from(self.task.settings.rerun);
                draft.interrupted.extend(record.interrupt(by.token, again));
            }
            Edit::Start(cause @ Cause::Tick(tick)) if record.paused.is_some() => {
                // What is owed stays owed; what has come due while it was paused is passed over.
                let why = record.paused.as_ref().map(|order| format!("paused by {}", order.by));
                let passed = skipped(*tick, why.unwrap_or_default());
                if !record.owed.contains(&cause.tick()) && record.pass(&passed, by) {
                    draft.passed.push(passed);
                }
            }
            Edit::Start(cause) => {
                if record.start(*cause, self.is_late(*cause, by.now), by) {
                    draft.starts.push(*cause);
                }
            }
            Edit::End(cause, ending) => record.end(*cause, ending, by),
            Edit::Retire => {}
            Edit::Owe(ticks) => record.owe(ticks),
            Edit::Pass(passed) => {
                if record.pass(passed, by) {
                    draft.passed.push(passed.clone());
                }
            }
        }
    }
}

const IN_SHADOW: &str = "in the shadow, where nothing is run";

fn skipped(tick: Wall, why: String) -> Passed {
    Passed { from: tick, to: tick, count: 1, state: RunState::Skipped, why }
}
