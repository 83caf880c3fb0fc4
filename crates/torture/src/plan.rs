//! The plan: what is done, to whom, when and for how long. It follows from the seed alone.
//!
//! Faults come in bursts of one to three at a time, with a calm after each. Every fourth calm is so long that what the
//! faults excuse is over before it ends, and leaders must have returned. Kinds are drawn like cards: each comes once before any
//! comes twice.

use std::fmt::Write as _;
use std::time::Duration;

use crate::fault::{FaultGroup, FaultKind};
use crate::target::TargetStore;
use crate::{ROLES, TortureSettings};

/// Whom a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    /// The leader of that role at that time.
    Leader(usize),
    Node(usize),
}

/// One fault of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedFault {
    pub(crate) at: Duration,
    pub(crate) kind: FaultKind,
    pub(crate) target: FaultTarget,
    pub(crate) role: usize,
    pub(crate) lasts: Duration,
}

/// Every so many bursts a long calm follows.
const LONG_CALM: u32 = 4;
/// For how many ttls a fault lasts at most.
const LONGEST: f64 = 2.5;

/// What is injected, and what of the wanted faults cannot be.
#[derive(Debug)]
pub struct Plan {
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) able: Vec<FaultKind>,
    pub(crate) unable: Vec<(FaultKind, &'static str)>,
}

impl Plan {
    /// The plan of these settings for this store.
    #[must_use]
    pub fn new(settings: &TortureSettings, target: &TargetStore) -> Self {
        let (able, unable) = target.able(&settings.kinds);
        Self { faults: plan(settings, &able), able, unable }
    }
}

/// Draws the faults.
fn plan(settings: &TortureSettings, able: &[FaultKind]) -> Vec<PlannedFault> {
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let kinds: Vec<FaultKind> = able.iter().copied().filter(|kind| !kind.is_condition()).collect();
    let (mut deck, mut faults, mut now) = (Vec::new(), Vec::new(), Duration::ZERO);
    let mut bursts = 0_u32;
    if kinds.is_empty() {
        return faults;
    }
    while now < settings.lasts {
        let burst = settings.ttl.mul_f64(0.5 + 1.5 * random.f64());
        for _ in 0..random.usize(1..=3) {
            if deck.is_empty() {
                deck.clone_from(&kinds);
                random.shuffle(&mut deck);
            }
            let kind = deck.pop().expect("it was just filled");
            let at = now + burst.mul_f64(random.f64());
            faults.push(inject(settings, &mut random, kind, at));
        }
        bursts += 1;
        now += burst + settings.ttl.mul_f64(1.5 + 2.0 * random.f64());
        if bursts.is_multiple_of(LONG_CALM) {
            now += settings.ttl.mul_f64(LONGEST) + settings.recovery() + settings.bound();
        }
    }
    // What would not be over in time is left out.
    faults.retain(|fault| fault.at + fault.lasts < settings.lasts);
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn inject(
    settings: &TortureSettings,
    random: &mut fastrand::Rng,
    kind: FaultKind,
    at: Duration,
) -> PlannedFault {
    let role = random.usize(..ROLES);
    let (leader, node) = (random.f64() < 0.7, random.usize(..settings.nodes));
    let target = if leader { FaultTarget::Leader(role) } else { FaultTarget::Node(node) };
    let (least, most) = lasts(kind);
    let lasts = settings.ttl.mul_f64(least + (most - least) * random.f64());
    PlannedFault { at, kind, target, role, lasts }
}

/// For how many ttls.
fn lasts(kind: FaultKind) -> (f64, f64) {
    match kind {
        FaultKind::Kill => (0.1, 1.5),
        FaultKind::FreezeShort => (0.2, 0.7),
        FaultKind::FreezeLong => (1.3, LONGEST),
        FaultKind::Suspend => (0.6, 1.8),
        FaultKind::Reset
        | FaultKind::CutReply
        | FaultKind::Transfer
        | FaultKind::StepDown
        | FaultKind::Flush
        | FaultKind::DeleteRows => (0.1, 0.1),
        FaultKind::StoreKill | FaultKind::StoreFreeze | FaultKind::DiskFull => (0.1, 1.5),
        FaultKind::Failover => (0.3, 0.5),
        _ => (0.3, LONGEST),
    }
}

/// One line for each fault.
impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text(&self.faults))
    }
}

fn text(faults: &[PlannedFault]) -> String {
    let mut text = String::new();
    for PlannedFault { at, kind, target, role, lasts } in faults {
        let whom = match (kind.group(), target) {
            (FaultGroup::Store | FaultGroup::Destroy, _) => "the store".to_owned(),
            (_, FaultTarget::Leader(role)) => format!("the leader of {}", crate::member::role(*role)),
            (_, FaultTarget::Node(node)) => crate::member::name(*node),
        };
        let role = match kind {
            FaultKind::Transfer | FaultKind::StepDown | FaultKind::Pause => {
                format!(" ({})", crate::member::role(*role))
            }
            _ => String::new(),
        };
        let (at, lasts) = (at.as_secs_f64(), lasts.as_millis());
        let _ = writeln!(text, "{at:8.2} s  {:<13} {whom}{role}, {lasts} ms: {}", kind.name(), kind.about());
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seed: u64) -> TortureSettings {
        let kinds = crate::fault::chosen(&["all".to_owned()]).unwrap();
        TortureSettings {
            nodes: 5,
            lasts: Duration::from_secs(120),
            ttl: Duration::from_secs(1),
            seed,
            kinds,
            allowance: Duration::ZERO,
        }
    }

    #[test]
    fn a_seed_is_a_plan_and_another_is_another() {
        let (one, other) = (settings(7), settings(8));
        assert_eq!(plan(&one, &one.kinds), plan(&one, &one.kinds));
        assert_ne!(plan(&one, &one.kinds), plan(&other, &other.kinds));
    }

    #[test]
    fn every_kind_comes_and_all_are_over_in_time() {
        let settings = settings(7);
        let plan = plan(&settings, &settings.kinds);
        for kind in settings.kinds.iter().filter(|kind| !kind.is_condition()) {
            assert!(plan.iter().any(|fault| fault.kind == *kind), "{} never comes", kind.name());
        }
        assert!(plan.iter().all(|fault| fault.at + fault.lasts < settings.lasts));
        assert!(plan.is_sorted_by_key(|fault| fault.at));
        assert_eq!(text(&plan).lines().count(), plan.len());
    }
}
