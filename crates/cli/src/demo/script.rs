//! When to do what to the leader. Only decides; the stage acts.

use std::time::Duration;

/// What can be done to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoFault {
    /// SIGKILL; started anew later.
    Kill,
    /// SIGSTOP for longer than the lease, then SIGCONT.
    Freeze,
    /// A clean hand-over to another node.
    HandOver,
}

/// In this order, over and over.
const SCRIPT: [DemoFault; 8] = [
    DemoFault::Kill,
    DemoFault::HandOver,
    DemoFault::Freeze,
    DemoFault::Kill,
    DemoFault::HandOver,
    DemoFault::Kill,
    DemoFault::Freeze,
    DemoFault::HandOver,
];

/// Decides what to do to the leader, and when.
#[derive(Debug)]
pub(super) struct FaultScript {
    done: usize,
    pause: Duration,
    not_before: u64,
    /// Told to rest by the viewer.
    pub(super) resting: bool,
}

impl FaultScript {
    /// One that acts every `pause`.
    pub(super) fn new(pause: Duration) -> Self {
        Self { done: 0, pause, not_before: u64::MAX, resting: false }
    }

    /// What to do now, if anything. `calm`: a node leads, and another one could; `left`: how long the demo lasts.
    pub(super) fn next(&mut self, now: u64, calm: bool, left: Duration) -> Option<DemoFault> {
        if !calm {
            self.not_before = u64::MAX;
            return None;
        }
        if self.not_before == u64::MAX {
            self.rest(now);
        }
        if self.resting || now < self.not_before {
            return None;
        }
        let fits = |act: &DemoFault| takes(*act) <= left;
        // What would not be over in time gives way to what is.
        let (skipped, act) = (0..SCRIPT.len())
            .map(|ahead| (ahead, SCRIPT[(self.done + ahead) % SCRIPT.len()]))
            .find(|(_, act)| fits(act))?;
        self.done += skipped + 1;
        self.rest(now);
        Some(act)
    }

    /// Leaves the stage alone for a while.
    pub(super) fn rest(&mut self, now: u64) {
        self.not_before = now.saturating_add(u64::try_from(self.pause.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// How long it takes until all that follows has been seen.
fn takes(act: DemoFault) -> Duration {
    match act {
        DemoFault::Freeze => super::timing().bounds().crash + Duration::from_secs(1),
        DemoFault::Kill | DemoFault::HandOver => Duration::from_secs(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn it_waits_until_all_is_calm_and_then_a_while() {
        let mut script = FaultScript::new(Duration::from_secs(2));
        assert_eq!(script.next(0, false, LONG), None);
        assert_eq!(script.next(SECOND, true, LONG), None);
        assert_eq!(script.next(2 * SECOND, true, LONG), None);
        assert_eq!(script.next(3 * SECOND, true, LONG), Some(DemoFault::Kill));
        assert_eq!(script.next(3 * SECOND, true, LONG), None);
        assert_eq!(script.next(5 * SECOND, true, LONG), Some(DemoFault::HandOver));
        assert_eq!(script.next(7 * SECOND, true, LONG), Some(DemoFault::Freeze));
    }

    #[test]
    fn what_would_not_be_over_in_time_is_passed_over() {
        let mut script = FaultScript::new(Duration::ZERO);
        script.done = 2;
        assert_eq!(script.next(1, true, Duration::from_secs(3)), Some(DemoFault::Kill));
        assert_eq!(script.next(2, true, Duration::from_millis(900)), None);
    }

    #[test]
    fn it_rests_when_told_to() {
        let mut script = FaultScript::new(Duration::ZERO);
        script.resting = true;
        assert_eq!(script.next(1, true, LONG), None);
        script.resting = false;
        assert_eq!(script.next(2, true, LONG), Some(DemoFault::Kill));
    }
}
