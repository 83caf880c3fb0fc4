//! When a poll goes out, and what hints may cost.

use super::*;

#[test]
fn hints_cost_a_few_polls_and_no_more() {
    let mut hinted = HintBudget::default();
    assert!(!hinted.may_poll(), "nothing was hinted");
    hinted.anyway = true;
    for poll in 0..HINT_POLLS_PER_BEAT {
        assert!(hinted.may_poll(), "poll {poll}");
        hinted.spend(1);
    }
    assert!(!hinted.may_poll(), "the allowance of this beat is spent");
    hinted.everything = true;
    assert!(!hinted.take_everything(), "what was missed waits for the next beat");
    hinted.spent = 0;
    assert!(hinted.take_everything() && hinted.spent == FULL_POLL_COST);
}

#[test]
fn news_raises_the_allowance_of_a_beat_but_not_without_end() {
    let mut poll = Poll::default();
    for nth in 0..HINT_POLLS_WITH_NEWS {
        poll.hinted.anyway = true;
        assert!(poll.hinted.may_poll(), "poll {nth}");
        poll.hinted.spend(1);
        poll.note_news();
    }
    assert!(!poll.hinted.may_poll() && !poll.hinted.take_everything());
}

/// Something that may make a poll go out early.
type Reason = fn(&mut Poll, &Name);

#[test]
fn a_poll_goes_out_early_for_a_reason() {
    let role = Name::new("role").unwrap();
    let reasons: [(&str, Reason, bool); 6] = [
        ("nothing", |_, _| {}, false),
        ("a register to read again", |poll, _| poll.reread(Key::Cluster), true),
        ("a claim to verify", |poll, role| poll.verifying(role), true),
        ("a claim to verify some time", |poll, role| poll.verifying_later(role), false),
        ("missed hints", |poll, _| poll.resync(), true),
        ("a sign of loss", |poll, _| poll.suspect(OpId::new(3)), true),
    ];
    for (what, reason, early) in reasons {
        let mut poll = Poll::default();
        reason(&mut poll, &role);
        assert_eq!(poll.is_due_early(), early, "{what}");
    }
}

#[test]
fn a_sign_of_loss_is_settled_by_a_later_poll() {
    let mut poll = Poll::default();
    poll.suspect(OpId::new(3));
    assert!(poll.is_suspect() && !poll.is_audit(OpId::new(2)) && poll.is_audit(OpId::new(3)));
}
