//! The worlds that are searched, and which of them catches which mutant.

use tenure_core::Mutant;
use tenure_core::engine::Class;

use super::setup::{MessageKind, NodePace, Setup};
use super::world::Partition;

const REQUESTS: &[Partition] = &[Partition::RequestsLost];
const EITHER: &[Partition] = &[Partition::RequestsLost, Partition::RepliesLost];

/// A leader that is partitioned now and then, while one message at a time, of one kind, of one node, is delayed.
fn late(name: &'static str, late: &'static [MessageKind], slow: usize) -> Setup {
    Setup { in_flight: 1, late, slow: vec![slow], cuts: REQUESTS, ..Setup::new(name) }
}

/// Those that every test run exhausts: two nodes or three, one role, no bound on time.
#[must_use]
pub fn all() -> Vec<Setup> {
    vec![
        Setup { cuts: EITHER, ..Setup::new("cuts") },
        Setup { cuts: EITHER, victims: vec![1], ..Setup::new("cuts-follower") },
        Setup { from_empty: true, cuts: EITHER, ..Setup::new("from-empty") },
        Setup { cuts: &[], stops: 1, sweep: true, ..late("late-openings", &[MessageKind::Openings], 0) },
        late("late-beats", &[MessageKind::Beats], 0),
        Setup { slow_replies: true, cuts: &[], ..late("slow-beats", &[MessageKind::Beats], 0) },
        late("late-closings", &[MessageKind::Closings], 0),
        late("late-roles", &[MessageKind::Roles], 0),
        late("late-roles-other", &[MessageKind::Roles], 1),
        // A claim and the read that follows it are late together.
        Setup {
            in_flight: 2,
            cuts: &[],
            stops: 1,
            ..late("late-claims", &[MessageKind::Roles, MessageKind::Reads], 1)
        },
        late("late-expulsions", &[MessageKind::Expulsions], 1),
        Setup {
            early_hints: true,
            forged_hints: 1,
            hints: true,
            ..late("early-hints", &[MessageKind::Expulsions], 1)
        },
        Setup { forged_hints: 1, cuts: REQUESTS, ..Setup::new("forged-hints") },
        late("late-reads", &[MessageKind::Reads], 0),
        late("late-reads-other", &[MessageKind::Reads], 1),
        Setup { resign: true, slow_stops: true, ..Setup::new("resign") },
        Setup { cuts: REQUESTS, slow_stops: true, ..Setup::new("slow-stops") },
        Setup { pause: true, ..Setup::new("pause") },
        Setup { pause: true, victims: vec![1], ..Setup::new("pause-follower") },
        Setup { pause: true, cuts: &[], ..late("pause-late-roles", &[MessageKind::Roles], 0) },
        Setup { crashes: 1, cuts: REQUESTS, work_outlives: true, ..Setup::new("crash") },
        Setup { crashes: 1, liveness_locks: Some(true), work_outlives: true, ..Setup::new("dead") },
        Setup { crashes: 1, liveness_locks: Some(false), work_outlives: true, ..Setup::new("dead-elector") },
        Setup { stops: 1, cuts: REQUESTS, ..Setup::new("stop") },
        Setup { cuts: REQUESTS, paces: mixed(), ..Setup::new("mixed-ttls") },
        Setup { cuts: REQUESTS, paces: clocks(), ..Setup::new("clock-rates") },
        Setup { sweep: true, cuts: REQUESTS, ..Setup::new("sweep") },
        Setup { class: Class::C, forgets: 1, ..Setup::new("forgets") },
        Setup { forgets: 1, cuts: REQUESTS, ..Setup::new("deleted-by-hand") },
        Setup { prune: false, ..late("nothing-forgotten", &[MessageKind::Roles], 0) },
        disconnect("disconnect"),
        Setup { pause: true, ..disconnect("disconnect-pause") },
        Setup { stops: 1, ..three("three-nodes-stop") },
        Setup { crashes: 1, ..three("three-nodes-crash-once") },
    ]
}

/// Three nodes; the first leads.
fn three(name: &'static str) -> Setup {
    Setup { paces: vec![NodePace::PLAIN; 3], ..Setup::new(name) }
}

#[must_use]
pub fn every() -> Vec<Setup> {
    all().into_iter().chain(large()).collect()
}

/// Those that take longer, or that only go to a stated depth.
#[must_use]
pub fn large() -> Vec<Setup> {
    vec![
        Setup { deletion: true, sweep: true, cuts: REQUESTS, ..Setup::new("deletion") },
        Setup { duplicates: true, deletion: true, ..late("duplicates", &[MessageKind::Closings], 0) },
        Setup { resign: true, cuts: &[], ..late("late-resign", &[MessageKind::Roles], 1) },
        Setup { resign: true, hints: true, ..Setup::new("resign-hints") },
        Setup { forged_hints: 2, resign: true, hints: true, ..Setup::new("forged-hints-resign") },
        Setup { victims: vec![0, 1], ..disconnect("disconnect-anybody") },
        Setup { cuts: REQUESTS, ..disconnect("disconnect-cut") },
        Setup { slow_replies: true, ..late("slow-reads-other", &[MessageKind::Reads], 1) },
        Setup { slow_replies: true, resign: true, ..late("slow-roles", &[MessageKind::Roles], 0) },
        Setup { cuts: EITHER, victims: vec![0, 1], ..Setup::new("cuts-anybody") },
        Setup { sweep: true, ..late("late-openings-cuts", &[MessageKind::Openings], 0) },
        Setup {
            duplicates: true,
            deletion: true,
            sweep: true,
            ..late("duplicate-openings", &[MessageKind::Openings], 0)
        },
        Setup { fine_grained: true, cuts: EITHER, ..Setup::new("cuts-fine-grained") },
        Setup { resign: true, ..three("three-nodes-resign") },
        Setup { cuts: REQUESTS, ..three("three-nodes-cut") },
        Setup { crashes: 1, resign: true, depth: Some(12), ..three("three-nodes-crash") },
        // The second node is the standby that rests, the third the one that watches.
        Setup { cuts: REQUESTS, victims: vec![1], ..three("three-nodes-cut-resting") },
        Setup { cuts: EITHER, victims: vec![2], ..three("three-nodes-cut-watching") },
        Setup { pause: true, victims: vec![1], ..three("three-nodes-pause-resting") },
        Setup { pause: true, victims: vec![2], ..three("three-nodes-pause-watching") },
        Setup { crashes: 2, victims: vec![0, 2], ..three("three-nodes-crash-of-two") },
    ]
}

/// Connections drop, and the server tells of it sooner or later.
fn disconnect(name: &'static str) -> Setup {
    Setup { disconnect: true, paces: vec![NodePace { ttl: 6, ..NodePace::PLAIN }; 2], ..Setup::new(name) }
}

/// The leader's session lasts longer than the follower's.
fn mixed() -> Vec<NodePace> {
    vec![NodePace { ttl: 6, ..NodePace::PLAIN }, NodePace::PLAIN]
}

/// The leader's clock is slow, the follower's is fast, each as much as it says it may be.
fn clocks() -> Vec<NodePace> {
    vec![
        NodePace { ttl: 6, clock_ppm: 810_000, error_ppm: 190_000 },
        NodePace { ttl: 6, clock_ppm: 1_190_000, error_ppm: 190_000 },
    ]
}

/// The mutants that the model catches by itself, each with the world that catches it.
#[must_use]
pub fn mutants() -> Vec<(Mutant, &'static str)> {
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
        (Mutant::HintBelieved, "forged-hints"),
        (Mutant::HintDeposes, "forged-hints"),
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
