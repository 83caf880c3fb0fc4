//! A claim on a hint: it replaces the resignation that the standby foresees, and nothing else.

use tenure_core::record::EndReason;
use tenure_core::timing::TimingSettings;
use tenure_core::*;

use super::script::{A, B, MessageFate, MessageKind, Script, role};

fn resignation(s: &Script, reason: EndReason) -> Input {
    Input::Resign { role: role(), token: s.token(A), reason }
}

fn hint(s: &Script) -> Input {
    Input::Hinted(Hint::Changed(s.role_register().0))
}

#[test]
fn the_first_in_line_claims_without_reading_first() {
    let mut s = Script::led_by_a(None);
    let (token, first) = (s.token(A), s.sent.len());
    s.feed(A, resignation(&s, EndReason::Resigned));
    let by_b: Vec<MessageKind> =
        s.sent[first..].iter().filter(|(_, n, _)| *n == B).map(|sent| sent.2).collect();
    assert_eq!(by_b[..2], [MessageKind::Claim, MessageKind::Read], "{by_b:?}");
    assert_eq!((s.leaders(), s.token(B)), (vec![B], token.next()));
    let (_, (_, record)) = s.role_register();
    let Record::Role(record) = record else { panic!("{record:?}") };
    assert_eq!(record.previous.as_ref().map(Name::as_str), Some("A"));
    assert_eq!(record.reason, record::StartReason::Vacant.into());
}

/// The register is as it was: the refusal says so, to B alone.
#[test]
fn a_false_hint_deposes_no_leader_and_is_no_news() {
    let mut s = Script::led_by_a(None);
    let (before, events, token) = (s.role_register(), s.events.len(), s.token(A));
    for _ in 0..50 {
        s.feed(B, hint(&s));
    }
    assert_eq!((s.role_register(), s.leaders(), s.token(A)), (before, vec![A], token));
    let claims = s.sent.iter().filter(|(_, n, kind)| *n == B && *kind == MessageKind::Claim).count();
    assert!((1..=8).contains(&claims), "a few in a beat, and no more: {claims}");
    let of_b = s.events[events..].iter().filter(|(_, n, event)| *n == B && !matches!(event, Event::Polled));
    assert_eq!(of_b.count(), 0, "its state did not change: {:?}", &s.events[events..]);
    let mut bent = Script::led_by_a(Some(Mutant::HintDeposes));
    bent.feed(B, hint(&bent));
    assert!(bent.overlap, "the mutant deposes it");
}

/// While a claim is on its way that is refused, the leader resigns: the hint of that is not lost.
#[test]
fn a_resignation_during_a_refusal_is_heard() {
    let mut s = Script::led_by_a(None);
    s.provoke(B, hint(&s), MessageKind::Claim, MessageFate::HoldAnswer);
    s.feed(A, resignation(&s, EndReason::Resigned));
    s.release();
    assert_eq!(s.leaders(), [B], "at once");
}

/// A claim on a hint in an outage: B is not told that A leads no more, for A leads.
#[test]
fn a_claim_on_a_hint_that_is_lost_is_no_news() {
    for fate in [MessageFate::Lose, MessageFate::Refuse] {
        let mut s = Script::led_by_a(None);
        let events = s.events.len();
        s.provoke(B, hint(&s), MessageKind::Claim, fate);
        s.wait(3.0);
        let of_b =
            s.events[events..].iter().filter(|(_, n, event)| *n == B && !matches!(event, Event::Polled));
        assert_eq!((s.leaders(), of_b.count()), (vec![A], 0), "{fate:?}: {:?}", &s.events[events..]);
    }
}

/// The store cannot carry the claim out at that moment: the hint is followed by a read soon, and not by the next beat.
#[test]
fn a_hint_is_not_forgotten_with_the_claim_that_failed() {
    let mut s = Script::led_by_a(None);
    s.hints = false;
    s.feed(A, resignation(&s, EndReason::Resigned));
    s.provoke(B, hint(&s), MessageKind::Claim, MessageFate::Refuse);
    let beat = Timing::new(&TimingSettings::default()).unwrap().beat;
    s.wait(beat.as_secs_f64() / 5.0 + 0.01);
    assert_eq!(s.leaders(), [B]);
}

/// The claim arrives after its sender has given it up, on top of the resignation that it foresaw: it grants nothing, and B, which finds
/// the role in its own name, claims it anew.
#[test]
fn a_foreseen_claim_that_arrives_late_grants_nothing() {
    let mut s = Script::led_by_a(None);
    s.provoke(B, hint(&s), MessageKind::Claim, MessageFate::HoldRequest);
    s.wait(2.0);
    s.hints = false;
    s.cut.insert(B);
    let (token, elected) = (s.token(A), s.elections().len());
    s.feed(A, resignation(&s, EndReason::Resigned));
    s.release();
    assert_eq!((s.leaders(), s.elections().len()), (vec![], elected), "late: it grants nothing");
    s.cut.clear();
    s.wait(10.0);
    let leaders = s.leaders();
    assert_eq!(leaders.len(), 1);
    assert!(s.token(leaders[0]) > token.next() && !s.overlap);
}

/// A resignation that goes unanswered is tried again with the same bytes under the same version.
#[test]
fn a_resignation_that_is_tried_again_is_the_same() {
    let mut s = Script::led_by_a(None);
    s.hints = false;
    s.provoke(A, resignation(&s, EndReason::Resigned), MessageKind::Resign, MessageFate::HoldRequest);
    s.next(A, MessageKind::Resign, MessageFate::HoldAnswer);
    let (_, tried_again) = s.role_register();
    assert_eq!(s.held_puts(), [tried_again]);
}

/// A role that is not for any candidate to claim is resigned under a version that no node can foresee.
#[test]
fn what_is_handed_over_to_one_is_not_foreseen_by_another() {
    for reason in [EndReason::Transfer, EndReason::Paused, EndReason::Pinned] {
        let mut s = Script::led_by_a(None);
        let (_, (held, _)) = s.role_register();
        s.cut.insert(B);
        s.feed(A, resignation(&s, reason));
        let (_, (vacant, _)) = s.role_register();
        assert_ne!(held.of_resignation(), Some(vacant), "{reason:?}");
    }
}

/// Versions of nodes that do not know of this may end in either bit: what they wrote is read before it is claimed.
#[test]
fn of_a_version_that_foretells_nothing_the_register_is_read() {
    let mut s = Script::led_by_a(None);
    let (key, (version, record)) = s.role_register();
    let foreign = version.of_resignation().expect("the version of a claim");
    s.cut.insert(A);
    s.registers.insert(key, (foreign, record));
    s.wait(2.0);
    let since = s.sent.len();
    s.feed(B, hint(&s));
    assert!(s.sent[since..].iter().all(|(_, _, kind)| *kind == MessageKind::Read), "{:?}", &s.sent[since..]);
}
