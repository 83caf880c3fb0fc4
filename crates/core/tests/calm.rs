//! Elections in a calm world: every operation is answered at once, nothing is lost. The faults are the simulator's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::engine::{Class, Config};
use tenure_core::io::Candidacy;
use tenure_core::record::{EndReason, RoleControl};
use tenure_core::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn candidacy() -> Candidacy {
    Candidacy { cool_down: Duration::from_secs(5), ..Candidacy::default() }
}

/// Some engines, one set of registers, one clock.
struct World {
    now: u64,
    nonce: u128,
    registers: BTreeMap<Key, (Version, Record)>,
    engines: Vec<Option<Engine>>,
    events: Vec<(usize, Event)>,
    operations: usize,
    /// The same of each node.
    by_node: Vec<usize>,
    /// Reads that shared the round trip of a write.
    shared: usize,
    /// No read is answered in time.
    reads_hang: bool,
    /// No write is.
    writes_hang: bool,
    /// Registers that reads gave.
    rows: usize,
    watched: BTreeSet<(usize, SessionId)>,
}

impl World {
    fn new(nodes: usize) -> Self {
        let engine =
            |n: usize| Engine::new(Config::new(name(&format!("node-{n}")), Timing::default(), Class::B));
        let mut world = Self {
            now: 1_000_000_000,
            nonce: 0,
            registers: BTreeMap::new(),
            engines: (0..nodes).map(|n| Some(engine(n))).collect(),
            events: Vec::new(),
            operations: 0,
            by_node: vec![0; nodes],
            shared: 0,
            reads_hang: false,
            writes_hang: false,
            rows: 0,
            watched: BTreeSet::new(),
        };
        for n in 0..nodes {
            world.feed(n, Input::Start);
        }
        world
    }

    fn feed(&mut self, node: usize, input: Input) {
        let mut inputs = vec![(node, input)];
        while !inputs.is_empty() {
            let (node, input) = inputs.remove(0);
            let now = Now { time: Time::from_nanos(self.now), wall: Timestamp::from_micros(self.now / 1000) };
            let Some(engine) = &mut self.engines[node] else { continue };
            let nonce = &mut self.nonce;
            let outputs = engine.step(now, input, &mut || {
                *nonce += 1;
                *nonce
            });
            for output in outputs {
                self.carry_out(node, output, &mut inputs);
            }
        }
    }

    fn carry_out(&mut self, node: usize, output: Output, inputs: &mut Vec<(usize, Input)>) {
        match output {
            Output::Read { op, query, with } => {
                // With a write it is one operation.
                self.operations += usize::from(with.is_none());
                self.by_node[node] += usize::from(with.is_none());
                self.shared += usize::from(with.is_some());
                if self.reads_hang {
                    return;
                }
                let wanted =
                    |key: &Key| query.keys.contains(key) || query.kinds.contains(&(key.epoch(), key.kind()));
                let found = self.registers.iter().filter(|(key, _)| wanted(key));
                let entries: Vec<Entry> =
                    found.map(|(key, (version, value))| entry(key, *version, value)).collect();
                self.rows += entries.len();
                inputs.push((node, Input::Replied { op, reply: Reply::Read(entries) }));
            }
            Output::Write { op, writes } => {
                self.operations += 1;
                self.by_node[node] += 1;
                if self.writes_hang {
                    return;
                }
                let outcomes = writes.into_iter().map(|write| self.write(node, write, inputs)).collect();
                inputs.push((node, Input::Replied { op, reply: Reply::Written(outcomes) }));
            }
            Output::AcquireLock { session, .. } => {
                let id = format!("lock of {session}");
                let lock = Some(record::LivenessLock { id, covers_work: true, connection: false });
                inputs.push((node, Input::LockAcquired { session, lock }));
            }
            Output::WatchLock { session, .. } => _ = self.watched.insert((node, session)),
            Output::Event(event) => {
                if let Event::Draining { role, token, .. } = &event {
                    inputs.push((node, Input::WorkStopped { role: role.clone(), token: *token }));
                }
                if let Event::Lost { role, token, .. } = &event {
                    inputs.push((node, Input::WorkStopped { role: role.clone(), token: *token }));
                }
                self.events.push((node, event));
            }
            _ => {}
        }
    }

    fn write(&mut self, node: usize, write: Write, inputs: &mut Vec<(usize, Input)>) -> Outcome {
        let current = self.registers.get(&write.key);
        if current.map(|(version, _)| *version) != write.expect {
            return Outcome::Conflict(current.map(|(version, value)| entry(&write.key, *version, value)));
        }
        match write.put {
            None => _ = self.registers.remove(&write.key),
            Some((version, value)) => {
                if write.notify {
                    for other in (0..self.engines.len()).filter(|other| *other != node) {
                        inputs.push((other, Input::Hinted(Hint::Changed(write.key.clone()))));
                    }
                }
                self.registers.insert(write.key, (version, value));
            }
        }
        Outcome::Applied
    }

    /// Jumps from wake to wake until then.
    fn run_for(&mut self, span: Duration) {
        let end = self.now + span.as_nanos() as u64;
        loop {
            let wake =
                |engine: &Option<Engine>| engine.as_ref().map_or(Time::NEVER, Engine::next_wake).as_nanos();
            let (node, at) = self.engines.iter().map(wake).enumerate().min_by_key(|(_, at)| *at).unwrap();
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            self.feed(node, Input::Wake);
        }
        self.now = end;
    }

    fn leaders(&self, role: &str) -> Vec<(usize, u64)> {
        let leads = |engine: &Option<Engine>| engine.as_ref()?.leads(&name(role), Time::from_nanos(self.now));
        self.engines.iter().enumerate().filter_map(|(n, engine)| Some((n, leads(engine)?.get()))).collect()
    }

    fn campaign(&mut self, node: usize, role: &str) {
        self.feed(node, Input::Campaign { role: name(role), candidacy: candidacy() });
    }

    fn campaign_all(&mut self, role: &str) {
        (0..self.engines.len()).for_each(|node| self.campaign(node, role));
    }

    fn control(&mut self, role: &str, control: Option<RoleControl>) {
        let epoch = self.registers.keys().map(Key::epoch).max().unwrap();
        let key = Key::Named(epoch, Kind::RoleControl, name(role));
        self.nonce += 1;
        match control {
            Some(control) => {
                _ = self.registers.insert(key, (Version::new(self.nonce), Record::RoleControl(control)))
            }
            None => _ = self.registers.remove(&key),
        }
    }
}

fn entry(key: &Key, version: Version, value: &Record) -> Entry {
    Entry { key: key.clone(), version, value: value.clone() }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_cold_start_elects_one_at_once() {
    let mut world = World::new(3);
    world.campaign_all("scheduler");
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.leaders("scheduler").len(), 1);
    world.run_for(60 * SECOND);
    assert_eq!(world.leaders("scheduler").len(), 1);
    let elections = world.events.iter().filter(|(_, event)| matches!(event, Event::Elected { .. })).count();
    assert_eq!(elections, 1);
}

#[test]
fn a_crashed_leader_is_replaced_within_the_bound() {
    let mut world = World::new(3);
    world.campaign_all("scheduler");
    world.run_for(7 * SECOND);
    let (leader, token) = world.leaders("scheduler")[0];
    world.engines[leader] = None;
    let bound = Timing::default().bounds().crash;
    world.run_for(bound);
    let (next, next_token) = world.leaders("scheduler")[0];
    assert!(next != leader && next_token == token + 1);
}

#[test]
fn a_clean_stop_hands_over_at_once() {
    let mut world = World::new(2);
    world.campaign_all("scheduler");
    world.run_for(5 * SECOND);
    let (leader, _) = world.leaders("scheduler")[0];
    world.feed(leader, Input::Stop);
    assert!(world.engines[leader].as_ref().unwrap().is_stopped());
    world.run_for(Duration::from_millis(60));
    assert_eq!(world.leaders("scheduler")[0].0, 1 - leader);
}

#[test]
fn a_resignation_hands_over_and_the_former_leader_stands_last() {
    let mut world = World::new(3);
    world.campaign_all("scheduler");
    world.run_for(5 * SECOND);
    let (leader, token) = world.leaders("scheduler")[0];
    world.feed(
        leader,
        Input::Resign { role: name("scheduler"), token: Token::new(token), reason: EndReason::Resigned },
    );
    world.run_for(Duration::from_millis(60));
    assert_ne!(world.leaders("scheduler")[0].0, leader);
    assert_eq!(world.leaders("scheduler")[0].1, token + 1);
}

/// The successor claims on top of the resignation that it foresees, and reads what operators ask, in one operation.
#[test]
fn a_hand_over_is_one_operation_of_the_successor() {
    let mut world = World::new(2);
    world.campaign_all("scheduler");
    world.run_for(5 * SECOND);
    let (leader, token) = world.leaders("scheduler")[0];
    (world.by_node, world.shared) = (vec![0; 2], 0);
    let (role, reason) = (name("scheduler"), EndReason::Resigned);
    world.feed(leader, Input::Resign { role, token: Token::new(token), reason });
    assert_eq!(world.leaders("scheduler"), [(1 - leader, token + 1)]);
    assert_eq!((world.by_node[1 - leader], world.shared), (1, 1));
}

/// While all roles are claimed there are many hints; each would otherwise cost as many rows as there are leaders.
#[test]
fn among_many_nodes_a_hint_is_followed_without_reading_every_leader() {
    let mut world = World::new(20);
    (0..20).for_each(|node| world.campaign(node, &format!("role-{node}")));
    world.run_for(5 * SECOND);
    (1..20).for_each(|node| world.campaign(0, &format!("role-{node}")));
    world.run_for(5 * SECOND);
    let roles = world.registers.keys().filter(|key| key.kind() == Kind::Role);
    let roles: Vec<Key> = roles.cloned().collect();
    assert_eq!(roles.len(), 20);
    for role in roles {
        world.rows = 0;
        world.feed(0, Input::Hinted(Hint::Changed(role)));
        assert!(world.rows <= 3, "{} rows", world.rows);
    }
    world.rows = 0;
    world.run_for(2 * SECOND);
    assert!(world.rows >= 19, "every beat reads them: {} rows", world.rows);
}

/// When a role changes hands one standby has to be quick: the one that claims it next.
#[test]
fn only_who_comes_next_follows_hints_about_a_role_at_once() {
    let mut world = World::new(3);
    world.campaign_all("scheduler");
    world.run_for(5 * SECOND);
    let role = world.registers.keys().find(|key| key.kind() == Kind::Role).unwrap().clone();
    let in_a_hurry = |world: &World| -> Vec<usize> {
        (0..3).filter(|node| !world.engines[*node].as_ref().unwrap().may_wait(&role)).collect()
    };
    let (leader, token) = world.leaders("scheduler")[0];
    let next = in_a_hurry(&world);
    assert!(next.len() == 1 && next[0] != leader, "{next:?} with {leader} as the leader");
    let reason = EndReason::Resigned;
    world.feed(leader, Input::Resign { role: name("scheduler"), token: Token::new(token), reason });
    assert_eq!(world.leaders("scheduler"), [(next[0], token + 1)]);
    // Nothing is to be missed of a role of which nothing is known.
    let other = Key::Named(role.epoch(), Kind::Role, name("other"));
    world.reads_hang = true;
    world.campaign(leader, "other");
    assert!(!world.engines[leader].as_ref().unwrap().may_wait(&other));
}

/// A hint that was true costs nothing of what hints may cost.
#[test]
fn many_roles_given_up_one_after_the_other_are_all_handed_over_at_once() {
    let mut world = World::new(2);
    let roles: Vec<String> = (0..30).map(|nth| format!("role-{nth}")).collect();
    roles.iter().for_each(|role| world.campaign(0, role));
    world.run_for(5 * SECOND);
    roles.iter().for_each(|role| world.campaign(1, role));
    world.run_for(5 * SECOND);
    for role in &roles {
        let (leader, token) = world.leaders(role)[0];
        assert_eq!(leader, 0);
        let (token, reason) = (Token::new(token), EndReason::Resigned);
        world.feed(0, Input::Resign { role: name(role), token, reason });
        assert_eq!(world.leaders(role), [(1, token.get() + 1)], "{role}");
    }
}

#[test]
fn a_paused_role_has_no_leader_until_it_is_resumed() {
    let mut world = World::new(2);
    world.campaign_all("scheduler");
    world.run_for(3 * SECOND);
    let order = record::Order { by: "me".into(), why: "test".into(), at: Timestamp::from_micros(0) };
    world.control("scheduler", Some(RoleControl { pause: Some(order), ..RoleControl::default() }));
    world.run_for(3 * SECOND);
    assert_eq!(world.leaders("scheduler"), []);
    world.control("scheduler", None);
    world.run_for(3 * SECOND);
    assert_eq!(world.leaders("scheduler").len(), 1);
}

#[test]
fn a_transfer_reaches_its_target_and_fells_no_other_leader() {
    let mut world = World::new(3);
    world.campaign_all("scheduler");
    world.run_for(7 * SECOND);
    let (leader, token) = world.leaders("scheduler")[0];
    let target = (leader + 1) % 3;
    let request = record::Request {
        id: SessionId::new(99),
        token: Token::new(token),
        to: Some(name(&format!("node-{target}"))),
        preemption: false,
        patience: 10 * SECOND,
        order: record::Order { by: "me".into(), why: String::new(), at: Timestamp::from_micros(0) },
        answer: record::Answer::Open,
    };
    world.control("scheduler", Some(RoleControl { request: Some(request), ..RoleControl::default() }));
    world.run_for(3 * SECOND);
    assert_eq!(world.leaders("scheduler"), [(target, token + 1)]);
    world.run_for(30 * SECOND);
    assert_eq!(world.leaders("scheduler"), [(target, token + 1)]);
    let requested = |world: &World| world.registers.keys().any(|key| key.kind() == Kind::RoleControl);
    assert!(requested(&world), "it stands for as long as its target leads: priority does not undo it");
    world.engines[target] = None;
    world.run_for(Timing::default().bounds().crash + 10 * SECOND);
    assert_eq!(world.leaders("scheduler").len(), 1);
    assert!(!requested(&world), "the next leader clears the request away");
}

#[test]
fn a_second_process_of_the_same_name_never_leads_while_the_first_lives() {
    let mut world = World::new(1);
    world.campaign_all("scheduler");
    world.run_for(2 * SECOND);
    let twin = Config::new(name("node-0"), Timing::default(), Class::B);
    world.engines.push(Some(Engine::new(twin)));
    world.by_node.push(0);
    world.feed(1, Input::Start);
    world.campaign(1, "scheduler");
    world.run_for(20 * SECOND);
    assert_eq!(world.leaders("scheduler").len(), 1);
    assert!(world.events.iter().any(|(n, event)| *n == 1 && matches!(event, Event::NameTaken { .. })));
    world.engines[0] = None;
    world.run_for(Timing::default().bounds().crash);
    assert_eq!(world.leaders("scheduler"), [(1, 2)]);
}

#[test]
fn steady_state_costs_do_not_grow_with_the_number_of_roles() {
    let cost = |roles: usize| {
        let mut world = World::new(2);
        for n in 0..roles {
            world.campaign_all(&format!("role-{n}"));
        }
        world.run_for(10 * SECOND);
        world.operations = 0;
        world.run_for(60 * SECOND);
        world.operations
    };
    let (one, many) = (cost(1), cost(1000));
    // One for each beat of the leader, and one for each look of its standby: now and then it looks once more.
    assert!((96..=48 + 53).contains(&one), "{one} operations a minute");
    // Of many roles each leads some, and watches the other.
    assert!(many <= 2 * 60, "{many} operations a minute");
}

/// As it is said: a leader, the standby that watches it, and one that rests; whatever the number of roles.
#[test]
fn three_nodes_cost_little_at_rest() {
    for roles in [1, 100] {
        let mut world = World::new(3);
        (0..roles).for_each(|n| world.campaign(0, &format!("role-{n}")));
        world.run_for(SECOND);
        for node in [1, 2] {
            (0..roles).for_each(|n| world.campaign(node, &format!("role-{n}")));
        }
        world.run_for(30 * SECOND);
        (world.by_node, world.operations) = (vec![0; 3], 0);
        world.run_for(60 * SECOND);
        let mut standbys = [world.by_node[1], world.by_node[2]];
        standbys.sort_unstable();
        assert!((47..=49).contains(&world.by_node[0]), "{:?}", world.by_node);
        assert!((24..=25).contains(&standbys[0]), "exactly one follows: {standbys:?}");
        assert!((48..=53).contains(&standbys[1]), "{standbys:?}");
        assert!(world.operations <= 130, "{} operations a minute", world.operations);
        assert_eq!(world.leaders("role-0").len(), 1);
    }
}

/// The standby that follows sees each beat soon after it was sent, and so takes over when the lease has run out, and hardly later.
#[test]
fn a_crashed_leader_is_replaced_hardly_later_than_its_lease_ran_out() {
    let timing = Timing::default();
    for nth in 0..25 {
        let mut world = World::new(3);
        world.campaign(0, "scheduler");
        world.run_for(SECOND);
        (1..3).for_each(|node| world.campaign(node, "scheduler"));
        world.run_for(12 * SECOND + nth * timing.beat / 25);
        let session = world.engines[0].as_ref().unwrap().session().unwrap().1;
        world.engines[0] = None;
        // Its last beat was sent when the rest of its lease began.
        let left = session.since(Time::from_nanos(world.now)) + timing.ttl / 50;
        world.run_for(left + Duration::from_millis(100));
        assert_eq!(world.leaders("scheduler").len(), 1, "{nth}");
    }
}

/// A standby that rests takes over when the leader and the standby that watches it die together.
#[test]
fn a_standby_that_rested_takes_over_from_two_that_die_together() {
    for first in [1, 2] {
        let mut world = World::new(3);
        world.campaign(0, "scheduler");
        world.run_for(SECOND);
        (1..3).for_each(|node| world.campaign(node, "scheduler"));
        world.run_for(23 * SECOND);
        (world.engines[0], world.engines[first]) = (None, None);
        world.run_for(Timing::default().bounds().crash_of_two);
        assert_eq!(world.leaders("scheduler"), [(3 - first, 2)]);
    }
}

/// When the standby that watches dies alone, another one does from then on.
#[test]
fn a_standby_wakes_when_the_one_that_watched_is_gone() {
    for gone in [1, 2] {
        let mut world = World::new(3);
        world.campaign(0, "scheduler");
        world.run_for(SECOND);
        (1..3).for_each(|node| world.campaign(node, "scheduler"));
        world.run_for(23 * SECOND);
        world.engines[gone] = None;
        world.run_for(Timing::default().bounds().crash_of_two + 5 * SECOND);
        world.by_node = vec![0; 3];
        world.run_for(60 * SECOND);
        assert!((48..=53).contains(&world.by_node[3 - gone]), "{:?}", world.by_node);
    }
}

/// Of a hundred nodes that stand for one role the leader and its first standby beat, and all others rest.
#[test]
fn among_many_nodes_one_standby_watches_and_the_others_rest() {
    let mut world = World::new(100);
    world.campaign_all("scheduler");
    world.run_for(60 * SECOND);
    let (leader, _) = world.leaders("scheduler")[0];
    (world.by_node, world.operations, world.rows) = (vec![0; 100], 0, 0);
    world.run_for(60 * SECOND);
    let awake = |world: &World| (0..100).filter(|n| world.by_node[*n] > 40).collect::<Vec<usize>>();
    let first = awake(&world);
    assert!(first.len() == 2 && first.contains(&leader), "{first:?}: {:?}", world.by_node);
    assert!(world.operations <= 2 * 53 + 98 * 25, "{} operations a minute", world.operations);
    // The lists of all sessions are most of it.
    assert!(world.rows <= 100 * 5 * 102 + world.operations * 8, "{} rows a minute", world.rows);
    // The leader and the standby that watches it die together.
    let session = world.engines[leader].as_ref().unwrap().session().unwrap().1;
    first.iter().for_each(|n| world.engines[*n] = None);
    world.run_for(session.since(Time::from_nanos(world.now)) + Timing::default().bounds().crash_of_two);
    assert_eq!(world.leaders("scheduler").len(), 1);
    world.run_for(60 * SECOND);
    world.by_node = vec![0; 100];
    world.run_for(60 * SECOND);
    assert_eq!(awake(&world).len(), 2, "the next two: {:?}", world.by_node);
}

/// What holds up a read must not hold up the beats as well, nor the other way round.
#[test]
fn after_a_failure_beat_and_poll_go_alone_until_a_beat_is_acknowledged() {
    let mut world = World::new(1);
    world.campaign(0, "scheduler");
    let timing = Timing::default();
    world.run_for(5 * timing.beat);
    assert!(world.shared >= 4, "{}", world.shared);
    (world.writes_hang, world.shared) = (true, 0);
    world.run_for(timing.beat + timing.op_timeout);
    assert_eq!(world.shared, 1, "the first that was not answered");
    world.run_for(timing.op_timeout);
    assert_eq!(world.shared, 1, "the beat that was sent at once, alone");
    world.writes_hang = false;
    world.run_for(2 * timing.op_timeout);
    assert_eq!(world.leaders("scheduler").len(), 1, "it came in time");
    (world.reads_hang, world.shared) = (true, 0);
    world.run_for(20 * timing.beat);
    assert_eq!(world.shared, 1, "the first that was not answered");
    assert_eq!(world.leaders("scheduler").len(), 1, "it beats all the same");
    (world.reads_hang, world.shared) = (false, 0);
    world.run_for(5 * timing.beat);
    assert!(world.shared >= 4, "{}", world.shared);
}

/// A role that no node stands for any more names its last leader's session for ever: that is found out once, and not by
/// reading all roles again and again.
#[test]
fn a_role_without_candidates_costs_nothing() {
    let mut world = World::new(3);
    for n in 0..1000 {
        (0..2).for_each(|node| world.campaign(node, &format!("role-{n}")));
    }
    world.campaign(2, "retired");
    world.run_for(10 * SECOND);
    assert_eq!(world.leaders("retired"), [(2, 1)]);
    world.engines[2] = None;
    world.run_for(20 * Timing::default().ttl);
    (world.rows, world.operations) = (0, 0);
    world.run_for(60 * SECOND);
    // Each leads some roles, and watches the other.
    assert!(world.operations <= 2 * 60, "{} operations a minute", world.operations);
    assert!(world.rows < 1000, "{} rows in a minute", world.rows);
}

#[test]
fn a_thousand_roles_of_a_dead_node_are_led_again() {
    let mut world = World::new(3);
    for n in 0..1000 {
        world.campaign_all(&format!("role-{n}"));
    }
    world.run_for(10 * SECOND);
    let led = |world: &World, node: usize| {
        (0..1000).filter(|n| world.leaders(&format!("role-{n}")).iter().any(|(l, _)| *l == node)).count()
    };
    let busiest = (0..3).max_by_key(|node| led(&world, *node)).unwrap();
    world.engines[busiest] = None;
    world.run_for(Timing::default().bounds().crash);
    let others: usize = (0..3).filter(|n| *n != busiest).map(|n| led(&world, n)).sum();
    assert_eq!(others, 1000);
}

/// Watching a liveness lock costs a thread or a question to a server: fifty nodes must not each wait for every other.
#[test]
fn among_many_nodes_the_leaders_lock_is_watched_and_few_others() {
    let mut world = World::new(50);
    world.campaign_all("scheduler");
    world.run_for(10 * SECOND);
    let (leader, _) = world.leaders("scheduler")[0];
    let register = world.registers.values().find_map(|(_, record)| match record {
        Record::Role(role) => role.holder.as_ref().map(|holder| holder.session),
        _ => None,
    });
    let unaware = |n: &usize| *n != leader && !world.watched.contains(&(*n, register.unwrap()));
    assert_eq!((0..50).filter(unaware).collect::<Vec<_>>(), [0_usize; 0], "every node waits for the leader");
    assert!(world.watched.len() <= 50 * 18, "{} of 50 × 49", world.watched.len());
}

/// Among many nodes most notifications are about roles of others: they may be dropped without a step.
#[test]
fn a_hint_that_is_not_heeded_changes_nothing() {
    let mut world = World::new(2);
    world.campaign(0, "scheduler");
    world.campaign(1, "reports");
    world.run_for(10 * SECOND);
    let epoch = world.registers.keys().map(Key::epoch).max().unwrap();
    let engine = world.engines[0].as_mut().unwrap();
    let now = Now { time: Time::from_nanos(world.now), wall: Timestamp::from_micros(world.now / 1000) };
    let mut nonce = || 0;
    engine.step(now, Input::Wake, &mut nonce);
    for (role, heeded) in [("scheduler", true), ("reports", false)] {
        let key = Key::Named(epoch, Kind::Role, name(role));
        let mut hinted = engine.clone();
        let outputs = hinted.step(now, Input::Hinted(Hint::Changed(key.clone())), &mut nonce);
        assert_eq!(engine.heeds(&key), heeded, "{role}");
        assert_eq!(outputs.is_empty() && hinted == *engine, !heeded, "{role}: {outputs:?}");
    }
}
