//! Elections through the library, on the in-process store: what a user of the crate sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tenure::clock::{Clock, LeaseClock, SuspendTimer};
use tenure::event::EventKind;
use tenure::operator::OperatorAction;
use tenure::testing::{Memory, force_loss, node_on};
use tenure::{EndReason, Name, Operator, State, Time, Timestamp, WorkOutcome};
use tokio::sync::watch;

const TTL: Duration = Duration::from_millis(500);
/// So long that a busy machine misses no beat by itself, where a test says that a leader goes on leading.
const STEADY: Duration = Duration::from_secs(3);
/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

fn operator(store: &Memory) -> Operator {
    Operator::new(Arc::new(store.clone()), Name::new("default").unwrap(), "tester")
}

#[tokio::test]
async fn one_of_three_leads_and_the_next_takes_over_when_it_stops() {
    let store = Memory::new();
    let mut nodes = Vec::new();
    for n in 1..=3 {
        nodes.push(node_on(&store).name(format!("node-{n}")).ttl(TTL).start().await.unwrap());
    }
    let mut candidates = Vec::new();
    for node in &nodes {
        candidates.push(node.candidate("scheduler").await.unwrap());
    }
    let mut last = tenure::Token::new(0);
    for _ in 0..3 {
        let elections: Vec<_> = candidates.iter().map(|candidate| Box::pin(candidate.elected())).collect();
        let (tenure, index, _) = soon(futures_util::future::select_all(elections)).await;
        let tenure = tenure.expect("a node is elected");
        assert!(tenure.check() && tenure.token() > last);
        assert_eq!(candidates.iter().filter(|candidate| candidate.lead().is_some()).count(), 1);
        last = tenure.token();
        drop(tenure);
        candidates.remove(index);
        soon(nodes.remove(index).stop()).await;
    }
}

#[tokio::test]
async fn work_is_dropped_when_the_tenure_is_lost_and_it_stands_again() {
    let node = node_on(&Memory::new()).name("a").ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let first = tenure.token();
    let held = soon(tenure.hold(|lead| {
        assert!(lead.check());
        force_loss(&node);
        std::future::pending::<()>()
    }))
    .await;
    assert_eq!(held, WorkOutcome::Lost(EndReason::ClockFault));
    let again = soon(candidate.elected()).await.unwrap();
    assert!(again.token() > first);
}

/// Request handlers keep clones: they must not believe in a tenure that was given up, although the session lives on.
#[tokio::test]
async fn proof_of_leadership_ends_with_the_guard_while_the_session_lives_on() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(TTL).start().await.unwrap();
    let other = node_on(&store).name("b").ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let proof = tenure.lead();
    let successor = other.candidate("scheduler").await.unwrap();
    candidate.set_eligible(false);
    drop(tenure);
    let next = soon(successor.elected()).await.unwrap();
    assert!(next.check() && !proof.check(), "two at once");
    assert_eq!(soon(proof.lost()).await, EndReason::Ineligible);
}

#[tokio::test]
async fn work_that_asks_to_be_told_winds_down_before_the_role_is_given_up() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(TTL).start().await.unwrap();
    let other = node_on(&store).name("b").ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let successor = other.candidate("scheduler").await.unwrap();
    let wound_down = AtomicUsize::new(0);
    let asking = operator(&store);
    let role = Name::new("scheduler").unwrap();
    let (held, stepped) = soon(async {
        tokio::join!(
            tenure.hold(|lead| async move {
                lead.draining().await;
                assert!(lead.check(), "still covered while winding down");
                7
            }),
            asking.step_down(&role, "a test", PATIENCE)
        )
    })
    .await;
    wound_down.fetch_add(1, Ordering::SeqCst);
    assert_eq!(held, WorkOutcome::Completed(7));
    assert_eq!(stepped.unwrap().node.as_str(), "b");
    assert!(soon(successor.elected()).await.unwrap().check());
}

#[tokio::test]
async fn a_transfer_waits_for_its_target_and_refuses_a_stranger() {
    let store = Memory::new();
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let node = node_on(&store).name(name).ttl(TTL).start().await.unwrap();
        nodes.push((node.candidate("scheduler").await.unwrap(), node));
    }
    let asking = operator(&store);
    let role = Name::new("scheduler").unwrap();
    for target in ["a", "b", "c", "a"] {
        let target = Name::new(target).unwrap();
        let leader = loop {
            // The first look may come before the nodes have seen each other beat; and on a slow machine the target may take
            // longer than it is left, which is told as being outrun: the operator asks again.
            match soon(asking.transfer(&role, &target, "a test", PATIENCE, PATIENCE)).await {
                Ok(leader) => break leader,
                Err(
                    tenure::Error::NoSuchRole { .. }
                    | tenure::Error::NoLeader(_)
                    | tenure::Error::NoTarget { .. }
                    | tenure::Error::OtherLeader { .. },
                ) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(leader.node, target);
    }
    let stranger = Name::new("z").unwrap();
    let refused = asking.transfer(&role, &stranger, "", PATIENCE, PATIENCE).await.unwrap_err().to_string();
    assert!(refused.contains("no node of that name"), "{refused}");
}

#[tokio::test]
async fn a_paused_role_is_led_by_no_node_until_it_is_resumed() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let asking = operator(&store);
    let role = Name::new("scheduler").unwrap();
    let (held, paused) = soon(async {
        tokio::join!(tenure.hold(|_| std::future::pending::<()>()), asking.pause(&role, "", PATIENCE))
    })
    .await;
    assert_eq!((held, paused.unwrap()), (WorkOutcome::Lost(EndReason::Paused), None));
    soon(async {
        while candidate.state() != State::Paused {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(asking.resume(&role, "done").await.unwrap());
    assert!(soon(candidate.elected()).await.unwrap().check());
}

#[tokio::test]
async fn a_second_process_of_one_name_waits_and_says_so() {
    let store = Memory::new();
    let first = node_on(&store).name("a").ttl(TTL).start().await.unwrap();
    let leading = first.candidate("scheduler").await.unwrap();
    let _tenure = soon(leading.elected()).await.unwrap();
    // It is told as soon as the node looks, which may be before the test could ask for its events.
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let hear = move |event: &tenure::Event| _ = heard.send(event.kind.clone());
    let second = node_on(&store).name("a").ttl(TTL).listen(hear).start().await.unwrap();
    let waiting = second.candidate("other-role").await.unwrap();
    soon(async { while !matches!(told.recv().await.unwrap(), EventKind::NameTaken { .. }) {} }).await;
    assert!(waiting.elected_within(2 * TTL).await.is_none());
    drop(_tenure);
    soon(first.stop()).await;
    assert!(soon(waiting.elected()).await.is_some());
}

#[tokio::test]
async fn observers_learn_who_leads_and_where() {
    let store = Memory::new();
    let watching = node_on(&store).name("watcher").ttl(TTL).start().await.unwrap();
    let observer = watching.observer("scheduler").await.unwrap();
    let mut leaders = observer.leaders();
    assert_eq!(soon(leaders.next()).await.unwrap(), None);
    let node = node_on(&store).name("a").address("http://10.0.0.1:80").ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let found = soon(async {
        loop {
            if let Some(leader) = leaders.next().await.unwrap()
                && leader.address.is_some()
            {
                return leader;
            }
        }
    })
    .await;
    assert_eq!((found.node.as_str(), found.token), ("a", tenure.token()));
    assert_eq!(found.address.as_deref(), Some("http://10.0.0.1:80"));
}

#[tokio::test]
async fn a_slow_or_panicking_listener_does_no_harm() {
    let heard = Arc::new(AtomicUsize::new(0));
    let counter = heard.clone();
    let node = node_on(&Memory::new())
        .name("a")
        .ttl(STEADY)
        .listen(|_| panic!("a listener that panics"))
        .listen(|_| std::thread::sleep(5 * STEADY))
        .listen(move |_| _ = counter.fetch_add(1, Ordering::SeqCst))
        .start()
        .await
        .unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    tokio::time::sleep(2 * STEADY).await;
    assert!(tenure.check(), "two leases later it still leads");
    assert!(heard.load(Ordering::SeqCst) >= 3);
}

#[tokio::test]
async fn blocking_work_does_not_delay_the_beats() {
    let node = node_on(&Memory::new()).name("a").ttl(STEADY).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    // The only thread of this runtime is blocked; the loop has its own.
    std::thread::sleep(2 * STEADY);
    assert!(tenure.check());
}

#[tokio::test]
async fn a_store_that_fails_makes_the_leader_stop_in_time_and_it_recovers() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(STEADY).start().await.unwrap();
    let mut events = node.events();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let lead = tenure.lead();
    store.fail(Some(tenure::store::Fate::Unknown));
    let held = soon(tenure.hold(|_| std::future::pending::<()>())).await;
    assert_eq!(held, WorkOutcome::Lost(EndReason::LeaseExpired));
    store.fail(None);
    assert!(!lead.check() || lead.remaining() > Duration::ZERO);
    let again = soon(candidate.elected()).await.unwrap();
    assert!(again.token() > lead.token() && !lead.check());
    let mut seen = Vec::new();
    while let Some(Some(event)) = futures_util::FutureExt::now_or_never(events.next()) {
        seen.push(event);
    }
    assert!(seen.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1), "numbered without gaps");
    let position = |wanted: fn(&EventKind) -> bool| seen.iter().position(|event| wanted(&event.kind));
    let order = [
        position(|what| matches!(what, EventKind::Elected { .. })),
        position(|what| matches!(what, EventKind::StoreFailed { .. })),
        position(|what| matches!(what, EventKind::InDoubt { .. })),
        position(|what| matches!(what, EventKind::Draining { forced: true, .. })),
        position(|what| matches!(what, EventKind::Lost { .. })),
    ];
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
}

/// Its session runs out by itself; waiting for the store's word would keep a thread for ever.
#[tokio::test]
async fn a_dropped_node_ends_although_its_store_is_gone() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(TTL).start().await.unwrap();
    let events = node.events();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    store.fail(Some(tenure::store::Fate::NotApplied));
    drop((tenure, candidate, node));
    soon(events.for_each(|_| async {})).await;
}

#[tokio::test]
async fn node_lead_campaigns_again_until_the_node_is_stopped() {
    let node = node_on(&Memory::new()).name("a").ttl(TTL).start().await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let (counter, stopping) = (runs.clone(), node.clone());
    let led = soon(node.lead("scheduler", move |lead: tenure::Lead| {
        let (counter, stopping) = (counter.clone(), stopping.clone());
        async move {
            assert!(lead.check());
            if counter.fetch_add(1, Ordering::SeqCst) == 2 {
                tokio::spawn(async move { stopping.stop().await });
                std::future::pending::<()>().await;
            }
        }
    }))
    .await;
    led.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

/// What the closure uses it borrows, tenure after tenure; its error is told, after the loss, and recorded.
#[tokio::test]
async fn work_that_returns_an_error_is_told_and_recorded() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(TTL).start().await.unwrap();
    let events = node.events();
    let (mut runs, stopping) = (Vec::new(), node.clone());
    let led = soon(node.lead("scheduler", async |lead| {
        runs.push(lead.token());
        match runs.len() {
            1 => Err::<(), _>("the disk is full"),
            _ => {
                let stopping = stopping.clone();
                tokio::spawn(async move { stopping.stop().await });
                lead.draining().await;
                // Told to stop, it was not at fault.
                Err("interrupted")
            }
        }
    }))
    .await;
    led.unwrap();
    assert_eq!(runs.len(), 2);
    drop((node, stopping));
    let told: Vec<String> = soon(events.collect::<Vec<_>>())
        .await
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::Lost { reason, .. } => Some(reason.to_string()),
            EventKind::WorkFailed { why, .. } => Some(why),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["work-failed", "the disk is full", "shutdown"]);
    let history = operator(&store).history(None).await.unwrap();
    let tenures = &history[&Name::new("scheduler").unwrap()].tenures;
    let reasons: Vec<_> = tenures.iter().map(|past| past.reason).collect();
    assert_eq!(reasons, [Some(EndReason::WorkFailed), Some(EndReason::Shutdown)]);
}

/// A deployment sends SIGTERM: the role is given up at once, and `lead` returns.
#[tokio::test]
async fn a_signal_stops_the_node_and_hands_its_roles_over() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(Duration::from_secs(60)).start().await.unwrap();
    node.stop_on_signal().unwrap();
    let leading = tokio::spawn({
        let node = node.clone();
        async move { node.lead("scheduler", async |lead: tenure::Lead| lead.cancelled().await).await }
    });
    let observer = node.observer("scheduler").await.unwrap();
    let mut leaders = observer.leaders();
    while soon(leaders.next()).await.flatten().is_none() {}
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    soon(leading).await.unwrap().unwrap();
    let history = operator(&store).history(None).await.unwrap();
    let tenures = &history[&Name::new("scheduler").unwrap()].tenures;
    assert_eq!(tenures[0].reason, Some(EndReason::Shutdown));
}

#[tokio::test]
async fn a_history_is_kept_with_reasons() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(TTL).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    soon(candidate.elected()).await.unwrap().resign();
    let tenure = soon(candidate.elected()).await.unwrap();
    let second = tenure.token();
    drop(tenure);
    soon(node.stop()).await;
    let history = operator(&store).history(None).await.unwrap();
    let tenures = &history[&Name::new("scheduler").unwrap()].tenures;
    let reasons: Vec<_> = tenures.iter().take(2).map(|past| past.reason).collect();
    assert_eq!(reasons, [Some(EndReason::Resigned), Some(EndReason::Finished)]);
    assert_eq!(tenures[1].token, second);
}

/// A store that is slow is no store that is gone: the end of the last tenure is waited for, as its beats were.
#[tokio::test]
async fn the_end_of_a_tenure_is_written_to_a_slow_store_too() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(Duration::from_secs(60)).start().await.unwrap();
    let tenure = soon(node.candidate("scheduler").await.unwrap().elected()).await.unwrap();
    store.delay(Duration::from_millis(600));
    drop(tenure);
    soon(node.stop()).await;
    store.delay(Duration::ZERO);
    let history = operator(&store).history(None).await.unwrap();
    let tenures = &history[&Name::new("scheduler").unwrap()].tenures;
    assert_eq!(tenures[0].reason, Some(EndReason::Finished));
}

/// Fifty tenures of a role, and two hundred actions of operators.
#[tokio::test]
async fn the_newest_are_kept_and_no_more() {
    let store = Memory::new();
    let node = node_on(&store).name("a").ttl(STEADY).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    for _ in 0..52 {
        soon(candidate.elected()).await.unwrap().resign();
    }
    let last = soon(candidate.elected()).await.unwrap().token();
    soon(node.stop()).await;
    let (operator, role) = (operator(&store), Name::new("scheduler").unwrap());
    let history = operator.history(None).await.unwrap();
    let tokens: Vec<u64> = history[&role].tenures.iter().map(|past| past.token.get()).collect();
    // It may have been elected once more before it stopped.
    let newest = tokens.last().copied().unwrap();
    assert!(newest >= last.get(), "{tokens:?}");
    assert_eq!(tokens, (newest - 49..=newest).collect::<Vec<_>>());
    for nth in 0..201 {
        operator.record_action(OperatorAction::Pause, &role, None, &nth.to_string()).await.unwrap();
    }
    let audit = operator.audit().await.unwrap();
    assert_eq!((audit.len(), &*audit[0].why, &*audit[199].why), (200, "1", "200"));
}

/// A lease clock whose machine can be suspended: the clock jumps, and only its alarm hears of it; timers of the runtime
/// do not.
#[derive(Debug, Clone)]
struct Suspended {
    lease: Arc<LeaseClock>,
    slept: watch::Sender<Duration>,
}

impl Clock for Suspended {
    fn now(&self) -> Time {
        self.lease.now().after(*self.slept.borrow())
    }

    fn wall(&self) -> Timestamp {
        self.lease.wall()
    }

    fn alarm(&self) -> Option<Box<dyn SuspendTimer>> {
        Some(Box::new(Resumed(self.slept.subscribe())))
    }
}

#[derive(Debug)]
struct Resumed(watch::Receiver<Duration>);

impl SuspendTimer for Resumed {
    fn fire_after(&mut self, _: Duration) -> futures_util::future::BoxFuture<'_, ()> {
        Box::pin(async { _ = self.0.changed().await })
    }
}

/// The next beat is minutes away: only the alarm ends the work in time.
#[tokio::test]
async fn work_ends_when_the_machine_resumes_after_the_deadline_and_not_at_the_next_beat() {
    let clock = Suspended { lease: Arc::default(), slept: watch::Sender::new(Duration::ZERO) };
    let ttl = 25 * PATIENCE;
    let node =
        node_on(&Memory::new()).name("a").ttl(ttl).clock(Arc::new(clock.clone())).start().await.unwrap();
    let candidate = node.candidate("scheduler").await.unwrap();
    let tenure = soon(candidate.elected()).await.unwrap();
    let held = tenure.hold(async |lead| {
        // The loop comes to rest: were it still busy with the election, it would notice the jump by itself.
        tokio::time::sleep(Duration::from_millis(500)).await;
        clock.slept.send_replace(2 * ttl);
        assert!(!lead.check(), "the clock is past the deadline");
        std::future::pending::<()>().await;
    });
    let held = soon(held).await;
    assert!(matches!(held, WorkOutcome::Lost(EndReason::LeaseExpired)), "{held:?}");
}
