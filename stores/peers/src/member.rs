//! A member of the group: one thread that owns the Raft library, the log and the registers.
//!
//! ```text
//!   requests, messages ──▶ step ──▶ ready ──▶ log (synchronised) ──▶ messages to the others
//!          ticks ─────────▶                └─▶ apply ──▶ answers, signals
//! ```
//!
//! Nothing else touches them, and nothing here waits for a network.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use protobuf::Message as _;
use raft::eraftpb::{ConfChange, ConfChangeType, Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, SnapshotStatus, StateRole};
use tenure_core::Entropy;

use super::STORE;
use super::codec::{Garbled, Wire};
use super::file::Fault;
use super::frame::{Answer, Ask, GroupView, MemberView};
use super::log::Log;
use super::machine::{Command, Machine};
use super::read_index;
use super::shared::Shared;
use super::waiting::{Proposal, Proposals, Read, Reads, Reply};
use tenure_store::entropy::KernelEntropy;
use tenure_store::{Name, StoreError, Write};

/// Ticks in which a member that hears nothing of its Raft leader waits at least before it stands.
const ELECTION_TICKS: u32 = 8;
/// So many inputs at most are taken before the log is written: they share one synchronisation.
const AT_ONCE: usize = 512;
/// A voting-only member waits so many times longer before it stands, so that another one does before.
const VOTING_ONLY_WAITS: usize = 2;
/// A learner that is so few entries behind may vote.
const CAUGHT_UP: u64 = 64;
/// The longest that stepping aside may take, in times of waiting for a Raft leader.
const STEPPING_ASIDE: u32 = 5;

/// What is there can be rewritten, so that a member that takes part goes on.
const FULL: &str =
    "the group has no room for further registers: delete some, or let fewer roles share a group";

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Input {
    Raft(Box<Message>),
    /// A snapshot was handed to the network, or was not.
    Sent(u64, bool),
    Ask(Ask, Instant, Reply),
    /// For tests: how long the disk takes from now on.
    Slow(Duration),
    Stop,
}

/// Why the thread stopped turning.
#[derive(Debug)]
pub(super) enum End {
    /// It was told to.
    Stopped,
    /// The disk failed.
    Disk(Fault),
    /// The library refused something that it should not have.
    Raft(raft::Error),
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Disk(fault)
    }
}

impl From<raft::Error> for End {
    fn from(error: raft::Error) -> Self {
        Self::Raft(error)
    }
}

impl From<Garbled> for End {
    fn from(garbled: Garbled) -> Self {
        Self::Raft(raft::Error::Store(raft::StorageError::Other(Box::new(garbled))))
    }
}

/// A member of the group.
pub(super) struct Member {
    raft: RawNode<Log>,
    machine: Machine,
    applied: u64,
    proposals: Proposals,
    reads: Reads,
    shared: Arc<Shared>,
    tick: Duration,
    next_tick: Instant,
    leader: u64,
    /// The membership changed: the next snapshot must show it.
    reshaped: bool,
    stopping: Option<Stopping>,
}

/// A member that is to stop, and has yet to see that another one leads the group.
#[derive(Debug, Clone, Copy)]
struct Stopping {
    /// Then it stops in any case.
    until: Instant,
    /// The term in which it led.
    term: u64,
}

/// How a member that is to stop looks to itself.
#[derive(Debug, Clone, Copy)]
struct StopState {
    leads: bool,
    /// It has asked another one to lead.
    asked: bool,
    /// It knows another one that leads.
    follows: bool,
    /// Another term has begun than the one in which it led.
    newer: bool,
}

/// What a member that is to stop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    /// Asks another one to lead.
    Ask,
    Wait,
}

impl StopState {
    /// The member that was asked to lead needs votes, and without ours it may have no majority: to be deposed is not enough,
    /// another one must be seen to lead. Only where no majority answered us any more there is none to wait for.
    fn next(self) -> Next {
        match self {
            Self { leads: true, asked: false, .. } => Next::Ask,
            Self { leads: true, .. } => Next::Wait,
            Self { follows: true, .. } | Self { newer: false, .. } => Next::Go,
            _ => Next::Wait,
        }
    }
}

impl Member {
    /// A member that goes on where its log ends.
    pub(super) fn new(log: Log, id: u64, shared: Arc<Shared>) -> Result<Self, End> {
        let tick = shared.settings.election / ELECTION_TICKS;
        let applied = log.latest().get_metadata().index;
        let machine = Machine::from_bytes(&log.latest().data)?;
        let waits = if shared.settings.voting_only { VOTING_ONLY_WAITS } else { 1 };
        let config = Config {
            id,
            applied,
            election_tick: ELECTION_TICKS as usize,
            heartbeat_tick: 1,
            min_election_tick: waits * ELECTION_TICKS as usize,
            max_election_tick: 2 * waits * ELECTION_TICKS as usize,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: 64 << 20,
            ..Config::default()
        };
        let raft = RawNode::new(&config, log, &slog::Logger::root(slog::Discard, slog::o!()))?;
        let (proposals, reads, next_tick) = (Proposals::default(), Reads::default(), Instant::now());
        let mut member = Self {
            raft,
            machine,
            applied,
            proposals,
            reads,
            shared,
            tick,
            next_tick,
            leader: 0,
            reshaped: false,
            stopping: None,
        };
        member.tell();
        member.shared.set_applied(applied);
        if member.machine.members.len() == 1 && member.is_voter(id) {
            member.raft.campaign()?;
        }
        Ok(member)
    }

    /// Turns until it is told to stop, or the disk fails.
    pub(super) fn run(mut self, inputs: &Receiver<Input>) -> End {
        let end = loop {
            if let Err(end) = self.turn(inputs) {
                break end;
            }
        };
        let why = match &end {
            End::Stopped => "this member is being closed".to_owned(),
            End::Disk(fault) => fault.to_string(),
            End::Raft(error) => error.to_string(),
        };
        self.proposals.fail(&why);
        self.reads.fail(&why);
        self.shared.set_leader(0);
        end
    }

    fn turn(&mut self, inputs: &Receiver<Input>) -> Result<(), End> {
        let wait = self.next_tick.saturating_duration_since(Instant::now());
        match inputs.recv_timeout(wait) {
            Ok(input) => self.take(input)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(End::Stopped),
        }
        for input in inputs.try_iter().take(AT_ONCE) {
            self.take(input)?;
        }
        let now = Instant::now();
        if now >= self.next_tick {
            // After a pause of the process there is one tick, not all that were missed: the others are heard first.
            self.next_tick = (self.next_tick + self.tick).max(now + self.tick / 2);
            self.on_tick(now)?;
        }
        // Once a turn: what makes a Raft leader step aside is a message too, and another one would follow it at once.
        self.propose(now);
        // Asked anew after each answer: reads that wait for the next question would otherwise wait for the next input, or
        // for a tick.
        loop {
            self.ask_for_reads(now);
            if !self.raft.has_ready() {
                break;
            }
            self.on_ready()?;
        }
        self.serve_reads();
        self.tidy()
    }

    fn take(&mut self, input: Input) -> Result<(), End> {
        self.shared.taken();
        match input {
            Input::Raft(message) => self.on_message(*message),
            Input::Sent(to, true) => self.raft.report_snapshot(to, SnapshotStatus::Finish),
            Input::Sent(to, false) => self.raft.report_snapshot(to, SnapshotStatus::Failure),
            Input::Ask(ask, deadline, reply) => self.on_ask(ask, deadline, reply),
            Input::Slow(slowness) => self.raft.mut_store().slowness = slowness,
            Input::Stop => self.step_aside(),
        }
        Ok(())
    }

    fn on_message(&mut self, message: Message) {
        match read_index::answer(&self.raft.raft, &message) {
            Some(answer) => self.send(vec![answer]),
            // What does not fit, such as a vote from a member that was removed, is not worth more than silence.
            None => drop(self.raft.step(message)),
        }
    }

    fn on_ask(&mut self, ask: Ask, deadline: Instant, reply: Reply) {
        if self.stopping.is_some() {
            return fail(reply, StoreError::not_applied(STORE, "this member is being closed"));
        }
        match ask {
            Ask::Read(namespace, query) => self.reads.add(Read { namespace, query, deadline, reply }),
            Ask::Write(.., writes) if self.raft.store().is_full() && writes.iter().any(creates) => {
                fail(reply, refuse(FULL.to_owned()));
            }
            Ask::Write(request, since, namespace, writes) => {
                let since = since.min(self.applied);
                let command = Command { request, since, namespace, writes, group: None };
                self.proposals.add(request, Proposal::Command(command.to_bytes()), deadline, reply);
            }
            Ask::Group => drop(reply.send(Answer::Group(self.group_view()))),
            Ask::Add(address) => self.change(self.addition(&address), deadline, reply),
            Ask::Remove(address) => self.change(self.removal(&address), deadline, reply),
            Ask::Roll(..) => fail(reply, StoreError::not_applied(STORE, "only strangers ask that")),
        }
    }

    fn change(&mut self, change: Result<ConfChange, StoreError>, deadline: Instant, reply: Reply) {
        match change {
            Err(error) => fail(reply, error),
            Ok(mut change) => {
                let request = KernelEntropy.nonce();
                let address = String::from_utf8_lossy(&change.context).into_owned();
                change.context = (request, address).to_bytes().into();
                self.proposals.add(request, Proposal::Change(change), deadline, reply);
            }
        }
    }

    /// A new member is a learner first: it gets the log, and a vote when it has caught up.
    fn addition(&self, address: &str) -> Result<ConfChange, StoreError> {
        if self.machine.members.values().any(|known| known == address) {
            return Err(refuse(format!(
                "{address} is a member already; if it lost its disk, run `tenure peers remove {address}` first"
            )));
        }
        let id = (KernelEntropy.nonce() as u64).max(1);
        Ok(change_of(ConfChangeType::AddLearnerNode, id, address))
    }

    fn removal(&self, address: &str) -> Result<ConfChange, StoreError> {
        let found = self.machine.members.iter().find(|(_, known)| *known == address);
        let (id, _) = found.ok_or_else(|| {
            let known: Vec<&str> = self.machine.members.values().map(String::as_str).collect();
            refuse(format!("{address} is not a member; the members are {}", known.join(", ")))
        })?;
        let voters = self.machine.members.keys().filter(|id| self.is_voter(**id)).count();
        if voters == 1 && self.is_voter(*id) {
            return Err(refuse(format!(
                "{address} is the last member that votes: a group cannot be without one"
            )));
        }
        Ok(change_of(ConfChangeType::RemoveNode, *id, address))
    }

    fn on_tick(&mut self, now: Instant) -> Result<(), End> {
        self.raft.tick();
        let why = self.shared.why_not(self.leader != 0);
        self.proposals.expire(now, &why);
        self.reads.expire(now, &why);
        if self.raft.raft.state == StateRole::Leader {
            self.promote();
            self.abdicate();
        }
        match self.stopping {
            Some(stopping) if now >= stopping.until => Err(End::Stopped),
            Some(stopping) => self.leave(stopping),
            None => Ok(()),
        }
    }

    /// Gives a vote to a learner that has caught up, one at a time.
    fn promote(&mut self) {
        if self.raft.raft.has_pending_conf() {
            return;
        }
        let committed = self.raft.raft.raft_log.committed;
        let tracker = self.raft.raft.prs();
        // One that has just been added counts as active for a while, and may be nowhere: it has to have told how far it is.
        let caught_up = |matched: u64| matched > 0 && matched + CAUGHT_UP >= committed;
        let ready =
            |id: &&u64| tracker.get(**id).is_some_and(|seen| seen.recent_active && caught_up(seen.matched));
        let learner = tracker.conf().learners().iter().find(ready).copied();
        if let Some(id) = learner
            && let Some(address) = self.machine.members.get(&id)
        {
            let mut change = change_of(ConfChangeType::AddNode, id, address);
            change.context = (KernelEntropy.nonce(), address.clone()).to_bytes().into();
            let _ = self.raft.propose_conf_change(Vec::new(), change);
        }
    }

    /// A voting-only member is elected only when no other member has all of the log. It then hands that on, and the leadership with it.
    fn abdicate(&mut self) {
        if self.shared.settings.voting_only
            && self.raft.raft.lead_transferee.is_none()
            && let Some(successor) = self.successor(false)
        {
            self.raft.transfer_leader(successor);
        }
    }

    /// Hands the Raft leadership, if it has it, to the member that is furthest, so that none has to notice that it is gone.
    fn step_aside(&mut self) {
        let (until, term) =
            (Instant::now() + self.shared.settings.election * STEPPING_ASIDE, self.raft.raft.term);
        self.stopping.get_or_insert(Stopping { until, term });
        self.next_tick = Instant::now();
    }

    fn leave(&mut self, stopping: Stopping) -> Result<(), End> {
        let raft = &self.raft.raft;
        let look = StopState {
            leads: raft.state == StateRole::Leader,
            asked: raft.lead_transferee.is_some(),
            follows: raft.leader_id != 0 && raft.leader_id != raft.id,
            newer: raft.term > stopping.term,
        };
        match (look.next(), self.any_heir()) {
            (Next::Go, _) | (Next::Ask, None) => return Err(End::Stopped),
            (Next::Ask, Some(successor)) => self.raft.transfer_leader(successor),
            (Next::Wait, _) => {}
        }
        Ok(())
    }

    /// Asks the Raft leader to make way. A follower can only ask for itself: a message in the name of another member would
    /// be refused.
    fn depose(&mut self) {
        let own = self.raft.raft.id;
        let successor =
            if self.leader == own { self.any_heir() } else { Some(own).filter(|id| self.is_voter(*id)) };
        if let Some(successor) = successor {
            self.raft.transfer_leader(successor);
        }
    }

    /// Who could be the Raft leader in place of the present one; a voting-only member if there is no other.
    fn any_heir(&self) -> Option<u64> {
        self.successor(false).or_else(|| self.successor(true))
    }

    /// The furthest of those that answer and can be reached, among the voting-only members or among the others.
    fn successor(&self, voting_only: bool) -> Option<u64> {
        let tracker = self.raft.raft.prs();
        let others = tracker.conf().voters().ids();
        let others = others.iter().filter(|id| *id != self.leader && self.leader != 0);
        let others = others.filter(|id| self.shared.is_voting_only(*id) == voting_only);
        let seen = |id| {
            let seen = tracker.get(id).filter(|seen| seen.recent_active)?;
            Some((self.shared.is_connected(id), seen.matched, id))
        };
        others.filter_map(seen).max().map(|(.., id)| id)
    }

    fn propose(&mut self, now: Instant) {
        if self.leader == 0 {
            return;
        }
        let (raft, leader) = (&mut self.raft, self.leader);
        let mut depose = false;
        self.proposals.each_due(now, |proposal| match proposal {
            Proposal::Command(data) => raft.propose(Vec::new(), data.clone()).is_ok(),
            Proposal::Change(change)
                if change.get_change_type() == ConfChangeType::RemoveNode && change.node_id == leader =>
            {
                depose = true;
                false
            }
            Proposal::Change(change) => raft.propose_conf_change(Vec::new(), change.clone()).is_ok(),
        });
        if depose {
            self.depose();
        }
    }

    fn ask_for_reads(&mut self, now: Instant) {
        if self.leader != 0
            && let Some(number) = self.reads.question(now, self.tick * 2)
        {
            self.ask_how_far(number);
        }
    }

    fn ask_how_far(&mut self, number: u128) {
        let raft = &self.raft.raft;
        if self.leader == raft.id {
            self.raft.read_index(number.to_le_bytes().to_vec());
        } else {
            let question = read_index::question(raft, self.leader, number);
            self.send(vec![question]);
        }
    }

    /// What the library wants done, in the order that it asks for.
    fn on_ready(&mut self) -> Result<(), End> {
        let mut ready = self.raft.ready();
        self.send(ready.take_messages());
        if !ready.snapshot().is_empty() {
            let snapshot = ready.snapshot().clone();
            self.machine = Machine::from_bytes(&snapshot.data)?;
            self.applied = snapshot.get_metadata().index;
            self.shared.set_applied(self.applied);
            self.raft.mut_store().install(snapshot)?;
            self.shared.resync();
            self.tell();
        }
        self.apply(ready.take_committed_entries())?;
        let entries = ready.take_entries();
        if !entries.is_empty() || (ready.hs().is_some() && ready.must_sync()) {
            self.raft.mut_store().append(entries, ready.hs())?;
        }
        self.send(ready.take_persisted_messages());
        for state in ready.take_read_states() {
            if let Ok(number) = u128::from_bytes(&state.request_ctx) {
                self.reads.answered(number, state.index);
            }
        }
        let mut light = self.raft.advance(ready);
        if let Some(index) = light.commit_index() {
            self.raft.mut_store().commit_to(index);
        }
        self.send(light.take_messages());
        self.apply(light.take_committed_entries())?;
        self.raft.advance_apply();
        self.notice_leader();
        Ok(())
    }

    fn notice_leader(&mut self) {
        let leader = self.raft.raft.leader_id;
        if leader == self.leader {
            return;
        }
        self.leader = leader;
        self.proposals.all_due();
        self.reads.ask_again();
        self.tell();
        if leader == self.raft.raft.id && self.machine.group == 0 {
            let namespace = Name::new("tenure").expect("a name");
            let (request, group) = (KernelEntropy.nonce(), Some(KernelEntropy.nonce()));
            let naming = Command { request, since: self.applied, namespace, writes: Vec::new(), group };
            let _ = self.raft.propose(Vec::new(), naming.to_bytes());
        }
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            let (to, is_snapshot) = (message.to, message.get_msg_type() == MessageType::MsgSnapshot);
            if !self.shared.send(&message) {
                self.raft.report_unreachable(to);
                if is_snapshot {
                    self.raft.report_snapshot(to, SnapshotStatus::Failure);
                }
            }
        }
    }

    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), End> {
        for entry in entries {
            self.applied = entry.index;
            self.shared.set_applied(self.applied);
            match entry.get_entry_type() {
                EntryType::EntryNormal if entry.data.is_empty() => {}
                EntryType::EntryNormal => self.apply_command(entry.index, &entry.data)?,
                _ => self.apply_change(&entry.data)?,
            }
        }
        Ok(())
    }

    fn apply_command(&mut self, index: u64, data: &[u8]) -> Result<(), End> {
        let command = Command::from_bytes(data)?;
        let effect = self.machine.apply(index, &command);
        for key in &effect.notified {
            self.shared.changed(&command.namespace, key);
        }
        if self.proposals.has(effect.request) {
            let bytes = match effect.answer {
                Ok(outcomes) => Answer::Outcomes(outcomes),
                Err(error) => Answer::Failed(error),
            };
            let bytes = bytes.to_bytes();
            let again = || Answer::from_bytes(&bytes).unwrap_or(Answer::Done);
            self.proposals.answer(effect.request, again);
        }
        Ok(())
    }

    fn apply_change(&mut self, data: &[u8]) -> Result<(), End> {
        let change = ConfChange::parse_from_bytes(data).map_err(|_| Garbled("change of the members"))?;
        let (request, address): (u128, String) = Wire::from_bytes(&change.context)?;
        if self.raft.apply_conf_change(&change).is_ok() {
            match change.get_change_type() {
                ConfChangeType::RemoveNode => self.machine.members.remove(&change.node_id),
                _ => self.machine.members.insert(change.node_id, address),
            };
        }
        self.reshaped = true;
        self.proposals.answer(request, || Answer::Done);
        self.tell();
        Ok(())
    }

    fn serve_reads(&mut self) {
        for read in self.reads.served(self.applied) {
            let found = self.machine.read(&read.namespace, &read.query);
            let _ = read.reply.send(Answer::Entries(found));
        }
    }

    /// Shortens the log when it is long. After a change of the members at once, because a new member needs a
    /// snapshot that knows it.
    fn tidy(&mut self) -> Result<(), End> {
        if self.raft.store().is_drafted() {
            self.raft.mut_store().finish()?;
        }
        if !self.raft.store().is_drafting() && (self.reshaped || self.raft.store().is_long()) {
            let conf = self.raft.raft.prs().conf().to_conf_state();
            let data = self.machine.to_bytes();
            self.raft.mut_store().compact(self.applied, conf, data)?;
            self.reshaped = false;
        }
        Ok(())
    }

    /// Lets the others of this process know how the group looks.
    fn tell(&self) {
        self.shared.set_group_view(self.group_view());
    }

    fn group_view(&self) -> GroupView {
        let own = self.raft.raft.id;
        let member = |(id, address): (&u64, &String)| MemberView {
            id: *id,
            address: address.clone(),
            votes: self.is_voter(*id),
            voting_only: if *id == own {
                self.shared.settings.voting_only
            } else {
                self.shared.is_voting_only(*id)
            },
            reached: *id == own || self.shared.is_connected(*id),
        };
        let members = self.machine.members.iter().map(member).collect();
        GroupView { group: self.machine.group, leader: self.leader, members, me: own }
    }

    fn is_voter(&self, id: u64) -> bool {
        self.raft.raft.prs().conf().voters().ids().contains(id)
    }
}

fn change_of(kind: ConfChangeType, id: u64, address: &str) -> ConfChange {
    let mut change = ConfChange::default();
    change.set_change_type(kind);
    change.node_id = id;
    change.context = address.as_bytes().to_vec().into();
    change
}

/// Whether a write makes a register that is not there.
fn creates(write: &Write) -> bool {
    write.expect.is_none() && write.put.is_some()
}

fn refuse(message: String) -> StoreError {
    StoreError::not_applied(STORE, message).permanent()
}

/// Answers a client that may have gone.
fn fail(reply: Reply, error: StoreError) {
    let _ = reply.send(Answer::Failed(error));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that led used to go as soon as it did not lead any more. By then it had voted for its successor, but it had not
    /// seen to it that the vote was sent: where the successor could not reach a third one, no member led, for two elections.
    #[test]
    fn a_member_that_steps_aside_goes_when_another_leads() {
        let leads = StopState { leads: true, asked: false, follows: false, newer: false };
        let voted = StopState { leads: false, newer: true, ..leads };
        assert_eq!(leads.next(), Next::Ask);
        assert_eq!(StopState { asked: true, ..leads }.next(), Next::Wait);
        assert_eq!(leads.next(), Next::Ask, "also when the library has given up waiting for the successor");
        assert_eq!(voted.next(), Next::Wait);
        assert_eq!(StopState { follows: true, ..voted }.next(), Next::Go);
        assert_eq!(StopState { leads: false, ..leads }.next(), Next::Go, "it has no majority, or never led");
    }

    /// A follower of member 2 in a group of three, whose network reaches none of them.
    fn follower(dir: &std::path::Path) -> (Member, std::sync::mpsc::Sender<Input>, Receiver<Input>) {
        let secret = dir.join("secret");
        std::fs::write(&secret, super::super::trust::new_secret()).unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let url = format!("peers://a:1,b:1,c:1?secret-file={}&election=60s", secret.display());
        let settings = super::super::PeersSettings::parse(&url).unwrap();
        let mut snapshot = raft::eraftpb::Snapshot::default();
        let meta = snapshot.mut_metadata();
        (meta.index, meta.term) = (1, 1);
        meta.set_conf_state((vec![1, 2, 3], vec![]).into());
        snapshot.data = Machine::default().to_bytes().into();
        let log = Log::create(&dir.join("log"), snapshot).unwrap();
        let (sender, inputs) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Handle::current();
        let shared = Arc::new(Shared::new(settings, Arc::default(), runtime, sender.clone()));
        let mut member = Member::new(log, 1, shared).unwrap();
        tell(&mut member, &sender, &inputs, Input::Raft(Box::new(from_leader(MessageType::MsgHeartbeat))));
        assert_eq!(member.leader, 2);
        (member, sender, inputs)
    }

    fn from_leader(kind: MessageType) -> Message {
        let mut message = Message { from: 2, to: 1, term: 2, ..Message::default() };
        message.set_msg_type(kind);
        message
    }

    fn tell(
        member: &mut Member,
        sender: &std::sync::mpsc::Sender<Input>,
        inputs: &Receiver<Input>,
        input: Input,
    ) {
        sender.send(input).unwrap();
        assert!(member.turn(inputs).is_ok());
    }

    fn read() -> (Input, tokio::sync::oneshot::Receiver<Answer>) {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let query = tenure_store::Query { keys: vec![tenure_store::Key::Cluster], kinds: Vec::new() };
        let ask = Ask::Read(Name::new("a").unwrap(), query);
        (Input::Ask(ask, Instant::now() + Duration::from_secs(60), reply), answer)
    }

    /// Reads that came in while a question was out used to be asked for with the next input, or with the next tick, 50 ms later.
    #[tokio::test]
    async fn what_came_while_a_question_was_out_is_asked_for_as_soon_as_that_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let (mut member, sender, inputs) = follower(dir.path());
        let ((first, mut answered), (second, mut waits)) = (read(), read());
        tell(&mut member, &sender, &inputs, first);
        let asked = member.reads.asked().expect("a question");
        tell(&mut member, &sender, &inputs, second);
        assert_eq!(member.reads.asked(), Some(asked), "one at a time");
        let mut answer = from_leader(MessageType::MsgReadIndexResp);
        answer.index = 1;
        answer.set_entries(vec![Entry { data: asked.to_bytes().into(), ..Entry::default() }].into());
        tell(&mut member, &sender, &inputs, Input::Raft(Box::new(answer)));
        assert!(matches!(answered.try_recv(), Ok(Answer::Entries(_))));
        assert!(waits.try_recv().is_err());
        let next = member.reads.asked().expect("another question, without another input");
        assert_ne!(next, asked);
    }
}
