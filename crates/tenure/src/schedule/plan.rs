//! What has come due: pure, so that it can be checked without a clock.

use std::collections::VecDeque;

use super::task::{Task, micros};
use crate::Timestamp;

/// After a long time of nothing, ticks are counted in portions of so many.
const PORTION: usize = 50_000;

/// The ticks of a task that have come due.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DueTicks {
    /// Too late: the first, the last, and how many.
    pub(super) missed: Option<(Timestamp, Timestamp, u64)>,
    /// Too late too, but to be run after all.
    pub(super) caught_up: Vec<Timestamp>,
    /// In time.
    pub(super) fresh: Vec<Timestamp>,
    /// When to look again: when the next tick starts.
    pub(super) look_at: Option<Timestamp>,
    /// The last tick that was looked at.
    pub(super) upto: Option<Timestamp>,
}

/// Sorts the ticks after `after` that have come due by `now`.
pub(super) fn due(task: &Task, after: Timestamp, now: Timestamp) -> DueTicks {
    let late = micros(task.settings.late);
    let keep = usize::try_from(task.settings.catch_up).unwrap_or(usize::MAX);
    let (mut due, mut catch_up) = (DueTicks::default(), VecDeque::new());
    let mut tick = task.when.next(after);
    for _ in 0..PORTION {
        let Some(at) = tick else { break };
        let starts = at.as_micros().saturating_add(task.delay(at));
        if starts > now.as_micros() {
            break;
        }
        if now.as_micros() > starts.saturating_add(late) {
            catch_up.push_back(at);
            if catch_up.len() > keep {
                miss(&mut due, catch_up.pop_front());
            }
        } else {
            due.fresh.push(at);
        }
        due.upto = Some(at);
        tick = task.when.next(at);
    }
    let more = tick.is_some_and(|at| at.as_micros().saturating_add(task.delay(at)) <= now.as_micros());
    // Newer ones are to come: these are not the newest.
    while more && let Some(at) = catch_up.pop_front() {
        miss(&mut due, Some(at));
    }
    due.look_at = tick.map(|at| Timestamp::from_micros(at.as_micros().saturating_add(task.delay(at))));
    due.caught_up = catch_up.into();
    due
}

fn miss(due: &mut DueTicks, tick: Option<Timestamp>) {
    let Some(tick) = tick else { return };
    due.missed = Some(match due.missed {
        Some((from, _, count)) => (from, tick, count + 1),
        None => (tick, tick, 1),
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::schedule::TaskSettings;

    fn task(change: impl FnOnce(&mut TaskSettings)) -> Task {
        let mut settings = TaskSettings::every("t", Duration::from_secs(1)).unwrap();
        change(&mut settings);
        Task::new(settings, |_| async { Ok::<(), String>(()) }).unwrap()
    }

    fn seconds(ticks: &[Timestamp]) -> Vec<u64> {
        ticks.iter().map(|tick| tick.as_micros() / 1_000_000).collect()
    }

    #[test]
    fn what_is_in_time_is_fresh_and_the_rest_is_caught_up_or_missed() {
        let now = Timestamp::from_micros(10_500_000);
        let found = due(&task(|settings| settings.catch_up = 2), Timestamp::from_micros(3_000_000), now);
        assert_eq!(
            found.missed,
            Some((Timestamp::from_micros(4_000_000), Timestamp::from_micros(7_000_000), 4))
        );
        assert_eq!(seconds(&found.caught_up), [8, 9]);
        assert_eq!(seconds(&found.fresh), [10]);
        assert_eq!(
            (found.look_at, found.upto),
            (Some(Timestamp::from_micros(11_000_000)), Some(Timestamp::from_micros(10_000_000)))
        );
        let nothing = due(&task(|_| ()), Timestamp::from_micros(10_000_000), now);
        assert_eq!((nothing.upto, nothing.look_at), (None, Some(Timestamp::from_micros(11_000_000))));
    }

    #[test]
    fn without_catching_up_every_late_tick_is_missed() {
        let found = due(
            &task(|settings| settings.catch_up = 0),
            Timestamp::from_micros(0),
            Timestamp::from_micros(5_000_000),
        );
        assert_eq!(
            found.missed,
            Some((Timestamp::from_micros(1_000_000), Timestamp::from_micros(3_000_000), 3))
        );
        assert_eq!((found.caught_up.len(), seconds(&found.fresh)), (0, vec![4, 5]));
    }

    #[test]
    fn jitter_delays_every_tick_by_less_than_itself_and_differs() {
        let task = task(|settings| settings.jitter = Duration::from_millis(500));
        let delays: std::collections::BTreeSet<u64> =
            (1..100).map(|second| task.delay(Timestamp::from_micros(second * 1_000_000))).collect();
        assert!(delays.iter().all(|delay| *delay < 500_000) && delays.len() > 50);
        let tick = Timestamp::from_micros(7_000_000);
        assert_eq!(
            due(
                &task,
                Timestamp::from_micros(6_000_000),
                Timestamp::from_micros(tick.as_micros() + task.delay(tick) - 1)
            )
            .fresh,
            []
        );
        assert_eq!(
            due(
                &task,
                Timestamp::from_micros(6_000_000),
                Timestamp::from_micros(tick.as_micros() + task.delay(tick))
            )
            .fresh,
            [tick]
        );
    }

    #[test]
    fn years_of_seconds_are_counted_in_portions() {
        let found = due(&task(|_| ()), Timestamp::from_micros(0), Timestamp::from_micros(3_000_000_000_000));
        assert_eq!((found.missed.unwrap().2, found.caught_up.len()), (50_000, 0));
        assert_eq!(found.upto, Some(Timestamp::from_micros(50_000_000_000)));
    }
}
