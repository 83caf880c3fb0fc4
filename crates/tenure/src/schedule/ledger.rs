//! Entries of the ledger: how starts, ends and passed ticks are written into the record of a task.

use tenure_core::Timestamp;

use crate::ledger::{RunRecord, RunState, TaskRecord};
use crate::{Name, SessionId, Token};

/// The format of the records that this version writes.
pub(super) const FORMAT: u32 = 1;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunEnd {
    /// Its final state.
    pub(super) state: RunState,
    /// How long it took.
    pub(super) took_ms: u64,
    /// How often it was tried within this run.
    pub(super) attempts: u32,
    /// The exit code or status.
    pub(super) exit: Option<i32>,
    /// The error, if it failed.
    pub(super) why: String,
}

/// A row of ticks that are passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PassedTicks {
    /// The first tick.
    pub(super) from: Timestamp,
    /// The last tick.
    pub(super) to: Timestamp,
    /// The number of ticks.
    pub(super) count: u64,
    /// Missed or skipped.
    pub(super) state: RunState,
    /// The reason.
    pub(super) why: String,
}

/// Why a run is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RunCause {
    /// Its time came.
    Tick(Timestamp),
    /// An operator asked for it, then.
    Trigger(SessionId, Timestamp),
}

impl RunCause {
    /// The tick, or when it was asked for.
    #[must_use]
    pub(super) fn tick(self) -> Timestamp {
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

    fn is_of(self, run: &RunRecord) -> bool {
        run.trigger == self.trigger() && (run.trigger.is_some() || run.tick == self.tick())
    }
}

/// The writer of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct LedgerWriter<'a> {
    /// The token of the tenure.
    pub(super) token: Token,
    pub(super) node: &'a Name,
    /// Now, by its wall clock.
    pub(super) now: Timestamp,
}

impl TaskRecord {
    /// Enters the start of a run. False if it must not be started: the tick is accounted for already.
    ///
    /// A run of this very tenure that is entered already is the answer to a write whose acknowledgement was lost.
    pub(super) fn start(&mut self, cause: RunCause, late: bool, by: LedgerWriter<'_>) -> bool {
        let mine =
            |run: &RunRecord| cause.is_of(run) && run.token == by.token && run.state == RunState::Running;
        if self.runs.iter().any(mine) {
            return true;
        }
        let free = match cause {
            RunCause::Tick(tick) => tick > self.tick || self.owed.remove(&tick),
            RunCause::Trigger(id, _) => self.trigger.take_if(|trigger| trigger.id == id).is_some(),
        };
        if !free {
            return false;
        }
        if let RunCause::Tick(tick) = cause {
            self.tick = self.tick.max(tick);
        }
        let before =
            self.runs.iter().rev().find(|run| cause.is_of(run) && run.state == RunState::Interrupted);
        let attempts = before.map_or(0, |run| run.attempts);
        self.totals.runs += 1;
        self.totals.late += u64::from(late);
        self.runs.push(RunRecord {
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
    pub(super) fn end(&mut self, cause: RunCause, ending: &RunEnd, by: LedgerWriter<'_>) {
        let open = |run: &&mut RunRecord| {
            cause.is_of(run) && run.token == by.token && run.state == RunState::Running
        };
        let Some(run) = self.runs.iter_mut().rev().find(open) else { return };
        run.state = ending.state;
        run.took_ms = Some(ending.took_ms);
        run.attempts = run.attempts.saturating_add(ending.attempts);
        run.exit = ending.exit;
        run.why = shortened(&ending.why);
        self.totals.took_ms = self.totals.took_ms.saturating_add(ending.took_ms);
        match ending.state {
            RunState::Failed | RunState::TimedOut => self.totals.failures += 1,
            RunState::Cancelled => self.totals.interrupted += 1,
            _ => {}
        }
    }

    /// Enters that ticks are passed over. False if they are accounted for already.
    pub(super) fn pass(&mut self, passed: &PassedTicks, by: LedgerWriter<'_>) -> bool {
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
        self.runs.push(RunRecord {
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
    pub(super) fn owe(&mut self, ticks: &[Timestamp]) {
        for tick in ticks.iter().filter(|tick| **tick > self.tick) {
            self.owed.insert(*tick);
        }
        self.tick = ticks.iter().copied().fold(self.tick, Timestamp::max);
    }

    /// Marks unfinished runs of earlier tenures as interrupted, and returns their ticks. Runs that were tried at most
    /// `again` times are owed anew.
    pub(super) fn interrupt(&mut self, token: Token, again: u32) -> Vec<Timestamp> {
        let mut interrupted = Vec::new();
        for run in &mut self.runs {
            if run.state != RunState::Running || run.token >= token {
                continue;
            }
            run.state = RunState::Interrupted;
            run.attempts = run.attempts.saturating_add(1);
            run.why = format!("{} was gone before it ended", run.node);
            self.totals.interrupted += 1;
            interrupted.push(run.tick);
            if run.trigger.is_none() && run.attempts <= again {
                self.owed.insert(run.tick);
            }
        }
        interrupted
    }

    /// Whether there are unfinished runs of earlier tenures.
    #[must_use]
    pub(super) fn has_orphans(&self, token: Token) -> bool {
        self.runs.iter().any(|run| run.state == RunState::Running && run.token < token)
    }

    /// Keeps the newest `keep` runs, and all that still go on.
    pub(super) fn trim(&mut self, keep: usize) {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tenure_core::record::Order;

    use super::*;
    use crate::ledger::{TaskTotals, TaskTrigger};

    fn record() -> TaskRecord {
        TaskRecord {
            form: FORMAT,
            token: Token::new(1),
            task: Name::new("t").unwrap(),
            role: None,
            node: None,
            when: "every 1s".into(),
            zone: "UTC".into(),
            tick: Timestamp::from_micros(0),
            owed: BTreeSet::new(),
            next: None,
            paused: None,
            trigger: None,
            totals: TaskTotals::default(),
            runs: Vec::new(),
        }
    }

    fn at(token: u64, node: &Name) -> LedgerWriter<'_> {
        LedgerWriter { token: Token::new(token), node, now: Timestamp::from_micros(77) }
    }

    fn done(state: RunState) -> RunEnd {
        RunEnd { state, took_ms: 5, attempts: 1, exit: None, why: String::new() }
    }

    #[test]
    fn a_tick_is_started_once_by_whomever() {
        let (mut record, a, b) = (record(), Name::new("a").unwrap(), Name::new("b").unwrap());
        assert!(record.start(RunCause::Tick(Timestamp::from_micros(10)), false, at(1, &a)));
        assert!(
            record.start(RunCause::Tick(Timestamp::from_micros(10)), false, at(1, &a)),
            "its own write, seen again"
        );
        assert_eq!(record.totals.runs, 1);
        assert!(!record.start(RunCause::Tick(Timestamp::from_micros(10)), false, at(2, &b)));
        assert!(!record.start(RunCause::Tick(Timestamp::from_micros(9)), false, at(2, &b)));
        record.end(RunCause::Tick(Timestamp::from_micros(10)), &done(RunState::Succeeded), at(1, &a));
        assert!(!record.start(RunCause::Tick(Timestamp::from_micros(10)), false, at(1, &a)));
        assert!(record.start(RunCause::Tick(Timestamp::from_micros(11)), false, at(2, &b)));
    }

    #[test]
    fn what_is_owed_is_run_once_and_in_spite_of_later_ticks() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        record.owe(&[Timestamp::from_micros(3), Timestamp::from_micros(4)]);
        assert_eq!(record.tick, Timestamp::from_micros(4));
        assert!(record.start(RunCause::Tick(Timestamp::from_micros(5)), false, at(1, &a)));
        assert!(record.start(RunCause::Tick(Timestamp::from_micros(3)), true, at(1, &a)));
        record.end(RunCause::Tick(Timestamp::from_micros(3)), &done(RunState::Failed), at(1, &a));
        assert!(!record.start(RunCause::Tick(Timestamp::from_micros(3)), true, at(1, &a)));
        assert_eq!((record.totals.late, record.totals.failures), (1, 1));
        assert_eq!(record.owed, [Timestamp::from_micros(4)].into());
    }

    #[test]
    fn what_a_dead_leader_left_is_interrupted_and_run_again_only_if_it_may() {
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        for (again, owed) in [(0, 0), (1, 1)] {
            let mut record = record();
            assert!(record.start(RunCause::Tick(Timestamp::from_micros(10)), false, at(1, &a)));
            assert!(!record.has_orphans(Token::new(1)) && record.has_orphans(Token::new(2)));
            assert_eq!(record.interrupt(Token::new(2), again), [Timestamp::from_micros(10)]);
            assert_eq!(record.owed.len(), owed);
            assert_eq!(record.start(RunCause::Tick(Timestamp::from_micros(10)), true, at(2, &b)), owed == 1);
            // A second interruption is one too many.
            record.interrupt(Token::new(3), again);
            assert!(record.owed.is_empty(), "{record:?}");
        }
    }

    #[test]
    fn rows_of_ticks_are_one_entry_and_are_accounted_for_once() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        let row = |from, to, count| PassedTicks {
            from: Timestamp::from_micros(from),
            to: Timestamp::from_micros(to),
            count,
            state: RunState::Missed,
            why: "no node led".into(),
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
            assert!(record.start(RunCause::Tick(Timestamp::from_micros(tick)), false, at(1, &a)));
            if tick != 2 {
                record.end(
                    RunCause::Tick(Timestamp::from_micros(tick)),
                    &done(RunState::Succeeded),
                    at(1, &a),
                );
            }
        }
        record.trim(2);
        assert_eq!(record.runs.iter().map(|run| run.tick.as_micros()).collect::<Vec<_>>(), [2, 5]);
    }

    #[test]
    fn a_trigger_is_answered_once_and_moves_no_tick() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        let order = Order { by: "me".into(), why: String::new(), at: Timestamp::from_micros(1) };
        record.trigger = Some(TaskTrigger { id: SessionId::new(7), order });
        let cause = RunCause::Trigger(SessionId::new(7), Timestamp::from_micros(500));
        assert!(record.start(cause, false, at(1, &a)));
        record.end(cause, &done(RunState::Succeeded), at(1, &a));
        assert!(!record.start(cause, false, at(1, &a)));
        assert_eq!((record.tick, record.runs.len()), (Timestamp::from_micros(0), 1));
    }

    #[test]
    fn records_read_back() {
        let (mut record, a) = (record(), Name::new("a").unwrap());
        assert!(record.start(RunCause::Tick(Timestamp::from_micros(1)), false, at(1, &a)));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<TaskRecord>(&text).unwrap(), record);
    }
}
