//! One hand-written schedule for each step of the safety argument, and for each wrong variant that survives easily.
//! Each is played with the sound engine, which holds, and with the mutant, which does not.

#[path = "schedules/foreseen.rs"]
mod foreseen;
#[path = "schedules/losses.rs"]
mod losses;
#[path = "schedules/protocol.rs"]
mod protocol;
#[path = "schedules/script.rs"]
mod script;

use std::time::Duration;

use script::{A, B, MessageFate, MessageKind, Script, entry, role, seconds};
use tenure_core::engine::Class;
use tenure_core::io::{Candidacy, Evidence};
use tenure_core::record::{Answer, EndReason, LivenessLock, Order, Request, RoleControl, SessionState};
use tenure_core::*;

/// Plays a schedule soundly and with a mutant: the first must hold, the second must not.
fn sound_and(mutant: Mutant, play: impl Fn(Option<Mutant>) -> bool) {
    assert!(play(None), "the sound engine holds");
    assert!(!play(Some(mutant)), "{mutant:?} does not");
}

/// Rule 3: a follower counts from when it received a version, not from when it asked for it.
#[test]
fn counts_from_when_it_received_not_from_when_it_asked() {
    sound_and(Mutant::ExpelFromAsked, |mutant| {
        let mut s = Script::led_by_a(mutant);
        // B asks; the question is delayed. A beats 0.9 s later; then the question is served. A is cut off.
        s.stubborn.insert(A);
        s.next(A, MessageKind::Beat, MessageFate::HoldAnswer);
        s.release();
        s.wait(0.35);
        // B reads just after the beats of A, unless a hint comes.
        let hint = Input::Hinted(Hint::Changed(s.role_register().0));
        let asked = s.provoke(B, hint, MessageKind::Read, MessageFate::HoldRequest);
        s.wait(0.95);
        assert!(s.times(A, MessageKind::Beat, asked) == 1, "A has beaten meanwhile");
        s.cut.insert(A);
        s.release();
        s.wait(7.0);
        assert_eq!(s.elections().last().map(|last| last.0), Some(B), "B leads in the end");
        !s.overlap
    });
}

/// Rule 1: validity counts from before the beat was sent.
#[test]
fn a_slow_acknowledgement_buys_no_time() {
    sound_and(Mutant::ValidityFromReply, |mutant| {
        let mut s = Script::led_by_a(mutant);
        // A beats; B sees it; the answer takes 0.95 s; then A is cut off. Its work stops at the last moment.
        s.stubborn.insert(A);
        s.next(A, MessageKind::Beat, MessageFate::HoldAnswer);
        s.wait(0.95);
        s.release();
        s.cut.insert(A);
        s.wait(7.0);
        !s.overlap
    });
}

/// Rule 1: an unknown outcome is not a success.
#[test]
fn beats_without_an_answer_extend_nothing() {
    sound_and(Mutant::UnknownIsSuccess, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.cut.insert(A);
        s.wait(8.0);
        !s.overlap
    });
}

/// Leadership is a deadline: a frozen owner that wakes up leads nothing, and its next beat is refused.
#[test]
fn a_frozen_owner_wakes_up() {
    sound_and(Mutant::BooleanLeadership, |mutant| {
        let mut s = Script::led_by_a(mutant);
        // The watchdog has killed its work.
        s.frozen.insert(A);
        s.works.remove(&A);
        s.wait(7.0);
        let held = s.leaders() == [B];
        s.frozen.remove(&A);
        s.wait(3.0);
        held && s.leaders() == [B] && !s.overlap
    });
}

/// Rule 6: cancel comes before the deadline, and then no beat is sent or counted any more.
#[test]
fn no_beat_after_cancel() {
    sound_and(Mutant::BeatAfterCancel, |mutant| {
        let mut s = Script::led_by_a(mutant);
        let last = s.next(A, MessageKind::Beat, MessageFate::HoldAnswer);
        s.release();
        s.cut.insert(A);
        s.stubborn.insert(A);
        s.wait_to(last, 3.95);
        s.wait(0.9);
        let late = s
            .sent
            .iter()
            .filter(|(at, n, kind)| *n == A && *kind == MessageKind::Beat && *at >= last + 3_950_000_000);
        late.count() == 0
    });
}

/// Rule 6: work that will not die means neither resign nor close; the lease runs out.
#[test]
fn work_that_will_not_die_is_neither_resigned_nor_closed() {
    sound_and(Mutant::ReleaseBeforeStopped, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.stubborn.insert(A);
        let began = s.now;
        let token = s.token(A);
        s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
        s.cut.insert(A);
        s.wait(4.0);
        s.cut.remove(&A);
        s.wait(3.0);
        s.times(A, MessageKind::Resign, began) + s.times(A, MessageKind::Close, began) == 0
    });
}

/// Rule 4: the acknowledgement of a claim is worth nothing to a later session.
#[test]
fn the_answer_to_a_claim_is_not_credited_to_a_later_session() {
    sound_and(Mutant::AckCreditedToLaterSession, |mutant| {
        let mut s = Script::led_by_a(mutant);
        // A resigns, B claims; before the answer arrives, B has lost its session and opened another one.
        s.plan(B, MessageKind::Claim, MessageFate::HoldAnswer);
        let token = s.token(A);
        let claimed = s.now;
        s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
        s.wait(0.2);
        assert_eq!(s.times(B, MessageKind::Claim, claimed), 1, "B has claimed");
        let former = s.session(B);
        s.feed(B, Input::ClockFault);
        s.wait(0.2);
        assert_ne!(s.session(B), former, "B has a new session");
        s.release();
        s.wait(0.3);
        !s.overlap
    });
}

/// A hint about a session only triggers a read, whatever it says.
#[test]
fn a_hint_that_says_closed_closes_nothing() {
    sound_and(Mutant::HintBelieved, |mutant| {
        let mut s = Script::led_by_a(mutant);
        let id = s.session(A);
        let (key, (version, value)) = s
            .registers
            .iter()
            .find(|(key, _)| matches!(key, Key::Session(_, found) if *found == id))
            .map(|(key, found)| (key.clone(), found.clone()))
            .expect("A's session");
        let Record::Session(record) = value else { panic!("a session") };
        let closed = Record::Session(record::Session { state: SessionState::Closed, ..record });
        s.feed(B, Input::Forged(entry(&key, version, &closed)));
        s.wait(2.0);
        s.leaders() == [A] && !s.overlap
    });
}

fn register_of_the_role(s: &Script) -> (Key, Version, record::Role) {
    let role = |(key, (version, value)): (&Key, &(Version, Record))| match value {
        Record::Role(role) => Some((key.clone(), *version, role.clone())),
        _ => None,
    };
    s.registers.iter().find_map(role).expect("the register of the role")
}

/// Every login may notify. A forged record under the real version would pass the compare-and-set: a leader was deposed, and a
/// forged token made a role unusable for ever.
#[test]
fn a_hint_that_says_vacant_deposes_no_leader_and_raises_no_token() {
    sound_and(Mutant::HintBelieved, |mutant| {
        let mut s = Script::led_by_a(mutant);
        let (key, version, record) = register_of_the_role(&s);
        let lie = record::Role { holder: None, token: Token::new(Token::MAX.get() - 3), ..record.clone() };
        for node in [A, B] {
            s.feed(node, Input::Forged(entry(&key, version, &Record::Role(lie.clone()))));
        }
        s.wait(2.0);
        let deposed = s.leaders() != [A] || register_of_the_role(&s).1 != version;
        s.feed(A, Input::Resign { role: role(), token: record.token, reason: EndReason::Resigned });
        s.wait(2.0);
        let next = s.leaders() == [B] && s.token(B) == record.token.next();
        !deposed && next && !s.overlap
    });
}

/// However many hints come, few reads follow; and a role that falls free meanwhile is claimed one beat later at most.
#[test]
fn a_flood_of_hints_costs_few_reads_and_delays_a_hand_over_by_a_beat_at_most() {
    sound_and(Mutant::HintsUnlimited, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.wait(0.01);
        let (key, version, record) = register_of_the_role(&s);
        let began = s.now;
        for _ in 0..100 {
            s.feed(B, Input::Forged(entry(&key, version, &Record::Role(record.clone()))));
        }
        let few = s.times(B, MessageKind::Read, began) <= 8;
        s.feed(A, Input::Resign { role: role(), token: record.token, reason: EndReason::Resigned });
        s.wait(1.1);
        few && s.leaders() == [B] && !s.overlap
    });
}

/// What is true is followed at once, however often: each time a poll shows something new.
#[test]
fn hints_that_tell_something_new_are_followed_without_limit() {
    let mut s = Script::led_by_a(None);
    for round in 0..40 {
        let leader = s.leaders()[0];
        let token = s.token(leader);
        s.feed(leader, Input::Resign { role: role(), token, reason: EndReason::Resigned });
        s.wait(0.06);
        assert_eq!(s.leaders(), [1 - leader], "round {round}");
    }
}

/// A ttl is written at opening and never changes.
#[test]
fn a_ttl_is_not_lowered_between_two_beats() {
    sound_and(Mutant::TtlLowered, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.wait(2.0);
        s.cut.insert(A);
        s.wait(8.0);
        !s.overlap
    });
}

/// The ttl in the record rules, not the follower's own.
#[test]
fn the_ttl_in_the_record_rules() {
    sound_and(Mutant::OwnTtl, |mutant| {
        let ttls = [Duration::from_secs(5), Duration::from_secs(2)];
        let mut s = Script::led(mutant, ttls, Class::B, None);
        s.cut.insert(A);
        s.wait(8.0);
        !s.overlap
    });
}

/// Rule 5: a resignation that got lost is sent again until it is seen done; otherwise no node ever leads.
#[test]
fn a_lost_resignation_orphans_nothing() {
    let mut s = Script::led_by_a(None);
    s.plan(A, MessageKind::Resign, MessageFate::Lose);
    let token = s.token(A);
    s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
    assert_eq!(s.leaders(), [], "from the decision on it is invalid");
    s.wait(3.0);
    assert_eq!(s.leaders(), [B]);
    assert!(!s.overlap);
}

/// Rule 5: a claim whose answer got lost is found again in one's own name, and claimed anew.
#[test]
fn a_claim_without_an_answer_orphans_nothing() {
    for mutant in [Mutant::StrayIgnored, Mutant::UnknownIsFailure] {
        sound_and(mutant, |mutant| {
            let mut s = Script::led_by_a(mutant);
            s.plan(B, MessageKind::Claim, MessageFate::HoldAnswer);
            let token = s.token(A);
            s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
            s.wait(20.0);
            !s.leaders().is_empty() && s.elections().windows(2).all(|pair| pair[0].1 < pair[1].1)
        });
    }
}

/// Rule 3: absent is not over. The store forgot a session whose owner may still count on it.
#[test]
fn absent_is_not_over() {
    sound_and(Mutant::AbsentIsOver, |mutant| {
        let mut s = Script::led(mutant, [Duration::from_secs(5); 2], Class::C, None);
        let id = s.session(A);
        s.cut.insert(A);
        s.registers.retain(|key, _| !matches!(key, Key::Session(_, found) if *found == id));
        s.wait(14.0);
        !s.overlap && s.leaders() == [B]
    });
}

/// Rule 3: a session that a person deleted by hand, on a store that never forgets. Its owner cannot know, and counts on it.
#[test]
fn a_session_deleted_by_hand_lasts_as_long_as_its_lease() {
    sound_and(Mutant::AbsentIsOver, |mutant| {
        [true, false].into_iter().all(|cut_off| {
            let mut s = Script::led_by_a(mutant);
            let (id, token) = (s.session(A), s.token(A));
            s.stubborn.insert(A);
            s.cut.extend(cut_off.then_some(A));
            s.registers.retain(|key, _| !matches!(key, Key::Session(_, found) if *found == id));
            s.wait(14.0);
            !s.overlap && s.elections().last().is_some_and(|last| last.1 > token.get())
        })
    });
}

/// Rule 7: a role deleted by force, on a store that never forgets. A node that has seen it knows that something is wrong.
#[test]
fn a_role_deleted_by_force_is_not_taken_for_a_new_one() {
    sound_and(Mutant::QuarantineSkipped, |mutant| {
        [true, false].into_iter().all(|cut_off| {
            let mut s = Script::led_by_a(mutant);
            let token = s.token(A);
            s.stubborn.extend(cut_off.then_some(A));
            s.cut.extend(cut_off.then_some(A));
            s.registers.retain(|key, _| key.kind() != Kind::Role);
            s.wait(14.0);
            let alarmed = |(_, _, event): &(u64, usize, Event)| matches!(event, Event::Quarantined { .. });
            assert!(mutant.is_some() || s.events.iter().any(alarmed), "people are told");
            !s.overlap && s.elections().last().is_some_and(|last| last.1 > token.get())
        })
    });
}

/// Rule 3: an expulsion that meets a beat fails and changes nothing.
#[test]
fn an_expulsion_that_meets_a_beat_changes_nothing() {
    sound_and(Mutant::ClaimWithoutExpulsion, |mutant| {
        let mut s = Script::led_by_a(mutant);
        // B sees nothing for longer than the ttl, while A beats on.
        s.cut.insert(B);
        s.wait(3.0);
        s.cut.remove(&B);
        s.frozen.insert(B);
        s.wait(4.0);
        s.frozen.remove(&B);
        s.wait(3.0);
        s.leaders() == [A] && !s.overlap
    });
}

/// Rule 2: an opening that is not acknowledged abandons the id, which is closed; late, it comes to nothing.
#[test]
fn a_late_opening_has_no_owner() {
    sound_and(Mutant::OpeningSentTwice, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.plan(A, MessageKind::Open, MessageFate::HoldRequest);
        s.feed(A, Input::ClockFault);
        s.wait(0.9);
        let opened = s.now;
        s.wait(0.5);
        s.release();
        s.wait(0.5);
        let ids = s.events.iter().filter(|(at, n, _)| *at >= opened && *n == A);
        let opened: Vec<SessionId> = ids
            .filter_map(
                |(_, _, event)| {
                    if let Event::SessionOpened { session } = event { Some(*session) } else { None }
                },
            )
            .collect();
        // Every session that was opened was opened by a write that was acknowledged in time.
        opened.len() == 1 && s.times(A, MessageKind::Open, 0) == 3 && s.session(A) == opened[0] && {
            let count = |state| {
                let values = s.registers.values();
                values.filter(|(_, value)| matches!(value, Record::Session(s) if s.state == state)).count()
            };
            // What A had before the fault is closed, and what it abandoned.
            (count(SessionState::Live), count(SessionState::Closed)) == (2, 2)
        }
    });
}

/// Rule 2: a value of mine whose nonce I never sent means that I was cloned: over at once.
#[test]
fn a_clone_ends_at_its_next_beat() {
    for mutant in [Mutant::CloneUnnoticed, Mutant::UnconditionalRenew] {
        sound_and(mutant, |mutant| {
            let mut s = Script::led_by_a(mutant);
            s.clone_of(A);
            s.wait(2.5);
            let leaders = s.leaders().len();
            s.wait(10.0);
            // Two at once until the next beat cannot be helped; after it there is one.
            leaders <= 1 && s.leaders().len() <= 1
        });
    }
}

fn lock(id: &str, covers_work: bool) -> Option<LivenessLock> {
    Some(LivenessLock { id: id.to_owned(), covers_work, connection: false })
}

/// Evidence counts only from the lock that the record names.
#[test]
fn the_evidence_of_a_different_lock_is_none() {
    sound_and(Mutant::AnyLivenessLock, |mutant| {
        let mut s = Script::led(mutant, [Duration::from_secs(5); 2], Class::B, lock("1:2", true));
        let session = s.session(A);
        s.feed(B, Input::Evidence(Evidence::Dead { session, lock: "1:3".to_owned() }));
        s.wait(2.0);
        s.leaders() == [A] && !s.overlap
    });
}

/// Evidence that does not cover the work is only a hint.
#[test]
fn the_death_of_the_elector_is_not_the_death_of_its_work() {
    sound_and(Mutant::ElectorDeathIsWorkDeath, |mutant| {
        let mut s = Script::led(mutant, [Duration::from_secs(5); 2], Class::B, lock("1:2", false));
        let session = s.session(A);
        // The elector dies; its child works on.
        s.frozen.insert(A);
        s.feed(B, Input::Evidence(Evidence::Dead { session, lock: "1:2".to_owned() }));
        s.wait(2.0);
        !s.overlap
    });
}

/// Evidence that covers the work is believed at once.
#[test]
fn the_death_of_all_the_work_frees_at_once() {
    let mut s = Script::led(None, [Duration::from_secs(5); 2], Class::B, lock("1:2", true));
    let session = s.session(A);
    s.frozen.insert(A);
    s.works.remove(&A);
    s.feed(B, Input::Evidence(Evidence::Dead { session, lock: "1:2".to_owned() }));
    s.wait(0.1);
    assert!(s.leaders().contains(&B));
}

/// A connection that the server sees drop.
fn link() -> Option<LivenessLock> {
    Some(LivenessLock { id: "link".to_owned(), covers_work: false, connection: true })
}

fn dropped(session: SessionId) -> Input {
    Input::Evidence(Evidence::Disconnected { session, lock: "link".to_owned() })
}

/// On disconnect the connection may be gone while its owner still beats, on another one: without the proof in the beat
/// the owner goes on, and a node that saw the drop does not wait for it.
#[test]
fn a_beat_proves_its_connection() {
    sound_and(Mutant::BeatUnproven, |mutant| {
        let mut s = Script::led(mutant, [Duration::from_secs(5); 2], Class::B, link());
        s.stubborn.insert(A);
        let session = s.session(A);
        s.severed.insert(session);
        s.feed(B, dropped(session));
        s.wait(4.0);
        !s.overlap && s.elections().iter().any(|(node, _)| *node == B)
    });
}

/// A dropped connection frees nothing before the owner's grace is over, and everything soon after, though the owner is
/// cut off and will not stop until it is killed.
#[test]
fn a_dropped_connection_counts_after_its_grace() {
    sound_and(Mutant::GraceSkipped, |mutant| {
        let mut s = Script::led(mutant, [Duration::from_secs(5); 2], Class::B, link());
        s.stubborn.insert(A);
        let session = s.session(A);
        s.cut.insert(A);
        s.severed.insert(session);
        s.feed(B, dropped(session));
        s.wait(2.1);
        let early = s.leaders().contains(&B);
        s.wait(0.6);
        !s.overlap && !early && s.leaders() == [B]
    });
}

/// The owner whose connection dropped, and that reaches the store, tells its work to stop at once, closes the session when
/// it has, and stands again: no node waits for any lease.
#[test]
fn an_owner_that_lost_its_connection_begins_anew() {
    let mut s = Script::led(None, [Duration::from_secs(5); 2], Class::B, link());
    let session = s.session(A);
    s.severed.insert(session);
    s.wait(1.0);
    assert!(!s.overlap && s.leaders().len() == 1 && s.session(A) != session);
    let ended = s.events.iter().any(|(_, node, event)| {
        *node == A && *event == Event::SessionOver { session, reason: EndReason::Disconnected }
    });
    assert!(ended);
}

/// A strict session loses nothing with its connection, even to those who are told.
#[test]
fn a_dropped_connection_means_nothing_to_a_strict_session() {
    let mut s = Script::led(None, [Duration::from_secs(5); 2], Class::B, lock("link", false));
    let session = s.session(A);
    s.severed.insert(session);
    s.feed(B, dropped(session));
    s.wait(10.0);
    assert!(!s.overlap && s.leaders() == [A] && s.session(A) == session);
}

fn control(s: &mut Script, control: RoleControl) {
    let epoch = s.registers.keys().map(Key::epoch).max().expect("an epoch");
    s.registers.insert(
        Key::Named(epoch, Kind::RoleControl, role()),
        (Version::new(u128::MAX - u128::from(s.now)), Record::RoleControl(control)),
    );
}

fn order() -> Order {
    Order { by: "an operator".to_owned(), why: String::new(), at: Timestamp::from_micros(0) }
}

/// A pause is read again after a claim and before the election.
#[test]
fn a_pause_between_claim_and_election() {
    sound_and(Mutant::PauseNotReread, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.plan(B, MessageKind::Claim, MessageFate::HoldAnswer);
        let token = s.token(A);
        s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
        s.wait(0.3);
        control(&mut s, RoleControl { pause: Some(order()), ..RoleControl::default() });
        s.release();
        s.wait(3.0);
        s.elections() == [(A, token.get())]
    });
}

/// A request names the tenure that it addresses, and fells no other.
#[test]
fn a_request_fells_only_its_tenure() {
    sound_and(Mutant::RequestFellsAnyone, |mutant| {
        let mut s = Script::led_by_a(mutant);
        let token = s.token(A);
        let request = Request {
            id: SessionId::new(7),
            token: Token::new(token.get() - 1),
            to: None,
            preemption: false,
            patience: Duration::from_secs(5),
            order: order(),
            answer: Answer::Open,
        };
        control(&mut s, RoleControl { request: Some(request), ..RoleControl::default() });
        s.wait(5.0);
        s.leaders() == [A] && s.token(A) == token
    });
}

/// What an operator asks of the tenure that A or B leads now.
fn ask(s: &mut Script, of: usize, to: Option<&str>) {
    let request = Request {
        id: SessionId::new(s.now.into()),
        token: s.token(of),
        to: to.map(|node| Name::new(node).unwrap()),
        preemption: false,
        patience: Duration::from_secs(5),
        order: order(),
        answer: Answer::Open,
    };
    control(s, RoleControl { request: Some(request), ..RoleControl::default() });
}

/// A leader that an operator asks to step down leaves the role alone for its cool-down, also if no other node stands for it.
#[test]
fn a_leader_that_steps_down_stands_back_for_its_cool_down() {
    let mut s = Script::led_by_a(None);
    s.feed(B, Input::Withdraw { role: role() });
    let candidacy = Candidacy { cool_down: Duration::from_secs(5), ..Candidacy::default() };
    s.feed(A, Input::Campaign { role: role(), candidacy });
    ask(&mut s, A, None);
    s.wait(1.5);
    assert_eq!(s.leaders(), [], "A gave it up");
    s.wait(3.0);
    assert_eq!(s.leaders(), [], "and stands back");
    s.wait(2.0);
    assert_eq!(s.leaders(), [A], "for its cool-down");
}

/// A node of higher priority that preempts leaves the role to whom an operator gave it, until that node has lost it.
#[test]
fn an_operators_transfer_is_not_undone_by_priority() {
    let mut s = Script::led_by_a(None);
    let candidacy = Candidacy { priority: 10, preempt: true, ..Candidacy::default() };
    s.feed(B, Input::Campaign { role: role(), candidacy });
    s.wait(10.0);
    assert_eq!(s.leaders(), [B], "B preempts A");
    ask(&mut s, B, Some("A"));
    s.wait(2.0);
    assert_eq!(s.leaders(), [A], "A was given the role");
    let token = s.token(A);
    s.wait(60.0);
    assert_eq!((s.leaders(), s.token(A)), (vec![A], token), "and keeps it");
    s.frozen.insert(A);
    s.works.remove(&A);
    s.wait(10.0);
    assert_eq!(s.leaders(), [B], "until it loses it");
}

/// A named successor that is slow to hear of it is left its time, also by a newcomer that never saw it beat.
#[test]
fn a_newcomer_does_not_outrun_a_named_successor() {
    let mut s = Script::led_by_a(None);
    s.join("C");
    let token = s.token(A);
    let request = Request {
        id: SessionId::new(7),
        token,
        to: Some(Name::new("B").unwrap()),
        preemption: false,
        patience: Duration::from_secs(5),
        order: order(),
        answer: Answer::Open,
    };
    control(&mut s, RoleControl { request: Some(request), ..RoleControl::default() });
    s.cut.insert(B);
    s.feed(A, Input::Hinted(Hint::Resync));
    s.wait(0.3);
    assert_eq!(s.leaders(), [], "A gave it up, and B does not know yet");
    s.cut.remove(&B);
    s.wait(3.0);
    assert_eq!((s.leaders(), s.token(B)), (vec![B], token.next()), "no claim of C came between");
}

/// A node that read too old a register of a named successor outruns it once, because it takes it for none; then it knows better.
#[test]
fn a_successor_is_outrun_once_by_a_node_that_read_too_old_a_register() {
    let mut s = Script::led_by_a(None);
    let (key, (version, held)) =
        s.registers.iter().find(|(key, _)| key.kind() == Kind::Node && key.name() == "B").unwrap();
    let Record::Node(node) = held else { panic!("a node") };
    let older = Record::Node(record::Node { candidacies: Default::default(), ..node.clone() });
    s.stale.insert(key.clone(), (*version, older));
    let c = s.join("C");
    s.wait(3.0);
    s.stale.clear();
    let hand_to_b = |s: &mut Script| {
        ask(s, A, Some("B"));
        s.cut.insert(B);
        s.feed(A, Input::Hinted(Hint::Resync));
        s.wait(0.3);
        s.cut.remove(&B);
        s.leaders()
    };
    assert_eq!(hand_to_b(&mut s), [c], "C does not know that B stands for the role");
    ask(&mut s, c, Some("A"));
    s.wait(5.0);
    assert_eq!(s.leaders(), [A]);
    assert_eq!(hand_to_b(&mut s), [], "A gave it up, B does not know yet, and C leaves it to B");
    s.wait(3.0);
    assert_eq!(s.leaders(), [B]);
}

/// An opening that is not acknowledged in time is closed before the next one: however slow the store is, a node leaves no second
/// register behind that counts as live.
#[test]
fn openings_that_are_not_acknowledged_do_not_pile_up() {
    let mut s = Script::led_by_a(None);
    let live = |s: &Script| {
        let live = |record: &Record| matches!(record, Record::Session(it) if it.state == SessionState::Live);
        s.registers.values().filter(|(_, record)| live(record)).count()
    };
    s.plan(B + 1, MessageKind::Open, MessageFate::HoldAnswer);
    let c = s.join("C");
    for attempt in 1..5 {
        s.next(c, MessageKind::Open, MessageFate::HoldAnswer);
        assert_eq!((live(&s), s.times(c, MessageKind::Close, 0)), (3, 2 * attempt));
    }
    s.wait(3.0);
    assert_eq!((live(&s), s.leaders()), (3, vec![A]));
    assert!(
        !s.events.iter().any(|(_, node, event)| *node == c && matches!(event, Event::SessionOver { .. }))
    );
}

/// What a node says of itself, deleted by hand, is said again within some beats, though the node has nothing new to say; who
/// leads does not change by it.
#[test]
fn a_node_deleted_by_hand_is_written_again() {
    let mut s = Script::led_by_a(None);
    let token = s.token(A);
    let named = |s: &Script| s.registers.keys().filter(|key| key.kind() == Kind::Node).count();
    assert_eq!(named(&s), 2);
    s.registers.retain(|key, _| key.kind() != Kind::Node);
    s.wait(6.0);
    assert_eq!(named(&s), 2);
    assert!(s.leaders() == [A] && s.token(A) == token);
}

/// Rule 7: a store that forgot everything is not taken for a new one: no node claims before the longest lease is over.
#[test]
fn a_store_that_forgets_is_quarantined() {
    sound_and(Mutant::QuarantineSkipped, |mutant| {
        let mut s = Script::led(mutant, [Duration::from_secs(5); 2], Class::C, None);
        // A is cut off, and counts on its lease; everything is forgotten.
        s.cut.insert(A);
        s.registers.clear();
        s.wait(20.0);
        !s.overlap && s.leaders() == [B]
    });
}

/// Rule 7: on a store that can forget, the wall clock is a floor for the tokens of those who never saw the old ones.
#[test]
fn tokens_rise_after_forgetting() {
    sound_and(Mutant::NoTokenFloor, |mutant| {
        let mut s = Script::led(mutant, [Duration::from_secs(5); 2], Class::C, None);
        // Some tenures pass; then the store and the whole fleet are lost, and begin anew.
        for _ in 0..2 {
            let leader = s.leaders()[0];
            let token = s.token(leader);
            s.feed(leader, Input::Resign { role: role(), token, reason: EndReason::Resigned });
            s.wait(5.0);
        }
        let last = s.elections().last().expect("a tenure").1;
        let later = Script::led_at(s.now, mutant, [Duration::from_secs(5); 2], Class::C, None);
        later.token(A).get() > last
    });
}

/// Rule 7: when wall clocks that were ahead are put right, they are a floor no more. The highest token that was seen goes on
/// by itself, so that a tenure that the store forgot is not given its number again by a node that never saw it.
#[test]
fn tokens_rise_after_clocks_were_set_back_and_the_store_forgot() {
    for wrong in [Mutant::NoTokenFloor, Mutant::HighestStandsStill] {
        sound_and(wrong, tokens_rise_after_clocks_were_set_back);
    }
}

fn tokens_rise_after_clocks_were_set_back(mutant: Option<Mutant>) -> bool {
    let mut s = Script::led_at(10_000_000_000_000, mutant, [Duration::from_secs(5); 2], Class::C, None);
    s.set_back = 3_600_000_000;
    let token = s.token(A);
    s.feed(A, Input::Resign { role: role(), token, reason: EndReason::Resigned });
    s.wait(5.0);
    assert_eq!(s.leaders(), [B]);
    // While A is away, B gives up and is elected again; then the store forgets that, and B is away.
    let (kept, token) = (s.registers.clone(), s.token(B));
    s.cut.insert(A);
    s.feed(B, Input::Resign { role: role(), token, reason: EndReason::Resigned });
    s.wait(20.0);
    let lost = s.token(B);
    assert!(lost > token);
    s.registers = kept;
    s.cut = [B].into();
    s.wait(30.0);
    s.token(A) > lost
}

/// Rule 7: tokens rise from one tenure to the next.
#[test]
fn every_claim_raises_the_token() {
    sound_and(Mutant::TokenNotRaised, |mutant| {
        let mut s = Script::led_by_a(mutant);
        s.cut.insert(A);
        s.wait(8.0);
        s.elections().windows(2).all(|pair| pair[0].1 < pair[1].1)
    });
}

/// Nothing here depends on how long a test takes: every instant is written down.
#[test]
fn the_defaults_are_those_of_the_design() {
    let s = Script::led_by_a(None);
    let timing = s.engines[A].timing();
    assert_eq!(
        (seconds(s.now) > 4.0, timing.ttl, timing.validity()),
        (true, Duration::from_secs(5), Duration::from_millis(4950))
    );
}

/// Rule 3: a session that never came to life was closed, and its register tidied away, before its opening arrived. No node counts
/// on the session that the opening makes: it is expelled as any silent one, and nothing else happens.
#[test]
fn an_opening_that_comes_after_its_closing_was_tidied_away_does_no_harm() {
    let mut s = Script::led_by_a(None);
    let token = s.token(A);
    let sessions = |s: &Script| s.registers.keys().filter(|key| key.kind() == Kind::Session).count();
    s.plan(B + 1, MessageKind::Open, MessageFate::HoldRequest);
    let c = s.join("C");
    s.wait(0.1);
    s.feed(c, Input::Stop);
    assert!(s.engines[c].is_stopped() && sessions(&s) == 3, "C has closed the session that it never had");
    s.wait(80.0);
    assert_eq!(sessions(&s), 2, "it was tidied away");
    s.release();
    assert_eq!(sessions(&s), 3, "its opening arrives");
    s.wait(25.0);
    let live = |record: &Record| match record {
        Record::Session(session) => session.state == SessionState::Live,
        _ => false,
    };
    assert_eq!(s.registers.values().filter(|held| live(&held.1)).count(), 2, "it is expelled");
    assert!(s.leaders() == [A] && s.token(A) == token && !s.overlap);
}
