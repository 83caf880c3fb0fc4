//! Peers: no store at all. The nodes themselves keep the registers, in a Raft group.
//!
//! ```text
//!   a member's handle ──▶ member: one thread (Raft, log, registers) ──▶ links ══▶ servers of the other members
//!   a client's handle ══▶ server of any member ──▶ its thread
//!   streams ◀── watches ◀── applied entries                         ══ is an encrypted channel
//! ```
//!
//! Consensus is the library's (`raft`, the one inside TiKV); the log, the channel and the registers are ours. A write is
//! acknowledged when a majority has it on disk, and a read when the Raft leader proved to a majority that it leads.

mod addresses;
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
mod read_index;
mod server;
mod settings;
mod shared;
mod start;
mod supervise;
mod trust;
mod waiting;

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

pub use self::group::{Group, GroupMember};

use self::client::Client;
use self::frame::{Answer, Ask, GroupView};
use self::identity::MemberDirectory;
use self::member::Input;
use self::settings::{PeersSettings, refuse};
use self::shared::Shared;
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::watches::{Watches, lock};
use tenure_store::{
    Backend, Class, Description, Entry, Name, OpenMode, Opening, Outcome, Query, ServersInUrl, Signal, Store,
    StoreError, Write,
};

const STORE: &str = "peers";

/// The most bytes in one batch: it is one entry of the log.
const LARGEST_BATCH: usize = 16 << 20;
/// What a write takes beside its content, at most: the key and two versions.
const OVERHEAD: usize = 512;
/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(2);
/// More operations at once than any process has.
const OPERATIONS: u32 = 1 << 20;

/// A handle on registers that the nodes themselves keep. See `docs/stores/peers.md` for what it guarantees.
pub struct Peers {
    settings: PeersSettings,
    kind: HandleKind,
    watches: Arc<Watches>,
    runtime: Handle,
    /// Dropped, it ends the thread of the network; that of a member is with the thread of the member.
    life: Mutex<Option<oneshot::Sender<()>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    busy: Arc<Semaphore>,
    closed: AtomicBool,
}

/// How this handle gets at the registers.
#[derive(Debug, Clone)]
enum HandleKind {
    Member(Arc<Shared>),
    Client(Arc<Client>),
}

/// This store, by its URLs.
pub const BACKEND: Backend =
    Backend::new(STORE, "the nodes themselves, by Raft", &["peers"], "peers://HOST:PORT,…", |url, mode| {
        // A tool that runs beside a member is not that member.
        let url =
            if mode == OpenMode::Node { url.to_owned() } else { Backend::add_parameter(url, "member=false") };
        Opening::checked(&url, |url| PeersSettings::parse(url).map(|_| None), Peers::open)
    })
    .with_servers(ServersInUrl::several(&["peers"], 0));

impl Peers {
    /// A handle on the group that a URL names: `peers://HOST:PORT,HOST:PORT,…?secret-file=PATH`, or with certificates
    /// `ca=PATH&cert=PATH&key=PATH` instead of the secret.
    ///
    /// With `me=HOST:PORT` this process is that member of the group and keeps a log in `dir=PATH`, unless
    /// `member=false`; otherwise it is a client. Further parameters: `voting-only`, `size`, `cluster`, `listen`, `timeout`,
    /// `election`.
    ///
    /// # Errors
    /// If the URL, the secret or a certificate cannot be read, or this member's address or directory is in use. Whether the others can
    /// be reached is found out later.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let settings = PeersSettings::parse(url)?;
        let watches = Arc::new(Watches::default());
        let (runtime, life, network) = start_runtime()?;
        let mut threads = vec![network];
        let (kind, life) = match settings.me.clone() {
            None => (
                HandleKind::Client(Arc::new(Client::start(settings.clone(), watches.clone(), &runtime))),
                Some(life),
            ),
            Some(me) => {
                let (shared, thread) = start_member(&settings, &me, &watches, &runtime, life)?;
                threads.push(thread);
                (HandleKind::Member(shared), None)
            }
        };
        let (life, threads) = (Mutex::new(life), Mutex::new(threads));
        let (busy, closed) = (Arc::new(Semaphore::new(OPERATIONS as usize)), AtomicBool::new(false));
        Ok(Self { settings, kind, watches, runtime, life, threads, busy, closed })
    }

    /// A new secret for a group, as `secret-file=` of a URL names it.
    #[must_use]
    pub fn new_secret() -> String {
        trust::new_secret()
    }

    /// The secret of the clients of a group, from the file with the secret of the group: who knows no more may read and
    /// write registers, and neither be a member nor change who is. `client-secret-file=` of a URL names it.
    ///
    /// # Errors
    /// If the file cannot be read, or every user of this host can read it.
    pub fn client_secret(file: impl AsRef<std::path::Path>) -> Result<String, StoreError> {
        trust::client_secret(file.as_ref())
    }

    /// Who the members are. Answered by whichever member is asked, without a majority.
    ///
    /// # Errors
    /// If no member answers.
    pub async fn group(&self) -> Result<Group, StoreError> {
        Ok(self.group_view().await?.into())
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
        if let HandleKind::Member(shared) = &self.kind {
            shared.route(address, through);
        }
    }

    /// For tests: lets every write of the log take so long.
    #[doc(hidden)]
    pub fn slow_disk(&self, slowness: Duration) {
        if let HandleKind::Member(shared) = &self.kind {
            shared.input(Input::Slow(slowness));
        }
    }

    async fn change(&self, ask: Ask) -> Result<(), StoreError> {
        match self.ask(ask).await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn group_view(&self) -> Result<GroupView, StoreError> {
        match self.ask(Ask::Group).await? {
            Answer::Group(group_view) => Ok(group_view),
            other => Err(unexpected(other)),
        }
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Has the thread of the network ask. A caller that does not wait for the answer leaves it to itself.
    async fn ask(&self, ask: Ask) -> Result<Answer, StoreError> {
        self.check_open()?;
        let permit = self.busy.clone().try_acquire_owned().map_err(|_| closed())?;
        let (kind, timeout) = (self.kind.clone(), self.settings.timeout);
        let work = async move {
            let _permit = permit;
            match kind {
                HandleKind::Member(shared) => server::answer(&shared, ask, timeout).await,
                HandleKind::Client(client) => client.ask(ask).await,
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

    /// Waits until the group has elected a leader for the first time.
    async fn named(&self) -> Result<GroupView, StoreError> {
        let until = Instant::now() + self.settings.timeout;
        loop {
            let group_view = self.group_view().await?;
            if group_view.group != 0 {
                return Ok(group_view);
            }
            if Instant::now() > until {
                let why = "the members have not elected a Raft leader yet: start a majority of them";
                return Err(StoreError::not_applied(STORE, why));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Listens, takes the directory, and starts the thread of a member.
fn start_member(
    settings: &PeersSettings,
    me: &str,
    watches: &Arc<Watches>,
    runtime: &Handle,
    life: oneshot::Sender<()>,
) -> Result<(Arc<Shared>, JoinHandle<()>), StoreError> {
    let directory = MemberDirectory::take(&settings.directory(me)?, settings.checks_dir)?;
    let listen = settings.listen.as_deref().unwrap_or(me);
    let listener = listen_at(listen, runtime).map_err(|error| {
        refuse(&format!(
            "{listen} cannot be listened at: {error}; if another process is this member, let this one be a client, \
             with member=false"
        ))
        .caused_by(error)
    })?;
    let (inputs, received) = mpsc::channel();
    let shared = Arc::new(Shared::new(settings.clone(), watches.clone(), runtime.clone(), inputs));
    shared.set_trouble(Some(("this member is starting".to_owned(), false)));
    runtime.spawn(server::run(listener, shared.clone()));
    let (held, me) = (shared.clone(), me.to_owned());
    let run = move || {
        supervise::run(&held, &me, &directory, &received);
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
        // Where the log is now, the member knows; or the client, before it first sends the request.
        let request = Ask::Write(KernelEntropy.nonce(), u64::MAX, namespace.clone(), writes.to_vec());
        match self.ask(request).await? {
            Answer::Outcomes(outcomes) if outcomes.len() == writes.len() => Ok(outcomes),
            other => Err(unexpected(other)),
        }
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.watches.watch(namespace)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let group: Group = self.named().await?.into();
        let part = if self.settings.me.is_some() { "a member of" } else { "a client of" };
        let mut described = Description::new(
            Class::A,
            format!("peers:{}#{}", self.settings.cluster, group.id.clone().unwrap_or_default()),
            format!("{part} a Raft group of {}, cluster {}", group.members.len(), self.settings.cluster),
        );
        described.notifies = true;
        described.remarks = group::remarks(&group);
        Ok(described)
    }

    /// A member steps aside first, if it leads the group, so that the others need not notice that it is gone.
    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.watches.close();
        let _ = tokio::time::timeout(CLOSING, self.busy.acquire_many(OPERATIONS)).await;
        let threads = std::mem::take(&mut *lock(&self.threads));
        if let HandleKind::Member(shared) = &self.kind {
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
        self.watches.close();
        if let HandleKind::Member(shared) = &self.kind {
            shared.input(Input::Stop);
        }
    }
}
