//! The judge accepts what may be and refuses what must not: a history for each rule, broken by hand.

use std::time::Duration;

use super::*;

const MS: u64 = 1_000_000;

fn note(t: u64, node: &str, what: What) -> Note {
    let pid = u32::from(node.as_bytes()[node.len() - 1]);
    Note { t: t * MS, node: node.to_owned(), pid, what }
}

fn act(t: u64, node: &str, token: u64, leads: bool, until: u64) -> Note {
    note(t, node, What::Act { role: "r".into(), token, leads, until: until * MS })
}

fn work(t: u64, node: &str, token: u64, on: bool) -> Note {
    note(t, node, What::Work { role: "r".into(), token, on })
}

fn fenced(t: u64, node: &str, token: u64, taken: bool) -> Note {
    note(t, node, What::Fenced { role: "r".into(), token, taken })
}

fn told(t: u64, node: &str, sequence: u64, event: &str, token: u64) -> Note {
    let (event, role, token) = (event.to_owned(), Some("r".to_owned()), Some(token));
    note(t, node, What::Told { sequence, event, role, token, more: String::new() })
}

/// A tenure that acts every 10 ms, with its lease a second ahead.
fn tenure(node: &str, token: u64, from: u64, to: u64) -> Vec<Note> {
    let acts = (from..to).step_by(10).map(|t| act(t, node, token, true, t + 1_000));
    let begin = [work(from, node, token, true)];
    begin.into_iter().chain(acts).chain([work(to, node, token, false)]).collect()
}

fn fault(kind: &str, from: u64, to: u64, on: On, destroys: bool) -> Injected {
    Injected { kind: kind.into(), what: format!("{kind} of it"), from: from * MS, to: to * MS, on, destroys }
}

fn case(parts: &[Vec<Note>], injected: Vec<Injected>, end: u64) -> Case {
    let mut notes: Vec<Note> = parts.concat();
    notes.sort_by_key(|note| note.t);
    let terms = Terms {
        bound: Duration::from_millis(1_200),
        allowance: Duration::ZERO,
        recovery: Duration::from_millis(500),
        wind_down: Duration::from_millis(500),
        expected: (0, end * MS),
    };
    Case { notes, injected, terms }
}

fn only(case: &Case) -> (Wrong, String) {
    let verdict = judge(case);
    let [violation] = verdict.violations.as_slice() else { panic!("{:#?}", verdict.violations) };
    (violation.wrong, violation.to_string())
}

fn joined(node: &str, until: u64) -> Vec<Note> {
    let alive = (0..until).step_by(100).map(|t| note(t, node, What::Alive));
    std::iter::once(note(0, node, What::Joined { ttl: 1_000 })).chain(alive).collect()
}

#[test]
fn one_after_the_other_is_sound() {
    let case = case(&[tenure("a", 1, 0, 1_000), tenure("b", 2, 1_010, 2_000)], vec![], 2_000);
    let verdict = judge(&case);
    verdict.assert_sound();
    assert_eq!((verdict.reigns.len(), verdict.acts), (2, 199));
    assert_eq!(verdict.longest_gap().1, Duration::from_millis(20) - Duration::from_nanos(0));
}

#[test]
fn two_leaders_are_explained_with_both_intervals_and_what_was_injected() {
    let parts = [tenure("a", 1, 0, 1_000), tenure("b", 2, 900, 2_000)];
    let case = case(&parts, vec![fault("freeze", 500, 800, On::Node("a".into()), false)], 2_000);
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
    let flushed = vec![fault("flush", 850, 860, On::Store, true)];
    let verdict = judge(&case(&parts, flushed.clone(), 2_000));
    verdict.assert_sound();
    assert_eq!(verdict.losses.len(), 2);
    let back = vec![fenced(950, "b", 2, true), fenced(960, "a", 1, true)];
    let verdict = judge(&case(&[parts.concat(), back], flushed, 2_000));
    assert_eq!(verdict.violations[0].wrong, Wrong::Fence);
    // Long before the loss nothing is excused.
    let late = vec![fault("flush", 1_500, 1_600, On::Store, true)];
    assert!(!judge(&case(&parts, late, 2_000)).violations.is_empty());
}

#[test]
fn two_workers_are_found_although_only_one_leads() {
    // `a` gave the role up while its work was still winding down.
    let mut first = tenure("a", 1, 0, 500);
    first.push(work(800, "a", 1, false));
    let (wrong, told) = only(&case(&[first, tenure("b", 2, 600, 1_000)], vec![], 1_000));
    assert_eq!(wrong, Wrong::TwoWorkers, "{told}");
}

#[test]
fn work_that_was_frozen_beyond_its_lease_is_not_taken_for_a_second_worker() {
    let mut first = tenure("a", 1, 0, 500);
    first.extend([act(3_000, "a", 1, false, 0), work(3_001, "a", 1, false)]);
    let stalled = vec![note(3_000, "a", What::Stalled { from: 500 * MS })];
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
        assert_eq!(wrong, Wrong::Token, "{told}");
    }
}

#[test]
fn over_is_final() {
    let mut notes = tenure("a", 1, 0, 500);
    notes.extend([act(510, "a", 1, false, 0), act(520, "a", 1, true, 2_000)]);
    assert_eq!(only(&case(&[notes], vec![], 520)).0, Wrong::Relapse);
}

#[test]
fn a_lease_that_ran_out_is_not_relied_on() {
    let mut notes = tenure("a", 1, 0, 500);
    notes.push(act(2_000, "a", 1, true, 1_490));
    assert_eq!(only(&case(&[notes], vec![], 2_000)).0, Wrong::BeyondDeadline);
}

#[test]
fn work_that_goes_on_is_found_and_a_frozen_one_is_excused() {
    let mut on = tenure("a", 1, 0, 500);
    on.extend((500..1_200).step_by(10).map(|t| act(t, "a", 1, false, 0)));
    assert_eq!(only(&case(&[on.clone()], vec![], 500)).0, Wrong::WorkGoesOn);
    on.push(note(1_000, "a", What::Stalled { from: 600 * MS }));
    judge(&case(&[on], vec![], 500)).assert_sound();
}

#[test]
fn fenced_registers_never_go_back_and_nobody_shares_a_token() {
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
    assert_eq!(judge(&case(&[back], vec![], 0)).violations[0].wrong, Wrong::Fence);
    let shared = [sound, vec![fenced(8, "c", 2, true)]].concat();
    assert_eq!(only(&case(std::slice::from_ref(&shared), vec![], 0)).0, Wrong::SharedToken);
    let lost = judge(&case(&[shared], vec![fault("restore", 0, 1, On::Store, true)], 0));
    lost.assert_sound();
    assert_eq!(lost.losses[0].wrong, Wrong::SharedToken);
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
        assert_eq!(only(&case(&[notes.to_vec()], vec![], 0)).0, Wrong::Events, "{notes:?}");
    }
}

#[test]
fn a_gap_counts_only_where_somebody_could_have_led() {
    let parts = |gap: u64| {
        let next = tenure("b", 2, 1_000 + gap, 4_000);
        [tenure("a", 1, 0, 1_000), next, joined("a", 1_000), joined("b", 4_000)]
    };
    let killed = || fault("kill", 1_000, 4_000, On::Node("a".into()), false);
    judge(&case(&parts(1_100), vec![killed()], 3_990)).assert_sound();
    let (wrong, told) = only(&case(&parts(1_500), vec![killed()], 3_990));
    assert_eq!(wrong, Wrong::Gap);
    assert!(
        told.contains("b could have led for 1510 ms") && told.contains("promised within 1200 ms"),
        "{told}"
    );
    // What excuses it: a store that was gone, the only other node frozen, a pause, a machine that stood still.
    let excuses = [
        fault("stop", 1_000, 1_100, On::Store, false),
        fault("freeze", 1_000, 1_100, On::Node("b".into()), false),
        fault("pause", 900, 1_100, On::Role("r".into()), false),
    ];
    for excuse in excuses {
        judge(&case(&parts(1_500), vec![killed(), excuse], 3_990)).assert_sound();
    }
    let stalled = vec![note(2_000, "nemesis", What::Stalled { from: 1_600 * MS })];
    let mut parts = parts(1_500).to_vec();
    parts.push(stalled);
    judge(&case(&parts, vec![killed()], 3_990)).assert_sound();
}

#[test]
fn nobody_at_the_end_is_a_gap_too() {
    let case = case(&[tenure("a", 1, 0, 1_000), joined("b", 9_000)], vec![], 9_000);
    assert_eq!(only(&case).0, Wrong::Gap);
}

#[test]
fn a_register_that_lost_a_write_is_found() {
    let wrote = |t: u64, node: &str, expect: Option<&str>, put: &str| {
        let (expect, put) = (expect.map(str::to_owned), Some(put.to_owned()));
        note(
            t,
            node,
            What::Wrote { register: "role/r".into(), expect, put, called: t * MS - 1, applied: Some(true) },
        )
    };
    let chain = vec![wrote(1, "a", None, "v1"), wrote(2, "b", Some("v1"), "v2")];
    let verdict = judge(&case(std::slice::from_ref(&chain), vec![], 0));
    verdict.assert_sound();
    assert_eq!(verdict.operations, 2);
    let forked = [chain, vec![wrote(3, "c", Some("v1"), "v3")]].concat();
    assert_eq!(only(&case(&[forked], vec![], 0)).0, Wrong::Register);
}

#[test]
fn a_pile_keeps_what_matters() {
    let mut notes = tenure("a", 1, 0, 1_000);
    notes.extend([
        act(2_000, "a", 1, true, 1_990),
        act(2_010, "a", 1, false, 0),
        act(2_020, "a", 1, true, 3_000),
    ]);
    let whole = reigns(&notes);
    let mut pile = Pile::default();
    pile.take(notes);
    assert_eq!(pile.acts(), 102);
    let kept = pile.into_notes();
    assert!(kept.len() < 10, "{}", kept.len());
    let thin = reigns(&kept);
    assert_eq!((thin[0].led, thin[0].beyond, thin[0].after), (whole[0].led, whole[0].beyond, whole[0].after));
    assert!(thin[0].relapse.is_some());
}

#[test]
fn notes_survive_a_file_and_a_torn_line() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let pen = Pen::in_dir(dir.path(), "a", 1).unwrap();
    let mut tail = Tail::of(dir.path());
    pen.note(What::Joined { ttl: 5 });
    pen.note(What::Act { role: "r".into(), token: 1, leads: true, until: u64::MAX });
    assert_eq!(tail.read_on().unwrap().len(), 2);
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::File::options().append(true).open(file).unwrap().write_all(br#"{"t":7,"no"#).unwrap();
    assert_eq!(tail.read_on().unwrap(), []);
    assert_eq!(read_dir(dir.path()).unwrap().len(), 2);
}
