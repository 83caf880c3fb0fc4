//! Peers: no store at all. The nodes themselves keep the registers, in a Raft group.
//!
//! ```text
//!   a member's handle ──▶ seat: one thread (Raft, log, registers) ──▶ links ══▶ servers of the other members
//!   a client's handle ══▶ server of any member ──▶ its thread
//!   watches ◀── hub ◀── applied entries                         ══ is an encrypted channel
//! ```
//!
//! Consensus is the library's (`raft`, the one inside TiKV); the log, the channel and the registers are ours. A write is
//! acknowledged when a majority has it on disk, and a read when the Raft leader proved to a majority that it leads.

mod certificates;
mod channel;
mod client;
mod codec;
mod file;
mod frame;
#[cfg(test)]
mod fuzz;
mod group;
mod identity;
mod link;
mod log;
mod machine;
mod member;
mod plain;
mod seat;
mod server;
mod settings;
mod shared;
mod start;
mod trust;
mod waiting;
mod whereabouts;

use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tenure_core::Entropy;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

pub use self::group::{Group, Seat};

use self::client::Client;
use self::frame::{Answer, Ask, Roster};
use self::identity::Place;
use self::member::Input;
use self::settings::{Settings, refuse};
use self::shared::Shared;
use super::hub::{Hub, lock};
use super::rules::check_batch;
use super::{
    Class, Description, Entry, Name, Outcome, Query, SessionId, Signal, Store, StoreError, Takeover, Witness,
    Write,
};
use crate::clock::KernelEntropy;

const STORE: &str = "peers";

/// The most bytes in one batch: it is one entry of the log.
const LARGEST_BATCH: usize = 16 << 20;
/// What a write takes beside its content, at most: the key and two versions.
const OVERHEAD: usize = 512;
/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(2);
/// More operations at once than anybody has.
const OPERATIONS: u32 = 1 << 20;

/// A handle on registers that the nodes themselves keep. See `docs/stores.md` for what it guarantees.
pub struct Peers {
    settings: Settings,
    way: Way,
    hub: Arc<Hub>,
    runtime: Handle,
    /// Dropped, it ends the thread of the network; that of a member is with the thread of the member.
    life: Mutex<Option<oneshot::Sender<()>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    busy: Arc<Semaphore>,
    closed: AtomicBool,
}

/// How this handle gets at the registers.
#[derive(Debug, Clone)]
enum Way {
    Member(Arc<Shared>),
    Client(Arc<Client>),
}

impl Peers {
    /// A handle on the group that a URL names: `peers://HOST:PORT,HOST:PORT,…?secret-file=PATH`, or with certificates
    /// `ca=PATH&cert=PATH&key=PATH` instead of the secret.
    ///
    /// With `me=HOST:PORT` this process is that member of the group and keeps a log in `dir=PATH`, unless
    /// `member=false`; otherwise it is a client. Further parameters: `witness`, `size`, `cluster`, `listen`, `timeout`,
    /// `election`.
    ///
    /// # Errors
    /// If the URL, the secret or a certificate cannot be read, or this member's address or directory is in use. Whether the others can
    /// be reached is found out later.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = Settings::parse(url)?;
        let hub = Arc::new(Hub::default());
        let (runtime, life, network) = start_runtime()?;
        let mut threads = vec![network];
        let (way, life) = match settings.me.clone() {
            None => {
                (Way::Client(Arc::new(Client::start(settings.clone(), hub.clone(), &runtime))), Some(life))
            }
            Some(me) => {
                let (shared, thread) = take_seat(&settings, &me, &hub, &runtime, life)?;
                threads.push(thread);
                (Way::Member(shared), None)
            }
        };
        let (life, threads) = (Mutex::new(life), Mutex::new(threads));
        let (busy, closed) = (Arc::new(Semaphore::new(OPERATIONS as usize)), AtomicBool::new(false));
        Ok(Self { settings, way, hub, runtime, life, threads, busy, closed })
    }

    /// Reads a URL, and nothing more.
    pub(super) fn check(url: &str) -> Result<(), StoreError> {
        Settings::parse(url).map(drop)
    }

    /// Who the members are. Answered by whichever member is asked, without a majority.
    ///
    /// # Errors
    /// If no member answers.
    pub async fn group(&self) -> Result<Group, StoreError> {
        Ok(self.roster().await?.into())
    }

    /// Makes that address a member: it is sent the log once it is started, and votes when it has caught up.
    ///
    /// # Errors
    /// If it is one, or no majority agrees in time.
    pub async fn add(&self, address: &str) -> Result<(), StoreError> {
        self.change(Ask::Add(address.to_owned())).await
    }

    /// Makes that address no member any more, whether it can be reached or not.
    ///
    /// # Errors
    /// If it is none, or the last one, or no majority agrees in time.
    pub async fn remove(&self, address: &str) -> Result<(), StoreError> {
        self.change(Ask::Remove(address.to_owned())).await
    }

    /// Whether this handle was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// For tests: lets this member reach that one by way of another address, such as that of a proxy.
    #[doc(hidden)]
    pub fn route(&self, address: &str, through: &str) {
        if let Way::Member(shared) = &self.way {
            shared.route(address, through);
        }
    }

    /// For tests: lets every write of the log take so long.
    #[doc(hidden)]
    pub fn slow_disk(&self, slowness: Duration) {
        if let Way::Member(shared) = &self.way {
            shared.input(Input::Slow(slowness));
        }
    }

    async fn change(&self, ask: Ask) -> Result<(), StoreError> {
        match self.ask(ask).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn roster(&self) -> Result<Roster, StoreError> {
        match self.ask(Ask::Group).await? {
            Answer::Group(roster) => Ok(roster),
            other => Err(unexpected(other)),
        }
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Has the thread of the network ask. Whoever does not wait for the answer leaves it to itself.
    async fn ask(&self, ask: Ask) -> Result<Answer, StoreError> {
        self.check_open()?;
        let permit = self.busy.clone().try_acquire_owned().map_err(|_| closed())?;
        let (way, timeout) = (self.way.clone(), self.settings.timeout);
        let work = async move {
            let _permit = permit;
            match way {
                Way::Member(shared) => server::answer(&shared, ask, timeout).await,
                Way::Client(client) => client.ask(ask).await,
            }
        };
        match self.runtime.spawn(work).await {
            Ok(Answer::Failed(error)) => Err(error),
            Ok(answer) => Ok(answer),
            Err(_) => Err(StoreError::unknown(
                STORE,
                "this handle was closed meanwhile: look whether it was written",
            )),
        }
    }

    /// Waits until the group has elected somebody for the first time.
    async fn named(&self) -> Result<Roster, StoreError> {
        let until = Instant::now() + self.settings.timeout;
        loop {
            let roster = self.roster().await?;
            if roster.group != 0 {
                return Ok(roster);
            }
            if Instant::now() > until {
                let why = "the members have not elected anybody yet: start a majority of them";
                return Err(StoreError::not_applied(STORE, why));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Listens, takes the directory, and starts the thread of a member.
fn take_seat(
    settings: &Settings,
    me: &str,
    hub: &Arc<Hub>,
    runtime: &Handle,
    life: oneshot::Sender<()>,
) -> Result<(Arc<Shared>, JoinHandle<()>), StoreError> {
    let place = Place::take(&settings.place(me)?)?;
    let listen = settings.listen.as_deref().unwrap_or(me);
    let listener = listen_at(listen, runtime).map_err(|error| {
        refuse(&format!(
            "{listen} cannot be listened at: {error}; if another process is this member, let this one be a client, \
             with member=false"
        ))
        .caused_by(error)
    })?;
    let (inputs, received) = mpsc::channel();
    let shared = Arc::new(Shared::new(settings.clone(), hub.clone(), runtime.clone(), inputs));
    shared.set_trouble(Some(("this member has only just been started".to_owned(), false)));
    runtime.spawn(server::run(listener, shared.clone()));
    let (held, me) = (shared.clone(), me.to_owned());
    let run = move || {
        seat::run(&held, &me, &place, &received);
        drop(life);
    };
    let thread =
        std::thread::Builder::new().name("tenure-member".to_owned()).spawn(run).map_err(no_resources)?;
    Ok((shared, thread))
}

fn listen_at(address: &str, runtime: &Handle) -> std::io::Result<TcpListener> {
    let _context = runtime.enter();
    let mut last = std::io::Error::other("it is no address of this host");
    for address in address.to_socket_addrs()? {
        let socket = if address.is_ipv4() {
            tokio::net::TcpSocket::new_v4()
        } else {
            tokio::net::TcpSocket::new_v6()
        }?;
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(1024)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A thread with a runtime, until the sender is dropped.
fn start_runtime() -> Result<(Handle, oneshot::Sender<()>, JoinHandle<()>), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_resources)?;
    let handle = runtime.handle().clone();
    let (life, end) = oneshot::channel();
    let work = move || {
        let _ = runtime.block_on(end);
        runtime.shutdown_background();
    };
    let thread =
        std::thread::Builder::new().name("tenure-peers".to_owned()).spawn(work).map_err(no_resources)?;
    Ok((handle, life, thread))
}

fn no_resources(error: std::io::Error) -> StoreError {
    StoreError::not_applied(STORE, format!("this process has no threads or descriptors left: {error}"))
        .caused_by(error)
}

fn closed() -> StoreError {
    StoreError::not_applied(STORE, "this handle was closed: open another one").permanent()
}

fn unexpected(answer: Answer) -> StoreError {
    match answer {
        Answer::Failed(error) => error,
        _ => StoreError::unknown(STORE, "a member answered something else: are all of one version?"),
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("settings", &self.settings)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.settings, f)
    }
}

#[async_trait]
impl Store for Peers {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.check_open().map(|()| Vec::new());
        }
        match self.ask(Ask::Read(namespace.clone(), query.clone())).await? {
            Answer::Entries(entries) => Ok(entries),
            other => Err(unexpected(other)),
        }
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let size =
            writes.iter().map(|write| OVERHEAD + write.put.as_ref().map_or(0, |(_, value)| value.json.len()));
        if size.sum::<usize>() > LARGEST_BATCH {
            return Err(refuse(&format!("a batch has {LARGEST_BATCH} bytes at most: write in several")));
        }
        match self.ask(Ask::Write(KernelEntropy.nonce(), namespace.clone(), writes.to_vec())).await? {
            Answer::Outcomes(outcomes) if outcomes.len() == writes.len() => Ok(outcomes),
            other => Err(unexpected(other)),
        }
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.hub.watch(namespace)
    }

    /// A connection says nothing here: members and clients change theirs as they like.
    async fn attest(&self, _: &Name, _: SessionId, _: Takeover) -> Result<Option<Witness>, StoreError> {
        self.check_open().map(|()| None)
    }

    fn release(&self, _: &Name, _: SessionId) {}

    fn attend(&self, _: &Name, _: SessionId, _: &str, _: Takeover) {}

    fn ignore(&self, _: &Name, _: SessionId) {}

    async fn describe(&self) -> Result<Description, StoreError> {
        let group: Group = self.named().await?.into();
        let place = if self.settings.me.is_some() { "a member of" } else { "a client of" };
        Ok(Description {
            class: Class::A,
            identity: format!("peers:{}#{}", self.settings.cluster, group.id.clone().unwrap_or_default()),
            about: format!(
                "{place} a Raft group of {}, cluster {}",
                group.seats.len(),
                self.settings.cluster
            ),
            rings: true,
            witnesses_death: false,
            witnesses_disconnect: false,
            remarks: group::remarks(&group),
        })
    }

    /// A member steps aside first, if it leads the group, so that the others need not notice that it is gone.
    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.hub.close();
        let _ = tokio::time::timeout(CLOSING, self.busy.acquire_many(OPERATIONS)).await;
        let threads = std::mem::take(&mut *lock(&self.threads));
        if let Way::Member(shared) = &self.way {
            shared.input(Input::Stop);
        }
        let life = lock(&self.life).take();
        let end = move || {
            let mut threads = threads.into_iter();
            let network = threads.next();
            threads.for_each(|member| drop(member.join()));
            drop(life);
            if let Some(network) = network {
                let _ = network.join();
            }
        };
        let _ = tokio::task::spawn_blocking(end).await;
    }
}

/// A watch that outlives its store would wait for ever; a member that outlives its handle would keep its address.
impl Drop for Peers {
    fn drop(&mut self) {
        self.hub.close();
        if let Way::Member(shared) = &self.way {
            shared.input(Input::Stop);
        }
    }
}
