//! A running command: renewed with the lease, stopped when asked, killed when leadership is gone.

use std::time::Duration;

use rustix::process::Signal;
use tenure::{Lead, StopRequest};

use crate::clock::lease_now;
use crate::{Change, Child, Ended, terminal};
use crate::{ReceivedSignal, Signals};

/// Why a command does not run any more. Nothing of it is left.
#[derive(Debug)]
pub enum Outcome {
    /// It ended by itself.
    Ended(Ended),
    /// It was ended because leadership was lost or given up.
    Lost(String),
    /// It was ended because this process was told to stop.
    Stopped(Ended),
}

/// What has been decided about the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopPlan {
    Run,
    GiveUp,
    Exit,
}

/// Who stops a command when its role is to be given up calmly. When the lease runs out, the watchdog does.
#[derive(Debug, Clone, Copy)]
pub enum Drains {
    /// This supervision, at once. The function is called before this process stops together with its command (Ctrl-Z).
    Here(fn(&Lead)),
    /// The caller, who knows how long it may go on, and says so by a signal.
    Elsewhere,
}

/// Stays with the command until nothing of it is left.
pub async fn supervise(
    mut child: Child,
    lead: &Lead,
    signals: &mut Signals,
    drain: Duration,
    drains: Drains,
) -> Outcome {
    let mut deadlines = lead.deadlines();
    let mut plan = StopPlan::Run;
    let mut why = String::new();
    let mut killed = false;
    let ended = loop {
        tokio::select! {
            biased;
            change = child.changed() => match change {
                Change::Ended(ended) => break ended,
                Change::Stopped(signal) => {
                    if let Drains::Here(suspending) = drains {
                        stopped(&child, signal, || suspending(lead));
                    }
                }
            },
            moved = deadlines.moved() => match moved {
                // Read before what is left of the lease, so that the watchdog's deadline is never later than ours.
                Some(_) => child.renew(lease_deadline(lead)),
                None => killed = kill(&mut child),
            },
            signal = signals.next() => match signal {
                ReceivedSignal::Forward(signal) | ReceivedSignal::ForwardOrExit(signal) => child.signal(i32::from(signal)),
                ReceivedSignal::Suspend => child.signal(Signal::TSTP.as_raw()),
                ReceivedSignal::Continue => child.resume(),
                // The second one means: at once.
                ReceivedSignal::Stop(_) if plan == StopPlan::Exit => killed = kill(&mut child),
                ReceivedSignal::Stop(signal) => {
                    plan = StopPlan::Exit;
                    stop(&child, signal, drain);
                }
            },
            request = lead.stop_requested(), if plan == StopPlan::Run && matches!(drains, Drains::Here(_)) => {
                why = format!("leadership of {} was lost: {}", lead.role(), request.reason());
                plan = StopPlan::GiveUp;
                // If the lease runs out, the watchdog knows when to do what.
                if matches!(request, StopRequest::Drain { .. }) {
                    child.begin_stop(drain);
                }
            },
            () = lead.cancelled(), if !killed => killed = kill(&mut child),
        }
    };
    // A process that was frozen hears of the end of its command first, and of the reason for it afterwards.
    let lost = ended.expired || !lead.check();
    match plan {
        StopPlan::Run if lost => {
            Outcome::Lost(format!("leadership of {} was lost: its lease ran out", lead.role()))
        }
        StopPlan::Run => Outcome::Ended(ended),
        StopPlan::GiveUp => Outcome::Lost(why),
        StopPlan::Exit => Outcome::Stopped(ended),
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

/// The command was stopped, by Ctrl-Z most likely: this process stops too, so that the shell takes its terminal back, and
/// lets the command go on when it does. The lease is not renewed meanwhile; the watchdog, which goes on, ends the command
/// before it runs out. Where no shell could continue anything, Ctrl-Z means nothing, and a command that is stopped because
/// the terminal is not its own is told that there is none any more (SIGHUP), as the kernel does.
fn stopped(child: &Child, signal: i32, suspending: impl FnOnce()) {
    if terminal::has_shell() {
        suspending();
        terminal::stop_own_group();
    } else if signal == Signal::TSTP.as_raw() {
        child.resume();
    } else if [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal) {
        child.signal(Signal::HUP.as_raw());
        child.resume();
    }
}

fn kill(child: &mut Child) -> bool {
    child.begin_stop(Duration::ZERO);
    true
}

/// When the lease ends, on the clock that the watchdog reads too.
#[must_use]
pub fn lease_deadline(lead: &Lead) -> u64 {
    let now = lease_now();
    now.saturating_add(u64::try_from(lead.remaining().as_nanos()).unwrap_or(u64::MAX))
}
