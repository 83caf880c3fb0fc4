//! What follows from what the `cluster` register shows.

use super::*;
use crate::engine::{Class, Config};
use crate::{Name, Timing};

const TTL: Duration = Timing::DEFAULT_TTL;

fn rules() -> Rules {
    Rules::new(&Config::new(Name::new("me").unwrap(), Timing::default(), Class::C))
}

fn record(epoch: u64, max_ttl: Duration) -> ClusterRecord {
    let epoch = Epoch::new(epoch);
    ClusterRecord { epoch, max_ttl, falling: None, protocol: PROTOCOL, floor: Token::new(0), renewed: false }
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(0).after(Duration::from_secs(seconds))
}

#[test]
fn another_epoch_is_another_life_of_the_store() {
    let mut cluster = Cluster::default();
    for (version, epoch, expected) in
        [(1, 7, EpochNews::First { renewed: false }), (2, 7, EpochNews::Same), (3, 8, EpochNews::Another)]
    {
        assert_eq!(cluster.adopt(Version::new(version), record(epoch, TTL), OpId::new(1)), expected);
    }
    assert_eq!(cluster.epoch(), Some(Epoch::new(8)));
}

#[test]
fn the_register_is_created_raised_and_otherwise_left_alone() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.wanted(TTL, at(1)), None, "nothing is known");
    cluster.absent = true;
    let (expect, created) = cluster.wanted(TTL, at(1)).unwrap();
    assert_eq!((expect, created.max_ttl), (None, TTL));
    cluster.adopt(Version::new(1), record(7, TTL), OpId::new(1));
    assert_eq!(cluster.wanted(TTL, at(1)), None);
    assert!(cluster.allows(TTL) && !cluster.allows(2 * TTL));
    let (expect, raised) = cluster.wanted(2 * TTL, at(1)).unwrap();
    assert_eq!((expect, raised.max_ttl), (Some(Version::new(1)), 2 * TTL));
}

#[test]
fn a_longer_lease_is_remembered_until_it_has_run_out() {
    let (mut cluster, rules) = (Cluster::default(), rules());
    cluster.remember_lease(2 * TTL, at(1), &rules);
    for (now, expected) in [(2, 2 * TTL), (11, 2 * TTL), (13, TTL)] {
        cluster.remember_lease(TTL, at(now), &rules);
        assert_eq!(cluster.max_ttl, expected, "at {now} s");
    }
}

#[test]
fn the_longest_lease_is_announced_then_agreed_on_then_lowered() {
    let (mut cluster, rules, long) = (Cluster::default(), rules(), 2 * TTL);
    let review = |cluster: &mut Cluster, op, needed, now: u64| {
        cluster.review_longest_lease(OpId::new(op), needed, at(now + 10), at(now), &rules);
        cluster.reduction.wanted.clone().map(|(_, record)| (record.max_ttl, record.falling))
    };
    cluster.adopt(Version::new(1), record(7, long), OpId::new(1));
    assert_eq!(review(&mut cluster, 1, TTL, 1), Some((long, Some(TTL))), "announced");
    cluster.adopt(Version::new(2), ClusterRecord { falling: Some(TTL), ..record(7, long) }, OpId::new(5));
    assert_eq!(review(&mut cluster, 4, TTL, 2), None, "a list that began before");
    assert_eq!(review(&mut cluster, 5, TTL, 3), None, "agreed since now");
    assert_eq!(review(&mut cluster, 6, TTL, 12), None, "not for long enough");
    assert_eq!(review(&mut cluster, 7, TTL, 13), Some((TTL, None)), "lowered");
    assert_eq!(review(&mut cluster, 8, long, 14), Some((long, None)), "a session needs it: withdrawn");
}

#[test]
fn a_quarantine_is_only_ever_prolonged() {
    let mut cluster = Cluster::default();
    assert!(!cluster.is_forgetful() && !cluster.is_doubtful(at(1)));
    assert!(cluster.quarantine(at(10)) && !cluster.quarantine(at(5)));
    assert!(cluster.is_forgetful() && cluster.is_doubtful(at(9)) && !cluster.is_doubtful(at(10)));
}
