//! What the thread of a member and its network have in common.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc as blocking};

use raft::eraftpb::Message;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::super::hub::{Hub, lock};
use super::super::{Name, Signal, StoreError};
use super::codec::Wire;
use super::frame::{Frame, Papers, Roster};
use super::identity::Identity;
use super::link;
use super::member::{Input, shown};
use super::{STORE, Settings};

/// So many messages may wait for one member; what is lost is sent again.
const OUTBOX: usize = 4096;
/// So many frames may wait for one client; a client that is further behind has to look at everything anyway.
pub(super) const BACKLOG: usize = 1024;

/// How much requests of clients may weigh together, in [units](weight).
const ROOM: usize = (128 << 20) / UNIT;
const UNIT: usize = 1024;

/// What a request of so many bytes weighs: how much of the room for all it takes.
pub(super) fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).clamp(1, ROOM)).unwrap_or(u32::MAX)
}

/// What the thread of a member and its network have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// Empty until this member has started for the first time.
    pub(super) identity: Mutex<Option<Identity>>,
    pub(super) hub: Arc<Hub>,
    pub(super) runtime: Handle,
    inputs: blocking::Sender<Input>,
    /// How many inputs wait.
    pub(super) waiting: AtomicUsize,
    roster: Mutex<Roster>,
    /// Why this member cannot work, for people.
    trouble: Mutex<Option<(String, bool)>>,
    links: Mutex<HashMap<u64, Link>>,
    /// What members said of themselves; they may be in no roster that we have yet.
    heard_of: Mutex<HashMap<u64, Papers>>,
    clients: Mutex<Vec<Client>>,
    /// How much requests of clients may weigh that were not answered yet.
    pub(super) room: Arc<Semaphore>,
    /// For tests: by way of which other address a member is reached.
    routes: Mutex<HashMap<String, String>>,
}

/// The way to one other member.
#[derive(Debug)]
struct Link {
    address: String,
    outbox: mpsc::Sender<Message>,
    up: Arc<AtomicBool>,
    /// It is worth trying to connect now.
    wake: Arc<Notify>,
}

/// A connection that is told of changes.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) outbox: mpsc::Sender<Arc<[u8]>>,
    /// Something did not fit: it is to be told so.
    pub(super) missed: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        hub: Arc<Hub>,
        runtime: Handle,
        inputs: blocking::Sender<Input>,
    ) -> Self {
        Self {
            settings,
            identity: Mutex::default(),
            hub,
            runtime,
            inputs,
            waiting: AtomicUsize::new(0),
            roster: Mutex::default(),
            trouble: Mutex::default(),
            links: Mutex::default(),
            heard_of: Mutex::default(),
            clients: Mutex::default(),
            room: Arc::new(Semaphore::new(ROOM)),
            routes: Mutex::default(),
        }
    }

    /// Tells the thread something; false if it has ended.
    pub(super) fn input(&self, input: Input) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.inputs.send(input).is_ok()
    }

    /// The thread took an input.
    pub(super) fn taken(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends a message to another member; false if there is no way to it now.
    pub(super) fn send(self: &Arc<Self>, message: &Message) -> bool {
        let Some(address) = self.address(message.to) else { return false };
        self.keep_link(message.to, address);
        let links = lock(&self.links);
        links.get(&message.to).is_some_and(|link| link.outbox.try_send(message.clone()).is_ok())
    }

    /// Sees to it that there is a link to that member, at that address.
    fn keep_link(self: &Arc<Self>, id: u64, address: String) {
        let address = lock(&self.routes).get(&address).cloned().unwrap_or(address);
        let mut links = lock(&self.links);
        if links.get(&id).is_none_or(|link| link.address != address) {
            links.insert(id, self.start_link(id, address));
        }
    }

    fn start_link(self: &Arc<Self>, id: u64, address: String) -> Link {
        let (outbox, messages) = mpsc::channel(OUTBOX);
        let (up, wake) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let way = link::Way { id, address: address.clone(), up: up.clone(), wake: wake.clone() };
        self.runtime.spawn(link::run(Arc::downgrade(self), way, messages));
        Link { address, outbox, up, wake }
    }

    /// That member has come to us: it is there, and need not be waited for.
    pub(super) fn has_come(&self, id: u64) {
        if let Some(link) = lock(&self.links).get(&id) {
            link.wake.notify_one();
        }
    }

    /// Where a member is.
    fn address(&self, id: u64) -> Option<String> {
        let known =
            lock(&self.roster).seats.iter().find(|seat| seat.id == id).map(|seat| seat.address.clone());
        known.or_else(|| lock(&self.heard_of).get(&id).map(|papers| papers.address.clone()))
    }

    /// Whether that member leaves the Raft leadership to others.
    pub(super) fn is_witness(&self, id: u64) -> bool {
        lock(&self.heard_of).get(&id).is_some_and(|papers| papers.witness)
    }

    /// Whether there is a connection to that member.
    pub(super) fn is_connected(&self, id: u64) -> bool {
        lock(&self.links).get(&id).is_some_and(|link| link.up.load(Ordering::Relaxed))
    }

    /// Checks the papers of a member that connected, or was connected to. It is listened to only after this.
    pub(super) fn admit(&self, papers: &Papers) -> Result<(), StoreError> {
        let roster = lock(&self.roster);
        if !roster.seats.is_empty() && !roster.seats.iter().any(|seat| seat.id == papers.id) {
            let message = format!(
                "{} is not a member of this group, or not any more: `tenure peers add {}` makes it one",
                papers.address, papers.address
            );
            return Err(StoreError::not_applied(STORE, message));
        }
        drop(roster);
        let mut identity = lock(&self.identity);
        let own = identity.as_mut();
        own.ok_or_else(|| StoreError::not_applied(STORE, "this member has not started yet"))?.note(papers)?;
        lock(&self.heard_of).insert(papers.id, papers.clone());
        Ok(())
    }

    /// Tells every watch and every client of a change.
    pub(super) fn signal(&self, namespace: &Name, signal: &Signal) {
        self.hub.send(namespace, signal);
        self.tell_clients(|| Frame::Changed(namespace.clone(), shown(signal)));
    }

    /// Tells every watch and every client to look at everything again.
    pub(super) fn resync(&self) {
        self.hub.send_all(&Signal::Resync);
        self.tell_clients(|| Frame::Resync);
    }

    fn tell_clients(&self, frame: impl FnOnce() -> Frame) {
        let mut clients = lock(&self.clients);
        clients.retain(|client| !client.outbox.is_closed());
        if clients.is_empty() {
            return;
        }
        let frame: Arc<[u8]> = frame().to_bytes().into();
        for client in clients.iter() {
            if client.outbox.try_send(frame.clone()).is_err() {
                client.missed.store(true, Ordering::Release);
            }
        }
    }

    pub(super) fn add_client(&self, client: Client) {
        lock(&self.clients).push(client);
    }

    /// Notes how the group looks, and links up with everybody in it: also with those to whom there is nothing to say
    /// yet, so that it is known whether they can be reached.
    pub(super) fn set_roster(self: &Arc<Self>, roster: Roster) {
        lock(&self.links)
            .retain(|id, _| roster.seats.is_empty() || roster.seats.iter().any(|seat| seat.id == *id));
        for seat in roster.seats.iter().filter(|seat| seat.id != roster.me) {
            self.keep_link(seat.id, seat.address.clone());
        }
        *lock(&self.roster) = roster;
    }

    pub(super) fn set_leader(&self, leader: u64) {
        lock(&self.roster).leader = leader;
    }

    pub(super) fn roster(&self) -> Roster {
        lock(&self.roster).clone()
    }

    /// Why this member cannot work, and whether a person has to do something.
    pub(super) fn set_trouble(&self, trouble: Option<(String, bool)>) {
        let mut current = lock(&self.trouble);
        if *current != trouble
            && let Some((why, _)) = &trouble
        {
            tracing::warn!(member = self.settings.me.as_deref(), "{why}");
        }
        *current = trouble;
    }

    pub(super) fn trouble(&self) -> Option<(String, bool)> {
        lock(&self.trouble).clone()
    }

    /// Why a request was not carried out in time.
    pub(super) fn why_not(&self, led: bool) -> String {
        match self.trouble() {
            Some((why, _)) => why,
            None if led => {
                "the Raft leader did not answer in time: the members are overloaded or being cut off".into()
            }
            None => {
                "no majority of the members can be reached: start them, or look at the network between them"
                    .into()
            }
        }
    }

    /// For tests: lets a member be reached by way of another address.
    pub(super) fn route(&self, address: &str, through: &str) {
        lock(&self.routes).insert(address.to_owned(), through.to_owned());
    }
}
