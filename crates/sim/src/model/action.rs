//! What can happen next.

use std::fmt;
use std::sync::Arc;

use tenure_core::io::Evidence;
use tenure_core::record::Reason;
use tenure_core::{Hint, Input, Key, Record, SessionId};

use super::run::{Run, Todo, Way, describe};
use super::setup::{Setup, WITNESS};
use super::world::{Link, Node, Operation, Wire, Work, World, entry, is_over};

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Time goes on by one tick.
    Tick,
    /// The same, and then every node that has something to do wakes, in this order.
    Round(Vec<usize>),
    /// A node does what is due.
    Wake(usize),
    /// The request under way is applied; its answer arrives at once, or is under way then.
    Apply(usize, bool),
    /// The request under way is applied, and stays under way.
    Duplicate(usize),
    /// The request under way rings its bell before it is applied.
    RingEarly(usize),
    /// The answer or hint under way arrives.
    Deliver(usize),
    /// The message under way is lost.
    Drop(usize),
    /// A node is cut off from the store; or none is any more.
    Link(Option<(usize, Link)>),
    /// The leader is asked to give up.
    Release(usize),
    /// Work that took its time has stopped.
    WorkStops(usize),
    /// A node freezes.
    Freeze(usize),
    /// A frozen node goes on.
    Thaw(usize),
    /// A node dies.
    Crash(usize),
    /// It starts anew.
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
    Cut(SessionId),
    /// A witness tells a node that a session is dead, or dropped.
    Tell(usize, SessionId),
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
            Self::RingEarly(w) => write!(f, "the delayed request {w} rings before it is applied"),
            Self::Deliver(w) => write!(f, "the delayed message {w} arrives"),
            Self::Drop(w) => write!(f, "the delayed message {w} is lost"),
            Self::Link(None) => write!(f, "everybody reaches the store again"),
            Self::Link(Some((n, link))) => {
                write!(f, "{} is cut off from the store: {link:?}", Setup::node(*n))
            }
            Self::Release(n) => write!(f, "{} is asked to give up", Setup::node(*n)),
            Self::WorkStops(n) => write!(f, "the work of {} has stopped", Setup::node(*n)),
            Self::Freeze(n) => write!(f, "{} freezes", Setup::node(*n)),
            Self::Thaw(n) => write!(f, "{} goes on", Setup::node(*n)),
            Self::Crash(n) => write!(f, "{} crashes", Setup::node(*n)),
            Self::Restart(n) => write!(f, "{} starts anew", Setup::node(*n)),
            Self::Stop(n) => write!(f, "{} is stopped", Setup::node(*n)),
            Self::Start(n) => write!(f, "{} is started again", Setup::node(*n)),
            Self::Delete(id) => write!(f, "the register of session {id:?} is deleted"),
            Self::Forget(id) => write!(f, "the store forgets session {id:?}"),
            Self::Cut(id) => write!(f, "the connection of session {id:?} drops"),
            Self::Tell(n, id) => write!(f, "a witness tells {} of session {id:?}", Setup::node(*n)),
        }
    }
}

/// Everything that can happen next, in an order that does not depend on how the world came about.
#[must_use]
pub fn enabled(setup: &Setup, world: &World) -> Vec<Action> {
    let mut actions = Vec::new();
    if !world.nodes.iter().any(Node::is_due) {
        if setup.fine {
            actions.push(Action::Tick);
        } else {
            actions.extend(orders(world.nodes.len()).into_iter().map(Action::Round));
        }
    }
    for (n, node) in world.nodes.iter().enumerate() {
        node_actions(setup, world, n, node, &mut actions);
    }
    // A link matters when its node acts: that it changes at the beginning of a tick is enough.
    if !setup.cuts.is_empty()
        && (!setup.fine || world.nodes.iter().all(|node| node.is_due() || !node.is_up()))
    {
        let cuts = setup.victims.iter().flat_map(|n| setup.cuts.iter().map(|link| Some((*n, *link))));
        actions.extend(cuts.chain([None]).filter(|link| *link != world.link).map(Action::Link));
    }
    for (w, wire) in world.wires.iter().enumerate() {
        wire_actions(setup, world, w, wire, &mut actions);
    }
    if setup.deletion {
        actions.extend(deletable(world).map(Action::Delete));
    }
    if world.forgets > 0 {
        actions.extend(live(world).map(Action::Forget));
    }
    if setup.disconnect {
        let victim = |id: &SessionId| !world.cut.contains(id) && is_of(world, *id, &setup.victims);
        actions.extend(live(world).filter(victim).map(Action::Cut));
    }
    for id in Run::witnessed(world, setup) {
        // Whoever has not seen it alive attends to nothing, nor does whoever has seen it over.
        let attends = |node: &Node| node.engine.as_ref().is_some_and(|engine| engine.attends_to(id));
        let ready = |n: &usize| {
            let node = &world.nodes[*n];
            node.is_up() && !node.evidence.contains_key(&id) && attends(node)
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
        (setup.release && node.is_up() && node.leads(&Setup::role()).is_some(), Action::Release(n)),
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
    ];
    actions.extend(candidates.into_iter().filter(|(possible, _)| *possible).map(|(_, action)| action));
}

fn wire_actions(setup: &Setup, world: &World, w: usize, wire: &Wire, actions: &mut Vec<Action>) {
    match wire {
        Wire::Request { op, what, .. } => {
            actions.push(Action::Apply(w, true));
            if op.is_some() {
                actions.push(Action::Apply(w, false));
            }
            if setup.duplicates && matches!(what, Operation::Write(_)) {
                actions.push(Action::Duplicate(w));
            }
            if setup.early_hints
                && matches!(what, Operation::Write(writes) if writes.iter().any(|write| write.ring))
            {
                actions.push(Action::RingEarly(w));
            }
        }
        Wire::Reply { to, .. } | Wire::Hint { to, .. } if world.nodes[*to].is_up() => {
            actions.push(Action::Deliver(w));
        }
        Wire::Reply { .. } | Wire::Hint { .. } => {}
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

/// Begins an action; its run has all the outcomes.
#[must_use]
pub fn begin<'a>(setup: &'a Setup, world: &World, action: &Action, calm: bool, verbose: bool) -> Run<'a> {
    let mut run = Run::new(setup, world.clone(), calm, verbose);
    run.note(|| format!("* {action}"));
    let role = Setup::role();
    match *action {
        Action::Tick => run.world.tick(setup),
        Action::Round(ref order) => {
            run.world.tick(setup);
            return order.iter().fold(run, |run, n| run.then(Todo::Wake(*n)));
        }
        Action::Wake(n) => return run.then(Todo::Wake(n)),
        Action::Release(n) => {
            let token = run.world.nodes[n].leads(&role).unwrap_or_default();
            return run.then(Todo::Step(n, Input::Release { role, token, reason: Reason::Resigned }));
        }
        Action::WorkStops(n) => {
            let node = &mut run.world.nodes[n];
            let Some(at) = node.works.iter().position(|work| work.stopping) else { return run };
            let token = node.works.remove(at).token;
            return run.then(Todo::Step(n, Input::Stopped { role, token }));
        }
        Action::Link(link) => run.world.link = link,
        Action::Freeze(n) => run.world.nodes[n].frozen = true,
        Action::Thaw(n) => run.world.nodes[n].frozen = false,
        Action::Crash(n) => crash(setup, &mut run.world, n),
        Action::Restart(n) => restart(setup, &mut run.world, n),
        Action::Stop(n) => {
            run.world.stops -= 1;
            return run.then(Todo::Step(n, Input::Stop));
        }
        Action::Start(n) => return run.then(Todo::Step(n, Input::Start)),
        Action::Forget(id) => {
            run.world.forgets -= 1;
            run.world.registers.retain(|key, _| !matches!(key, Key::Session(_, found) if *found == id));
        }
        Action::Delete(id) => {
            run.world.registers.retain(|key, _| !matches!(key, Key::Session(_, found) if *found == id));
        }
        Action::Cut(id) => _ = run.world.cut.insert(id),
        Action::Tell(n, id) => return tell(run, n, id),
        Action::Apply(w, _)
        | Action::Duplicate(w)
        | Action::RingEarly(w)
        | Action::Deliver(w)
        | Action::Drop(w) => {
            return wire(run, action, w);
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
    world.wires.retain(|wire| !matches!(wire, Wire::Reply { to, .. } | Wire::Hint { to, .. } if *to == n));
    for wire in &mut world.wires {
        if let Wire::Request { from, op, .. } = wire
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

fn tell(mut run: Run<'_>, n: usize, session: SessionId) -> Run<'_> {
    let dropped = run.world.cut.contains(&session);
    let node = &mut run.world.nodes[n];
    let clock = node.clock;
    node.evidence.insert(session, clock);
    let witness = WITNESS.to_owned();
    let evidence = if dropped {
        Evidence::Disconnected { session, witness }
    } else {
        Evidence::Dead { session, witness }
    };
    run.then(Todo::Step(n, Input::Witnessed(evidence)))
}

fn wire<'a>(mut run: Run<'a>, action: &Action, w: usize) -> Run<'a> {
    let keep = matches!(action, Action::Duplicate(_) | Action::RingEarly(_));
    let wire = if keep { run.world.wires[w].clone() } else { run.world.wires.remove(w) };
    if let Wire::Request { what, .. } = &wire {
        run.note(|| format!("it was {}", describe(what)));
    }
    match (action, wire) {
        (Action::Drop(_), _) => run,
        (Action::RingEarly(_), Wire::Request { what: Operation::Write(writes), .. }) => {
            let nodes = run.world.nodes.len();
            for write in writes {
                let Some((version, value)) = &write.put else { continue };
                let hint = entry(&write.key, *version, value);
                for node in (0..nodes).filter(|_| write.ring) {
                    if run.world.nodes[node].is_up() && !run.world.nodes[node].fresh {
                        run = run.then(Todo::Step(node, Input::Hinted(Hint::Changed(hint.clone()))));
                    }
                }
            }
            run
        }
        (_, Wire::Request { from, op, what }) => {
            let way = match action {
                Action::Apply(_, true) => Way::Now,
                Action::Apply(_, false) => Way::Later,
                _ => Way::Never,
            };
            run.then(Todo::Apply(op.map(|op| (from, op)), from, what, way))
        }
        (_, Wire::Reply { to, op, reply }) => run.then(Todo::Step(to, Input::Replied { op, reply })),
        (_, Wire::Hint { to, entry }) => run.then(Todo::Step(to, Input::Hinted(Hint::Changed(entry)))),
    }
}
