//! A running command: renewed with the lease, stopped when asked, killed when leadership is gone.

use std::time::Duration;

use tenure::Lead;

use super::signals::{Heard, Signals};
use crate::process::clock::lease_now;
use crate::process::{Child, Ended};

/// Why a command does not run any more. Nothing of it is left.
pub(crate) enum Outcome {
    /// It ended by itself.
    Ended(Ended),
    /// It was ended because leadership was lost or given up.
    Lost(String),
    /// It was ended because this process was told to stop.
    Stopped(Ended),
}

/// What has been decided about the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Run,
    GiveUp,
    Exit,
}

/// Who stops a command when its role is to be given up calmly. When the lease runs out, the watchdog does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drains {
    /// This supervision, at once.
    Here,
    /// Somebody else, who knows how long it may go on, and says so by a signal.
    Elsewhere,
}

/// Stays with the command until nothing of it is left.
pub(crate) async fn supervise(
    mut child: Child,
    lead: &Lead,
    signals: &mut Signals,
    drain: Duration,
    drains: Drains,
) -> Outcome {
    let mut deadlines = lead.deadlines();
    let mut plan = Plan::Run;
    let mut why = String::new();
    let mut killed = false;
    let ended = loop {
        tokio::select! {
            biased;
            ended = child.wait() => break ended,
            moved = deadlines.changed() => match moved {
                // Read before what is left of the lease, so that the watchdog's deadline is never later than ours.
                Ok(()) => child.renew(lease_deadline(lead)),
                Err(_) => killed = kill(&mut child),
            },
            heard = signals.next() => match heard {
                Heard::Forward(signal) => child.signal(i32::from(signal)),
                // The second one means: at once.
                Heard::Stop(_) if plan == Plan::Exit => killed = kill(&mut child),
                Heard::Stop(signal) => {
                    plan = Plan::Exit;
                    stop(&child, signal, drain);
                }
            },
            (reason, forced) = lead.ended(), if plan == Plan::Run && drains == Drains::Here => {
                why = format!("leadership of {} was lost: {reason}", lead.role());
                plan = Plan::GiveUp;
                // If the lease runs out, the watchdog knows when to do what.
                if !forced {
                    child.begin_stop(drain);
                }
            },
            () = lead.cancelled(), if !killed => killed = kill(&mut child),
        }
    };
    // A process that was frozen hears of the end of its command first, and of the reason for it afterwards.
    let lost = ended.expired || !lead.check();
    match plan {
        Plan::Run if lost => {
            Outcome::Lost(format!("leadership of {} was lost: its lease ran out", lead.role()))
        }
        Plan::Run => Outcome::Ended(ended),
        Plan::GiveUp => Outcome::Lost(why),
        Plan::Exit => Outcome::Stopped(ended),
    }
}

/// Passes the signal on if it says more than "end", and gives the command its time.
fn stop(child: &Child, signal: u8, drain: Duration) {
    const TERM: u8 = 15;
    if signal != TERM {
        child.signal(i32::from(signal));
    }
    child.begin_stop(drain);
}

fn kill(child: &mut Child) -> bool {
    child.begin_stop(Duration::ZERO);
    true
}

/// When the lease ends, on the clock that the watchdog reads too.
pub(crate) fn lease_deadline(lead: &Lead) -> u64 {
    let now = lease_now();
    now.saturating_add(u64::try_from(lead.remaining().as_nanos()).unwrap_or(u64::MAX))
}
