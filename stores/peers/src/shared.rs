//! What the thread of a member and its network have in common.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc as blocking};

use raft::eraftpb::Message;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::codec::Wire;
use super::frame::{Frame, GroupView, MemberInfo};
use super::identity::Identity;
use super::link;
use super::member::Input;
use super::{PeersSettings, STORE};
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{Key, Name, Signal, StoreError};

/// So many messages may wait for one member; what is lost is sent again.
const OUTBOX: usize = 4096;
/// So many frames may wait for one client; a client that is further behind has to look at everything anyway.
pub(super) const BACKLOG: usize = 1024;

/// How much requests of clients may weigh together, in [units](weight).
const QUEUE_UNITS: usize = (128 << 20) / UNIT;
const UNIT: usize = 1024;

/// What a request of so many bytes weighs: how much of the room for all it takes.
pub(super) fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).clamp(1, QUEUE_UNITS)).unwrap_or(u32::MAX)
}

/// What the thread of a member and its network have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: PeersSettings,
    /// Empty until this member has started for the first time.
    pub(super) identity: Mutex<Option<Identity>>,
    pub(super) watches: Arc<Watches>,
    pub(super) runtime: Handle,
    inputs: blocking::Sender<Input>,
    /// How many inputs wait.
    pub(super) waiting: AtomicUsize,
    group_view: Mutex<GroupView>,
    applied: AtomicU64,
    /// Why this member cannot work, for people.
    trouble: Mutex<Option<(String, bool)>>,
    links: Mutex<HashMap<u64, MemberLink>>,
    /// What members said of themselves; they may be in no view of the group that we have yet.
    introduced: Mutex<HashMap<u64, MemberInfo>>,
    clients: Mutex<Vec<ConnectedClient>>,
    /// How much requests of clients may weigh that were not answered yet.
    pub(super) space: Arc<Semaphore>,
    /// For tests: by way of which other address a member is reached.
    routes: Mutex<HashMap<String, String>>,
}

/// The way to one other member.
#[derive(Debug)]
struct MemberLink {
    address: String,
    outbox: mpsc::Sender<Message>,
    up: Arc<AtomicBool>,
    /// It is worth trying to connect now.
    wake: Arc<Notify>,
}

/// A connection that is told of changes.
#[derive(Debug)]
pub(super) struct ConnectedClient {
    pub(super) outbox: mpsc::Sender<Arc<[u8]>>,
    /// Something did not fit: it is to be told so.
    pub(super) missed: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn new(
        settings: PeersSettings,
        watches: Arc<Watches>,
        runtime: Handle,
        inputs: blocking::Sender<Input>,
    ) -> Self {
        Self {
            settings,
            identity: Mutex::default(),
            watches,
            runtime,
            inputs,
            waiting: AtomicUsize::new(0),
            group_view: Mutex::default(),
            applied: AtomicU64::new(0),
            trouble: Mutex::default(),
            links: Mutex::default(),
            introduced: Mutex::default(),
            clients: Mutex::default(),
            space: Arc::new(Semaphore::new(QUEUE_UNITS)),
            routes: Mutex::default(),
        }
    }

    /// How far the thread has applied the log.
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(super) fn set_applied(&self, index: u64) {
        self.applied.store(index, Ordering::Release);
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

    fn start_link(self: &Arc<Self>, id: u64, address: String) -> MemberLink {
        let (outbox, messages) = mpsc::channel(OUTBOX);
        let (up, wake) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let target = link::LinkTarget { id, address: address.clone(), up: up.clone(), wake: wake.clone() };
        self.runtime.spawn(link::run(Arc::downgrade(self), target, messages));
        MemberLink { address, outbox, up, wake }
    }

    /// That member has come to us: it is there, and need not be waited for.
    pub(super) fn has_come(&self, id: u64) {
        if let Some(link) = lock(&self.links).get(&id) {
            link.wake.notify_one();
        }
    }

    /// Where a member is.
    fn address(&self, id: u64) -> Option<String> {
        let known = lock(&self.group_view)
            .members
            .iter()
            .find(|member| member.id == id)
            .map(|member| member.address.clone());
        known.or_else(|| lock(&self.introduced).get(&id).map(|info| info.address.clone()))
    }

    /// Whether that member leaves the Raft leadership to others.
    pub(super) fn is_voting_only(&self, id: u64) -> bool {
        lock(&self.introduced).get(&id).is_some_and(|info| info.voting_only)
    }

    /// Whether there is a connection to that member.
    pub(super) fn is_connected(&self, id: u64) -> bool {
        lock(&self.links).get(&id).is_some_and(|link| link.up.load(Ordering::Relaxed))
    }

    /// Checks what a member says of itself that connected, or was connected to. It is listened to only after this.
    pub(super) fn admit(&self, info: &MemberInfo) -> Result<(), StoreError> {
        let group_view = lock(&self.group_view);
        if !group_view.members.is_empty() && !group_view.members.iter().any(|member| member.id == info.id) {
            let message = format!(
                "{} is not a member of this group, or not any more: `tenure peers add {}` makes it one",
                info.address, info.address
            );
            return Err(StoreError::not_applied(STORE, message));
        }
        drop(group_view);
        let mut identity = lock(&self.identity);
        let own = identity.as_mut();
        own.ok_or_else(|| StoreError::not_applied(STORE, "this member has not started yet"))?.note(info)?;
        lock(&self.introduced).insert(info.id, info.clone());
        Ok(())
    }

    /// Tells every watch and every client of a change.
    pub(super) fn changed(&self, namespace: &Name, key: &Key) {
        self.watches.send(namespace, &Signal::Changed(key.clone()));
        self.tell_clients(|| Frame::Changed(namespace.clone(), key.clone()));
    }

    /// Tells every watch and every client to look at everything again.
    pub(super) fn resync(&self) {
        self.watches.send_all(&Signal::Resync);
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

    pub(super) fn add_client(&self, client: ConnectedClient) {
        lock(&self.clients).push(client);
    }

    /// Notes how the group looks, and connects to every member: also to those to whom there is nothing to say
    /// yet, so that it is known whether they can be reached.
    pub(super) fn set_group_view(self: &Arc<Self>, group_view: GroupView) {
        lock(&self.links).retain(|id, _| {
            group_view.members.is_empty() || group_view.members.iter().any(|member| member.id == *id)
        });
        for member in group_view.members.iter().filter(|member| member.id != group_view.me) {
            self.keep_link(member.id, member.address.clone());
        }
        *lock(&self.group_view) = group_view;
    }

    pub(super) fn set_leader(&self, leader: u64) {
        lock(&self.group_view).leader = leader;
    }

    pub(super) fn group_view(&self) -> GroupView {
        lock(&self.group_view).clone()
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
