//! One action, carried through until nothing more happens by itself.
//!
//! By default every message arrives at once. Where a fault is possible the run forks, so that one action has as many
//! outcomes as there are ways in which its messages can fare.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::record::SessionState;
use tenure_core::{
    Entry, Event, Fate, Hint, Input, Key, OpId, Outcome, Output, Record, Reply, SessionId, Token, Write,
};

use super::properties::{self, Applied, Stepped};
use super::setup::{Late, Setup};
use super::world::{Link, Operation, Wire, Work, World, entry};

/// One outcome of an action.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    setup: &'a Setup,
    /// Nothing goes wrong, and nothing is a choice.
    calm: bool,
    /// Where it has come to.
    pub world: World,
    todo: VecDeque<Todo>,
    /// What happened, for people; only if they asked.
    pub notes: Option<Vec<String>>,
    /// Which property was violated, and how.
    pub broken: Option<String>,
}

/// What is still to be done.
#[derive(Debug, Clone)]
pub enum Todo {
    /// A node does what is due, if anything is, once all that came before is done with.
    Wake(usize),
    /// Feed an engine.
    Step(usize, Input),
    /// A request leaves a node.
    Send(usize, OpId, Operation),
    /// A request reaches the store; the answer goes the way that is given.
    Apply(Option<(usize, OpId)>, usize, Operation, Way),
    /// A hint leaves the store.
    Ring(usize, Entry),
    /// Work is asked to stop.
    StopWork(usize, Token),
}

/// How an answer fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It arrives.
    Now,
    /// It is under way.
    Later,
    /// It is lost.
    Never,
}

impl<'a> Run<'a> {
    /// The beginning.
    #[must_use]
    pub fn new(setup: &'a Setup, world: World, calm: bool, verbose: bool) -> Self {
        Self { setup, calm, world, todo: VecDeque::new(), notes: verbose.then(Vec::new), broken: None }
    }

    /// Adds something to be done.
    #[must_use]
    pub fn then(mut self, todo: Todo) -> Self {
        self.todo.push_back(todo);
        self
    }

    /// Says what happened, if anybody wants to know.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(text());
        }
    }

    /// Every way in which it can end.
    #[must_use]
    pub fn outcomes(self) -> Vec<Self> {
        let (mut open, mut done) = (vec![self], Vec::new());
        while let Some(mut run) = open.pop() {
            loop {
                if run.broken.is_some() {
                    done.push(run);
                    break;
                }
                let Some(todo) = run.todo.pop_front() else {
                    done.push(run);
                    break;
                };
                run.perform(todo, &mut open);
            }
        }
        done
    }

    fn perform(&mut self, todo: Todo, forks: &mut Vec<Self>) {
        match todo {
            Todo::Wake(node) => self.wake(node),
            Todo::Step(node, input) => self.step(node, &input),
            Todo::Send(node, op, what) => self.send(node, op, what, forks),
            Todo::Apply(asker, writer, what, way) => self.apply(asker, writer, what, way),
            Todo::Ring(node, entry) => self.ring(node, entry, forks),
            Todo::StopWork(node, token) => self.stop_work(node, token, forks),
        }
    }

    fn wake(&mut self, n: usize) {
        if self.todo.iter().any(|todo| !matches!(todo, Todo::Wake(_))) {
            // Later wakes stay behind this one.
            let rest: Vec<Todo> = self.todo.drain(..).collect();
            let (wakes, others): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|t| matches!(t, Todo::Wake(_)));
            self.todo.extend(others.into_iter().chain([Todo::Wake(n)]).chain(wakes));
            return;
        }
        let node = &mut self.world.nodes[n];
        if !node.is_due() {
            return;
        }
        let mut inputs = vec![Input::Wake];
        let role = Setup::role();
        if std::mem::take(&mut node.fresh) {
            inputs = vec![Input::Start, Input::Stand { role, standing: self.setup.standing() }];
        } else {
            let killed = std::mem::take(&mut node.killed);
            inputs.splice(0..0, killed.into_iter().map(|token| Input::Stopped { role: role.clone(), token }));
        }
        inputs.into_iter().rev().for_each(|input| self.todo.push_front(Todo::Step(n, input)));
    }

    fn fork(&self, forks: &mut Vec<Self>, change: impl FnOnce(&mut Self)) {
        let mut fork = self.clone();
        change(&mut fork);
        forks.push(fork);
    }

    fn has_room(&self, node: usize, late: Late) -> bool {
        let reserved = |todo: &&Todo| matches!(todo, Todo::Apply(_, _, _, Way::Later));
        let taken = self.world.wires.len() + self.todo.iter().filter(reserved).count();
        !self.calm
            && self.setup.slow.contains(&node)
            && self.setup.late.contains(&late)
            && taken < self.setup.wires
    }

    fn step(&mut self, index: usize, input: &Input) {
        let names = self.setup.names();
        let node = &mut self.world.nodes[index];
        let now = node.now();
        let Some(engine) = &mut node.engine else { return };
        let before = engine.clone();
        let nonce = &mut self.world.nonce;
        let shown = self.notes.is_some().then(|| format!("{input:?}"));
        let outputs = Arc::make_mut(engine).step(now, input.clone(), &mut || World::draw(nonce, names));
        if let Some(shown) = shown {
            self.note(|| format!("{} gets {shown}", Setup::node(index)));
        }
        let stepped = Stepped { setup: self.setup, node: index, input, before: &before, outputs: &outputs };
        self.broken = properties::stepped(&mut self.world, &stepped).err();
        for output in outputs {
            self.carry_out(index, output);
        }
        if self.broken.is_none() {
            self.broken = properties::state(self.setup, &self.world).err();
        }
    }

    fn carry_out(&mut self, index: usize, output: Output) {
        match output {
            Output::Read { op, query } => {
                self.todo.push_back(Todo::Send(index, op, Operation::Read(query)));
            }
            Output::Write { op, writes } => {
                self.todo.push_back(Todo::Send(index, op, Operation::Write(writes)));
            }
            Output::Attest { session, .. } => {
                let witness = self.setup.attestation();
                self.todo.push_back(Todo::Step(index, Input::Attested { session, witness }));
            }
            Output::Valid { until } => {
                let node = &mut self.world.nodes[index];
                node.until = until;
                let led = node.works.iter_mut().filter(|work| !work.orphan);
                led.for_each(|work| work.until = until);
            }
            Output::Event(event) => self.happened(index, &event),
            Output::Attend { .. } | Output::Ignore { .. } | Output::Release { .. } => {}
        }
    }

    fn happened(&mut self, index: usize, event: &Event) {
        match event {
            Event::Elected { token, .. } => {
                let node = &mut self.world.nodes[index];
                node.works.push(Work { token: *token, until: node.until, stopping: false, orphan: false });
                self.world.top = self.world.top.max(*token);
                self.note(|| format!("{} ELECTED with token {token}", Setup::node(index)));
            }
            Event::Draining { token, .. } => self.todo.push_back(Todo::StopWork(index, *token)),
            Event::Lost { token, reason, .. } => {
                self.todo.push_back(Todo::StopWork(index, *token));
                self.note(|| format!("{} LOST token {token}: {reason}", Setup::node(index)));
            }
            _ => {}
        }
    }

    fn send(&mut self, node: usize, op: OpId, what: Operation, forks: &mut Vec<Self>) {
        let link = self.world.link(node);
        if link == Some(Link::Mute) {
            return self.note(|| format!("{} sends {}: LOST", Setup::node(node), describe(&what)));
        }
        if self.has_room(node, kind(&what)) {
            self.fork_send(node, op, &what, forks);
        }
        self.note(|| format!("{} sends {}", Setup::node(node), describe(&what)));
        let way = if link.is_some() { Way::Never } else { Way::Now };
        self.todo.push_back(Todo::Apply(Some((node, op)), node, what, way));
    }

    fn fork_send(&self, node: usize, op: OpId, what: &Operation, forks: &mut Vec<Self>) {
        let name = || Setup::node(node);
        self.fork(forks, |run| {
            run.note(|| format!("{} sends {}: it is DELAYED", name(), describe(what)));
            run.world.wires.push(Wire::Request { from: node, op: Some(op), what: what.clone() });
        });
        if self.world.link(node).is_none() {
            self.fork(forks, |run| {
                run.note(|| format!("{} sends {}: the answer is DELAYED", name(), describe(what)));
                run.todo.push_back(Todo::Apply(Some((node, op)), node, what.clone(), Way::Later));
            });
        }
    }

    fn apply(&mut self, asker: Option<(usize, OpId)>, writer: usize, what: Operation, way: Way) {
        let reply = match what {
            Operation::Read(query) => self.world.read(&query),
            Operation::Write(writes) => {
                Reply::Written(writes.into_iter().map(|write| self.write(writer, write)).collect())
            }
        };
        let Some((node, op)) = asker else { return };
        match way {
            Way::Now if self.world.nodes[node].frozen => {
                self.world.wires.push(Wire::Reply { to: node, op, reply })
            }
            Way::Now => self.todo.push_back(Todo::Step(node, Input::Replied { op, reply })),
            Way::Later => self.world.wires.push(Wire::Reply { to: node, op, reply }),
            Way::Never => {}
        }
    }

    fn write(&mut self, writer: usize, write: Write) -> Outcome {
        let current = self.world.registers.get(&write.key).cloned();
        if self.is_cut(&write) {
            return Outcome::Failed(Fate::Severed);
        }
        if current.as_ref().map(|(version, _)| *version) != write.expect {
            return Outcome::Conflict(current.map(|(version, value)| entry(&write.key, version, &value)));
        }
        let applied = Applied { writer, write: &write, before: current.as_ref() };
        if let Err(broken) = properties::applied(&self.world, &applied) {
            self.broken = Some(broken);
        }
        match write.put {
            None => _ = self.world.registers.remove(&write.key),
            Some((version, value)) => {
                if write.ring && self.setup.hints {
                    let others = (0..self.world.nodes.len()).filter(|other| *other != writer);
                    let rings = others.map(|other| Todo::Ring(other, entry(&write.key, version, &value)));
                    self.todo.extend(rings);
                }
                self.world.registers.insert(write.key, (version, value));
            }
        }
        Outcome::Applied
    }

    /// The beat is the probe: on a connection that dropped it does nothing.
    fn is_cut(&self, write: &Write) -> bool {
        matches!(&write.key, Key::Session(_, id) if write.witnessed && self.world.cut.contains(id))
    }

    fn ring(&mut self, node: usize, entry: Entry, forks: &mut Vec<Self>) {
        if !self.world.nodes[node].is_up() || self.world.nodes[node].fresh || self.world.link(node).is_some()
        {
            return;
        }
        if !self.calm {
            self.fork(forks, |run| run.note(|| format!("a hint to {} is LOST", Setup::node(node))));
        }
        if self.has_room(node, Late::Hints) {
            self.fork(forks, |run| {
                run.note(|| format!("a hint to {} is DELAYED", Setup::node(node)));
                run.world.wires.push(Wire::Hint { to: node, entry: entry.clone() });
            });
        }
        self.todo.push_back(Todo::Step(node, Input::Hinted(Hint::Changed(entry))));
    }

    fn stop_work(&mut self, node: usize, token: Token, forks: &mut Vec<Self>) {
        let works = &self.world.nodes[node].works;
        let Some(at) = works.iter().position(|work| work.token == token) else { return };
        if self.setup.linger && !self.calm && !works[at].stopping {
            self.fork(forks, |run| {
                run.note(|| format!("the work of {} takes its time", Setup::node(node)));
                run.world.nodes[node].works[at].stopping = true;
            });
        }
        if works[at].stopping && !self.calm {
            return;
        }
        self.world.nodes[node].works.remove(at);
        self.note(|| format!("the work of {} stops", Setup::node(node)));
        self.todo.push_back(Todo::Step(node, Input::Stopped { role: Setup::role(), token }));
    }

    /// The sessions that a witness could tell about.
    #[must_use]
    pub fn witnessed(world: &World, setup: &Setup) -> Vec<SessionId> {
        let mut sessions: Vec<SessionId> = world.cut.iter().copied().collect();
        if let Some(covers) = setup.witness {
            let gone = world.nodes.iter().filter(|node| !covers || node.works.is_empty());
            sessions.extend(gone.filter_map(|node| node.lost));
        }
        sessions
    }
}

/// What may be said of an operation when it is late.
fn kind(what: &Operation) -> Late {
    let Operation::Write(writes) = what else { return Late::Reads };
    match writes.first().map(|write| (&write.put, write.expect)) {
        Some((Some((_, Record::Session(session))), expect)) => match session.state {
            SessionState::Live if expect.is_none() => Late::Openings,
            SessionState::Live => Late::Beats,
            SessionState::Closed => Late::Closings,
            SessionState::Expelled => Late::Expulsions,
        },
        Some((Some((_, Record::Role(_))), _)) => Late::Roles,
        _ => Late::Names,
    }
}

/// An operation, for people.
#[must_use]
pub fn describe(what: &Operation) -> String {
    match what {
        Operation::Read(query) => format!("a read of {:?} {:?}", query.keys, query.kinds),
        Operation::Write(writes) => {
            let one = |write: &Write| match &write.put {
                None => format!("deletion of {:?}", write.key),
                Some((version, Record::Session(s))) => {
                    format!(
                        "{:?} := {:?}, beat {}, version {version:?} on {:?}",
                        write.key, s.state, s.beat, write.expect
                    )
                }
                Some((version, Record::Role(role))) => {
                    let holder = role.holder.as_ref().map(|holder| (&holder.node, holder.session));
                    format!(
                        "{:?} := token {}, holder {holder:?}, version {version:?} on {:?}",
                        write.key, role.token, write.expect
                    )
                }
                Some((version, _)) => format!("{:?}, version {version:?} on {:?}", write.key, write.expect),
            };
            format!("a write of {}", writes.iter().map(one).collect::<Vec<_>>().join("; "))
        }
    }
}
