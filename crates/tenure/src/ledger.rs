//! The ledger of schedules: one register for each task, written under the token of whoever leads.
//!
//! A tick is *started at most once*: the write that moves [`Record::tick`] past it, or takes it out of
//! [`Record::owed`], is a compare-and-set, and only whoever made that very write starts the run. What was not started is
//! in the ledger too, as missed or skipped, with the reason.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_core::Wall;
use tenure_core::record::Order;

use crate::{Name, SessionId, Token};

/// The form of the records that this version writes.
pub const FORM: u32 = 1;

/// What a `task` register holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The form of this record.
    pub form: u32,
    /// The token of whoever wrote last: a former leader's write is refused by the store itself.
    pub token: Token,
    /// Which task.
    pub task: Name,
    /// The role whose leader runs it; none: every node runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Name>,
    /// Whose ledger it is, if every node runs the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// When it runs, as it was written.
    pub when: String,
    /// In which time zone.
    pub zone: String,
    /// Every tick up to this one is accounted for.
    pub tick: Wall,
    /// Ticks up to that one which are still to be run: caught up, queued, or interrupted and allowed another time.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub owed: BTreeSet<Wall>,
    /// The next tick, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Wall>,
    /// While set, ticks are skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Order>,
    /// A run that an operator asked for, until it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Everything that ever happened, in numbers.
    #[serde(default)]
    pub totals: Totals,
    /// The last runs, and what was passed over, the newest last.
    #[serde(default)]
    pub runs: Vec<Run>,
}

/// A run that an operator asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Drawn by the asker, to recognise the run.
    pub id: SessionId,
    /// Who asked, and why.
    #[serde(flatten)]
    pub order: Order,
}

/// One run of a task; or a row of ticks that were passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The tick that it is for; the first of them, if several were passed over.
    pub tick: Wall,
    /// The last of several ticks that were passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Wall>,
    /// How many ticks.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// How it went.
    pub state: RunState,
    /// Under which token.
    pub token: Token,
    /// On which node.
    pub node: Name,
    /// When it was started, by that node's wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Wall>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// How often it was tried: retries within a run, and runs after an interruption.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The exit code, or the HTTP status, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Why it did not succeed, or why it was passed over.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The request of an operator that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<SessionId>,
}

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// It goes on, or whoever ran it is gone and nobody has noticed yet.
    Running,
    /// It did what it should.
    Succeeded,
    /// It failed.
    Failed,
    /// It took too long and was stopped.
    TimedOut,
    /// It was stopped because its leader had to stop.
    Cancelled,
    /// Its leader was gone before it could write down how it went.
    Interrupted,
    /// Nobody led, or nobody could, when its time came.
    Missed,
    /// It was passed over on purpose.
    Skipped,
}

impl RunState {
    /// As records and people spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Missed => "missed",
            Self::Skipped => "skipped",
        }
    }

    /// Whether a run was started for it.
    #[must_use]
    pub fn was_started(self) -> bool {
        !matches!(self, Self::Missed | Self::Skipped)
    }
}

impl std::fmt::Display for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Everything that ever happened to a task, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Runs started.
    pub runs: u64,
    /// Runs that failed or timed out.
    pub failures: u64,
    /// Runs that were cancelled or interrupted.
    pub interrupted: u64,
    /// Runs started later than they should have been.
    pub late: u64,
    /// Ticks missed and not caught up.
    pub missed: u64,
    /// Ticks skipped.
    pub skipped: u64,
    /// How long all runs took together, in milliseconds.
    pub took_ms: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// How.
    pub state: RunState,
    /// How long it took.
    pub took_ms: u64,
    /// How often it was tried within this run.
    pub attempts: u32,
    /// The exit code or status.
    pub exit: Option<i32>,
    /// What it said.
    pub why: String,
}

/// A row of ticks that are passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// The first.
    pub from: Wall,
    /// The last.
    pub to: Wall,
    /// How many.
    pub count: u64,
    /// Missed or skipped.
    pub state: RunState,
    /// Why.
    pub why: String,
}

/// What a run is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Its time came.
    Tick(Wall),
    /// An operator asked for it, then.
    Trigger(SessionId, Wall),
}

impl Cause {
    /// The tick, or when it was asked for.
    #[must_use]
    pub fn tick(self) -> Wall {
        match self {
            Self::Tick(tick) | Self::Trigger(_, tick) => tick,
        }
    }

    fn trigger(self) -> Option<SessionId> {
        match self {
            Self::Tick(_) => None,
            Self::Trigger(id, _) => Some(id),
        }
    }

    fn is_of(self, run: &Run) -> bool {
        run.trigger == self.trigger() && (run.trigger.is_some() || run.tick == self.tick())
    }
}

/// Who writes.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Under which token.
    pub token: Token,
    /// On which node.
    pub node: &'a Name,
    /// Now, by its wall clock.
    pub now: Wall,
}

impl Record {
    /// Enters the start of a run. False if it must not be started: the tick is accounted for already, by whomever.
    ///
    /// A run of this very tenure that is entered already is the answer to a write whose acknowledgement was lost.
    pub fn start(&mut self, cause: Cause, late: bool, by: Writer<'_>) -> bool {
        let mine = |run: &Run| cause.is_of(run) && run.token == by.token && run.state == RunState::Running;
        if self.runs.iter().any(mine) {
            return true;
        }
        let free = match cause {
            Cause::Tick(tick) => tick > self.tick || self.owed.remove(&tick),
            Cause::Trigger(id, _) => self.trigger.take_if(|trigger| trigger.id == id).is_some(),
        };
        if !free {
            return false;
        }
        if let Cause::Tick(tick) = cause {
            self.tick = self.tick.max(tick);
        }
        let before =
            self.runs.iter().rev().find(|run| cause.is_of(run) && run.state == RunState::Interrupted);
        let attempts = before.map_or(0, |run| run.attempts);
        self.totals.runs += 1;
        self.totals.late += u64::from(late);
        self.runs.push(Run {
            tick: cause.tick(),
            to: None,
            count: 1,
            state: RunState::Running,
            token: by.token,
            node: by.node.clone(),
            started: Some(by.now),
            took_ms: None,
            attempts,
            exit: None,
            why: String::new(),
            trigger: cause.trigger(),
        });
        true
    }

    /// Enters the end of a run that this tenure started.
    pub fn end(&mut self, cause: Cause, ending: &Ending, by: Writer<'_>) {
        let open =
            |run: &&mut Run| cause.is_of(run) && run.token == by.token && run.state == RunState::Running;
        let Some(run) = self.runs.iter_mut().rev().find(open) else { return };
        run.state = ending.state;
        run.took_ms = Some(ending.took_ms);
        run.attempts += ending.attempts;
        run.exit = ending.exit;
        run.why = shortened(&ending.why);
        self.totals.took_ms += ending.took_ms;
        match ending.state {
            RunState::Failed | RunState::TimedOut => self.totals.failures += 1,
            RunState::Cancelled => self.totals.interrupted += 1,
            _ => {}
        }
    }

    /// Enters that ticks are passed over. False if they are accounted for already.
    pub fn pass(&mut self, passed: &Passed, by: Writer<'_>) -> bool {
        let owed = passed.count == 1 && self.owed.remove(&passed.from);
        if passed.from <= self.tick && !owed {
            return false;
        }
        self.tick = self.tick.max(passed.to);
        match passed.state {
            RunState::Missed => self.totals.missed += passed.count,
            _ => self.totals.skipped += passed.count,
        }
        // A row of the same kind is one entry, however long it gets.
        if let Some(last) = self.runs.last_mut()
            && last.state == passed.state
            && last.why == passed.why
            && last.token == by.token
            && !owed
        {
            last.to = Some(passed.to);
            last.count += passed.count;
            return true;
        }
        self.runs.push(Run {
            tick: passed.from,
            to: (passed.count > 1).then_some(passed.to),
            count: passed.count,
            state: passed.state,
            token: by.token,
            node: by.node.clone(),
            started: None,
            took_ms: None,
            attempts: 0,
            exit: None,
            why: shortened(&passed.why),
            trigger: None,
        });
        true
    }

    /// Enters that these ticks will be run later. They must come after all that are accounted for.
    pub fn owe(&mut self, ticks: &[Wall]) {
        for tick in ticks.iter().filter(|tick| **tick > self.tick) {
            self.owed.insert(*tick);
        }
        self.tick = ticks.iter().copied().fold(self.tick, Wall::max);
    }

    /// Runs of earlier tenures that nobody ended are interrupted. With `again`, those that were tried less often than
    /// that are owed anew. The ticks that were interrupted.
    pub fn interrupt(&mut self, token: Token, again: u32) -> Vec<Wall> {
        let mut interrupted = Vec::new();
        for run in &mut self.runs {
            if run.state != RunState::Running || run.token >= token {
                continue;
            }
            run.state = RunState::Interrupted;
            run.attempts += 1;
            run.why = format!("{} was gone before it ended", run.node);
            self.totals.interrupted += 1;
            interrupted.push(run.tick);
            if run.trigger.is_none() && run.attempts <= again {
                self.owed.insert(run.tick);
            }
        }
        interrupted
    }

    /// Whether there are runs of earlier tenures that nobody ended.
    #[must_use]
    pub fn has_orphans(&self, token: Token) -> bool {
        self.runs.iter().any(|run| run.state == RunState::Running && run.token < token)
    }

    /// Keeps the newest so many runs; those that go on are kept in any case.
    pub fn trim(&mut self, keep: usize) {
        let mut excess = self.runs.len().saturating_sub(keep);
        self.runs.retain(|run| {
            let dropped = excess > 0 && run.state != RunState::Running;
            excess -= usize::from(dropped);
            !dropped
        });
    }
}

/// The longest reason that is kept, in characters.
const LONGEST_WHY: usize = 300;

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_WHY).collect()
}

fn one() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            form: FORM,
            token: Token(1),
            task: Name::new("t").unwrap(),
            role: None,
            node: None,
            when: "every 1s".into(),
            zone: "UTC".into(),
            tick: Wall(0),
            owed: BTreeSet::new(),
            next: None,
            paused: None,
            trigger: None,
            totals: Totals::default(),
            runs: Vec::new(),
        }
    }

    fn at(token: u64, node: &Name) -> Writer<'_> {
        Writer { token: Token(token), node, now: Wall(77) }
    }

    fn done(state: RunState) -> Ending {
        Ending { state, took_ms: 5, attempts: 1, exit: None, why: String::new() }
    }

    #[test]
    fn a_tick_is_started_once_by_whomever() {
        let (mut record, a, b) = (record(), Name::new("a").unwrap(), Name::new("b").unwrap());
        assert!(record.start(Cause::Tick(Wall(10)), false, at(1, &a)));
        assert!(record.start(Cause::Tick(Wall(10)), false, at(1, &a)), "its own write, seen again");
        assert_eq!(record.totals.runs, 1);
        assert!(!record.start(Cause::Tick(Wall(10)), false, at(2, &b)));
        assert!(!record.start(Cause::Tick(Wall(9)), false, at(2, &b)));
        record.end(Cause::Tick(Wall(10)), &done(RunState::Succeeded), at(1, &a));
        assert!(!record.start(Cause::Tick(Wall(10)), false, at(1, &a)));
        assert!(record.start(Cause::Tick(Wall(11)), false, at(2, &b)));
    }

    #[test]
    fn what_is_owed_is_run_once_and_in_spite_of_later_ticks() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        record.owe(&[Wall(3), Wall(4)]);
        assert_eq!(record.tick, Wall(4));
        assert!(record.start(Cause::Tick(Wall(5)), false, at(1, &a)));
        assert!(record.start(Cause::Tick(Wall(3)), true, at(1, &a)));
        record.end(Cause::Tick(Wall(3)), &done(RunState::Failed), at(1, &a));
        assert!(!record.start(Cause::Tick(Wall(3)), true, at(1, &a)));
        assert_eq!((record.totals.late, record.totals.failures), (1, 1));
        assert_eq!(record.owed, [Wall(4)].into());
    }

    #[test]
    fn what_a_dead_leader_left_is_interrupted_and_run_again_only_if_it_may() {
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        for (again, owed) in [(0, 0), (1, 1)] {
            let mut record = record();
            assert!(record.start(Cause::Tick(Wall(10)), false, at(1, &a)));
            assert!(!record.has_orphans(Token(1)) && record.has_orphans(Token(2)));
            assert_eq!(record.interrupt(Token(2), again), [Wall(10)]);
            assert_eq!(record.owed.len(), owed);
            assert_eq!(record.start(Cause::Tick(Wall(10)), true, at(2, &b)), owed == 1);
            // A second interruption is one too many.
            record.interrupt(Token(3), again);
            assert!(record.owed.is_empty(), "{record:?}");
        }
    }

    #[test]
    fn rows_of_ticks_are_one_entry_and_are_accounted_for_once() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        let row = |from, to, count| Passed {
            from: Wall(from),
            to: Wall(to),
            count,
            state: RunState::Missed,
            why: "nobody led".into(),
        };
        assert!(record.pass(&row(1, 5, 5), at(1, &a)));
        assert!(!record.pass(&row(5, 5, 1), at(1, &a)));
        assert!(record.pass(&row(6, 6, 1), at(1, &a)));
        assert_eq!((record.runs.len(), record.runs[0].count, record.totals.missed), (1, 6, 6));
    }

    #[test]
    fn trimming_spares_what_goes_on() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        for tick in 1..=5 {
            assert!(record.start(Cause::Tick(Wall(tick)), false, at(1, &a)));
            if tick != 2 {
                record.end(Cause::Tick(Wall(tick)), &done(RunState::Succeeded), at(1, &a));
            }
        }
        record.trim(2);
        assert_eq!(record.runs.iter().map(|run| run.tick.0).collect::<Vec<_>>(), [2, 5]);
    }

    #[test]
    fn a_trigger_is_answered_once_and_moves_no_tick() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        let order = Order { by: "me".into(), why: String::new(), at: Wall(1) };
        record.trigger = Some(Trigger { id: SessionId(7), order });
        let cause = Cause::Trigger(SessionId(7), Wall(500));
        assert!(record.start(cause, false, at(1, &a)));
        record.end(cause, &done(RunState::Succeeded), at(1, &a));
        assert!(!record.start(cause, false, at(1, &a)));
        assert_eq!((record.tick, record.runs.len()), (Wall(0), 1));
    }

    #[test]
    fn records_read_back() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        assert!(record.start(Cause::Tick(Wall(1)), false, at(1, &a)));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
