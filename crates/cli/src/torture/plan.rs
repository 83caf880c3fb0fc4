//! The plan: what is done, to whom, when and for how long. It follows from the seed alone.
//!
//! Faults come in bursts of one to three at a time, with a calm after each in which leaders must return. Kinds are drawn
//! like cards: each comes once before any comes twice.

use std::fmt::Write as _;
use std::time::Duration;

use super::fault::{Group, Kind};
use super::{ROLES, Settings};
use crate::exit::Exit;

/// Whom a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Whoever leads that role then.
    Leader(usize),
    /// That node.
    Node(usize),
}

/// One fault of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strike {
    pub(super) at: Duration,
    pub(super) kind: Kind,
    pub(super) target: Target,
    pub(super) role: usize,
    pub(super) lasts: Duration,
}

/// Makes the plan.
pub(super) fn plan(settings: &Settings, able: &[Kind]) -> Vec<Strike> {
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let kinds: Vec<Kind> = able.iter().copied().filter(|kind| !kind.is_condition()).collect();
    let (mut deck, mut strikes, mut now) = (Vec::new(), Vec::new(), Duration::ZERO);
    if kinds.is_empty() {
        return strikes;
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
            strikes.push(strike(settings, &mut random, kind, at));
        }
        now += burst + settings.ttl.mul_f64(1.5 + 2.0 * random.f64());
    }
    // What would not be over in time is left out.
    strikes.retain(|strike| strike.at + strike.lasts < settings.lasts);
    strikes.sort_by_key(|strike| strike.at);
    strikes
}

fn strike(settings: &Settings, random: &mut fastrand::Rng, kind: Kind, at: Duration) -> Strike {
    let role = random.usize(..ROLES);
    let (leader, node) = (random.f64() < 0.7, random.usize(..settings.nodes));
    let target = if leader { Target::Leader(role) } else { Target::Node(node) };
    let (least, most) = lasts(kind);
    let lasts = settings.ttl.mul_f64(least + (most - least) * random.f64());
    Strike { at, kind, target, role, lasts }
}

/// For how many ttls.
fn lasts(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::Kill => (0.1, 1.5),
        Kind::FreezeShort => (0.2, 0.7),
        Kind::FreezeLong => (1.3, 2.5),
        Kind::Reset | Kind::CutReply | Kind::Transfer | Kind::StepDown | Kind::Flush | Kind::DeleteRows => {
            (0.1, 0.1)
        }
        Kind::StoreKill | Kind::StoreFreeze | Kind::DiskFull => (0.1, 1.5),
        Kind::Failover => (0.3, 0.5),
        _ => (0.3, 2.5),
    }
}

/// The plan for people.
pub(super) fn show(plan: &[Strike]) -> Result<String, Exit> {
    let mut text = String::new();
    for Strike { at, kind, target, role, lasts } in plan {
        let whom = match (kind.group(), target) {
            (Group::Store | Group::Destroy, _) => "the store".to_owned(),
            (_, Target::Leader(role)) => format!("the leader of {}", super::member::role(*role)),
            (_, Target::Node(node)) => super::member::name(*node),
        };
        let role = match kind {
            Kind::Transfer | Kind::StepDown | Kind::Pause => format!(" ({})", super::member::role(*role)),
            _ => String::new(),
        };
        let (at, lasts) = (at.as_secs_f64(), lasts.as_millis());
        let _ = writeln!(text, "{at:8.2} s  {:<13} {whom}{role}, {lasts} ms: {}", kind.name(), kind.about());
    }
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seed: u64) -> Settings {
        let kinds = super::super::fault::chosen(&["all".to_owned()]).unwrap();
        Settings {
            nodes: 5,
            lasts: Duration::from_secs(120),
            ttl: Duration::from_secs(1),
            seed,
            kinds,
            allowance: Duration::ZERO,
            board: false,
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
            assert!(plan.iter().any(|strike| strike.kind == *kind), "{} never comes", kind.name());
        }
        assert!(plan.iter().all(|strike| strike.at + strike.lasts < settings.lasts));
        assert!(plan.is_sorted_by_key(|strike| strike.at));
        assert_eq!(show(&plan).unwrap().lines().count(), plan.len());
    }
}
