//! Where each mistake shows: the swarm is aimed, so that few seeds are enough.
//!
//! This only turns the odds; the world stays random, and the invariants know nothing of it.

use tenure_core::engine::Class;
use tenure_core::{Mutant, Name};

use crate::clock::{Instant, MILLI, SECOND};
use crate::faults::{Fault, Mishap};
use crate::rng::Ppm;
use crate::swarm::{Settings, WitnessKind};

/// Aims a world at what shows this mistake.
pub(crate) fn aim(settings: &mut Settings, mutant: Mutant, base: Instant) {
    settings.class = Class::B;
    settings.roles.truncate(3);
    settings.span = settings.span.min(60 * settings.net.stale.max(SECOND));
    match mutant {
        Mutant::QuarantineSkipped | Mutant::NoTokenFloor => forgetting(settings),
        Mutant::CloneUnnoticed => only(settings, WitnessKind::None, &[(Fault::Clone, 3), (Fault::Crash, 1)]),
        Mutant::ElectorDeathIsWorkDeath => only(settings, WitnessKind::Death, &[(Fault::Crash, 1)]),
        Mutant::AnyWitness => only(settings, WitnessKind::Death, &[(Fault::FalseWitness, 1)]),
        Mutant::GraceSkipped | Mutant::BeatUnproven => {
            only(settings, WitnessKind::Disconnect, &[(Fault::Disconnect, 1)])
        }
        Mutant::HintBelieved => {
            add(settings, &[(Fault::FalseHint, 20)]);
            settings.net.rings = true;
        }
        Mutant::AbsentIsOver => often(settings, &[(Mishap::Stale, 300_000)]),
        Mutant::UnconditionalRelease => {
            often(settings, &[(Mishap::ReplyLost, 200_000), (Mishap::Unknown, 100_000)]);
            settings.wishes = [0, 0, 1, 0, 0];
            settings.user_every = Some(base / 2);
        }
        Mutant::LateReplyBelieved | Mutant::ExpiredLeftOpen => {
            often(settings, &[(Mishap::Slow, 250_000)]);
            add(settings, &[(Fault::Pause, 10), (Fault::Cut, 10), (Fault::Outage, 5)]);
            settings.fault_every = settings.fault_every.map(|every| every.min(settings.span / 40));
        }
        Mutant::OpeningSentTwice
        | Mutant::UnknownIsSuccess
        | Mutant::UnknownIsFailure
        | Mutant::StrayIgnored => {
            often(
                settings,
                &[(Mishap::RequestLost, 100_000), (Mishap::ReplyLost, 200_000), (Mishap::Unknown, 100_000)],
            );
            add(settings, &[(Fault::Pause, 10), (Fault::Crash, 5)]);
        }
        Mutant::RequestFellsAnyone | Mutant::PauseNotReread => {
            often(settings, &[(Mishap::Stale, 0), (Mishap::Slow, 100_000), (Mishap::HintLost, 300_000)]);
            settings.operator_every = Some(settings.span / 80);
            add(settings, &[(Fault::Crash, 5), (Fault::Replica, 0)]);
        }
        Mutant::ReleaseBeforeStopped => settings.user_every = Some(settings.span / 40),
        Mutant::BeatAfterCancel => {
            often(settings, &[(Mishap::RequestLost, 300_000), (Mishap::Slow, 200_000)]);
            add(settings, &[(Fault::Cut, 10)]);
        }
        Mutant::ClockReadOrder => add(settings, &[(Fault::Pause, 20)]),
        mutant => aim_precisely(settings, mutant, base),
    }
    if settings.fault_every.is_none() {
        settings.fault_every = Some(settings.span / 30);
    }
}

/// Mistakes that show only in worlds made for them, where little else happens.
fn aim_precisely(settings: &mut Settings, mutant: Mutant, base: Instant) {
    match mutant {
        // The last beat was answered late, or the last read sent early, and then the leader freezes.
        Mutant::ExpelFromAsked | Mutant::ValidityFromReply | Mutant::ValidityFromRead => {
            only(settings, WitnessKind::None, &[(Fault::Pause, 1)]);
            settings.net.odds.fill(0);
            often(settings, &[(Mishap::Slow, 300_000)]);
            settings.net.slow = base / 5;
            settings.fault_every = Some(2 * base);
            settings.span = 60 * base;
            settings.hunt = true;
        }
        // A session ends at once while a claim is on its way, and the next one is open before the answer comes.
        Mutant::AckCreditedToLaterSession => {
            only(settings, WitnessKind::None, &[(Fault::ClockFault, 1)]);
            settings.net.odds.fill(0);
            often(settings, &[(Mishap::Slow, 300_000)]);
            settings.net.slow = base / 6;
            settings.fault_every = Some(base / 4);
            settings.span = 30 * base;
        }
        // With few roles each is looked at in turn before anybody misses the hint.
        Mutant::FreedIgnored => {
            only(settings, WitnessKind::None, &[]);
            settings.roles = many_roles();
            settings.net.rings = false;
            settings.net.odds.fill(0);
            settings.wishes = [1, 0, 0, 0, 0];
            settings.span = 15 * base;
            settings.user_every = Some(base / 40);
        }
        Mutant::ExpelEarly | Mutant::OwnTtl => {
            only(settings, WitnessKind::None, &[(Fault::Pause, 10), (Fault::Crash, 1)]);
            settings.net.odds.fill(0);
            settings.net.usual = MILLI;
            settings.fault_every = Some(2 * base);
            settings.hunt = true;
        }
        _ => add(settings, &[(Fault::Pause, 10), (Fault::Cut, 10), (Fault::Crash, 5)]),
    }
}

fn many_roles() -> Vec<Name> {
    (0..300).map(|index| Name::new(format!("r{index}")).expect("a letter and digits")).collect()
}

fn forgetting(settings: &mut Settings) {
    settings.class = Class::C;
    only(settings, WitnessKind::None, &[(Fault::Amnesia, 3), (Fault::Crash, 3)]);
    let often: Instant = settings.span / 20;
    settings.fault_every = Some(often);
}

fn only(settings: &mut Settings, witness: WitnessKind, faults: &[(Fault, u64)]) {
    settings.witness = witness;
    settings.weights.fill(0);
    add(settings, faults);
    settings.fault_every = Some(settings.span / 30);
}

fn add(settings: &mut Settings, faults: &[(Fault, u64)]) {
    for (fault, weight) in faults {
        *settings.weight(*fault) = *weight;
    }
}

fn often(settings: &mut Settings, mishaps: &[(Mishap, Ppm)]) {
    for (mishap, odds) in mishaps {
        settings.net.odds[*mishap as usize] = *odds;
    }
}
