//! Schedules of a store that loses what it acknowledged, and of nodes that may not claim yet because it could have.

use std::time::Duration;

use tenure_core::engine::Class;
use tenure_core::record::{Answer, EndReason, Pin, Request, RoleControl};
use tenure_core::*;

use super::script::{A, B, MessageFate, MessageKind, Script, role};
use super::{control, dropped, lock, order, sound_and};

/// The five seconds of every lease here.
const FIVE: Duration = Duration::from_secs(5);

/// Two nodes on a store that can forget, the first of which leads.
fn on_class_c(mutant: Option<Mutant>) -> Script {
    Script::led(mutant, [FIVE; 2], Class::C, None)
}

/// A has resigned, and of its two rivals the claim of the one that is first in order is held back; with the rivals in that
/// order, and the register as the resignation left it.
fn held_claim(mutant: Option<Mutant>) -> (Script, [usize; 2], (Key, (Version, Record))) {
    let mut s = Script::led_at(10_000_000_000_000, mutant, [FIVE; 2], Class::C, None);
    let c = s.join_as("C", mutant, Class::C, Default::default());
    s.wait(7.0);
    let token = s.token(A);
    let rivals = ["B", "C"].map(|name| (Name::new(name).unwrap(), 0));
    let first = tenure_core::engine::claim_order(&role(), None, rivals).remove(0);
    let rivals = if first.as_str() == "B" { [B, c] } else { [c, B] };
    s.plan(rivals[0], MessageKind::Claim, MessageFate::HoldRequest);
    s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
    let kept = s.role_register();
    (s, rivals, kept)
}

/// Rule 7: the highest token seen goes on no faster than true time. With lease clocks that are 1 % fast it would outrun the
/// wall clock, and a claimer that never saw the lost claim would be behind it.
#[test]
fn tokens_rise_after_a_fast_clock_and_a_loss() {
    sound_and(Mutant::TokensOutrunClocks, |mutant| {
        let mut s = Script::led_at(10_000_000_000_000, mutant, [FIVE; 2], Class::C, None);
        s.wait(900.0);
        // The lease clocks have shown 900 s; the wall clocks, which are right, 891.
        s.set_back = 9_000_000;
        let token = s.token(A);
        s.plan(B, MessageKind::Claim, MessageFate::HoldRequest);
        s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
        s.wait(0.1);
        let kept = s.registers.clone();
        s.release();
        s.wait(0.2);
        let lost = s.token(B);
        // The claim of B is lost; A and B are away. C never saw it.
        s.registers = kept;
        s.cut = [A, B].into();
        let c = s.join_as("C", mutant, Class::C, Default::default());
        s.wait(6.5);
        s.token(c) > lost
    });
}

/// Rule 7: two claims within the difference of two wall clocks, the first of which the store lost. The first one is not led
/// before it was seen again, later than clocks differ.
#[test]
fn a_claim_settles_before_it_is_led() {
    sound_and(Mutant::ElectedUnsettled, |mutant| {
        let (mut s, _, kept) = held_claim(mutant);
        (s.hints, s.cut) = (false, [A].into());
        s.release();
        // Its claim is lost at once; the clock of the other one is 18 ms behind.
        s.registers.insert(kept.0, kept.1);
        s.set_back = 18_000;
        s.wait(8.0);
        assert!(s.elections().len() >= 2, "a node leads in the end");
        s.elections().windows(2).all(|pair| pair[0].1 < pair[1].1)
    });
}

/// Rule 7: a claim was on its way while another node claimed the role, led it, and was forgotten by the store. It is made once more
/// before it is led: the token that it set out with is lower than that of the forgotten tenure.
#[test]
fn a_claim_that_was_long_on_its_way_is_made_once_more() {
    sound_and(Mutant::SlowClaimLed, |mutant| {
        let (mut s, [first, second], kept) = held_claim(mutant);
        (s.cut, s.deaf) = ([A].into(), [first].into());
        s.wait(0.2);
        assert_eq!(s.leaders(), [second]);
        (s.hints, s.cut) = (false, [A, second].into());
        s.deaf.clear();
        s.registers.insert(kept.0, kept.1);
        s.release();
        s.wait(0.2);
        assert!(s.leaders().contains(&first), "it leads after all");
        s.elections().windows(2).all(|pair| pair[0].1 < pair[1].1)
    });
}

/// Rule 5: a resignation that was acknowledged, and lost by the store, of a role that its node stands for no longer: only
/// this node can give it up again, and it does.
#[test]
fn a_resignation_that_the_store_lost_orphans_nothing() {
    for told in [true, false] {
        sound_and(Mutant::StrayForgotten, |mutant| {
            let mut s = on_class_c(mutant);
            let held = s.role_register();
            s.cut.insert(B);
            s.feed(A, Input::Withdraw { role: role() });
            s.wait(1.0);
            assert_eq!(s.leaders(), []);
            s.registers.insert(held.0, held.1);
            s.cut.clear();
            for node in [A, B].into_iter().filter(|_| told) {
                s.feed(node, Input::Hinted(Hint::Forgot));
            }
            s.wait(20.0);
            s.leaders() == [B] && !s.overlap
        });
    }
}

/// A replica that lags behind goes on to show a role as ours that the store has lost: giving it back is refused each time, and is
/// not tried without end.
#[test]
fn a_role_that_only_stale_reads_show_as_ours_is_given_back_in_measure() {
    let mut s = on_class_c(None);
    let held = s.role_register();
    s.cut.insert(B);
    s.feed(A, Input::Withdraw { role: role() });
    s.wait(1.0);
    s.registers.remove(&held.0);
    s.stale.extend([held]);
    let began = s.now;
    s.feed(A, Input::Hinted(Hint::Forgot));
    s.wait(1.0);
    let (refused, reads) = (s.times(A, MessageKind::Resign, began), s.times(A, MessageKind::Read, began));
    assert!((2..=8).contains(&refused) && reads <= 20, "{refused} resignations, {reads} reads in a second");
    s.stale.clear();
    s.cut.clear();
    s.wait(20.0);
    assert!(s.leaders() == [B] && !s.overlap);
}

/// Rule 5: a clone of C claimed the role in the name of the session that both have, and is gone. C may not claim yet, and
/// withdraws: it keeps the role in mind until it has given it up, because no other node can.
#[test]
fn a_role_that_a_clone_claimed_is_given_up_by_the_original() {
    let mut s = on_class_c(None);
    let original = s.join_as("C", None, Class::C, Default::default());
    s.wait(7.0);
    let twin = s.clone_of(original);
    s.frozen.insert(original);
    s.cut.insert(B);
    let token = s.token(A);
    s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
    s.wait(0.5);
    assert_eq!(s.leaders(), [twin]);
    s.last_dies();
    (s.frozen, s.cut) = Default::default();
    s.feed(original, Input::Hinted(Hint::Forgot));
    s.wait(0.1);
    s.feed(original, Input::Withdraw { role: role() });
    s.wait(20.0);
    assert!(s.leaders().len() == 1 && !s.overlap, "{:?}", s.leaders());
}

/// After a sign of loss a leader reads all its roles at once. A leader of many roles that read them in turn would lead one that
/// the store gave to another node for longer than its lease.
#[test]
fn after_a_sign_of_loss_all_roles_are_read_at_once() {
    sound_and(Mutant::LossUnaudited, |mutant| {
        let mut s = on_class_c(mutant);
        for n in 0..30 {
            let role = Name::new(format!("another-{n}")).unwrap();
            s.feed(A, Input::Campaign { role, candidacy: Default::default() });
        }
        s.wait(7.0);
        let (key, (_, record)) = s.role_register();
        let Record::Role(mut record) = record else { panic!("a role") };
        // The claim of A is lost: the register shows the leader before.
        (record.token, record.holder) = (Token::new(record.token.get() - 1), None);
        s.hints = false;
        s.registers.insert(key, (Version::new(u128::MAX), Record::Role(record)));
        s.cut.insert(B);
        s.feed(A, Input::Hinted(Hint::Forgot));
        s.wait(4.9);
        s.leaders().is_empty()
    });
}

/// After a sign of loss no beat counts before the roles were read: reads that fail do not keep a leader alive.
#[test]
fn after_a_sign_of_loss_no_beat_counts_before_a_look() {
    sound_and(Mutant::LossUnaudited, |mutant| {
        let mut s = on_class_c(mutant);
        let until = s.until[&A];
        s.deaf.insert(A);
        s.feed(A, Input::Hinted(Hint::Forgot));
        s.wait(3.0);
        s.until[&A] == until
    });
}

/// A store that keeps what it acknowledged says that it was replaced: its leader steps down at once.
#[test]
fn a_leader_that_hears_of_destroyed_data_steps_down_at_once() {
    sound_and(Mutant::ForgotIgnored, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.cut.insert(A);
        s.feed(A, Input::Hinted(Hint::Forgot));
        s.leaders().is_empty()
    });
}

/// A store says that a node relies on a lease of which no register tells: it is waited for, and then a leader is elected.
#[test]
fn a_lease_of_which_no_register_tells_is_waited_for() {
    let mut s = Script::led_by_a(None);
    s.cut.insert(A);
    s.feed(B, Input::Hinted(Hint::UnknownLease(4 * FIVE)));
    s.wait(19.5);
    assert!(s.leaders().is_empty());
    s.wait(5.0);
    assert_eq!(s.leaders(), [B]);
}

/// On a store that can forget, a node that has just started may not claim yet, so it does not ask a healthy leader to make way.
#[test]
fn a_newcomer_asks_for_a_role_only_when_it_may_claim_it() {
    sound_and(Mutant::AsksTooEarly, |mutant| {
        let mut s = on_class_c(mutant);
        let candidacy = io::Candidacy { priority: 5, preempt: true, ..Default::default() };
        let c = s.join_as("C", mutant, Class::C, candidacy);
        // It may not claim for a lease; the leader would not hand over to it, and has not to be asked.
        s.wait(3.0);
        let asked = s.registers.keys().any(|key| key.kind() == Kind::RoleControl);
        !asked && never_leaderless(&mut s, 20.0) && s.leaders() == [c]
    });
}

/// The same if an operator asks for it: the leader waits until the target may claim.
#[test]
fn a_leader_hands_over_to_a_node_that_may_claim() {
    sound_and(Mutant::HandsOverTooEarly, |mutant| {
        let mut s = on_class_c(mutant);
        let c = s.join_as("C", mutant, Class::C, Default::default());
        let (id, token, to) = (SessionId::new(7), s.token(A), Some(Name::new("C").unwrap()));
        let patience = Duration::from_secs(30);
        let request =
            Request { id, token, to, preemption: false, patience, order: order(), answer: Answer::Open };
        control(&mut s, RoleControl { request: Some(request), ..RoleControl::default() });
        never_leaderless(&mut s, 20.0) && s.leaders() == [c]
    });
}

/// Lets time pass; false if no node led for longer than a hand-over takes on a store that can forget.
fn never_leaderless(s: &mut Script, span: f64) -> bool {
    let mut idle = 0;
    for _ in 0..(span * 20.0) as usize {
        s.wait(0.05);
        idle = if s.leaders().is_empty() { idle + 1 } else { 0 };
        if idle > 4 {
            return false;
        }
    }
    true
}

/// A strict session loses nothing when its connection drops, whatever its own lock says.
#[test]
fn the_drop_of_a_strict_connection_ends_nothing() {
    sound_and(Mutant::DropEndsStrict, |mutant| {
        let mut s = Script::led(mutant, [FIVE; 2], Class::B, lock("link", false));
        let session = s.session(A);
        s.stubborn.insert(A);
        s.feed(B, dropped(session));
        s.wait(1.0);
        s.cut.insert(A);
        s.wait(4.0);
        !s.overlap
    });
}

/// Rule 7: the longest lease falls once no node can count on it, and not while its owner leads, forgotten by the store.
#[test]
fn the_longest_lease_falls_when_no_node_can_count_on_it() {
    let longest = |s: &Script| match &s.registers[&Key::Cluster].1 {
        Record::Cluster(cluster) => cluster.max_ttl,
        other => panic!("{other:?}"),
    };
    let (long, short) = (Duration::from_secs(20), Duration::from_secs(5));
    sound_and(Mutant::LeaseFallsEarly, |mutant| {
        let mut s = Script::led_at(10_000_000_000_000, mutant, [long, short], Class::C, None);
        assert_eq!(longest(&s), long);
        let (session, _) = s.engines[A].session().unwrap();
        s.cut.insert(A);
        s.registers.retain(|key, _| !matches!(key, Key::Session(_, id) if *id == session));
        let mut covered = true;
        while s.leaders() == [A] {
            covered &= longest(&s) == long;
            s.wait(0.5);
        }
        s.wait(80.0);
        assert_eq!((s.leaders(), longest(&s)), (vec![B], short), "it falls in the end");
        covered && !s.overlap
    });
}

/// Rule 7: a clock that is wrong by generations uses up no tokens: when it is put right, the role is led as before.
#[test]
fn a_wall_clock_in_the_year_2255_uses_up_no_tokens() {
    for years in [100, 229, 5000] {
        let mut s =
            Script::led_at(1_790_000_000_000_000_000, None, [Duration::from_secs(5); 2], Class::C, None);
        s.set_back = -years * 365 * 86_400_000_000;
        for _ in 0..3 {
            let leader = s.leaders()[0];
            let token = s.token(leader);
            s.feed(leader, Input::Resign { role: role(), token, reason: EndReason::Resigned });
            s.wait(20.0);
            assert_eq!(s.leaders().len(), 1, "{years} years ahead: no node leads after token {token}");
            s.set_back = 0;
        }
        assert!(s.elections().windows(2).all(|pair| pair[0].1 < pair[1].1));
        assert!(s.token(s.leaders()[0]) < Token::IMPLAUSIBLE);
    }
}

/// A claim is verified when it is due, also if something about its role is learned in that very instant.
#[test]
fn a_claim_is_verified_whatever_is_learned_when_it_is_due() {
    let mut s = on_class_c(None);
    s.plan(B, MessageKind::Claim, MessageFate::HoldAnswer);
    let token = s.token(A);
    s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
    s.wait(0.3);
    s.release();
    // B has claimed. While the claim settles, B is late, and the first that it hears of is what an operator asks.
    s.plan(B, MessageKind::Read, MessageFate::HoldRequest);
    s.feed(B, Input::Hinted(Hint::Resync));
    s.frozen.insert(B);
    let pin = Some(Pin { node: Name::new("B").unwrap(), order: order() });
    control(&mut s, RoleControl { pin, ..RoleControl::default() });
    s.wait(0.03);
    s.release();
    s.frozen.remove(&B);
    s.wait(2.0);
    assert_eq!(s.leaders(), [B]);
}

/// Puts the role's register back to an older state: lower by so much, and free.
fn set_back(s: &mut Script, by: u64) {
    let (key, (version, record)) = s.role_register();
    let Record::Role(mut record) = record else { panic!("a role") };
    (record.token, record.holder) = (Token::new(record.token.get() - by), None);
    s.registers.insert(key, (Version::new(version.get() + (1 << 100)), Record::Role(record)));
}

/// How often a node was quarantined so far.
fn alarms(s: &Script, node: usize) -> usize {
    let alarm =
        |(_, n, event): &&(u64, usize, Event)| *n == node && matches!(event, Event::Quarantined { .. });
    s.events.iter().filter(alarm).count()
}

/// Rule 8: a register that went back, and climbs again below the highest token that a node has seen, alarms that node once; a
/// second loss on the way alarms it again.
#[test]
fn a_second_loss_below_the_highest_token_is_noticed() {
    let mut s = on_class_c(None);
    s.hints = false;
    s.cut.insert(A);
    let alarmed = |s: &mut Script, by: i64| {
        let before = alarms(s, B);
        match u64::try_from(by) {
            Ok(by) => set_back(s, by),
            Err(_) => {
                // A node claims that has never seen the highest token, and whose clock is behind.
                let (key, (version, record)) = s.role_register();
                let Record::Role(mut record) = record else { panic!("a role") };
                record.token = Token::new(record.token.get() + by.unsigned_abs());
                s.registers.insert(key, (Version::new(version.get() + (1 << 100)), Record::Role(record)));
            }
        }
        s.wait(1.2);
        alarms(s, B) > before
    };
    assert!(alarmed(&mut s, 1_000_000), "the first loss");
    assert!(!alarmed(&mut s, -1_000), "it goes on from there");
    assert!(!alarmed(&mut s, -1_000), "and on");
    assert!(alarmed(&mut s, 1_500), "the second loss");
    assert!(!alarmed(&mut s, -1_000), "it goes on from there");
    assert!(alarmed(&mut s, 0), "another register with the same token is a loss too");
}

/// Rule 8: a claim that is refused because the register went back is a sign of loss, as a read is: nothing is claimed for a lease.
#[test]
fn a_claim_that_is_refused_by_an_older_register_is_a_sign_of_loss() {
    let mut s = on_class_c(None);
    s.plan(B, MessageKind::Claim, MessageFate::HoldRequest);
    let token = s.token(A);
    s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
    s.wait(0.1);
    (s.hints, s.cut) = (false, [A].into());
    set_back(&mut s, 1_000);
    let (refused, before) = (s.now + 1, alarms(&s, B));
    s.release();
    s.wait(0.1);
    assert_eq!(alarms(&s, B), before + 1, "the refusal alarms B");
    s.wait(4.8);
    assert_eq!(s.times(B, MessageKind::Claim, refused), 0, "B waits for a lease");
    s.wait(10.0);
    assert_eq!(s.leaders(), [B]);
}

/// Rule 8: so is the register of a leader that went back: it gives the role up, and claims nothing for a lease.
#[test]
fn a_leader_whose_register_went_back_claims_nothing_for_a_lease() {
    let mut s = on_class_c(None);
    s.hints = false;
    s.cut.insert(B);
    set_back(&mut s, 1_000);
    while s.leaders() == [A] {
        s.wait(0.1);
    }
    let lost = s.now;
    s.wait(4.8);
    assert_eq!(s.times(A, MessageKind::Claim, lost), 0, "A waits for a lease");
    s.wait(10.0);
    assert_eq!(s.leaders(), [A]);
}
