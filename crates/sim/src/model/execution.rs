//! One action, carried through until nothing more happens by itself.
//!
//! By default every message arrives at once. Where a fault is possible the run forks, so that one action has as many
//! outcomes as there are ways in which its messages can fare.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::record::SessionState;
use tenure_core::{
    Event, Fate, Hint, Input, Key, OpId, Outcome, Output, Pairing, Record, Reply, SessionId, Token, Write,
};

use super::properties::{self, Applied, Stepped};
use super::setup::{MessageKind, Setup};
use super::world::{Message, Operation, Partition, Work, World, entry};

/// One outcome of an action.
#[derive(Debug, Clone)]
pub struct Execution<'a> {
    setup: &'a Setup,
    /// No fault is injected: every action has one outcome.
    fault_free: bool,
    /// The state reached so far.
    pub world: World,
    tasks: VecDeque<Task>,
    /// A line for each event, if the caller asked for them.
    pub notes: Option<Vec<String>>,
    /// Which property was violated, and how.
    pub broken: Option<String>,
}

/// A task of an execution that is still to be done.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "moved once, never kept")]
pub enum Task {
    /// A node does what is due, if anything is, once all that came before is done with.
    Wake(usize),
    Step(usize, Input),
    /// A request leaves a node.
    Send(usize, OpId, Operation),
    /// A request reaches the store; the reply meets the given fate.
    Apply(Option<(usize, OpId)>, usize, Operation, ReplyFate),
    /// A hint leaves the store.
    Notify(usize, Key),
    /// Work is asked to stop.
    StopWork(usize, Token),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyFate {
    Now,
    Later,
    Never,
}

impl<'a> Execution<'a> {
    #[must_use]
    pub fn new(setup: &'a Setup, world: World, fault_free: bool, verbose: bool) -> Self {
        Self { setup, fault_free, world, tasks: VecDeque::new(), notes: verbose.then(Vec::new), broken: None }
    }

    #[must_use]
    pub fn then(mut self, tasks: Task) -> Self {
        self.tasks.push_back(tasks);
        self
    }

    /// Adds a note, if notes are kept.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(text());
        }
    }

    /// Every outcome of the action.
    #[must_use]
    pub fn outcomes(self) -> Vec<Self> {
        let (mut open, mut done) = (vec![self], Vec::new());
        while let Some(mut run) = open.pop() {
            loop {
                if run.broken.is_some() {
                    done.push(run);
                    break;
                }
                let Some(tasks) = run.tasks.pop_front() else {
                    done.push(run);
                    break;
                };
                run.perform(tasks, &mut open);
            }
        }
        done
    }

    fn perform(&mut self, tasks: Task, forks: &mut Vec<Self>) {
        match tasks {
            Task::Wake(node) => self.wake(node),
            Task::Step(node, input) => self.step(node, &input),
            Task::Send(node, op, what) => self.send(node, op, what, forks),
            Task::Apply(asker, writer, what, fate) => self.apply(asker, writer, what, fate),
            Task::Notify(node, key) => self.notify(node, key, forks),
            Task::StopWork(node, token) => self.stop_work(node, token, forks),
        }
    }

    fn wake(&mut self, n: usize) {
        if self.tasks.iter().any(|tasks| !matches!(tasks, Task::Wake(_))) {
            // Later wakes stay behind this one.
            let rest: Vec<Task> = self.tasks.drain(..).collect();
            let (wakes, others): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|t| matches!(t, Task::Wake(_)));
            self.tasks.extend(others.into_iter().chain([Task::Wake(n)]).chain(wakes));
            return;
        }
        let node = &mut self.world.nodes[n];
        if !node.is_due() {
            return;
        }
        let mut inputs = vec![Input::Wake];
        let role = Setup::role();
        if std::mem::take(&mut node.fresh) {
            inputs = vec![Input::Start, Input::Campaign { role, candidacy: self.setup.candidacy() }];
        } else {
            let killed = std::mem::take(&mut node.killed);
            inputs.splice(
                0..0,
                killed.into_iter().map(|token| Input::WorkStopped { role: role.clone(), token }),
            );
        }
        inputs.into_iter().rev().for_each(|input| self.tasks.push_front(Task::Step(n, input)));
    }

    fn fork(&self, forks: &mut Vec<Self>, change: impl FnOnce(&mut Self)) {
        let mut fork = self.clone();
        change(&mut fork);
        forks.push(fork);
    }

    fn has_room(&self, node: usize, late: MessageKind) -> bool {
        let reserved = |tasks: &&Task| matches!(tasks, Task::Apply(_, _, _, ReplyFate::Later));
        let taken = self.world.in_flight.len() + self.tasks.iter().filter(reserved).count();
        !self.fault_free
            && self.setup.slow.contains(&node)
            && self.setup.late.contains(&late)
            && taken < self.setup.in_flight
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
            Output::Read { op, query, with } => {
                let after = with.and_then(Pairing::served_after);
                self.tasks.push_back(Task::Send(index, op, Operation::Read(query, after)));
            }
            Output::Write { op, writes } => {
                self.tasks.push_back(Task::Send(index, op, Operation::Write(writes)));
            }
            Output::AcquireLock { session, .. } => {
                let lock = self.setup.liveness_lock();
                self.tasks.push_back(Task::Step(index, Input::LockAcquired { session, lock }));
            }
            Output::Valid { until } => {
                let node = &mut self.world.nodes[index];
                node.until = until;
                let led = node.works.iter_mut().filter(|work| !work.orphan);
                led.for_each(|work| work.until = until);
            }
            Output::Event(event) => self.event_raised(index, &event),
            Output::WatchLock { .. } | Output::UnwatchLock { .. } | Output::ReleaseLock { .. } => {}
        }
    }

    fn event_raised(&mut self, index: usize, event: &Event) {
        match event {
            Event::Elected { token, .. } => {
                let node = &mut self.world.nodes[index];
                node.works.push(Work { token: *token, until: node.until, stopping: false, orphan: false });
                self.world.top = self.world.top.max(*token);
                self.note(|| format!("{} ELECTED with token {token}", Setup::node(index)));
            }
            Event::Draining { token, .. } => self.tasks.push_back(Task::StopWork(index, *token)),
            Event::Lost { token, reason, .. } => {
                self.tasks.push_back(Task::StopWork(index, *token));
                self.note(|| format!("{} LOST token {token}: {reason}", Setup::node(index)));
            }
            _ => {}
        }
    }

    fn send(&mut self, node: usize, op: OpId, what: Operation, forks: &mut Vec<Self>) {
        let partition = self.world.partition(node);
        if partition == Some(Partition::RequestsLost) {
            return self.note(|| format!("{} sends {}: LOST", Setup::node(node), describe(&what)));
        }
        let room = self.has_room(node, kind(&what));
        if self.world.must_wait(node, &what) {
            self.note(|| {
                format!(
                    "{} sends {}: it is delayed as the write before it is",
                    Setup::node(node),
                    describe(&what)
                )
            });
            if room {
                self.world.in_flight.push(Message::Request { from: node, op: Some(op), what });
            }
            return;
        }
        if room {
            self.fork_send(node, op, &what, forks);
        }
        self.note(|| format!("{} sends {}", Setup::node(node), describe(&what)));
        let fate = if partition.is_some() { ReplyFate::Never } else { ReplyFate::Now };
        self.tasks.push_back(Task::Apply(Some((node, op)), node, what, fate));
    }

    fn fork_send(&self, node: usize, op: OpId, what: &Operation, forks: &mut Vec<Self>) {
        let name = || Setup::node(node);
        self.fork(forks, |run| {
            run.note(|| format!("{} sends {}: it is DELAYED", name(), describe(what)));
            run.world.in_flight.push(Message::Request { from: node, op: Some(op), what: what.clone() });
        });
        if self.world.partition(node).is_none() {
            self.fork(forks, |run| {
                run.note(|| format!("{} sends {}: the answer is DELAYED", name(), describe(what)));
                run.tasks.push_back(Task::Apply(Some((node, op)), node, what.clone(), ReplyFate::Later));
            });
        }
    }

    fn apply(&mut self, asker: Option<(usize, OpId)>, writer: usize, what: Operation, fate: ReplyFate) {
        let reply = match what {
            Operation::Read(query, _) => self.world.read(&query),
            Operation::Write(writes) => {
                Reply::Written(writes.into_iter().map(|write| self.write(writer, write)).collect())
            }
        };
        let Some((node, op)) = asker else { return };
        match fate {
            ReplyFate::Now if self.world.nodes[node].frozen => {
                self.world.in_flight.push(Message::Reply { to: node, op, reply })
            }
            ReplyFate::Now => self.tasks.push_back(Task::Step(node, Input::Replied { op, reply })),
            ReplyFate::Later => self.world.in_flight.push(Message::Reply { to: node, op, reply }),
            ReplyFate::Never => {}
        }
    }

    fn write(&mut self, writer: usize, write: Write) -> Outcome {
        let current = self.world.registers.get(&write.key).cloned();
        if self.is_disconnected(&write) {
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
                if write.notify && self.setup.hints {
                    let others = (0..self.world.nodes.len()).filter(|other| *other != writer);
                    let notifies = others.map(|other| Task::Notify(other, write.key.clone()));
                    self.tasks.extend(notifies);
                }
                self.world.registers.insert(write.key, (version, value));
            }
        }
        Outcome::Applied
    }

    /// The beat is the probe: on a connection that dropped it does nothing.
    fn is_disconnected(&self, write: &Write) -> bool {
        matches!(&write.key, Key::Session(_, id) if write.requires_lock && self.world.disconnected.contains(id))
    }

    fn notify(&mut self, node: usize, key: Key, forks: &mut Vec<Self>) {
        if !self.world.nodes[node].is_up()
            || self.world.nodes[node].fresh
            || self.world.partition(node).is_some()
        {
            return;
        }
        if !self.fault_free {
            self.fork(forks, |run| run.note(|| format!("a hint to {} is LOST", Setup::node(node))));
        }
        if self.has_room(node, MessageKind::Hints) {
            self.fork(forks, |run| {
                run.note(|| format!("a hint to {} is DELAYED", Setup::node(node)));
                run.world.in_flight.push(Message::Hint { to: node, key: key.clone() });
            });
        }
        self.tasks.push_back(Task::Step(node, Input::Hinted(Hint::Changed(key))));
    }

    fn stop_work(&mut self, node: usize, token: Token, forks: &mut Vec<Self>) {
        let works = &self.world.nodes[node].works;
        let Some(at) = works.iter().position(|work| work.token == token) else { return };
        if self.setup.slow_stops && !self.fault_free && !works[at].stopping {
            self.fork(forks, |run| {
                run.note(|| format!("the work of {} takes its time", Setup::node(node)));
                run.world.nodes[node].works[at].stopping = true;
            });
        }
        if works[at].stopping && !self.fault_free {
            return;
        }
        self.world.nodes[node].works.remove(at);
        self.note(|| format!("the work of {} stops", Setup::node(node)));
        self.tasks.push_back(Task::Step(node, Input::WorkStopped { role: Setup::role(), token }));
    }

    /// The sessions whose lock could tell something.
    #[must_use]
    pub fn sessions_with_locks(world: &World, setup: &Setup) -> Vec<SessionId> {
        let mut sessions: Vec<SessionId> = world.disconnected.iter().copied().collect();
        if let Some(covers) = setup.liveness_locks {
            let gone = world.nodes.iter().filter(|node| !covers || node.works.is_empty());
            sessions.extend(gone.filter_map(|node| node.lost));
        }
        sessions
    }
}

/// The kind of message that an operation is.
fn kind(what: &Operation) -> MessageKind {
    let Operation::Write(writes) = what else { return MessageKind::Reads };
    match writes.first().map(|write| (&write.put, write.expect)) {
        Some((Some((_, Record::Session(session))), expect)) => match session.state {
            SessionState::Live if expect.is_none() => MessageKind::Openings,
            SessionState::Live => MessageKind::Beats,
            SessionState::Closed => MessageKind::Closings,
            SessionState::Expelled => MessageKind::Expulsions,
        },
        Some((Some((_, Record::Role(_))), _)) => MessageKind::Roles,
        _ => MessageKind::Names,
    }
}

/// An operation, for people.
#[must_use]
pub fn describe(what: &Operation) -> String {
    match what {
        Operation::Read(query, _) => format!("a read of {:?} {:?}", query.keys, query.kinds),
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
