//! Directed swarms: aims the settings at one mutant, so that few seeds are enough to catch it.
//!
//! Only the probabilities change; the world stays random, and the invariants know nothing of the mutant.

use std::time::Duration;

use tenure_core::engine::Class;
use tenure_core::{Mutant, Timing};

use crate::clock::{Instant, MILLI, SECOND};
use crate::faults::{Fault, MessageFault};
use crate::rng::Ppm;
use crate::swarm::{LivenessLockKind, NodeSettings, SimSettings, names};

/// Aims a world at what catches this mutant.
pub(crate) fn aim(settings: &mut SimSettings, mutant: Mutant, base: Instant) {
    settings.class = Class::B;
    settings.roles.truncate(3);
    settings.span = settings.span.min(60 * settings.network.stale.max(SECOND));
    match mutant {
        Mutant::NoTokenFloor => forgetting(settings),
        Mutant::QuarantineSkipped => forgetting_unseen(settings),
        Mutant::CloneUnnoticed => {
            settings.class = Class::C;
            let faults = [(Fault::Clone, 6), (Fault::LostWrite, 1), (Fault::Crash, 2)];
            only(settings, LivenessLockKind::None, &faults);
        }
        Mutant::ElectorDeathIsWorkDeath => only(settings, LivenessLockKind::Death, &[(Fault::Crash, 1)]),
        Mutant::AnyLivenessLock => only(settings, LivenessLockKind::Death, &[(Fault::FalseEvidence, 1)]),
        Mutant::GraceSkipped | Mutant::BeatUnproven => {
            only(settings, LivenessLockKind::Disconnect, &[(Fault::Disconnect, 1)])
        }
        Mutant::HintBelieved | Mutant::HintDeposes => {
            add(settings, &[(Fault::FalseHint, 20)]);
            settings.network.notifies = true;
        }
        Mutant::AbsentIsOver => often(settings, &[(MessageFault::Stale, 300_000)]),
        Mutant::UnconditionalRelease => {
            often(settings, &[(MessageFault::ReplyLost, 200_000), (MessageFault::Unknown, 100_000)]);
            settings.user_weights = [0, 0, 1, 0, 0];
            settings.user_every = Some(base / 2);
        }
        Mutant::LateReplyBelieved | Mutant::ExpiredLeftOpen => {
            often(settings, &[(MessageFault::Slow, 250_000)]);
            add(settings, &[(Fault::Pause, 10), (Fault::Partition, 10), (Fault::Outage, 5)]);
            settings.fault_every = settings.fault_every.map(|every| every.min(settings.span / 40));
        }
        Mutant::OpeningSentTwice
        | Mutant::UnknownIsSuccess
        | Mutant::UnknownIsFailure
        | Mutant::StrayIgnored => unanswered(settings),
        Mutant::RequestFellsAnyone
        | Mutant::PauseNotReread
        | Mutant::TransferUndone
        | Mutant::StepDownForgotten => {
            often(
                settings,
                &[(MessageFault::Stale, 0), (MessageFault::Slow, 100_000), (MessageFault::HintLost, 300_000)],
            );
            settings.operator_every = Some(settings.span / 80);
            add(settings, &[(Fault::Crash, 5), (Fault::StaleReplica, 0)]);
        }
        Mutant::ReleaseBeforeStopped => settings.user_every = Some(settings.span / 40),
        Mutant::BeatAfterCancel => {
            often(settings, &[(MessageFault::RequestLost, 300_000), (MessageFault::Slow, 200_000)]);
            add(settings, &[(Fault::Partition, 10)]);
        }
        Mutant::ClockReadOrder => add(settings, &[(Fault::Pause, 20)]),
        Mutant::DropEndsStrict => only(settings, LivenessLockKind::Disconnect, &[(Fault::FalseEvidence, 1)]),
        Mutant::ForgotIgnored => add(settings, &[(Fault::FalseLossReport, 10)]),
        Mutant::LossUnaudited
        | Mutant::StrayForgotten
        | Mutant::ElectedUnsettled
        | Mutant::SlowClaimLed
        | Mutant::TokensOutrunClocks
        | Mutant::HighestStandsStill
        | Mutant::AsksTooEarly
        | Mutant::HandsOverTooEarly
        | Mutant::WeakeningIgnored => losing(settings, mutant, base),
        mutant => aim_precisely(settings, mutant, base),
    }
    if settings.fault_every.is_none() {
        settings.fault_every = Some(settings.span / 30);
    }
}

/// The standby that watches a leader reads just after its beats: a leader that reaches the store notices a loss first.
fn forgetting_unseen(settings: &mut SimSettings) {
    forgetting(settings);
    add(settings, &[(Fault::Partition, 5), (Fault::Pause, 3)]);
    settings.target_leaders = true;
}

/// Requests and replies are lost, and outcomes are unknown.
fn unanswered(settings: &mut SimSettings) {
    let lost = [(MessageFault::RequestLost, 100_000), (MessageFault::ReplyLost, 200_000)];
    often(settings, &lost);
    often(settings, &[(MessageFault::Unknown, 100_000)]);
    add(settings, &[(Fault::Pause, 10), (Fault::Crash, 5)]);
}

/// Mutants that only worlds made for them catch, where little else happens.
fn aim_precisely(settings: &mut SimSettings, mutant: Mutant, base: Instant) {
    match mutant {
        Mutant::TimersSleep => {
            only(settings, LivenessLockKind::None, &[(Fault::Suspend, 1)]);
            settings.target_leaders = true;
        }
        // The store forgets the node with the longest lease while it leads.
        Mutant::LeaseFallsEarly => {
            forgetting(settings);
            only(
                settings,
                LivenessLockKind::None,
                &[(Fault::RegisterDeleted, 5), (Fault::Partition, 5), (Fault::Crash, 1)],
            );
            settings.target_leaders = true;
        }
        Mutant::HintsUnlimited => {
            only(settings, LivenessLockKind::None, &[(Fault::HintFlood, 1)]);
            settings.network.odds.fill(0);
            settings.network.usual = MILLI / 20;
            settings.network.least = settings.network.least.min(MILLI / 20);
        }
        // The last beat was answered late, or the last read sent early, and then the leader freezes.
        Mutant::ExpelFromAsked
        | Mutant::ExpelFromExpected
        | Mutant::ValidityFromReply
        | Mutant::ValidityFromRead => {
            only(settings, LivenessLockKind::None, &[(Fault::Pause, 1)]);
            settings.network.odds.fill(0);
            often(settings, &[(MessageFault::Slow, 300_000)]);
            settings.network.slow = base / 5;
            settings.fault_every = Some(2 * base);
            settings.span = 60 * base;
            settings.target_leaders = true;
        }
        // A session ends at once while a claim is on its way, and the next one is open before the answer comes.
        Mutant::AckCreditedToLaterSession => {
            only(settings, LivenessLockKind::None, &[(Fault::ClockFault, 1)]);
            settings.network.odds.fill(0);
            often(settings, &[(MessageFault::Slow, 300_000)]);
            settings.network.slow = base / 6;
            settings.fault_every = Some(base / 4);
            settings.span = 30 * base;
        }
        Mutant::ControlsBesideClaim => pausing_while_claiming(settings, base),
        // With few roles the polls reach each role in turn before a node misses the hint.
        Mutant::FreedIgnored => {
            only(settings, LivenessLockKind::None, &[]);
            settings.roles = names(300);
            settings.network.notifies = false;
            settings.network.odds.fill(0);
            settings.user_weights = [1, 0, 0, 0, 0];
            settings.span = 15 * base;
            settings.user_every = Some(base / 40);
        }
        Mutant::ExpelEarly | Mutant::OwnTtl => {
            only(settings, LivenessLockKind::None, &[(Fault::Pause, 10), (Fault::Crash, 1)]);
            settings.network.odds.fill(0);
            settings.network.usual = MILLI;
            settings.fault_every = Some(2 * base);
            settings.target_leaders = true;
        }
        _ => add(settings, &[(Fault::Pause, 10), (Fault::Partition, 10), (Fault::Crash, 5)]),
    }
}

/// An operator pauses a role after a read of its claimer was served, and before the claim is.
fn pausing_while_claiming(settings: &mut SimSettings, base: Instant) {
    only(settings, LivenessLockKind::None, &[]);
    settings.network.odds.fill(0);
    settings.network.usual = base / 200;
    settings.roles = names(12);
    settings.user_weights = [1, 0, 0, 0, 0];
    settings.user_every = Some(base / 30);
    settings.operator_every = Some(base / 1000);
    settings.span = 30 * base;
}

/// Gives one node a longer lease than all others, where that is what catches the mutant.
pub(crate) fn aim_node(node: &mut NodeSettings, mutant: Option<Mutant>, base: Instant) {
    if mutant == Some(Mutant::LeaseFallsEarly) {
        let ttl = Some(Duration::from_millis(3 * (base / MILLI).clamp(100, 60_000)));
        let times = tenure_core::timing::TimingSettings { ttl, ..Default::default() };
        node.timing = Timing::new(&times).expect("the defaults hold for every ttl");
    }
}

/// Mutants that show only where acknowledged writes are lost.
fn losing(settings: &mut SimSettings, mutant: Mutant, base: Instant) {
    settings.class = Class::C;
    only(settings, LivenessLockKind::None, &[(Fault::Rollback, 5), (Fault::LostWrite, 5), (Fault::Crash, 3)]);
    settings.fault_every = Some(base);
    settings.user_every = Some(base / 2);
    settings.span = settings.span.max(40 * base);
    settings.wrong_clocks = false;
    match mutant {
        Mutant::LossUnaudited => {
            settings.roles = names(30);
            (settings.reports_losses, settings.network.notifies) = (true, false);
        }
        Mutant::StrayForgotten => {
            settings.user_weights = [4, 2, 1, 0, 0];
            settings.reports_losses = false;
            add(settings, &[(Fault::Rollback, 0), (Fault::LostWrite, 20)]);
        }
        Mutant::TokensOutrunClocks => {
            settings.bad_clocks = true;
            (settings.reports_losses, settings.silent, settings.network.notifies) = (false, true, false);
            settings.fault_every = Some(6 * base);
        }
        Mutant::WeakeningIgnored => (settings.class, settings.weakens) = (Class::B, true),
        Mutant::HighestStandsStill => {
            settings.wrong_clocks = true;
            add(settings, &[(Fault::WallClockJump, 5)]);
        }
        Mutant::AsksTooEarly => add(settings, &[(Fault::Crash, 20)]),
        Mutant::HandsOverTooEarly => settings.operator_every = Some(base / 10),
        _ => {}
    }
}

fn forgetting(settings: &mut SimSettings) {
    settings.class = Class::C;
    only(settings, LivenessLockKind::None, &[(Fault::DataLoss, 3), (Fault::Crash, 3)]);
    let often: Instant = settings.span / 20;
    settings.fault_every = Some(often);
}

fn only(settings: &mut SimSettings, locks: LivenessLockKind, faults: &[(Fault, u64)]) {
    settings.liveness_locks = locks;
    settings.weights.fill(0);
    add(settings, faults);
    settings.fault_every = Some(settings.span / 30);
}

fn add(settings: &mut SimSettings, faults: &[(Fault, u64)]) {
    for (fault, weight) in faults {
        *settings.weight(*fault) = *weight;
    }
}

fn often(settings: &mut SimSettings, message_faults: &[(MessageFault, Ppm)]) {
    for (message_fault, odds) in message_faults {
        settings.network.odds[*message_fault as usize] = *odds;
    }
}
