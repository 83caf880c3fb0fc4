//! Partitions of a group whose members are processes, with a proxy on each way between two of them: never two leaders,
//! a minority stops in time, and one leads after healing. The judge of the torture decides, on what every process wrote
//! down on one clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::peers_kit::EVENTUALLY;
use crate::peers_kit::processes::{Processes, be_a_member};
use tenure_torture::judge::{self, JudgeCase, JudgeTerms, Note, NoteKind, NoteReader};

const TTL: Duration = Duration::from_secs(2);

/// Not a test of its own: what the copies of this program do.
#[test]
fn member_process() {
    be_a_member();
}

const MEMBER: &[&str] = &["--exact", "peers_partitions::member_process", "--nocapture"];

/// A node on each member, all standing for one role.
struct Election {
    group: Processes,
    tail: NoteReader,
    notes: Vec<Note>,
    /// Under which token each node works.
    working: BTreeMap<usize, u64>,
}

impl Election {
    fn of(count: usize) -> Self {
        let mut group = Processes::linked(count).standing(TTL);
        let tail = NoteReader::of(&group.notes());
        group.start_all(MEMBER);
        Self { group, tail, notes: Vec::new(), working: BTreeMap::new() }
    }

    fn split(&self, parts: &[&[usize]]) {
        self.group.links().split(parts);
    }

    fn connect(&self, passes: impl Fn(usize, usize) -> bool) {
        self.group.links().connect(passes);
    }

    fn heal(&self) {
        self.group.links().heal();
    }

    /// Takes in what was written down since.
    fn read_on(&mut self) {
        for note in self.tail.read_on().unwrap() {
            if let NoteKind::Work { token, on, .. } = &note.what {
                let nth = note.node[1..].parse().unwrap();
                if *on {
                    self.working.insert(nth, *token);
                } else if self.working.get(&nth) == Some(token) {
                    self.working.remove(&nth);
                }
            }
            self.notes.push(note);
        }
    }

    /// Kills a member, and whatever it led.
    fn kill(&mut self, nth: usize) {
        self.group.kill(nth);
        self.read_on();
        self.working.remove(&nth);
    }

    /// Waits until one of these works.
    fn one_of(&mut self, those: &[usize]) -> usize {
        let started = Instant::now();
        loop {
            self.read_on();
            if let Some((nth, _)) = self.working.iter().find(|(nth, _)| those.contains(nth)) {
                return *nth;
            }
            assert!(started.elapsed() < EVENTUALLY, "none of {those:?} works, but {:?}", self.working);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until no node of these works.
    fn none_of(&mut self, those: &[usize]) {
        let started = Instant::now();
        while {
            self.read_on();
            self.working.keys().any(|nth| those.contains(nth))
        } {
            assert!(started.elapsed() < EVENTUALLY, "of {those:?} {:?} still works", self.working);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Heals, and tells how long it took until a node led. How long it may take is a figure, not a test.
    fn recover(&mut self) -> usize {
        self.heal();
        let started = Instant::now();
        let all: Vec<usize> = (0..self.group.addresses.len()).collect();
        let nth = self.one_of(&all);
        println!("a node leads {:?} after healing", started.elapsed());
        nth
    }

    /// No node led beside another, worked beyond its deadline, or used a token twice; role registers never went back.
    fn end(mut self) {
        self.group.power_loss();
        self.read_on();
        let patient = Duration::from_secs(30);
        let terms = JudgeTerms {
            bound: patient,
            bound_of_two: patient,
            allowance: patient,
            lease: patient,
            recovery: patient,
            reconnect: patient,
            wind_down: patient,
            expected: (0, 0),
            roles: Vec::new(),
            tokens_rise: false,
        };
        self.notes.sort_by_key(|note| note.t);
        let verdict = judge::judge(&JudgeCase { notes: self.notes, injected: Vec::new(), terms });
        verdict.assert_sound();
        assert!(verdict.acts > 0 && verdict.operations > 0, "nothing was judged");
    }
}

#[test]
fn two_against_one_and_each_for_itself() {
    let mut election = Election::of(3);
    let first = election.one_of(&[0, 1, 2]);
    let others: Vec<usize> = (0..3).filter(|nth| *nth != first).collect();
    // The leader alone: it stops, and one of the others works.
    election.split(&[&[first], &others]);
    election.none_of(&[first]);
    election.one_of(&others);
    // Every node alone: no node works.
    election.split(&[&[0], &[1], &[2]]);
    election.none_of(&[0, 1, 2]);
    let third = election.recover();
    // A follower alone: a node that has a majority leads.
    let follower = (third + 1) % 3;
    let rest = [third, (third + 2) % 3];
    election.split(&[&rest, &[follower]]);
    election.none_of(&[follower]);
    election.one_of(&rest);
    election.recover();
    election.end();
}

#[test]
fn bridges_one_way_streets_and_flapping() {
    let mut election = Election::of(3);
    let first = election.one_of(&[0, 1, 2]);
    let [a, b] = [(first + 1) % 3, (first + 2) % 3];
    // A bridge: `b` hears both sides, the others do not hear each other. There is a majority either way.
    election.connect(|from, to| from == b || to == b);
    std::thread::sleep(TTL);
    election.one_of(&[0, 1, 2]);
    // The leader is heard by no node, but hears every node.
    election.connect(|from, _| from != first);
    election.none_of(&[first]);
    election.one_of(&[a, b]);
    // It hears no node, but every node hears it.
    election.connect(|_, to| to != first);
    election.none_of(&[first]);
    election.one_of(&[a, b]);
    for _ in 0..10 {
        election.split(&[&[first], &[a, b]]);
        std::thread::sleep(TTL / 20);
        election.heal();
        std::thread::sleep(TTL / 20);
    }
    election.recover();
    election.end();
}

#[test]
fn two_against_three() {
    let mut election = Election::of(5);
    let first = election.one_of(&[0, 1, 2, 3, 4]);
    let second = (first + 1) % 5;
    let rest: Vec<usize> = (0..5).filter(|nth| *nth != first && *nth != second).collect();
    election.split(&[&[first, second], &rest]);
    election.none_of(&[first, second]);
    election.one_of(&rest);
    election.recover();
    election.end();
}

#[test]
fn two_against_two() {
    let mut election = Election::of(4);
    election.one_of(&[0, 1, 2, 3]);
    election.split(&[&[0, 1], &[2, 3]]);
    election.none_of(&[0, 1, 2, 3]);
    let before = election.notes.len();
    std::thread::sleep(2 * TTL);
    election.read_on();
    let began = |note: &Note| matches!(note.what, NoteKind::Work { on: true, .. });
    assert!(!election.notes[before..].iter().any(began), "half is no majority");
    election.recover();
    election.end();
}

/// No partition, but the same judge: the leader is killed, and it may have led the Raft group too.
#[test]
fn killed_leaders_are_replaced_whatever_else_they_were() {
    let mut election = Election::of(3);
    let all = [0, 1, 2];
    for _ in 0..4 {
        let leader = election.one_of(&all);
        election.kill(leader);
        election.one_of(&all);
        election.group.start(leader, MEMBER);
    }
    election.end();
}
