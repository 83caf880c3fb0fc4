//! The worlds that are searched, and which of them shows which mistake.

use tenure_core::Mutant;
use tenure_core::engine::Class;

use super::setup::{Late, Pace, Setup};
use super::world::Link;

const MUTE: &[Link] = &[Link::Mute];
const BOTH: &[Link] = &[Link::Mute, Link::Deaf];

/// A leader that is cut off now and then, while one message at a time, of one kind, of one node, is late.
fn late(name: &'static str, late: &'static [Late], slow: usize) -> Setup {
    Setup { wires: 1, late, slow: vec![slow], cuts: MUTE, ..Setup::new(name) }
}

/// Those that every test run exhausts: two nodes, one role, no bound on time.
#[must_use]
pub fn all() -> Vec<Setup> {
    vec![
        Setup { cuts: BOTH, ..Setup::new("cuts") },
        Setup { cuts: BOTH, victims: vec![1], ..Setup::new("cuts-follower") },
        Setup { scratch: true, cuts: BOTH, ..Setup::new("scratch") },
        Setup { cuts: &[], stops: 1, sweep: true, ..late("late-openings", &[Late::Openings], 0) },
        late("late-beats", &[Late::Beats], 0),
        Setup { patient: true, cuts: &[], ..late("slow-beats", &[Late::Beats], 0) },
        late("late-closings", &[Late::Closings], 0),
        late("late-roles", &[Late::Roles], 0),
        late("late-roles-other", &[Late::Roles], 1),
        late("late-expulsions", &[Late::Expulsions], 1),
        Setup { early_hints: true, hints: true, ..late("early-hints", &[Late::Expulsions], 1) },
        late("late-reads", &[Late::Reads], 0),
        late("late-reads-other", &[Late::Reads], 1),
        Setup { release: true, linger: true, ..Setup::new("resign") },
        Setup { cuts: MUTE, linger: true, ..Setup::new("linger") },
        Setup { pause: true, ..Setup::new("pause") },
        Setup { pause: true, victims: vec![1], ..Setup::new("pause-follower") },
        Setup { pause: true, cuts: &[], ..late("pause-late-roles", &[Late::Roles], 0) },
        Setup { crashes: 1, cuts: MUTE, work_outlives: true, ..Setup::new("crash") },
        Setup { crashes: 1, witness: Some(true), work_outlives: true, ..Setup::new("dead") },
        Setup { crashes: 1, witness: Some(false), work_outlives: true, ..Setup::new("dead-elector") },
        Setup { stops: 1, cuts: MUTE, ..Setup::new("stop") },
        Setup { deletion: true, sweep: true, cuts: MUTE, ..Setup::new("deletion") },
        Setup { cuts: MUTE, paces: mixed(), ..Setup::new("mixed-ttls") },
        Setup { cuts: MUTE, paces: clocks(), ..Setup::new("clock-rates") },
        Setup { sweep: true, cuts: MUTE, ..Setup::new("sweep") },
        Setup { class: Class::C, forgets: 1, ..Setup::new("forgets") },
        Setup { forgets: 1, cuts: MUTE, ..Setup::new("deleted-by-hand") },
        Setup { prune: false, ..late("nothing-forgotten", &[Late::Roles], 0) },
        disconnect("disconnect"),
        Setup { pause: true, ..disconnect("disconnect-pause") },
    ]
}

/// Every world.
#[must_use]
pub fn every() -> Vec<Setup> {
    all().into_iter().chain(large()).collect()
}

/// Those that take longer, or that only go to a stated depth.
#[must_use]
pub fn large() -> Vec<Setup> {
    vec![
        Setup { duplicates: true, deletion: true, ..late("duplicates", &[Late::Closings], 0) },
        Setup { release: true, cuts: &[], ..late("late-resign", &[Late::Roles], 1) },
        Setup { release: true, hints: true, ..Setup::new("resign-hints") },
        Setup { victims: vec![0, 1], ..disconnect("disconnect-anybody") },
        Setup { cuts: MUTE, ..disconnect("disconnect-cut") },
        Setup { patient: true, ..late("slow-reads-other", &[Late::Reads], 1) },
        Setup { patient: true, release: true, ..late("slow-roles", &[Late::Roles], 0) },
        Setup { cuts: BOTH, victims: vec![0, 1], ..Setup::new("cuts-anybody") },
        Setup { sweep: true, ..late("late-openings-cuts", &[Late::Openings], 0) },
        Setup {
            duplicates: true,
            deletion: true,
            sweep: true,
            ..late("duplicate-openings", &[Late::Openings], 0)
        },
        Setup { fine: true, cuts: BOTH, ..Setup::new("cuts-fine") },
        Setup { paces: vec![Pace::PLAIN; 3], cuts: MUTE, depth: Some(14), ..Setup::new("three-nodes") },
        Setup {
            paces: vec![Pace::PLAIN; 3],
            crashes: 1,
            release: true,
            depth: Some(12),
            ..Setup::new("three-nodes-crash")
        },
    ]
}

/// Connections drop, and the server tells of it sooner or later.
fn disconnect(name: &'static str) -> Setup {
    Setup { disconnect: true, paces: vec![Pace { ttl: 6, ..Pace::PLAIN }; 2], ..Setup::new(name) }
}

/// The leader's session lasts longer than the follower's.
fn mixed() -> Vec<Pace> {
    vec![Pace { ttl: 6, ..Pace::PLAIN }, Pace::PLAIN]
}

/// The leader's clock is slow, the follower's is fast, each as much as it says it may be.
fn clocks() -> Vec<Pace> {
    vec![
        Pace { ttl: 6, clock_ppm: 810_000, error_ppm: 190_000 },
        Pace { ttl: 6, clock_ppm: 1_190_000, error_ppm: 190_000 },
    ]
}

/// The mistakes that the model catches by itself, each with the world that shows it.
#[must_use]
pub fn mistakes() -> Vec<(Mutant, &'static str)> {
    vec![
        (Mutant::UnconditionalRelease, "late-resign"),
        (Mutant::ValidityFromReply, "slow-beats"),
        (Mutant::UnknownIsSuccess, "cuts"),
        (Mutant::UnknownIsFailure, "late-roles"),
        (Mutant::TokenNotRaised, "cuts"),
        (Mutant::ClaimWithoutExpulsion, "cuts"),
        (Mutant::ExpelEarly, "clock-rates"),
        (Mutant::ReleaseBeforeStopped, "resign"),
        (Mutant::LateReplyBelieved, "late-roles"),
        (Mutant::AckCreditedToLaterSession, "slow-roles"),
        (Mutant::AbsentIsOver, "forgets"),
        (Mutant::HintBelieved, "early-hints"),
        (Mutant::ElectorDeathIsWorkDeath, "dead-elector"),
        (Mutant::OpeningSentTwice, "late-openings"),
        (Mutant::BooleanLeadership, "pause"),
        (Mutant::StrayIgnored, "late-roles"),
        (Mutant::FollowersRenew, "cuts"),
        (Mutant::OwnTtl, "mixed-ttls"),
        (Mutant::ExpelFromAsked, "slow-reads-other"),
        (Mutant::GraceSkipped, "disconnect"),
        (Mutant::BeatUnproven, "disconnect"),
    ]
}
