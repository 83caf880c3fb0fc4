//! The actions: what can happen next in a world of the model.

use std::fmt;
use std::sync::Arc;

use tenure_core::io::Evidence;
use tenure_core::record::EndReason;
use tenure_core::{Entry, Hint, Input, Key, Kind, Record, SessionId};

use super::execution::{Execution, ReplyFate, Task, describe};
use super::setup::{LOCK_ID, Setup};
use super::world::{Message, Node, Operation, Partition, Work, World, entry, is_over};

/// One transition of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Time goes on by one tick.
    Tick,
    /// The same, and then every node that has something to do wakes, in this order.
    Round(Vec<usize>),
    /// A node does what is due.
    Wake(usize),
    /// The request in flight is applied; its reply arrives at once, or stays in flight.
    Apply(usize, bool),
    /// The request in flight is applied, and a duplicate of it stays in flight.
    Duplicate(usize),
    /// The hint of the request in flight arrives before the request is applied.
    HintEarly(usize),
    /// The reply or hint in flight arrives.
    Deliver(usize),
    /// The message in flight is lost.
    Drop(usize),
    /// A node is partitioned from the store; or none is any more.
    Partition(Option<(usize, Partition)>),
    /// The leader is asked to give up.
    Resign(usize),
    /// Work that took its time has stopped.
    WorkStops(usize),
    Freeze(usize),
    /// A frozen node goes on.
    Thaw(usize),
    Crash(usize),
    /// A crashed node restarts.
    Restart(usize),
    /// A node is stopped cleanly.
    Stop(usize),
    /// A node that was stopped is started again.
    Start(usize),
    /// The register of a session that is over vanishes.
    Delete(SessionId),
    /// The store forgets a live session.
    Forget(SessionId),
    /// The connection of a session drops.
    Disconnect(SessionId),
    /// Evidence tells a node that a session is dead, or disconnected.
    Tell(usize, SessionId),
    /// A forged hint tells a node that the role is vacant, under the version that its register has.
    ForgeHint(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => write!(f, "one tick passes"),
            Self::Round(order) => {
                write!(f, "one tick passes, and then wake")?;
                order.iter().try_for_each(|n| write!(f, " {}", Setup::node(*n)))
            }
            Self::Wake(n) => write!(f, "{} wakes", Setup::node(*n)),
            Self::Apply(w, true) => write!(f, "the delayed request {w} is applied and answered"),
            Self::Apply(w, false) => write!(f, "the delayed request {w} is applied; its answer is delayed"),
            Self::Duplicate(w) => write!(f, "the delayed request {w} is applied, not for the last time"),
            Self::HintEarly(w) => write!(f, "the delayed request {w} notifies before it is applied"),
            Self::Deliver(w) => write!(f, "the delayed message {w} arrives"),
            Self::Drop(w) => write!(f, "the delayed message {w} is lost"),
            Self::Partition(None) => write!(f, "every node reaches the store again"),
            Self::Partition(Some((n, partition))) => {
                write!(f, "{} is cut off from the store: {partition:?}", Setup::node(*n))
            }
            Self::Resign(n) => write!(f, "{} is asked to give up", Setup::node(*n)),
            Self::WorkStops(n) => write!(f, "the work of {} has stopped", Setup::node(*n)),
            Self::Freeze(n) => write!(f, "{} freezes", Setup::node(*n)),
            Self::Thaw(n) => write!(f, "{} goes on", Setup::node(*n)),
            Self::Crash(n) => write!(f, "{} crashes", Setup::node(*n)),
            Self::Restart(n) => write!(f, "{} starts anew", Setup::node(*n)),
            Self::Stop(n) => write!(f, "{} is stopped", Setup::node(*n)),
            Self::Start(n) => write!(f, "{} is started again", Setup::node(*n)),
            Self::Delete(id) => write!(f, "the register of session {id:?} is deleted"),
            Self::Forget(id) => write!(f, "the store forgets session {id:?}"),
            Self::Disconnect(id) => write!(f, "the connection of session {id:?} drops"),
            Self::ForgeHint(n) => {
                write!(f, "a forged hint tells {} that the role is vacant", Setup::node(*n))
            }
            Self::Tell(n, id) => write!(f, "a liveness lock tells {} of session {id:?}", Setup::node(*n)),
        }
    }
}

/// Everything that can happen next, in an order that does not depend on how the world came about.
#[must_use]
pub fn enabled(setup: &Setup, world: &World) -> Vec<Action> {
    let mut actions = Vec::new();
    if !world.nodes.iter().any(Node::is_due) {
        if setup.fine_grained {
            actions.push(Action::Tick);
        } else {
            actions.extend(orders(world.nodes.len()).into_iter().map(Action::Round));
        }
    }
    for (n, node) in world.nodes.iter().enumerate() {
        node_actions(setup, world, n, node, &mut actions);
    }
    // A partition matters when its node acts: that it changes at the beginning of a tick is enough.
    if !setup.cuts.is_empty()
        && (!setup.fine_grained || world.nodes.iter().all(|node| node.is_due() || !node.is_up()))
    {
        let cuts =
            setup.victims.iter().flat_map(|n| setup.cuts.iter().map(|partition| Some((*n, *partition))));
        actions.extend(
            cuts.chain([None]).filter(|partition| *partition != world.partition).map(Action::Partition),
        );
    }
    for (w, message) in world.in_flight.iter().enumerate() {
        message_actions(setup, world, w, message, &mut actions);
    }
    if setup.deletion {
        actions.extend(deletable(world).map(Action::Delete));
    }
    if world.forgets > 0 {
        actions.extend(live(world).map(Action::Forget));
    }
    if setup.disconnect {
        let victim = |id: &SessionId| !world.disconnected.contains(id) && is_of(world, *id, &setup.victims);
        actions.extend(live(world).filter(victim).map(Action::Disconnect));
    }
    for id in Execution::sessions_with_locks(world, setup) {
        // A node watches only sessions that it has seen alive and not seen over.
        let watches = |node: &Node| node.engine.as_ref().is_some_and(|engine| engine.watches_lock_of(id));
        let ready = |n: &usize| {
            let node = &world.nodes[*n];
            node.is_up() && !node.evidence.contains_key(&id) && watches(node)
        };
        actions.extend((0..world.nodes.len()).filter(ready).map(|n| Action::Tell(n, id)));
    }
    actions
}

/// Every order of so many nodes.
fn orders(nodes: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for node in 0..nodes {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, node);
                    longer
                })
            })
            .collect();
    }
    orders
}

fn node_actions(setup: &Setup, world: &World, n: usize, node: &Node, actions: &mut Vec<Action>) {
    let victim = setup.victims.contains(&n);
    let stopped = node.engine.as_ref().is_some_and(|engine| engine.is_stopped());
    let candidates = [
        (node.is_due(), Action::Wake(n)),
        (setup.resign && node.is_up() && node.leads(&Setup::role()).is_some(), Action::Resign(n)),
        (node.is_up() && node.works.iter().any(|work| work.stopping), Action::WorkStops(n)),
        (
            setup.pause && victim && node.is_up() && !world.nodes.iter().any(|node| node.frozen),
            Action::Freeze(n),
        ),
        (node.frozen, Action::Thaw(n)),
        (world.crashes > 0 && victim && node.engine.is_some() && !node.fresh, Action::Crash(n)),
        (node.engine.is_none(), Action::Restart(n)),
        (world.stops > 0 && victim && node.is_up() && !node.fresh && !stopped, Action::Stop(n)),
        (node.is_up() && stopped, Action::Start(n)),
        (
            world.forged_hints > 0
                && !setup.early_hints
                && node.is_up()
                && !node.fresh
                && forged_hint(world).is_some(),
            Action::ForgeHint(n),
        ),
    ];
    actions.extend(candidates.into_iter().filter(|(possible, _)| *possible).map(|(_, action)| action));
}

fn message_actions(setup: &Setup, world: &World, w: usize, message: &Message, actions: &mut Vec<Action>) {
    match message {
        Message::Request { from, what, .. } if world.must_wait(*from, what) => {}
        Message::Request { op, what, .. } => {
            actions.push(Action::Apply(w, true));
            if op.is_some() {
                actions.push(Action::Apply(w, false));
            }
            if setup.duplicates && matches!(what, Operation::Write(_)) {
                actions.push(Action::Duplicate(w));
            }
            if setup.early_hints
                && world.forged_hints > 0
                && matches!(what, Operation::Write(writes) if writes.iter().any(|write| write.notify))
            {
                actions.push(Action::HintEarly(w));
            }
        }
        Message::Reply { to, .. } | Message::Hint { to, .. } if world.nodes[*to].is_up() => {
            actions.push(Action::Deliver(w));
        }
        Message::Reply { .. } | Message::Hint { .. } => {}
    }
    actions.push(Action::Drop(w));
}

/// Sessions whose register says that they live.
fn live(world: &World) -> impl Iterator<Item = SessionId> {
    world.registers.iter().filter_map(|(key, (_, value))| match key {
        Key::Session(_, id) if !is_over(value) => Some(*id),
        _ => None,
    })
}

/// The register of a held role, forged as vacant.
fn forged_hint(world: &World) -> Option<Entry> {
    world.registers.iter().find_map(|(key, (version, value))| match value {
        Record::Role(role) if key.kind() == Kind::Role && role.holder.is_some() => {
            let role = tenure_core::record::Role { holder: None, ..role.clone() };
            Some(entry(key, *version, &Record::Role(role)))
        }
        _ => None,
    })
}

/// Whether one of these nodes opened that session.
fn is_of(world: &World, id: SessionId, nodes: &[usize]) -> bool {
    world.registers.iter().any(|(key, (_, value))| match (key, value) {
        (Key::Session(_, found), Record::Session(record)) if *found == id => {
            nodes.iter().any(|n| Setup::node(*n) == record.node)
        }
        _ => false,
    })
}

/// Sessions that are over and named by no role and no node.
fn deletable(world: &World) -> impl Iterator<Item = SessionId> {
    let named = |id: SessionId| {
        world.registers.values().any(|(_, value)| match value {
            Record::Role(role) => role.holder.as_ref().is_some_and(|holder| holder.session == id),
            Record::Node(node) => node.session == id,
            _ => false,
        })
    };
    world.registers.iter().filter_map(move |(key, (_, value))| match key {
        Key::Session(_, id) if is_over(value) && !named(*id) => Some(*id),
        _ => None,
    })
}

/// Begins an action; the outcomes of its execution are the successor worlds.
#[must_use]
pub fn begin<'a>(
    setup: &'a Setup,
    world: &World,
    action: &Action,
    fault_free: bool,
    verbose: bool,
) -> Execution<'a> {
    let mut run = Execution::new(setup, world.clone(), fault_free, verbose);
    run.note(|| format!("* {action}"));
    let role = Setup::role();
    match *action {
        Action::Tick => run.world.tick(setup),
        Action::Round(ref order) => {
            run.world.tick(setup);
            return order.iter().fold(run, |run, n| run.then(Task::Wake(*n)));
        }
        Action::Wake(n) => return run.then(Task::Wake(n)),
        Action::Resign(n) => {
            let token = run.world.nodes[n].leads(&role).unwrap_or_default();
            return run.then(Task::Step(n, Input::Resign { role, token, reason: EndReason::Resigned }));
        }
        Action::WorkStops(n) => {
            let node = &mut run.world.nodes[n];
            let Some(at) = node.works.iter().position(|work| work.stopping) else { return run };
            let token = node.works.remove(at).token;
            return run.then(Task::Step(n, Input::WorkStopped { role, token }));
        }
        Action::Partition(partition) => run.world.partition = partition,
        Action::Freeze(n) => run.world.nodes[n].frozen = true,
        Action::Thaw(n) => run.world.nodes[n].frozen = false,
        Action::Crash(n) => crash(setup, &mut run.world, n),
        Action::Restart(n) => restart(setup, &mut run.world, n),
        Action::Stop(n) => {
            run.world.stops -= 1;
            return run.then(Task::Step(n, Input::Stop));
        }
        Action::Start(n) => return run.then(Task::Step(n, Input::Start)),
        Action::Forget(id) => {
            run.world.forgets -= 1;
            run.world.registers.retain(|key, _| !matches!(key, Key::Session(_, found) if *found == id));
        }
        Action::Delete(id) => {
            run.world.registers.retain(|key, _| !matches!(key, Key::Session(_, found) if *found == id));
        }
        Action::Disconnect(id) => _ = run.world.disconnected.insert(id),
        Action::Tell(n, id) => return tell(run, n, id),
        Action::ForgeHint(n) => {
            run.world.forged_hints -= 1;
            let Some(forged_hint) = forged_hint(&run.world) else { return run };
            return run.then(Task::Step(n, Input::Forged(forged_hint)));
        }
        Action::Apply(w, _)
        | Action::Duplicate(w)
        | Action::HintEarly(w)
        | Action::Deliver(w)
        | Action::Drop(w) => {
            return message(run, action, w);
        }
    }
    run
}

fn crash(setup: &Setup, world: &mut World, n: usize) {
    world.crashes -= 1;
    let node = &mut world.nodes[n];
    let session = node.engine.as_ref().and_then(|engine| engine.session()).map(|(id, _)| id);
    let works = if setup.work_outlives { std::mem::take(&mut node.works) } else { Vec::new() };
    let works = works.into_iter().map(|work| Work { orphan: true, stopping: false, ..work }).collect();
    let clock = node.clock;
    *node = Node { engine: None, fresh: false, works, clock, lost: session, ..Node::new(setup, n) };
    world.in_flight.retain(
        |message| !matches!(message, Message::Reply { to, .. } | Message::Hint { to, .. } if *to == n),
    );
    for message in &mut world.in_flight {
        if let Message::Request { from, op, .. } = message
            && *from == n
        {
            *op = None;
        }
    }
}

fn restart(setup: &Setup, world: &mut World, n: usize) {
    let node = &mut world.nodes[n];
    let (works, lost, clock) = (std::mem::take(&mut node.works), node.lost, node.clock);
    *node = Node { works, lost, clock, ..Node::new(setup, n) };
    node.engine = Some(Arc::new(tenure_core::Engine::new(setup.config(n))));
}

fn tell(mut run: Execution<'_>, n: usize, session: SessionId) -> Execution<'_> {
    let dropped = run.world.disconnected.contains(&session);
    let node = &mut run.world.nodes[n];
    let clock = node.clock;
    node.evidence.insert(session, clock);
    let lock = LOCK_ID.to_owned();
    let evidence =
        if dropped { Evidence::Disconnected { session, lock } } else { Evidence::Dead { session, lock } };
    run.then(Task::Step(n, Input::Evidence(evidence)))
}

fn message<'a>(mut run: Execution<'a>, action: &Action, w: usize) -> Execution<'a> {
    let keep = matches!(action, Action::Duplicate(_) | Action::HintEarly(_));
    let message = if keep { run.world.in_flight[w].clone() } else { run.world.in_flight.remove(w) };
    if let Message::Request { what, .. } = &message {
        run.note(|| format!("it was {}", describe(what)));
    }
    match (action, message) {
        (Action::Drop(_), _) => run,
        (Action::HintEarly(_), Message::Request { what: Operation::Write(writes), .. }) => {
            let nodes = run.world.nodes.len();
            run.world.forged_hints -= 1;
            for write in writes {
                let Some((version, value)) = &write.put else { continue };
                let hint = entry(&write.key, *version, value);
                for node in (0..nodes).filter(|_| write.notify) {
                    if run.world.nodes[node].is_up() && !run.world.nodes[node].fresh {
                        run = run.then(Task::Step(node, Input::Forged(hint.clone())));
                    }
                }
            }
            run
        }
        (_, Message::Request { from, op, what }) => {
            let fate = match action {
                Action::Apply(_, true) => ReplyFate::Now,
                Action::Apply(_, false) => ReplyFate::Later,
                _ => ReplyFate::Never,
            };
            run.then(Task::Apply(op.map(|op| (from, op)), from, what, fate))
        }
        (_, Message::Reply { to, op, reply }) => run.then(Task::Step(to, Input::Replied { op, reply })),
        (_, Message::Hint { to, key }) => run.then(Task::Step(to, Input::Hinted(Hint::Changed(key)))),
    }
}
