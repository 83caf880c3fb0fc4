//! The judge accepts what may be and refuses what must not: a history for each rule, broken by hand.

use std::time::Duration;

use super::*;

pub(super) const MS: u64 = 1_000_000;

pub(super) fn note(t: u64, node: &str, what: NoteKind) -> Note {
    let pid = u32::from(node.as_bytes()[node.len() - 1]);
    Note { t: t * MS, node: node.to_owned(), pid, what }
}

pub(super) fn act(t: u64, node: &str, token: u64, leads: bool, until: u64) -> Note {
    note(t, node, NoteKind::Act { role: "r".into(), token, leads, until: until * MS })
}

pub(super) fn work(t: u64, node: &str, token: u64, on: bool) -> Note {
    note(t, node, NoteKind::Work { role: "r".into(), token, on })
}

pub(super) fn fenced(t: u64, node: &str, token: u64, taken: bool) -> Note {
    note(t, node, NoteKind::Fenced { role: "r".into(), token, taken })
}

pub(super) fn told(t: u64, node: &str, sequence: u64, event: &str, token: u64) -> Note {
    let (event, role, token) = (event.to_owned(), Some("r".to_owned()), Some(token));
    note(t, node, NoteKind::Told { sequence, event, role, token, more: String::new() })
}

/// A write that was sent, and acknowledged at once.
pub(super) fn wrote(t: u64, node: &str, register: &str, expect: Option<&str>, put: &str) -> Note {
    let (register, expect, put) = (register.to_owned(), expect.map(str::to_owned), Some(put.to_owned()));
    note(t, node, NoteKind::Wrote { register, expect, put, called: t * MS - 1, applied: Some(true) })
}

/// A tenure that acts every 10 ms, with its lease a second ahead.
pub(super) fn tenure(node: &str, token: u64, from: u64, to: u64) -> Vec<Note> {
    let acts = (from..to).step_by(10).map(|t| act(t, node, token, true, t + 1_000));
    let begin = [work(from, node, token, true)];
    begin.into_iter().chain(acts).chain([work(to, node, token, false)]).collect()
}

pub(super) fn fault(kind: &str, from: u64, to: u64, on: FaultScope, destroys: bool) -> InjectedFault {
    InjectedFault {
        kind: kind.into(),
        what: format!("{kind} of it"),
        from: from * MS,
        to: to * MS,
        on,
        loses: if destroys { DataLoss::Everything } else { DataLoss::None },
    }
}

pub(super) fn case(parts: &[Vec<Note>], injected: Vec<InjectedFault>, end: u64) -> JudgeCase {
    let mut notes: Vec<Note> = parts.concat();
    notes.sort_by_key(|note| note.t);
    let terms = JudgeTerms {
        bound: Duration::from_millis(1_200),
        bound_of_two: Duration::from_millis(1_200),
        allowance: Duration::ZERO,
        lease: Duration::from_millis(500),
        recovery: Duration::from_millis(500),
        reconnect: Duration::from_millis(200),
        wind_down: Duration::from_millis(500),
        expected: (0, end * MS),
        roles: Vec::new(),
        tokens_rise: false,
    };
    JudgeCase { notes, injected, terms }
}

fn only(case: &JudgeCase) -> (ViolationKind, String) {
    let verdict = judge(case);
    let [violation] = verdict.violations.as_slice() else { panic!("{:#?}", verdict.violations) };
    (violation.wrong, violation.to_string())
}

pub(super) fn joined(node: &str, until: u64) -> Vec<Note> {
    let alive = (0..until).step_by(100).map(|t| note(t, node, NoteKind::Alive));
    std::iter::once(note(0, node, NoteKind::Joined { ttl: 1_000 })).chain(alive).collect()
}

#[test]
fn one_after_the_other_is_sound() {
    let case = case(&[tenure("a", 1, 0, 1_000), tenure("b", 2, 1_010, 2_000)], vec![], 2_000);
    let verdict = judge(&case);
    verdict.assert_sound();
    assert_eq!((verdict.tenures.len(), verdict.acts), (2, 199));
    assert_eq!(verdict.longest_gap().1, Duration::from_millis(20) - Duration::from_nanos(0));
}

#[test]
fn two_leaders_are_explained_with_both_intervals_and_what_was_injected() {
    let parts = [tenure("a", 1, 0, 1_000), tenure("b", 2, 900, 2_000)];
    let case = case(&parts, vec![fault("freeze", 500, 800, FaultScope::Node("a".into()), false)], 2_000);
    let told = judge(&case).violations.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told.len(), 2, "two leaders, and two workers: {told:#?}");
    assert_eq!(
        told[0],
        "two led at once (r, 90 ms): a (process 97) under token 1 from 0.000000 to 0.990000 s, and b (process 98) \
         under token 2 from 0.900000 to 1.990000 s; injected: freeze of it (400 ms earlier, for 300 ms)"
    );
}

#[test]
fn where_a_store_lost_data_an_overlap_is_a_loss_and_a_fence_that_goes_back_is_not() {
    let parts = [tenure("a", 1, 0, 1_000), tenure("b", 2, 900, 2_000)];
    let flushed = vec![fault("flush", 850, 860, FaultScope::Store, true)];
    let verdict = judge(&case(&parts, flushed.clone(), 2_000));
    verdict.assert_sound();
    assert_eq!(verdict.losses.len(), 2);
    let back = vec![fenced(950, "b", 2, true), fenced(960, "a", 1, true)];
    let verdict = judge(&case(&[parts.concat(), back], flushed, 2_000));
    assert_eq!(verdict.violations[0].wrong, ViolationKind::Fence);
    // Long before the loss nothing is excused.
    let late = vec![fault("flush", 1_500, 1_600, FaultScope::Store, true)];
    assert!(!judge(&case(&parts, late, 2_000)).violations.is_empty());
}

#[test]
fn two_workers_are_found_although_only_one_leads() {
    // `a` gave the role up while its work was still winding down.
    let mut first = tenure("a", 1, 0, 500);
    first.push(work(800, "a", 1, false));
    let (wrong, told) = only(&case(&[first, tenure("b", 2, 600, 1_000)], vec![], 1_000));
    assert_eq!(wrong, ViolationKind::TwoWorkers, "{told}");
}

#[test]
fn work_that_was_frozen_beyond_its_lease_is_not_taken_for_a_second_worker() {
    let mut first = tenure("a", 1, 0, 500);
    first.extend([act(3_000, "a", 1, false, 0), work(3_001, "a", 1, false)]);
    let stalled = vec![note(3_000, "a", NoteKind::Stalled { from: 500 * MS })];
    let case = case(&[first, stalled, tenure("b", 2, 1_600, 4_000)], vec![], 4_000);
    judge(&case).assert_sound();
}

#[test]
fn work_that_was_frozen_before_it_began_is_no_second_worker() {
    let late = vec![work(1_500, "a", 1, true), act(1_501, "a", 1, false, 0), work(1_502, "a", 1, false)];
    judge(&case(&[late, tenure("b", 2, 1_000, 2_000)], vec![], 0)).assert_sound();
}

#[test]
fn tokens_must_rise() {
    for token in [7, 6] {
        let parts = [tenure("a", 7, 0, 500), tenure("b", token, 600, 1_000)];
        let (wrong, told) = only(&case(&parts, vec![], 1_000));
        assert_eq!(wrong, ViolationKind::Token, "{told}");
    }
}

#[test]
fn over_is_final() {
    let mut notes = tenure("a", 1, 0, 500);
    notes.extend([act(510, "a", 1, false, 0), act(520, "a", 1, true, 2_000)]);
    assert_eq!(only(&case(&[notes], vec![], 520)).0, ViolationKind::Relapse);
}

#[test]
fn a_lease_that_ran_out_is_not_relied_on() {
    let mut notes = tenure("a", 1, 0, 500);
    notes.push(act(2_000, "a", 1, true, 1_490));
    assert_eq!(only(&case(&[notes], vec![], 2_000)).0, ViolationKind::BeyondDeadline);
}

#[test]
fn work_that_goes_on_is_found_and_a_frozen_one_is_excused() {
    let mut on = tenure("a", 1, 0, 500);
    on.extend((500..1_200).step_by(10).map(|t| act(t, "a", 1, false, 0)));
    assert_eq!(only(&case(&[on.clone()], vec![], 500)).0, ViolationKind::WorkGoesOn);
    on.push(note(1_000, "a", NoteKind::Stalled { from: 600 * MS }));
    judge(&case(&[on], vec![], 500)).assert_sound();
}

#[test]
fn fenced_registers_never_go_back_and_no_two_tenures_share_a_token() {
    let sound = vec![
        fenced(1, "a", 1, true),
        fenced(5, "b", 2, true),
        fenced(6, "a", 1, false),
        fenced(7, "b", 2, true),
    ];
    let verdict = judge(&case(std::slice::from_ref(&sound), vec![], 0));
    verdict.assert_sound();
    assert_eq!(verdict.fenced, (3, 1));
    let back = [sound.clone(), vec![fenced(8, "a", 1, true)]].concat();
    assert_eq!(judge(&case(&[back], vec![], 0)).violations[0].wrong, ViolationKind::Fence);
    let shared = [sound, vec![fenced(8, "c", 2, true)]].concat();
    assert_eq!(only(&case(std::slice::from_ref(&shared), vec![], 0)).0, ViolationKind::SharedToken);
    let lost = judge(&case(&[shared], vec![fault("restore", 0, 1, FaultScope::Store, true)], 0));
    lost.assert_sound();
    assert_eq!(lost.losses[0].wrong, ViolationKind::SharedToken);
}

#[test]
fn what_a_neighbour_does_is_counted_and_what_it_was_not_refused_is_a_violation() {
    let some = NeighbourActivity { forged: 1, refused: 2, connections: 3, locks: 4 };
    let hostile = vec![note(1, "n", NoteKind::Neighbour(some)), note(2, "n", NoteKind::Neighbour(some))];
    let verdict = judge(&case(std::slice::from_ref(&hostile), vec![], 0));
    verdict.assert_sound();
    assert_eq!(verdict.nuisance, NeighbourActivity { forged: 2, refused: 4, connections: 6, locks: 8 });
    let trespass = vec![note(3, "n", NoteKind::Trespass { how: "UPDATE tenure_registers was done".into() })];
    let (wrong, told) = only(&case(&[hostile, trespass.clone()], vec![], 0));
    assert_eq!(wrong, ViolationKind::Trespass);
    assert!(told.contains("was not refused (n, 0 ms): UPDATE tenure_registers was done"), "{told}");
    // No loss of data excuses it.
    let lost = vec![fault("flush", 0, 5, FaultScope::Store, true)];
    assert_eq!(only(&case(&[trespass], lost, 0)).0, ViolationKind::Trespass);
}

#[test]
fn events_must_be_a_story_that_can_be() {
    let good = [told(1, "a", 1, "elected", 1), told(2, "a", 2, "draining", 1), told(3, "a", 3, "lost", 1)];
    judge(&case(&[good.to_vec()], vec![], 0)).assert_sound();
    let slow = [told(1, "a", 1, "elected", 1), told(9, "a", 9, "missed", 0), told(10, "a", 9, "elected", 4)];
    judge(&case(&[slow.to_vec()], vec![], 0)).assert_sound();
    let broken: [&[Note]; 6] = [
        &[told(1, "a", 1, "elected", 1), told(2, "a", 2, "elected", 2)],
        &[told(1, "a", 1, "lost", 1)],
        &[told(1, "a", 1, "elected", 2), told(2, "a", 2, "lost", 1)],
        &[told(1, "a", 1, "elected", 2), told(2, "a", 2, "lost", 2), told(3, "a", 3, "elected", 2)],
        &[told(1, "a", 1, "elected", 1), told(3, "a", 3, "lost", 1)],
        &[told(1, "a", 1, "draining", 1)],
    ];
    for notes in broken {
        assert_eq!(only(&case(&[notes.to_vec()], vec![], 0)).0, ViolationKind::Events, "{notes:?}");
    }
}

#[test]
fn a_gap_counts_only_where_a_node_could_have_led() {
    let parts = |gap: u64| {
        let next = tenure("b", 2, 1_000 + gap, 4_000);
        [tenure("a", 1, 0, 1_000), next, joined("a", 1_000), joined("b", 4_000)]
    };
    let killed = || fault("kill", 1_000, 4_000, FaultScope::Node("a".into()), false);
    judge(&case(&parts(1_100), vec![killed()], 3_990)).assert_sound();
    let (wrong, told) = only(&case(&parts(1_500), vec![killed()], 3_990));
    assert_eq!(wrong, ViolationKind::Gap);
    assert!(
        told.contains("b could have led for 1510 ms") && told.contains("promised within 1200 ms"),
        "{told}"
    );
    // What excuses it: a store that was gone, the only other node frozen, a pause, a machine that stood still.
    let excuses = [
        fault("stop", 1_000, 1_100, FaultScope::Store, false),
        fault("freeze", 1_000, 1_100, FaultScope::Node("b".into()), false),
        fault("pause", 900, 1_100, FaultScope::Role("r".into()), false),
    ];
    for excuse in excuses {
        judge(&case(&parts(1_500), vec![killed(), excuse], 3_990)).assert_sound();
    }
    let stalled = vec![note(2_000, "injector", NoteKind::Stalled { from: 1_600 * MS })];
    let mut parts = parts(1_500).to_vec();
    parts.push(stalled);
    judge(&case(&parts, vec![killed()], 3_990)).assert_sound();
}

#[test]
fn no_leader_at_the_end_is_a_gap_too() {
    let case = case(&[tenure("a", 1, 0, 1_000), joined("b", 9_000)], vec![], 9_000);
    assert_eq!(only(&case).0, ViolationKind::Gap);
}

#[test]
fn a_register_that_lost_a_write_is_found() {
    let wrote = |t: u64, node: &str, expect: Option<&str>, put: &str| wrote(t, node, "role/r", expect, put);
    let chain = vec![wrote(1, "a", None, "v1"), wrote(2, "b", Some("v1"), "v2")];
    let verdict = judge(&case(std::slice::from_ref(&chain), vec![], 0));
    verdict.assert_sound();
    assert_eq!(verdict.operations, 2);
    let forked = [chain, vec![wrote(3, "c", Some("v1"), "v3")]].concat();
    assert_eq!(only(&case(&[forked], vec![], 0)).0, ViolationKind::Register);
}

#[test]
fn a_pile_keeps_what_matters() {
    let mut notes = tenure("a", 1, 0, 1_000);
    notes.extend([
        act(2_000, "a", 1, true, 1_990),
        act(2_010, "a", 1, false, 0),
        act(2_020, "a", 1, true, 3_000),
    ]);
    let whole = tenures(&notes);
    let mut pile = NoteBuffer::default();
    pile.take(notes);
    assert_eq!(pile.acts(), 102);
    let kept = pile.into_notes();
    assert!(kept.len() < 10, "{}", kept.len());
    let thin = tenures(&kept);
    assert_eq!((thin[0].led, thin[0].beyond, thin[0].after), (whole[0].led, whole[0].beyond, whole[0].after));
    assert!(thin[0].relapse.is_some());
}

#[test]
fn notes_survive_a_file_and_a_torn_line() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let pen = NoteWriter::in_dir(dir.path(), "a", 1).unwrap();
    let mut tail = NoteReader::of(dir.path());
    pen.note(NoteKind::Joined { ttl: 5 });
    pen.note(NoteKind::Act { role: "r".into(), token: 1, leads: true, until: u64::MAX });
    let hostile = NoteKind::Neighbour(NeighbourActivity { forged: 7, ..NeighbourActivity::default() });
    pen.note(hostile.clone());
    let read = tail.read_on().unwrap();
    assert_eq!((read.len(), &read[2].what), (3, &hostile));
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::File::options().append(true).open(file).unwrap().write_all(br#"{"t":7,"no"#).unwrap();
    assert_eq!(tail.read_on().unwrap(), []);
    assert_eq!(read_dir(dir.path()).unwrap().len(), 3);
}

pub(super) fn wrongs(verdict: &Verdict) -> Vec<ViolationKind> {
    verdict.violations.iter().map(|violation| violation.wrong).collect()
}

#[test]
fn one_loss_excuses_one_low_token_and_not_all_that_follow() {
    let flushed = vec![fault("flush", 400, 450, FaultScope::Store, true)];
    let mut parts = vec![tenure("a", 9, 0, 400), tenure("b", 3, 600, 900)];
    let verdict = judge(&case(&parts, flushed.clone(), 0));
    verdict.assert_sound();
    assert_eq!(verdict.losses[0].wrong, ViolationKind::Token);
    parts.push(tenure("a", 4, 1_000, 1_200));
    judge(&case(&parts, flushed.clone(), 0)).assert_sound();
    parts.push(tenure("b", 4, 1_300, 1_500));
    assert_eq!(wrongs(&judge(&case(&parts, flushed, 0))), [ViolationKind::Token]);
}

#[test]
fn two_leaders_after_a_loss_are_excused_until_every_lease_has_run_out_and_not_longer() {
    let flushed = vec![fault("flush", 850, 860, FaultScope::Store, true)];
    let until =
        |end: u64| judge(&case(&[tenure("a", 1, 0, end), tenure("b", 2, 900, 3_000)], flushed.clone(), 0));
    until(1_300).assert_sound();
    assert_eq!(wrongs(&until(1_500)), [ViolationKind::TwoLeaders, ViolationKind::TwoWorkers]);
}

#[test]
fn a_loss_long_before_excuses_no_shared_token() {
    let shared = vec![fenced(5_000, "a", 2, true), fenced(6_000, "b", 2, true)];
    let lost = |at: u64| {
        judge(&case(std::slice::from_ref(&shared), vec![fault("flush", at, at, FaultScope::Store, true)], 0))
    };
    lost(5_500).assert_sound();
    assert_eq!(wrongs(&lost(1_000)), [ViolationKind::SharedToken]);
}

#[test]
fn a_role_that_was_never_led_is_a_gap() {
    let mut case = case(&[joined("a", 9_000), tenure("a", 1, 0, 9_000)], vec![], 9_000);
    judge(&case).assert_sound();
    case.terms.roles.push("s".into());
    let verdict = judge(&case);
    assert_eq!((wrongs(&verdict), verdict.violations[0].of.as_str()), (vec![ViolationKind::Gap], "s"));
}

#[test]
fn a_store_that_is_back_excuses_a_moment_and_one_that_lost_data_a_lease() {
    // No node leads from 1.0 s on; the store was stopped until 1.1 s. Promised: within 1.2 s of being expected.
    let gap = |end: u64, destroys: bool| {
        let parts = [tenure("a", 1, 0, 1_000), joined("b", 9_000), tenure("b", 2, end, 9_000)];
        wrongs(&judge(&case(&parts, vec![fault("stop", 900, 1_100, FaultScope::Store, destroys)], 8_990)))
    };
    assert_eq!(gap(2_490, false), []);
    assert_eq!(gap(2_520, false), [ViolationKind::Gap]);
    assert_eq!(gap(2_790, true), []);
    assert_eq!(gap(2_820, true), [ViolationKind::Gap]);
}

/// Each history breaks a rule in the midst of a loss of all data, which no loss can cause.
#[test]
fn no_loss_excuses_what_no_loss_can_cause() {
    let lost = || vec![fault("flush", 0, 9_000, FaultScope::Store, true)];
    let mut again = tenure("a", 1, 0, 500);
    again.extend([act(510, "a", 1, false, 0), act(520, "a", 1, true, 2_000)]);
    let mut beyond = tenure("a", 1, 0, 500);
    beyond.push(act(2_000, "a", 1, true, 1_490));
    let mut on = tenure("a", 1, 0, 500);
    on.extend((500..1_200).step_by(10).map(|t| act(t, "a", 1, false, 0)));
    let broken = [
        (ViolationKind::Relapse, again),
        (ViolationKind::BeyondDeadline, beyond),
        (ViolationKind::WorkGoesOn, on),
        (ViolationKind::Fence, vec![fenced(5, "b", 2, true), fenced(6, "a", 1, true)]),
        (ViolationKind::Events, vec![told(1, "a", 1, "lost", 1)]),
        (ViolationKind::Trespass, vec![note(3, "n", NoteKind::Trespass { how: "it was done".into() })]),
    ];
    for (wrong, notes) in broken {
        assert_eq!(only(&case(&[notes], lost(), 500)).0, wrong);
    }
}

/// Trouble that loses nothing excuses no second leader.
#[test]
fn what_loses_nothing_excuses_no_second_leader() {
    let faults = [
        fault("failover", 850, 1_500, FaultScope::Servers, false),
        fault("store-kill", 850, 1_500, FaultScope::Store, false),
        InjectedFault { loses: DataLoss::Newest, ..fault("failover", 850, 1_500, FaultScope::Store, false) },
    ];
    for fault in faults {
        let parts = [tenure("a", 1, 0, 1_000), tenure("b", 2, 900, 2_000)];
        let verdict = judge(&case(&parts, vec![fault.clone()], 0));
        assert_eq!(wrongs(&verdict), [ViolationKind::TwoLeaders, ViolationKind::TwoWorkers], "{fault:?}");
        let parts = [tenure("a", 9, 0, 500), tenure("b", 3, 900, 2_000)];
        assert_eq!(wrongs(&judge(&case(&parts, vec![fault], 0))), [ViolationKind::Token]);
    }
}

#[test]
fn nodes_that_came_to_another_server_are_given_a_lease_and_not_more() {
    let gap = |end: u64| {
        let parts = [tenure("a", 1, 0, 1_000), joined("b", 9_000), tenure("b", 2, end, 9_000)];
        let moved = vec![fault("failover", 900, 1_100, FaultScope::Servers, false)];
        wrongs(&judge(&case(&parts, moved, 8_990)))
    };
    assert_eq!(gap(2_790), []);
    assert_eq!(gap(2_820), [ViolationKind::Gap]);
}

/// A register that two writes replaced in the same place is excused by a loss between them, and by none before.
#[test]
fn a_loss_long_before_excuses_no_forked_register() {
    let wrote = |t: u64, node: &str, expect: Option<&str>, put: &str| wrote(t, node, "role/r", expect, put);
    let forked = vec![
        wrote(5_000, "a", None, "v1"),
        wrote(5_010, "b", Some("v1"), "v2"),
        wrote(6_000, "c", Some("v1"), "v3"),
    ];
    let lost = |at: u64| {
        judge(&case(std::slice::from_ref(&forked), vec![fault("flush", at, at, FaultScope::Store, true)], 0))
    };
    lost(5_500).assert_sound();
    assert_eq!(wrongs(&lost(1_000)), [ViolationKind::Register]);
}

pub(super) fn ticked(t: u64, node: &str, tick: u64) -> Note {
    note(t, node, NoteKind::Ticked { task: "job".into(), tick, token: 1 })
}

pub(super) fn ledger(t: u64, tick: u64, accounted: u64) -> Note {
    note(t, "injector", NoteKind::Ledger { task: "job".into(), tick, every: 10, accounted })
}

#[test]
fn a_tick_is_run_once() {
    let once = vec![ticked(100, "a", 10), ticked(200, "b", 20)];
    let verdict = judge(&case(std::slice::from_ref(&once), vec![], 0));
    verdict.assert_sound();
    assert_eq!(verdict.ticks, 2);
    let twice = [once, vec![ticked(1_000, "b", 10)]].concat();
    assert_eq!(only(&case(std::slice::from_ref(&twice), vec![], 0)).0, ViolationKind::TickTwice);
    // A store that lost the entry in between may have it run again; one that had lost something long before, or that fell over and
    // lost nothing, may not.
    let after = |at: u64, on: FaultScope, destroys: bool| {
        let notes: Vec<Note> =
            twice.iter().cloned().map(|note| Note { t: note.t + 5_000 * MS, ..note }).collect();
        wrongs(&judge(&case(&[notes], vec![fault("failover", at, at, on, destroys)], 0)))
    };
    assert_eq!(after(5_500, FaultScope::Store, true), []);
    assert_eq!(after(1_000, FaultScope::Store, true), [ViolationKind::TickTwice]);
    assert_eq!(after(5_500, FaultScope::Servers, false), [ViolationKind::TickTwice]);
}

#[test]
fn no_tick_is_lost() {
    let kept =
        vec![ledger(100, 1_000, 5), ledger(200, 1_050, 10), ledger(300, 1_040, 9), ledger(400, 1_060, 11)];
    judge(&case(std::slice::from_ref(&kept), vec![], 0)).assert_sound();
    for (tick, accounted) in [(1_080, 12), (1_070, 13), (1_060, 5)] {
        let lost = [kept.clone(), vec![ledger(500, tick, accounted)]].concat();
        assert_eq!(only(&case(&[lost], vec![], 0)).0, ViolationKind::TickLost, "{tick} {accounted}");
    }
    // A loss of data in between takes entries with it.
    let lost = [kept, vec![ledger(500, 1_080, 12), ledger(900, 1_100, 14)]].concat();
    let flushed = vec![fault("flush", 450, 460, FaultScope::Store, true)];
    judge(&case(&[lost], flushed, 0)).assert_sound();
}

/// On class C with wall clocks that agree no loss lets a token fall, or be given twice.
#[test]
fn where_tokens_rise_whatever_is_lost_no_loss_excuses_one() {
    let lost = || vec![fault("failover", 400, 450, FaultScope::Store, true)];
    let parts = [
        [tenure("a", 9, 0, 400), tenure("b", 3, 600, 900)].concat(),
        vec![fenced(300, "a", 2, true), fenced(600, "b", 2, true)],
    ];
    for (notes, wrong) in parts.into_iter().zip([ViolationKind::Token, ViolationKind::SharedToken]) {
        let mut case = case(&[notes], lost(), 0);
        judge(&case).assert_sound();
        case.terms.tokens_rise = true;
        assert_eq!(wrongs(&judge(&case)), [wrong]);
    }
}
